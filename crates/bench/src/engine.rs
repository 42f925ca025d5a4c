//! The engine under test: the few operations that the workloads are made of.
//!
//! Owns the traits. The workloads are generic over them, so that every engine runs the same code.
//!
//! Invariants
//! - E1  `Commit::Buffered` must survive the end of the process where the engine can do that;
//!   `Commit::Durable` survives the machine: it returns after fsync (or the like) has.
//! - E2  A view shows one moment: later writes do not change what it returns.

use crate::records::Records;
use std::error;
use std::path::Path;
use std::str::FromStr;

/// Any failure of an engine or of the check of what it returned.
pub type Error = Box<dyn error::Error + Send + Sync>;
/// The result of work with an engine.
pub type Result<T> = std::result::Result<T, Error>;

/// An error in words: for wrong checksums, lost keys and the like.
///
/// # Errors
/// Always: that is what it is for.
pub fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(what.into().into())
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Without sync.
    Buffered,
    /// After sync.
    Durable,
}

/// Whether an engine has an operation of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It has, and it was done.
    Yes,
    /// It has none; nothing was done.
    No,
}

/// The memory that an engine may use for cache and write buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What the engine takes when it is not told.
    EngineDefault,
    /// This many bytes.
    Bytes(u64),
}

impl Memory {
    /// The rule of the benchmarks: 256 MiB for every engine that can be told.
    pub const RULE: Memory = Memory::Bytes(256 << 20);
}

impl FromStr for Memory {
    type Err = String;

    /// `default`, or bytes with an optional unit: `268435456`, `256MiB`, `1GiB`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "default" {
            return Ok(Memory::EngineDefault);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(format!("unknown unit `{unit}`: use B, KiB, MiB or GiB")),
        };
        let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a size"))?;
        number
            .checked_mul(1 << shift)
            .map(Memory::Bytes)
            .ok_or_else(|| format!("{text}: too large"))
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Memory::EngineDefault => f.write_str("default"),
            Memory::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// Which entries a scan visits.
#[derive(Clone, Copy, Debug)]
pub enum Walk<'a> {
    /// From the first key on.
    Forward,
    /// From the last key back.
    Reverse,
    /// The first `limit` entries whose key is at least `key`.
    From {
        /// Where to begin.
        key: &'a [u8],
        /// How many to visit at most.
        limit: u64,
    },
}

/// One moment of a store.
pub trait View {
    /// Appends the value of `key` to `out`; false, and nothing appended, if there is none.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Appends the values of `keys` to `values`, in their order, and to `ends` where each of them
    /// ends; `None` for a key that is not there.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        values: &mut Vec<u8>,
        ends: &mut Vec<Option<usize>>,
    ) -> Result<()> {
        for key in keys {
            let found = self.get(key, values)?;
            ends.push(found.then_some(values.len()));
        }
        Ok(())
    }

    /// Shows key and value of each entry of `walk` to `visit`; how many there were.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn scan(&mut self, walk: Walk<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<u64>;
}

/// A store of one ordered map from bytes to bytes. Shared by threads.
pub trait Engine: Sized + Send + Sync + 'static {
    /// How reports call it.
    const NAME: &'static str;
    /// Whether the loss of a write that was acknowledged as `Commit::Buffered` after the process
    /// was killed is an error of the engine (E1), and not just its way.
    const BUFFERED_SURVIVES_KILL: bool;
    /// Whether `View::scan` can walk back.
    const SCANS_BACK: Offered = Offered::Yes;
    /// Settings to try of its knob between writing, reading and space; none if it has no such knob.
    const TRADES: &'static [f64] = &[];
    /// Whether it can keep values apart from their keys: in a value log, in blob files.
    const VALUES_APART: Offered = Offered::No;
    /// What `view` returns; used by the thread that took it.
    type View<'a>: View
    where
        Self: 'a;

    /// Opens the store in `dir`, or creates it.
    ///
    /// # Errors
    /// Whatever the engine reports. So do all the others.
    fn open(dir: &Path, memory: Memory) -> Result<Self>;

    /// Creates a store in `dir` with that setting of its knob: one of `TRADES`.
    ///
    /// # Errors
    /// If it has no knob; or whatever the engine reports.
    fn open_at(_dir: &Path, _memory: Memory, setting: f64) -> Result<Self> {
        wrong(format!("{} has nothing that could be set to {setting}", Self::NAME))
    }

    /// Creates a store in `dir` that keeps values of `from` bytes and more apart from their keys.
    ///
    /// # Errors
    /// If it cannot (`VALUES_APART`); or whatever the engine reports.
    fn open_apart(_dir: &Path, _memory: Memory, from: u32) -> Result<Self> {
        wrong(format!("{} keeps no values of {from} bytes apart", Self::NAME))
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()>;

    /// Writes all entries or, if it fails, none.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()>;

    /// Removes one entry.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn delete(&self, key: &[u8], commit: Commit) -> Result<()>;

    /// Removes all keys from `from` (included) to `to` (excluded) in one operation.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn delete_range(&self, _from: &[u8], _to: &[u8], _commit: Commit) -> Result<Offered> {
        Ok(Offered::No)
    }

    /// Appends the newest value of `key` to `out`; false if there is none.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// This moment.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn view(&self) -> Result<Self::View<'_>>;

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn sync(&self) -> Result<()>;

    /// Moves what the engine holds back in memory to its final place, and waits for it.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn flush(&self) -> Result<Offered> {
        Ok(Offered::No)
    }

    /// Gives dead space back: full compaction, vacuum or what the engine calls it.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn compact(&self) -> Result<Offered> {
        Ok(Offered::No)
    }

    /// What the engine counts itself and is worth a look: name and figure.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Closes the store in order.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn close(self) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_its_unit() {
        assert_eq!("default".parse(), Ok(Memory::EngineDefault));
        assert_eq!("4096".parse(), Ok(Memory::Bytes(4096)));
        assert_eq!("256MiB".parse(), Ok(Memory::RULE));
        assert_eq!("1 GiB".parse(), Ok(Memory::Bytes(1 << 30)));
        for text in ["", "MiB", "12MB", "-1", "99999999999GiB"] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
        assert_eq!(Memory::RULE.to_string().parse(), Ok(Memory::RULE));
    }
}
