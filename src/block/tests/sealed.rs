//! Sealed frames: what is sealed comes back, whole and in parts, and nothing else does.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Numbers;
use crate::base::{Codec, Result, checksum};
use crate::block::frame::{self, Payload};
use crate::block::sealed::PAGE_LEN;
use crate::block::{FRAME_HEADER_LEN, FrameKind, FramePlace, SealedFrame};
use crate::memory::SharedBytes;
use crate::seal::{FileKey, drawing_key, recorded_key};

const TAG: u64 = 42;
const OFFSET: u64 = 40;
/// Around the borders of pages, of which the first one has the header in it.
const LENGTHS: [usize; 12] =
    [0, 1, 100, 1007, 1008, 1009, 2031, 2032, 2033, 3000, 5 * 1024 - 16, 20_000];

fn place_at(key: Option<&FileKey>, offset: u64) -> FramePlace<'_> {
    FramePlace { file: Path::new("seg-00000007"), file_tag: TAG, offset, key }
}

fn seal(payload: &[u8], codec: Codec, kind: FrameKind, key: &FileKey) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    let sum = frame::seal(payload, codec, kind, place_at(Some(key), OFFSET), &mut out).unwrap();
    (out, sum as u32)
}

/// Opens what has the right checksum, be it forged.
fn open(frame: &[u8], kind: FrameKind, key: Option<&FileKey>, offset: u64) -> Result<Payload> {
    let mut frame = frame.to_vec();
    let sum = checksum(&frame[8..], TAG, offset);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
    frame::open(SharedBytes::from(&*frame), kind, place_at(key, offset), sum as u32)
}

#[test]
fn payloads_of_any_size_come_back_and_are_not_to_be_read() {
    let (key, mut numbers) = (drawing_key(), Numbers(1));
    for len in LENGTHS {
        let text: Vec<u8> = b"all work and no play ".iter().copied().cycle().take(len).collect();
        for payload in [text, numbers.bytes(len)] {
            for codec in [Codec::None, Codec::Lz4] {
                for kind in [FrameKind::Entries, FrameKind::Dictionary] {
                    let codec = if kind == FrameKind::Dictionary { Codec::None } else { codec };
                    let (sealed, _) = seal(&payload, codec, kind, &key);
                    let opened = open(&sealed, kind, Some(&key), OFFSET).unwrap();
                    assert_eq!(opened.bytes(), payload, "{len} {codec:?}");
                    let is_shown = |part: &[u8]| sealed.windows(8).any(|window| window == part);
                    let shown = payload.windows(8).step_by(97).any(is_shown);
                    assert!(!shown, "{len} {codec:?}");
                }
            }
        }
    }
}

/// Bytes that another program has made, after `docs/format/sealing.md`.
#[test]
fn the_bytes_are_those_of_the_document() {
    let payload: Vec<u8> = (0..1500u32).map(|number| (number * 7 % 251) as u8).collect();
    let (sealed, _) = seal(&payload, Codec::None, FrameKind::Entries, &recorded_key());
    assert_eq!(sealed.len(), 1572);
    let digest: String =
        Sha256::digest(&sealed[8..]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "3c48d67a1aa206e4d3ac0073e77ee75864c8096597b8cbb3ebd8e3e63371e0b8");
}

#[test]
fn every_flip_is_refused_also_with_the_checksum_put_right() {
    let key = recorded_key();
    let payload = Numbers(2).bytes(2500);
    for codec in [Codec::None, Codec::Lz4] {
        let (sealed, _) = seal(&payload, codec, FrameKind::Entries, &key);
        for at in 8..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1 << (at % 8);
            let opened = open(&flipped, FrameKind::Entries, Some(&key), OFFSET);
            assert!(opened.unwrap_err().is_corruption(), "byte {at}");
        }
    }
}

#[test]
fn a_frame_opens_in_its_place_with_its_key_only() {
    let key = recorded_key();
    let (kind, payload) = (FrameKind::Entries, Numbers(3).bytes(3000));
    let (sealed, _) = seal(&payload, Codec::None, kind, &key);
    assert!(open(&sealed, kind, Some(&key), OFFSET + 8).unwrap_err().is_corruption());
    assert!(open(&sealed, kind, None, OFFSET).unwrap_err().is_corruption());
    let mut plain = Vec::new();
    frame::seal(&payload, Codec::None, kind, place_at(None, OFFSET), &mut plain).unwrap();
    assert!(open(&plain, kind, Some(&key), OFFSET).unwrap_err().is_corruption());
    // Pages of the same length in each other's place, and one less.
    let sealed_page = PAGE_LEN + 16;
    let mut swapped = sealed.clone();
    swapped[16..sealed_page].copy_from_slice(&sealed[sealed_page + 16..2 * sealed_page]);
    assert!(open(&swapped, kind, Some(&key), OFFSET).unwrap_err().is_corruption());
    let mut short = [&sealed[..sealed_page], &sealed[2 * sealed_page..]].concat();
    let stored_len = (short.len() - FRAME_HEADER_LEN) as u32;
    short[8..12].copy_from_slice(&stored_len.to_le_bytes());
    assert!(open(&short, kind, Some(&key), OFFSET).unwrap_err().is_corruption());
    for len in 0..200 {
        let mut cut = sealed[..len.max(16)].to_vec();
        let stored_len = (cut.len() - FRAME_HEADER_LEN) as u32;
        cut[8..12].copy_from_slice(&stored_len.to_le_bytes());
        assert!(open(&cut, kind, Some(&key), OFFSET).unwrap_err().is_corruption(), "{len}");
    }
}

#[test]
fn parts_are_read_as_they_are_in_the_whole() {
    let (key, kind) = (recorded_key(), FrameKind::Entries);
    for len in LENGTHS {
        let payload = Numbers(4).bytes(len);
        let (sealed, sum) = seal(&payload, Codec::None, kind, &key);
        let place = place_at(Some(&key), OFFSET);
        let opened = frame::open(SharedBytes::from(&*sealed), kind, place, sum).unwrap();
        let whole = &opened.data[..opened.range.end];
        let found = SealedFrame::found(&opened.data, whole.len()).expect("it was sealed");
        let read_part = |sealed: &[u8], from: usize, to: usize| {
            let mut part = vec![0; to - from];
            let read = |at: usize, bytes: &mut [u8]| {
                bytes.copy_from_slice(&sealed[at..at + bytes.len()]);
                Ok::<_, ()>(())
            };
            found.read(&key, OFFSET, from, &mut part, read).map(|is_it| is_it.then_some(part))
        };
        for from in (0..whole.len()).step_by(PAGE_LEN) {
            // A part of no length may lie at the border of a page.
            assert_eq!(read_part(&[], from, from), Ok(Some(Vec::new())));
            let ends = (from + PAGE_LEN..).step_by(PAGE_LEN).take_while(|end| *end < whole.len());
            for to in ends.chain([whole.len()]) {
                let part = read_part(&sealed, from, to).unwrap().expect("it was sealed so");
                assert!(part == whole[from..to], "{from}..{to} of {len}");
                let mut flipped = sealed.clone();
                let at = from + from / PAGE_LEN * 16 + if from == 0 { 16 } else { 0 };
                flipped[at] ^= 4;
                assert_eq!(read_part(&flipped, from, to).unwrap(), None, "{from}..{to} of {len}");
            }
        }
    }
}

#[test]
fn no_two_frames_have_a_nonce_in_common() {
    let key: Arc<FileKey> = recorded_key();
    let nonce_of = |frame: &[u8]| frame[frame.len() - 24..].to_vec();
    let (first, _) = seal(b"the same", Codec::None, FrameKind::Entries, &key);
    let (second, _) = seal(b"the same", Codec::None, FrameKind::Entries, &key);
    assert_ne!(nonce_of(&first), nonce_of(&second));
}
