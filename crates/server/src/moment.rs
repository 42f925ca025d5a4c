//! Moments and durations as text: RFC 3339 times, stamps, and numbers with a unit, as the calls of
//! the server and the command line have them. What is written here is read here.
//!
//! ```
//! use lithe_server::moment::{parse_duration, parse_time, time_text};
//! use std::time::{Duration, SystemTime};
//!
//! let time = parse_time("1970-01-02T02:00:00+02:00")?;
//! assert_eq!(time, SystemTime::UNIX_EPOCH + parse_duration("1d")?);
//! assert_eq!(time_text(time + Duration::from_millis(5)), "1970-01-02T00:00:00.005Z");
//! # Ok::<(), lithe_server::moment::MomentError>(())
//! ```

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use lithedb::SeqNo;

const MILLIS_PER_DAY: u64 = 86_400_000;
/// From 0000-03-01.
const DAYS_TO_1970: u64 = 719_468;
/// After so many years the calendar is the same again, after so many days.
const YEARS_PER_ERA: u64 = 400;
const DAYS_PER_ERA: u64 = 146_097;
/// Numbers that are not taken for stamps: milliseconds from the year 2000 on, and before 2200. As
/// stamps they would be of the first two days of 1970.
const MILLIS_ALONE: Range<u64> = 946_684_800_000..7_258_118_400_000;
/// What a duration is a number of, in milliseconds, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * MILLIS_PER_DAY),
    ("d", MILLIS_PER_DAY),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Why a text is not what was expected. `Display` is a sentence for whoever wrote it.
///
/// ```
/// let error = lithe_server::moment::parse_duration("10").unwrap_err();
/// assert_eq!(error.to_string(), "a duration is a number of ms, s, m, h, d or w, as in 10m");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MomentError {
    /// It is no time.
    NotATime(String),
    /// It is a time before 1970.
    Before1970(String),
    /// It is no stamp.
    NotAStamp(String),
    /// It is one number: a stamp of 1970, or, as is likelier, so many milliseconds.
    MillisAlone(u64),
    /// It would be a stamp of so many milliseconds, which do not fit.
    StampTooLarge(u64),
    /// It has a unit, and no number in front of it that fits into 64 bits.
    NotADuration(String),
    /// It has no unit that is known.
    NoUnit,
    /// It is longer than 64 bits of milliseconds.
    TooLong(String),
}

impl fmt::Display for MomentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MomentError::NotATime(text) => {
                write!(f, "no time: {text:?}; one is as in 2026-11-22T04:56:03Z, from 1970 on")
            }
            MomentError::Before1970(text) => {
                write!(f, "{text} is before 1970, where times begin")
            }
            MomentError::NotAStamp(text) => {
                write!(f, "no stamp: {text:?}; one is as in 1795250864285.0")
            }
            MomentError::MillisAlone(number) => {
                let (time, stamp) = (millis_text(*number), SeqNo::from_u64(*number));
                write!(f, "{number} could be milliseconds or a stamp as one number: write ")?;
                write!(f, "{number}.0 for that of {time}, {stamp} for that of 1970")
            }
            MomentError::StampTooLarge(millis) => write!(f, "too large for a stamp: {millis}"),
            MomentError::NotADuration(text) => write!(f, "no duration: {text:?}"),
            MomentError::NoUnit => {
                f.write_str("a duration is a number of ms, s, m, h, d or w, as in 10m")
            }
            MomentError::TooLong(text) => write!(f, "too long: {text}"),
        }
    }
}

impl Error for MomentError {}

/// `2026-11-22T04:56:03.123Z`: RFC 3339, in UTC, to the millisecond. What is before 1970 is written
/// as its beginning.
#[must_use]
pub fn time_text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    millis_text(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The same of so many milliseconds since 1970.
#[must_use]
pub fn millis_text(millis: u64) -> String {
    format!("{}Z", date_and_clock(millis, 'T'))
}

/// `2026-11-22 04:56:03.123 +7`: the time of a stamp, in UTC, and its number in the millisecond.
#[must_use]
pub fn stamp_time_text(stamp: SeqNo) -> String {
    format!("{} +{}", date_and_clock(stamp.millis(), ' '), stamp.counter())
}

fn date_and_clock(millis: u64, between: char) -> String {
    let (days, millis) = (millis / MILLIS_PER_DAY, millis % MILLIS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
    let (second, milli) = (millis / 1000 % 60, millis % 1000);
    format!("{year}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}.{milli:03}")
}

/// The moment that an RFC 3339 time means: `2026-11-22T04:56:03Z`, `2026-11-22T06:56:03.5+02:00`;
/// years 1970 to 99,999, up to nine digits behind the second. Also as times are shown to people,
/// with a blank in place of the `T`: then the seconds and the zone, which is UTC, may be left out.
///
/// # Errors
/// `NotATime`, `Before1970`.
pub fn parse_time(text: &str) -> Result<SystemTime, MomentError> {
    let (seconds, nanos) =
        parsed_time(text).ok_or_else(|| MomentError::NotATime(text.to_owned()))?;
    let seconds = u64::try_from(seconds).map_err(|_| MomentError::Before1970(text.to_owned()))?;
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos));
    time.ok_or_else(|| MomentError::NotATime(text.to_owned()))
}

/// Seconds from 1970 on, or before it, and nanoseconds.
fn parsed_time(text: &str) -> Option<(i64, u32)> {
    let between = text.find(['T', 't', ' '])?;
    let (date, time) = (&text[..between], &text[between + 1..]);
    let is_for_people = text.as_bytes()[between] == b' ';
    let mut fields = date.split('-');
    let (year, month, day) = (fields.next()?, fields.next()?, fields.next()?);
    let is_date = fields.next().is_none() && year.len() >= 4 && month.len() == 2 && day.len() == 2;
    let (clock, zone) = match time.find(['Z', 'z', '+', '-']) {
        Some(zone_at) => time.split_at(zone_at),
        None if is_for_people => (time, "Z"),
        None => return None,
    };
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let mut fields = clock.split(':');
    let (hour, minute) = (fields.next()?, fields.next()?);
    let second = match fields.next() {
        Some(second) => second,
        None if is_for_people && fraction.is_none() => "00",
        None => return None,
    };
    let fraction = fraction.unwrap_or("0");
    let is_time = fields.next().is_none()
        && [hour, minute, second].iter().all(|field| field.len() == 2)
        && (1..=9).contains(&fraction.len());
    if !is_date || !is_time {
        return None;
    }
    let (month, day) = (number(month)?, number(day)?);
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    let days = days_to(number(year)?, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = number(fraction)? * 10u64.pow(9 - fraction.len() as u32);
    let seconds = days * 86_400 + (hour * 3600 + minute * 60 + second) as i64;
    Some((seconds - offset_of(zone)?, nanos as u32))
}

fn number(digits: &str) -> Option<u64> {
    let is_number = digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// How many seconds a zone is ahead of UTC.
fn offset_of(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let is_one = rest.len() == 5 && hours < 24 && minutes < 60;
    let seconds = (hours * 3600 + minutes * 60) as i64;
    is_one.then_some(if sign == "-" { -seconds } else { seconds })
}

/// How many days after 1970-01-01 that is, or before it, if there is such a day: the inverse of
/// [`date`].
fn days_to(year: u64, month: u64, day: u64) -> Option<i64> {
    // So that nothing in between is below zero.
    const ERAS: u64 = 5;
    if !(1..=12).contains(&month) || year > 99_999 {
        return None;
    }
    let year = year + ERAS * YEARS_PER_ERA;
    // As `date` counts: years from March on, days from 0000-03-01.
    let (year_from_march, month_from_march) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let leap_days = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days_before_month = (153 * month_from_march + 2) / 5;
    let days = year_from_march * 365 + leap_days + days_before_month + day.checked_sub(1)?;
    let days = days.checked_sub(DAYS_TO_1970)?;
    // A day that the month does not have is another one.
    let is_day = date(days) == (year, month, day);
    is_day.then_some(days as i64 - (ERAS * DAYS_PER_ERA) as i64)
}

/// Year, month and day, so many days after 1970-01-01. Years are taken to begin in March, so that
/// the day that may be missing is the last one; 400 of them have 146,097 days (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * YEARS_PER_ERA + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// A stamp: `1795250864285.0`, milliseconds since 1970 and a counter, or both as one number. Digits
/// alone, without a sign. One number that would be a time of our days as milliseconds, and as a
/// stamp is of the beginning of 1970, is none: its counter has been forgotten.
///
/// # Errors
/// `NotAStamp`, `MillisAlone`, `StampTooLarge`.
pub fn parse_stamp(text: &str) -> Result<SeqNo, MomentError> {
    let wrong = || MomentError::NotAStamp(text.to_owned());
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let Some((millis, counter)) = text.split_once('.') else {
        let number = text.parse().map_err(|_| wrong())?;
        return match MILLIS_ALONE.contains(&number) {
            true => Err(MomentError::MillisAlone(number)),
            false => Ok(SeqNo::from_u64(number)),
        };
    };
    let millis = millis.parse().map_err(|_| wrong())?;
    if millis >= 1 << 48 {
        return Err(MomentError::StampTooLarge(millis));
    }
    Ok(SeqNo::from_parts(millis, counter.parse().map_err(|_| wrong())?))
}

/// A stamp as [`stamp_time_text`] writes it: `2026-11-22 04:56:03.123 +7`.
///
/// # Errors
/// `NotAStamp`.
pub fn parse_stamp_time(text: &str) -> Result<SeqNo, MomentError> {
    let wrong = || MomentError::NotAStamp(text.to_owned());
    let (time, counter) = text.rsplit_once(" +").ok_or_else(wrong)?;
    let time = parse_time(time).map_err(|_| wrong())?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| wrong())?;
    let is_number = counter.bytes().all(|byte| byte.is_ascii_digit());
    let counter = counter.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let millis = u64::try_from(since.as_millis()).ok().filter(|millis| *millis < 1 << 48);
    Ok(SeqNo::from_parts(millis.ok_or_else(wrong)?, counter))
}

/// How long that is: `90s`, `10m`, `36h`, `7d`, `2w`, `250ms`; also `10 min`.
///
/// # Errors
/// `NoUnit`, `NotADuration`, `TooLong`.
pub fn parse_duration(text: &str) -> Result<Duration, MomentError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "min" => "m",
        unit => unit,
    };
    let (_, unit_millis) =
        UNITS.iter().find(|(name, _)| *name == unit).ok_or(MomentError::NoUnit)?;
    let number: u64 = number.parse().map_err(|_| MomentError::NotADuration(text.to_owned()))?;
    let millis = number.checked_mul(*unit_millis);
    millis.map(Duration::from_millis).ok_or_else(|| MomentError::TooLong(text.to_owned()))
}

/// The duration as [`parse_duration`] reads it, in the largest unit that it is a whole number of,
/// to the millisecond.
#[must_use]
pub fn exact_duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    let fits = |(_, unit): &&(&str, u64)| millis > 0 && millis.is_multiple_of(u128::from(*unit));
    let (name, unit) = UNITS.iter().find(fits).copied().unwrap_or(("ms", 1));
    format!("{}{name}", millis / u128::from(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_moments_in_utc() {
        let text = |millis| stamp_time_text(SeqNo::from_parts(millis, 3));
        assert_eq!(text(0), "1970-01-01 00:00:00.000 +3");
        assert_eq!(text(951_782_400_000), "2000-02-29 00:00:00.000 +3");
        assert_eq!(text(1_795_250_864_285), "2026-11-21 08:47:44.285 +3");
        assert_eq!(text(4_107_542_399_999), "2100-02-28 23:59:59.999 +3");
        assert_eq!(text(4_107_542_400_000), "2100-03-01 00:00:00.000 +3");
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for millis in
            [0, 951_782_400_000, 1_795_250_864_285, 4_107_542_399_999, 281_474_976_710_655]
        {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(parse_time(&time_text(time)), Ok(time));
            assert_eq!(parse_time(&millis_text(millis)), Ok(time));
        }
        assert_eq!(millis_text(1_795_250_864_285), "2026-11-21T08:47:44.285Z");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(time_text(before), "1970-01-01T00:00:00.000Z");
        assert!(millis_text(u64::MAX).ends_with('Z'), "there is none that it cannot write");
        let same = ["2026-11-21T08:47:44.285Z", "2026-11-21t10:47:44.285+02:00"];
        let same = same.map(|text| parse_time(text).unwrap());
        assert_eq!(same[0], same[1]);
        assert_eq!(parse_time("1970-01-01 00:00:00-00:00"), Ok(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn times_are_read_as_they_are_shown_to_people() {
        let time = |millis| Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        for (text, millis) in [
            ("2026-11-21 08:47:44.285", 1_795_250_864_285),
            ("2026-11-21 08:47:44.285Z", 1_795_250_864_285),
            ("2026-11-21 10:47:44.285+02:00", 1_795_250_864_285),
            ("2026-11-21 08:47:44", 1_795_250_864_000),
            ("2026-11-21 08:47", 1_795_250_820_000),
            ("2026-11-21 08:47z", 1_795_250_820_000),
            ("2026-11-21 10:47+02:00", 1_795_250_820_000),
        ] {
            assert_eq!(parse_time(text), time(millis), "{text}");
        }
        for millis in [0, 951_782_400_000, 1_795_250_864_285, 4_107_542_399_999] {
            let shown = stamp_time_text(SeqNo::from_parts(millis, 7));
            let (shown, _) = shown.split_once(" +").unwrap();
            assert_eq!(parse_time(shown), time(millis), "{shown}");
        }
    }

    #[test]
    fn times_before_1970_are_told_as_that() {
        for text in [
            "1969-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00+01:00",
            "1968-02-29 12:00",
            "0000-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_time(text), Err(MomentError::Before1970(text.to_owned())));
        }
        assert_eq!(parse_time("1969-12-31T23:00:00-01:00"), Ok(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn what_is_no_time_is_not_read_as_one() {
        for text in [
            "",
            "T",
            "2026-11-21",
            "2026-11-21T08:47:44",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T08:47Z",
            "2026-11-21T08:47:44.Z",
            "2026-11-21T08:47:44+2:00",
            "2026-11-21T08:47:44\u{e9}",
            "2026-11-21T08:47:44+\u{e9}:0",
            "1969-02-29T00:00:00Z",
            "+026-11-21T08:47:44Z",
            "100000-01-01T00:00:00Z",
            "2026-11-21 ",
            "2026-11-21 08",
            "2026-11-21 8:47",
            "2026-11-21 08:47.5",
            "2026-11-21 08:47.0",
            "2026-11-21 08:47:",
            "2026-11-21 08:47:44.",
            "2026-11-21  08:47:44",
            "2026-11-21 08:47:44 Z",
        ] {
            assert_eq!(parse_time(text), Err(MomentError::NotATime(text.to_owned())));
        }
    }

    #[test]
    fn stamps_are_read_as_they_are_printed() {
        let stamp = SeqNo::from_parts(1_795_250_864_285, 7);
        assert_eq!(parse_stamp(&stamp.to_string()), Ok(stamp));
        assert_eq!(parse_stamp_time(&stamp_time_text(stamp)), Ok(stamp));
        for text in ["", " +7", "2026-11-21 08:47:44.285", "2026-11-21 08:47:44.285 +"] {
            assert_eq!(parse_stamp_time(text), Err(MomentError::NotAStamp(text.to_owned())));
        }
        for text in ["2026-11-21 08:47:44.285 ++7", "99999-01-01 00:00:00 +0", "x +65536"] {
            assert!(parse_stamp_time(text).is_err(), "{text}");
        }
        assert_eq!(parse_stamp(&stamp.as_u64().to_string()), Ok(stamp));
        for text in ["", ".", "1.", ".1", "1.70000", "x", "+1", "1.+1", "1.0.0", "-1"] {
            assert_eq!(parse_stamp(text), Err(MomentError::NotAStamp(text.to_owned())));
        }
        assert!(parse_stamp("99999999999999999999").is_err());
        assert_eq!(parse_stamp("281474976710656.0"), Err(MomentError::StampTooLarge(1 << 48)));
    }

    #[test]
    fn milliseconds_alone_are_not_taken_for_a_stamp() {
        for number in [946_684_800_000, 1_795_811_035_801, 7_258_118_399_999] {
            let error = parse_stamp(&number.to_string()).unwrap_err();
            assert_eq!(error, MomentError::MillisAlone(number));
            // Both that are named can be read, and the one is the number.
            let stamps = [format!("{number}.0"), SeqNo::from_u64(number).to_string()];
            let read = stamps.clone().map(|stamp| parse_stamp(&stamp).unwrap());
            assert!(stamps.iter().all(|stamp| error.to_string().contains(stamp)), "{error}");
            assert_eq!((read[0].millis(), read[1].as_u64()), (number, number));
        }
        assert_eq!(millis_text(MILLIS_ALONE.start), "2000-01-01T00:00:00.000Z");
        assert_eq!(millis_text(MILLIS_ALONE.end), "2200-01-01T00:00:00.000Z");
        for number in [0, 7, 946_684_799_999, 7_258_118_400_000, u64::MAX] {
            assert_eq!(parse_stamp(&number.to_string()), Ok(SeqNo::from_u64(number)));
        }
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("90s", 90_000),
            ("10m", 600_000),
            ("10 min", 600_000),
            ("36h", 129_600_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "-1s", "1.5h", "5 parsecs"] {
            assert_eq!(parse_duration(text), Err(MomentError::NoUnit), "{text}");
        }
        for text in ["m", "99999999999999999999s"] {
            assert_eq!(parse_duration(text), Err(MomentError::NotADuration(text.to_owned())));
        }
        let too_long = "99999999999999999w";
        assert_eq!(parse_duration(too_long), Err(MomentError::TooLong(too_long.to_owned())));
        for text in ["0ms", "250ms", "90s", "10m", "36h", "8d", "2w"] {
            assert_eq!(exact_duration_text(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn mistakes_are_named_for_whoever_made_them() {
        for (error, said) in [
            (
                parse_time("noon").unwrap_err(),
                "no time: \"noon\"; one is as in 2026-11-22T04:56:03Z, from 1970 on",
            ),
            (
                parse_time("1969-01-01T00:00:00Z").unwrap_err(),
                "1969-01-01T00:00:00Z is before 1970, where times begin",
            ),
            (parse_stamp("x").unwrap_err(), "no stamp: \"x\"; one is as in 1795250864285.0"),
            (
                parse_stamp("1795811035801").unwrap_err(),
                "1795811035801 could be milliseconds or a stamp as one number: write \
                 1795811035801.0 for that of 2026-11-27T20:23:55.801Z, 27401901.51865 for that of \
                 1970",
            ),
            (
                parse_stamp("281474976710656.0").unwrap_err(),
                "too large for a stamp: 281474976710656",
            ),
            (parse_duration("m").unwrap_err(), "no duration: \"m\""),
            (
                parse_duration("10").unwrap_err(),
                "a duration is a number of ms, s, m, h, d or w, as in 10m",
            ),
            (parse_duration("99999999999999999w").unwrap_err(), "too long: 99999999999999999w"),
        ] {
            assert_eq!(error.to_string(), said);
        }
    }
}
