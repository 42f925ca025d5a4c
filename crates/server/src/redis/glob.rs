//! Patterns as of `KEYS` and `SCAN`: `*`, `?`, `[a-c]`, `[^a]`, and `\` in front of any of them.
//!
//! It goes back to the last `*` alone, which is enough, and counts its steps: a pattern costs no
//! more than what is allowed to it, whoever has thought it out.

/// Steps that are left.
#[derive(Debug)]
pub struct Steps(pub u64);

impl Steps {
    /// Takes one, if there is one.
    pub fn take(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// Whether a text is as the pattern says; `None` when the steps are over.
pub fn matches(pattern: &[u8], text: &[u8], steps: &mut Steps) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if !steps.take() {
            return None;
        }
        if pattern.get(p) == Some(&b'*') {
            while pattern.get(p) == Some(&b'*') {
                p += 1;
                if !steps.take() {
                    return None;
                }
            }
            if p == pattern.len() {
                return Some(true);
            }
            star = Some((p, t));
            continue;
        }
        let fits = match (pattern.get(p), text.get(t)) {
            (None, None) => return Some(true),
            (Some(_), None) => return Some(false), // To begin later leaves less still.
            (Some(_), Some(byte)) => one(&pattern[p..], *byte, steps)?,
            (None, Some(_)) => None,
        };
        match (fits, star) {
            (Some(len), _) => (p, t) = (p + len, t + 1),
            (None, Some((behind, from))) if from < text.len() => {
                (p, t) = (behind, from + 1);
                star = Some((behind, from + 1));
            }
            (None, _) => return Some(false),
        }
    }
}

/// How long the part of the pattern is that stands for this byte, if it does; `None` when the steps
/// are over.
fn one(pattern: &[u8], byte: u8, steps: &mut Steps) -> Option<Option<usize>> {
    Some(match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', ..] => return class(pattern, byte, steps),
        [other, ..] => (*other == byte).then_some(1),
        [] => None,
    })
}

/// The same for a class. One that does not end reaches to the end of the pattern.
fn class(pattern: &[u8], byte: u8, steps: &mut Steps) -> Option<Option<usize>> {
    let mut at = 1;
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut is_in = false;
    loop {
        if !steps.take() {
            return None;
        }
        match pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                is_in |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [other, ..] => {
                is_in |= other == byte;
                at += 1;
            }
        }
    }
    Some((is_in != is_negated).then_some(at))
}

/// What every text begins with that fits the pattern.
pub fn prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [] | [b'*' | b'?' | b'[', ..] => return prefix,
            [b'\\', escaped, behind @ ..] => {
                prefix.push(*escaped);
                rest = behind;
            }
            [byte, behind @ ..] => {
                prefix.push(*byte);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), &mut Steps(1_000_000)).unwrap()
    }

    #[test]
    fn patterns_fit_as_in_redis() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**a*", "bbba", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("a\\", "a\\", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxaxxcxxbxx", false),
            ("user:*:name", "user:1:2:name", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_evil_pattern_runs_out_of_steps_and_no_further() {
        let (pattern, text) = ("*a".repeat(50) + "b", "a".repeat(10_000));
        let mut steps = Steps(100_000);
        let found = matches(pattern.as_bytes(), text.as_bytes(), &mut steps);
        assert!(found.is_none() || found == Some(false));
        assert_eq!(matches(b"*b", b"aaaaaaaaaaa", &mut Steps(5)), None);
        // However long a part of the pattern is that stands for one byte, or for none.
        for long in [b"[".to_vec(), b"*[".to_vec(), b"*".to_vec()] {
            let pattern = [&long[..], &[b'*'.max(long[0]); 5000], b"b"].concat();
            assert_eq!(matches(&pattern, b"aaaaaaaa", &mut Steps(1000)), None);
        }
    }

    #[test]
    fn a_prefix_is_what_all_begin_with() {
        assert_eq!(prefix(b"user:*"), b"user:");
        assert_eq!(prefix(b"a\\*b?"), b"a*b");
        assert_eq!(prefix(b"*"), b"");
    }
}
