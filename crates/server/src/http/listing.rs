//! Answers that are lists: whole when they are short, and else sent as they come to be, by a thread
//! that waits for the client and ends when that is gone.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;
use lithedb::{Cursor, Entry, Error, Expiry, SeqNo};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, answer};
use super::body::{Body, BrokenOff, Piece};
use super::failure::{Code, Failure};
use super::moment::time_text;
use super::text::{push_json, push_member};

/// Lists with values leave out larger ones unless these are asked for.
pub const SHORT_VALUE_MAX: u64 = 64 << 10;
/// A list of less is sent as a whole.
const WHOLE_MAX: usize = 256 << 10;
/// Bytes of a piece, about.
const PIECE_SIZE: usize = 64 << 10;
/// Pieces that wait for the client.
const PIECES_WAITING_MAX: usize = 2;

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
pub fn push_entry(out: &mut Vec<u8>, entry: &EntryRow<'_>, values: Values) {
    out.push(b'{');
    push_entry_members(out, entry, values);
    out.push(b'}');
}

/// The same without the braces.
pub fn push_entry_members(out: &mut Vec<u8>, entry: &EntryRow<'_>, values: Values) {
    push_member(out, "key", entry.key);
    match entry.value {
        RowValue::Bytes(value)
            if values == Values::Full || value.len() as u64 <= SHORT_VALUE_MAX =>
        {
            out.push(b',');
            push_member(out, "value", value);
        }
        RowValue::Bytes(value) => push_size(out, value.len() as u64),
        RowValue::Size(size) => push_size(out, size),
        RowValue::Unsaid => {}
    }
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
}

impl Sink {
    /// What is written next goes to its end.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether the time that a request may scan is over.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sends what was written, if that is a piece; waits for the client. Whether there still is
    /// one.
    pub fn pass_on(&mut self) -> bool {
        match &self.pieces {
            None if self.buffer.len() < WHOLE_MAX => true,
            Some(_) if self.buffer.len() < PIECE_SIZE => true,
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

    /// The list is over. One that was begun and failed is broken off, so that the client sees it.
    fn finish(mut self, done: Result<(), Failure>) {
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
    let deadline = Instant::now() + ask.shared.limits.scan_time;
    let work = move |_: &_| {
        let mut sink = Sink { buffer: Vec::new(), begun: Some(begun), pieces: None, deadline };
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
    let deadline = Instant::now() + ask.shared.limits.scan_time;
    let mut sink = Sink { buffer: Vec::new(), begun: None, pieces: None, deadline };
    write(&mut sink)?;
    whole(ask, content_type, sink.buffer)
}

fn whole(ask: &Ask, content_type: &'static str, bytes: Vec<u8>) -> Outcome {
    let room = ask.shared.http.room.take(bytes.len()).ok_or_else(Failure::busy)?;
    let body = Body::whole(Bytes::from(bytes)).in_room(room);
    Ok(answer(StatusCode::OK, content_type, body))
}

/// Makes failures of the engine's errors, on another thread than the request's.
pub fn judge(ask: &Ask) -> impl Fn(&Error) -> Failure + Send + Clone + use<> {
    let (shared, principal) = (Arc::clone(&ask.shared), ask.principal.clone());
    move |error| Failure::of_engine(error, &principal, &shared.store)
}
