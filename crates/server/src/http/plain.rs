//! The plain calls of a key-value service, with keys and values that are text, in the keyspace
//! `default`: what BedrockDB's clients expect, to the letter.

use std::borrow::Cow;
use std::ops::Bound;

use hyper::StatusCode;
use lithedb::{Entry, Error, Iter, Keyspace, WriteBatch};
use serde::Deserialize;
use serde_json::json;

use super::ask::{Ask, Object, Outcome, json_bytes, ok_json};
use super::failure::{Code, Failure};
use super::listing::{SHORT_VALUE_MAX, Sink, judge, list, short_list};
use super::text::push_json;
use crate::auth::Verb;
use crate::store::DEFAULT_KEYSPACE;

/// The body of `PUT /key/{key}`.
#[derive(Deserialize)]
struct PutBody<'b> {
    #[serde(borrow)]
    value: Cow<'b, str>,
}

fn keyspace(ask: &Ask, verb: Verb) -> Result<Keyspace, Failure> {
    ask.keyspace_named(verb, DEFAULT_KEYSPACE)
}

fn key(ask: &Ask) -> Result<&str, Failure> {
    let key = ask.name(0).ok_or_else(not_text)?;
    if key.is_empty() {
        return Err(Failure::new(Code::NotFound, "not found"));
    }
    ask.check_key(key.as_bytes())?;
    Ok(key)
}

/// The key of an entry that is text, as its value is.
fn text_of(entry: &Entry) -> Result<&str, Failure> {
    match (str::from_utf8(&entry.key), str::from_utf8(&entry.value)) {
        (Ok(key), Ok(_)) => Ok(key),
        _ => Err(not_text()),
    }
}

fn too_long() -> Failure {
    Failure::new(Code::TooLarge, "the range is too large")
}

/// Reads entries, and refuses those that are no text.
fn look_through(
    entries: Iter,
    sink: &Sink,
    judge: &impl Fn(&Error) -> Failure,
) -> Result<(), Failure> {
    for entry in entries {
        text_of(&entry.map_err(|error| judge(&error))?)?;
        if sink.is_late() {
            return Err(too_long());
        }
    }
    Ok(())
}

fn not_text() -> Failure {
    Failure::new(Code::NotText, "not UTF-8: the calls at /v1 have keys and values of any bytes")
}

fn pair(key: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + value.len() + 24);
    out.extend_from_slice(b"{\"key\":");
    push_json(&mut out, key);
    out.extend_from_slice(b",\"value\":");
    push_json(&mut out, value);
    out.push(b'}');
    out
}

/// The same to a list; the value is text.
fn push_pair(sink: &mut Sink, key: &str, value: &[u8]) {
    sink.buffer().extend_from_slice(b"{\"key\":");
    push_json(sink.buffer(), key);
    sink.buffer().push(b',');
    sink.push_value("value", value);
    sink.buffer().push(b'}');
}

/// `PUT /key/{key}`
pub async fn put(ask: &mut Ask) -> Outcome {
    let keyspace = keyspace(ask, Verb::Write)?;
    let size_max = ask.shared.limits.body_size;
    let received = ask.raw_body(size_max).await?;
    let key = key(ask)?;
    let invalid = |_| Failure::new(Code::InvalidJson, "invalid json");
    let Object(PutBody { value }) =
        serde_json::from_slice::<Object<PutBody<'_>>>(&received.bytes).map_err(invalid)?;
    let limits = &ask.shared.limits;
    if value.len() as u64 > limits.value_size {
        return Err(Failure::too_large("bytes of a value", limits.value_size));
    }
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, key, value.as_bytes());
    ask.commit(batch, None).await?;
    // What it is as JSON is hardly more than what came as that.
    let answer = json_bytes(StatusCode::OK, pair(key, &value));
    Ok(answer.map(|body| body.in_room(received.room)))
}

/// `GET /key/{key}`
pub async fn get(ask: &mut Ask) -> Outcome {
    let keyspace = keyspace(ask, Verb::Read)?;
    let key = key(ask)?;
    let found = keyspace.get(key).map_err(|error| ask.engine(&error))?;
    let value = found.ok_or_else(|| Failure::new(Code::KeyNotFound, "not found"))?;
    let room = ask.shared.http.room.take(value.len())?;
    str::from_utf8(&value).map_err(|_| not_text())?;
    let is_short = value.len() as u64 <= SHORT_VALUE_MAX;
    let key = key.to_owned();
    let write = move |sink: &mut Sink| {
        let _until_it_is_written = room;
        push_pair(sink, &key, &value);
        Ok(())
    };
    match is_short {
        true => short_list(ask, "application/json", write),
        false => list(ask, "application/json", write).await,
    }
}

/// `DELETE /key/{key}`
pub async fn delete(ask: &mut Ask) -> Outcome {
    let keyspace = keyspace(ask, Verb::Write)?;
    let key = key(ask)?;
    let mut batch = WriteBatch::new();
    batch.delete(&keyspace, key);
    ask.commit(batch, None).await?;
    ok_json(&json!({ "deleted": key }))
}

/// `GET /range?start=&end=`, as of one moment. What is no text is to be refused wherever in the
/// range it is: so in front of the first byte of a long answer the rest of the range is looked
/// through.
pub async fn range(ask: &mut Ask) -> Outcome {
    let keyspace = keyspace(ask, Verb::Read)?;
    let bad = |what: &str| Failure::new(Code::BadParameter, what);
    let part = |name| ask.query.bytes(name).filter(|part| !part.is_empty());
    let (Some(start), Some(end)) = (part("start"), part("end")) else {
        return Err(bad("start and end query params required"));
    };
    if start > end {
        return Err(bad("start must be <= end"));
    }
    ask.check_key(start)?;
    ask.check_key(end)?;
    let (start, end) = (start.to_vec(), end.to_vec());
    let judge = judge(ask);
    let then = ask.shared.store.db().snapshot();
    let write = move |sink: &mut Sink| {
        let (mut is_first, mut is_looked_through) = (true, false);
        for entry in then.range(&keyspace, &start[..]..=&end[..]) {
            let entry = entry.map_err(|error| judge(&error))?;
            let key = text_of(&entry)?;
            if !is_looked_through && sink.may_begin_with(entry.key.len() + entry.value.len()) {
                let rest = (Bound::Excluded(&entry.key[..]), Bound::Included(&end[..]));
                look_through(then.range::<&[u8]>(&keyspace, rest), sink, &judge)?;
                is_looked_through = true;
            }
            let _until_it_is_written = sink.room(entry.value.len())?;
            sink.buffer().push(if std::mem::take(&mut is_first) { b'[' } else { b',' });
            push_pair(sink, key, &entry.value);
            if !sink.pass_on() {
                return Ok(());
            }
            if sink.is_late() {
                return Err(too_long());
            }
        }
        // An empty list is none, as it is in the language of the model.
        sink.buffer().extend_from_slice(if is_first { b"null" } else { b"]" });
        Ok(())
    };
    list(ask, "application/json", write).await
}
