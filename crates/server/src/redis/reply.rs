//! Replies, in version 2 or 3 of the protocol.
//!
//! Invariants
//! - P1  What is to be sent grows within the room that all clients have. Where there is none left
//!   nothing more is said but [`Reply::last_words`], and the connection has to end: a reply that is
//!   not whole is never sent.

use std::sync::Arc;

use super::number::{float_text, put_integer};
use crate::room::{Room, Taken};

/// A kind, a number and an end of a line are at most so long.
const HEAD_SIZE_MAX: usize = 24;
/// What is kept for more of it, when all of it was sent.
const KEPT_MAX: usize = 64 << 10;

/// What is to be sent to a client.
#[derive(Debug)]
pub struct Reply {
    pub bytes: Vec<u8>,
    /// The version that the client has asked for.
    pub version: Version,
    /// The room that it takes; without one it takes what it needs.
    room: Option<Arc<Room>>,
    held: Taken,
    is_refused: bool,
}

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Two,
    Three,
}

impl Reply {
    pub fn new() -> Reply {
        Reply {
            bytes: Vec::new(),
            version: Version::Two,
            room: None,
            held: Taken::default(),
            is_refused: false,
        }
    }

    /// One that takes of this room.
    pub fn within(room: Arc<Room>) -> Reply {
        Reply { room: Some(room), ..Reply::new() }
    }

    /// Whether there was no room for something: then it, and whatever followed, was not said.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Whether so many more bytes may be said, for which there is memory then (P1).
    fn may_grow(&mut self, more: usize) -> bool {
        let needed = self.bytes.len() + more;
        if needed <= self.bytes.capacity() && !self.is_refused {
            return true;
        }
        let Some(room) = self.room.as_ref().filter(|_| !self.is_refused) else {
            return !self.is_refused;
        };
        // By a share of what there is, so that it is not copied again and again.
        for capacity in [needed.max(2 * self.bytes.capacity()), needed + needed / 8] {
            if self.held.hold(room, capacity).is_ok() {
                self.bytes.reserve_exact(capacity - self.bytes.len());
                return true;
            }
        }
        self.is_refused = true;
        false
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.may_grow(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The last that is said to a client, whatever room there is.
    pub fn last_words(&mut self, text: &str) {
        self.is_refused = false;
        self.room = None;
        self.error(text);
    }

    /// All of it was sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_MAX {
            self.bytes = Vec::new();
        }
        if let Some(room) = &self.room {
            let _less_is_always_there = self.held.hold(room, self.bytes.capacity());
        }
    }

    fn is_three(&self) -> bool {
        self.version == Version::Three
    }

    fn head(&mut self, kind: u8, number: i64) {
        if self.may_grow(HEAD_SIZE_MAX) {
            self.bytes.push(kind);
            put_integer(&mut self.bytes, number);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// A head that says how many bytes follow, the bytes, and an end of a line.
    fn long(&mut self, kind: u8, parts: &[&[u8]]) {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if self.may_grow(size + HEAD_SIZE_MAX + 2) {
            self.head(kind, size as i64);
            parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        if self.may_grow(text.len() + 3) {
            self.bytes.push(kind);
            self.bytes.extend_from_slice(text);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    pub fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: its code in front. What would end the line is none of it.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
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
        self.long(b'$', &[bytes]);
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
            true => self.long(b'=', &[b"txt:", text.as_bytes()]),
            false => self.text(text),
        }
    }

    pub fn null(&mut self) {
        let null: &[u8] = if self.is_three() { b"_\r\n" } else { b"$-1\r\n" };
        self.put(null);
    }

    /// No array.
    pub fn null_array(&mut self) {
        let null: &[u8] = if self.is_three() { b"_\r\n" } else { b"*-1\r\n" };
        self.put(null);
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
            true => self.line(b',', text.as_bytes()),
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
    fn what_there_is_no_room_for_is_not_said_and_nothing_behind_it() {
        let room = Arc::new(Room::new(16 << 10, 4 << 10));
        let mut reply = Reply::within(Arc::clone(&room));
        reply.bulk(&[b'x'; 9 << 10]);
        let mark = reply.mark();
        assert!(!reply.is_refused() && room.taken() >= 8 << 10);
        reply.array(2);
        reply.bulk(&[b'x'; 9 << 10]);
        reply.ok();
        reply.null();
        reply.integer(1);
        assert!(reply.is_refused());
        reply.back_to(mark);
        reply.last_words("ERR no more");
        assert!(reply.bytes[mark..] == *b"-ERR no more\r\n");
        drop(reply);
        assert_eq!(room.taken(), 0);
        let mut reply = Reply::within(Arc::clone(&room));
        (0..1000).for_each(|_| reply.text("0123456789"));
        assert!(!reply.is_refused() && reply.bytes.len() == 17_000);
        reply.clear();
        assert_eq!(room.taken(), reply.bytes.capacity() as u64 / 4096 * 4096);
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(said(Version::Two, |reply| reply.error("ERR a\r\n+OK")), "-ERR a  +OK\r\n");
    }
}
