//! Answers that are lists: whole when they are short, and else sent as they come to be, by a thread
//! that waits for the client and ends when that is gone, or has no right to it any more. Large
//! values are written piece by piece: what JSON makes of one, up to six times as much, is never
//! there as a whole.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use lithedb::{Cursor, Entry, Error, Expiry, SeqNo};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, answer};
use super::body::{Body, BrokenOff, Piece};
use super::failure::{Code, Failure};
use super::standing::Standing;
use super::text::{Alphabet, base64, push_json, push_member};
use crate::moment::time_text;
use crate::room::{NoRoom, Taken};
use crate::server::Shared;

/// Lists with values leave out larger ones unless these are asked for.
pub const SHORT_VALUE_MAX: u64 = 64 << 10;
/// A list of less is sent as a whole.
const WHOLE_MAX: usize = 256 << 10;
/// Bytes of a piece, about.
const PIECE_SIZE: usize = 64 << 10;
/// Pieces that wait for the client.
const PIECES_WAITING_MAX: usize = 2;
/// So much of a large value is written at a time: whole groups of base64.
const PART_SIZE: usize = 48 << 10;
/// A byte of text is at most six of a string of JSON.
const JSON_GROWTH_MAX: usize = 6;
/// How often who waits for room looks for it.
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// Which values a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    None,
    /// Those of up to 64 KiB; of others the size.
    Short,
    Full,
}

/// What `values` may say.
pub const VALUES: &[(&str, Values)] =
    &[("none", Values::None), ("short", Values::Short), ("full", Values::Full)];

/// An entry that is to be written.
#[derive(Debug)]
pub struct EntryRow<'e> {
    pub key: &'e [u8],
    pub value: RowValue<'e>,
    pub stamp: SeqNo,
    pub expiry: Expiry,
}

/// Its value, or how large that is.
#[derive(Debug)]
pub enum RowValue<'e> {
    Bytes(&'e [u8]),
    Size(u64),
    Unsaid,
}

impl<'e> EntryRow<'e> {
    pub fn of(entry: &'e Entry) -> EntryRow<'e> {
        EntryRow {
            key: &entry.key,
            value: RowValue::Bytes(&entry.value),
            stamp: entry.seqno,
            expiry: entry.expiry,
        }
    }

    /// The one that a cursor is on. A value that is not asked for is not read.
    pub fn at(cursor: &'e Cursor, values: Values) -> Result<EntryRow<'e>, Error> {
        let value = match values {
            Values::None => RowValue::Unsaid,
            Values::Short => match cursor.value_len()? {
                size if size > SHORT_VALUE_MAX => RowValue::Size(size),
                _ => RowValue::Bytes(cursor.value()?),
            },
            Values::Full => RowValue::Bytes(cursor.value()?),
        };
        let expiry = Expiry::from(cursor.expires_at());
        Ok(EntryRow { key: cursor.key(), value, stamp: cursor.seqno(), expiry })
    }
}

/// Writes an entry as a JSON object.
pub fn push_entry(sink: &mut Sink, entry: &EntryRow<'_>, values: Values) {
    sink.buffer().push(b'{');
    push_entry_members(sink, entry, values);
    sink.buffer().push(b'}');
}

/// The same without the braces.
pub fn push_entry_members(sink: &mut Sink, entry: &EntryRow<'_>, values: Values) {
    push_member(sink.buffer(), "key", entry.key);
    match entry.value {
        RowValue::Bytes(value)
            if values == Values::Full || value.len() as u64 <= SHORT_VALUE_MAX =>
        {
            sink.buffer().push(b',');
            sink.push_value("value", value);
        }
        RowValue::Bytes(value) => push_size(sink.buffer(), value.len() as u64),
        RowValue::Size(size) => push_size(sink.buffer(), size),
        RowValue::Unsaid => {}
    }
    let out = sink.buffer();
    push_stamp(out, entry.stamp);
    out.extend_from_slice(b",\"expires\":");
    match entry.expiry.time() {
        None => out.extend_from_slice(b"null"),
        Some(time) => push_json(out, &time_text(time)),
    }
}

fn push_size(out: &mut Vec<u8>, size: u64) {
    out.extend_from_slice(format!(",\"value_size\":{size}").as_bytes());
}

pub fn push_stamp(out: &mut Vec<u8>, stamp: SeqNo) {
    out.extend_from_slice(format!(",\"stamp\":\"{}\"", stamp.as_u64()).as_bytes());
}

/// How an answer begins.
#[derive(Debug)]
enum Begun {
    Whole(Vec<u8>),
    Pieces(mpsc::Receiver<Piece>),
    Refused(Failure),
}

/// Where a list is written to.
#[derive(Debug)]
pub struct Sink {
    buffer: Vec<u8>,
    begun: Option<oneshot::Sender<Begun>>,
    pieces: Option<mpsc::Sender<Piece>>,
    deadline: Instant,
    shared: Arc<Shared>,
    standing: Standing,
    /// Why it is broken off, if it is.
    refused: Option<Failure>,
}

impl Sink {
    fn new(ask: &Ask, begun: Option<oneshot::Sender<Begun>>) -> Sink {
        Sink {
            buffer: Vec::new(),
            begun,
            pieces: None,
            deadline: Instant::now() + ask.shared.limits.scan_time,
            shared: Arc::clone(&ask.shared),
            standing: Standing::of(ask),
            refused: None,
        }
    }

    /// What is written next goes to its end.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether the time that a request may scan is over.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Room for a value of so many bytes while it is written. An answer that has begun waits for
    /// it, as long as there is time, and somebody who waits for the answer.
    pub fn room(&self, bytes: usize) -> Result<Taken, Failure> {
        loop {
            match self.shared.http.room.take(bytes) {
                Err(NoRoom::Now) if self.pieces.is_some() => {
                    if self.is_late() || self.is_left() {
                        return Err(Failure::busy());
                    }
                    std::thread::sleep(ROOM_PAUSE);
                }
                taken => return Ok(taken?),
            }
        }
    }

    /// Whether the client of an answer that has begun is gone.
    pub fn is_left(&self) -> bool {
        self.pieces.as_ref().is_some_and(mpsc::Sender::is_closed)
    }

    /// Whether the answer may begin, with a head that says it goes well, when keys and values of so
    /// many bytes are written.
    pub fn may_begin_with(&self, bytes: usize) -> bool {
        let most = bytes.saturating_mul(JSON_GROWTH_MAX).saturating_add(PIECE_SIZE);
        self.begun.is_some() && self.buffer.len().saturating_add(most) >= WHOLE_MAX
    }

    /// Writes a member of a JSON object: `push_member`, in parts where it is large.
    pub fn push_value(&mut self, name: &str, value: &[u8]) {
        if value.len() <= PIECE_SIZE {
            return push_member(&mut self.buffer, name, value);
        }
        match str::from_utf8(value) {
            Ok(text) => {
                self.buffer.extend_from_slice(format!("\"{name}\":\"").as_bytes());
                self.push_text(text);
            }
            Err(_) => {
                self.buffer.extend_from_slice(format!("\"{name}_base64\":\"").as_bytes());
                for part in value.chunks(PART_SIZE) {
                    self.buffer.extend_from_slice(base64(part, Alphabet::Standard).as_bytes());
                    if !self.pass_on() {
                        return;
                    }
                }
            }
        }
        self.buffer.push(b'"');
    }

    /// Writes text as within a string of JSON.
    fn push_text(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.floor_char_boundary(PART_SIZE));
            let quote_at = self.buffer.len();
            push_json(&mut self.buffer, part);
            self.buffer.pop();
            self.buffer.remove(quote_at);
            if !self.pass_on() {
                return;
            }
            rest = behind;
        }
    }

    /// Sends what was written, if that is a piece; waits for the client. Whether there still is
    /// one, and it may have more.
    pub fn pass_on(&mut self) -> bool {
        if self.refused.is_some() || self.is_left() {
            self.buffer.clear();
            return false;
        }
        let size = if self.pieces.is_some() { PIECE_SIZE } else { WHOLE_MAX };
        if self.buffer.len() < size {
            return true;
        }
        if let Err(failure) = self.standing.check() {
            self.refused = Some(failure);
            self.buffer.clear();
            return false;
        }
        match &self.pieces {
            Some(pieces) => {
                let piece = Bytes::from(std::mem::take(&mut self.buffer));
                pieces.blocking_send(Ok(piece)).is_ok()
            }
            None => {
                let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
                let Some(begun) = self.begun.take() else { return true }; // It is to be whole.
                let is_there = begun.send(Begun::Pieces(receiver)).is_ok();
                self.pieces = Some(pieces);
                is_there && self.pass_on()
            }
        }
    }

    /// Whether what was written may be sent: what was refused on the way is not whole.
    fn check(&mut self) -> Result<(), Failure> {
        self.refused.take().map_or_else(|| self.standing.check(), Err)
    }

    /// The list is over. One that was begun and failed is broken off, so that the client sees it.
    fn finish(mut self, done: Result<(), Failure>) {
        let done = done.and(self.check());
        match (self.begun.take(), self.pieces.take()) {
            (Some(begun), _) => {
                let _nobody_waits_if_it_fails = begun.send(match done {
                    Ok(()) => Begun::Whole(self.buffer),
                    Err(failure) => Begun::Refused(failure),
                });
            }
            (None, Some(pieces)) => {
                let last = Ok(Bytes::from(self.buffer));
                let is_there = done.is_err() || pieces.blocking_send(last).is_ok();
                if is_there && done.is_err() {
                    let _nobody_waits_if_it_fails = pieces.blocking_send(Err(BrokenOff));
                }
            }
            (None, None) => {}
        }
    }
}

/// Writes a list on a thread of its own, and answers with it.
pub async fn list(
    ask: &Ask,
    content_type: &'static str,
    write: impl FnOnce(&mut Sink) -> Result<(), Failure> + Send + 'static,
) -> Outcome {
    let (begun, begins) = oneshot::channel();
    let mut sink = Sink::new(ask, Some(begun));
    let work = move |_: &_| {
        let done = write(&mut sink);
        sink.finish(done);
    };
    let _it_ends_by_itself = ask.shared.store.begin(work).map_err(|error| ask.store(&error))?;
    let body = match begins.await {
        Ok(Begun::Whole(bytes)) => return whole(ask, content_type, bytes),
        Ok(Begun::Pieces(pieces)) => Body::pieces(pieces, None),
        Ok(Begun::Refused(failure)) => return Err(failure),
        Err(_) => return Err(Failure::new(Code::Internal, "the server could not do it")),
    };
    Ok(answer(StatusCode::OK, content_type, body))
}

/// Writes a short list here and now.
pub fn short_list(
    ask: &Ask,
    content_type: &'static str,
    write: impl FnOnce(&mut Sink) -> Result<(), Failure>,
) -> Outcome {
    let mut sink = Sink::new(ask, None);
    write(&mut sink)?;
    sink.check()?;
    whole(ask, content_type, sink.buffer)
}

fn whole(ask: &Ask, content_type: &'static str, bytes: Vec<u8>) -> Outcome {
    let room = ask.shared.http.room.take(bytes.len())?;
    let body = Body::whole(Bytes::from(bytes)).in_room(room);
    Ok(answer(StatusCode::OK, content_type, body))
}

/// Makes failures of the engine's errors, on another thread than the request's.
pub fn judge(ask: &Ask) -> impl Fn(&Error) -> Failure + Send + Clone + use<> {
    let (shared, principal) = (Arc::clone(&ask.shared), ask.principal.clone());
    move |error| Failure::of_engine(error, &principal, &shared.store)
}
