//! What two states of the catalogue have differently: the one in memory and the one on disk.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::state::CatalogState;

/// Something that is not as it was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The keyspace that it is about, if it is about one.
    pub keyspace: Option<u32>,
    /// What it is.
    pub what: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl Difference {
    fn of<T: PartialEq + Debug>(what: &'static str, expected: &T, found: &T) -> Option<Difference> {
        (expected != found).then(|| {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            Difference { keyspace: None, what, expected, found }
        })
    }
}

impl CatalogState {
    /// What `other` has that should be as it is here.
    #[must_use]
    pub fn differences(&self, other: &CatalogState) -> Vec<Difference> {
        // Names are those of the keyspaces' records.
        let CatalogState {
            database,
            created_millis,
            next_keyspace_id,
            keyspaces,
            ids_by_name: _,
            dropped,
            gone_indexes,
            log_start,
            last_seqno,
            newest_commit,
            clean_log_end,
            kept_log,
            consumers,
            trail,
            trail_notes,
            totals,
        } = self;
        let of_database = [
            Difference::of("the database", database, &other.database),
            Difference::of("the time of creation", created_millis, &other.created_millis),
            Difference::of("the next keyspace", next_keyspace_id, &other.next_keyspace_id),
            Difference::of("dropped keyspaces", dropped, &other.dropped),
            Difference::of("dropped indexes", gone_indexes, &other.gone_indexes),
            Difference::of("the start of the log", log_start, &other.log_start),
            Difference::of("the newest stamp", last_seqno, &other.last_seqno),
            Difference::of("the newest commit", newest_commit, &other.newest_commit),
            Difference::of("the end of the closed log", clean_log_end, &other.clean_log_end),
            Difference::of("bytes of the log to keep", kept_log, &other.kept_log),
            Difference::of("consumers of changes", consumers, &other.consumers),
            Difference::of("the trail", trail, &other.trail),
            Difference::of("what the trail is to tell", trail_notes, &other.trail_notes),
            Difference::of("totals", totals, &other.totals),
        ];
        let ids: BTreeSet<u32> = keyspaces.keys().chain(other.keyspaces.keys()).copied().collect();
        let of_keyspaces = ids.into_iter().filter_map(|id| {
            let (expected, found) = (keyspaces.get(&id), other.keyspaces.get(&id));
            let difference = Difference::of("the catalogue", &expected, &found)?;
            Some(Difference { keyspace: Some(id), ..difference })
        });
        of_database.into_iter().flatten().chain(of_keyspaces).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SeqNo;
    use crate::manifest::{Edit, KeyspaceOptions, KeyspaceRecord, Totals};

    #[test]
    fn what_differs_is_named_with_its_keyspace() {
        let mut memory = CatalogState::new(7, 0);
        for (id, name) in [(1, "one"), (2, "two")] {
            let (name, options) = (name.to_owned(), KeyspaceOptions::default());
            let record = KeyspaceRecord {
                id,
                store: id,
                name,
                options,
                created: SeqNo::from_u64(1),
                journal: None,
            };
            memory.apply(Edit::CreateKeyspace(record), Totals::default());
        }
        assert_eq!(memory.differences(&memory), []);
        let mut disk = memory.clone();
        disk.apply(Edit::RenameKeyspace { id: 2, name: "other".to_owned() }, Totals::default());
        disk.apply(Edit::KeepLog { bytes: 9 }, Totals::default());
        let [log, keyspace] = &memory.differences(&disk)[..] else { panic!("two differ") };
        assert_eq!((log.keyspace, log.what), (None, "bytes of the log to keep"));
        assert_eq!((log.expected.as_str(), log.found.as_str()), ("0", "9"));
        assert_eq!((keyspace.keyspace, keyspace.what), (Some(2), "the catalogue"));
        assert!(keyspace.expected.contains("two") && keyspace.found.contains("other"));
    }
}
