//! Numbers as clients write them, and as they are told.

/// An integer, written the one way that it can be: no sign of plus, no zeros in front.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', ..] => digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_plain {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// A number that is one, or infinite.
pub fn float(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    text.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// The same of a score: what is infinite, or nothing, only by being out of reach is none.
pub fn score(text: &[u8]) -> Option<f64> {
    let mantissa = text.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next().unwrap_or_default();
    let has_digits = mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    float(text).filter(|number| !has_digits || number.is_finite() && *number != 0.0)
}

/// The shortest digits that read back as the same number, as Redis writes them since 7.2.
pub fn float_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == number.trunc() && number.abs() < (1_u64 << 52) as f64 {
        return (number as i64).to_string();
    }
    let written = format!("{number:e}");
    let Some((digits, exponent)) = written.split_once('e') else { return written };
    let Ok(exponent) = exponent.parse::<i32>() else { return written };
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits = digits.replace('.', "");
    let count = digits.len() as i32;
    let last = exponent - count + 1; // The exponent of the last digit.
    if last >= 0 && exponent < count + 7 {
        return format!("{sign}{digits}{}", "0".repeat(last as usize));
    }
    if last < 0 && (last > -7 || exponent.abs() < 4) {
        return match exponent >= 0 {
            true => {
                let (whole, part) = digits.split_at(exponent as usize + 1);
                format!("{sign}{whole}.{part}")
            }
            false => format!("{sign}0.{}{digits}", "0".repeat(-exponent as usize - 1)),
        };
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let plus = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{plus}{}", exponent.abs())
}

/// The same in plain digits, as counters are kept.
pub fn plain_float_text(number: f64) -> String {
    let text = format!("{number}");
    if text == "-0" { "0".to_owned() } else { text }
}

/// Writes the digits of an integer.
pub fn put_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Bytes that are ordered as numbers are. Minus zero is zero.
pub fn ordered(number: f64) -> [u8; 8] {
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    ordered.to_be_bytes()
}

/// The number of such bytes.
pub fn from_ordered(bytes: [u8; 8]) -> f64 {
    let ordered = u64::from_be_bytes(bytes);
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_in_one_way() {
        for number in [0, 1, -1, 10, -10, i64::MAX, i64::MIN, 1234567890123] {
            let mut text = Vec::new();
            put_integer(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
            assert_eq!(integer(&text), Some(number));
        }
        for other in ["", "-", "+1", "01", "-0", "1 ", " 1", "1.0", "9223372036854775808", "0x1"] {
            assert_eq!(integer(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn floats_are_shortest_and_read_back() {
        let cases = [
            (3.1, "3.1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1.234_567_890_123_456_7e19, "12345678901234567000"),
            (1e30, "1e+30"),
            (1.5e-10, "1.5e-10"),
            (f64::INFINITY, "inf"),
            (-0.0, "0"),
            (17179869184.5, "17179869184.5"),
        ];
        for (number, text) in cases {
            assert_eq!(float_text(number), text);
        }
        let mut bits = 1_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = f64::from_bits(bits);
            if !number.is_nan() {
                assert_eq!(float(float_text(number).as_bytes()), Some(number));
            }
        }
        assert_eq!(float(b"nan"), None);
        for out_of_reach in ["1e400", "-1e400", "1e-400", "-2.5E-999"] {
            assert!(float(out_of_reach.as_bytes()).is_some());
            assert_eq!(score(out_of_reach.as_bytes()), None, "{out_of_reach}");
        }
        for (text, number) in [("inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)] {
            assert_eq!(score(text.as_bytes()), Some(number));
        }
        for (text, number) in [("0e999", 0.0), ("-0.0", 0.0), ("1e-320", 1e-320), ("10", 10.0)] {
            assert_eq!(score(text.as_bytes()), Some(number));
        }
        assert_eq!(float(b" 1"), None);
    }

    #[test]
    fn ordered_bytes_are_ordered() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 1.0, f64::INFINITY];
        for pair in numbers.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]));
        }
        for number in numbers {
            assert_eq!(from_ordered(ordered(number)), number);
        }
        assert_eq!(ordered(-0.0), ordered(0.0));
    }
}
