//! `--prefix`, `--from`, `--to`: the range of keys that commands like scan and count work on.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use lithedb::KeyRange;

use crate::failure::Failure;
use crate::notation::Notation;

/// A range of keys; the options can be combined.
#[derive(Args, Debug)]
pub struct RangeArgs {
    /// Only keys that start with this
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<OsString>,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,

    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,

    /// How the keys of these options are read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,
}

impl RangeArgs {
    /// The keys that fulfil every option; `None` when no key can.
    pub fn key_range(&self) -> Result<Option<KeyRange>, Failure> {
        let parse = |option: &Option<OsString>, name: &str| {
            let parsed = option.as_ref().map(|argument| self.key_format.parse(argument));
            parsed.transpose().map_err(|what| Failure::usage(format!("--{name}: {what}")))
        };
        let prefix = parse(&self.prefix, "prefix")?.map(|prefix| KeyRange::prefix(&prefix));
        let range = KeyRange {
            start: parse(&self.from, "from")?.map_or(Bound::Unbounded, Bound::Included),
            end: parse(&self.to, "to")?.map_or(Bound::Unbounded, Bound::Excluded),
        };
        Ok(intersection(range, prefix.unwrap_or_else(KeyRange::all)))
    }
}

/// The keys in both of two ranges that begin with an included and end with an excluded bound.
fn intersection(left: KeyRange, right: KeyRange) -> Option<KeyRange> {
    let start = match (left.start, right.start) {
        (Bound::Included(left), Bound::Included(right)) => Bound::Included(left.max(right)),
        (Bound::Unbounded, start) | (start, _) => start,
    };
    let end = match (left.end, right.end) {
        (Bound::Excluded(left), Bound::Excluded(right)) => Bound::Excluded(left.min(right)),
        (Bound::Unbounded, end) | (end, _) => end,
    };
    if let (Bound::Included(start), Bound::Excluded(end)) = (&start, &end)
        && start >= end
    {
        return None;
    }
    Some(KeyRange { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(prefix: &str, from: &str, to: &str) -> Option<KeyRange> {
        let option = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        let args = RangeArgs {
            prefix: option(prefix),
            from: option(from),
            to: option(to),
            key_format: Notation::Escaped,
        };
        args.key_range().unwrap()
    }

    #[test]
    fn options_narrow_each_other() {
        assert_eq!(range("", "", ""), Some(KeyRange::all()));
        assert_eq!(range("b", "", ""), Some(KeyRange::prefix(b"b")));
        let within = range("b", "a", "bm").unwrap();
        assert_eq!(within.start, Bound::Included(b"b".to_vec()));
        assert_eq!(within.end, Bound::Excluded(b"bm".to_vec()));
        let behind = range(r"\xFF", "a", "").unwrap();
        assert_eq!((behind.start, behind.end), (Bound::Included(vec![0xFF]), Bound::Unbounded));
    }

    #[test]
    fn what_no_key_fulfils_is_no_range() {
        assert_eq!(range("", "b", "a"), None);
        assert_eq!(range("", "b", "b"), None);
        assert_eq!(range("a", "b", ""), None);
    }
}
