//! Payloads: round trips against an ordered map, and bytes that no builder made.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use super::Model;
use super::Numbers;
use super::Said;
use super::entry_of;
use super::random_model;
use crate::base::Cursor;
use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::Result;
use crate::base::SeqNo;
use crate::block::Block;
use crate::block::BlockBuilder;
use crate::block::BlockCursor;
use crate::block::FramePlace;
use crate::block::Reach;
use crate::block::RestartPolicy;
use crate::block::layout::KEY_LEN_MAX;
use crate::memory::{Heap, SharedBytes};

const POLICIES: [RestartPolicy; 6] = [
    RestartPolicy::Whole,
    RestartPolicy::Every(1),
    RestartPolicy::Every(2),
    RestartPolicy::Every(16),
    RestartPolicy::Every(u16::MAX),
    RestartPolicy::Adaptive,
];

fn place() -> FramePlace<'static> {
    FramePlace { file: Path::new("segment"), file_tag: 7, offset: 4096, key: None }
}

fn parse(payload: &[u8]) -> Result<Block> {
    Block::parse(SharedBytes::from(payload), 0..payload.len(), place())
}

fn encode(builder: &mut BlockBuilder, model: &Model) -> Vec<u8> {
    for pair in model {
        builder.add(entry_of(pair)).unwrap();
    }
    assert_eq!(builder.entry_count(), model.len());
    let mut payload = Vec::new();
    builder.finish(&mut payload);
    assert!(builder.is_empty());
    payload
}

/// Every way of looking into a block says what the model says.
fn check_against(block: Block, model: &Model) {
    assert_eq!(block.entry_count(), model.len());
    assert_eq!(block.check_order(), None);
    assert_eq!(block.first_key(), model.keys().next().map(Vec::as_slice));
    assert_eq!(block.last_key().as_deref(), model.keys().next_back().map(Vec::as_slice));
    let mut probes: Vec<Vec<u8>> = vec![Vec::new(), vec![0xFF; 50]];
    for key in model.keys() {
        probes.push(key.clone());
        probes.push([key, &[0][..]].concat());
        probes.push([key, &[0xFF][..]].concat());
        probes.push(key[..key.len() / 2].to_vec());
        if let Some((last, front)) = key.split_last() {
            probes.push([front, &[last.wrapping_sub(1)]].concat());
            probes.push([front, &[last.wrapping_add(1)]].concat());
        }
    }
    for probe in &probes {
        // Most of these go by fingerprints, those in a fresh block by order.
        if model.len() < 70 {
            let fresh = parse(block.data()).unwrap();
            assert_eq!(fresh.get(probe), model.get_key_value(probe).map(entry_of), "{probe:?}");
        }
        assert_eq!(block.get(probe), model.get_key_value(probe).map(entry_of), "{probe:?}");
    }
    let block = Arc::new(block);
    check_walks(&block, model);
    let mut cursor = BlockCursor::new(Arc::clone(&block));
    for probe in &probes {
        let from = (Bound::Included(probe.clone()), Bound::Unbounded);
        let to = (Bound::Unbounded, Bound::Included(probe.clone()));
        cursor.seek(probe).unwrap();
        let mut above = model.range(from).map(entry_of);
        assert_eq!(cursor.entry(), above.next(), "seek {probe:?}");
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), above.next(), "after seek {probe:?}");
        cursor.seek_for_prev(probe).unwrap();
        let mut below = model.range(to).rev().map(entry_of);
        assert_eq!(cursor.entry(), below.next(), "seek_for_prev {probe:?}");
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), below.next(), "before seek_for_prev {probe:?}");
        let above = model.range((Bound::Included(probe.clone()), Bound::Unbounded)).next();
        let mut buffer = b"what was there".to_vec();
        assert_eq!(block.first_from(probe, &mut buffer), above.map(entry_of), "from {probe:?}");
    }
    check_leaps(&block, model, &mut probes);
}

/// Leaps by short and long ways end where seeks do, and a walk goes on from there.
fn check_leaps(block: &Arc<Block>, model: &Model, probes: &mut [Vec<u8>]) {
    probes.sort_unstable();
    for step in [1, 2, 3, 7, 19, 64, 500] {
        let mut cursor = BlockCursor::new(Arc::clone(block));
        for (number, probe) in probes.iter().step_by(step).enumerate() {
            let newest = [SeqNo::ZERO, SeqNo::from_parts(1000, 7), SeqNo::MAX][number % 3];
            cursor.leap(probe, newest).unwrap();
            let mut above = model.range((Bound::Included(probe.clone()), Bound::Unbounded));
            assert_eq!(cursor.entry(), above.next().map(entry_of), "leap to {probe:?}");
            if number % 3 == 2 {
                let mut ahead = BlockCursor::new(Arc::clone(block));
                ahead.seek(probe).unwrap();
                ahead.leap(probe, newest).unwrap();
                ahead.next().unwrap();
                assert_eq!(ahead.entry(), above.next().map(entry_of), "behind {probe:?}");
            }
        }
    }
}

fn check_walks(block: &Arc<Block>, model: &Model) {
    let mut cursor = BlockCursor::new(Arc::clone(block));
    assert_eq!(cursor.entry(), None);
    for pair in model {
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), Some(entry_of(pair)));
        let entry = entry_of(pair);
        assert_eq!(cursor.key().map(|key| cursor.block().share(key)).as_deref(), Some(entry.key));
        assert_eq!(
            cursor.value().map(|value| cursor.block().share(value)).as_deref(),
            Some(entry.value)
        );
    }
    for _ in 0..2 {
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), None);
    }
    for pair in model.iter().rev() {
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), Some(entry_of(pair)));
    }
    for _ in 0..2 {
        cursor.prev().unwrap();
        assert_eq!(cursor.entry(), None);
    }
    cursor.next().unwrap();
    assert_eq!(cursor.entry(), model.iter().next().map(entry_of));
    cursor.seek_last().unwrap();
    assert_eq!(cursor.entry(), model.iter().next_back().map(entry_of));
    cursor.seek_first().unwrap();
    assert_eq!(cursor.entry(), model.iter().next().map(entry_of));
}

#[test]
fn random_entries_come_back_as_they_were() {
    let mut numbers = Numbers(0x5EED);
    for policy in POLICIES {
        let mut builder = BlockBuilder::new(policy);
        for round in 0..60 {
            let model = random_model(&mut numbers, round * round / 8);
            let payload = encode(&mut builder, &model);
            check_against(parse(&payload).unwrap(), &model);
        }
    }
}

#[test]
fn a_cursor_may_turn_at_any_entry() {
    let mut numbers = Numbers(77);
    for policy in POLICIES {
        let model = random_model(&mut numbers, 90);
        let pairs: Vec<_> = model.iter().map(entry_of).collect();
        let payload = encode(&mut BlockBuilder::new(policy), &model);
        let mut cursor = BlockCursor::new(Arc::new(parse(&payload).unwrap()));
        let mut at = -1_i64; // before the first
        for _ in 0..3000 {
            if numbers.below(2) == 0 {
                cursor.next().unwrap();
                at = (at + 1).min(pairs.len() as i64);
            } else {
                cursor.prev().unwrap();
                at = (at - 1).max(-1);
            }
            let expected = usize::try_from(at).ok().and_then(|index| pairs.get(index));
            assert_eq!(cursor.entry().as_ref(), expected);
        }
    }
}

#[test]
fn keys_and_values_of_extreme_lengths_come_back() {
    let value = |len: usize, fill: u8| Said {
        seqno: SeqNo::MAX,
        kind: EntryKind::Value,
        value: vec![fill; len],
    };
    let mut model = Model::new();
    model.insert(Vec::new(), value(0, 0));
    model.insert(vec![0], value(31, 1));
    model.insert(vec![0xFF; KEY_LEN_MAX - 1], value(70_000, 2));
    model.insert(vec![0xFF; KEY_LEN_MAX], Said { seqno: SeqNo::ZERO, ..value(0, 3) });
    model.insert(b"k".repeat(KEY_LEN_MAX), value(3 << 20, 4));
    for policy in POLICIES {
        let payload = encode(&mut BlockBuilder::new(policy), &model);
        check_against(parse(&payload).unwrap(), &model);
    }
    let empty_only = Model::from([(Vec::new(), value(0, 0))]);
    let payload = encode(&mut BlockBuilder::new(RestartPolicy::Whole), &empty_only);
    check_against(parse(&payload).unwrap(), &empty_only);
}

#[test]
fn a_key_that_is_too_long_is_refused_and_changes_nothing() {
    let mut builder = BlockBuilder::new(RestartPolicy::Adaptive);
    let long = vec![b'z'; KEY_LEN_MAX + 1];
    let entry = |key| EntryRef { key, seqno: SeqNo::ZERO, kind: EntryKind::Value, value: b"v" };
    builder.add(entry(b"a")).unwrap();
    assert!(builder.add(entry(&long)).is_err());
    builder.add(entry(b"b")).unwrap();
    let block = builder.finish_block(&Heap::new());
    assert_eq!(block.entry_count(), 2);
    assert!(block.get(b"a").is_some() && block.get(b"b").is_some());
}

#[test]
fn sixteen_byte_keys_cost_at_most_ten_bytes_an_entry() {
    let mut numbers = Numbers(9);
    let mut model = Model::new();
    for _ in 0..130 {
        // Stamps of a whole day.
        let seqno = SeqNo::from_parts(1_700_000_000_000 + numbers.below(86_400_000), 3);
        let said = Said { seqno, kind: EntryKind::Value, value: numbers.bytes(100) };
        model.insert(numbers.bytes(16), said);
    }
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    for pair in &model {
        builder.add(entry_of(pair)).unwrap();
    }
    let estimated = builder.estimated_size();
    let payload = encode(&mut builder_cleared(builder), &model);
    assert_eq!(payload.len(), estimated);
    let overhead = payload.len() - 130 * 116;
    assert!(overhead <= 130 * 8, "{overhead} bytes");
    // A block of one commit stores no stamps.
    for said in model.values_mut() {
        said.seqno = SeqNo::from_parts(1_700_000_000_000, 77);
    }
    let payload = encode(&mut BlockBuilder::new(RestartPolicy::Whole), &model);
    assert_eq!(payload.len(), 130 * (116 + 1 + 2) + 2 + 18);
}

fn builder_cleared(mut builder: BlockBuilder) -> BlockBuilder {
    builder.clear();
    builder
}

#[test]
fn the_adaptive_policy_shares_prefixes_only_where_that_pays() {
    let said =
        |len| Said { seqno: SeqNo::from_parts(5, 5), kind: EntryKind::Value, value: vec![7; len] };
    let long_shared: Model =
        (0..200).map(|i| (format!("tenant/000001/user/{i:06}").into_bytes(), said(8))).collect();
    let mut numbers = Numbers(3);
    let random: Model = (0..200).map(|_| (numbers.bytes(16), said(100))).collect();
    let size = |policy, model| encode(&mut BlockBuilder::new(policy), model).len();
    let whole = size(RestartPolicy::Whole, &long_shared);
    let adaptive = size(RestartPolicy::Adaptive, &long_shared);
    assert_eq!(adaptive, size(RestartPolicy::Every(16), &long_shared));
    assert!(adaptive * 8 <= whole * 7, "{adaptive} of {whole}");
    assert_eq!(size(RestartPolicy::Adaptive, &random), size(RestartPolicy::Whole, &random));
}

#[test]
fn values_and_whole_keys_are_shared_and_not_copied() {
    let said = Said { seqno: SeqNo::ZERO, kind: EntryKind::Value, value: vec![9; 100] };
    let model = Model::from([(vec![b'k'; 64], said)]);
    let payload = encode(&mut BlockBuilder::new(RestartPolicy::Whole), &model);
    let data = SharedBytes::from(payload.as_slice());
    let block = Block::parse(data.clone(), 0..data.len(), place()).unwrap();
    let inside = |bytes: &[u8]| data.as_ptr_range().contains(&bytes.as_ptr());
    let value = block.get(&[b'k'; 64]).unwrap().value;
    assert!(inside(value) && inside(&block.share(value)));
    let foreign = vec![1; 100];
    assert!(!inside(&block.share(&foreign)) && block.share(&foreign) == foreign);
    let mut cursor = BlockCursor::new(Arc::new(block));
    cursor.next().unwrap();
    let entry = cursor.entry().unwrap();
    let block = cursor.block();
    assert!(inside(&block.share(entry.key)) && inside(&block.share(entry.value)));
    assert!(inside(&cursor.block().last_key().unwrap()));
}

/// Walks and searches whatever `payload` parses to. Entries may be nonsense; it must not panic,
/// and the two directions must agree.
fn exercise(payload: &[u8], probes: &[Vec<u8>]) -> bool {
    let Ok(block) = parse(payload) else {
        return false;
    };
    let block = Arc::new(block);
    let _ = block.check_order();
    for probe in probes {
        for _ in 0..6 {
            let _ = block.get(probe);
        }
    }
    let mut cursor = BlockCursor::new(Arc::clone(&block));
    let mut forward = Vec::new();
    cursor.next().unwrap();
    while let Some(entry) = cursor.entry() {
        forward.push((entry.key.to_vec(), entry.seqno, entry.value.len()));
        cursor.next().unwrap();
    }
    assert_eq!(forward.len(), block.entry_count());
    for expected in forward.iter().rev() {
        cursor.prev().unwrap();
        let entry = cursor.entry().unwrap();
        assert_eq!(
            (entry.key, entry.seqno, entry.value.len()),
            (&*expected.0, expected.1, expected.2)
        );
    }
    for probe in probes {
        cursor.seek(probe).unwrap();
        let _ = (cursor.entry(), cursor.key(), cursor.value());
        cursor.seek_for_prev(probe).unwrap();
        let _ = cursor.entry();
        let mut buffer = Vec::new();
        let _ = block.first_from(probe, &mut buffer);
        cursor.seek_first().unwrap();
        for probe in probes {
            cursor.leap(probe, SeqNo::ZERO).unwrap();
            let _ = cursor.entry();
        }
    }
    true
}

#[test]
fn payloads_that_no_builder_made_never_panic() {
    let mut numbers = Numbers(0xF00D);
    let mut parsed = 0;
    for policy in [RestartPolicy::Whole, RestartPolicy::Every(2), RestartPolicy::Every(16)] {
        for round in 0..1500 {
            let model = random_model(&mut numbers, round % 40);
            let probes: Vec<_> = (0..4).map(|_| numbers.key()).collect();
            let mut payload = encode(&mut BlockBuilder::new(policy), &model);
            assert!(exercise(&payload, &probes));
            for _ in 0..1 + numbers.below(3) {
                mutate(&mut payload, &mut numbers);
            }
            parsed += usize::from(exercise(&payload, &probes));
        }
    }
    assert!(parsed > 300, "only {parsed} mutations got past the first check");
}

fn mutate(payload: &mut Vec<u8>, numbers: &mut Numbers) {
    if payload.is_empty() {
        return;
    }
    let near_end = payload.len() - 1 - numbers.below(payload.len().min(24) as u64) as usize;
    let anywhere = numbers.below(payload.len() as u64) as usize;
    match numbers.below(6) {
        0 => payload[near_end] = numbers.next() as u8,
        1 => payload[anywhere] = numbers.next() as u8,
        2 => payload[anywhere] ^= 1 << numbers.below(8),
        3 => payload.truncate(anywhere),
        4 => payload.insert(anywhere, numbers.next() as u8),
        _ => {
            payload.remove(anywhere);
        }
    }
}

#[test]
fn every_truncated_payload_is_refused() {
    let mut numbers = Numbers(4);
    for policy in [RestartPolicy::Whole, RestartPolicy::Every(16)] {
        let payload = encode(&mut BlockBuilder::new(policy), &random_model(&mut numbers, 30));
        for len in 0..payload.len() {
            let error = parse(&payload[..len]).unwrap_err();
            assert!(error.is_corruption() && error.to_string().contains("segment"), "{error}");
        }
    }
}

#[test]
fn bytes_between_entries_and_stamps_are_refused() {
    let model = Model::from([(
        b"key".to_vec(),
        Said { seqno: SeqNo::ZERO, kind: EntryKind::Value, value: b"value".to_vec() },
    )]);
    let mut payload = encode(&mut BlockBuilder::new(RestartPolicy::Every(16)), &model);
    assert_eq!(parse(&payload).unwrap().entry_count(), 1);
    let entries_len = 3 + 3 + 5; // lengths, key, value
    assert_eq!(payload[entries_len..][..4], [0, 0, entries_len as u8, 0]); // the table
    payload[entries_len + 2] += 1;
    payload.insert(entries_len, 0);
    assert!(parse(&payload).unwrap_err().is_corruption());
}

#[test]
fn the_bytes_are_those_of_the_format_document() {
    let said = |millis: u64, kind, value: &[u8]| Said {
        seqno: SeqNo::from_parts(1_700_000_000_000 + millis, 3),
        kind,
        value: value.to_vec(),
    };
    let model = Model::from([
        (b"a".to_vec(), said(0, EntryKind::Value, b"xy")),
        (b"b".to_vec(), said(2, EntryKind::Tombstone, b"")),
    ]);
    let payload = encode(&mut BlockBuilder::new(RestartPolicy::Whole), &model);
    let expected = [
        &[0x04, 0x61, 0x78, 0x79][..], // docs/format/block.md
        &[0x05, 0x62],
        &[0x00, 0x02],
        &[0x00, 0x00, 0x04, 0x00, 0x06, 0x00],
        &[0x03, 0x00, 0x00, 0x68, 0xE5, 0xCF, 0x8B, 0x01],
        &[0x02, 0x00, 0x00, 0x00, 0x01, 0x00],
        &[0x00, 0x01, 0x02, 0x01],
    ];
    assert_eq!(payload, expected.concat());
}

#[test]
fn an_unknown_version_of_the_payload_is_refused() {
    let mut payload = encode(&mut BlockBuilder::new(RestartPolicy::Whole), &Model::new());
    assert_eq!(parse(&payload).unwrap().entry_count(), 0);
    *payload.last_mut().unwrap() = 2;
    assert!(parse(&payload).unwrap_err().to_string().contains("version"));
}

/// Both ways, from each place: every move goes one entry, and what is said to be within reach is a
/// value on the near side of the key that the reach was made of.
#[test]
fn a_walk_within_reach_ends_before_the_key_of_the_reach() {
    let mut numbers = Numbers(0xEACF);
    let (mut within, mut near_values) = (0, 0);
    for policy in POLICIES {
        let mut builder = BlockBuilder::new(policy);
        for round in 0..40 {
            let model = random_model(&mut numbers, round);
            let pairs: Vec<_> = model.iter().map(entry_of).collect();
            let mut cursor =
                BlockCursor::new(Arc::new(parse(&encode(&mut builder, &model)).unwrap()));
            for _ in 0..20 {
                let any = numbers.below(1 + model.len() as u64) as usize;
                let limit =
                    pairs.get(any).map_or_else(|| numbers.key(), |entry| entry.key.to_vec());
                let reach = cursor.reach_below(&limit);
                cursor.seek_first().unwrap();
                for entry in pairs.iter().skip(1) {
                    let is_within = cursor.slide_on(reach) || cursor.next_within(reach);
                    assert_eq!(cursor.entry().as_ref(), Some(entry));
                    let near = entry.key < &limit[..] && entry.kind == EntryKind::Value;
                    assert!(near || !is_within, "{:?} is within {limit:?}", entry.key);
                    (within, near_values) =
                        (within + usize::from(is_within), near_values + usize::from(near));
                }
                assert!(!cursor.next_within(reach) && cursor.entry().is_none() || pairs.is_empty());
                let reach = cursor.reach_above(&limit);
                cursor.seek_last().unwrap();
                for entry in pairs.iter().rev().skip(1) {
                    let is_within = cursor.slide_back(reach) || cursor.prev_within(reach);
                    assert_eq!(cursor.entry().as_ref(), Some(entry));
                    let near = entry.key > &limit[..] && entry.kind == EntryKind::Value;
                    assert!(near || !is_within, "{:?} is within {limit:?}", entry.key);
                    (within, near_values) =
                        (within + usize::from(is_within), near_values + usize::from(near));
                }
                assert!(!cursor.prev_within(reach) && cursor.entry().is_none() || pairs.is_empty());
            }
        }
    }
    assert!(within > near_values / 2, "a reach is worth something: {within} of {near_values}");
}

#[test]
fn everything_is_within_the_reach_of_the_whole_block() {
    let mut numbers = Numbers(0xA11);
    for policy in POLICIES {
        let mut model = random_model(&mut numbers, 50);
        model.insert(vec![], Said { seqno: SeqNo::ZERO, kind: EntryKind::Value, value: vec![] });
        model.insert(
            vec![0xFF; 20],
            Said { seqno: SeqNo::ZERO, kind: EntryKind::Value, value: vec![] },
        );
        let payload = encode(&mut BlockBuilder::new(policy), &model);
        let mut cursor = BlockCursor::new(Arc::new(parse(&payload).unwrap()));
        for (key, said) in &model {
            let is_within =
                cursor.slide_on(Reach::EVERYTHING) || cursor.next_within(Reach::EVERYTHING);
            assert_eq!(is_within, said.kind == EntryKind::Value);
            assert_eq!(cursor.key(), Some(key.as_slice()));
        }
        assert!(!cursor.next_within(Reach::EVERYTHING) && !cursor.is_valid());
        for (key, said) in model.iter().rev() {
            let is_within =
                cursor.slide_back(Reach::EVERYTHING) || cursor.prev_within(Reach::EVERYTHING);
            assert_eq!(is_within, said.kind == EntryKind::Value);
            assert_eq!(cursor.key(), Some(key.as_slice()));
        }
        assert!(!cursor.prev_within(Reach::EVERYTHING) && !cursor.is_valid());
    }
}
