//! The layers of a Flex store that is damaged.
//!
//! With its index each run of an interval is a layer, and a run that cannot be read a gap over the
//! interval's keys. Without it every frame that verifies in any segment is one: dead ones among
//! them, as nothing in a segment says which are alive. Stamps say which entry of a key is the
//! newest; but a deletion that a base has left out is nowhere, and what it hid is there again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use super::index::Index;
use super::segment::{HEADER_LEN, SegmentIdentity, SegmentPlace, key_in_header};
use super::store::segment_place;
use crate::base::{Cursor, Error, Result, SeqNo, Slice};
use crate::block::{Block, BlockCursor, FrameKind};
use crate::manifest::LogPosition;
use crate::structure::StorePlace;
use crate::structure::salvage::{
    Damage, LayerPlan, OnePiece, Order, Owner, Passed, SalvageFile, SalvagedStore, StoreState,
    is_damage,
};

/// Segments that are kept open.
const OPEN_FILES_MAX: usize = 64;

/// Segments, as they are read.
type Files = Rc<RefCell<BTreeMap<u64, SalvageFile>>>;

/// See `structure::salvage`.
pub(in crate::structure) fn salvage(
    place: &StorePlace,
    required: Option<LogPosition>,
) -> Result<SalvagedStore> {
    let segments = segment_place(place);
    match Index::read_up_to(&segments, required) {
        Ok(index) => Ok(with_index(&segments, &index)),
        Err(error) if is_damage(&error) => without_index(&segments, &error),
        Err(error) => Err(error),
    }
}

/// Which file a segment must be.
fn owner_of(segments: &SegmentPlace, number: u64) -> Owner {
    let identity = identity_of(segments, number);
    let key_in = |header: &[u8], owner: &Owner| {
        let found = SegmentIdentity::decode(header)?;
        (found.tag() == owner.tag).then(|| key_in_header(header))
    };
    Owner { tag: identity.tag(), identity: identity.file(), header_len: HEADER_LEN, key_in }
}

fn identity_of(segments: &SegmentPlace, number: u64) -> SegmentIdentity {
    SegmentIdentity { database: segments.database, keyspace: segments.keyspace, number }
}

fn open(segments: &SegmentPlace, number: u64) -> Result<SalvageFile> {
    let owner = owner_of(segments, number);
    SalvageFile::open(&*segments.storage, &segments.path_of(number), &owner)
}

/// Reads a frame of a segment.
fn read(
    segments: &SegmentPlace,
    files: &Files,
    number: u64,
    what: &dyn Fn(&mut SalvageFile) -> Result<Block>,
) -> Result<Block> {
    let mut files = files.borrow_mut();
    if files.len() >= OPEN_FILES_MAX && !files.contains_key(&number) {
        files.clear();
    }
    match files.entry(number) {
        Entry::Occupied(file) => what(file.into_mut()),
        Entry::Vacant(none) => what(none.insert(open(segments, number)?)),
    }
}

fn with_index(segments: &Arc<SegmentPlace>, index: &Index) -> SalvagedStore {
    let files = Files::default();
    let mut layers = Vec::new();
    let anchors = index.tree.iter().skip(1).map(|interval| Some(interval.anchor.clone()));
    for (interval, end) in index.tree.iter().zip(anchors.chain([None])) {
        // The newest has the rank 0.
        for (rank, run) in interval.runs().rev().enumerate() {
            let (number, sum, stamp) = (run.segment.number, run.checksum, run.stamp);
            let at = (run.offset, u64::from(run.len));
            let (segments, files) = (Arc::clone(segments), Rc::clone(&files));
            let (first, end) = (interval.anchor.clone(), end.clone());
            let span = (first.clone(), end.clone());
            let open = move || {
                let block = read(&segments, &files, number, &|file| file.block_at(at, sum));
                let block = block.map(|block| stamped(block, stamp));
                OnePiece::of(block, span, (segments.path_of(number), at.0))
            };
            layers.push(LayerPlan { first, end, rank: rank as u64, open: Box::new(open) });
        }
    }
    let counters = &index.counters;
    let (log_end, last_seqno) = (counters.log_end, counters.last_seqno);
    let state = StoreState { log_end, last_seqno, begun: index.begun.clone() };
    let headers = index.segments();
    let damage = headers.iter().filter_map(|segment| {
        open(segments, segment.number).ok().and_then(|file| file.header_damage)
    });
    let damage = damage.collect();
    SalvagedStore { state: Some(state), order: Order::Ranks, layers, damage }
}

fn stamped(block: Block, stamp: Option<SeqNo>) -> Block {
    match stamp {
        Some(stamp) => block.stamped(stamp),
        None => block,
    }
}

fn without_index(segments: &Arc<SegmentPlace>, why: &Error) -> Result<SalvagedStore> {
    let mut damage = vec![Damage::of(why, &segments.dir)];
    let numbers = match segments.numbers() {
        Ok(numbers) => numbers,
        Err(error) if is_damage(&error) => {
            damage.push(Damage::of(&error, &segments.dir));
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let files = Files::default();
    let mut layers = Vec::new();
    for number in numbers {
        let mut file = match open(segments, number) {
            Ok(file) => file,
            Err(error) if is_damage(&error) => {
                damage.push(Damage::of(&error, &segments.path_of(number)));
                continue;
            }
            Err(error) => return Err(error),
        };
        damage.extend(file.header_damage.clone());
        find_frames(segments, &files, (number, &mut file), (&mut layers, &mut damage))?;
    }
    Ok(SalvagedStore { state: None, order: Order::Stamps, layers, damage })
}

/// Makes a layer of each frame that a segment has.
fn find_frames(
    segments: &Arc<SegmentPlace>,
    files: &Files,
    (number, file): (u64, &mut SalvageFile),
    (layers, damage): (&mut Vec<LayerPlan>, &mut Vec<Damage>),
) -> Result<()> {
    let path = segments.path_of(number);
    let (mut offset, mut unread) = (HEADER_LEN, (0, None));
    loop {
        let (found, passed) = file.next_frame(offset);
        // Zeros are holes.
        if let Some(Passed { range, is_blank: false }) = passed {
            unread.0 += range.end - range.start;
            unread.1 = unread.1.or(Some(range.start));
        }
        let Some(found) = found else { break };
        offset = found.offset + found.len;
        if found.kind != FrameKind::Entries as u8 {
            continue;
        }
        let first = match file.block(&found, None).and_then(first_key) {
            Ok(first) => first,
            Err(error) if is_damage(&error) => {
                damage.push(Damage::of(&error, &path));
                continue;
            }
            Err(error) => return Err(error),
        };
        let (segments, files) = (Arc::clone(segments), Rc::clone(files));
        let open = move || {
            let block = read(&segments, &files, number, &|file| file.block(&found, None));
            let span = (Slice::default(), None);
            OnePiece::of(block, span, (segments.path_of(number), found.offset))
        };
        layers.push(LayerPlan { first, end: None, rank: 0, open: Box::new(open) });
    }
    if let (bytes, Some(offset)) = unread {
        let what = format!(
            "expected frames, found {bytes} bytes from here on that are none; they may be what \
             is left of runs that were not needed any more"
        );
        damage.push(Damage::new(&path, offset, what));
    }
    Ok(())
}

fn first_key(block: Block) -> Result<Slice> {
    let mut cursor = BlockCursor::new(Arc::new(block));
    cursor.seek_first()?;
    Ok(cursor.key().map(Slice::from).unwrap_or_default())
}
