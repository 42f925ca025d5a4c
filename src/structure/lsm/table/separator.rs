//! The key that parts two neighbouring blocks: short, so that indexes are small.

/// Puts a key into `out` that is not below `last`, and below `first`; shorter than `last` where
/// that is possible. For instance `apq` between `apple` and `apricot`.
///
/// # Panics
/// When `last` is not below `first`.
pub(super) fn separate(last: &[u8], first: &[u8], out: &mut Vec<u8>) {
    assert!(last < first, "U1: keys ascend strictly");
    out.clear();
    let shared = last.iter().zip(first).take_while(|(a, b)| a == b).count();
    // Where they differ, `last` is smaller, or at its end: then nothing shorter is between them.
    let (Some(&ours), Some(&theirs)) = (last.get(shared), first.get(shared)) else {
        out.extend_from_slice(last);
        return;
    };
    if ours + 1 < theirs {
        out.extend_from_slice(&last[..shared]);
        out.push(ours + 1);
        return;
    }
    // With this byte as it is, anything above the rest of `last` will do: that up to its first
    // byte that can be raised.
    let rest = &last[shared + 1..];
    match rest.iter().position(|&byte| byte != u8::MAX) {
        Some(place) if place + 1 < rest.len() => {
            out.extend_from_slice(&last[..shared + 1 + place]);
            out.push(rest[place] + 1);
        }
        _ => out.extend_from_slice(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Entropy, SeededEntropy};

    #[test]
    fn a_separator_lies_between_and_is_short() {
        for (last, first, expected) in [
            (&b"apple"[..], &b"apricot"[..], &b"apq"[..]),
            (b"apple", b"apq", b"appm"),
            (b"abcdef", b"abd", b"abce"),
            (b"ab\xFF\xFFcd", b"ac", b"ab\xFF\xFFd"),
            (b"ab\xFF\xFF", b"ac", b"ab\xFF\xFF"),
            (b"", b"a", b""),
            (b"a", b"ab", b"a"),
            (b"a", b"c", b"b"),
            (b"a", b"b", b"a"),
        ] {
            let mut between = vec![9];
            separate(last, first, &mut between);
            assert_eq!(between, expected);
            assert!(last <= between.as_slice() && between.as_slice() < first);
        }
    }

    #[test]
    fn any_two_keys_are_parted() {
        let random = SeededEntropy::new(8);
        let draw = |end: u64| random.next_u64() % end;
        let key = || -> Vec<u8> {
            (0..draw(6)).map(|_| [0, 1, 2, 0xFE, 0xFF][draw(5) as usize]).collect()
        };
        for _ in 0..20_000 {
            let (a, b) = (key(), key());
            if a == b {
                continue;
            }
            let (last, first) = if a < b { (a, b) } else { (b, a) };
            let mut between = Vec::new();
            separate(&last, &first, &mut between);
            assert!(last <= between && between < first, "{last:?} {first:?} {between:?}");
            assert!(between.len() <= last.len(), "{last:?} {first:?} {between:?}");
        }
    }
}
