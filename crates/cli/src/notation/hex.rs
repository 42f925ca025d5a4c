//! Hexadecimal: two digits per byte, lower case when written, either case when read.

use std::io::{self, Write};

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// Bytes turned into digits at a time, on the stack.
const CHUNK_SIZE: usize = 64;

/// Writes two digits per byte.
pub fn write_hex(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut digits = [0; CHUNK_SIZE * 2];
    for chunk in bytes.chunks(CHUNK_SIZE) {
        for (pair, byte) in digits.chunks_exact_mut(2).zip(chunk) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xF)];
        }
        out.write_all(&digits[..chunk.len() * 2])?;
    }
    Ok(())
}

/// Reads pairs of digits; blanks between pairs are not allowed.
pub fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits are no whole number of bytes", text.len()));
    }
    let digit = |index: usize| {
        char::from(text[index])
            .to_digit(16)
            .map(|value| value as u8)
            .ok_or_else(|| format!("no hexadecimal digit at character {}", index + 1))
    };
    (0..text.len()).step_by(2).map(|index| Ok(digit(index)? << 4 | digit(index + 1)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        write_hex(&mut text, &bytes).unwrap();
        assert!(text.starts_with(b"000102") && text.ends_with(b"fdfeff"));
        assert_eq!(parse_hex(&text), Ok(bytes.clone()));
        assert_eq!(parse_hex(&text.to_ascii_uppercase()), Ok(bytes));
    }

    #[test]
    fn half_bytes_and_other_characters_are_refused() {
        assert!(parse_hex(b"abc").unwrap_err().contains("3 hexadecimal digits"));
        assert!(parse_hex(b"00g0").unwrap_err().contains("character 3"));
        assert_eq!(parse_hex(b""), Ok(Vec::new()));
    }
}
