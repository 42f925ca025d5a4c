//! The change feed as server-sent events: commits behind a stamp, and those to come. The id of an
//! event is the commit's stamp, so that a client that comes back goes on where it was.
//!
//! A commit may be large, and who does not take it keeps it in memory: so it is written only where
//! there is room for it among all answers, and not kept while that is waited for. When there is
//! none in the time that a client is waited for, the feed ends, and can be gone on with.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderName;
use lithedb::{
    Change, ChangeFeed, ChangeKind, CommitChanges, Error, FeedOptions, Keyspace, PointInTime,
    Previous, SeqNo,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ask::{Ask, Outcome};
use super::events::{
    Stream, Text, begin_event, end_event, push_event, push_heartbeat, stream_answer,
};
use super::failure::{Code, Failure};
use super::listing::SHORT_VALUE_MAX;
use super::standing::{LOOK_EVERY, Standing, gone};
use super::text::{json_size_max, push_json, push_member};
use crate::auth::{Principal, Verb};
use crate::moment::{millis_text, parse_stamp};
use crate::server::Shared;

const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// Commits that are there are sent together up to this size.
const PIECE_SIZE: usize = 64 << 10;
/// Bytes of values that an event has at most; of others their sizes.
const EVENT_VALUES_MAX: u64 = 1 << 20;
/// What an event takes besides what it tells of, and a change, at most.
const EVENT_OVERHEAD: usize = 256;
const CHANGE_OVERHEAD: usize = 256;

const YES_NO: &[(&str, bool)] = &[("true", true), ("false", false)];

/// What a client follows, and as whom.
struct Following {
    shared: Arc<Shared>,
    principal: Principal,
    standing: Standing,
    keyspaces: Followed,
    previous: bool,
}

/// Which keyspaces are followed.
#[derive(Clone, Debug)]
enum Followed {
    All,
    These(Vec<Keyspace>),
    /// Those that may be read, those that will be made among them.
    Readable,
}

/// `GET /v1/changes`
pub async fn follow(ask: &mut Ask) -> Outcome {
    let keyspaces = keyspaces(ask)?;
    let previous = ask.query.choice("previous", YES_NO)?.unwrap_or(false);
    let since = since(ask)?;
    let following = Following {
        shared: Arc::clone(&ask.shared),
        principal: ask.principal.clone(),
        standing: Standing::of(ask),
        keyspaces,
        previous,
    };
    let (stream, receiver) = Stream::open(ask)?;
    let (begun, begins) = oneshot::channel();
    let _it_ends_with_its_client = tokio::task::spawn_blocking(move || {
        following.run(since, &stream, begun);
    });
    match begins.await {
        Ok(Ok(())) => stream_answer(receiver),
        Ok(Err(error)) => Err(ask.engine(&error)),
        Err(_) => Err(Failure::new(Code::Internal, "the server could not do it")),
    }
}

/// Those that are to be followed: the ones that are named, or all that may be read.
fn keyspaces(ask: &Ask) -> Result<Followed, Failure> {
    if let Some(names) = ask.query.text("keyspaces")? {
        let named = names.split(',').map(|name| ask.keyspace_named(Verb::Read, name));
        return named.collect::<Result<_, _>>().map(Followed::These);
    }
    Ok(match ask.principal.may_with_all(Verb::Read) {
        true => Followed::All,
        false => Followed::Readable,
    })
}

/// From where on: what the client has seen last; or what it says; or now.
fn since(ask: &Ask) -> Result<PointInTime, Failure> {
    let asked = ask.query.moment("since")?;
    let last = ask.headers.get(HeaderName::from_static("last-event-id"));
    let last = last.filter(|last| !last.is_empty());
    if let Some(last) = last {
        let stamp = last.to_str().ok().and_then(|last| parse_stamp(last).ok());
        let wrong = || Failure::new(Code::BadRequest, "Last-Event-ID: the id of an event");
        return stamp.map(PointInTime::Stamp).ok_or_else(wrong);
    }
    Ok(asked.unwrap_or_else(|| PointInTime::Stamp(ask.shared.store.db().snapshot().seqno())))
}

impl Following {
    /// Those of the keyspaces that are there; `None` for all.
    fn present(&self) -> Option<Vec<Keyspace>> {
        match &self.keyspaces {
            Followed::All => None,
            Followed::These(keyspaces) => Some(keyspaces.clone()),
            Followed::Readable => {
                let store = &self.shared.store;
                let infos = store.db().keyspaces().into_iter();
                let readable = infos.filter(|info| self.principal.may(Verb::Read, &info.name));
                // One that is dropped meanwhile is not followed.
                Some(readable.filter_map(|info| store.keyspace(&info.name).ok()).collect())
            }
        }
    }

    fn open(&self, since: PointInTime) -> Result<Feed, Error> {
        let mut options = FeedOptions::new().previous_values(self.previous);
        let keyspaces = self.present();
        let ids = keyspaces.iter().flatten().map(Keyspace::id).collect();
        if let Some(keyspaces) = &keyspaces {
            options = options.keyspaces(keyspaces);
        }
        Ok(Feed { commits: self.shared.store.db().changes(since, options)?, ids })
    }

    /// Whether there are keyspaces that may be read and are not followed, or others that are.
    fn is_stale(&self, feed: &Feed) -> bool {
        matches!(self.keyspaces, Followed::Readable)
            && self.present().iter().flatten().map(Keyspace::id).ne(feed.ids.iter().copied())
    }

    fn run(&self, since: PointInTime, stream: &Stream, begun: oneshot::Sender<Result<(), Error>>) {
        let mut out = Text::default();
        let opened = match self.open(since) {
            Err(Error::CommitsNotKept { oldest }) => self.pass_gap(oldest, &mut out.bytes),
            opened => opened,
        };
        let mut feed = match opened {
            Ok(feed) => feed,
            Err(error) => {
                let _nobody_waits_if_it_fails = begun.send(Err(error));
                return;
            }
        };
        // So that the client sees that it is there, and where.
        push_heartbeat(&mut out.bytes, &position(&feed));
        if begun.send(Ok(())).is_err() || !stream.send(&mut out) {
            return;
        }
        let mut last_sent = Instant::now();
        while !stream.is_over() {
            let going_on = match self.end() {
                Some(why) => Err(why),
                None => self.go_on(&mut feed, stream, &mut out),
            };
            if let Err(why) = going_on {
                push_end(&mut out.bytes, &why);
                let _nobody_waits_if_it_fails = stream.send(&mut out);
                return;
            }
            if out.bytes.is_empty() && last_sent.elapsed() >= HEARTBEAT_EVERY {
                push_heartbeat(&mut out.bytes, &position(&feed));
            }
            if !out.bytes.is_empty() {
                if !stream.send(&mut out) {
                    return;
                }
                last_sent = Instant::now();
            }
        }
    }

    /// Why the feed has to end, if it has.
    fn end(&self) -> Option<Failure> {
        match self.shared.is_serving() {
            false => Some(Failure::new(Code::Closing, "the server ends")),
            true => (!self.standing.holds()).then(gone),
        }
    }

    /// Waits a while for commits. Those that were not kept are told as a gap, and others behind it
    /// shown; what else fails ends the feed.
    fn go_on(&self, feed: &mut Feed, stream: &Stream, out: &mut Text) -> Result<(), Failure> {
        let (before, len) = (feed.commits.position(), out.bytes.len());
        let mut done = match self.gather(feed, stream, out) {
            Err(Stop::NoRoom) => return Err(Failure::busy()),
            Err(Stop::Engine(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        // A keyspace is there before there are commits of it: what was passed over is looked at
        // again with all that are there now, and nothing of it was sent.
        if self.is_stale(feed) {
            out.bytes.truncate(len);
            done = self.open(PointInTime::Stamp(before)).map(|opened| *feed = opened);
        }
        let done = match done {
            Err(Error::CommitsNotKept { oldest }) => {
                self.pass_gap(oldest, &mut out.bytes).map(|another| *feed = another)
            }
            done => done,
        };
        done.map_err(|error| Failure::of_engine(&error, &self.principal, &self.shared.store))
    }

    /// Goes on with the oldest that is kept.
    fn pass_gap(&self, oldest: Option<SeqNo>, out: &mut Vec<u8>) -> Result<Feed, Error> {
        let now = self.shared.store.db().snapshot().seqno();
        let before = |oldest: SeqNo| SeqNo::from_u64(oldest.as_u64().saturating_sub(1));
        let since = oldest.map_or(now, before).min(now);
        let feed = self.open(PointInTime::Stamp(since))?;
        let stamp = since.as_u64().to_string();
        let data = json!({
            "stamp": stamp,
            "message": "commits up to here are not kept any more, and were left out",
        });
        push_event(out, "gap", Some(&stamp), data.to_string().as_bytes());
        Ok(feed)
    }

    /// Waits a while for a commit, and takes others that are there, and that there is room for.
    fn gather(&self, feed: &mut Feed, stream: &Stream, out: &mut Text) -> Result<(), Stop> {
        let room = &self.shared.http.room;
        let mut wait = LOOK_EVERY;
        loop {
            let before = feed.commits.position();
            let Some(commit) = feed.commits.wait(wait)? else { return Ok(()) };
            wait = Duration::ZERO;
            // One that is larger than all of the room has all of it.
            let size = self.size_max(&commit).saturating_add(out.bytes.len());
            let size = size.min(usize::try_from(room.size()).unwrap_or(usize::MAX));
            if out.room.hold(room, size).is_err() {
                // It is not kept for as long as others take the room: it can be read again.
                drop(commit);
                *feed = self.open(PointInTime::Stamp(before))?;
                if !out.bytes.is_empty() {
                    return Ok(()); // What there is goes first.
                }
                match stream.wait_for_room(size, || self.end().is_none()) {
                    Ok(Some(taken)) => out.room = taken,
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(Stop::NoRoom),
                }
                continue;
            }
            self.push_commit(&mut out.bytes, &commit);
            if out.bytes.capacity() > 2 * PIECE_SIZE {
                out.bytes.shrink_to_fit();
            }
            let _less_is_always_there = out.room.hold(room, out.bytes.len());
            if out.bytes.len() >= PIECE_SIZE {
                return Ok(());
            }
        }
    }

    /// What the event of a commit takes at most.
    fn size_max(&self, commit: &CommitChanges) -> usize {
        let mut budget = EVENT_VALUES_MAX;
        let mut value_size = |value: &[u8]| match is_told(value, &mut budget) {
            true => json_size_max(value),
            false => 0,
        };
        let mut size = EVENT_OVERHEAD + commit.payload.as_deref().map_or(0, json_size_max);
        for change in commit.changes.iter().filter(|change| self.may_show(change)) {
            let name = change.keyspace.as_deref().unwrap_or_default();
            size += CHANGE_OVERHEAD + json_size_max(name.as_bytes());
            size += match &change.kind {
                ChangeKind::Put { key, value, .. } => {
                    json_size_max(key) + value.as_deref().map_or(0, &mut value_size)
                }
                ChangeKind::Delete { key } => json_size_max(key),
                ChangeKind::DeleteRange { start, end } => {
                    json_size_max(start) + end.as_deref().map_or(0, json_size_max)
                }
                ChangeKind::Merge { key, operand } => json_size_max(key) + value_size(operand),
                _ => 0,
            };
            if let Previous::Value(old) = &change.previous {
                size += value_size(old);
            }
        }
        size
    }

    /// Whether a change may be shown: keyspaces may have other names by now.
    fn may_show(&self, change: &Change) -> bool {
        match &change.keyspace {
            Some(name) => self.principal.may(Verb::Read, name),
            None => self.principal.may_with_all(Verb::Read),
        }
    }

    fn push_commit(&self, out: &mut Vec<u8>, commit: &CommitChanges) {
        let start = out.len();
        let stamp = commit.seqno.as_u64().to_string();
        begin_event(out, "commit", Some(&stamp));
        out.extend_from_slice(format!("{{\"stamp\":\"{stamp}\",\"time\":").as_bytes());
        push_json(out, &millis_text(commit.seqno.millis()));
        // It is the whole commit's.
        if let Some(payload) = &commit.payload
            && self.principal.may_with_all(Verb::Read)
        {
            out.push(b',');
            push_member(out, "payload", payload);
        }
        out.extend_from_slice(b",\"changes\":[");
        let mut budget = EVENT_VALUES_MAX;
        let mut is_first = true;
        for change in commit.changes.iter().filter(|change| self.may_show(change)) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            push_change(out, change, &mut budget);
        }
        out.extend_from_slice(b"]}");
        end_event(out);
        if is_first && !commit.changes.is_empty() {
            out.truncate(start); // None of it may be shown.
        }
    }
}

/// Why commits cannot be told.
enum Stop {
    /// All answers together have no room for the next.
    NoRoom,
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Engine(error)
    }
}

/// Commits of some keyspaces.
#[derive(Debug)]
struct Feed {
    commits: ChangeFeed,
    /// Which these are; nothing where all are followed.
    ids: Vec<u32>,
}

/// Everything up to there was sent, or is not asked for.
fn position(feed: &Feed) -> String {
    feed.commits.position().as_u64().to_string()
}

fn push_end(out: &mut Vec<u8>, why: &Failure) {
    push_event(out, "end", None, why.to_json()["error"].to_string().as_bytes());
}

fn push_change(out: &mut Vec<u8>, change: &Change, budget: &mut u64) {
    let op = match &change.kind {
        ChangeKind::Put { .. } => "put",
        ChangeKind::Delete { .. } => "delete",
        ChangeKind::DeleteRange { .. } => "delete-range",
        ChangeKind::Merge { .. } => "merge",
        _ => "other",
    };
    let keyspace = json!(change.keyspace.as_deref());
    out.extend_from_slice(format!("{{\"op\":\"{op}\",\"keyspace\":{keyspace}").as_bytes());
    match &change.kind {
        ChangeKind::Put { key, value, expires_at } => {
            push_next(out, "key", key);
            match value {
                Some(value) => push_value(out, "value", value, budget),
                None => out.extend_from_slice(b",\"value\":null"),
            }
            let expires = expires_at.map_or(Value::Null, |millis| millis_text(millis).into());
            out.extend_from_slice(format!(",\"expires\":{expires}").as_bytes());
        }
        ChangeKind::Delete { key } => push_next(out, "key", key),
        ChangeKind::DeleteRange { start, end } => {
            push_next(out, "from", start);
            match end {
                Some(end) => push_next(out, "to", end),
                None => out.extend_from_slice(b",\"to\":null"),
            }
        }
        ChangeKind::Merge { key, operand } => {
            push_next(out, "key", key);
            push_value(out, "value", operand, budget);
        }
        _ => {}
    }
    match &change.previous {
        Previous::Unknown => {}
        Previous::Absent => out.extend_from_slice(b",\"old\":null"),
        Previous::Value(old) => push_value(out, "old", old, budget),
    }
    out.push(b'}');
}

fn push_next(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b',');
    push_member(out, name, bytes);
}

/// A value, or its size if it is large, or if there was enough of values.
fn push_value(out: &mut Vec<u8>, name: &str, value: &[u8], budget: &mut u64) {
    match is_told(value, budget) {
        true => push_next(out, name, value),
        false => out.extend_from_slice(format!(",\"{name}_size\":{}", value.len()).as_bytes()),
    }
}

/// Whether a value is told, not only its size; takes it off what is left for values.
fn is_told(value: &[u8], budget: &mut u64) -> bool {
    let size = value.len() as u64;
    let is_told = size <= SHORT_VALUE_MAX && size <= *budget;
    if is_told {
        *budget -= size;
    }
    is_told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_takes_is_known_before_it_is_written() {
        let all: Vec<u8> = (0..=127).collect();
        for bytes in
            [&b""[..], b"plain", b"\"\\\n", &all, &[0xff; 100], "\u{e4}\u{2028}".as_bytes()]
        {
            let mut out = Vec::new();
            push_next(&mut out, "key", bytes);
            let names = CHANGE_OVERHEAD / 4;
            assert!(out.len() <= json_size_max(bytes) + names, "{bytes:?}: {}", out.len());
            assert!(json_size_max(bytes) <= 6 * bytes.len() + 4);
        }
    }
}
