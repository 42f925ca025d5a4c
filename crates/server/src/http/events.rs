//! Server-sent events: a stream of text that does not end by itself. There is a limited number of
//! them, and each waits for its client; what waits with it is in the room that all answers have.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use super::ask::{Ask, Outcome, answer};
use super::body::{Body, Piece, in_room};
use super::failure::Failure;
use crate::room::{NoRoom, Taken};
use crate::server::Shared;

/// Pieces that wait for a client.
const PIECES_WAITING_MAX: usize = 2;
/// How often who waits for room looks for it.
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// What is to be sent next, and the room that it takes.
#[derive(Debug, Default)]
pub struct Text {
    pub bytes: Vec<u8>,
    pub room: Taken,
}

/// A place among those who follow, and where to send to.
#[derive(Debug)]
pub struct Stream {
    pub pieces: mpsc::Sender<Piece>,
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Begins one, if there is a place.
    pub fn open(ask: &Ask) -> Result<(Stream, mpsc::Receiver<Piece>), Failure> {
        let shared = Arc::clone(&ask.shared);
        let feeds = Arc::clone(&shared.http.feeds);
        let place = feeds.try_acquire_owned().map_err(|_| Failure::busy())?;
        let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
        Ok((Stream { pieces, shared, _place: place }, receiver))
    }

    /// Sends, from a thread that may wait. Whether there is still somebody.
    pub fn send(&self, text: &mut Text) -> bool {
        let Text { bytes, room } = std::mem::take(text);
        self.pieces.blocking_send(Ok(in_room(Bytes::from(bytes), room))).is_ok()
    }

    /// Waits, on a thread that may, for room for so many bytes: as long as a client is waited for
    /// that takes nothing. `None` when there is nobody any more, or it is not to go on.
    pub fn wait_for_room(
        &self,
        bytes: usize,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Taken>, NoRoom> {
        let until = Instant::now() + self.shared.limits.first_byte;
        loop {
            if self.is_over() || !goes_on() {
                return Ok(None);
            }
            match self.shared.http.room.take(bytes) {
                Err(NoRoom::Now) if Instant::now() < until => std::thread::sleep(ROOM_PAUSE),
                taken => return taken.map(Some),
            }
        }
    }

    /// Whether the client is gone.
    pub fn is_over(&self) -> bool {
        self.pieces.is_closed()
    }
}

/// The answer that has the stream.
pub fn stream_answer(receiver: mpsc::Receiver<Piece>) -> Outcome {
    Ok(answer(StatusCode::OK, "text/event-stream", Body::pieces(receiver, None)))
}

/// Writes an event; `data` has no line ends, as JSON.
pub fn push_event(out: &mut Vec<u8>, name: &str, id: Option<&str>, data: &[u8]) {
    begin_event(out, name, id);
    out.extend_from_slice(data);
    end_event(out);
}

/// Writes an event up to its data, which follows, and then [`end_event`].
pub fn begin_event(out: &mut Vec<u8>, name: &str, id: Option<&str>) {
    out.extend_from_slice(format!("event: {name}\n").as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
}

pub fn end_event(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n\n");
}

/// Writes what says nothing but that the server is there, and behind which event a client goes on
/// that comes back: one without data is none, but its id counts.
pub fn push_heartbeat(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(format!("id: {id}\n\n").as_bytes());
}
