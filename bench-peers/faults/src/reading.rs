//! Everything that is in a store, read back and judged: each key by itself, then all entries from
//! the front and from the back.

use crate::driven::{Driven, Reply};
use crate::expected::{Digest, Expected, Judgement};
use lithe_bench::Result;
use peer::driven::{from_hex, to_hex};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What reading has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// Answers that may be.
    pub right: u64,
    /// Answers, given without an error, that may not be.
    pub wrong: u64,
    /// Entries that must be there and were said, without an error, not to be.
    pub missing: u64,
    /// Answers that were errors.
    pub refused: u64,
    /// The first of what was not right: of what was served without an error, if there was any.
    pub what: String,
    /// How the program ended meanwhile, if it did.
    pub ended: Option<String>,
    /// Whether an answer did not come in time.
    pub is_late: bool,
}

impl Reading {
    fn add(&mut self, judgement: Judgement, what: impl FnOnce() -> String) {
        let is_first = self.wrong + self.missing == 0;
        match judgement {
            Judgement::Right => {
                self.right += 1;
                return;
            }
            Judgement::Wrong => self.wrong += 1,
            Judgement::Missing => self.missing += 1,
        }
        if is_first {
            self.what = what();
        }
    }

    fn refuse(&mut self, what: &str) {
        self.refused += 1;
        if self.what.is_empty() {
            self.what = what.to_owned();
        }
    }

    /// Notes how a command was answered; whether reading goes on.
    fn end_with(&mut self, reply: Reply) -> bool {
        match reply {
            Reply::Done => true,
            Reply::Refused(text) => {
                self.refuse(&text);
                true
            }
            Reply::Ended(how) => {
                self.ended = Some(how);
                false
            }
            Reply::Late => {
                self.is_late = true;
                false
            }
        }
    }
}

/// Reads everything of the store that is open.
///
/// # Errors
/// If the program says something that is no answer.
pub fn read_all(driven: &mut Driven, expected: &Expected) -> Result<Reading> {
    let mut reading = Reading::default();
    let keys: Vec<&[u8]> = expected.keys().collect();
    if !get_all(driven, expected, &keys, &mut reading)? {
        return Ok(reading);
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        if !scan(driven, expected, direction, &mut reading)? {
            break;
        }
    }
    Ok(reading)
}

/// Reads these keys.
///
/// # Errors
/// If the program says something that is no answer.
pub fn read_keys(driven: &mut Driven, expected: &Expected, keys: &[&[u8]]) -> Result<Reading> {
    let mut reading = Reading::default();
    get_all(driven, expected, keys, &mut reading)?;
    Ok(reading)
}

fn get_all(
    driven: &mut Driven,
    expected: &Expected,
    keys: &[&[u8]],
    reading: &mut Reading,
) -> Result<bool> {
    let mut command = format!("gets {}", keys.len());
    for key in keys {
        let _ = write!(command, "\n{}", to_hex(key)); // A string takes everything.
    }
    let (mut next, mut odd) = (keys.iter(), None);
    let reply = driven.ask(&command, |line| {
        let Some(key) = next.next() else {
            odd = Some(line.to_owned());
            return;
        };
        if let Some(text) = line.strip_prefix("e ") {
            return reading.refuse(text);
        }
        match found_of(line) {
            Some(found) => reading
                .add(expected.judge(key, found), || format!("get {}: {found:?}", to_hex(key))),
            None => odd = Some(line.to_owned()),
        }
    });
    if let Some(line) = odd {
        return Err(format!("{line:?} is no answer to a get").into());
    }
    if reply == Reply::Done && next.len() > 0 {
        return Err(format!("{} of {} gets were not answered", next.len(), keys.len()).into());
    }
    Ok(reading.end_with(reply))
}

/// `v LEN DIGEST`, or `n` for nothing.
fn found_of(line: &str) -> Option<Option<Digest>> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["n"] => Some(None),
        ["v", len, hash] => digest_of(len, hash).map(Some),
        _ => None,
    }
}

fn digest_of(len: &str, hash: &str) -> Option<Digest> {
    Some(Digest { len: len.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

fn scan(
    driven: &mut Driven,
    expected: &Expected,
    direction: Direction,
    reading: &mut Reading,
) -> Result<bool> {
    let command = match direction {
        Direction::Forward => "scan forward",
        Direction::Reverse => "scan reverse",
    };
    let mut seen = BTreeSet::new();
    let (mut last, mut odd) = (None::<Vec<u8>>, None);
    let reply = driven.ask(command, |line| {
        let Some((key, found)) = entry_of(line) else {
            odd = Some(line.to_owned());
            return;
        };
        let is_in_order = last.as_ref().is_none_or(|last| match direction {
            Direction::Forward => *last < key,
            Direction::Reverse => *last > key,
        });
        let judged = match is_in_order {
            true => expected.judge(&key, Some(found)),
            false => Judgement::Wrong,
        };
        reading.add(judged, || format!("{command}: {}: {found:?}", to_hex(&key)));
        seen.insert(key.clone());
        last = Some(key);
    });
    if let Some(line) = odd {
        return Err(format!("{line:?} is no answer to a scan").into());
    }
    // Of one that ended with an error, nobody has said that there is no more.
    if reply == Reply::Done {
        for key in expected.living().filter(|key| !seen.contains(*key)) {
            reading.add(Judgement::Missing, || format!("{command}: {} is not there", to_hex(key)));
        }
    }
    Ok(reading.end_with(reply))
}

/// `p KEY LEN DIGEST`.
fn entry_of(line: &str) -> Option<(Vec<u8>, Digest)> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["p", key, len, hash] => Some((from_hex(key).ok()?, digest_of(len, hash)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let digest = Digest { len: 11, hash: 0xAB };
        assert_eq!(found_of("n"), Some(None));
        assert_eq!(found_of("v 11 00000000000000ab"), Some(Some(digest)));
        assert_eq!(found_of("v 11"), None);
        assert_eq!(entry_of("p 6b 11 00000000000000ab"), Some((b"k".to_vec(), digest)));
        assert_eq!(entry_of("p  11 00000000000000ab"), Some((Vec::new(), digest)));
        assert_eq!(entry_of("p 6 11 00000000000000ab"), None);
    }

    #[test]
    fn what_was_served_without_an_error_is_told_before_errors() {
        let mut reading = Reading::default();
        reading.refuse("bad checksum");
        assert_eq!(reading.what, "bad checksum");
        reading.add(Judgement::Right, || "right".into());
        reading.add(Judgement::Missing, || "first".into());
        reading.add(Judgement::Wrong, || "second".into());
        assert!(!reading.end_with(Reply::Late) && reading.is_late);
        assert_eq!(reading.what, "first");
        let counts = (reading.right, reading.wrong, reading.missing, reading.refused);
        assert_eq!(counts, (1, 1, 1, 1));
    }
}
