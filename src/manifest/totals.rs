//! Totals: what was written since the database was created. They go along with edits that are made
//! anyway, so they cost no sync, and a crash takes what was counted since the last edit; of commits
//! and of the log it takes nothing, for these are counted again from `log_end` on.
//!
//! `docs/format/manifest.md` has the table.

use std::collections::BTreeMap;

use crate::base::varint;
use crate::manifest::fields::{Decoded, Fields};

/// Counts since the database was created; bytes where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Commits in front of this position of the log are counted, later ones are not.
    pub log_end: u64,
    /// How many commits.
    pub commits: u64,
    /// Of keys and values, committed or ingested.
    pub data: u64,
    /// Written to the log.
    pub wal: u64,
    /// Written to value files, but not by cleaning.
    pub values: u64,
    /// Written to value files by cleaning.
    pub moved: u64,
    /// Written to the manifest.
    pub manifest: u64,
    /// Written to segments and indexes of keyspaces that are gone.
    pub gone: u64,
    /// Rounds of cleaning.
    pub cleanings: u64,
    /// Number of the newest value file that was made: none is given again, as what is kept of the
    /// log to be read may point to files that are gone.
    pub value_files: u64,
    /// Of the keyspaces that there are, by id.
    pub keyspaces: BTreeMap<u32, KeyspaceTotals>,
}

/// Bytes written since a keyspace was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceTotals {
    /// Runs of new entries.
    pub flush: u64,
    /// Runs of entries that were in runs before.
    pub consolidation: u64,
    /// Runs whose pointers cleaning has changed.
    pub cleaning: u64,
    /// Runs of ingests.
    pub ingest: u64,
    /// The index.
    pub index: u64,
}

impl KeyspaceTotals {
    /// All of it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let KeyspaceTotals { flush, consolidation, cleaning, ingest, index } = *self;
        flush + consolidation + cleaning + ingest + index
    }

    /// Both.
    #[must_use]
    pub fn plus(&self, other: &KeyspaceTotals) -> KeyspaceTotals {
        KeyspaceTotals {
            flush: self.flush + other.flush,
            consolidation: self.consolidation + other.consolidation,
            cleaning: self.cleaning + other.cleaning,
            ingest: self.ingest + other.ingest,
            index: self.index + other.index,
        }
    }
}

impl Totals {
    /// Leaves only keyspaces that `exist` apart; the others are `gone`.
    pub(super) fn fold_gone(&mut self, exist: impl Fn(u32) -> bool) {
        self.keyspaces.retain(|id, totals| {
            let exists = exist(*id);
            if !exists {
                self.gone = self.gone.saturating_add(totals.sum());
            }
            exists
        });
    }

    /// Appends them, unless there is nothing to say.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if *self == Totals::default() {
            return;
        }
        let Totals { log_end, commits, data, wal, values, moved, manifest, gone, .. } = *self;
        for value in [log_end, commits, data, wal, values, moved, manifest, gone, self.cleanings] {
            varint::put(out, value);
        }
        varint::put(out, self.keyspaces.len() as u64);
        for (id, totals) in &self.keyspaces {
            let KeyspaceTotals { flush, consolidation, cleaning, ingest, index } = *totals;
            for value in [u64::from(*id), flush, consolidation, cleaning, ingest, index] {
                varint::put(out, value);
            }
        }
        varint::put(out, self.value_files);
    }

    /// What [`Totals::encode`] has appended.
    pub(super) fn decode(fields: &mut Fields<'_>) -> Decoded<Totals> {
        if fields.is_at_end() {
            return Ok(Totals::default());
        }
        let mut totals = Totals {
            log_end: fields.u64("position of the totals")?,
            commits: fields.u64("total of commits")?,
            data: fields.u64("total of data")?,
            wal: fields.u64("total of the log")?,
            values: fields.u64("total of values")?,
            moved: fields.u64("total of moved values")?,
            manifest: fields.u64("total of the manifest")?,
            gone: fields.u64("total of keyspaces that are gone")?,
            cleanings: fields.u64("total of cleanings")?,
            value_files: 0,
            keyspaces: BTreeMap::new(),
        };
        for _ in 0..fields.count("number of keyspaces with totals")? {
            let id = fields.u32("id of a keyspace with totals")?;
            let mut next = || fields.u64("total of a keyspace");
            let of_keyspace = KeyspaceTotals {
                flush: next()?,
                consolidation: next()?,
                cleaning: next()?,
                ingest: next()?,
                index: next()?,
            };
            let is_above = totals.keyspaces.last_key_value().is_none_or(|(last, _)| *last < id);
            if !is_above {
                return fields.malformed("totals of keyspaces out of order");
            }
            totals.keyspaces.insert(id, of_keyspace);
        }
        if !fields.is_at_end() {
            totals.value_files = fields.u64("number of value files")?; // Files of before have none.
        }
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Totals {
        let of = |seed: u64| KeyspaceTotals {
            flush: seed,
            consolidation: seed * 300,
            cleaning: 0,
            ingest: 1 << 40,
            index: 7,
        };
        let keyspaces = BTreeMap::from([(1, of(5)), (70_000, of(6))]);
        Totals { log_end: 1 << 50, commits: 1, data: 2, wal: 3, values: 4, keyspaces, ..empty() }
    }

    fn empty() -> Totals {
        Totals { moved: 5, manifest: 6, gone: 7, cleanings: 8, value_files: 9, ..Totals::default() }
    }

    fn decode(bytes: &[u8]) -> Decoded<Totals> {
        let mut fields = Fields::new(bytes);
        let totals = Totals::decode(&mut fields)?;
        fields.finish().map(|()| totals)
    }

    #[test]
    fn totals_round_trip_and_every_cut_is_refused() {
        let mut bytes = Vec::new();
        Totals::default().encode(&mut bytes);
        assert!(bytes.is_empty(), "nothing to say takes nothing");
        assert_eq!(decode(&bytes).unwrap(), Totals::default());
        sample().encode(&mut bytes);
        assert_eq!(decode(&bytes).unwrap(), sample());
        let of_before = bytes.len() - 1;
        assert_eq!(decode(&bytes[..of_before]).unwrap(), Totals { value_files: 0, ..sample() });
        for cut in (1..bytes.len()).filter(|cut| *cut != of_before) {
            assert!(decode(&bytes[..cut]).is_err(), "cut to {cut}");
        }
    }

    #[test]
    fn keyspaces_that_are_gone_count_together() {
        let mut totals = sample();
        let gone = totals.keyspaces[&70_000].sum();
        totals.fold_gone(|id| id == 1);
        assert_eq!((totals.gone, totals.keyspaces.len()), (7 + gone, 1));
    }
}
