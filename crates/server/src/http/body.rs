//! Bodies: of requests, within what they may take of memory and time; of answers, whole or as they
//! come to be, counted until their end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};

use super::failure::{Code, Failure};
use super::record::Record;
use crate::config::Limits;
use crate::patience::Patience;
use crate::room::{Room, Taken};

/// Room is reckoned in pieces of this size.
const PIECE: usize = 64 << 10;
/// What nobody wants of a body is waited for so long.
const DISCARD_TIME: Duration = Duration::from_millis(20);
/// Bodies of the largest size that there is room for at a time, in both directions together.
const BODIES_MAX: u64 = 16;

/// Room for large bodies and values.
pub fn room_of(limits: &Limits) -> Room {
    let largest = limits.body_size.max(limits.value_size);
    Room::new(largest.saturating_mul(BODIES_MAX), PIECE)
}

/// The body of a request, and the room that it takes.
#[derive(Debug, Default)]
pub struct Received {
    pub bytes: Bytes,
    pub room: Taken,
}

/// Refuses a body that is announced to be larger than so many bytes.
pub fn check_announced(body: &Incoming, size_max: u64) -> Result<(), Failure> {
    match body.size_hint().lower() > size_max {
        true => Err(too_large(size_max)),
        false => Ok(()),
    }
}

fn too_large(size_max: u64) -> Failure {
    Failure::too_large("bytes of a body", size_max)
}

/// Reads a body of at most so many bytes. Nothing is put aside for what is announced: memory is
/// taken as bytes come (N3). Who sends less than the minimum rate is not waited for. A client that
/// waits to be told so (`Expect: 100-continue`) is asked for it here.
pub async fn receive(
    body: &mut Incoming,
    size_max: u64,
    (room, limits): (&Room, &Limits),
) -> Result<Received, Failure> {
    let mut received = Received::default();
    let mut first: Option<Bytes> = None;
    let mut all: Vec<u8> = Vec::new();
    let mut size = 0_usize;
    let mut patience = Patience::new(limits);
    loop {
        let frame = timeout_at(patience.end(), body.frame())
            .await
            .map_err(|_| Failure::new(Code::Slow, "the body did not come in time"))?;
        let Some(frame) = frame else { break };
        let frame = frame
            .map_err(|_| Failure::new(Code::BadRequest, "the body is not what was announced"))?;
        let Ok(data) = frame.into_data() else { continue }; // Trailers say nothing here.
        size += data.len();
        patience.note(data.len());
        if size as u64 > size_max {
            return Err(too_large(size_max));
        }
        received.room.hold(room, size)?;
        match first.take() {
            None if all.is_empty() => first = Some(data),
            Some(earlier) => {
                all.extend_from_slice(&earlier);
                all.extend_from_slice(&data);
            }
            None => all.extend_from_slice(&data),
        }
    }
    received.bytes = first.unwrap_or_else(|| Bytes::from(all));
    Ok(received)
}

/// Takes what is left of a body that nobody wants, if that is little and there. Whether it was all:
/// else the connection has to end, and a client that still sends might not see the answer.
pub async fn discard(body: &mut Incoming) -> bool {
    let mut size = 0;
    while !body.is_end_stream() {
        match timeout(DISCARD_TIME, body.frame()).await {
            Ok(Some(Ok(frame))) => size += frame.data_ref().map_or(0, Bytes::len),
            Ok(None) => return true,
            Ok(Some(Err(_))) | Err(_) => return false,
        }
        if size > PIECE {
            return false;
        }
    }
    true
}

/// Bytes with the room that they take: until they are sent, or dropped.
pub fn in_room(bytes: Bytes, room: Taken) -> Bytes {
    Bytes::from_owner(InRoom { bytes, _room: room })
}

/// Bytes that have room for as long as they are there.
struct InRoom {
    bytes: Bytes,
    _room: Taken,
}

impl AsRef<[u8]> for InRoom {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer was broken off: the client sees that it is not whole.
#[derive(Debug)]
pub struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer was broken off")
    }
}

impl std::error::Error for BrokenOff {}

/// A piece of an answer, or that there will not be more.
pub type Piece = Result<Bytes, BrokenOff>;

#[derive(Debug)]
enum Content {
    Whole(Option<Bytes>),
    Pieces { pieces: mpsc::Receiver<Piece>, size: Option<u64> },
}

/// The body of an answer.
#[derive(Debug)]
pub struct Body {
    content: Content,
    /// Noted when the body is over, or its client is gone.
    record: Option<Record>,
}

impl Body {
    pub fn empty() -> Body {
        Body::whole(Bytes::new())
    }

    pub fn whole(bytes: Bytes) -> Body {
        let content = Content::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()));
        Body { content, record: None }
    }

    /// Of pieces that come from elsewhere. Dropping the receiver tells the sender that nobody
    /// listens any more.
    pub fn pieces(pieces: mpsc::Receiver<Piece>, size: Option<u64>) -> Body {
        let content = Content::Pieces { pieces, size };
        Body { content, record: None }
    }

    /// With the room that it takes: until its bytes are sent, which is later than that they were
    /// asked for.
    pub fn in_room(mut self, room: Taken) -> Body {
        if let Content::Whole(Some(bytes)) = &mut self.content {
            *bytes = in_room(std::mem::take(bytes), room);
        }
        self
    }

    /// With what is noted at its end.
    pub fn recorded(mut self, record: Record) -> Body {
        self.record = Some(record);
        self
    }

    fn note_sent(&mut self, bytes: &Bytes) {
        if let Some(record) = &mut self.record {
            record.sent += bytes.len() as u64;
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let piece = match &mut self.content {
            Content::Whole(bytes) => bytes.take().map(Ok),
            Content::Pieces { pieces, .. } => match pieces.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(piece) => piece,
            },
        };
        if let Some(Ok(bytes)) = &piece {
            self.note_sent(bytes);
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Pieces { size: Some(size), .. } => SizeHint::with_exact(*size),
            Content::Pieces { size: None, .. } => SizeHint::default(),
        }
    }
}
