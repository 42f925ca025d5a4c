//! Encodes sorted entries into a payload.
//!
//! Every entry is appended once, in the whole form; whether keys shall share prefixes is decided
//! when all are known. A block that is not compressed is then finished by appending its tail, a
//! compressed one is encoded a second time.

use std::sync::Arc;

use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::Error;
use crate::base::ExpirySpan;
use crate::base::Result;
use crate::base::SeqNo;
use crate::base::expiring_in;
use crate::base::pointer_in;
use crate::base::varint;
use crate::block::layout;
use crate::block::layout::StampRange;
use crate::block::resident::Block;
use crate::memory::Heap;

/// Entries from restart to restart when the builder compresses of its own accord.
const ADAPTIVE_INTERVAL: u16 = 16;
/// Adaptive compression must save a payload's size over this.
const WORTHWHILE_FRACTION: usize = 8;

/// Whether keys share the prefix of the key before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Every key is stored whole: fastest to build, search and scan.
    Whole,
    /// Keys share prefixes, and every n-th is whole (n = 1 is [`RestartPolicy::Whole`]).
    Every(u16),
    /// Whole unless sharing (every 16th key whole) saves at least an eighth of the payload.
    Adaptive,
}

/// Builds payloads, one after the other; its buffers are reused.
#[derive(Debug)]
pub struct BlockBuilder {
    policy: RestartPolicy,
    /// The entries in the whole form, one behind the other.
    entries: Vec<u8>,
    /// Where each starts.
    starts: Vec<u32>,
    seqnos: Vec<SeqNo>,
    /// The kinds of entries there are, a bit for each.
    kinds: u8,
    stamps: StampRange,
    /// Bytes that each key has in common with the one before it; kept unless the policy is
    /// `Whole`.
    shared: Vec<u16>,
    /// Bytes that sharing would leave out, of all entries that are not restarts.
    shareable: usize,
    /// Where the last key lies in `entries`.
    last_key_start: usize,
    last_key_len: usize,
    /// Second encoding of a compressed block.
    compressed: Vec<u8>,
    restarts: Vec<u32>,
}

impl BlockBuilder {
    /// A builder without entries.
    ///
    /// # Panics
    /// For a restart interval of 0.
    #[must_use]
    pub fn new(policy: RestartPolicy) -> BlockBuilder {
        let policy = match policy {
            RestartPolicy::Every(0) => panic!("a restart interval is at least 1"),
            RestartPolicy::Every(1) => RestartPolicy::Whole,
            other => other,
        };
        BlockBuilder {
            policy,
            entries: Vec::new(),
            starts: Vec::new(),
            seqnos: Vec::new(),
            kinds: 0,
            stamps: StampRange::EMPTY,
            shared: Vec::new(),
            shareable: 0,
            last_key_start: 0,
            last_key_len: 0,
            compressed: Vec::new(),
            restarts: Vec::new(),
        }
    }

    /// Appends an entry, whose key must be above that of the entry before it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the key is longer than
    /// [`KEY_LEN_MAX`](crate::block::KEY_LEN_MAX) or the payload would exceed
    /// [`PAYLOAD_LEN_MAX`](crate::block::PAYLOAD_LEN_MAX); the builder is unchanged.
    #[inline]
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        debug_assert!(
            self.starts.is_empty() || self.last_key() < entry.key,
            "keys ascend strictly"
        );
        let start = self.entries.len();
        let largest = start
            + entry.key.len()
            + entry.value.len()
            + (self.starts.len() + 1) * layout::ENTRY_OVERHEAD_MAX
            + layout::BLOCK_OVERHEAD_MAX;
        if entry.key.len() > layout::KEY_LEN_MAX || largest > layout::PAYLOAD_LEN_MAX {
            return Err(refuse(&entry));
        }
        if self.policy != RestartPolicy::Whole {
            self.note_shared(entry.key);
        }
        self.kinds |= 1 << entry.kind as u8;
        self.starts.push(start as u32);
        self.seqnos.push(entry.seqno);
        self.stamps.extend(entry.seqno);
        varint::put(&mut self.entries, packed(entry.key.len(), entry.kind as u8));
        self.last_key_start = self.entries.len();
        self.last_key_len = entry.key.len();
        self.entries.extend_from_slice(entry.key);
        self.entries.extend_from_slice(entry.value);
        Ok(())
    }

    /// Number of entries added since the last `finish`.
    #[inline]
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.starts.len()
    }

    /// Whether nothing was added since the last `finish`.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The last key added; empty when there is none.
    #[inline]
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.entries[self.last_key_start..self.last_key_start + self.last_key_len]
    }

    /// The pointers that entries hold, alone or in composite entries.
    pub fn pointers(&self) -> impl Iterator<Item = &[u8]> {
        let may_have = 1 << EntryKind::Pointer as u8 | 1 << EntryKind::Composite as u8;
        self.contents(may_have).filter_map(|(kind, value)| pointer_in(kind, value))
    }

    /// How many entries expire, and when.
    #[must_use]
    pub fn expiry_span(&self) -> Option<ExpirySpan> {
        let contents = self.contents(1 << EntryKind::Composite as u8);
        let expiring = contents.filter_map(|(kind, value)| expiring_in(kind, value));
        expiring.fold(None, |span, entry| Some(ExpirySpan::with(span, entry.until)))
    }

    /// Kinds of entries and what they hold, of all entries if any is of one of `kinds`.
    fn contents(&self, kinds: u8) -> impl Iterator<Item = (EntryKind, &[u8])> {
        let has_any = self.kinds & kinds != 0;
        let count = if has_any { self.starts.len() } else { 0 };
        (0..count).filter_map(|index| {
            let end = self.starts.get(index + 1).map_or(self.entries.len(), |end| *end as usize);
            let entry = layout::whole_entry(&self.entries, self.starts[index] as usize, end)?;
            Some((entry.kind, &self.entries[entry.value_start..entry.value_end]))
        })
    }

    /// Bytes that the payload would have now: exact for the whole form, within a few bytes an
    /// entry for the shared one.
    #[inline]
    #[must_use]
    pub fn estimated_size(&self) -> usize {
        let whole = self.whole_size();
        match self.policy {
            RestartPolicy::Whole => whole,
            RestartPolicy::Every(_) => whole.saturating_sub(self.shareable),
            RestartPolicy::Adaptive if self.shareable >= whole / WORTHWHILE_FRACTION => {
                whole - self.shareable
            }
            RestartPolicy::Adaptive => whole,
        }
    }

    /// Appends the payload to `out` and starts the next one. Without entries it is the payload
    /// of an empty block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.encode());
        self.clear();
    }

    /// As [`BlockBuilder::finish`], for a block that is wanted in memory, of `heap`, and not on
    /// disk.
    #[must_use]
    pub fn finish_block(&mut self, heap: &Arc<Heap>) -> Block {
        let payload = self.encode();
        let len = payload.len();
        let mut room = heap.take(len);
        room[..len].copy_from_slice(payload);
        self.clear();
        Block::from_encoded(room.freeze(), len)
    }

    /// Forgets the entries added since the last `finish`.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.starts.clear();
        self.seqnos.clear();
        self.kinds = 0;
        self.stamps = StampRange::EMPTY;
        self.shared.clear();
        self.shareable = 0;
        self.last_key_start = 0;
        self.last_key_len = 0;
        self.compressed.clear();
        self.restarts.clear();
    }

    /// The payload, in one of the builder's own buffers.
    fn encode(&mut self) -> &[u8] {
        let stamps = self.stamps.code();
        if let Some(interval) = self.interval_worth_sharing() {
            self.encode_shared(interval);
            let out = &mut self.compressed;
            layout::put_tail(out, &self.restarts, &self.seqnos, stamps, interval);
            return &self.compressed;
        }
        layout::put_tail(&mut self.entries, &self.starts, &self.seqnos, stamps, 1);
        &self.entries
    }

    /// The restart interval if keys are to share prefixes.
    fn interval_worth_sharing(&self) -> Option<u16> {
        match self.policy {
            RestartPolicy::Whole => None,
            RestartPolicy::Every(interval) => Some(interval),
            RestartPolicy::Adaptive => {
                // Each entry pays about three bytes of lengths for the table item (two bytes)
                // that it saves.
                let saved = self.shareable.saturating_sub(self.starts.len());
                let worthwhile = saved > 0 && saved >= self.whole_size() / WORTHWHILE_FRACTION;
                worthwhile.then_some(ADAPTIVE_INTERVAL)
            }
        }
    }

    fn encode_shared(&mut self, interval: u16) {
        let ends = self.starts.iter().skip(1).copied().chain([self.entries.len() as u32]);
        for (index, (&start, end)) in self.starts.iter().zip(ends).enumerate() {
            let entry = layout::whole_entry(&self.entries, start as usize, end as usize)
                .expect("`add` encoded it");
            let mut shared = usize::from(self.shared[index]);
            if index.is_multiple_of(usize::from(interval)) {
                self.restarts.push(self.compressed.len() as u32);
                shared = 0;
            }
            let suffix = &self.entries[entry.key_start + shared..entry.value_start];
            let value = &self.entries[entry.value_start..entry.value_end];
            varint::put(&mut self.compressed, shared as u64);
            varint::put(&mut self.compressed, suffix.len() as u64);
            varint::put(&mut self.compressed, packed(value.len(), entry.kind as u8));
            self.compressed.extend_from_slice(suffix);
            self.compressed.extend_from_slice(value);
        }
    }

    #[inline]
    fn whole_size(&self) -> usize {
        let count = self.starts.len();
        let entries_len = self.entries.len();
        entries_len + layout::tail_len(entries_len, count, self.stamps.code(), count)
    }

    /// Records what `key` shares with the last key.
    #[inline]
    fn note_shared(&mut self, key: &[u8]) {
        let interval = match self.policy {
            RestartPolicy::Every(interval) => interval,
            _ => ADAPTIVE_INTERVAL,
        };
        let shared = common_prefix_len(self.last_key(), key);
        self.shared.push(shared as u16);
        if !self.starts.len().is_multiple_of(usize::from(interval)) {
            self.shareable += shared;
        }
    }
}

/// A length with the kind in its lowest bits.
#[inline]
fn packed(len: usize, kind: u8) -> u64 {
    ((len as u64) << layout::KIND_BITS) | u64::from(kind)
}

#[cold]
fn refuse(entry: &EntryRef<'_>) -> Error {
    let (key_len, value_len) = (entry.key.len(), entry.value.len());
    Error::invalid(format!("entry of {key_len} + {value_len} bytes exceeds what a block holds"))
}

/// Number of leading bytes that are equal.
#[inline]
pub(crate) fn common_prefix_len(left: &[u8], right: &[u8]) -> usize {
    let (left_words, _) = left.as_chunks::<8>();
    let (right_words, _) = right.as_chunks::<8>();
    let mut len = 0;
    for (a, b) in left_words.iter().zip(right_words) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + left[len..].iter().zip(&right[len..]).take_while(|(a, b)| a == b).count()
}
