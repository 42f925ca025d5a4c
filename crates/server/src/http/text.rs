//! Bytes as requests and answers write them: percent-encoded in addresses, UTF-8 or base64 in JSON.

use std::str;

/// Where base64 is read: in JSON, or in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// With `+` and `/`, and padded.
    Standard,
    /// With `-` and `_`, and not padded.
    Address,
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const ADDRESS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A part of an address without its percent-encoding; `None` when that is not whole.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            decoded.push(*first);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        decoded.push(hex_digit(digits[0])? << 4 | hex_digit(digits[1])?);
        rest = behind;
    }
    Some(decoded)
}

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Bytes in base64.
pub fn base64(bytes: &[u8], alphabet: Alphabet) -> String {
    let digits = if alphabet == Alphabet::Standard { STANDARD } else { ADDRESS };
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..=group.len() {
            text.push(digits[(bits >> (18 - 6 * place) & 63) as usize] as char);
        }
        if alphabet == Alphabet::Standard {
            text.extend(std::iter::repeat_n('=', 3 - group.len()));
        }
    }
    text
}

/// What base64 means, in either alphabet, padded or not; `None` when it is none. Of several texts
/// for the same bytes only one is taken, so that what is read is what was written.
pub fn base64_decoded(text: &str) -> Option<Vec<u8>> {
    let trimmed = text.trim_end_matches('=');
    let padding = text.len() - trimmed.len();
    let is_padded = padding > 0;
    if trimmed.len() % 4 == 1 || is_padded && (!text.len().is_multiple_of(4) || padding > 2) {
        return None;
    }
    let mut bytes = Vec::with_capacity(trimmed.len() / 4 * 3 + 2);
    for group in trimmed.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for (place, digit) in group.iter().enumerate() {
            bits |= u32::from(value_of(*digit)?) << (18 - 6 * place);
        }
        let count = group.len() - 1;
        let [_, decoded @ ..] = bits.to_be_bytes();
        if decoded[count..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&decoded[..count]);
    }
    Some(bytes)
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// Writes a member of a JSON object: `"key":"text"`, or `"key_base64":".."` where bytes are no
/// UTF-8.
pub fn push_member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            push_json(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"_base64\":\"");
            out.extend_from_slice(base64(bytes, Alphabet::Standard).as_bytes());
            out.push(b'"');
        }
    }
}

/// Writes a JSON string.
pub fn push_json(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string is written to memory");
}

/// What bytes take at most as a string of JSON, as [`push_member`] writes them.
pub fn json_size_max(bytes: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    let inner = match str::from_utf8(bytes) {
        Ok(_) => bytes.iter().map(escaped).sum(),
        Err(_) => bytes.len().div_ceil(3) * 4,
    };
    inner + 2
}

/// Adds a member of bytes to a JSON object.
pub fn insert_bytes(
    object: &mut serde_json::Map<String, serde_json::Value>,
    name: &str,
    bytes: &[u8],
) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes, Alphabet::Standard).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_reads_back() {
        assert_eq!(percent_decoded("a%2Fb%00%ff+"), Some(b"a/b\0\xff+".to_vec()));
        assert_eq!(percent_decoded(""), Some(Vec::new()));
        for broken in ["%", "%2", "%zz", "%+1", "a%"] {
            assert_eq!(percent_decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn base64_is_the_one_of_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"\xfb\xff\xfe", "+//+"),
        ] {
            assert_eq!(base64(bytes, Alphabet::Standard), text);
            assert_eq!(base64_decoded(text).as_deref(), Some(bytes));
            let address = base64(bytes, Alphabet::Address);
            assert_eq!(base64_decoded(&address).as_deref(), Some(bytes), "{address}");
        }
        for wrong in ["Z", "Zg=", "Zg===", "Zh==", "Zm9=", "Zm9v====", "Z g=", "Zg==Zg=="] {
            assert_eq!(base64_decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn members_say_what_they_are() {
        let mut out = Vec::new();
        push_member(&mut out, "key", b"a\"\n\0");
        assert_eq!(out, br#""key":"a\"\n\u0000""#);
        out.clear();
        push_member(&mut out, "value", b"\xff");
        assert_eq!(out, br#""value_base64":"/w==""#);
    }
}
