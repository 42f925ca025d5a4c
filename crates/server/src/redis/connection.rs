//! A connection: bytes in, commands done, bytes out.
//!
//! What has arrived is done before more is read, and what was said is sent before more is done: a
//! client that does not read is not listened to. What it is sent waits in one buffer, which has the
//! replies of one reading, or one large reply.
//!
//! Invariants
//! - K1  Memory grows with bytes that have arrived, never by what a client says will come; that of
//!   all clients together has a limit, and who asks for more is closed: the others are not.
//! - K2  Nothing is sent of what was written before it is as durable as asked for (N1).
//! - K3  What may take long has a turn, of which there are so many, and waits for it without a
//!   thread: those that serve connections are never all at such commands.
//! - K4  A connection that is neither known nor saying anything ends by itself, as does one that
//!   says or takes something too slowly.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::NO_ROOM;
use super::clients::Client;
use super::frame::{FrameError, Parsed, Parser};
use super::reply::Reply;
use super::session::{Follows, Row, Session};
use crate::accept::Connection;
use crate::log::{Level, Said};
use crate::metrics::{Kind, Protocol, Refusal};
use crate::patience::Patience;
use crate::room::{NoRoom, Taken};
use crate::server::Shared;
use crate::stream::Stream;

/// Bytes that there is room for when a client says something.
const READ_MIN: usize = 2 << 10;
const READ_MAX: usize = 64 << 10;
/// What is read at a time of who is not known.
const UNKNOWN_READ: usize = 4 << 10;
/// With so much said, it is sent before more is done.
const SEND_FROM: usize = 256 << 10;
const UNKNOWN_SEND_FROM: usize = 4 << 10;
/// After so long, what was said is sent, and others of the thread have their turn. It is looked at
/// behind so many commands.
const WORK_TIME: Duration = Duration::from_millis(10);
const COMMANDS_A_LOOK: usize = 8;
/// Buffers that are larger are given back when they are empty.
const BUFFER_KEPT: usize = 64 << 10;
/// How long, and how many bytes, the last error has to be read in front of the connection's end.
const LINGER: Duration = Duration::from_millis(200);
const LINGER_BYTES: usize = 256 << 10;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has gone, or asked for it; or the server stops.
    Over,
    /// It was told an error, which it is given time to read.
    Refused,
    Slow,
}

struct Link {
    stream: Stream,
    session: Session,
    parser: Parser,
    input: Vec<u8>,
    /// Room for the input, and for where arguments lie in it.
    held: Taken,
    /// Bytes of the input that are done with.
    taken: usize,
    room: usize,
    /// For the next command, if that may take long.
    turn: Option<OwnedSemaphorePermit>,
    out: Reply,
    /// For the command that is not whole yet.
    frame: Option<Patience>,
    has_said_something: bool,
    began: Duration,
}

pub async fn serve(connection: Connection, shared: Arc<Shared>) {
    let Connection { stream, peer, place: _place } = connection;
    let began = shared.store.began().elapsed();
    let ends = (peer, stream.local_text());
    let entered = shared.redis.clients.enter(ends, began);
    let client = Arc::clone(&entered.client);
    let mut link = Link {
        stream,
        session: Session::new(Arc::clone(&shared), Arc::clone(&client)),
        parser: Parser::default(),
        input: Vec::new(),
        held: Taken::default(),
        taken: 0,
        room: READ_MIN,
        turn: None,
        out: Reply::within(Arc::clone(&shared.redis.room)),
        frame: None,
        has_said_something: false,
        began,
    };
    let end = link.run(&shared, &client).await;
    if end == End::Slow {
        shared.metrics.note_refusal(Refusal::Slow);
    }
    let _it_may_be_gone = link.stream.shutdown().await;
    if end == End::Refused {
        link.linger().await;
    }
}

impl Link {
    async fn run(&mut self, shared: &Shared, client: &Client) -> End {
        let mut draining = std::pin::pin!(shared.draining());
        loop {
            if self.make_room(shared).is_err() {
                self.give_up(shared);
                return self.send(shared, client).await.err().unwrap_or(End::Refused);
            }
            let wait = self.patience(shared);
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => read,
                () = client.killed() => return End::Over,
                () = &mut draining => return End::Over,
                () = sleep(wait) => return End::Slow,
            };
            let Ok(count @ 1..) = read else { return End::Over };
            self.frame.get_or_insert_with(|| Patience::new(&shared.limits)).note(count);
            self.has_said_something = true;
            self.session.look_again();
            if let Err(end) = self.answer(shared, client, count).await {
                return end;
            }
        }
    }

    /// Room for what comes (K1): twice as much as the last time, if that was filled; less where
    /// there is not so much.
    fn make_room(&mut self, shared: &Shared) -> Result<(), NoRoom> {
        if self.input.is_empty() && self.input.capacity() > BUFFER_KEPT {
            self.input = Vec::new();
        }
        let is_unknown = self.session.principal.is_none();
        let room = if is_unknown { self.room.min(UNKNOWN_READ) } else { self.room };
        let (capacity, len) = (self.input.capacity(), self.input.len());
        let wanted = match capacity - len < room / 2 {
            false => [capacity, capacity],
            true if is_unknown => [len + room, len + room],
            true if capacity > len => [(len + room).max(2 * capacity), capacity],
            true => [(len + room).max(2 * capacity), len + READ_MIN.max(len / 8)],
        };
        let mut hold = |wanted: usize| {
            let bytes = wanted + self.parser.memory();
            self.held.hold(&shared.redis.room, bytes).map(|()| wanted)
        };
        let [most, least] = wanted;
        let wanted = hold(most).or_else(|_| hold(least))?;
        self.input.reserve_exact(wanted - len);
        Ok(())
    }

    /// What the client wants more memory for is not done; it is told so at last.
    fn give_up(&mut self, shared: &Shared) {
        shared.metrics.note_refusal(Refusal::Busy);
        self.out.last_words(NO_ROOM);
    }

    /// How long a client may say nothing; `None` if as long as it likes.
    fn patience(&self, shared: &Shared) -> Option<Duration> {
        let limits = &shared.limits;
        let now = shared.store.began().elapsed();
        let left = |since: Duration, allowed: Duration| (since + allowed).saturating_sub(now);
        let mut patience = None;
        if let Some(frame) = &self.frame {
            patience = Some(frame.end().saturating_duration_since(Instant::now()));
        } else if !self.has_said_something {
            patience = Some(left(self.began, limits.first_byte));
        }
        if self.session.principal.is_none() {
            let all = left(self.session.unknown_since, limits.idle);
            patience = Some(patience.map_or(all, |patience| patience.min(all)));
        }
        patience
    }

    /// Does all commands that have arrived, and sends what came of them.
    async fn answer(&mut self, shared: &Shared, client: &Client, count: usize) -> Result<(), End> {
        let mut received = count as u64;
        if count >= self.room / 2 {
            self.room = (self.room * 2).min(READ_MAX);
        }
        loop {
            let began = shared.store.began().elapsed();
            let done = self.work(shared);
            if std::mem::take(&mut self.session.has_written)
                && let Err(why) = shared.store.settle(None).await
            {
                // It is not known which of them is durable: none of them is said to be (K2).
                self.out.back_to(0);
                self.out.last_words("ERR whether this is durable is not known");
                shared.log.line(Level::Error, "a sync failed", &[("why", Said::Text(&why.0))]);
                self.send(shared, client).await?;
                return Err(End::Refused);
            }
            if done == Progress::NoRoom {
                self.give_up(shared);
            }
            let sent = self.out.bytes.len() as u64;
            self.note(shared, began, (std::mem::take(&mut received), sent));
            self.session.show(self.out.version);
            self.send(shared, client).await?;
            if self.session.is_over || client.is_killed() {
                return Err(End::Refused);
            }
            match done {
                Progress::More => tokio::task::yield_now().await,
                Progress::Turn => self.wait_for_turn(shared, client).await?,
                Progress::Over => return Ok(()),
                Progress::NoRoom => return Err(End::Refused),
                Progress::Error(error) => {
                    shared.metrics.note_refusal(match error.is_size() {
                        true => Refusal::Size,
                        false => Refusal::Malformed,
                    });
                    if error == FrameError::Http {
                        return Err(End::Over);
                    }
                    self.out.error(&format!("ERR Protocol error: {}", error.text()));
                    self.send(shared, client).await?;
                    return Err(End::Refused);
                }
            }
        }
    }

    /// Waits for the turn of the next command, which may take long, for as long as a request may
    /// scan (K3). What was said before it has been sent.
    async fn wait_for_turn(&mut self, shared: &Shared, client: &Client) -> Result<(), End> {
        let turn = Arc::clone(&shared.redis.slow).acquire_owned();
        self.turn = tokio::select! {
            biased;
            turn = turn => turn.ok(),
            () = client.killed() => return Err(End::Over),
            () = tokio::time::sleep(shared.limits.scan_time) => None,
        };
        if self.turn.is_none() {
            shared.metrics.note_refusal(Refusal::Busy);
            self.out.last_words("BUSY there is too much to do at the moment");
            self.send(shared, client).await?;
            return Err(End::Refused);
        }
        Ok(())
    }

    /// Does commands, until there are no more or enough was said.
    fn work(&mut self, shared: &Shared) -> Progress {
        let mut row = Row::new(&shared.redis.databases);
        let (mut count, began) = (0, shared.store.began().elapsed());
        let progress = loop {
            let is_unknown = self.session.principal.is_none();
            let enough = if is_unknown { UNKNOWN_SEND_FROM } else { SEND_FROM };
            let is_enough = self.out.bytes.len() >= enough;
            if is_enough || count >= shared.limits.pipeline_count {
                break Progress::More;
            }
            if count % COMMANDS_A_LOOK == COMMANDS_A_LOOK - 1
                && shared.store.began().elapsed().saturating_sub(began) > WORK_TIME
            {
                break Progress::More;
            }
            if self.session.is_over {
                break Progress::Over;
            }
            let limits = self.session.frame_limits();
            let bytes = &self.input[self.taken..];
            match self.parser.advance(bytes, &limits) {
                Parsed::Need(_) => break Progress::Over,
                Parsed::Nothing(len) => self.taken += len,
                Parsed::Error(error) => break Progress::Error(error),
                Parsed::Command(len) => {
                    let args = self.parser.args(bytes);
                    let takes_long = self.session.takes_long(args);
                    let turn = takes_long.then(|| self.turn.take().or_else(|| turn(shared)));
                    if turn.as_ref().is_some_and(Option::is_none) {
                        self.parser.reset(); // It is read again.
                        break Progress::Turn;
                    }
                    let has_more = bytes.len() > len;
                    let follows = if has_more { Follows::Something } else { Follows::Nothing };
                    self.session.execute(args, follows, &mut self.out, &mut row);
                    drop(turn);
                    self.taken += len;
                    count += 1;
                }
            }
            self.parser.reset();
            if self.out.is_refused() {
                break Progress::NoRoom;
            }
        };
        self.session.finish(&mut row, &mut self.out);
        let progress = if self.out.is_refused() { Progress::NoRoom } else { progress };
        if !matches!(progress, Progress::More | Progress::Turn) {
            // The place in the frame counts from its start, which moves to the front.
            self.input.drain(..self.taken);
            let has_rest = !self.input.is_empty();
            if self.taken > 0 || !has_rest {
                self.frame = has_rest.then(|| Patience::new(&shared.limits));
            }
            self.taken = 0;
        }
        self.session.sweep_if_due();
        progress
    }

    fn note(&mut self, shared: &Shared, began: Duration, (received, sent): (u64, u64)) {
        let metrics = &shared.metrics;
        metrics.note_bytes(Protocol::Redis, received, sent);
        let count: u32 = self.session.kinds.iter().sum();
        let took = shared.store.began().elapsed().saturating_sub(began);
        let each = took.checked_div(count).unwrap_or(took);
        for ((kind, _), count) in Kind::ALL.iter().zip(std::mem::take(&mut self.session.kinds)) {
            (0..count).for_each(|_| metrics.note_request(Protocol::Redis, *kind, each));
        }
        self.log(shared, took);
    }

    /// A line for each command. Of those that came together the time is that of all, divided.
    fn log(&mut self, shared: &Shared, took: Duration) {
        let commands = std::mem::take(&mut self.session.to_log);
        let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
        let micros = took.checked_div(count).unwrap_or(took).as_micros();
        let who = self.session.principal.as_ref().map_or("", |who| who.name());
        for (name, error) in commands {
            let fields = [
                ("command", Said::Text(&name)),
                ("code", Said::Text(&error.as_deref().unwrap_or_default())),
                ("micros", Said::Number(u64::try_from(micros).unwrap_or(u64::MAX))),
                ("together", Said::Number(count.into())),
                ("principal", Said::Text(&who)),
                ("peer", Said::Text(&self.session.client.peer)),
            ];
            shared.log.line(Level::Info, "command", &fields);
        }
    }

    /// Sends what was said, to who takes it fast enough.
    async fn send(&mut self, shared: &Shared, client: &Client) -> Result<(), End> {
        let limits = &shared.limits;
        let bytes = &self.out.bytes;
        let mut patience = Patience::new(limits);
        let mut sent = 0;
        while sent < bytes.len() {
            let wrote = tokio::select! {
                biased;
                wrote = self.stream.write(&bytes[sent..]) => wrote,
                () = client.killed() => return Err(End::Over),
                () = tokio::time::sleep_until(patience.end()) => return Err(End::Slow),
            };
            match wrote {
                Ok(count @ 1..) => {
                    sent += count;
                    patience.note(count);
                }
                Ok(0) | Err(_) => return Err(End::Over),
            }
        }
        if let Stream::Tls(stream) = &mut self.stream {
            let flushed = tokio::time::timeout(limits.first_byte, stream.flush()).await;
            match flushed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(End::Over),
                Err(_) => return Err(End::Slow),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Reads a little of what is still on its way: closing at once would take the error back.
    async fn linger(&mut self) {
        let mut bytes = 0;
        let mut dropped = [0; 1 << 10];
        let read = async {
            while let Ok(count @ 1..) = self.stream.read(&mut dropped).await {
                bytes += count;
                if bytes > LINGER_BYTES {
                    break;
                }
            }
        };
        let _it_had_its_time = tokio::time::timeout(LINGER, read).await;
    }
}

/// How far the commands are that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// There is more to do when this is sent.
    More,
    /// The next command may take long, and it is not its turn.
    Turn,
    /// The rest is not whole yet.
    Over,
    /// There is no memory for what is to be said.
    NoRoom,
    Error(FrameError),
}

/// A turn of what may take long, if there is one.
fn turn(shared: &Shared) -> Option<OwnedSemaphorePermit> {
    Arc::clone(&shared.redis.slow).try_acquire_owned().ok()
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
