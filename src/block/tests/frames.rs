//! Frames: what is sealed comes back, anything else is refused.

use std::io;
use std::path::Path;
use std::ptr;

use super::Numbers;
use crate::base::Codec;
use crate::base::Result;
use crate::base::checksum;
use crate::block::FrameKind;
use crate::block::FramePlace;
use crate::block::frame;
use crate::block::frame::Payload;
use crate::memory::{Heap, SharedBytes};
use crate::storage::StorageFile;

/// Those that this program was built without store payloads as they are.
const CODECS: [Codec; 5] =
    [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(1), Codec::Zstd(19)];

fn place_at(offset: u64) -> FramePlace<'static> {
    FramePlace { file: Path::new("values/000007"), file_tag: 42, offset, key: None }
}

fn seal(payload: &[u8], codec: Codec) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    let sum = frame::seal(payload, codec, FrameKind::Entries, place_at(512), &mut out).unwrap();
    (out, sum as u32)
}

fn open(bytes: &[u8], expected: u32) -> Result<Payload> {
    frame::open(SharedBytes::from(bytes), FrameKind::Entries, place_at(512), expected)
}

/// Gives a tampered frame the checksum that it should have; returns what the pointer would carry.
fn correct_checksum(frame: &mut [u8]) -> u32 {
    let sum = checksum(&frame[8..], 42, 512);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
    sum as u32
}

fn text(len: usize) -> Vec<u8> {
    b"all work and no play ".iter().copied().cycle().take(len).collect()
}

#[test]
fn payloads_of_any_size_come_back_through_every_codec() {
    let mut numbers = Numbers(1);
    for codec in CODECS {
        for len in [0, 1, 2, 15, 16, 100, 5000, 100_000] {
            for payload in [text(len), numbers.bytes(len)] {
                let (sealed, expected) = seal(&payload, codec);
                assert_eq!(open(&sealed, expected).unwrap().bytes(), payload);
            }
        }
    }
}

#[test]
fn frames_are_appended_one_after_the_other() {
    let mut out = Vec::new();
    let sums = [0, 1].map(|index| {
        let place = place_at(out.len() as u64);
        frame::seal(&text(100 + index), Codec::Lz4, FrameKind::Top, place, &mut out).unwrap()
    });
    let second = 16 + u64::from(u32::from_le_bytes(out[8..12].try_into().unwrap()));
    let bytes = SharedBytes::from(&out[second as usize..]);
    let opened = frame::open(bytes, FrameKind::Top, place_at(second), sums[1] as u32).unwrap();
    assert_eq!(opened.bytes(), text(101));
}

#[test]
fn a_payload_that_does_not_compress_is_stored_as_it_is_and_not_copied_when_opened() {
    let payload = Numbers(5).bytes(4000);
    for codec in CODECS {
        let (sealed, expected) = seal(&payload, codec);
        assert_eq!(sealed.len(), frame::HEADER_LEN + payload.len());
        assert_eq!(sealed[12], Codec::None.to_u8());
        let bytes = SharedBytes::from(sealed.as_slice());
        let kind = FrameKind::Entries;
        let opened = frame::open(bytes.clone(), kind, place_at(512), expected).unwrap();
        assert!(ptr::eq(&*bytes, &*opened.data) && opened.range.start == frame::HEADER_LEN);
    }
}

#[test]
fn a_codec_is_used_where_it_saves_an_eighth() {
    // Three quarters of a payload that does not compress leave an eighth to be saved, and a bit.
    for codec in CODECS {
        for (noise, is_worth) in [(0, true), (3000, true), (3600, false), (4000, false)] {
            let payload = [Numbers(6).bytes(noise), text(4000 - noise)].concat();
            let (sealed, _) = seal(&payload, codec);
            let is_used = sealed[12] != Codec::None.to_u8();
            let expected = is_worth && codec != Codec::None && codec.is_available();
            assert_eq!(is_used, expected, "{codec} with {noise} bytes of noise");
            assert_eq!(sealed[12], if is_used { codec.to_u8() } else { 0 });
            assert!(!is_used || sealed.len() <= frame::HEADER_LEN + 3500);
        }
    }
}

/// A frame of a codec, made elsewhere: this program need not have the codec.
fn sealed_elsewhere(codec: u8, stored: &[u8]) -> (Vec<u8>, u32) {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[codec, FrameKind::Entries as u8, 0, 0]);
    bytes.extend_from_slice(stored);
    let expected = correct_checksum(&mut bytes);
    (bytes, expected)
}

/// 100 times `a`, with its length in front, as every codec stores it: what is on disk stays
/// readable.
#[test]
fn payloads_compressed_by_earlier_programs_are_read() {
    let lz4 = [0x1F, b'a', 0x01, 0x00, 0x4B, 0x50, b'a', b'a', b'a', b'a', b'a'];
    let snappy = [0x64, 0x00, b'a', 0xFE, 0x01, 0x00, 0x8A, 0x01, 0x00];
    // One block of a byte to be repeated, without checksum.
    let zstd = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 0x64, 0x23, 0x03, 0x00, b'a'];
    for (codec, block) in [(1, &lz4[..]), (2, &snappy), (3, &zstd)] {
        let stored = [&100_u32.to_le_bytes()[..], block].concat();
        let (sealed, expected) = sealed_elsewhere(codec, &stored);
        let codec = Codec::from_u8(codec).unwrap();
        if codec.is_available() {
            assert_eq!(open(&sealed, expected).unwrap().bytes(), [b'a'; 100], "{codec}");
        } else {
            let error = open(&sealed, expected).unwrap_err();
            assert!(!error.is_corruption(), "{error}");
            assert!(error.to_string().contains("feature \"zstd\""), "{error}");
        }
    }
    let (unknown, expected) = sealed_elsewhere(4, b"....x");
    assert!(open(&unknown, expected).unwrap_err().to_string().contains("unknown codec 4"));
}

#[cfg(feature = "zstd")]
#[test]
fn payloads_packed_with_the_file_s_dictionary_need_it() {
    use crate::block::{Dictionary, Packing, PackingDictionary, dictionary};

    let samples: Vec<Vec<u8>> = (0..400u32)
        .map(|number| format!("{{\"name\":\"user {number}\",\"mail\":\"{number}@x\"}}").into())
        .collect();
    let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
    let bytes = dictionary::train(&samples.concat(), &sizes, 2048).unwrap();
    let packing = PackingDictionary::new(&bytes, 3).unwrap();
    let dictionary = Dictionary::new(&bytes).unwrap();
    assert!(packing.memory_size() >= bytes.len() && dictionary.memory_size() >= bytes.len());
    let payload = &samples[300..304].concat();
    let mut sealed = Vec::new();
    let with = Packing { codec: Codec::zstd(), dictionary: Some(&packing) };
    let kind = FrameKind::Entries;
    let sum = frame::seal_packed(payload, with, kind, place_at(512), &mut sealed).unwrap() as u32;
    assert_eq!(sealed[14..16], [1, 0]);
    let (alone, _) = seal(payload, Codec::zstd());
    assert!(sealed.len() < alone.len(), "{} {}", sealed.len(), alone.len());
    let open = |dictionary: Option<&Dictionary>| {
        let (bytes, len) = (SharedBytes::from(sealed.as_slice()), sealed.len());
        frame::open_in(bytes, len, kind, place_at(512), sum, (dictionary, &Heap::new()))
    };
    assert_eq!(open(Some(&dictionary)).unwrap().bytes(), payload);
    let refused = open(None).unwrap_err();
    assert!(refused.is_corruption() && refused.to_string().contains("dictionary 1"), "{refused}");
    let mut crooked = bytes;
    crooked[8..40].fill(0xFF);
    assert!(Dictionary::new(&crooked).is_none(), "what begins as one and is none");
}

/// It would take memory that nothing bounds.
#[test]
fn a_dictionary_that_is_packed_is_refused() {
    for (codec, is_taken) in [(Codec::None, true), (Codec::Lz4, false)] {
        let mut out = Vec::new();
        let (kind, place) = (FrameKind::Dictionary, place_at(512));
        let sum = frame::seal(&text(5000), codec, kind, place, &mut out).unwrap();
        let opened = frame::open(SharedBytes::from(&out[..]), kind, place_at(512), sum as u32);
        assert_eq!(opened.is_ok(), is_taken, "{codec:?}");
    }
}

#[test]
fn a_frame_that_names_a_dictionary_is_refused() {
    for byte in [14, 15] {
        let (mut sealed, _) = seal(&text(300), Codec::Lz4);
        sealed[byte] = 1;
        let expected = correct_checksum(&mut sealed);
        assert!(open(&sealed, expected).unwrap_err().is_corruption());
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    for codec in CODECS {
        let (sealed, expected) = seal(&text(300), codec);
        for len in 0..sealed.len() {
            assert!(open(&sealed[..len], expected).unwrap_err().is_corruption(), "cut at {len}");
        }
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&damaged, expected).unwrap_err().is_corruption(), "bit {bit}");
        }
        let longer = [&sealed[..], &[0]].concat();
        assert!(open(&longer, expected).unwrap_err().is_corruption());
    }
}

#[test]
fn a_frame_is_refused_at_another_place_or_as_another_kind() {
    let (sealed, expected) = seal(&text(300), Codec::None);
    let bytes = SharedBytes::from(sealed.as_slice());
    let refused = |kind, place, expected| {
        let error = frame::open(bytes.clone(), kind, place, expected).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("000007"), "{error}");
    };
    refused(FrameKind::Entries, place_at(1024), expected);
    refused(FrameKind::Entries, FramePlace { file_tag: 43, ..place_at(512) }, expected);
    refused(FrameKind::Top, place_at(512), expected);
    // The frame that was there before: whole, but not the one that the pointer means.
    refused(FrameKind::Entries, place_at(512), expected ^ 1);
}

#[test]
fn crafted_frames_with_a_right_checksum_are_opened_or_refused_but_never_panic() {
    let mut numbers = Numbers(8);
    let mut refused = 0;
    for codec in CODECS {
        let (sealed, _) = seal(&text(300), codec);
        for _ in 0..3000 {
            let mut crafted = sealed.clone();
            for _ in 0..1 + numbers.below(3) {
                let at = 8 + numbers.below(crafted.len().min(40) as u64 - 8) as usize;
                crafted[at] = numbers.next() as u8;
            }
            let expected = correct_checksum(&mut crafted);
            refused += usize::from(open(&crafted, expected).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// A file of given bytes.
#[derive(Debug)]
struct FixedFile(Vec<u8>);

impl StorageFile for FixedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len()).min(100); // short reads are legal
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn frames_are_read_from_files_and_a_file_that_ends_within_one_is_damaged() {
    let (sealed, expected) = seal(&text(300), Codec::None);
    let file = FixedFile([vec![0xEE; 512], sealed.clone()].concat());
    let (kind, heap) = (FrameKind::Entries, Heap::new());
    let read = |len| frame::read(&file, len, kind, place_at(512), expected, (None, &heap));
    assert_eq!(read(sealed.len()).unwrap().bytes(), text(300));
    for len in [0, 15, sealed.len() - 1, sealed.len() + 1, 2 << 20, usize::MAX] {
        let error = read(len).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("000007"), "{len}: {error}");
    }
}

#[test]
fn a_claimed_length_is_not_allocated_before_it_is_plausible() {
    for codec in CODECS.into_iter().filter(|codec| *codec != Codec::None && codec.is_available()) {
        let (mut crafted, _) = seal(&text(300), codec);
        crafted[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        let expected = correct_checksum(&mut crafted);
        let error = open(&crafted, expected).unwrap_err();
        assert!(error.to_string().contains("cannot unpack to 4294967295"), "{codec}: {error}");
    }
}

#[test]
fn a_payload_that_is_not_as_long_as_it_says_is_refused() {
    for codec in CODECS.into_iter().filter(|codec| *codec != Codec::None && codec.is_available()) {
        for len in [0_u32, 1, 299, 301] {
            let (mut crafted, _) = seal(&text(300), codec);
            crafted[16..20].copy_from_slice(&len.to_le_bytes());
            let expected = correct_checksum(&mut crafted);
            assert!(open(&crafted, expected).unwrap_err().is_corruption(), "{codec} as {len}");
        }
        for cut in 1..20 {
            let (mut crafted, _) = seal(&text(300), codec);
            crafted.truncate(crafted.len() - cut);
            let stored_len = (crafted.len() - frame::HEADER_LEN) as u32;
            crafted[8..12].copy_from_slice(&stored_len.to_le_bytes());
            let expected = correct_checksum(&mut crafted);
            assert!(open(&crafted, expected).unwrap_err().is_corruption(), "{codec} cut by {cut}");
        }
    }
}
