//! The extractors that need no code, by names that say what they do: so that programs without any,
//! and bindings, can use them.
//!
//! | name | index keys |
//! |---|---|
//! | `value` | the value |
//! | `value_prefix:N` | the first N bytes of the value, N from 1 to 65,535; shorter ones whole |
//! | `field:SEPARATOR:N` | of the value, parted at each separator, part N, counted from 1 |
//!
//! A separator is any text but the empty one; `\t` in it is a tab. A value with fewer parts has no
//! index key.

use std::sync::Arc;

use super::{ExtractError, IndexExtractor, IndexKeys};

const VALUE: &str = "value";
const PREFIX: &str = "value_prefix:";
const FIELD: &str = "field:";

/// Whether nobody is to register an extractor of this name.
pub(super) fn is_reserved(name: &str) -> bool {
    name == VALUE || name.starts_with(PREFIX) || name.starts_with(FIELD)
}

/// The built-in extractor of this name, if there is one.
pub(super) fn find(name: &str) -> Option<Arc<dyn IndexExtractor>> {
    if name == VALUE {
        return Some(Arc::new(Builtin::Value));
    }
    if let Some(len) = name.strip_prefix(PREFIX) {
        let len = len.parse::<u16>().ok().filter(|len| *len > 0)?;
        return Some(Arc::new(Builtin::Prefix(usize::from(len))));
    }
    let (separator, number) = name.strip_prefix(FIELD)?.rsplit_once(':')?;
    let separator = separator.replace("\\t", "\t").into_bytes();
    let number = number.parse::<u32>().ok()?;
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    (!separator.is_empty()).then(|| Arc::new(Builtin::Field { separator, index }) as Arc<_>)
}

enum Builtin {
    Value,
    Prefix(usize),
    Field { separator: Vec<u8>, index: usize },
}

impl IndexExtractor for Builtin {
    fn extract(&self, _key: &[u8], value: &[u8], keys: &mut IndexKeys) -> Result<(), ExtractError> {
        match self {
            Builtin::Value => keys.push(value),
            Builtin::Prefix(len) => keys.push(&value[..value.len().min(*len)]),
            Builtin::Field { separator, index } => {
                if let Some(field) = field_of(value, separator, *index) {
                    keys.push(field);
                }
            }
        }
        Ok(())
    }
}

/// A part of a value.
fn field_of<'v>(value: &'v [u8], separator: &[u8], index: usize) -> Option<&'v [u8]> {
    let find = |bytes: &[u8]| bytes.windows(separator.len()).position(|at| at == separator);
    let mut rest = value;
    for _ in 0..index {
        rest = &rest[find(rest)? + separator.len()..];
    }
    Some(&rest[..find(rest).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str, value: &str) -> Option<Vec<String>> {
        let mut keys = IndexKeys::default();
        find(name)?.extract(b"k", value.as_bytes(), &mut keys).unwrap();
        Some(keys.keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect())
    }

    #[test]
    fn names_say_what_is_extracted() {
        let found = |name, value| keys(name, value).unwrap();
        assert_eq!(found("value", "ab"), ["ab"]);
        assert_eq!(found("value_prefix:3", "abcd"), ["abc"]);
        assert_eq!(found("value_prefix:3", "ab"), ["ab"]);
        assert_eq!(found("field:,:1", "a,b,,c"), ["a"]);
        assert_eq!(found("field:,:3", "a,b,,c"), [""]);
        assert_eq!(found("field:,:4", "a,b,,c"), ["c"]);
        assert_eq!(found("field:,:5", "a,b,,c"), [] as [&str; 0]);
        assert_eq!(found("field:::2", "a:b"), ["b"], "the separator may be a colon");
        assert_eq!(found("field:\\t:2", "a\tb"), ["b"]);
        assert_eq!(found("field:--:2", "a--b-c--d"), ["b-c"]);
    }

    #[test]
    fn what_is_no_name_of_one_is_none() {
        for name in ["values", "value_prefix:0", "value_prefix:x", "field:,:0", "field::1", "field"]
        {
            assert_eq!(keys(name, "a"), None, "{name}");
        }
        assert!(is_reserved("field:x") && !is_reserved("fields"));
    }
}
