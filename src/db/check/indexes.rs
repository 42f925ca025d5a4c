//! Secondary indexes, as of one moment: each entry of a keyspace has exactly its index entries, and
//! an index has no others.
//!
//! Of one that is ready each index entry that there has to be is looked up; if there are more than
//! these, or it is not ready, each that there is is looked at. One whose extractor is missing
//! cannot be checked.

use std::sync::Arc;

use crate::base::{KeyRange, Result, index_key};
use crate::db::core::Core;
use crate::db::indexes::{IndexOf, Stage};
use crate::db::iter::Cursor;
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;
use crate::structure::{Findings, Site};

/// Problems of one index that are told; how many more there are is one.
const TOLD_MAX: u64 = 20;

impl Core {
    /// Checks the indexes of all keyspaces; says which could not be.
    pub(super) fn check_indexes(&self, findings: &mut Findings) -> Vec<String> {
        let (state, as_of) = self.moment();
        let mut unchecked = Vec::new();
        for keyspace in &state.keyspaces {
            for index in keyspace.index_set().into_iter().flat_map(|set| &set.indexes) {
                let name = keyspace.runtime.name.load();
                if !index.extraction.is_known() {
                    let (index, extractor) = (&index.name, index.extraction.name());
                    unchecked.push(format!(
                        "the index {index:?} of keyspace {name:?}: the extractor {extractor:?} is \
                         not registered"
                    ));
                    continue;
                }
                let site = Site::of_keyspace(index.runtime.id);
                let checking = IndexCheck::new(&state, keyspace, index, as_of);
                let Some(mut checking) = checking else { continue };
                if let Err(error) = checking.run(findings) {
                    findings.note_error(site, &error);
                }
                checking.tell_rest(findings);
            }
        }
        unchecked
    }
}

/// An index that is checked.
struct IndexCheck<'a> {
    keyspace: &'a Arc<KeyspaceState>,
    kept_in: &'a Arc<KeyspaceState>,
    index: &'a IndexOf,
    as_of: AsOf,
    /// Problems found.
    found: u64,
}

impl<'a> IndexCheck<'a> {
    /// `None` when the index is not in the state any more.
    fn new(
        state: &'a State,
        keyspace: &'a Arc<KeyspaceState>,
        index: &'a IndexOf,
        as_of: AsOf,
    ) -> Option<IndexCheck<'a>> {
        let kept_in = state.find(index.runtime.id)?;
        Some(IndexCheck { keyspace, kept_in, index, as_of, found: 0 })
    }

    fn run(&mut self, findings: &mut Findings) -> Result<()> {
        if self.index.stage == Stage::Building {
            return self.check_entries(findings);
        }
        let expected = self.check_keyspace(findings)?;
        if self.count_entries(findings)? != expected {
            self.check_entries(findings)?;
        }
        Ok(())
    }

    /// Whether the index has what each entry of the keyspace should have there. How many index
    /// entries that is, of those that are there.
    fn check_keyspace(&mut self, findings: &mut Findings) -> Result<u64> {
        let mut cursor = Cursor::new(Arc::clone(self.keyspace), self.as_of, KeyRange::all());
        let mut there = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            let (key, until) = (cursor.key(), cursor.until());
            for wanted in self.index.extraction.keys(key, cursor.value()?)? {
                let entry = index_key::encode(&wanted, key);
                match self.kept_in.expiry(&entry, self.as_of)? {
                    Some(expiry) if expiry == until => there += 1,
                    Some(expiry) => {
                        there += 1;
                        let (expected, found) = (shown(until), shown(expiry));
                        self.note(findings, (&wanted, key), &expected, &found);
                    }
                    None => self.note(findings, (&wanted, key), "in the index", "nothing"),
                }
            }
            cursor.next()?;
        }
        Ok(there)
    }

    /// The number of entries; where each index key is to be there once, whether it is.
    fn count_entries(&mut self, findings: &mut Findings) -> Result<u64> {
        let all = index_key::range(&KeyRange::all());
        let mut cursor = Cursor::new(Arc::clone(self.kept_in), self.as_of, all);
        let (mut count, mut before) = (0, Vec::new());
        cursor.seek_first()?;
        while cursor.valid() {
            count += 1;
            let key = cursor.key();
            let head = &key[..index_key::head_len(key).unwrap_or(key.len())];
            if self.index.is_unique && head == before {
                let parts = (index_key::of_head(head), key[head.len()..].to_vec());
                self.note(findings, (&parts.0, &parts.1), "one entry of its index key", "another");
            }
            before.clear();
            before.extend_from_slice(head);
            cursor.next()?;
        }
        Ok(count)
    }

    /// Whether each entry of the index is one of an entry of the keyspace.
    fn check_entries(&mut self, findings: &mut Findings) -> Result<()> {
        let all = index_key::range(&KeyRange::all());
        let mut cursor = Cursor::new(Arc::clone(self.kept_in), self.as_of, all);
        // Those of the entry that was looked at last: several index entries of it may follow.
        let (mut known, mut known_keys) = (None::<Vec<u8>>, Vec::new());
        cursor.seek_first()?;
        while cursor.valid() {
            let key = cursor.key();
            let Some(head_len) = index_key::head_len(key) else {
                self.note(findings, (b"", key), "a key of an index", "another");
                cursor.next()?;
                continue;
            };
            let (found, primary) = (index_key::of_head(&key[..head_len]), &key[head_len..]);
            if known.as_deref() != Some(primary) {
                let value = self.keyspace.get(primary, self.as_of)?;
                let keys = value.map(|value| self.index.extraction.keys(primary, &value));
                (known, known_keys) =
                    (Some(primary.to_vec()), keys.transpose()?.unwrap_or_default());
            }
            if known_keys.binary_search(&found).is_err() {
                self.note(findings, (&found, primary), "nothing", "an entry of the index");
            }
            cursor.next()?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        findings: &mut Findings,
        (index_key, key): (&[u8], &[u8]),
        expected: &str,
        found: &str,
    ) {
        self.found += 1;
        if self.found > TOLD_MAX {
            return;
        }
        let (index_key, key) = (index_key.escape_ascii(), key.escape_ascii());
        let (name, of) = (&self.index.name, self.keyspace.runtime.name.load());
        let what = format!("the index {name:?} of {of:?}: {index_key} for the key {key}");
        findings.note_at(Site::of_keyspace(self.index.runtime.id), &what, expected, found);
    }

    /// How many problems were not told.
    fn tell_rest(&self, findings: &mut Findings) {
        let rest = self.found.saturating_sub(TOLD_MAX);
        if rest > 0 {
            let site = Site::of_keyspace(self.index.runtime.id);
            let what = format!("the index {:?}: more entries", self.index.name);
            findings.note_at(site, &what, "none that is wrong", rest);
        }
    }
}

fn shown(until: Option<u64>) -> String {
    match until {
        Some(until) => format!("one that expires at {until} ms since 1970"),
        None => "one that does not expire".to_owned(),
    }
}
