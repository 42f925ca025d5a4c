//! Bytes written, by what for.

use super::ratio;
use crate::manifest::{KeyspaceTotals, Totals};

/// Bytes written to the storage, by what for, over some time; and the bytes of keys and values that
/// they were written for. Of a keyspace, parts that are counted for the database only are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BytesWritten {
    /// Keys and values: of the database those committed or ingested, of a keyspace those flushed or
    /// ingested.
    pub data: u64,
    /// The commit log, zeros that are written ahead in it included. Of the database.
    pub wal: u64,
    /// Runs of entries that were in memtables, where there were none or beside older ones.
    pub flush: u64,
    /// Runs of entries that were in runs before, together with new ones or not.
    pub consolidation: u64,
    /// What cleaning of value files has written: runs with other pointers, and, of the database,
    /// the values that were moved.
    pub cleaning: u64,
    /// Runs of ingests.
    pub ingest: u64,
    /// The indexes of keyspaces.
    pub index: u64,
    /// Segments and indexes of keyspaces that were dropped since. Of the database.
    pub dropped: u64,
    /// The manifest. Of the database.
    pub manifest: u64,
    /// Value files, by commits, and values made of operands. Of the database.
    pub values: u64,
}

impl BytesWritten {
    /// Bytes written, of all parts.
    #[must_use]
    pub fn total(&self) -> u64 {
        let segments = self.flush + self.consolidation + self.cleaning + self.ingest;
        self.wal + segments + self.index + self.dropped + self.manifest + self.values
    }

    /// Bytes written for each byte of key and value; 0 when there is none. What is still in
    /// memtables has been written to the log only.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        ratio(self.total(), self.data)
    }

    /// The parts of [`BytesWritten::total`], with their names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 9] {
        [
            ("wal", self.wal),
            ("flush", self.flush),
            ("consolidation", self.consolidation),
            ("cleaning", self.cleaning),
            ("ingest", self.ingest),
            ("index", self.index),
            ("dropped", self.dropped),
            ("manifest", self.manifest),
            ("values", self.values),
        ]
    }

    pub(super) fn of_keyspace(totals: &KeyspaceTotals, data: u64) -> BytesWritten {
        let KeyspaceTotals { flush, consolidation, cleaning, ingest, index } = *totals;
        BytesWritten {
            data,
            flush,
            consolidation,
            cleaning,
            ingest,
            index,
            ..BytesWritten::default()
        }
    }

    pub(super) fn of_database(totals: &Totals) -> BytesWritten {
        let keyspaces = totals.keyspaces.values();
        let all = keyspaces.fold(KeyspaceTotals::default(), |sum, of| sum.plus(of));
        BytesWritten {
            wal: totals.wal,
            cleaning: all.cleaning + totals.moved,
            dropped: totals.gone,
            manifest: totals.manifest,
            values: totals.values,
            ..BytesWritten::of_keyspace(&all, totals.data)
        }
    }
}
