//! The operators that are always registered.

use std::sync::{Arc, LazyLock};

use super::{MergeError, MergeOperator};

/// Bytes of a counter.
const COUNTER_SIZE: usize = size_of::<u64>();

/// Name and operator, each. Always the same ones, so that a copy of the list can be told from
/// others.
pub(super) fn all() -> [(&'static str, Arc<dyn MergeOperator>); 4] {
    static ALL: LazyLock<[(&str, Arc<dyn MergeOperator>); 4]> = LazyLock::new(|| {
        [
            ("append", Arc::new(Append)),
            ("counter", Arc::new(Counter)),
            ("max", Arc::new(Extreme::Max)),
            ("min", Arc::new(Extreme::Min)),
        ]
    });
    ALL.clone()
}

/// Adds little-endian numbers of 64 bits; wraps at 2^64, which is what `i64` and `u64` have in
/// common. A check would not be associative: `max + 1 - 1` fails or not by what is added first.
struct Counter;

impl MergeOperator for Counter {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        let count = existing.map_or(Ok(0), |existing| number(&existing))?;
        Ok(count.wrapping_add(number(operand)?).to_le_bytes().to_vec())
    }

    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        number(operand).map(drop)
    }
}

fn number(bytes: &[u8]) -> Result<u64, MergeError> {
    match bytes.try_into() {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => Err(format!("{} bytes: a counter has {COUNTER_SIZE}", bytes.len()).into()),
    }
}

/// Puts the bytes of the operand behind those of the value.
struct Append;

impl MergeOperator for Append {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        let mut value = existing.unwrap_or_default();
        value.extend_from_slice(operand);
        Ok(value)
    }
}

/// Keeps the smaller or the larger of the two, in the order of keys.
enum Extreme {
    Min,
    Max,
}

impl MergeOperator for Extreme {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        let Some(existing) = existing else { return Ok(operand.to_vec()) };
        let keeps = match self {
            Extreme::Min => existing.as_slice() <= operand,
            Extreme::Max => existing.as_slice() >= operand,
        };
        Ok(if keeps { existing } else { operand.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(name: &str, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let (_, operator) = all().into_iter().find(|(known, _)| *known == name).unwrap();
        let merge = |value, operand: &&[u8]| operator.merge(b"k", value, operand).map(Some);
        Ok(operands.iter().try_fold(None, merge)?.unwrap())
    }

    #[test]
    fn each_does_what_it_is_called() {
        let number = |number: i64| number.to_le_bytes();
        let sum = merged("counter", &[&number(5), &number(-7)]).unwrap();
        assert_eq!(sum, number(-2));
        let wrapped = merged("counter", &[&number(i64::MAX), &number(1)]).unwrap();
        assert_eq!(wrapped, number(i64::MIN));
        assert_eq!(merged("append", &[b"a", b"", b"bc"]).unwrap(), b"abc");
        assert_eq!(merged("min", &[b"b", b"ab", b"c"]).unwrap(), b"ab");
        assert_eq!(merged("max", &[b"b", b"ab", b"c"]).unwrap(), b"c");
        assert!(merged("counter", &[b"12"]).is_err());
    }
}
