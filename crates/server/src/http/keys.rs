//! Single keys at `/v1`: their values as they are, with their stamps as tags.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue, VARY};
use hyper::{Response, StatusCode};
use lithedb::{Entry, Expiry, Keyspace, Snapshot, WriteBatch};
use serde_json::json;

use super::ask::{Ask, Outcome, answer, ok_json, tagged, with_header, without_body};
use super::body::{Body, Received};
use super::conditions::{Conditions, Effort, Written, stamp_in, write_if};
use super::failure::{Code, Failure};
use super::listing::{EntryRow, SHORT_VALUE_MAX, Sink, Values, list, push_entry, short_list};
use super::once::REPLAYED_HEADER;
use crate::auth::Verb;
use crate::moment::{parse_time, time_text};

/// What `ttl` may be, in seconds.
const TTL_MAX: f64 = 1e10;
const TTL_MIN: f64 = 0.001;
/// Has the time at which an entry expires.
const EXPIRES_HEADER: &str = "lithe-expires";

/// The moment that a read is as of: none is now.
pub fn moment(ask: &Ask, keyspace: &Keyspace) -> Result<Option<Snapshot>, Failure> {
    let (at, id) = (ask.query.moment("at")?, ask.query.text("snapshot")?);
    match (at, id) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Failure::bad_parameter("at", "a moment or a snapshot, not both")),
        (None, Some(id)) => ask.shared.http.snapshots.touch(id, &ask.principal).map(Some),
        (Some(at), None) if keyspace.keeps_history() => {
            let then = ask.shared.store.db().snapshot_at(at);
            then.map(Some).map_err(|error| ask.engine(&error))
        }
        (Some(_), None) => Err(no_history()),
    }
}

pub fn no_history() -> Failure {
    Failure::new(Code::NoHistory, "the keyspace keeps no versions: those of structure history do")
}

/// `GET` and `HEAD /v1/keyspaces/{keyspace}/keys/{key}`
pub async fn get(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let key = ask.key()?;
    let conditions = Conditions::of(&ask.headers)?;
    let found = match moment(ask, &keyspace)? {
        None => keyspace.get_entry(&key),
        Some(then) => then.get_entry(&keyspace, &key),
    };
    let found = found.map_err(|error| ask.engine(&error))?;
    conditions.check_is(found.as_ref().map(|entry| entry.seqno))?;
    let Some(entry) = found else {
        return Err(Failure::new(Code::KeyNotFound, "the key is not there"));
    };
    let stamp = entry.seqno;
    let response = match conditions.is_known(stamp) {
        true => without_body(StatusCode::NOT_MODIFIED),
        false => entry_answer(ask, entry).await?,
    };
    Ok(with_header(tagged(response, stamp), VARY, HeaderValue::from_static("accept")))
}

async fn entry_answer(ask: &Ask, entry: Entry) -> Result<Response<Body>, Failure> {
    let room = ask.shared.http.room.take(entry.value.len())?;
    if ask.accepts("application/json") {
        let is_short = entry.value.len() as u64 <= SHORT_VALUE_MAX;
        let write = move |sink: &mut Sink| {
            let _until_it_is_written = room;
            push_entry(sink, &EntryRow::of(&entry), Values::Full);
            Ok(())
        };
        return match is_short {
            true => short_list(ask, "application/json", write),
            false => list(ask, "application/json", write).await,
        };
    }
    let expires = entry.expires_at().map(|time| HeaderValue::from_str(&time_text(time)));
    let body = Body::whole(Bytes::from_owner(entry.value)).in_room(room);
    let response = answer(StatusCode::OK, "application/octet-stream", body);
    Ok(match expires {
        Some(Ok(time)) => with_header(response, HeaderName::from_static(EXPIRES_HEADER), time),
        _ => response,
    })
}

/// How long what is put is there.
#[derive(Clone, Copy)]
enum Lasting {
    AsTheKeyspaceSays,
    For(Duration),
    Until(Expiry),
}

impl Lasting {
    fn asked(ask: &Ask) -> Result<Lasting, Failure> {
        let ttl = ask.query.number("ttl", TTL_MIN..=TTL_MAX)?.map(Duration::from_secs_f64);
        let expires = ask.query.text("expires")?.map(|text| match text {
            "never" => Ok(Expiry::Never),
            time => parse_time(time).map(Expiry::At).map_err(|_| {
                Failure::bad_parameter("expires", "never, or a time like 2026-11-22T04:56:03Z")
            }),
        });
        match (ttl, expires.transpose()?) {
            (None, None) => Ok(Lasting::AsTheKeyspaceSays),
            (Some(ttl), None) => Ok(Lasting::For(ttl)),
            (None, Some(expiry)) => Ok(Lasting::Until(expiry)),
            (Some(_), Some(_)) => Err(Failure::bad_parameter("ttl", "ttl or expires, not both")),
        }
    }
}

/// The same out of JSON.
pub fn ttl_of(seconds: f64) -> Result<Duration, Failure> {
    match (TTL_MIN..=TTL_MAX).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => {
            let what = format!("ttl: a number of seconds from {TTL_MIN} to {TTL_MAX}");
            Err(Failure::new(Code::InvalidJson, what))
        }
    }
}

/// `PUT /v1/keyspaces/{keyspace}/keys/{key}`
pub async fn put(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Write)?;
    let key = ask.key()?;
    let (lasting, durability) = (Lasting::asked(ask)?, ask.query.durability()?);
    let conditions = conditions(ask)?;
    let limits = &ask.shared.limits;
    let received = ask.raw_body(limits.value_size.min(limits.body_size)).await?;
    let done = if conditions.is_empty() && ask.once.is_none() {
        let Received { bytes: value, room: _until_it_is_written } = received;
        let mut batch = WriteBatch::new();
        match lasting {
            Lasting::AsTheKeyspaceSays => batch.put(&keyspace, &key, &value),
            Lasting::For(ttl) => batch.put_with_ttl(&keyspace, &key, &value, ttl),
            Lasting::Until(expiry) => batch.put_until(&keyspace, &key, &value, expiry),
        }
        drop(value); // The batch has it.
        ask.commit(batch, durability).await?.into()
    } else {
        let value = &received.bytes;
        let asked = &*ask;
        write_if(asked, durability, Effort::of(value.len()), |transaction| {
            let found = stamp_in(transaction, &keyspace, &key);
            conditions.check(found.map_err(|error| asked.engine(&error))?)?;
            let put = match lasting {
                Lasting::AsTheKeyspaceSays => transaction.put(&keyspace, &key, value),
                Lasting::For(ttl) => transaction.put_with_ttl(&keyspace, &key, value, ttl),
                Lasting::Until(expiry) => transaction.put_until(&keyspace, &key, value, expiry),
            };
            put.map_err(|error| asked.engine(&error))
        })
        .await?
    };
    Ok(tagged(written(done)?, done.stamp))
}

/// `DELETE /v1/keyspaces/{keyspace}/keys/{key}`
pub async fn delete(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Write)?;
    let (key, durability) = (ask.key()?, ask.query.durability()?);
    let conditions = conditions(ask)?;
    if conditions.is_empty() && ask.once.is_none() {
        let mut batch = WriteBatch::new();
        batch.delete(&keyspace, &key);
        return written(ask.commit(batch, durability).await?);
    }
    let asked = &*ask;
    let done = write_if(asked, durability, Effort::Small, |transaction| {
        let found = stamp_in(transaction, &keyspace, &key);
        conditions.check(found.map_err(|error| asked.engine(&error))?)?;
        transaction.delete(&keyspace, &key).map_err(|error| asked.engine(&error))
    });
    written(done.await?)
}

/// Conditions of a write. Whether they hold says something of what is there, which has to be
/// allowed.
fn conditions(ask: &Ask) -> Result<Conditions, Failure> {
    let conditions = Conditions::of(&ask.headers)?;
    if !conditions.is_empty() {
        ask.require(Verb::Read, ask.name(0).unwrap_or_default())?;
    }
    Ok(conditions)
}

/// `POST /v1/keyspaces/{keyspace}/merge/{key}`
pub async fn merge(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Write)?;
    let (key, durability) = (ask.key()?, ask.query.durability()?);
    let limits = &ask.shared.limits;
    let received = ask.raw_body(limits.value_size.min(limits.body_size)).await?;
    if ask.once.is_none() {
        let mut batch = WriteBatch::new();
        batch.merge(&keyspace, &key, &received.bytes);
        return written(ask.commit(batch, durability).await?);
    }
    let (asked, operand) = (&*ask, &received.bytes);
    let done = write_if(asked, durability, Effort::of(operand.len()), |transaction| {
        let merged = transaction.merge(&keyspace, &key, operand);
        merged.map_err(|error| asked.engine(&error))
    });
    written(done.await?)
}

/// What a write is answered with.
pub fn written(done: impl Into<Written>) -> Outcome {
    let Written { stamp, is_replayed } = done.into();
    let answer = ok_json(&json!({ "stamp": stamp.as_u64().to_string() }))?;
    Ok(match is_replayed {
        false => answer,
        true => {
            let name = HeaderName::from_static(REPLAYED_HEADER);
            with_header(answer, name, HeaderValue::from_static("true"))
        }
    })
}
