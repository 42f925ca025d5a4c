//! Keys and passphrases, as the command line says where they are: in a file, behind a descriptor,
//! in a variable of the environment, or in somebody's head. Never in an argument, which everybody
//! on the machine can list.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lithedb::Encryption;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::{Zeroize, Zeroizing};

use crate::failure::Failure;

/// Bytes of a key.
const KEY_LEN: usize = 32;
/// Bytes of a file with a key at most: digits, and blanks and line ends behind them.
const KEY_FILE_LEN_MAX: usize = 3 * KEY_LEN;
/// Bytes of a passphrase at most.
const PASSPHRASE_LEN_MAX: usize = 4 << 10;
/// Bytes of a line end at most.
const LINE_END_LEN_MAX: usize = 2;

/// Where a key or a passphrase is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In a file: a key.
    File(PathBuf),
    /// Behind a descriptor: a key.
    Descriptor(u32),
    /// In the variable of the environment with this name: a key.
    Variable(String),
    /// Asked for on the terminal: a passphrase.
    Prompt,
    /// The first line of a file: a passphrase.
    PassphraseFile(PathBuf),
    /// The first line behind a descriptor: a passphrase.
    PassphraseDescriptor(u32),
}

/// How a passphrase is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It is compared with one that is known.
    Once,
    /// Nobody could tell that it was mistyped.
    Twice,
}

/// What the options for a key say, of which one may be there.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyOptions<'a> {
    pub file: Option<&'a PathBuf>,
    pub descriptor: Option<u32>,
    pub variable: Option<&'a String>,
    pub prompt: bool,
    pub passphrase_file: Option<&'a PathBuf>,
    pub passphrase_descriptor: Option<u32>,
}

impl KeyOptions<'_> {
    /// The one that was named.
    pub fn source(&self) -> Result<Option<KeySource>, Failure> {
        let named = [
            self.file.cloned().map(KeySource::File),
            self.descriptor.map(KeySource::Descriptor),
            self.variable.cloned().map(KeySource::Variable),
            self.prompt.then_some(KeySource::Prompt),
            self.passphrase_file.cloned().map(KeySource::PassphraseFile),
            self.passphrase_descriptor.map(KeySource::PassphraseDescriptor),
        ];
        let mut named = named.into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(_), Some(_)) => {
                Err(Failure::usage("name one key or one passphrase, not several"))
            }
            (first, _) => Ok(first),
        }
    }
}

impl KeySource {
    /// Reads it.
    pub fn read(&self, what: &str, ask: Ask) -> Result<Encryption, Failure> {
        match self {
            KeySource::File(path) => key_of(open_private(path)?, path),
            KeySource::Descriptor(number) => {
                let path = descriptor_path(*number);
                key_of(open(&path)?, &path)
            }
            KeySource::Variable(name) => key_in_variable(name),
            KeySource::PassphraseFile(path) => {
                Ok(Encryption::passphrase(&line_of(open_private(path)?, path)?))
            }
            KeySource::PassphraseDescriptor(number) => {
                let path = descriptor_path(*number);
                Ok(Encryption::passphrase(&line_of(open(&path)?, &path)?))
            }
            KeySource::Prompt => {
                let phrase = prompt(&format!("Passphrase of {what}: "))?;
                if ask == Ask::Twice && *phrase != *prompt("The same again: ")? {
                    return Err(Failure::usage("the two are not the same"));
                }
                Ok(Encryption::passphrase(&phrase))
            }
        }
    }
}

fn descriptor_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/fd/{number}"))
}

fn input(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::Input { path: path.to_owned(), source }
}

#[expect(clippy::disallowed_methods, reason = "a key is the user's file, not the database's")]
fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(input(path))
}

/// Opens a file that nobody but its owner can read.
fn open_private(path: &Path) -> Result<File, Failure> {
    let file = open(path)?;
    let mode = file.metadata().map_err(input(path))?.mode();
    if lithe_server::exposes(path, mode) {
        let (path, mode) = (path.display(), mode & 0o777);
        let what = format!("{path} has the mode {mode:03o}: others can read it; chmod it to 600");
        return Err(Failure::usage(what));
    }
    Ok(file)
}

/// A key of 32 bytes, or of as many hexadecimal digits and perhaps a line end.
fn key_of(file: File, path: &Path) -> Result<Encryption, Failure> {
    // Never reallocated, which would leave a copy.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * KEY_FILE_LEN_MAX));
    // One byte more than there may be shows that there are more.
    let mut limited = file.take(KEY_FILE_LEN_MAX as u64 + 1);
    limited.read_to_end(&mut bytes).map_err(input(path))?;
    let mut key = match <[u8; KEY_LEN]>::try_from(&bytes[..]) {
        Ok(key) => key,
        Err(_) => {
            let digits = Some(bytes.trim_ascii_end()).filter(|_| bytes.len() <= KEY_FILE_LEN_MAX);
            digits.and_then(hexadecimal).ok_or_else(|| {
                let more = if bytes.len() > KEY_FILE_LEN_MAX { " and more" } else { "" };
                let (path, len) = (path.display(), bytes.len().min(KEY_FILE_LEN_MAX));
                let expected = "32 bytes or 64 hexadecimal digits";
                Failure::usage(format!("{path} is no key: {expected}, not {len} bytes{more}"))
            })?
        }
    };
    let encryption = Encryption::key(key);
    key.zeroize();
    Ok(encryption)
}

/// A key of hexadecimal digits. Names the variable in messages, and nothing of what it has.
fn key_in_variable(name: &str) -> Result<Encryption, Failure> {
    let Some(value) = std::env::var_os(name) else {
        return Err(Failure::usage(format!("there is no variable {name} in the environment")));
    };
    let value = Zeroizing::new(value.into_encoded_bytes());
    let Some(mut key) = hexadecimal(value.trim_ascii()) else {
        let what = format!("the variable {name} has no key, which is 64 hexadecimal digits");
        return Err(Failure::usage(what));
    };
    let encryption = Encryption::key(key);
    key.zeroize();
    Ok(encryption)
}

fn hexadecimal(digits: &[u8]) -> Option<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    if digits.len() != 2 * KEY_LEN {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(key)
}

/// The first line, without its end; not empty.
fn line_of(file: File, path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // A line that goes on behind that is too long, wherever it ends.
    let most = PASSPHRASE_LEN_MAX + LINE_END_LEN_MAX;
    let mut line = Zeroizing::new(Vec::with_capacity(most));
    let mut reader = BufReader::with_capacity(1, file).take(most as u64);
    reader.read_until(b'\n', &mut line).map_err(input(path))?;
    while line.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
        line.pop();
    }
    checked(line, path)
}

/// A line that can be a passphrase.
fn checked(line: Zeroizing<Vec<u8>>, path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let path = path.display();
    if line.len() > PASSPHRASE_LEN_MAX {
        let what = format!("a passphrase has {PASSPHRASE_LEN_MAX} bytes at most");
        return Err(Failure::usage(format!("{what}, and the one of {path} has more")));
    }
    if std::str::from_utf8(&line).is_err() {
        return Err(Failure::usage(format!("the passphrase of {path} is not UTF-8")));
    }
    if line.is_empty() {
        return Err(Failure::usage(format!("{path} has no passphrase")));
    }
    Ok(line)
}

/// Asks on the terminal, which shows nothing of the answer.
fn prompt(question: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let path = Path::new("/dev/tty");
    let terminal = OpenOptions::new().read(true).write(true).open(path).map_err(|_| {
        Failure::usage("there is no terminal to ask on: use --passphrase-fd or --key-file")
    })?;
    let failed = |error: rustix::io::Errno| input(path)(error.into());
    (&terminal).write_all(question.as_bytes()).map_err(input(path))?;
    let shown = tcgetattr(&terminal).map_err(failed)?;
    let mut hidden = shown.clone();
    // Control-C is a byte meanwhile: a signal would end the program before anything shows again.
    hidden.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden).map_err(failed)?;
    let answer = typed_line(&terminal, path).and_then(|line| checked(line, path));
    tcsetattr(&terminal, OptionalActions::Flush, &shown).map_err(failed)?;
    (&terminal).write_all(b"\n").map_err(input(path))?;
    answer
}

/// A line as it is typed, byte by byte, with what a terminal does to a line while it is typed.
fn typed_line(mut typed: impl Read, path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    const CONTROL_C: u8 = 0x03;
    const CONTROL_D: u8 = 0x04;
    const CONTROL_U: u8 = 0x15;
    const BACKSPACES: [u8; 2] = [0x08, 0x7F];
    // One byte more is too long, and so is what comes behind it.
    let mut line = Zeroizing::new(Vec::with_capacity(PASSPHRASE_LEN_MAX + 1));
    let mut byte = Zeroizing::new([0]);
    loop {
        let count = match typed.read(&mut *byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(input(path))?,
        };
        match byte[0] {
            _ if count == 0 => return Ok(line),
            b'\n' | b'\r' => return Ok(line),
            CONTROL_C => return Err(Failure::Interrupted),
            CONTROL_D if line.is_empty() => return Ok(line),
            CONTROL_U => line.clear(),
            byte if BACKSPACES.contains(&byte) => {
                // A character, with all of its bytes.
                while line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            byte if line.len() <= PASSPHRASE_LEN_MAX => line.push(byte),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passphrase_is_typed_as_other_lines_are() {
        let typed =
            |bytes: &[u8]| typed_line(bytes, Path::new("/dev/tty")).map(|line| line.to_vec());
        for (bytes, expected) in [
            (&b"a b\nc"[..], &b"a b"[..]),
            (b"a\x7fb\x08c\r", b"c"),
            ("\u{e4}\u{20ac}\x7f!\n".as_bytes(), "\u{e4}!".as_bytes()),
            (b"\x7fno\x15yes\n", b"yes"),
            (b"a\x04b\n", b"a\x04b"),
            (b"\x04b\n", b""),
            (b"cut off", b"cut off"),
        ] {
            assert_eq!(typed(bytes).unwrap(), expected);
        }
        assert!(matches!(typed(b"secr\x03et\n"), Err(Failure::Interrupted)));
        let long = [&b"x".repeat(2 * PASSPHRASE_LEN_MAX)[..], b"\n"].concat();
        assert_eq!(typed(&long).unwrap().len(), PASSPHRASE_LEN_MAX + 1);
    }

    #[test]
    fn a_key_of_hexadecimal_digits_is_read_and_nothing_else() {
        let digits = "00ff".repeat(16);
        let key = hexadecimal(digits.as_bytes()).unwrap();
        assert_eq!(key[..4], [0, 255, 0, 255]);
        assert!(hexadecimal(&digits.as_bytes()[1..]).is_none());
        assert!(hexadecimal("g0".repeat(32).as_bytes()).is_none());
    }

    #[test]
    fn one_key_is_named_or_none() {
        let (path, name) = (PathBuf::from("key"), "KEY".to_owned());
        let none = KeyOptions::default();
        assert_eq!(none.source().unwrap(), None);
        let in_file = KeyOptions { file: Some(&path), ..none };
        assert_eq!(in_file.source().unwrap(), Some(KeySource::File(path.clone())));
        let in_variable = KeyOptions { variable: Some(&name), ..none };
        assert_eq!(in_variable.source().unwrap(), Some(KeySource::Variable(name.clone())));
        for several in [
            KeyOptions { prompt: true, ..in_file },
            KeyOptions { variable: Some(&name), ..in_file },
            KeyOptions { passphrase_file: Some(&path), ..in_file },
            KeyOptions { descriptor: Some(3), passphrase_descriptor: Some(4), ..none },
        ] {
            assert!(several.source().is_err(), "{several:?}");
        }
    }
}
