//! Moments, as requests and answers say them: stamps, RFC 3339 times, and how long ago.

use std::time::{Duration, SystemTime};

use lithedb::base::{Clock as _, SystemClock};
use lithedb::{PointInTime, SeqNo};
use serde_json::Value;

use crate::moment::{parse_duration, parse_stamp, parse_time};

/// What a moment may be, for who wrote something else.
pub const MOMENTS: &str = "a stamp, a time as in 2026-11-22T04:56:03Z, or how long ago as in 5m";
/// Units of how long ago something was, behind a number and nothing else: a parameter of an address
/// has one form.
const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];

/// A stamp, as JSON has it: digits in a string, as numbers there are exact to 2^53 only.
pub fn stamp_json(stamp: SeqNo) -> Value {
    stamp.as_u64().to_string().into()
}

/// A moment of the past: see [`MOMENTS`].
pub fn parsed_moment(text: &str) -> Option<PointInTime> {
    if let Ok(stamp) = parse_stamp(text) {
        return Some(PointInTime::Stamp(stamp));
    }
    if let Ok(time) = parse_time(text) {
        return Some(PointInTime::Time(time));
    }
    let ago = parsed_ago(text)?;
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(SystemClock::new().wall_millis());
    let time = now.checked_sub(ago).filter(|time| *time > SystemTime::UNIX_EPOCH);
    Some(PointInTime::Time(time.unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// `90s`, `5m`, `36h`, `7d`.
fn parsed_ago(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    if UNITS.contains(&unit) { parse_duration(text).ok() } else { None }
}

/// The first stamp that is not before this moment.
pub fn first_of(moment: PointInTime) -> SeqNo {
    match moment {
        PointInTime::Stamp(stamp) => stamp,
        PointInTime::Time(_) => SeqNo::from_parts(moment.millis(), 0),
    }
}

/// The last stamp that is not behind this moment.
pub fn last_of(moment: PointInTime) -> SeqNo {
    match moment {
        PointInTime::Stamp(stamp) => stamp,
        PointInTime::Time(_) => SeqNo::from_parts(moment.millis(), u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_stamps_times_or_how_long_ago() {
        let stamp = SeqNo::from_parts(1_795_250_864_285, 7);
        for text in [stamp.to_string(), stamp.as_u64().to_string()] {
            assert_eq!(parsed_moment(&text), Some(PointInTime::Stamp(stamp)), "{text}");
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_250_864_285);
        let text = "2026-11-21T08:47:44.285Z";
        assert_eq!(parsed_moment(text), Some(PointInTime::Time(time)));
        let long_ago = Some(PointInTime::Time(SystemTime::UNIX_EPOCH));
        assert_eq!(parsed_moment("36500000d"), long_ago);
        for text in ["5ms", "5s", "5m", "5h", "5d"] {
            let millis = parsed_moment(text).map(PointInTime::millis);
            assert!(millis.is_some_and(|millis| millis > 1_600_000_000_000), "{text}");
        }
        for text in [
            "",
            "m",
            "5 m",
            "5min",
            "5w",
            "-5m",
            "1.70000",
            "+1",
            "99999999999999999999",
            "99999999999999999999d",
            "2026-11-21",
        ] {
            assert_eq!(parsed_moment(text), None, "{text}");
        }
    }
}
