//! Replies, in version 2 or 3 of the protocol.

use super::number::{float_text, put_integer};

/// What is to be sent to a client.
#[derive(Debug)]
pub struct Reply {
    pub bytes: Vec<u8>,
    /// The version that the client has asked for.
    pub version: Version,
}

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Two,
    Three,
}

impl Reply {
    pub fn new() -> Reply {
        Reply { bytes: Vec::new(), version: Version::Two }
    }

    fn is_three(&self) -> bool {
        self.version == Version::Three
    }

    fn head(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        put_integer(&mut self.bytes, number);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An error: its code in front. What would end the line is none of it.
    pub fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let line = text.bytes().map(|byte| if is_break(&byte) { b' ' } else { byte });
        self.bytes.extend(line);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A number of things.
    pub fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }

    /// Whether something was done, as 1 or 0.
    pub fn done(&mut self, done: bool) {
        self.integer(i64::from(done));
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.reserve(bytes.len() + 24);
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Bytes, or that there are none.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes.as_ref()),
            None => self.null(),
        }
    }

    /// Text for people to read.
    pub fn verbatim(&mut self, text: &str) {
        match self.is_three() {
            true => {
                self.head(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
            false => self.text(text),
        }
    }

    pub fn null(&mut self) {
        let null: &[u8] = if self.is_three() { b"_\r\n" } else { b"$-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// No array.
    pub fn null_array(&mut self) {
        let null: &[u8] = if self.is_three() { b"_\r\n" } else { b"*-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    pub fn array(&mut self, count: usize) {
        self.head(b'*', count as i64);
    }

    /// So many keys with their values follow.
    pub fn map(&mut self, count: usize) {
        match self.is_three() {
            true => self.head(b'%', count as i64),
            false => self.array(2 * count),
        }
    }

    pub fn set(&mut self, count: usize) {
        let kind = if self.is_three() { b'~' } else { b'*' };
        self.head(kind, count as i64);
    }

    pub fn double(&mut self, number: f64) {
        let text = float_text(number);
        match self.is_three() {
            true => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
            false => self.text(&text),
        }
    }

    /// Where it is, for [`Reply::back_to`].
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was said since.
    pub fn back_to(&mut self, mark: usize) {
        self.bytes.truncate(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: Version, say: impl Fn(&mut Reply)) -> String {
        let mut reply = Reply { version, ..Reply::new() };
        say(&mut reply);
        String::from_utf8(reply.bytes).unwrap()
    }

    #[test]
    fn each_version_has_its_words() {
        let say = |reply: &mut Reply| {
            reply.map(1);
            reply.text("a");
            reply.double(1.5);
            reply.set(0);
            reply.null();
            reply.null_array();
            reply.verbatim("x");
        };
        assert_eq!(
            said(Version::Two, say),
            "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n*0\r\n$-1\r\n*-1\r\n$1\r\nx\r\n"
        );
        assert_eq!(
            said(Version::Three, say),
            "%1\r\n$1\r\na\r\n,1.5\r\n~0\r\n_\r\n_\r\n=5\r\ntxt:x\r\n"
        );
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(said(Version::Two, |reply| reply.error("ERR a\r\n+OK")), "-ERR a  +OK\r\n");
    }
}
