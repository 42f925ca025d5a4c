//! Server-sent events: a stream of text that does not end by itself. There is a limited number of
//! them, and each waits for its client.

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::ask::{Ask, Outcome, answer};
use super::body::{Body, Piece};
use super::failure::Failure;

/// Pieces that wait for a client.
const PIECES_WAITING_MAX: usize = 2;

/// A place among those who follow, and where to send to.
#[derive(Debug)]
pub struct Stream {
    pub pieces: mpsc::Sender<Piece>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// Begins one, if there is a place.
    pub fn open(ask: &Ask) -> Result<(Stream, mpsc::Receiver<Piece>), Failure> {
        let feeds = std::sync::Arc::clone(&ask.shared.http.feeds);
        let place = feeds.try_acquire_owned().map_err(|_| Failure::busy())?;
        let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
        Ok((Stream { pieces, _place: place }, receiver))
    }

    /// Sends, from a thread that may wait. Whether there is still somebody.
    pub fn send(&self, text: &mut Vec<u8>) -> bool {
        self.pieces.blocking_send(Ok(Bytes::from(std::mem::take(text)))).is_ok()
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
    out.extend_from_slice(format!("event: {name}\n").as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// Writes what says nothing but that the server is there, and behind which event a client goes on
/// that comes back: one without data is none, but its id counts.
pub fn push_heartbeat(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(format!("id: {id}\n\n").as_bytes());
}
