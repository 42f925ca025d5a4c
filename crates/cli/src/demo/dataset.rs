//! The data set of the demo: the Unicode Character Database, bundled with the program.
//!
//! `data/UnicodeData.txt` (Unicode License V3, `data/LICENSE-UNICODE`): a character or the end of
//! a range of characters per line, 15 fields between semicolons, the code point first.

use crate::notation::is_shown_as_is;

const UNICODE_DATA: &str = include_str!("../../../../data/UnicodeData.txt");
/// Field of the name that Unicode 1.0 gave, which tells control characters apart.
const FIELD_OLD_NAME: usize = 10;

/// Lines of the data set.
pub const CHARACTER_COUNT: u64 = 34_924;

/// Size of the data set in bytes.
pub const DATASET_SIZE: u64 = UNICODE_DATA.len() as u64;

/// A line of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Character {
    /// The code point as six hexadecimal digits, so that keys sort by number.
    pub code: String,
    /// A name that no other character has.
    pub name: String,
    /// Everything behind the code point.
    pub fields: &'static str,
}

/// Every character, in order of code points.
pub fn characters() -> impl Iterator<Item = Character> {
    UNICODE_DATA.lines().filter_map(parse_line)
}

fn parse_line(line: &'static str) -> Option<Character> {
    let (code, fields) = line.split_once(';')?;
    let code = format!("{code:0>6}");
    let name = match fields.split(';').next()? {
        "<control>" => match line.split(';').nth(FIELD_OLD_NAME) {
            Some(old_name) if !old_name.is_empty() => format!("<control> {old_name}"),
            _ => format!("<control> {code}"),
        },
        name => name.to_owned(),
    };
    Some(Character { code, name, fields })
}

/// The character of a code point as it can be shown, or nothing.
pub fn glyph_of(code: &str) -> String {
    u32::from_str_radix(code, 16)
        .ok()
        .and_then(char::from_u32)
        .filter(|&character| is_shown_as_is(character))
        .map(String::from)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_character_has_a_code_and_a_name_of_its_own() {
        let all: Vec<Character> = characters().collect();
        assert_eq!(all.len() as u64, CHARACTER_COUNT);
        assert!(all.is_sorted_by(|left, right| left.code < right.code));
        let names: BTreeSet<&str> = all.iter().map(|character| character.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.contains("<control> LINE FEED (LF)"));
    }

    #[test]
    fn only_what_can_be_shown_has_a_glyph() {
        assert_eq!(glyph_of("002603"), "☃");
        assert_eq!(glyph_of("00001B"), "");
        assert_eq!(glyph_of("00202E"), "");
        assert_eq!(glyph_of("00D800"), "");
    }
}
