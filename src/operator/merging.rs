//! Calling the merge operator of one keyspace. Whatever it does, it comes back as a result.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stuck::StuckKeys;
use super::{MergeOperator, Operators};
use crate::base::{Error, Operands, Result, contained};

/// How a keyspace merges.
pub struct Merging {
    operator: Operator,
    limits: MergeLimits,
    /// The keyspace's directory, for messages.
    dir: PathBuf,
    stuck: StuckKeys,
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeLimits {
    /// The longest value there may be.
    pub value_len: usize,
    /// A key whose operands cannot be merged takes no more of them when they are above this size.
    pub stuck_size: usize,
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
        limits: MergeLimits,
        dir: &Path,
    ) -> Merging {
        let operator = match name {
            None => Operator::None,
            Some(name) => match operators.find(name) {
                Some(operator) => Operator::Known(name.to_owned(), Arc::clone(operator)),
                None => Operator::Missing(name.to_owned()),
            },
        };
        Merging { operator, limits, dir: dir.to_owned(), stuck: StuckKeys::default() }
    }

    /// Whether the keyspace's options name an operator.
    #[must_use]
    pub fn has_operator(&self) -> bool {
        !matches!(self.operator, Operator::None)
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

    /// Whether nothing is to be merged into `key`, unless it can be read by now.
    #[inline]
    #[must_use]
    pub fn is_stuck(&self, key: &[u8]) -> bool {
        self.stuck.has(key)
    }

    /// Says that `key` can be read.
    #[cold]
    pub fn note_read(&self, key: &[u8]) {
        self.stuck.remove(key);
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
    /// is not looked at. Notes whether the key takes more operands.
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
        let made = self.value_of_version(key, existing, operands);
        if let Err(Error::MergeFailed { .. }) = &made {
            self.note_failed(key, operands);
        }
        made
    }

    /// As [`Merging::value`], of what `key` was: that says nothing of what it is, and so nothing is
    /// noted.
    ///
    /// # Errors
    /// As [`Merging::value`].
    pub fn value_of_version(
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
            let merged = merged.and_then(|merged| self.check_len(merged));
            let failed = |why| Error::MergeFailed { operator: name.to_owned(), why };
            value = Some(merged.map_err(failed)?);
        }
        Ok(value.unwrap_or_default()) // There is an operand.
    }

    fn check_len(&self, merged: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
        let (len, most) = (merged.len(), self.limits.value_len);
        match len > most {
            false => Ok(merged),
            true => Err(format!("a value of {len} bytes: at most {most} are allowed")),
        }
    }

    #[cold]
    fn note_failed(&self, key: &[u8], operands: &Operands<'_>) {
        match operands.size() > self.limits.stuck_size {
            true => self.stuck.add(key),
            false => self.stuck.remove(key),
        }
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
                Ok(bytes) if bytes.len() <= self.limits.value_len => combined = bytes,
                _ => return as_they_are(),
            }
        }
        Operands::single(operands.base, &combined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::MergeBase;
    use crate::operator::MergeError;

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
        let limits = MergeLimits { value_len: 8, stuck_size: 16 };
        Merging::new(name, &operators, limits, Path::new("/keyspace"))
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

    /// Fails with an error that panics when it is shown.
    struct Rude;

    #[derive(Debug)]
    struct Unspeakable;

    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("no word")
        }
    }

    impl std::error::Error for Unspeakable {}

    impl MergeOperator for Rude {
        fn merge(
            &self,
            _key: &[u8],
            _existing: Option<Vec<u8>>,
            _operand: &[u8],
        ) -> std::result::Result<Vec<u8>, MergeError> {
            Err(Box::new(Unspeakable))
        }
    }

    #[test]
    fn an_error_that_panics_when_it_is_shown_is_an_error() {
        let mut operators = Operators::builtin();
        operators.add("rude", Arc::new(Rude));
        let limits = MergeLimits { value_len: 8, stuck_size: 16 };
        let rude = Merging::new(Some("rude"), &operators, limits, Path::new("/keyspace"));
        let error = value(&rude, &[b"a"]).unwrap_err().to_string();
        assert!(error.contains("it panicked: no word"), "{error}");
    }

    #[test]
    fn a_key_with_many_operands_that_fail_is_noted_until_it_can_be_read() {
        let picky = merging(Some("picky"));
        assert!(value(&picky, &[b"a", b"panic"]).is_err() && !picky.is_stuck(b"k"), "few");
        assert!(value(&picky, &[b"1234567890", b"panic"]).is_err());
        assert!(picky.is_stuck(b"k") && !picky.is_stuck(b"l"));
        assert!(value(&picky, &[b"a", b"panic"]).is_err() && !picky.is_stuck(b"k"), "others");
        assert!(value(&picky, &[b"1234567890", b"panic"]).is_err() && picky.is_stuck(b"k"));
        let past = |operands: &[&[u8]]| {
            let bytes = bytes(operands);
            picky.value_of_version(b"k", None, &picky.decode(&bytes).unwrap())
        };
        assert!(past(&[b"a", b"panic"]).is_err() && past(&[b"a"]).is_ok());
        assert!(picky.is_stuck(b"k"), "what it was says nothing of what it is");
        picky.note_read(b"k");
        assert!(past(&[b"1234567890", b"panic"]).is_err() && !picky.is_stuck(b"k"));
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
