//! Flushing to the archive: what a memtable has goes there whole, in front of the structure.

use std::sync::Arc;

use crate::base::{RangeTombstones, Result};
use crate::cache::Part;
use crate::db::core::{Core, lock};
use crate::db::history::entries::ArchiveEntries;
use crate::db::state::{KeyspaceState, Table};
use crate::structure::{FlushOrder, FlushProgress};

/// Bytes that are kept beside the memtable for each of its entries while it is flushed: its stamp
/// and place, and half as much again while they are sorted.
const BUFFERED_PER_ENTRY: usize = 24;

impl Core {
    /// Brings what a sealed memtable has to the keyspace's archive, if it has one and not all of
    /// that yet. The caller has the keyspace's turn to flush, and the log is durable up to the
    /// memtable's end.
    pub(in crate::db) fn archive(
        &self,
        keyspace: &KeyspaceState,
        table: &Table,
        order: FlushOrder,
    ) -> Result<()> {
        let Some(archive) = keyspace.runtime.archive.as_ref().filter(|_| !table.is_archived())
        else {
            return Ok(());
        };
        let turn = lock(&archive.flushing);
        let (memtable, heap) = (&table.memtable, self.budget.heap());
        let buffers = memtable.entry_count() * BUFFERED_PER_ENTRY;
        let _buffers = self.budget.charge(Part::Buffer, buffers);
        let mut entries = ArchiveEntries::new(memtable, archive.store.version(), heap);
        let nothing = RangeTombstones::default();
        loop {
            let outcome = archive.store.flush(&mut entries, &nothing, order)?;
            self.publish_version(archive, &outcome.version);
            if outcome.progress == FlushProgress::Complete {
                break;
            }
        }
        drop(turn);
        table.note_archived();
        self.workers.note_leftovers();
        self.workers.wake(); // There may be tables to merge.
        Ok(())
    }
}

impl KeyspaceState {
    /// Whether all versions of its keys are kept.
    pub(in crate::db) fn keeps_history(&self) -> bool {
        self.runtime.archive.is_some()
    }

    /// The keyspace as it was at a stamp, out of its memtables and this state of its archive.
    pub(in crate::db) fn as_past(&self, version: crate::structure::history::VersionAt) -> Self {
        KeyspaceState { version: Arc::new(version), is_past: true, ..self.clone() }
    }
}
