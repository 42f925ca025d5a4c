//! Moving values out of files that are to be emptied. Whoever refers to a value has it moved and
//! takes the new pointer; the file goes when nobody refers to it any more. What comes to be on the
//! way is written beside them.
//!
//! Values that are moved are gathered and written together: one by one, each would be a write to
//! the disk of its own. What is sealed with different keys goes to different files.
//!
//! Who has a mover write says what became of the pointers: durable runs hold the files, or nobody
//! has them and their room is given back. As long as neither is said, the files stay (V3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::ValueLog;
use super::append::OwnFile;
use super::format::{record_len, seal_record};
use super::read::{Verify, WHOLE_LEN_MAX, read_record};
use super::reader::ValueReader;
use super::stream::ValueStream;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Result, ValuePointer};
use crate::cache::{Charge, Part};

/// Moved values are gathered until they take this much.
const GATHER_LEN: usize = 256 << 10;

/// Moves values, in the order in which they are asked for, into files of its own.
#[derive(Debug)]
pub struct Mover {
    log: Arc<ValueLog>,
    victims: BTreeSet<u64>,
    /// Whose values are moved.
    owner: u32,
    /// The files that it writes to, by the number of the data key; 0 for none.
    outs: BTreeMap<u16, OwnFile>,
    /// The one of them that was written to last.
    at: u16,
    /// Files that were written to and that nobody else may hold yet, as they were before.
    written: Vec<OwnFile>,
    /// Whether something may have been written of which it was not said what became of it.
    is_in_doubt: bool,
    values: u64,
    moved_bytes: u64,
    placed_bytes: u64,
    /// Records that are the last of the file that was written to last, and not written yet.
    gathered: Vec<u8>,
    /// Of these.
    charge: Option<Charge>,
    /// Values that the system is to begin to read.
    expected: Vec<ValuePointer>,
    /// Files that it is to read from end to end first, and from where on each.
    unread: VecDeque<(u64, u64)>,
}

impl Mover {
    /// Moves values out of these files.
    #[must_use]
    pub fn new(log: &Arc<ValueLog>, victims: BTreeSet<u64>) -> Mover {
        let log = Arc::clone(log);
        Mover {
            log,
            victims,
            owner: 0,
            outs: BTreeMap::new(),
            at: 0,
            written: Vec::new(),
            is_in_doubt: false,
            values: 0,
            moved_bytes: 0,
            placed_bytes: 0,
            gathered: Vec::new(),
            charge: None,
            expected: Vec::new(),
            unread: VecDeque::new(),
        }
    }

    /// Says whose values are moved from here on: those of a keyspace, by the number of its store.
    pub fn work_for(&mut self, owner: u32) {
        self.owner = owner;
    }

    /// The files that values are moved out of.
    #[must_use]
    pub fn victims(&self) -> &BTreeSet<u64> {
        &self.victims
    }

    /// Values moved.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Bytes of their records.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Bytes of all records written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.moved_bytes + self.placed_bytes
    }

    /// Has all of the files read by the system before values are moved, if they have no more than
    /// `bytes` in all: [`Self::read_on`] then begins with it, part by part.
    pub fn read_first(&mut self, bytes: u64) {
        let files = self.victims.iter().filter_map(|number| self.log.find(*number));
        if files.map(|file| file.size()).sum::<u64>() <= bytes {
            self.unread = self.victims.iter().map(|number| (*number, 0)).collect();
        }
    }

    /// Has the system begin to read the next `bytes` of what is to be read first; so many were left
    /// to begin with.
    pub fn read_on(&mut self, bytes: u64) -> u64 {
        let mut begun = 0;
        while begun < bytes
            && let Some((number, from)) = self.unread.front_mut()
        {
            let file = self.log.find(*number);
            let left = file.as_ref().map_or(0, |file| file.size().saturating_sub(*from));
            let part = left.min(bytes - begun);
            if let Some(Ok(handle)) = file.filter(|_| part > 0).map(|file| file.file()) {
                handle.begin_read(*from, part);
            }
            begun += part;
            *from += part;
            if part == left {
                self.unread.pop_front();
            }
        }
        begun
    }

    /// Says that a value will be asked for soon; the bytes that will be moved then.
    pub fn expect(&mut self, pointer: &ValuePointer) -> u64 {
        if !self.victims.contains(&pointer.file) {
            return 0;
        }
        self.expected.push(*pointer);
        record_len(u64::from(pointer.len))
    }

    /// Has the system begin to read what is expected ([`ValueLog::begin_reading`]).
    pub fn begin_reading(&mut self) {
        self.log.begin_reading(std::mem::take(&mut self.expected));
    }

    /// Moves a value, if it lies in one of the files; its new pointer. What is damaged stays where
    /// it is, for those who read it to be told. Durable after [`Self::finish_slice`]. In memory is
    /// one of up to 1 MiB, or a piece of a longer one.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn moved(&mut self, pointer: &ValuePointer) -> Result<Option<ValuePointer>> {
        if !self.victims.contains(&pointer.file) {
            return Ok(None);
        }
        let moved = match pointer.len > WHOLE_LEN_MAX {
            true => self.move_in_pieces(pointer),
            false => self.move_whole(pointer),
        };
        match moved {
            // Only what is read can be found damaged.
            Err(error) if error.is_corruption() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Writes a new value of a keyspace, beside those that are moved. Durable after
    /// [`Self::finish_slice`].
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Closed`.
    pub fn place(&mut self, keyspace: u32, value: &[u8]) -> Result<ValuePointer> {
        let out = self.take_out(keyspace)?;
        let mut stream = ValueStream::into_file(&self.log, out, keyspace);
        stream.push(value)?; // The file goes back, by `written`.
        let (placed, out) = stream.finish_in_file()?;
        self.put_out(out);
        self.placed_bytes += record_len(u64::from(placed.len));
        Ok(placed)
    }

    fn move_whole(&mut self, pointer: &ValuePointer) -> Result<ValuePointer> {
        let record = read_record(&self.log.file_of(pointer)?, pointer, self.log.budget.heap())?;
        if self.gathered.len() >= GATHER_LEN {
            self.write_gathered()?;
        }
        self.make_room(self.owner)?;
        let out = self.outs.get_mut(&self.at).expect("room was made");
        let (start, size) = (self.gathered.len(), record.layout.end);
        self.gathered.extend_from_slice(&record.data[..record.layout.table_end as usize]);
        self.gathered.resize(start + size as usize, 0);
        let (file, offset) = (&out.writable.file, out.end);
        seal_record(&mut self.gathered[start..], file.place_at(offset), record.header);
        let moved = ValuePointer { file: file.number(), offset, ..*pointer };
        out.end += size;
        let capacity = self.gathered.capacity();
        self.charge
            .get_or_insert_with(|| self.log.budget.charge(Part::Buffer, capacity))
            .resize(capacity);
        self.note_moved(size);
        Ok(moved)
    }

    /// Writes what was gathered.
    fn write_gathered(&mut self) -> Result<()> {
        let out = self.outs.get(&self.at).filter(|_| !self.gathered.is_empty());
        let Some(out) = out else { return Ok(()) };
        let (writable, size) = (&out.writable, self.gathered.len() as u64);
        writable.write(&self.gathered, out.end - size)?;
        writable.file.note_size(out.end);
        writable.begin_writeback(out.end);
        self.log.note_written(writable, size);
        self.gathered.clear();
        Ok(())
    }

    /// The file to write values of a keyspace to, with all of it written that is in front of its
    /// end.
    fn take_out(&mut self, keyspace: u32) -> Result<OwnFile> {
        self.write_gathered()?;
        self.make_room(keyspace)?;
        Ok(self.outs.remove(&self.at).expect("room was made"))
    }

    fn put_out(&mut self, out: OwnFile) {
        self.at = out.key_id();
        self.outs.insert(self.at, out);
    }

    /// Its hash is verified as well: it is computed anyway.
    fn move_in_pieces(&mut self, pointer: &ValuePointer) -> Result<ValuePointer> {
        let mut reader = ValueReader::verifying(&self.log, pointer, Verify::Hash)?;
        let out = self.take_out(self.owner)?;
        let mut stream = ValueStream::into_file(&self.log, out, reader.keyspace());
        loop {
            match reader.next_piece() {
                Ok([]) => break,
                Ok(piece) => stream.push(piece)?, // The file goes back, by `written`.
                Err(error) => {
                    self.put_out(stream.give_up());
                    return Err(error);
                }
            }
        }
        let (moved, out) = stream.finish_in_file()?;
        self.put_out(out);
        assert_eq!((moved.len, moved.hash), (pointer.len, pointer.hash), "it was verified");
        self.note_moved(record_len(u64::from(moved.len)));
        Ok(moved)
    }

    fn note_moved(&mut self, size: u64) {
        self.values += 1;
        self.moved_bytes += size;
        self.log.note_moved(size);
    }

    /// Makes the moved values durable, before anything durable refers to them (V2).
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn finish_slice(&mut self) -> Result<()> {
        self.write_gathered()?;
        if is_seeded(Bug::MovedValuesNotSynced) {
            return Ok(());
        }
        self.log.sync()
    }

    /// Says that durable runs hold the files now.
    pub fn note_held(&mut self) {
        self.written.clear();
        self.written.extend(self.outs.values().map(OwnFile::as_it_is));
        self.is_in_doubt = false;
    }

    /// Says that nobody has a pointer to anything written since [`Self::note_held`], nor will:
    /// gives its room back.
    pub fn take_back(&mut self) {
        self.outs.clear();
        self.gathered.clear();
        self.written.drain(..).for_each(|before| self.log.cut_back(before));
        self.is_in_doubt = false;
    }

    /// Sees to it that there is a file with room for what is written next, for a keyspace.
    fn make_room(&mut self, keyspace: u32) -> Result<()> {
        self.is_in_doubt = true;
        let key = self.log.key_of(keyspace);
        if key != self.at {
            self.write_gathered()?; // It is of the file of before.
            self.at = key;
        }
        let is_full = self.outs.get(&key).is_some_and(|out| out.end >= self.log.file_size);
        if is_full {
            self.write_gathered()?;
            self.outs.remove(&key); // `written` holds it.
        }
        if !self.outs.contains_key(&key) {
            let out = self.log.take_own_file(keyspace)?;
            self.written.push(out.as_it_is());
            self.put_out(out);
        }
        Ok(())
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        if self.is_in_doubt {
            // After a panic, or when the index failed: an edit that names the files may be durable,
            // and the database is not read-only yet. They must stay, and are not written to again.
            let written = self.written.drain(..);
            written.for_each(|before| std::mem::forget(before.writable.file));
        } else {
            let outs = std::mem::take(&mut self.outs).into_values();
            outs.for_each(|out| self.log.give_back_own_file(out));
        }
    }
}
