//! Merging against a map built from the same sources.

use std::collections::BTreeMap;

use super::MergeCursor;
use crate::base::{Cursor, Entropy, EntryKind, EntryRef, Result, SeededEntropy, SeqNo};

/// A sorted list as a cursor. Position 0 is before the first entry, `len + 1` behind the last.
#[derive(Debug)]
struct ListCursor {
    entries: Vec<(Vec<u8>, EntryKind, SeqNo)>,
    place: usize,
}

impl Cursor for ListCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.place = 1;
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.place = self.entries.len();
        Ok(())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place = self.entries.partition_point(|entry| entry.0.as_slice() < key) + 1;
        Ok(())
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.place = self.entries.partition_point(|entry| entry.0.as_slice() <= key);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.place = (self.place + 1).min(self.entries.len() + 1);
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.place = self.place.saturating_sub(1);
        Ok(())
    }
    fn entry(&self) -> Option<EntryRef<'_>> {
        let (key, kind, seqno) = self.entries.get(self.place.checked_sub(1)?)?;
        Some(EntryRef { key, seqno: *seqno, kind: *kind, value: &[] })
    }
}

fn random_sources(random: &SeededEntropy, count: u64) -> Vec<ListCursor> {
    let mut source_of = |age: u64| {
        let mut entries = BTreeMap::new();
        for _ in 0..random.next_u64() % 40 {
            let kind = match random.next_u64() % 3 {
                0 => EntryKind::Tombstone,
                _ => EntryKind::Value,
            };
            let key = vec![(random.next_u64() % 60) as u8];
            entries.insert(key, (kind, SeqNo::from_u64(100 - age)));
        }
        let entries = entries.into_iter().map(|(key, (kind, seqno))| (key, kind, seqno)).collect();
        ListCursor { entries, place: 0 }
    };
    (0..count).map(&mut source_of).collect()
}

fn shown(cursor: &impl Cursor) -> Option<(Vec<u8>, EntryKind, SeqNo)> {
    cursor.entry().map(|entry| (entry.key.to_vec(), entry.kind, entry.seqno))
}

#[test]
fn a_merge_walks_like_a_map_in_both_directions() {
    for seed in 0..400 {
        let random = SeededEntropy::new(seed);
        let sources = random_sources(&random, 1 + seed % 4);
        let mut newest = BTreeMap::new();
        for source in sources.iter().rev() {
            for (key, kind, seqno) in &source.entries {
                newest.insert(key.clone(), (*kind, *seqno));
            }
        }
        let mut stamps: BTreeMap<Vec<u8>, Vec<SeqNo>> = BTreeMap::new();
        for (key, _, seqno) in sources.iter().flat_map(|source| &source.entries) {
            stamps.entry(key.clone()).or_default().push(*seqno);
        }
        let merged: Vec<(Vec<u8>, EntryKind, SeqNo)> =
            newest.into_iter().map(|(key, (kind, seqno))| (key, kind, seqno)).collect();
        let mut cursor = MergeCursor::new(sources);
        cursor.seek_first().unwrap();
        let mut place = 0i64; // index into `merged`; -1 and len are off the ends
        for _ in 0..300 {
            let expected = usize::try_from(place).ok().and_then(|place| merged.get(place)).cloned();
            assert_eq!(shown(&cursor), expected, "seed {seed}, place {place}");
            let shadowed: Vec<SeqNo> = cursor.shadowed().map(|entry| entry.seqno).collect();
            let older = expected.map_or(&[][..], |(key, ..)| &stamps[&key][1..]);
            assert_eq!(shadowed, older, "seed {seed}, place {place}");
            let len = merged.len() as i64;
            let key = [(random.next_u64() % 60) as u8];
            match random.next_u64() % 8 {
                0..3 => {
                    cursor.next().unwrap();
                    place = (place + 1).min(len);
                }
                3..6 => {
                    cursor.prev().unwrap();
                    place = (place - 1).max(-1);
                }
                6 => {
                    cursor.seek(&key).unwrap();
                    place = merged.partition_point(|entry| entry.0.as_slice() < &key[..]) as i64;
                }
                _ => {
                    cursor.seek_for_prev(&key).unwrap();
                    place =
                        merged.partition_point(|entry| entry.0.as_slice() <= &key[..]) as i64 - 1;
                }
            }
        }
    }
}
