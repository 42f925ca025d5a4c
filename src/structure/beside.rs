//! The index of a store that somebody else writes: whether it says of something that no log tells.
//!
//! All that changes what a keyspace has goes through the commit log, but for ingests: of these an
//! edit of the index is all there is. It is told from others by the newest stamp, which a flush
//! raises when it is complete, and counts then, and an ingest raises without.

use crate::base::{Result, SeqNo};
use crate::manifest::{GoesOn, LogTail, Record};
use crate::storage::Storage;

/// What an edit says that tells ingests from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexCounts {
    pub flush_count: u64,
    pub last_seqno: SeqNo,
}

/// An index as it was read, and where to go on reading.
#[derive(Debug)]
pub(super) struct BesideIndex {
    /// None once there was an ingest, or may have been.
    tail: Option<LogTail>,
    counts: IndexCounts,
    /// Flushes that were complete when it was opened.
    flushes_before: u64,
}

impl BesideIndex {
    pub(super) fn new(tail: Option<LogTail>, counts: IndexCounts) -> BesideIndex {
        BesideIndex { tail, counts, flushes_before: counts.flush_count }
    }

    /// Flushes that have come to be complete since it was opened, when it was last looked at.
    pub(super) fn flushes(&self) -> u64 {
        self.counts.flush_count.saturating_sub(self.flushes_before)
    }

    /// Whether there was an ingest since, or may have been: where an edit cannot be read, or the
    /// log went on in a new file, from a snapshot with a newer stamp. `counts_of` reads edits,
    /// `counts_in` what a snapshot begins with.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    pub(super) fn has_ingest(
        &mut self,
        storage: &dyn Storage,
        counts_of: impl Fn(&[u8]) -> Option<IndexCounts>,
        counts_in: impl Fn(&[u8]) -> Option<IndexCounts>,
    ) -> Result<bool> {
        let Some(tail) = &mut self.tail else { return Ok(true) };
        let mut seen = Seen { counts: self.counts, may_be_ingest: false };
        let goes_on = tail.read_on(storage, &mut |edit| {
            seen.edit(counts_of(edit));
            Ok(())
        })?;
        match goes_on {
            GoesOn::Here => {}
            GoesOn::Otherwise => seen.may_be_ingest = true,
            GoesOn::InNextFile => {
                let mut is_first = true;
                tail.go_over(storage, |record| {
                    match record.record {
                        Record::SnapshotPart(part) if std::mem::take(&mut is_first) => {
                            seen.snapshot(counts_in(part));
                        }
                        Record::SnapshotPart(_) | Record::SnapshotEnd => {}
                        Record::Edit(edit) => seen.edit(counts_of(edit)),
                    }
                    Ok(())
                })?;
            }
        }
        self.counts = seen.counts;
        if seen.may_be_ingest {
            self.tail = None;
        }
        Ok(self.tail.is_none())
    }
}

/// What was seen of an index that is read on.
struct Seen {
    counts: IndexCounts,
    may_be_ingest: bool,
}

impl Seen {
    /// `None` for one that cannot be read.
    fn edit(&mut self, now: Option<IndexCounts>) {
        let Some(now) = now else { return self.may_be_ingest = true };
        let is_newer = now.last_seqno > self.counts.last_seqno;
        self.may_be_ingest |= is_newer && now.flush_count == self.counts.flush_count;
        self.counts = now;
    }

    /// Of several edits, of which it does not say how they went.
    fn snapshot(&mut self, now: Option<IndexCounts>) {
        let Some(now) = now else { return self.may_be_ingest = true };
        self.may_be_ingest |= now.last_seqno > self.counts.last_seqno;
        self.counts = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{EditLog, EditLogId};
    use crate::storage::MemoryStorage;
    use std::path::Path;
    use std::sync::Arc;

    const ID: EditLogId = EditLogId { stem: "index", kind: 7, database: 1, owner: 2 };

    fn encode(flush_count: u64, last_seqno: u64) -> Vec<u8> {
        [flush_count.to_le_bytes(), last_seqno.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<IndexCounts> {
        let (count, seqno) = bytes.split_first_chunk::<8>()?;
        let last_seqno = SeqNo::from_u64(u64::from_le_bytes(seqno.try_into().ok()?));
        Some(IndexCounts { flush_count: u64::from_le_bytes(*count), last_seqno })
    }

    #[test]
    fn an_ingest_is_told_from_flushes_and_from_a_file_that_goes_on() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let dir = Path::new("/store");
        storage.create_dir_all(dir).unwrap();
        let head = |sink: &mut crate::manifest::SnapshotSink, count, seqno| {
            sink.part(&encode(count, seqno))?;
            sink.part(b"not the counts")
        };
        let create = |sink: &mut crate::manifest::SnapshotSink| head(sink, 1, 10);
        let mut log = EditLog::create(Arc::clone(&storage), dir, ID, 1, 4096, create).unwrap();
        let opened = EditLog::open(Arc::clone(&storage), dir, ID, None, |_| Ok(())).unwrap().0;
        let mut beside = BesideIndex::new(opened.found().cloned(), decode(&encode(1, 10)).unwrap());
        let mut look = || {
            let has_ingest = beside.has_ingest(&*storage, decode, decode).unwrap();
            (has_ingest, beside.flushes())
        };
        assert_eq!(look(), (false, 0));
        log.append(&encode(1, 10)).unwrap(); // A slice, or a consolidation.
        assert_eq!(look(), (false, 0));
        log.append(&encode(2, 20)).unwrap();
        assert_eq!(look(), (false, 1));
        log.rotate(4096, |sink| head(sink, 2, 20)).unwrap();
        assert_eq!(look(), (false, 1));
        log.append(&encode(3, 30)).unwrap();
        assert_eq!(look(), (false, 2));
        log.append(&encode(3, 31)).unwrap();
        assert_eq!(look(), (true, 2));
        assert_eq!(look(), (true, 2), "and stays so");
    }

    #[test]
    fn a_file_that_goes_on_with_a_newer_stamp_may_have_an_ingest() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let dir = Path::new("/store");
        storage.create_dir_all(dir).unwrap();
        let create = |sink: &mut crate::manifest::SnapshotSink| sink.part(&encode(1, 10));
        let mut log = EditLog::create(Arc::clone(&storage), dir, ID, 1, 4096, create).unwrap();
        let opened = EditLog::open(Arc::clone(&storage), dir, ID, None, |_| Ok(())).unwrap().0;
        let counts = decode(&encode(1, 10)).unwrap();
        let mut beside = BesideIndex::new(opened.found().cloned(), counts);
        log.rotate(4096, |sink| sink.part(&encode(2, 20))).unwrap();
        assert!(beside.has_ingest(&*storage, decode, decode).unwrap());
    }
}
