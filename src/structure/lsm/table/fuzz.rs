//! Doors for fuzzers: the parts of a table that say anything, and files whose checksums are right.

use std::path::Path;

use super::format::{EXTENSION_LEN, FOOTER_LEN, HEADER_LEN, TableIdentity, put_footer_right};
use super::index::Index;
use super::partition::Partition;
use super::properties::Properties;
use super::ranges;
use crate::base::{SeqNo, checksum, hash_key};
use crate::block::{FRAME_HEADER_LEN, FramePlace, frame};
use crate::memory::SharedBytes;

/// Bytes of keys that are looked for.
const KEYS_MAX: usize = 32;

/// The payload of a frame behind the data blocks; the first byte says of which.
pub(crate) fn fuzz_parts(bytes: &[u8]) {
    let Some((part, payload)) = bytes.split_first() else { return };
    let place = FramePlace { file: Path::new("/fuzz"), file_tag: 1, offset: HEADER_LEN, key: None };
    match part % 4 {
        0 => {
            let Some(deleted) = ranges::decode(payload) else { return };
            assert_eq!(deleted.iter().count(), deleted.fragment_count());
            for range in deleted.iter() {
                assert!(deleted.covering(range.start, SeqNo::MAX).is_some(), "its first key");
            }
        }
        1 => drop(Properties::decode(payload)),
        2 => {
            let payload =
                frame::Payload { data: SharedBytes::from(payload), range: 0..payload.len() };
            let sought = payload.data.to_vec();
            let Ok(partition) = Partition::parse(payload, place) else { return };
            walk(partition.index());
            for number in 0..partition.block_count() {
                let _ = (partition.target(number), partition.slot(number));
                let _ = partition.end_of_unread(number, 1 << 20);
            }
            for cut in 0..sought.len().min(KEYS_MAX) {
                let _ = (partition.find(&sought[cut..]), partition.knows(&sought[cut..]));
                let _ = partition.may_contain(hash_key(&sought[..cut]));
                let _ = partition.may_contain_prefix(&sought[..cut]);
            }
        }
        _ => {
            let data = SharedBytes::from(payload);
            if let Ok(index) = Index::parse(data, 0..payload.len(), HEADER_LEN, place) {
                walk(&index);
            }
        }
    }
}

fn walk(index: &Index) {
    let is_in_order = index.check_order().is_none();
    for number in 0..index.len() {
        let _ = index.target(number);
        if let Some(separator) = index.separator(number).filter(|_| is_in_order) {
            assert_eq!(index.find(separator), number, "the frame in front of its separator");
        }
    }
}

/// The file of a table that was made outside of any database, with these bytes for frames and
/// footer: header and checksums are put right, as are pointers in the footer that lead to frames.
pub(crate) fn put_right(bytes: &[u8]) -> Vec<u8> {
    let identity = TableIdentity::outside(1);
    let mut file = bytes.to_vec();
    file.resize(bytes.len().max((HEADER_LEN + EXTENSION_LEN + FOOTER_LEN) as usize), 0);
    let end = file.len() - FOOTER_LEN as usize;
    file[..HEADER_LEN as usize].copy_from_slice(&identity.encode_header(0));
    let (mut at, mut frames) = (HEADER_LEN as usize, Vec::new());
    while let Some(len) = file[at..end].get(8..).and_then(|field| field.first_chunk::<4>()) {
        let len = FRAME_HEADER_LEN.saturating_add(u32::from_le_bytes(*len) as usize);
        let Some(frame) = file[..end].get_mut(at..at.saturating_add(len)) else { break };
        let sum = checksum(&frame[8..], identity.tag(), at as u64);
        frame[..8].copy_from_slice(&sum.to_le_bytes());
        frames.push((at as u64, len as u32, sum as u32));
        at += len;
    }
    put_footer_right(&mut file, identity.tag(), &frames);
    file
}
