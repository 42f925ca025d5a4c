//! Expiry: entries that are there until a moment, as if they were deleted then.
//!
//! Layout of what a composite entry holds that expires (little-endian):
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | form | 4 a value, 5 a pointer |
//! | 8 | until | milliseconds since 1970: from then on it is not there |
//! | | value | the rest; a pointer has 30 bytes |
//!
//! Moments are milliseconds since 1970, 1 at least; as stamps they end in the year 10889.

use std::time::{Duration, SystemTime};

use crate::base::{EntryKind, SeqNo, ValuePointer};

const VALUE: u8 = 4;
const POINTER: u8 = 5;
/// The last moment there is: what would expire later expires then.
pub const MOMENT_MAX: u64 = SeqNo::MAX.millis();

/// When an entry expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not.
    Never,
    /// From then on it is not there.
    At(SystemTime),
}

impl From<SystemTime> for Expiry {
    fn from(time: SystemTime) -> Expiry {
        Expiry::At(time)
    }
}

impl From<Option<SystemTime>> for Expiry {
    fn from(time: Option<SystemTime>) -> Expiry {
        time.map_or(Expiry::Never, Expiry::At)
    }
}

impl Expiry {
    /// The expiry at this moment, or none.
    pub(crate) fn from_moment(until: Option<u64>) -> Expiry {
        let at = |until| SystemTime::UNIX_EPOCH + Duration::from_millis(until);
        until.map_or(Expiry::Never, |until| Expiry::At(at(until)))
    }

    /// When it is; `None` for never.
    #[must_use]
    pub fn time(self) -> Option<SystemTime> {
        match self {
            Expiry::Never => None,
            Expiry::At(time) => Some(time),
        }
    }
}

/// How long something that is put is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is overwritten or deleted.
    Forever,
    /// Until this moment.
    Until(u64),
    /// So many milliseconds from the stamp of its commit on.
    For(u64),
}

impl From<Expiry> for Lifetime {
    /// Rounded down to milliseconds; what is before 1970 is 1970.
    fn from(expiry: Expiry) -> Lifetime {
        let Expiry::At(time) = expiry else { return Lifetime::Forever };
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Lifetime::Until(millis_of(since))
    }
}

impl From<Duration> for Lifetime {
    /// Rounded up to milliseconds: it is there at least so long.
    fn from(ttl: Duration) -> Lifetime {
        let rest = Duration::from_millis(1) - Duration::from_nanos(1);
        Lifetime::For(millis_of(ttl.saturating_add(rest)))
    }
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(MOMENT_MAX)
}

impl Lifetime {
    /// When it ends, of what the commit with this stamp puts.
    #[must_use]
    pub fn end(self, stamp: SeqNo) -> Option<u64> {
        self.end_from(stamp.millis())
    }

    /// When it ends, counted from this moment.
    #[must_use]
    pub fn end_from(self, moment: u64) -> Option<u64> {
        match self {
            Lifetime::Forever => None,
            Lifetime::Until(until) => Some(until.clamp(1, MOMENT_MAX)),
            Lifetime::For(millis) => Some(moment.saturating_add(millis).clamp(1, MOMENT_MAX)),
        }
    }

    /// The same, counted from this moment instead of a stamp.
    #[must_use]
    pub fn counted_from(self, moment: u64) -> Lifetime {
        self.end_from(moment).map_or(Lifetime::Forever, Lifetime::Until)
    }

    /// As a number for the log; `None` if it does not end.
    #[must_use]
    pub fn to_number(self) -> Option<u64> {
        match self {
            Lifetime::Forever => None,
            Lifetime::Until(until) => Some(until << 1),
            Lifetime::For(millis) => Some(millis << 1 | 1),
        }
    }

    /// The lifetime that this number says; `None` if it is none.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Lifetime> {
        let millis = number >> 1;
        let lifetime = match number & 1 {
            0 => Lifetime::Until(millis),
            _ => Lifetime::For(millis),
        };
        (millis <= MOMENT_MAX).then_some(lifetime)
    }
}

/// A value, or a pointer to one, that expires; borrowed from its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring<'a> {
    /// From then on it is not there.
    pub until: u64,
    /// `Value` or `Pointer`.
    pub kind: EntryKind,
    /// The value, or the pointer to it.
    pub value: &'a [u8],
}

impl<'a> Expiring<'a> {
    /// Bytes in front of the value.
    pub const HEAD_LEN: usize = 1 + size_of::<u64>();

    /// What these bytes hold; `None` if it is nothing that expires.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Expiring<'a>> {
        let (&form, rest) = bytes.split_first()?;
        let (&until, value) = rest.split_first_chunk()?;
        let kind = match form {
            VALUE => EntryKind::Value,
            POINTER if value.len() == ValuePointer::SIZE => EntryKind::Pointer,
            _ => return None,
        };
        let until = u64::from_le_bytes(until);
        (until > 0).then_some(Expiring { until, kind, value })
    }

    /// As bytes.
    ///
    /// # Panics
    /// When it is neither a value nor a pointer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let form = match self.kind {
            EntryKind::Value => VALUE,
            EntryKind::Pointer => POINTER,
            EntryKind::Tombstone | EntryKind::Composite => panic!("it does not expire"),
        };
        let mut bytes = Vec::with_capacity(Expiring::HEAD_LEN + self.value.len());
        bytes.push(form);
        bytes.extend_from_slice(&self.until.to_le_bytes());
        bytes.extend_from_slice(self.value);
        bytes
    }
}

/// How many entries expire, and when the first and the last of them do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpirySpan {
    /// How many there are; one at least.
    pub count: u32,
    /// When the first expires.
    pub first: u64,
    /// When the last does; not before the first.
    pub last: u64,
}

impl ExpirySpan {
    /// With one entry more.
    #[must_use]
    pub fn with(span: Option<ExpirySpan>, until: u64) -> ExpirySpan {
        match span {
            None => ExpirySpan { count: 1, first: until, last: until },
            Some(ExpirySpan { count, first, last }) => {
                ExpirySpan { count: count + 1, first: first.min(until), last: last.max(until) }
            }
        }
    }

    /// Both together.
    #[must_use]
    pub fn joined(a: Option<ExpirySpan>, b: Option<ExpirySpan>) -> Option<ExpirySpan> {
        let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
        let (first, last) = (a.first.min(b.first), a.last.max(b.last));
        Some(ExpirySpan { count: a.count.saturating_add(b.count), first, last })
    }

    /// About how many have expired by `now`: all or none outside of the span, and within it as many
    /// as if they were spread evenly.
    #[must_use]
    pub fn expired_about(&self, now: u64) -> u64 {
        let count = u64::from(self.count);
        if now < self.first {
            return 0;
        }
        if now >= self.last {
            return count;
        }
        let (passed, whole) = (now - self.first, self.last - self.first);
        (u128::from(count) * u128::from(passed) / u128::from(whole)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_counts_from_the_stamp_and_ends_with_time() {
        let stamp = SeqNo::from_parts(1000, 7);
        assert_eq!(Lifetime::Forever.end(stamp), None);
        assert_eq!(Lifetime::Until(5).end(stamp), Some(5));
        assert_eq!(Lifetime::For(5).end(stamp), Some(1005));
        assert_eq!(Lifetime::from(Duration::MAX).end(stamp), Some(MOMENT_MAX));
        assert_eq!(Lifetime::from(Duration::ZERO), Lifetime::For(0));
        assert_eq!(Lifetime::from(Duration::from_nanos(1)), Lifetime::For(1), "rounded up");
        assert_eq!(Lifetime::from(Duration::from_micros(1000)), Lifetime::For(1));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Lifetime::from(Expiry::At(before)), Lifetime::Until(0));
        assert_eq!(Lifetime::Until(0).end(stamp), Some(1));
        assert_eq!(Lifetime::For(5).counted_from(7).end(stamp), Some(12));
        assert_eq!(Lifetime::Until(5).counted_from(7).end(stamp), Some(5));
        assert_eq!(Lifetime::Forever.counted_from(7), Lifetime::Forever);
        for lifetime in [Lifetime::Until(0), Lifetime::For(MOMENT_MAX), Lifetime::Until(77)] {
            let number = lifetime.to_number().unwrap();
            assert_eq!(Lifetime::from_number(number), Some(lifetime));
        }
        assert_eq!(Lifetime::from_number((MOMENT_MAX + 1) << 1), None);
    }

    #[test]
    fn what_expires_round_trips_and_no_cut_of_it_is_taken_for_a_pointer() {
        let pointer = [3; ValuePointer::SIZE];
        let held = Expiring { until: 1 << 40, kind: EntryKind::Pointer, value: &pointer };
        let bytes = held.encode();
        assert_eq!(Expiring::decode(&bytes), Some(held));
        for cut in 0..bytes.len() {
            assert_eq!(Expiring::decode(&bytes[..cut]), None, "cut to {cut}");
        }
        let value = Expiring { until: 1, kind: EntryKind::Value, value: b"" };
        assert_eq!(Expiring::decode(&value.encode()), Some(value));
        assert_eq!(Expiring::decode(&Expiring { until: 0, ..value }.encode()), None);
    }

    #[test]
    fn a_span_tells_about_how_many_have_expired() {
        let span = [10, 30, 20].into_iter().fold(None, |span, at| Some(ExpirySpan::with(span, at)));
        let span = span.unwrap();
        assert_eq!(span, ExpirySpan { count: 3, first: 10, last: 30 });
        for (now, expected) in [(0, 0), (9, 0), (10, 0), (20, 1), (29, 2), (30, 3), (99, 3)] {
            assert_eq!(span.expired_about(now), expected, "at {now}");
        }
        let at_once = ExpirySpan { count: 4, first: 5, last: 5 };
        let both = ExpirySpan { count: 7, first: 5, last: 30 };
        assert_eq!(ExpirySpan::joined(Some(span), Some(at_once)), Some(both));
        assert_eq!(ExpirySpan::joined(None, Some(at_once)), Some(at_once));
        assert_eq!((at_once.expired_about(4), at_once.expired_about(5)), (0, 4));
    }
}
