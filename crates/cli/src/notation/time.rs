//! Moments for people.

use lithedb::SeqNo;

const MILLIS_PER_DAY: u64 = 86_400_000;

/// `2026-11-22 04:56:03.123 +7`: the time of a stamp, in UTC, and its number in the millisecond.
pub fn stamp_time_text(stamp: SeqNo) -> String {
    let (days, millis) = (stamp.millis() / MILLIS_PER_DAY, stamp.millis() % MILLIS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
    let (second, milli) = (millis / 1000 % 60, millis % 1000);
    let counter = stamp.counter();
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03} +{counter}")
}

/// Year, month and day, so many days after 1970-01-01. Years are taken to begin in March, so that
/// the day that may be missing is the last one; 400 of them have 146,097 days (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468; // From 0000-03-01.
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
    fn stamps_are_moments_in_utc() {
        let text = |millis| stamp_time_text(SeqNo::from_parts(millis, 3));
        assert_eq!(text(0), "1970-01-01 00:00:00.000 +3");
        assert_eq!(text(951_782_400_000), "2000-02-29 00:00:00.000 +3");
        assert_eq!(text(1_795_250_864_285), "2026-11-21 08:47:44.285 +3");
        assert_eq!(text(4_107_542_399_999), "2100-02-28 23:59:59.999 +3");
        assert_eq!(text(4_107_542_400_000), "2100-03-01 00:00:00.000 +3");
    }
}
