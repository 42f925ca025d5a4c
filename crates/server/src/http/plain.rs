//! The plain calls of a key-value service, with keys and values that are text, in the keyspace
//! `default`: what BedrockDB's clients expect, to the letter.

use std::borrow::Cow;

use hyper::StatusCode;
use lithedb::{Keyspace, WriteBatch};
use serde::Deserialize;
use serde_json::json;

use super::ask::{Ask, Object, Outcome, json_bytes, ok_json};
use super::failure::{Code, Failure};
use super::listing::{Sink, judge, list};
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

fn not_text() -> Failure {
    Failure::new(Code::NotText, "not UTF-8: the calls at /v1 have keys and values of any bytes")
}

fn pair(key: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + value.len() + 24);
    push_pair(&mut out, key, value);
    out
}

fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(b"{\"key\":");
    push_json(out, key);
    out.extend_from_slice(b",\"value\":");
    push_json(out, value);
    out.push(b'}');
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
    let answer = pair(key, &value);
    ask.commit(batch, None).await?;
    Ok(json_bytes(StatusCode::OK, answer))
}

/// `GET /key/{key}`
pub fn get(ask: &mut Ask) -> Outcome {
    let keyspace = keyspace(ask, Verb::Read)?;
    let key = key(ask)?;
    let found = keyspace.get(key).map_err(|error| ask.engine(&error))?;
    let value = found.ok_or_else(|| Failure::new(Code::KeyNotFound, "not found"))?;
    let room = ask.shared.http.room.take(value.len()).ok_or_else(Failure::busy)?;
    let text = str::from_utf8(&value).map_err(|_| not_text())?;
    Ok(json_bytes(StatusCode::OK, pair(key, text)).map(|body| body.in_room(room)))
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

/// `GET /range?start=&end=`
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
    let write = move |sink: &mut Sink| {
        let mut is_first = true;
        for entry in keyspace.range(start..=end) {
            let entry = entry.map_err(|error| judge(&error))?;
            let text = (str::from_utf8(&entry.key), str::from_utf8(&entry.value));
            let (Ok(key), Ok(value)) = text else { return Err(not_text()) };
            let out = sink.buffer();
            out.push(if std::mem::take(&mut is_first) { b'[' } else { b',' });
            push_pair(out, key, value);
            if !sink.pass_on() {
                return Ok(());
            }
            if sink.is_late() {
                return Err(Failure::new(Code::TooLarge, "the range is too large"));
            }
        }
        // An empty list is none, as it is in the language of the model.
        sink.buffer().extend_from_slice(if is_first { b"null" } else { b"]" });
        Ok(())
    };
    list(ask, "application/json", write).await
}
