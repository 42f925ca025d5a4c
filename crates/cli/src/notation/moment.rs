//! Moments of the past, as people say them.

use std::time::{Duration, SystemTime};

use lithedb::PointInTime;
use lithedb::base::{Clock as _, SystemClock};

use super::{MomentError, parse_duration, parse_stamp, parse_stamp_time, parse_time};

/// Units that are words, in the letters that [`parse_duration`] knows.
const UNITS: [(&str, &str); 6] = [
    ("millisecond", "ms"),
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "w"),
];
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A moment: a stamp, a time, both as they are printed, or how long it is ago.
pub fn parse_moment(text: &str) -> Result<PointInTime, String> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(SystemClock::new().wall_millis());
    moment_as_of(text, now)
}

fn moment_as_of(text: &str, now: SystemTime) -> Result<PointInTime, String> {
    if let Some(duration) = text.trim_end().strip_suffix("ago") {
        let duration = duration_in_words(duration.trim())
            .ok_or_else(|| format!("no moment: {text:?}; one is as in 5 minutes ago"))?;
        let time = now.checked_sub(duration).unwrap_or(SystemTime::UNIX_EPOCH);
        return Ok(PointInTime::Time(time.max(SystemTime::UNIX_EPOCH)));
    }
    match parse_stamp(text).or_else(|error| parse_stamp_time(text).map_err(|_| error)) {
        Ok(stamp) => return Ok(PointInTime::Stamp(stamp)),
        Err(error @ MomentError::MillisAlone(_)) => return Err(error.to_string()),
        Err(_) => {}
    }
    parse_time(text).map(PointInTime::Time).map_err(|error| match error {
        MomentError::Before1970(_) => error.to_string(),
        _ => format!(
            "no moment: {text:?}; one is a stamp as in 1795250864285.0, a time as in \
             2026-11-22T04:56:03Z, or as in 5 minutes ago"
        ),
    })
}

/// `5 minutes`, `5 m`, `5m`, `an hour`.
fn duration_in_words(text: &str) -> Option<Duration> {
    if let Ok(duration) = parse_duration(text) {
        return Some(duration);
    }
    let (count, unit) = text.split_once(' ')?;
    let count = if matches!(count, "a" | "an") { "1" } else { count };
    let unit = unit.trim();
    let of_word = |(word, _): &&(&str, &str)| {
        unit.strip_prefix(word).is_some_and(|rest| matches!(rest, "" | "s"))
    };
    match UNITS.iter().find(of_word).map_or(unit, |(_, letters)| letters) {
        "w" => WEEK.checked_mul(count.parse().ok()?),
        letters => parse_duration(&format!("{count}{letters}")).ok(),
    }
}

#[cfg(test)]
mod tests {
    use lithedb::SeqNo;

    use super::*;

    #[test]
    fn moments_are_stamps_times_or_how_long_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000);
        let ago = |seconds| Ok(PointInTime::Time(now - Duration::from_secs(seconds)));
        assert_eq!(moment_as_of("5 minutes ago", now), ago(300));
        assert_eq!(moment_as_of("5m ago", now), ago(300));
        assert_eq!(moment_as_of("an hour ago", now), ago(3600));
        assert_eq!(moment_as_of("2 weeks ago", now), ago(14 * 86_400));
        assert_eq!(moment_as_of("90 s ago", now), ago(90));
        let long_ago = moment_as_of("1000 weeks ago", now);
        assert_eq!(long_ago, Ok(PointInTime::Time(SystemTime::UNIX_EPOCH)));
        let stamp = PointInTime::Stamp(SeqNo::from_parts(1_795_250_864_285, 0));
        assert_eq!(moment_as_of("1795250864285.0", now), Ok(stamp));
        let time = PointInTime::Time(SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        assert_eq!(moment_as_of("1970-01-01T00:01:00Z", now), Ok(time));
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_250_864_285);
        let shown = moment_as_of("2026-11-21 08:47:44.285", now);
        assert_eq!(shown, Ok(PointInTime::Time(time)));
        assert_eq!(moment_as_of("2026-11-21 08:47:44.285 +0", now), Ok(stamp));
        let early = moment_as_of("1969-01-01T00:00:00Z", now).unwrap_err();
        assert!(early.contains("is before 1970"), "{early}");
        let alone = moment_as_of("1795250864285", now).unwrap_err();
        assert!(alone.contains("1795250864285.0"), "{alone}");
        for text in ["", "ago", "five minutes ago", "5 parsecs ago", "yesterday", "5 m"] {
            assert!(moment_as_of(text, now).is_err(), "{text}");
        }
    }
}
