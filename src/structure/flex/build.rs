//! Writing runs: blocks of entries into frames, frames into the open segments.

use std::sync::Arc;

use super::interval::separator;
use super::record::{ChangeRecord, RunRecord};
use super::segment::{SegmentPlace, SegmentWriter};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Codec, EntryRef, Result, Slice};
use crate::block::{BlockBuilder, FrameKind, FramePlace, RestartPolicy, frame};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::structure::ShareSums;

/// Which of the open segments a run goes to. Runs that die together lie together: deltas die when
/// their interval is consolidated, bases when the sweep comes round again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Delta,
    Base,
}

/// What runs are written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// New entries, where there were none, or beside older ones.
    #[default]
    Flush,
    /// Entries that were in runs before, with or without new ones.
    Consolidation,
    /// The same, to move values.
    Cleaning,
}

/// Bytes of frames, by what they were written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenFor([u64; 3]);

impl WrittenFor {
    pub(super) fn bytes(&self, purpose: Purpose) -> u64 {
        self.0[purpose as usize]
    }

    fn add(&mut self, purpose: Purpose, bytes: u64) {
        self.0[purpose as usize] += bytes;
    }
}

/// What is constant about a keyspace's runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOptions {
    pub codec: Codec,
    pub segment_size: u64,
    /// Bytes of a base run, about.
    pub interval_size: usize,
}

/// Writes runs of one keyspace, each stream into its own segment.
#[derive(Debug)]
pub(super) struct RunWriter {
    place: Arc<SegmentPlace>,
    options: RunOptions,
    delta: Option<SegmentWriter>,
    base: Option<SegmentWriter>,
    /// Full segments that were written to since the last [`Self::take_written`].
    sealed: Vec<SegmentWriter>,
    /// Full segments that were synced ahead of the rest, and where they end.
    synced: Vec<(u64, u64)>,
    /// Segments that were created and are in no edit yet.
    unlisted: Vec<u64>,
    /// Whether a file was created since the directory was synced.
    directory: Directory,
    payload: Vec<u8>,
    bytes_written: u64,
    /// What runs are written for from now on.
    pub purpose: Purpose,
    written_for: WrittenFor,
    /// Runs that are in no edit yet: their records wait for it.
    unlisted_runs: usize,
    charge: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directory {
    Synced,
    Changed,
}

impl RunWriter {
    pub(super) fn new(
        place: Arc<SegmentPlace>,
        options: RunOptions,
        budget: &Arc<MemoryBudget>,
    ) -> RunWriter {
        RunWriter {
            unlisted_runs: 0,
            charge: budget.charge(Part::Buffer, 0),
            place,
            options,
            delta: None,
            base: None,
            sealed: Vec::new(),
            synced: Vec::new(),
            unlisted: Vec::new(),
            directory: Directory::Synced,
            payload: Vec::new(),
            bytes_written: 0,
            purpose: Purpose::default(),
            written_for: WrittenFor::default(),
        }
    }

    pub(super) fn options(&self) -> RunOptions {
        self.options
    }

    /// Bytes of frames written since opening.
    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Charges what the buffers and the records of a slice take, about.
    fn note_memory(&mut self) {
        const BYTES_PER_RUN: usize = size_of::<ChangeRecord>() + size_of::<RunRecord>();
        let writers = [&self.delta, &self.base].into_iter().flatten();
        let buffers: usize = writers.map(SegmentWriter::buffer_capacity).sum();
        // The entries of a payload are gathered by a builder of the same size.
        let payload = 2 * self.payload.capacity();
        self.charge.resize(buffers + payload + self.unlisted_runs * BYTES_PER_RUN);
    }

    /// The same, by what they were written for.
    pub(super) fn written_for(&self) -> WrittenFor {
        self.written_for
    }

    /// Writes the builder's entries as one run and clears the builder.
    pub(super) fn write(
        &mut self,
        stream: Stream,
        builder: &mut BlockBuilder,
        level: u8,
    ) -> Result<RunRecord> {
        let entry_count = u32::try_from(builder.entry_count()).expect("a payload is below 4 GiB");
        let (mut values, expiring) = (ShareSums::of(builder).shares(), builder.expiry_span());
        if self.purpose == Purpose::Cleaning && is_seeded(Bug::MovedPointerForgotten) {
            values.clear();
        }
        self.payload.clear();
        builder.finish(&mut self.payload);
        self.make_room(stream)?;
        let slot = match stream {
            Stream::Delta => &mut self.delta,
            Stream::Base => &mut self.base,
        };
        let writer = slot.as_mut().expect("room was made");
        let (payload, codec) = (&self.payload, self.options.codec);
        let start = writer.position();
        let sum = writer.append(|segment, offset, out| {
            let (file, file_tag, key) = (&*segment.path, segment.file_tag, segment.key());
            let place = FramePlace { file, file_tag, offset, key };
            frame::seal(payload, codec, FrameKind::Entries, place, out)
        })?;
        let len = u32::try_from(writer.position() - start).expect("a frame is below 4 GiB");
        self.bytes_written += u64::from(len);
        self.written_for.add(self.purpose, u64::from(len));
        self.unlisted_runs += 1;
        let segment = writer.segment.number;
        self.note_memory();
        Ok(RunRecord {
            segment,
            offset: start,
            len,
            checksum: sum as u32,
            entry_count,
            level,
            stamp: None,
            expiring,
            values,
        })
    }

    /// Sees to it that the stream has a segment with room.
    fn make_room(&mut self, stream: Stream) -> Result<()> {
        let slot = match stream {
            Stream::Delta => &mut self.delta,
            Stream::Base => &mut self.base,
        };
        if slot.as_ref().is_some_and(|writer| writer.position() < self.options.segment_size) {
            return Ok(());
        }
        self.sealed.extend(slot.take());
        let number = self.place.take_number();
        self.place.note_unlisted(number);
        self.unlisted.push(number);
        self.directory = Directory::Changed;
        *slot = Some(SegmentWriter::create(&self.place, number)?);
        Ok(())
    }

    /// Makes all runs durable (X4). Returns the segments written to and where they end.
    pub(super) fn sync(&mut self) -> Result<Vec<(u64, u64)>> {
        let writers = self.sealed.iter_mut().chain(self.delta.as_mut()).chain(self.base.as_mut());
        let mut ends = self.synced.clone();
        for writer in writers {
            if !is_seeded(Bug::SegmentsNotSynced) {
                writer.sync()?;
            }
            ends.push((writer.segment.number, writer.position()));
        }
        if self.directory == Directory::Changed {
            let dir = &self.place.dir;
            let synced = self.place.storage.sync_dir(dir);
            synced.map_err(|error| crate::base::Error::io("sync", dir, error))?;
            self.directory = Directory::Synced;
        }
        self.sealed.clear();
        self.synced.clear();
        Ok(ends)
    }

    /// Makes full segments durable and closes them, but for the newest `keep`, whose writing the
    /// system has only begun: so that who writes much holds few files open, and waits little.
    pub(super) fn sync_full(&mut self, keep: usize) -> Result<()> {
        while self.sealed.len() > keep {
            let mut oldest = self.sealed.remove(0);
            oldest.sync()?;
            self.synced.push((oldest.segment.number, oldest.position()));
        }
        Ok(())
    }

    /// Ends the open segments: what is written from here on goes to new ones.
    pub(super) fn close(&mut self) {
        self.sealed.extend(self.delta.take());
        self.sealed.extend(self.base.take());
    }

    /// The segments that later runs may still go to.
    pub(super) fn open_segments(&self) -> Vec<u64> {
        let open = self.delta.iter().chain(&self.base);
        open.map(|writer| writer.segment.number).collect()
    }

    /// Says that the segments that [`Self::sync`] returned are in the index.
    pub(super) fn note_listed(&mut self) {
        self.place.forget_unlisted(&self.unlisted);
        self.unlisted.clear();
        self.unlisted_runs = 0;
        self.note_memory();
    }

    /// After a failure: gives up the open segments. What was written to them since the last sync
    /// is not referred to. Returns the segments of which nothing is, unless the edit may have
    /// become durable nevertheless.
    pub(super) fn abandon(&mut self) -> Vec<u64> {
        self.sealed.clear();
        self.synced.clear();
        self.delta = None;
        self.base = None;
        self.unlisted_runs = 0;
        self.note_memory();
        self.place.forget_unlisted(&self.unlisted);
        std::mem::take(&mut self.unlisted)
    }
}

/// Cuts a stream of entries, ascending over any number of neighbouring intervals, into base runs
/// of the target size.
#[derive(Debug)]
pub(super) struct BaseCutter {
    builder: BlockBuilder,
    /// Anchor of the run that is being built.
    anchor: Slice,
    target: usize,
    done: Vec<(Slice, Option<RunRecord>)>,
    last_key: Vec<u8>,
}

impl BaseCutter {
    /// Starts at an interval with this anchor.
    pub(super) fn new(anchor: Slice, target: usize) -> BaseCutter {
        BaseCutter {
            builder: BlockBuilder::new(RestartPolicy::Adaptive),
            anchor,
            target,
            done: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Adds an entry, which must not be a tombstone (X3).
    pub(super) fn add(&mut self, entry: EntryRef<'_>, writer: &mut RunWriter) -> Result<()> {
        if !self.builder.is_empty() {
            let with_entry = self.builder.estimated_size() + entry.key.len() + entry.value.len();
            if with_entry > self.target {
                self.cut(writer, entry.key)?;
            }
        }
        self.builder.add(entry)
    }

    fn cut(&mut self, writer: &mut RunWriter, next_key: &[u8]) -> Result<()> {
        self.last_key.clear();
        self.last_key.extend_from_slice(self.builder.last_key());
        let run = writer.write(Stream::Base, &mut self.builder, 0)?;
        let next_anchor = separator(&self.last_key, next_key);
        self.done.push((std::mem::replace(&mut self.anchor, next_anchor), Some(run)));
        Ok(())
    }

    /// Writes what is left. Without any entries, the result is empty: the interval is gone.
    pub(super) fn finish(
        mut self,
        writer: &mut RunWriter,
    ) -> Result<Vec<(Slice, Option<RunRecord>)>> {
        if !self.builder.is_empty() {
            let run = writer.write(Stream::Base, &mut self.builder, 0)?;
            self.done.push((self.anchor, Some(run)));
        }
        Ok(self.done)
    }
}
