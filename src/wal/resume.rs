//! From nothing, or from what was read back, to a log that can be appended to.
//!
//! Order of [`Wal::resume`], each step durable before the next (a crash between any two leads to
//! the same decision again)
//! 1. The part of the log that is only known to be in the cache is written once more and synced.
//! 2. A file gets a number above all others; its header names the cut and is synced. From here on
//!    the bytes behind the cut can not come back.
//! 3. Files above the cut are removed, and the directory is synced.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::seal::id_of;
use crate::storage::{OpenMode, unless_held_back};

use super::append::RecordWriter;
use super::directory::{PreparedFile, Spare, WalPlace};
use super::header::{FileHeader, Previous};
use super::lsn::Lsn;
use super::replay::Replay;
use super::survey::FoundFile;
use super::sync::Watermark;
use super::writer::{HeaderState, LiveFile, Reuse, Wal, write_header};
use super::zeros::Blocks;

/// Bytes rewritten in one go.
const REWRITE_CHUNK_SIZE: u64 = 256 << 10;

impl Wal {
    /// Creates a log in the existing directory of `place`. It is durable on return, but for the
    /// directory's own name.
    ///
    /// Files that a creation left behind which did not come to its end are removed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the directory holds a log with records, or the options
    /// cannot work. [`Error::DiskFull`], [`Error::Io`].
    pub fn create(place: WalPlace) -> Result<Wal> {
        place.validate()?;
        let leftovers = place.numbers()?;
        for number in &leftovers {
            refuse_records(&place, *number)?;
        }
        for number in &leftovers {
            place.remove(&place.path_of(*number))?;
        }
        let number = leftovers.last().map_or(1, |last| last + 1);
        let prepared = place.prepare(number, place.options.file_capacity, None)?;
        let first = start_file(&place, prepared, Lsn::ZERO, None)?;
        Ok(Wal::with_files(place, VecDeque::from([first])))
    }

    /// Resumes the log that `replay` has read, behind its last record. On return all that was read
    /// is durable, and what was cut off can not come back. Bytes behind the cut are lost.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: nothing that counts has changed. The same replay can be
    /// resumed again after `DiskFull`; after `Io`, replay again.
    pub fn resume(place: WalPlace, replay: &Replay) -> Result<Wal> {
        place.validate()?;
        let end = replay.recovered().end;
        // A file without records is left out, so that opening again and again adds no files.
        let with_records = replay.chain.iter().take_while(|header| header.start < end);
        let chain: Vec<FileHeader> = with_records.copied().collect();
        let mut files = open_chain(&place, &chain)?;
        rewrite_unsynced(replay, &files)?;

        let previous = match chain.last() {
            Some(last) => Some(Previous { number: last.number, start: last.start }),
            None => replay.chain[0].previous,
        };
        let prepared = prepare_above_all(&place, replay)?;
        let newest = start_file(&place, prepared, end, previous)?;
        let newest = LiveFile { commits_before: replay.commits_end, ..newest };
        if let Some(last) = files.back() {
            note_next(last, &newest.header)?;
        }
        let cut_number = previous.map_or(0, |previous| previous.number);
        remove_between(&place, cut_number, newest.header.number)?;
        files.push_back(newest);
        let mut wal = Wal::with_files(place, files);
        wal.released_up_to = replay.required_from;
        if wal.place.options.kept_bytes_max > 0 || wal.place.options.held_from < Lsn::MAX {
            wal.history = open_chain(&wal.place, &history_of(replay))?;
        }
        wal.take_up_leftovers()?;
        wal.trim_history();
        Ok(wal)
    }

    fn with_files(place: WalPlace, files: VecDeque<LiveFile>) -> Wal {
        let newest = files.back().expect("a log has a current file");
        let (last_commit_end, newest) = (newest.commits_before, newest.header);
        Wal {
            place,
            watermark: Arc::new(Watermark::new(newest.start)),
            end: newest.start,
            commits_end: newest.start,
            last_commit_end,
            last_claim: newest.start,
            released_up_to: Lsn::ZERO,
            bytes_appended: 0,
            zero_bytes: 0,
            next_number: newest.number + 1,
            next: None,
            order_is_out: false,
            spares: Vec::new(),
            record_writer: RecordWriter::default(),
            files,
            history: VecDeque::new(),
        }
    }

    /// Files that are not part of the log become spares or go.
    fn take_up_leftovers(&mut self) -> Result<()> {
        for number in self.place.numbers()? {
            let mut of_log = self.history.iter().chain(&self.files);
            if of_log.any(|file| file.header.number == number) {
                continue;
            }
            let path = self.place.path_of(number);
            let Some(file) = self.place.open_unless_shared(number)? else {
                let _taken_up_by_the_next_one = self.place.remove(&path);
                continue;
            };
            let capacity = file.size().map_err(|e| Error::io("read", &path, e))?;
            self.keep_or_remove(Spare { path, file, capacity });
        }
        Ok(())
    }
}

/// Refuses a file that a creation cannot have left behind.
fn refuse_records(place: &WalPlace, number: u64) -> Result<()> {
    let path = place.path_of(number);
    let refused = || Error::invalid(format!("{} holds a log already", path.display()));
    // Also when the header is not readable or is that of another database.
    let found = FoundFile::open(place, number).and_then(FoundFile::with_key);
    let mut found = found.map_err(|error| match error {
        Error::Corruption { .. } | Error::FormatVersion { .. } => refused(),
        other => other,
    })?;
    let proof = found.proof_without_header(Lsn::ZERO)?;
    if proof.records_end > Lsn::ZERO { Err(refused()) } else { Ok(()) }
}

/// Writes the header of a new file and makes it durable. All before `start` is durable already.
fn start_file(
    place: &WalPlace,
    prepared: PreparedFile,
    start: Lsn,
    previous: Option<Previous>,
) -> Result<LiveFile> {
    let key = place.key_for_new(prepared.number)?;
    let header = FileHeader {
        database_id: place.database_id,
        number: prepared.number,
        start,
        capacity: prepared.capacity,
        previous,
        durable_up_to: start,
        key: id_of(key.as_deref()),
    };
    let path = &prepared.path;
    write_header(&header, &*prepared.file).map_err(|e| Error::io("write", path, e))?;
    prepared.file.sync().map_err(|e| Error::io("sync", path, e))?;
    Ok(LiveFile::new(header, prepared, HeaderState::Durable, key))
}

/// W12: notes in the file that was cut where the log goes on; but not where it has a name elsewhere
/// (W10). On return that is durable.
fn note_next(cut: &LiveFile, next: &FileHeader) -> Result<()> {
    if cut.reuse == Reuse::Never {
        return Ok(());
    }
    cut.write_next(next, false).map_err(|e| Error::io("write", &cut.path, e))?;
    cut.file.sync().map_err(|e| Error::io("sync", &cut.path, e))
}

/// Makes durable what was read but may only be in the operating system's cache: the process may
/// have been killed before it synced, or a sync may have failed, after which the cache shows bytes
/// that a plain sync does not write any more. So they are written again. But not what has a name
/// elsewhere (W10): all of it was durable before it got that, and nothing was written to it since.
fn rewrite_unsynced(replay: &Replay, files: &VecDeque<LiveFile>) -> Result<()> {
    let end = replay.recovered().end;
    for (index, file) in files.iter().enumerate() {
        let (header, path) = (&file.header, &*file.path);
        let records_end = files.get(index + 1).map_or(end, |next| next.header.start);
        let header_is_durable = replay.durable_up_to > header.start;
        let from = header.start.max(replay.durable_up_to).max(replay.required_from);
        if header_is_durable && from >= records_end {
            continue;
        }
        if file.reuse == Reuse::Possible {
            if !header_is_durable {
                write_header(header, &*file.file).map_err(|e| Error::io("write", path, e))?;
            }
            rewrite(file, header.offset_of(from), records_end.bytes_since(from))?;
        }
        file.file.sync().map_err(|e| Error::io("sync", path, e))?;
    }
    Ok(())
}

/// Writes what is there once more.
fn rewrite(file: &LiveFile, mut offset: u64, mut len: u64) -> Result<()> {
    let path = &*file.path;
    let mut buffer = vec![0; len.min(REWRITE_CHUNK_SIZE) as usize];
    while len > 0 {
        let piece = &mut buffer[..len.min(REWRITE_CHUNK_SIZE) as usize];
        file.file.read_exact_at(piece, offset).map_err(|e| Error::io("read", path, e))?;
        file.file.write_all_at(piece, offset).map_err(|e| Error::io("write", path, e))?;
        offset += piece.len() as u64;
        len -= piece.len() as u64;
    }
    Ok(())
}

/// Makes a file ready whose number is above all others. A file above all valid headers may be
/// taken for it: no header names it, and under a new number its bytes mean nothing. (Of one below,
/// a header may say that it came before, and of one that the log was about to go on in, the file in
/// front of it: W12. It would then seem lost if this recovery is interrupted.)
fn prepare_above_all(place: &WalPlace, replay: &Replay) -> Result<PreparedFile> {
    let capacity = place.options.file_capacity;
    let numbers = place.numbers()?;
    let number = numbers.last().map_or(1, |last| last + 1);
    let from_top = replay.files.values().rev();
    let reusable = from_top.take_while(|found| found.valid_header().is_none()).find(|found| {
        let is_usual = found.window.size() == capacity && numbers.contains(&found.number);
        is_usual && !is_noted(replay, found.number)
    });
    let spare = match reusable {
        None => None,
        Some(found) => {
            let file = place.open_unless_shared(found.number)?; // W10
            file.map(|file| Spare { path: found.window.path().to_owned(), file, capacity })
        }
    };
    place.prepare(number, capacity, spare)
}

/// Whether a file says that the log goes on in this one.
fn is_noted(replay: &Replay, number: u64) -> bool {
    let mut notes = replay.files.values().filter_map(|file| file.next);
    notes.any(|next| next.number == number)
}

/// Opens files of the log. One that has a name elsewhere is only read (W10).
fn open_chain(place: &WalPlace, chain: &[FileHeader]) -> Result<VecDeque<LiveFile>> {
    let open = |header: &FileHeader| {
        let (file, reuse) = match place.open_unless_shared(header.number)? {
            Some(file) => (file, Reuse::Possible),
            None => (place.open(header.number, OpenMode::ReadOnly)?, Reuse::Never),
        };
        let prepared = PreparedFile {
            number: header.number,
            path: place.path_of(header.number),
            file,
            capacity: header.capacity,
            blocks: Blocks::Written,
        };
        let key = place.key_of(header)?;
        Ok(LiveFile { reuse, ..LiveFile::new(*header, prepared, HeaderState::Durable, key) })
    };
    chain.iter().map(open).collect()
}

/// The files in front of what recovery needed, as far as they follow one another, lowest first.
fn history_of(replay: &Replay) -> Vec<FileHeader> {
    let mut history = Vec::new();
    let mut above = replay.chain[0];
    while let Some(previous) = above.previous
        && let Some(file) = replay.files.get(&previous.number)
        && let Some(header) = file.valid_header()
        && !file.is_without_key()
        && header.start == previous.start
        && header.number < above.number
        && (header.start..=header.limit()).contains(&above.start)
    {
        history.push(*header);
        above = *header;
    }
    history.reverse();
    history
}

/// W8: no file is left between the cut and the newest file, so that nothing behind the cut is
/// taken for the log even if the newest header is damaged one day.
fn remove_between(place: &WalPlace, cut: u64, newest: u64) -> Result<()> {
    let numbers = place.numbers()?;
    let between = numbers.iter().filter(|number| (cut + 1..newest).contains(number));
    let mut removed_count = 0;
    for number in between {
        // One that is held back goes with the next recovery: it is reached by no header.
        unless_held_back(place.remove(&place.path_of(*number)))?;
        removed_count += 1;
    }
    if removed_count > 0 { place.sync_dir() } else { Ok(()) }
}
