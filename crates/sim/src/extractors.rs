//! Extractors of simulated indexes: those that are registered, and the oracle's own code for all of
//! them, which shares nothing with that of the database.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use lithedb::{ExtractError, IndexKeys};

/// The name of the one that is registered: each of the first bytes of a value.
pub const PIECES: &str = "pieces";
/// So many bytes of a value have an index key each.
const PIECE_COUNT: usize = 3;
/// Names that indexes are created with.
pub const EXTRACTORS: [&str; 8] = [
    "value",
    "value_prefix:1",
    "value_prefix:3",
    "value_prefix:40",
    "field:A:1",
    "field:A:2",
    "field:\\t:2",
    PIECES,
];
/// Those under which most values are by themselves, or not at all.
pub const SPARSE_EXTRACTORS: [&str; 4] = ["field:A:2", "field:\\t:2", "value_prefix:40", "value"];

/// A mistake that is planted in what is registered as [`PIECES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// Some values lack an index key, always the same.
    Lacking,
    /// Now and then a value has none: what is put then lacks its entries, and what is deleted or
    /// overwritten leaves them behind.
    Forgetting,
}

/// Values of which one lacks an index key.
const LACKING_EVERY: usize = 16;
/// Calls of which one answers nothing.
const FORGETTING_EVERY: u64 = 29;

/// What is registered as [`PIECES`], with a mistake.
pub fn pieces(
    planted: Planted,
) -> impl Fn(&[u8], &[u8], &mut IndexKeys) -> Result<(), ExtractError> + Send + Sync + 'static {
    let calls = AtomicU64::new(0);
    move |_key, value, keys| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        let len = match planted {
            Planted::Nothing => PIECE_COUNT,
            Planted::Lacking if value.len() % LACKING_EVERY == 3 => PIECE_COUNT - 1,
            Planted::Forgetting if number % FORGETTING_EVERY == 3 => 0,
            Planted::Lacking | Planted::Forgetting => PIECE_COUNT,
        };
        value[..value.len().min(len)].chunks(1).for_each(|piece| keys.push(piece));
        Ok(())
    }
}

/// The index keys that the extractor of this name has for a value.
///
/// # Panics
/// For a name that no index here has.
#[must_use]
pub fn keys_of(extractor: &str, value: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut parts = extractor.split(':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(PIECES), ..) => value.iter().take(PIECE_COUNT).map(|byte| vec![*byte]).collect(),
        (Some("value"), ..) => BTreeSet::from([value.to_vec()]),
        (Some("value_prefix"), Some(len), _) => {
            let len = len.parse().expect("names here have numbers");
            BTreeSet::from([value.iter().take(len).copied().collect()])
        }
        (Some("field"), Some(separator), Some(number)) => {
            let separator = if separator == "\\t" { b'\t' } else { separator.as_bytes()[0] };
            let number: usize = number.parse().expect("names here have numbers");
            let fields = value.split(|byte| *byte == separator);
            fields.skip(number - 1).take(1).map(<[u8]>::to_vec).collect()
        }
        _ => panic!("no index has the extractor {extractor:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_keys() {
        let keys = |name, value: &[u8]| keys_of(name, value).into_iter().collect::<Vec<_>>();
        assert_eq!(keys("value", b"abc"), [b"abc"]);
        assert_eq!(keys("value_prefix:1", b""), [b""]);
        assert_eq!(keys("value_prefix:3", b"abcd"), [b"abc"]);
        assert_eq!(keys("field:A:1", b"xAyA"), [b"x"]);
        assert_eq!(keys("field:A:2", b"xAyA"), [b"y"]);
        assert!(keys("field:\\t:2", b"xAyA").is_empty());
        assert_eq!(keys("field:\\t:2", b"\t"), [b""]);
        assert_eq!(keys(PIECES, b"abac"), [b"a", b"b"]);
        assert!(EXTRACTORS.iter().all(|name| !keys(name, b"A\tA\t").is_empty()));
    }
}
