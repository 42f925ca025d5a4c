//! Layers made by hand: what is right, doubtful, unknown and lost of them; and files whose bytes
//! look like frames and are none.

use std::collections::VecDeque;

use super::*;
use crate::base::{EntryKind, EntryRef, MergeBase, Operands, checksum};
use crate::block::{BlockBuilder, RestartPolicy};
use crate::memory::Heap;
use crate::seal::FileIdentity;
use crate::storage::{MemoryStorage, OpenMode, Storage};

/// A layer of these pieces.
#[derive(Debug, Default)]
struct Made {
    pieces: VecDeque<Piece>,
    deleted: Option<RangeTombstones>,
}

impl Layer for Made {
    fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    fn place(&self) -> (&Path, u64) {
        (Path::new("/layer"), 7)
    }

    fn deleted(&self) -> Option<&RangeTombstones> {
        self.deleted.as_ref()
    }
}

/// Entries of kinds and values, all of one stamp.
fn block(entries: &[(&str, EntryKind, &[u8])]) -> Piece {
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    for (key, kind, value) in entries {
        let key = key.as_bytes();
        let entry = EntryRef { key, seqno: SeqNo::from_u64(1), kind: *kind, value };
        builder.add(entry).unwrap();
    }
    Piece::Block(Arc::new(builder.finish_block(&Heap::new())))
}

fn values(keys: &[&str], value: &str) -> Piece {
    let entries = keys.iter().map(|key| (*key, EntryKind::Value, value.as_bytes()));
    block(&entries.collect::<Vec<_>>())
}

fn gap(start: &str, end: &str) -> Piece {
    let key = |text: &str| Slice::from(text.as_bytes());
    let damage = Damage::new(Path::new("/gap"), 1, "it is lost");
    Piece::Gap(Gap { start: key(start), end: Some(key(end)), damage })
}

/// What becomes of layers, the newest first: each key with what is known of it, and each gap with
/// whether it shows older entries.
fn merged(layers: Vec<Made>) -> (Vec<String>, Vec<(String, bool)>) {
    let plan = |(rank, layer): (usize, Made)| LayerPlan {
        first: Slice::default(),
        end: None,
        rank: rank as u64,
        open: Box::new(move || Ok(Box::new(layer) as Box<dyn Layer>)),
    };
    let layers = layers.into_iter().enumerate().map(plan).collect();
    let store = SalvagedStore { state: None, order: Order::Ranks, layers, damage: Vec::new() };
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    let mut take = |merged: Merged<'_>| {
        match merged {
            Merged::Entry { entry, is_doubtful, .. } => {
                let doubt = if is_doubtful { "?" } else { "" };
                let shown = entry.value.escape_ascii();
                found.push(format!("{}={shown}{doubt}", entry.key.escape_ascii()));
            }
            Merged::Unknown { key, .. } => found.push(format!("{} unknown", key.escape_ascii())),
            Merged::Gap(met) => {
                gaps.push((met.gap.start.escape_ascii().to_string(), met.shows_older));
            }
            Merged::Harmless(damage) => found.push(damage.what),
        }
        Ok(())
    };
    SalvageMerge::new(store).run_to(None, &mut take).unwrap();
    (found, gaps)
}

fn layer(pieces: impl IntoIterator<Item = Piece>) -> Made {
    Made { pieces: pieces.into_iter().collect(), deleted: None }
}

#[test]
fn what_shows_through_a_gap_is_doubtful_and_what_lies_above_it_is_right() {
    let above = layer([values(&["a", "d"], "new")]);
    let of_gap = layer([values(&["b"], "mid"), gap("c", "f"), values(&["f"], "mid")]);
    let below = layer([values(&["b", "c", "d", "e", "g"], "old")]);
    let (found, gaps) = merged(vec![above, of_gap, below]);
    assert_eq!(found, ["a=new", "b=mid", "c=old?", "d=new", "e=old?", "f=mid", "g=old"]);
    assert_eq!(gaps, [("c".to_owned(), true)]);
    let (found, gaps) = merged(vec![layer([values(&["a"], "new")]), layer([gap("a", "z")])]);
    assert_eq!(found, ["a=new"]);
    assert_eq!(gaps, [("a".to_owned(), false)]);
}

#[test]
fn a_deletion_below_a_gap_is_no_entry_and_makes_the_range_doubtful() {
    let below = layer([block(&[("k", EntryKind::Tombstone, &b""[..])])]);
    let (found, gaps) = merged(vec![layer([gap("a", "z")]), below]);
    assert!(found.is_empty());
    assert_eq!(gaps, [("a".to_owned(), true)]);
}

/// Operands need what is below them; a gap in between, or of ranges that their own layer deletes,
/// leaves nobody to say what that is.
#[test]
fn operands_are_put_on_what_is_known_to_be_below_them() {
    let open = Operands::open(b"x");
    let operand = || layer([block(&[("k", EntryKind::Composite, &open[..])])]);
    let base = || layer([values(&["k"], "old")]);
    let lost = || layer([gap("a", "z")]);
    let whole = Operands::single(MergeBase::Value(b"old"), b"x");
    let stacked = format!("k={}", whole.escape_ascii());
    assert_eq!(merged(vec![operand(), base()]).0, [stacked.as_str()]);
    assert_eq!(merged(vec![operand(), base(), lost()]).0, [stacked.as_str()]);
    assert_eq!(merged(vec![lost(), operand(), base()]).0, [format!("{stacked}?")]);
    assert_eq!(merged(vec![operand(), lost(), base()]).0, ["k unknown"]);
    assert_eq!(merged(vec![operand(), lost()]).0, ["k unknown"]);
    assert_eq!(merged(vec![lost(), operand(), lost(), base()]).0, ["k unknown"]);
    let with_lost_ranges = layer([gap("a", "z"), block(&[("k", EntryKind::Composite, &open[..])])]);
    assert_eq!(merged(vec![with_lost_ranges, base()]).0, ["k unknown"]);
}

#[test]
fn ranges_that_a_layer_deletes_hide_older_layers_and_nothing_of_its_own() {
    let mut deleted = RangeTombstones::default();
    deleted.append(b"a", Some(b"m"), SeqNo::ZERO);
    let newest = Made { deleted: Some(deleted), ..layer([values(&["b"], "own")]) };
    let older = layer([values(&["b", "c", "m"], "old")]);
    assert_eq!(merged(vec![newest, older]).0, ["b=own", "m=old"]);
}

/// Bytes that verify may say anything.
#[test]
fn keys_that_do_not_rise_and_entries_of_no_form_are_damage() {
    let falling = layer([values(&["b", "d"], "x"), values(&["c", "e"], "x"), values(&["f"], "x")]);
    let (found, gaps) = merged(vec![falling]);
    assert_eq!(found, ["b=x", "d=x", "f=x"]);
    assert_eq!(gaps, [("d\\x00".to_owned(), false)]);
    let (nothing, short) = (&b"\x09"[..], &b"short"[..]);
    let formless = [("a", EntryKind::Composite, nothing), ("b", EntryKind::Pointer, short)];
    let (found, _) = merged(vec![layer([block(&formless)]), layer([values(&["a", "b"], "old")])]);
    assert_eq!(found, ["a unknown", "b unknown"]);
}

#[test]
fn what_costs_nothing_is_told_once() {
    let damage = Damage::new(Path::new("/layer"), 3, "an index");
    let (found, gaps) = merged(vec![layer([Piece::Harmless(damage), values(&["a"], "x")])]);
    assert_eq!(found, ["an index", "a=x"]);
    assert!(gaps.is_empty());
}

/// A file with these bytes.
fn file_of(bytes: &[u8]) -> SalvageFile {
    let (storage, path) = (MemoryStorage::new(), Path::new("/files/seg-00000001"));
    storage.create_dir_all(Path::new("/files")).unwrap();
    storage.open(path, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    let identity = FileIdentity { kind: *b"seg ", database: 1, owner: 1, number: 1 };
    let owner = Owner { tag: 5, identity, header_len: 40, key_in: |_, _| None };
    SalvageFile::open(&storage, path, &owner).unwrap()
}

/// Every fourth place of such a file looks like the header of a frame of 64 KiB.
#[test]
fn bytes_that_look_like_frames_everywhere_do_not_take_for_ever() {
    const LEN: usize = 128 << 10;
    let bytes: Vec<u8> = [0, 1, 1, 0].into_iter().cycle().take(LEN).collect();
    let mut file = file_of(&bytes);
    assert!(file.header_damage.is_some());
    let (found, passed) = file.next_frame(40);
    assert!(found.is_none());
    assert_eq!(passed, Some(Passed { range: 40..LEN as u64, is_blank: false }));
}

/// A frame of zeros between two others is passed as such, whichever byte of a checksum is zero.
#[test]
fn frames_are_found_behind_zeros_and_behind_other_bytes() {
    let mut bytes = vec![0; 400];
    for (offset, len) in [(40, 10_usize), (200, 30)] {
        let frame = &mut bytes[offset..offset + 16 + len];
        frame[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        frame[13] = 1;
        let sum = checksum(&frame[8..], 5, offset as u64);
        frame[..8].copy_from_slice(&sum.to_le_bytes());
    }
    bytes[300..310].fill(9);
    let mut file = file_of(&bytes);
    let (first, passed) = file.next_frame(40);
    assert_eq!((first.map(|frame| (frame.offset, frame.len)), passed), (Some((40, 26)), None));
    let (second, passed) = file.next_frame(66);
    assert_eq!(second.map(|frame| (frame.offset, frame.len)), Some((200, 46)));
    assert_eq!(passed, Some(Passed { range: 66..200, is_blank: true }));
    let (none, passed) = file.next_frame(246);
    assert!(none.is_none());
    assert_eq!(passed, Some(Passed { range: 246..400, is_blank: false }));
}
