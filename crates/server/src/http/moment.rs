//! Moments, as requests and answers say them: stamps, RFC 3339 times, and how long ago.

use std::time::{Duration, SystemTime};

use lithedb::base::{Clock as _, SystemClock};
use lithedb::{PointInTime, SeqNo};
use serde_json::Value;

const MILLIS_PER_DAY: u64 = 86_400_000;
/// From 0000-03-01.
const DAYS_TO_1970: u64 = 719_468;
/// What a moment may be, for who wrote something else.
pub const MOMENTS: &str = "a stamp, a time as in 2026-11-22T04:56:03Z, or how long ago as in 5m";

/// A stamp, as JSON has it: digits in a string, as numbers there are exact to 2^53 only.
pub fn stamp_json(stamp: SeqNo) -> Value {
    stamp.as_u64().to_string().into()
}

/// The time of so many milliseconds since 1970.
pub fn millis_text(millis: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    time_text(time.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// A stamp: its number, or milliseconds, a dot and a counter.
pub fn parsed_stamp(text: &str) -> Option<SeqNo> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((millis, counter)) if is_number(millis) && is_number(counter) => {
            let millis = millis.parse().ok().filter(|millis: &u64| *millis < 1 << 48)?;
            Some(SeqNo::from_parts(millis, counter.parse().ok()?))
        }
        None if is_number(text) => text.parse().ok().map(SeqNo::from_u64),
        _ => None,
    }
}

/// A moment of the past: see [`MOMENTS`].
pub fn parsed_moment(text: &str) -> Option<PointInTime> {
    if let Some(stamp) = parsed_stamp(text) {
        return Some(PointInTime::Stamp(stamp));
    }
    if let Some(time) = parsed_time(text) {
        return Some(PointInTime::Time(time));
    }
    let ago = parsed_duration(text)?;
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(SystemClock::new().wall_millis());
    let time = now.checked_sub(ago).filter(|time| *time > SystemTime::UNIX_EPOCH);
    Some(PointInTime::Time(time.unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// `90s`, `5m`, `36h`, `7d`.
fn parsed_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let millis_each = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => MILLIS_PER_DAY,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(millis_each).map(Duration::from_millis)
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

/// `2026-11-22T04:56:03.123Z`: RFC 3339, in UTC.
pub fn time_text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = since.as_millis() as u64;
    let (days, millis) = (millis / MILLIS_PER_DAY, millis % MILLIS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
    let (second, milli) = (millis / 1000 % 60, millis % 1000);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The moment that an RFC 3339 time means: `2026-11-22T04:56:03Z`, `2026-11-22T06:56:03.5+02:00`.
pub fn parsed_time(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut fields = date.split('-');
    let (year, month, day) = (fields.next()?, fields.next()?, fields.next()?);
    let is_date = fields.next().is_none() && year.len() >= 4 && month.len() == 2 && day.len() == 2;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut fields = clock.split(':');
    let (hour, minute) = (fields.next()?, fields.next()?);
    let second = fields.next()?;
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
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = seconds.checked_add_signed(-offset_of(zone)?)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos as u32))
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

/// How many days after 1970-01-01 that is, if there is such a day: the inverse of [`date`].
fn days_to(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1970..=99_999).contains(&year) {
        return None;
    }
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
    (date(days) == (year, month, day)).then_some(days)
}

/// Year, month and day, so many days after 1970-01-01. Years are taken to begin in March, so that
/// the day that may be missing is the last one; 400 of them have 146,097 days (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for millis in [0, 951_782_400_000, 1_795_250_864_285, 4_107_542_399_999] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(parsed_time(&millis_text(millis)), Some(time));
        }
        for wrong in ["2026-11-21", "2026-02-29T00:00:00Z", "2026-11-21T08:47:44+2:00", "", "T"] {
            assert_eq!(parsed_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn moments_are_stamps_times_or_how_long_ago() {
        let stamp = SeqNo::from_parts(1_795_250_864_285, 7);
        for text in [stamp.to_string(), stamp.as_u64().to_string()] {
            assert_eq!(parsed_moment(&text), Some(PointInTime::Stamp(stamp)), "{text}");
        }
        let long_ago = Some(PointInTime::Time(SystemTime::UNIX_EPOCH));
        assert_eq!(parsed_moment("36500000d"), long_ago);
        assert!(parsed_moment("5m").is_some_and(|moment| moment.millis() > 1_600_000_000_000));
        let wrong = ["", "5", "m", "5 m", "-5m", "1.70000", "+1", "99999999999999999999", "5w"];
        for text in wrong.into_iter().filter(|text| *text != "5") {
            assert_eq!(parsed_moment(text), None, "{text}");
        }
    }
}
