//! Calling the merge operator of one keyspace. Whatever it does, it comes back as a result.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MergeError, MergeOperator, Operators};
use crate::base::{Error, Operands, Result};

/// How a keyspace merges.
pub struct Merging {
    operator: Operator,
    /// The longest value there may be.
    value_len_max: usize,
    /// The keyspace's directory, for messages.
    dir: PathBuf,
}

enum Operator {
    /// The keyspace's options name none.
    None,
    /// The one that they name is not registered.
    Missing(String),
    Known(String, Arc<dyn MergeOperator>),
}

impl fmt::Debug for Merging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, is_known) = match &self.operator {
            Operator::None => (None, true),
            Operator::Missing(name) => (Some(name), false),
            Operator::Known(name, _) => (Some(name), true),
        };
        f.debug_struct("Merging").field("operator", &name).field("is_known", &is_known).finish()
    }
}

impl Merging {
    /// With the operator of this name, if one is named and registered.
    #[must_use]
    pub fn new(
        name: Option<&str>,
        operators: &Operators,
        value_len_max: usize,
        dir: &Path,
    ) -> Merging {
        let operator = match name {
            None => Operator::None,
            Some(name) => match operators.find(name) {
                Some(operator) => Operator::Known(name.to_owned(), Arc::clone(operator)),
                None => Operator::Missing(name.to_owned()),
            },
        };
        Merging { operator, value_len_max, dir: dir.to_owned() }
    }

    /// Whether `operand` may be merged into a key.
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace has no operator, or that refuses it;
    /// `MergeOperatorMissing`.
    pub fn check(&self, operand: &[u8]) -> Result<()> {
        match &self.operator {
            Operator::None => Err(Error::invalid("the keyspace has no merge operator")),
            Operator::Missing(name) => Err(Error::MergeOperatorMissing { name: name.clone() }),
            Operator::Known(name, operator) => contained(|| operator.check(operand))
                .map_err(|why| Error::invalid(format!("an operand of {name:?}: {why}"))),
        }
    }

    /// The operands in the bytes of an entry.
    ///
    /// # Errors
    /// `Corruption`: the entry's bytes verified, so that no file can be named.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Operands<'a>> {
        Operands::decode(bytes).ok_or_else(|| self.malformed())
    }

    /// What is said of an entry that holds operands that are none.
    #[must_use]
    pub fn malformed(&self) -> Error {
        Error::corruption(&self.dir, 0, "an entry holds operands that are none")
    }

    /// The value of `key`: `operands` merged into `existing`, one after the other. Their own base
    /// is not looked at.
    ///
    /// # Errors
    /// `MergeOperatorMissing`, `MergeFailed`; `Corruption` when no operator is named, so that there
    /// can be no operands.
    pub fn value(
        &self,
        key: &[u8],
        existing: Option<Vec<u8>>,
        operands: &Operands<'_>,
    ) -> Result<Vec<u8>> {
        let (name, operator) = match &self.operator {
            Operator::None => {
                let what = "an entry holds operands in a keyspace without a merge operator";
                return Err(Error::corruption(&self.dir, 0, what));
            }
            Operator::Missing(name) => {
                return Err(Error::MergeOperatorMissing { name: name.clone() });
            }
            Operator::Known(name, operator) => (name, operator),
        };
        let mut value = existing;
        for operand in operands.iter() {
            let merged = contained(|| operator.merge(key, value.take(), operand));
            let merged = merged.and_then(|merged| match merged.len() > self.value_len_max {
                false => Ok(merged),
                true => Err(format!(
                    "a value of {} bytes: at most {} are allowed",
                    merged.len(),
                    self.value_len_max
                )
                .into()),
            });
            let failed = |why: MergeError| Error::MergeFailed {
                operator: name.clone(),
                why: why.to_string(),
            };
            value = Some(merged.map_err(failed)?);
        }
        Ok(value.unwrap_or_default()) // There is an operand.
    }

    /// The same operands on the same base, as one; as they are, if the operator does not make one
    /// of them (O2). Linear in their bytes, if the operator is.
    #[must_use]
    pub fn combined(&self, key: &[u8], operands: &Operands<'_>) -> Vec<u8> {
        let as_they_are = || operands.on(operands.base);
        let Operator::Known(_, operator) = &self.operator else { return as_they_are() };
        let mut list = operands.iter();
        let mut combined = list.next().unwrap_or_default().to_vec();
        for newer in list {
            let older = std::mem::take(&mut combined);
            match contained(|| operator.combine(key, older, newer)) {
                Ok(bytes) if bytes.len() <= self.value_len_max => combined = bytes,
                _ => return as_they_are(),
            }
        }
        Operands::single(operands.base, &combined)
    }
}

/// What `call` returns; an error if it panics.
fn contained<T>(
    call: impl FnOnce() -> std::result::Result<T, MergeError>,
) -> std::result::Result<T, MergeError> {
    // The operator is behind a shared reference: what it leaves half done is its own.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(described(&*panic).into()))
}

fn described(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::MergeBase;

    /// Appends; panics at "panic".
    struct Picky;

    impl MergeOperator for Picky {
        fn merge(
            &self,
            _key: &[u8],
            existing: Option<Vec<u8>>,
            operand: &[u8],
        ) -> std::result::Result<Vec<u8>, MergeError> {
            assert!(operand != b"panic", "not this one");
            Ok([existing.unwrap_or_default(), operand.to_vec()].concat())
        }
    }

    fn merging(name: Option<&str>) -> Merging {
        let mut operators = Operators::builtin();
        operators.add("picky", Arc::new(Picky));
        operators.validate().unwrap();
        Merging::new(name, &operators, 8, Path::new("/keyspace"))
    }

    fn bytes(operands: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Operands::single(MergeBase::Value(b"x"), operands[0]);
        operands[1..].iter().for_each(|operand| Operands::push(&mut bytes, operand));
        bytes
    }

    fn value(merging: &Merging, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let bytes = bytes(operands);
        merging.value(b"k", Some(b"x".to_vec()), &merging.decode(&bytes)?)
    }

    fn combined(merging: &Merging, operands: &[&[u8]]) -> Vec<u8> {
        let bytes = bytes(operands);
        merging.combined(b"k", &merging.decode(&bytes).unwrap())
    }

    #[test]
    fn a_panic_is_an_error_and_operands_stay_as_they_are() {
        let picky = merging(Some("picky"));
        assert_eq!(value(&picky, &[b"a", b"b"]).unwrap(), b"xab");
        assert_eq!(combined(&picky, &[b"a", b"b"]), bytes(&[b"ab"]));
        let Err(Error::MergeFailed { operator, why }) = value(&picky, &[b"a", b"panic"]) else {
            panic!("it panics");
        };
        assert_eq!((operator.as_str(), why.as_str()), ("picky", "it panicked: not this one"));
        assert_eq!(combined(&picky, &[b"a", b"panic"]), bytes(&[b"a", b"panic"]));
    }

    #[test]
    fn a_value_over_the_limit_is_an_error() {
        let picky = merging(Some("picky"));
        let Err(Error::MergeFailed { why, .. }) = value(&picky, &[b"1234", b"56789"]) else {
            panic!("nine bytes, and an x");
        };
        assert_eq!(why, "a value of 10 bytes: at most 8 are allowed");
        assert_eq!(combined(&picky, &[b"12345", b"6789"]), bytes(&[b"12345", b"6789"]));
    }

    #[test]
    fn without_an_operator_nothing_is_merged() {
        let missing = merging(Some("of another program"));
        let named = |result: Result<Vec<u8>>| match result {
            Err(Error::MergeOperatorMissing { name }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(named(value(&missing, &[b"a"])), "of another program");
        assert_eq!(named(missing.check(b"a").map(|()| Vec::new())), "of another program");
        assert_eq!(combined(&missing, &[b"a", b"b"]), bytes(&[b"a", b"b"]));
        let none = merging(None);
        assert!(matches!(none.check(b"a"), Err(Error::InvalidArgument { .. })));
        assert!(matches!(value(&none, &[b"a"]), Err(Error::Corruption { .. })));
        assert!(matches!(none.decode(b"\x09"), Err(Error::Corruption { .. })));
    }
}
