//! Storing bytes, and making what was done durable.
//!
//! The order is written once, in [`FlexSpace::commit`]: data, names, index, and only then what the
//! index does not need any more goes (S1, S2 of the module).

use std::sync::Arc;

use super::extent::{Address, StoredExtent};
use super::index::Checkpoint;
use super::op::Op;
use super::space::FlexSpace;
use super::stats::{Counters, SpaceStats};
use super::writer::SegmentWriter;
use crate::base::{Error, Result};
use crate::structure::flex::tree::MapExtent;

impl FlexSpace {
    /// Makes everything until now durable, as a whole: a crash leaves all of it, or the state of
    /// the sync before. With a journal it costs two syncs of the storage and about ten bytes for
    /// each operation; without one, or when the journal is full, the index is written anew.
    ///
    /// With a journal, operations sync by themselves, first, when there are about a million since
    /// the last sync.
    ///
    /// When there is more garbage than [`SpaceOptions::garbage_fraction`] allows, some of it is
    /// collected before.
    ///
    /// # Errors
    /// `DiskFull`, or `Io` when a write of data or of a checkpoint fails: nothing is lost, and the
    /// next sync tries again. `Io` when a write of the journal, or a sync of the storage, fails:
    /// what is durable is the state of this or the last sync, and everything that changes the space
    /// is refused with `ReadOnly` from then on.
    ///
    /// [`SpaceOptions::garbage_fraction`]: super::SpaceOptions::garbage_fraction
    pub fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        self.collect_if_due();
        self.commit()
    }

    /// As [`FlexSpace::sync`], and writes the index anew, so that the next opening replays nothing.
    ///
    /// # Errors
    /// As [`FlexSpace::sync`].
    pub fn checkpoint(&mut self) -> Result<()> {
        self.check_usable()?;
        self.settle_data()?;
        self.write_checkpoint()
    }

    /// Syncs, and closes the space. Snapshots can be read on; until they are dropped the space
    /// cannot be opened.
    ///
    /// # Errors
    /// As [`FlexSpace::sync`].
    pub fn close(mut self) -> Result<SpaceStats> {
        self.sync()?;
        self.index.settle()?;
        Ok(self.stats())
    }

    /// Before an operation changes anything: the journal must have room for it.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.index.is_full() { self.commit() } else { Ok(()) }
    }

    /// Bytes of a caller into segments; where they are now.
    pub(super) fn store(&mut self, bytes: &[u8]) -> Result<Vec<StoredExtent>> {
        let stored = self.store_again(bytes)?;
        self.tally.user_bytes += bytes.len() as u64;
        Ok(stored)
    }

    /// Bytes into segments; where they are now.
    pub(super) fn store_again(&mut self, bytes: &[u8]) -> Result<Vec<StoredExtent>> {
        self.begin()?;
        let mut stored: Vec<StoredExtent> = Vec::with_capacity(1);
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.make_room()?;
            let writer = self.writer.as_mut().expect("there is one that has room");
            let segment = writer.segment.number;
            let address = Address { segment, offset: writer.size() };
            let len = writer.append(rest, room);
            self.layout.segments.entry(segment).or_default().size = writer.size();
            let piece = StoredExtent { address, len, tag: None };
            match stored.last_mut().and_then(|last| Some((last.joined(piece)?, last))) {
                Some((joined, last)) => *last = joined,
                None => stored.push(piece),
            }
            rest = &rest[len as usize..];
        }
        Ok(stored)
    }

    /// Sees to it that there is a writer with room in its buffer; the room in its segment.
    fn make_room(&mut self) -> Result<u32> {
        let data_max = self.tuning.data_size_max();
        if self.writer.as_ref().is_some_and(|writer| writer.size() >= data_max) {
            self.finish_segment()?;
        }
        if self.writer.is_none() {
            self.begin_segment()?;
        }
        let writer = self.writer.as_mut().expect("it was made");
        writer.make_room()?;
        Ok(data_max - writer.size())
    }

    fn begin_segment(&mut self) -> Result<()> {
        let number = self.next_segment;
        let Some(next) = number.checked_add(1) else {
            return Err(Error::invalid("the space has used up all numbers of segments"));
        };
        // A file that could not be made may be there all the same: its number is not used again.
        self.next_segment = next;
        let writer = SegmentWriter::create(&self.place, number)?;
        self.has_new_names = true;
        Arc::make_mut(&mut self.files).insert(number, Arc::clone(&writer.segment));
        self.writer = Some(writer);
        Ok(())
    }

    /// Makes the segment that is written to durable, and writes to it no more.
    pub(super) fn finish_segment(&mut self) -> Result<()> {
        self.write_segment()?;
        self.sync_segment()?;
        if let Some(writer) = self.writer.take() {
            self.tally.finished_bytes += writer.written();
        }
        Ok(())
    }

    /// Writes all that was stored to the file, unsynced.
    pub(super) fn write_segment(&mut self) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.finish_block();
        self.layout.segments.entry(writer.segment.number).or_default().size = writer.size();
        writer.write_out()
    }

    fn sync_segment(&mut self) -> Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.is_unsynced()) else {
            return Ok(());
        };
        let synced = writer.sync();
        let extended = Op::Extend { segment: writer.segment.number, size: writer.size() };
        synced.map_err(|error| self.fail(error))?;
        self.apply(extended);
        Ok(())
    }

    /// Makes durable what the index is going to point to.
    fn settle_data(&mut self) -> Result<()> {
        self.write_segment()?;
        self.sync_segment()?;
        if self.has_new_names {
            let dir = &self.place.dir;
            let synced = self.place.storage.sync_dir(dir);
            let synced = synced.map_err(|source| Error::io("sync", dir, source));
            synced.map_err(|error| self.fail(error))?;
            self.has_new_names = false;
        }
        Ok(())
    }

    /// Makes everything until now durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.check_usable()?; // S3: a collection may have failed just now.
        if !self.index.is_changed() {
            self.drop_dead();
            return Ok(());
        }
        self.settle_data()?;
        let Counters { user_bytes, written_bytes } = self.lifetime();
        self.index.note(&Op::Count { user_bytes, written_bytes });
        if self.index.wants_checkpoint() {
            return self.write_checkpoint();
        }
        let appended = self.index.append();
        self.finish_commit(appended)
    }

    fn write_checkpoint(&mut self) -> Result<()> {
        let state = Checkpoint {
            layout: &self.layout,
            next_segment: self.next_segment,
            counters: self.lifetime(),
        };
        let written = self.index.checkpoint(&state);
        self.finish_commit(written)
    }

    fn finish_commit(&mut self, written: Result<u64>) -> Result<()> {
        match written {
            Ok(size) => self.tally.index_bytes += size,
            Err(error) if self.index.failure().is_some() => return Err(self.fail(error)),
            Err(error) => return Err(error),
        }
        self.tally.sync_count += 1;
        self.drop_dead();
        Ok(())
    }

    /// Lets go of segments that nothing points to, now that the index says so durably, and removes
    /// the files that no snapshot needs either.
    fn drop_dead(&mut self) {
        if !self.index.is_changed() {
            let current = self.writer.as_ref().map(|writer| writer.segment.number);
            for number in self.layout.forget_dead(current) {
                if let Some(segment) = Arc::make_mut(&mut self.files).remove(&number) {
                    segment.retire();
                }
            }
        }
        self.tally.segments_removed += self.place.remove_doomed();
    }

    /// Bytes written to the segment that is written to.
    pub(super) fn current_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, SegmentWriter::written)
    }

    fn lifetime(&self) -> Counters {
        self.tally.lifetime(self.current_bytes())
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
        }
    }

    /// S3: nothing is changed any more.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(format!("an earlier call failed: {error}"));
        error
    }
}
