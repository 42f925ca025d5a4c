//! Numbers with units, for people: sizes, counts, durations, rates.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// `17 B`, `1.5 KiB`, `3.2 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        TIB.. => (TIB, "TiB"),
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        KIB.. => (KIB, "KiB"),
        _ => return format!("{bytes} B"),
    };
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}

/// `1,234,567`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `870 ns`, `12.3 us`, `4.5 ms`, `1.25 s`, `3 min 20 s`, `2 h 05 min`.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_nanos() {
        nanos @ ..1_000 => format!("{nanos} ns"),
        nanos @ ..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        nanos @ ..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        nanos @ ..60_000_000_000 => format!("{:.2} s", nanos as f64 / 1e9),
        ..3_600_000_000_000 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Things per second, as a whole number with separators; 0 for no time at all.
pub fn rate_text(count: u64, duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds <= 0.0 {
        return "0".to_owned();
    }
    count_text((count as f64 / seconds) as u64)
}

/// The bytes that a size on the command line means: `4096`, `16KiB`, `64 MiB`, `1GiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_size = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return Err("a size is a number of B, KiB, MiB or GiB, as in 16KiB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| format!("no size: {text:?}"))?;
    number.checked_mul(unit_size).ok_or_else(|| format!("too large: {text}"))
}

/// The size of the command line that has to fit into 32 bits.
pub fn parse_small_size(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("too large: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("512B"), Ok(512));
        assert_eq!(parse_size("16KiB"), Ok(16 << 10));
        assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
        assert_eq!(parse_size("3GiB"), Ok(3 << 30));
        for text in ["", "KiB", "12MB", "-1", "1.5MiB", "99999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_small_size("4GiB"), Err("too large: 4GiB".to_owned()));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(bytes_text(1023), "1023 B");
        assert_eq!(bytes_text(1536), "1.5 KiB");
        assert_eq!(bytes_text(u64::MAX), "16777216.0 TiB");
        assert_eq!(count_text(0), "0");
        assert_eq!(count_text(999), "999");
        assert_eq!(count_text(1_234_567), "1,234,567");
        assert_eq!(duration_text(Duration::from_nanos(870)), "870 ns");
        assert_eq!(duration_text(Duration::from_micros(4500)), "4.5 ms");
        assert_eq!(duration_text(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration_text(Duration::from_secs(7500)), "2 h 05 min");
        assert_eq!(rate_text(3_000_000, Duration::from_secs(2)), "1,500,000");
        assert_eq!(rate_text(1, Duration::ZERO), "0");
    }
}
