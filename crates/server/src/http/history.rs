//! The past of keys: what happened to them, and making them what they were.

use lithedb::{KeyVersion, SeqNo};
use serde::Deserialize;
use serde_json::json;
use std::ops::Bound;

use super::ask::{Ask, Outcome, bytes_of, ok_json};
use super::failure::{Code, Failure};
use super::keys::no_history;
use super::listing::{SHORT_VALUE_MAX, Sink, VALUES, Values, judge, list, push_stamp};
use super::moment::{MOMENTS, first_of, last_of, parsed_moment};
use super::options::Yes;
use super::scan::Span;
use super::text::{push_json, push_member};
use crate::auth::Verb;
use crate::moment::{millis_text, time_text};

/// Versions of an answer, unless that is said.
const LIMIT_DEFAULT: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    NewestFirst,
    OldestFirst,
}

const ORDERS: &[(&str, Order)] = &[("newest", Order::NewestFirst), ("oldest", Order::OldestFirst)];

/// `GET /v1/keyspaces/{keyspace}/history/{key}`
pub async fn versions(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let key = ask.key()?;
    let from = ask.query.moment("from")?.map(first_of);
    let to = ask.query.moment("to")?.map(last_of);
    let limit = ask.query.number("limit", 1..=ask.shared.limits.page_count)?;
    let limit = limit.unwrap_or(LIMIT_DEFAULT.min(ask.shared.limits.page_count));
    let order = ask.query.choice("order", ORDERS)?.unwrap_or(Order::NewestFirst);
    let values = ask.query.choice("values", VALUES)?.unwrap_or(Values::Short);
    if !keyspace.keeps_history() {
        return Err(no_history());
    }
    let judge = judge(ask);
    let write = move |sink: &mut Sink| {
        sink.buffer().push(b'{');
        push_member(sink.buffer(), "key", &key);
        sink.buffer().extend_from_slice(b",\"versions\":[");
        let is_backwards = matches!((from, to), (Some(from), Some(to)) if from > to);
        let stamps: (Bound<SeqNo>, Bound<SeqNo>) = (
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Included),
        );
        let versions = match order {
            Order::NewestFirst => keyspace.history(&key, stamps),
            Order::OldestFirst => keyspace.history_from_oldest(&key, stamps),
        };
        let versions = versions.map_err(|error| judge(&error))?;
        let mut more = None;
        let wanted = if is_backwards { 0 } else { limit };
        for (index, version) in versions.enumerate() {
            let version = version.map_err(|error| judge(&error))?;
            if index == wanted || sink.is_late() {
                more = (!is_backwards).then_some(version.seqno);
                break;
            }
            let size = version.value.as_ref().map_or(0, |value| value.len());
            let _until_it_is_written = sink.room(if values == Values::Full { size } else { 0 })?;
            if index > 0 {
                sink.buffer().push(b',');
            }
            push_version(sink, &version, values);
            if !sink.pass_on() {
                return Ok(());
            }
        }
        let next = json!(more.map(|stamp: SeqNo| stamp.as_u64().to_string()));
        sink.buffer().extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
        Ok(())
    };
    list(ask, "application/json", write).await
}

fn push_version(sink: &mut Sink, version: &KeyVersion, values: Values) {
    sink.buffer().extend_from_slice(b"{\"deleted\":");
    match &version.value {
        None => sink.buffer().extend_from_slice(b"true"),
        Some(value) => {
            sink.buffer().extend_from_slice(b"false");
            let is_shown = match values {
                Values::None => false,
                Values::Short => value.len() as u64 <= SHORT_VALUE_MAX,
                Values::Full => true,
            };
            if is_shown {
                sink.buffer().push(b',');
                sink.push_value("value", value);
            } else {
                let size = format!(",\"value_size\":{}", value.len());
                sink.buffer().extend_from_slice(size.as_bytes());
            }
        }
    }
    let out = sink.buffer();
    push_stamp(out, version.seqno);
    out.extend_from_slice(b",\"time\":");
    push_json(out, &millis_text(version.seqno.millis()));
    out.extend_from_slice(b",\"expires\":");
    match version.expiry.time() {
        None => out.extend_from_slice(b"null"),
        Some(time) => push_json(out, &time_text(time)),
    }
    out.push(b'}');
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    at: String,
    key: Option<String>,
    key_base64: Option<String>,
    prefix: Option<String>,
    prefix_base64: Option<String>,
    from: Option<String>,
    from_base64: Option<String>,
    to: Option<String>,
    to_base64: Option<String>,
    /// That everything is meant.
    confirm: Option<Yes>,
}

/// `POST /v1/keyspaces/{keyspace}/restore`
pub async fn restore(ask: &mut Ask) -> Outcome {
    let body: RestoreBody = ask.json().await?;
    let keyspace = ask.keyspace(Verb::Write)?;
    ask.require(Verb::Read, ask.name(0).unwrap_or_default())?;
    let wrong = |what: &str| Failure::new(Code::InvalidJson, what);
    let at = parsed_moment(&body.at).ok_or_else(|| wrong(&format!("at: {MOMENTS}")))?;
    let key = bytes_of("key", body.key, body.key_base64.as_deref())?;
    let prefix = bytes_of("prefix", body.prefix, body.prefix_base64.as_deref())?;
    let from = bytes_of("from", body.from, body.from_base64.as_deref())?;
    let to = bytes_of("to", body.to, body.to_base64.as_deref())?;
    let has_range = prefix.is_some() || from.is_some() || to.is_some();
    let bounds = match key {
        Some(key) if !has_range => {
            ask.check_key(&key)?;
            (Bound::Included(key.clone()), Bound::Included(key))
        }
        None if has_range => {
            let span = Span::of(prefix.as_deref(), from.as_deref(), to.as_deref());
            if span.is_everything() && body.confirm.is_none() {
                let what = "all keys would be made what they were: say \"confirm\":\"yes\"";
                return Err(Failure::new(Code::ConfirmationNeeded, what));
            }
            if span.is_empty() {
                return ok_json(&json!({ "put": 0, "deleted": 0 }));
            }
            span.bounds()
        }
        _ => return Err(wrong("a key, or a range by prefix, from, to")),
    };
    if !keyspace.keeps_history() {
        return Err(no_history());
    }
    let report = ask.blocking(move || keyspace.restore_range(bounds, at)).await?;
    // It has committed as the engine is told to, which may be less than the server is.
    ask.settle(None).await?;
    ok_json(&json!({ "put": report.put, "deleted": report.deleted }))
}
