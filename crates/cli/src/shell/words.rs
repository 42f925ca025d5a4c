//! The lines of the shell as words, which the commands then read as they read arguments.
//!
//! Words are parted by blanks. Outside of quotes and in double quotes a backslash begins an escape,
//! as in scripts of `tx`: `\xNN`, `\n`, `\r`, `\t`, `\0`, `\\`, and also `\"`, `\'`, `\ `. In
//! single quotes everything is as it is. A quoted piece may go over several lines; a backslash at
//! the end of a line goes on with the next. A `;` that stands alone or ends a word ends the
//! command, as the end of the line does. A command that begins with `#` is a comment up to the end
//! of the line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::notation::{is_shown_as_is, write_hex};

/// A command: its words, the first of which is its name.
pub type Words = Vec<OsString>;

/// Bytes that one command may have: larger values come from files.
const COMMAND_LEN_MAX: usize = 64 << 20;
const TOO_LONG: &str =
    "a command of more than 64 MiB: values of that size come from files, as in `load`";

/// Where the splitter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Between words, or in a piece of one without quotes.
    #[default]
    Plain,
    Single,
    Double,
    Comment,
}

/// An escape that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Begun,
    Hex,
    HexDigit(u8),
}

/// Takes text piece by piece and gives commands; see the head of the file.
#[derive(Debug, Default)]
pub struct Splitter {
    place: Place,
    escape: Option<Escape>,
    /// The word that is being read; `""` is a word too.
    word: Option<Vec<u8>>,
    /// Whether a piece of it is in quotes.
    has_quotes: bool,
    words: Words,
    /// What is wrong with the command that is being read.
    mistake: Option<String>,
    commands: Vec<Result<Words, String>>,
    /// A `;` without quotes was read last: it ends the command if the word ends with it.
    is_behind_semicolon: bool,
    /// Bytes taken since the last command began.
    taken: usize,
    /// Bytes taken in all, and of those in front of the word that is being read.
    offset: usize,
    word_offset: usize,
}

/// What the cursor stands in: for completion.
#[derive(Debug, PartialEq, Eq)]
pub struct Partial {
    /// The words in front of it.
    pub words: Words,
    /// What of its word is in front of the cursor, without quotes and escapes.
    pub word: Vec<u8>,
    /// Where its word begins, in bytes of the text.
    pub offset: usize,
}

impl Splitter {
    /// Takes more text. The commands that it has completed are [`Self::take_commands`].
    pub fn feed(&mut self, text: &[u8]) {
        for &byte in text {
            if let Err(what) = self.step(byte) {
                self.mistake.get_or_insert(what);
            }
            self.offset += 1;
            self.taken += 1;
        }
    }

    /// The commands that are complete, or what is wrong with them: one with a mistake in it is read
    /// to its end, so that nothing in it is taken for another one.
    pub fn take_commands(&mut self) -> Vec<Result<Words, String>> {
        std::mem::take(&mut self.commands)
    }

    /// Whether a command goes on: a quote is open, or a line ended with a backslash.
    pub fn is_within_command(&self) -> bool {
        let has_words = self.word.is_some() || !self.words.is_empty();
        self.place != Place::Comment && (has_words || self.escape.is_some())
    }

    /// What is there, if the text ends here.
    pub fn partial(mut self) -> Partial {
        let offset = if self.word.is_some() { self.word_offset } else { self.offset };
        let is_over = self.is_behind_semicolon || self.place == Place::Comment;
        if is_over {
            self.words.clear();
        }
        let word = self.word.filter(|_| !is_over).unwrap_or_default();
        Partial { words: self.words, word, offset }
    }

    fn step(&mut self, byte: u8) -> Result<(), String> {
        if let Some(escape) = self.escape.take() {
            return self.step_in_escape(escape, byte);
        }
        match (self.place, byte) {
            (Place::Comment, b'\n') => self.place = Place::Plain,
            (Place::Comment, _) => {}
            (Place::Single, b'\'') | (Place::Double, b'"') => self.place = Place::Plain,
            (Place::Single, byte) => self.push(byte),
            (Place::Double, b'\\') => self.escape = Some(Escape::Begun),
            (Place::Double, byte) => self.push(byte),
            (Place::Plain, byte) => self.step_in_plain(byte),
        }
        Ok(())
    }

    fn step_in_plain(&mut self, byte: u8) {
        let was_behind_semicolon = std::mem::take(&mut self.is_behind_semicolon);
        match byte {
            b'\n' | b' ' | b'\t' | b'\r' => {
                if was_behind_semicolon {
                    self.word = self.word.take().and_then(|mut word| {
                        word.pop();
                        (!word.is_empty() || self.has_quotes).then_some(word)
                    });
                }
                self.end_word();
                if was_behind_semicolon || byte == b'\n' {
                    self.end_command();
                }
            }
            b'#' if self.word.is_none() && self.words.is_empty() => self.place = Place::Comment,
            b'\'' => self.open(Place::Single),
            b'"' => self.open(Place::Double),
            b'\\' => self.escape = Some(Escape::Begun),
            b';' => {
                self.push(byte);
                self.is_behind_semicolon = true;
            }
            byte => self.push(byte),
        }
    }

    fn open(&mut self, place: Place) {
        self.begin_word();
        self.has_quotes = true;
        self.place = place;
    }

    fn step_in_escape(&mut self, escape: Escape, byte: u8) -> Result<(), String> {
        let unknown = || {
            let shown = char::from(byte).escape_default();
            format!("unknown escape `\\{shown}`; a backslash is `\\\\`, or in single quotes")
        };
        match (escape, byte) {
            (Escape::Begun, b'\n') => {} // The line goes on with the next.
            (Escape::Begun, b'x') => self.escape = Some(Escape::Hex),
            (Escape::Begun, byte) => {
                let meant = match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'0' => 0,
                    b'\\' | b'"' | b'\'' | b' ' | b';' | b'#' => byte,
                    _ => return Err(unknown()),
                };
                self.push(meant);
            }
            (Escape::Hex, digit) => {
                self.escape = Some(Escape::HexDigit(digit_of(digit)?));
            }
            (Escape::HexDigit(high), digit) => {
                let byte = high << 4 | digit_of(digit)?;
                self.push(byte);
            }
        }
        // What was escaped is no semicolon that ends a command.
        self.is_behind_semicolon = false;
        Ok(())
    }

    fn begin_word(&mut self) {
        self.is_behind_semicolon = false;
        if self.word.is_none() {
            self.word = Some(Vec::new());
            self.word_offset = self.offset;
        }
    }

    fn push(&mut self, byte: u8) {
        self.begin_word();
        if self.taken < COMMAND_LEN_MAX {
            self.word.get_or_insert_default().push(byte);
        }
    }

    fn end_word(&mut self) {
        self.has_quotes = false;
        self.words.extend(self.word.take().map(OsString::from_vec));
    }

    fn end_command(&mut self) {
        let words = std::mem::take(&mut self.words);
        let is_long = std::mem::take(&mut self.taken) >= COMMAND_LEN_MAX;
        let mistake = self.mistake.take().or_else(|| is_long.then(|| TOO_LONG.to_owned()));
        match mistake {
            Some(what) => self.commands.push(Err(what)),
            None if words.is_empty() => {}
            None => self.commands.push(Ok(words)),
        }
    }
}

fn digit_of(byte: u8) -> Result<u8, String> {
    let digit = char::from(byte).to_digit(16).map(|digit| digit as u8);
    digit.ok_or_else(|| "two hexadecimal digits expected behind `\\x`".to_owned())
}

/// A word that the splitter reads as these bytes: as they are if they can be, else in quotes.
pub fn quoted(bytes: &[u8]) -> String {
    let is_plain = |c: char| is_shown_as_is(c) && !c.is_whitespace() && !"\\\"';#".contains(c);
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.is_empty()
        && text.chars().all(is_plain)
    {
        return text.to_owned();
    }
    let mut word = String::from("\"");
    let hex = |word: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let mut digits = Vec::new();
            write_hex(&mut digits, &[*byte]).expect("memory can be written to");
            word.push_str("\\x");
            word.push_str(&String::from_utf8_lossy(&digits));
        }
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => word.extend(['\\', character]),
                shown if is_shown_as_is(shown) => word.push(shown),
                hidden => hex(&mut word, hidden.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        hex(&mut word, chunk.invalid());
    }
    word.push('"');
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn commands(text: &str) -> Vec<Vec<String>> {
        let mut splitter = Splitter::default();
        splitter.feed(text.as_bytes());
        splitter.feed(b"\n");
        assert!(!splitter.is_within_command(), "{text}");
        let text_of = |word: OsString| word.into_string().unwrap();
        let of = |words: Words| words.into_iter().map(text_of).collect();
        splitter.take_commands().into_iter().map(|words| of(words.unwrap())).collect()
    }

    #[test]
    fn words_are_parted_by_blanks_and_commands_by_lines() {
        assert_eq!(commands("put  a\tb\r\n\nget a"), [vec!["put", "a", "b"], vec!["get", "a"]]);
        assert_eq!(commands("put a 1; get a;\n;"), [vec!["put", "a", "1"], vec!["get", "a"]]);
        assert_eq!(commands("get a;b"), [vec!["get", "a;b"]]);
        assert_eq!(commands("get ';' ; get \\;"), [vec!["get", ";"], vec!["get", ";"]]);
        assert_eq!(commands("  # get a ' \\\nget #b"), [vec!["get", "#b"]]);
    }

    #[test]
    fn quotes_and_escapes_are_taken_off() {
        assert_eq!(commands(r#"put 'a "b' "c 'd""#), [vec!["put", "a \"b", "c 'd"]]);
        assert_eq!(
            commands(r#"put a\ b\x41 '\x00' "\n\"""#),
            [vec!["put", "a bA", "\\x00", "\n\""]]
        );
        assert_eq!(commands("put k ''; get k"), [vec!["put", "k", ""], vec!["get", "k"]]);
        assert_eq!(commands("put pre'fi x'\"es\" v"), [vec!["put", "prefi xes", "v"]]);
    }

    #[test]
    fn a_command_goes_over_lines_in_quotes_and_behind_a_backslash() {
        assert_eq!(commands("put k 'a\nb'"), [vec!["put", "k", "a\nb"]]);
        assert_eq!(commands("put \\\n k v"), [vec!["put", "k", "v"]]);
        for open in ["put 'a\n", "put \"a\n", "put \\\n"] {
            let mut splitter = Splitter::default();
            splitter.feed(open.as_bytes());
            assert!(splitter.is_within_command(), "{open}");
            assert!(splitter.take_commands().is_empty(), "{open}");
        }
    }

    #[test]
    fn mistakes_are_told_and_do_not_stay() {
        let mut splitter = Splitter::default();
        splitter.feed(b"get 'a\n' \\q '\nb'; get \\xZZ\nget a\n");
        let commands = splitter.take_commands();
        assert!(commands[0].as_ref().unwrap_err().contains("unknown escape"));
        assert!(commands[1].as_ref().unwrap_err().contains("hexadecimal"));
        assert_eq!(commands[2], Ok(["get", "a"].map(OsString::from).to_vec()));
        assert_eq!(commands.len(), 3);
    }

    #[test]
    fn quoted_words_are_read_as_the_bytes_that_they_stand_for() {
        for first in 0..=255 {
            for second in [b' ', b'a', b'"', b'\\', b';', 0, 0xFF, 0x9B] {
                let bytes = [first, second];
                let mut splitter = Splitter::default();
                splitter.feed(format!("x {}\n", quoted(&bytes)).as_bytes());
                let words = splitter.take_commands().remove(0).unwrap();
                assert_eq!(words[1].as_bytes(), bytes, "{}", quoted(&bytes));
            }
        }
        assert_eq!(quoted(b"user:17"), "user:17");
        assert_eq!(quoted(b"a b\x1b"), "\"a b\\x1b\"");
        assert_eq!(quoted(b""), "\"\"");
    }

    #[test]
    fn what_the_cursor_stands_in_is_known() {
        let partial = |text: &str| {
            let mut splitter = Splitter::default();
            splitter.feed(text.as_bytes());
            splitter.partial()
        };
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Words>();
        let expected = |front: &[&str], word: &str, offset| Partial {
            words: words(front),
            word: word.into(),
            offset,
        };
        assert_eq!(partial("get us"), expected(&["get"], "us", 4));
        assert_eq!(partial("get \"a b"), expected(&["get"], "a b", 4));
        assert_eq!(partial("get "), expected(&["get"], "", 4));
        assert_eq!(partial("get a; co"), expected(&[], "co", 7));
        assert_eq!(partial(""), expected(&[], "", 0));
    }
}
