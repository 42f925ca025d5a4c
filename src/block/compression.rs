//! Compressing payloads, and getting them back.
//!
//! All codecs have one form: the payload's length as u32, then what the codec makes of it. What the
//! codecs work with (tables of the compressors) is kept a thread, as making it costs more than a
//! small block.

use std::cell::RefCell;
use std::sync::Arc;

use lz4_flex::block as lz4;

use crate::base::Codec;
use crate::block::dictionary::{Dictionary, PackingDictionary};
use crate::block::frame::Packing;
use crate::memory::{Heap, SharedBytes};

/// Bytes of the payload's length.
const RAW_LEN_LEN: usize = 4;
/// A codec must save a payload's length over this, or the payload is stored as it is.
const WORTHWHILE_FRACTION: usize = 8;
/// An LZ4 block cannot grow by more than this.
const LZ4_EXPANSION_MAX: usize = 255;
/// Nor a Snappy block: a copy of three bytes stands for 64.
const SNAPPY_EXPANSION_MAX: usize = 22;
/// Nor a Zstandard frame: a block of four bytes stands for 128 KiB.
#[cfg(feature = "zstd")]
const ZSTD_EXPANSION_MAX: usize = (128 << 10) / 4;

/// Why a payload does not come back.
#[derive(Debug)]
pub(super) enum UnpackError {
    /// This program was built without the codec.
    Missing(Codec),
    /// The bytes are not what a codec makes.
    Damaged(String),
}

impl From<String> for UnpackError {
    fn from(what: String) -> UnpackError {
        UnpackError::Damaged(what)
    }
}

/// Appends `payload` in the form of `codec`, with a dictionary if there is one, to `out`; whether
/// it was worth it. If not, or if this program does not have the codec, `out` is unchanged.
pub(super) fn put(
    payload: &[u8],
    codec: Codec,
    dictionary: Option<&PackingDictionary>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let block_start = out.len();
    let compressed = match codec {
        Codec::None => None,
        Codec::Lz4 => {
            out.resize(block_start + lz4::get_maximum_output_size(payload.len()), 0);
            lz4::compress_into(payload, &mut out[block_start..]).ok()
        }
        Codec::Snappy => {
            out.resize(block_start + snap::raw::max_compress_len(payload.len()), 0);
            snappy_compress(payload, &mut out[block_start..])
        }
        Codec::Zstd(level) => {
            // Room for what would be worth it is enough: more is not stored.
            out.resize(block_start + payload.len(), 0);
            let room = &mut out[block_start..];
            match dictionary {
                Some(dictionary) => zstandard::compress_with(payload, dictionary, room),
                None => zstandard::compress(payload, level, room),
            }
        }
    };
    let limit = payload.len() - payload.len() / WORTHWHILE_FRACTION;
    match compressed {
        Some(len) if RAW_LEN_LEN + len <= limit => {
            out.truncate(block_start + len);
            true
        }
        _ => {
            out.truncate(start);
            false
        }
    }
}

/// Bytes that a payload takes when it is packed so, or as it is where that is not worth it.
#[must_use]
pub fn packed_len(payload: &[u8], packing: Packing<'_>) -> usize {
    let mut out = Vec::new();
    match put(payload, packing.codec, packing.dictionary, &mut out) {
        true => out.len(),
        false => payload.len(),
    }
}

/// The payload that `stored` is in the form of `codec`, with a dictionary if it was packed with
/// one, in memory of `heap`, and its length.
pub(super) fn unpack(
    stored: &[u8],
    codec: Codec,
    dictionary: Option<&Dictionary>,
    heap: &Arc<Heap>,
) -> Result<(SharedBytes, usize), UnpackError> {
    let Some((&raw_len, block)) = stored.split_first_chunk::<RAW_LEN_LEN>() else {
        return Err("compressed payload without its length".to_owned().into());
    };
    let raw_len = u32::from_le_bytes(raw_len) as usize;
    let expansion_max = match codec {
        Codec::Lz4 => LZ4_EXPANSION_MAX,
        Codec::Snappy => SNAPPY_EXPANSION_MAX,
        Codec::Zstd(_) => zstandard::EXPANSION_MAX.ok_or(UnpackError::Missing(codec))?,
        Codec::None => 0,
    };
    if raw_len > block.len().saturating_mul(expansion_max) {
        // F2
        return Err(format!("{} bytes cannot unpack to {raw_len}", block.len()).into());
    }
    let mut room = heap.take(raw_len);
    let payload = &mut room[..raw_len];
    let unpacked = match codec {
        Codec::Lz4 => lz4::decompress_into(block, payload).map_err(|error| error.to_string()),
        Codec::Snappy => snappy_decompress(block, payload),
        Codec::Zstd(_) => match dictionary {
            Some(dictionary) => zstandard::decompress_with(block, dictionary, payload),
            None => zstandard::decompress(block, payload),
        },
        Codec::None => Ok(0),
    };
    match unpacked {
        Ok(len) if len == raw_len => Ok((room.freeze(), raw_len)),
        Ok(len) => Err(format!("payload unpacks to {len} bytes instead of {raw_len}").into()),
        Err(error) => Err(format!("payload does not unpack: {error}").into()),
    }
}

thread_local! {
    static SNAPPY: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
}

/// Bytes of `out` that are used; `None` when there is no room, or too much to compress.
fn snappy_compress(payload: &[u8], out: &mut [u8]) -> Option<usize> {
    SNAPPY.with_borrow_mut(|encoder| encoder.compress(payload, out).ok())
}

fn snappy_decompress(block: &[u8], out: &mut [u8]) -> Result<usize, String> {
    snap::raw::Decoder::new().decompress(block, out).map_err(|error| error.to_string())
}

/// Zstandard, for programs that are built with it.
#[cfg(feature = "zstd")]
mod zstandard {
    use super::{Dictionary, PackingDictionary, RefCell, ZSTD_EXPANSION_MAX};
    use zstd::bulk::{Compressor, Decompressor};
    use zstd::zstd_safe::{CCtx, DCtx, get_error_name};

    pub const EXPANSION_MAX: Option<usize> = Some(ZSTD_EXPANSION_MAX);

    thread_local! {
        /// The last compressor, and its level.
        static COMPRESSOR: RefCell<Option<(u8, Compressor<'static>)>> =
            const { RefCell::new(None) };
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
        /// For dictionaries, which change from file to file.
        static PACKING: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
        static UNPACKING: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    }

    /// As [`compress`], at the dictionary's level.
    pub fn compress_with(
        payload: &[u8],
        dictionary: &PackingDictionary,
        out: &mut [u8],
    ) -> Option<usize> {
        PACKING.with_borrow_mut(|context| {
            context.compress_using_cdict(out, payload, &dictionary.0).ok()
        })
    }

    pub fn decompress_with(
        block: &[u8],
        dictionary: &Dictionary,
        out: &mut [u8],
    ) -> Result<usize, String> {
        UNPACKING.with_borrow_mut(|context| {
            let unpacked = context.decompress_using_ddict(out, block, &dictionary.0);
            unpacked.map_err(|code| get_error_name(code).to_owned())
        })
    }

    /// Bytes of `out` that are used; `None` when there is no room.
    pub fn compress(payload: &[u8], level: u8, out: &mut [u8]) -> Option<usize> {
        COMPRESSOR.with_borrow_mut(|kept| {
            if kept.as_ref().is_none_or(|(kept, _)| *kept != level) {
                *kept = Some((level, Compressor::new(i32::from(level)).ok()?));
            }
            let (_, compressor) = kept.as_mut()?;
            compressor.compress_to_buffer(payload, out).ok()
        })
    }

    pub fn decompress(block: &[u8], out: &mut [u8]) -> Result<usize, String> {
        DECOMPRESSOR.with_borrow_mut(|kept| {
            let decompressor = match kept {
                Some(kept) => kept,
                None => kept.insert(Decompressor::new().map_err(|error| error.to_string())?),
            };
            decompressor.decompress_to_buffer(block, out).map_err(|error| error.to_string())
        })
    }
}

/// What there is of Zstandard in programs that are built without it.
#[cfg(not(feature = "zstd"))]
mod zstandard {
    use super::{Dictionary, PackingDictionary};

    pub const EXPANSION_MAX: Option<usize> = None;

    pub fn compress_with(_: &[u8], it: &PackingDictionary, _: &mut [u8]) -> Option<usize> {
        match it.0 {}
    }

    pub fn decompress_with(_: &[u8], it: &Dictionary, _: &mut [u8]) -> Result<usize, String> {
        match it.0 {}
    }

    pub fn compress(_: &[u8], _: u8, _: &mut [u8]) -> Option<usize> {
        None
    }

    pub fn decompress(_: &[u8], _: &mut [u8]) -> Result<usize, String> {
        Err("built without Zstandard".to_owned())
    }
}
