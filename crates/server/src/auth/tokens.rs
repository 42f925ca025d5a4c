//! The file of tokens.
//!
//! A token is `lithe_ID_SECRET`: an id of 16 hexadecimal digits, by which it is looked up, and a
//! secret of 64. The file has of each the SHA-256 of its secret, which for 256 random bits is as
//! good as anything slower: there is nothing to guess. One line each, words apart by spaces:
//!
//! ```text
//! lithe tokens 1
//! # comments and empty lines
//! ID DIGEST NAME GRANT [GRANT ..]
//! ```
//!
//! How long a look-up takes tells nothing of secrets, nor whether an id is known: no step of it
//! depends on what was found (`benches/constant_time.rs` measures it).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq, ConstantTimeLess};

use super::{Grant, Principal, Rights};
use crate::secret::is_exposed;

const FIRST_LINE: &str = "lithe tokens 1";
const PREFIX: &str = "lithe_";
const ID_LEN: usize = 8;
const SECRET_LEN: usize = 32;
/// A file of more is none.
const FILE_SIZE_MAX: u64 = 16 << 20;
const NAME_LEN_MAX: usize = 128;

/// The tokens of a file.
#[derive(Debug)]
pub struct Tokens {
    /// By their ids. They are searched in as many steps for each id, be it there or not.
    all: Vec<Token>,
    /// What is compared with where there is none.
    nobody: Token,
}

#[derive(Debug)]
struct Token {
    id: [u8; ID_LEN],
    digest: [u8; 32],
    principal: Principal,
}

/// Why a file has no tokens.
#[derive(Debug)]
#[non_exhaustive]
pub enum TokenFileError {
    /// It cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others than its owner can read or write it.
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A line is none of such a file.
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// What is wrong with it. The line itself is not told.
        what: String,
    },
    /// A token cannot have this name.
    Name {
        /// Which.
        name: String,
    },
    /// There is no randomness.
    Random,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenFileError::Io { path, source } => write!(f, "{}: {source}", path.display()),
            TokenFileError::Exposed { path } => write!(
                f,
                "{} can be read or written by others than its owner: chmod 600",
                path.display()
            ),
            TokenFileError::Line { path, line, what } => {
                write!(f, "{}, line {line}: {what}", path.display())
            }
            TokenFileError::Name { name } => write!(
                f,
                "{name:?} is no name of a token: 1 to {NAME_LEN_MAX} letters, digits and signs \
                 without spaces"
            ),
            TokenFileError::Random => f.write_str("the system gives no random bytes"),
        }
    }
}

impl std::error::Error for TokenFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TokenFileError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, when others could, or when a line is wrong.
    pub fn read(path: &Path) -> Result<Tokens, TokenFileError> {
        let io = |source| TokenFileError::Io { path: path.to_owned(), source };
        if is_exposed(path).map_err(io)? {
            return Err(TokenFileError::Exposed { path: path.to_owned() });
        }
        if std::fs::metadata(path).map_err(io)?.len() > FILE_SIZE_MAX {
            let what = format!("a file of tokens has at most {FILE_SIZE_MAX} bytes");
            return Err(TokenFileError::Line { path: path.to_owned(), line: 1, what });
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Tokens::parse(&text).map_err(|(line, what)| TokenFileError::Line {
            path: path.to_owned(),
            line,
            what,
        })
    }

    pub(super) fn parse(text: &str) -> Result<Tokens, (usize, String)> {
        let mut by_id = BTreeMap::new();
        if text.lines().next() != Some(FIRST_LINE) {
            return Err((1, format!("a file of tokens begins with the line `{FIRST_LINE}`")));
        }
        for (index, line) in text.lines().enumerate().skip(1) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = parse_line(line).map_err(|what| (index + 1, what))?;
            if by_id.insert(token.id, token).is_some() {
                return Err((index + 1, "this id is there twice".to_owned()));
            }
        }
        let principal = Principal::new("", Rights::new(Vec::new()));
        let nobody = Token { id: [0; ID_LEN], digest: [0; 32], principal };
        Ok(Tokens { all: by_id.into_values().collect(), nobody })
    }

    /// Whose token this is. An id that is not known costs what a wrong secret does.
    pub(super) fn find(&self, token: &str) -> Option<Principal> {
        let (id, secret) = split(token)?;
        let at = self.all.partition_point(|token| token.id < id);
        let found = self.all.get(at).unwrap_or(&self.nobody);
        let is_of_id = found.id.ct_eq(&id) & Choice::from(u8::from(at < self.all.len()));
        let is_right = is_of_id & digest_of(&secret).ct_eq(&found.digest);
        bool::from(is_right).then(|| found.principal.clone())
    }

    /// All of them but their secrets, by name.
    #[must_use]
    pub fn list(&self) -> Vec<KnownToken> {
        let known =
            |token: &Token| KnownToken { id: hex(&token.id), principal: token.principal.clone() };
        let mut list: Vec<KnownToken> = self.all.iter().map(known).collect();
        list.sort_by(|one, other| {
            (one.principal.name(), &one.id).cmp(&(other.principal.name(), &other.id))
        });
        list
    }

    /// Takes the tokens with this id or name out of a file, and says how many there were. The file
    /// is written anew beside it and takes its place.
    ///
    /// # Errors
    /// When it cannot be read or written; then it is as it was.
    pub fn remove(path: &Path, id_or_name: &str) -> Result<usize, TokenFileError> {
        Tokens::read(path)?;
        let io = |source| TokenFileError::Io { path: path.to_owned(), source };
        let before = std::fs::read_to_string(path).map_err(io)?;
        let is_of = |line: &&str| {
            let mut words = line.split_whitespace();
            let id = words.next();
            !line.trim_start().starts_with('#')
                && (id == Some(id_or_name) || words.nth(1) == Some(id_or_name))
        };
        let first = before.lines().take(1);
        let kept = first.chain(before.lines().skip(1).filter(|line| !is_of(line)));
        let after: String = kept.map(|line| format!("{line}\n")).collect();
        let count = before.lines().count() - after.lines().count();
        if count > 0 {
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let new = PathBuf::from(new);
            let of_new = |source| TokenFileError::Io { path: new.clone(), source };
            write_private(&new, &after).map_err(of_new)?;
            std::fs::rename(&new, path).map_err(io)?;
        }
        Ok(count)
    }

    /// Number of tokens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

/// A token of a file, as far as a file knows it.
#[derive(Clone, Debug)]
pub struct KnownToken {
    /// What it is looked up by.
    pub id: String,
    /// Whose it is, and what it may do.
    pub principal: Principal,
}

/// A token that was just made. Nobody can be told it again.
pub struct NewToken {
    text: String,
    line: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").finish_non_exhaustive()
    }
}

impl NewToken {
    /// Makes one for somebody.
    ///
    /// # Errors
    /// When the name would not be one word of a line, or the system gives no random bytes.
    pub fn make(name: &str, grants: &[Grant]) -> Result<NewToken, TokenFileError> {
        let is_word = !name.chars().any(|part| part.is_whitespace() || part.is_control());
        if !is_word || !(1..=NAME_LEN_MAX).contains(&name.len()) {
            return Err(TokenFileError::Name { name: name.to_owned() });
        }
        let (mut id, mut secret) = ([0; ID_LEN], [0; SECRET_LEN]);
        getrandom::fill(&mut id).map_err(|_| TokenFileError::Random)?;
        getrandom::fill(&mut secret).map_err(|_| TokenFileError::Random)?;
        let grants: Vec<String> = grants.iter().map(ToString::to_string).collect();
        Ok(NewToken {
            text: format!("{PREFIX}{}_{}", hex(&id), hex(&secret)),
            line: format!("{} {} {name} {}", hex(&id), hex(&digest_of(&secret)), grants.join(" ")),
        })
    }

    /// The token itself.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds its line to a file, which is made if there is none.
    ///
    /// # Errors
    /// When that fails, or others can read the file.
    pub fn add_to(&self, path: &Path) -> Result<(), TokenFileError> {
        use std::io::Write;
        let io = |source| TokenFileError::Io { path: path.to_owned(), source };
        match write_private(path, &format!("{FIRST_LINE}\n{}\n", self.line)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => return written.map_err(io),
        }
        Tokens::read(path)?;
        let before = std::fs::read_to_string(path).map_err(io)?;
        let end = if before.ends_with('\n') { "" } else { "\n" };
        let mut file = std::fs::OpenOptions::new().append(true).open(path).map_err(io)?;
        let line = format!("{end}{}\n", self.line);
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(io)
    }
}

/// Writes a file that nobody else can read; it is not there yet.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn parse_line(line: &str) -> Result<Token, String> {
    let mut words = line.split_whitespace();
    let id = words.next().and_then(from_hex).ok_or("an id of 16 hexadecimal digits is expected")?;
    let digest = words.next().and_then(from_hex);
    let digest = digest.ok_or("a digest of 64 hexadecimal digits is expected behind the id")?;
    let name = words.next().ok_or("a name is expected behind the digest")?;
    let grants: Result<Vec<Grant>, _> = words.map(str::parse).collect();
    let rights = Rights::new(grants.map_err(|error| error.to_string())?);
    Ok(Token { id, digest, principal: Principal::new(name, rights) })
}

fn split(token: &str) -> Option<([u8; ID_LEN], [u8; SECRET_LEN])> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    Some((from_hex(id)?, from_hex(secret)?))
}

fn digest_of(secret: &[u8; SECRET_LEN]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of hexadecimal digits, in a time that depends on their number alone.
fn from_hex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * LEN {
        return None;
    }
    let (mut bytes, mut are_digits) = ([0; LEN], Choice::from(1));
    for (byte, two) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let ((high, is_one), (low, is_another)) = (value_of(two[0]), value_of(two[1]));
        *byte = high << 4 | low;
        are_digits &= is_one & is_another;
    }
    bool::from(are_digits).then_some(bytes)
}

/// What a hexadecimal digit is worth, and whether it is one.
fn value_of(digit: u8) -> (u8, Choice) {
    let decimal = digit.wrapping_sub(b'0');
    let letter = (digit | 0x20).wrapping_sub(b'a');
    let (is_decimal, is_letter) = (decimal.ct_lt(&10), letter.ct_lt(&6));
    let value = u8::conditional_select(&letter.wrapping_add(10), &decimal, is_decimal);
    (value & 0x0F, is_decimal | is_letter)
}
