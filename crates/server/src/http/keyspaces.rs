//! Keyspaces: which there are; made, dropped, renamed, converted, and kept in shape.

use std::sync::Arc;

use hyper::StatusCode;
use lithedb::{KeyspaceInfo, KeyspaceStats};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{Ask, Outcome, json_answer, ok_json};
use super::failure::{Code, Failure};
use super::jobs::{self, Needs, NewJob};
use super::moment::stamp_json;
use super::options::{OptionsBody, Yes, options_json};
use super::scan::{CONFIRM, Span, delete_span};
use super::stats::keyspace_json;
use crate::auth::Verb;

/// Names are at most so many bytes.
const NAME_LEN_MAX: usize = 255;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenameBody {
    to: String,
}

/// What this does is its name: a confirmation may be given, and is not needed.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearBody {
    #[serde(rename = "confirm")]
    _confirm: Option<Yes>,
}

fn described(ask: &Ask, info: &KeyspaceInfo) -> Value {
    let mut shown = json!({
        "name": info.name,
        "id": info.id,
        "structure": info.structure,
        "options": options_json(&info.options),
        "has_own_key": info.has_own_key,
    });
    if let Ok(keyspace) = ask.shared.store.keyspace(&info.name)
        && let Some(kept_from) = keyspace.kept_from()
    {
        shown["kept_from"] = stamp_json(kept_from);
    }
    shown
}

/// With its figures, where these may be told.
fn shown(ask: &Ask, info: &KeyspaceInfo, figures: &[KeyspaceStats]) -> Value {
    let mut shown = described(ask, info);
    let found = figures.iter().find(|of| of.id == info.id);
    if let (Some(found), true) = (found, ask.principal.may(Verb::Stats, &info.name))
        && let (Value::Object(shown), Value::Object(figures)) = (&mut shown, keyspace_json(found))
    {
        for (name, value) in figures {
            shown.entry(name).or_insert(value);
        }
    }
    shown
}

/// `GET /v1/keyspaces`: those with which something may be done.
pub fn list(ask: &mut Ask) -> Outcome {
    let db = ask.shared.store.db();
    let figures = db.stats().keyspaces;
    let seen = db.keyspaces().into_iter().filter(|info| ask.principal.may_see(&info.name));
    let listed: Vec<Value> = seen.map(|info| shown(ask, &info, &figures)).collect();
    ok_json(&json!({ "keyspaces": listed }))
}

/// `GET /v1/keyspaces/{keyspace}`
pub fn show(ask: &mut Ask) -> Outcome {
    let name = ask.name(0).ok_or_else(Failure::keyspace_not_found)?;
    if !ask.principal.may_see(name) {
        return Err(super::ask::forbidden(Verb::Read));
    }
    let db = ask.shared.store.db();
    let info = info_of(ask, name)?;
    ok_json(&shown(ask, &info, &db.stats().keyspaces))
}

fn info_of(ask: &Ask, name: &str) -> Result<KeyspaceInfo, Failure> {
    let infos = ask.shared.store.db().keyspaces();
    infos.into_iter().find(|info| info.name == name).ok_or_else(Failure::keyspace_not_found)
}

fn check_name(name: &str) -> Result<(), Failure> {
    match name.is_empty() || name.len() > NAME_LEN_MAX {
        true => {
            let what = format!("name: 1 to {NAME_LEN_MAX} bytes");
            Err(Failure::new(Code::InvalidArgument, what))
        }
        false => Ok(()),
    }
}

/// `POST /v1/keyspaces`
pub async fn create(ask: &mut Ask) -> Outcome {
    let body: OptionsBody = ask.json().await?;
    let missing = || Failure::new(Code::InvalidJson, "name is missing");
    let name = body.name.clone().ok_or_else(missing)?;
    ask.require(Verb::Admin, &name)?;
    check_name(&name)?;
    let options = body.of_new()?;
    let (db, made) = (ask.shared.store.db().clone(), name.clone());
    ask.blocking(move || db.create_keyspace(&made, options).map(drop)).await?;
    let shown = described(ask, &info_of(ask, &name)?);
    Ok(json_answer(StatusCode::CREATED, &shown))
}

/// `DELETE /v1/keyspaces/{keyspace}`
pub async fn remove(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Admin)?;
    let is_confirmed = ask.query.choice("confirm", CONFIRM)?.is_some();
    if !is_confirmed && !ask.blocking(move || keyspace.is_empty()).await? {
        let what = "the keyspace would be dropped with all that is in it: add confirm=yes";
        return Err(Failure::new(Code::ConfirmationNeeded, what));
    }
    let name = ask.name(0).unwrap_or_default().to_owned();
    let db = ask.shared.store.db().clone();
    let dropped = name.clone();
    ask.blocking(move || db.drop_keyspace(&dropped)).await?;
    ok_json(&json!({ "dropped": name }))
}

/// `POST /v1/keyspaces/{keyspace}/rename`
pub async fn rename(ask: &mut Ask) -> Outcome {
    let RenameBody { to } = ask.json().await?;
    ask.require(Verb::Admin, &to)?;
    ask.keyspace(Verb::Admin)?;
    check_name(&to)?;
    let from = ask.name(0).unwrap_or_default().to_owned();
    let (shared, name) = (Arc::clone(&ask.shared), to.clone());
    let rename = move || {
        let db = shared.store.db();
        let done = db.rename_keyspace(&from, &name);
        shared.redis.databases.look_up_again(db);
        done
    };
    ask.blocking(rename).await?;
    ok_json(&described(ask, &info_of(ask, &to)?))
}

/// `POST /v1/keyspaces/{keyspace}/convert`
pub async fn convert(ask: &mut Ask) -> Outcome {
    let body: OptionsBody = ask.json().await?;
    let keyspace = ask.keyspace(Verb::Admin)?;
    if body.name.is_some() {
        return Err(Failure::new(Code::InvalidArgument, "name: to rename is another call"));
    }
    let name = ask.name(0).unwrap_or_default().to_owned();
    let conversion = body.conversion(&info_of(ask, &name)?.options)?;
    let job = NewJob {
        kind: "convert",
        needs: Needs::Keyspace(Verb::Admin, name.clone()),
        about: ("keyspace", name.into()),
        unit: "entries",
    };
    jobs::begin(ask, job, move |job, _| {
        let report = keyspace.convert_while(conversion, |so_far| {
            job.note(so_far.entries, Some(so_far.entries + so_far.entries_left))
        })?;
        Ok(json!({
            "entries": report.entries,
            "bytes": report.bytes,
            "bytes_written": report.bytes_written,
            "begins_at": report.begins_at.map(stamp_json),
        }))
    })
}

/// `POST /v1/keyspaces/{keyspace}/compact`
pub fn compact(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Admin)?;
    let name = ask.name(0).unwrap_or_default().to_owned();
    let job = NewJob {
        kind: "compact",
        needs: Needs::Keyspace(Verb::Admin, name.clone()),
        about: ("keyspace", name.into()),
        unit: "bytes",
    };
    jobs::begin(ask, job, move |job, _| {
        let report = keyspace.compact_while::<&[u8]>(.., |so_far| {
            job.note(so_far.bytes_read, Some(so_far.bytes_read + so_far.bytes_left))
        })?;
        Ok(json!({ "bytes_read": report.bytes_read, "bytes_written": report.bytes_written }))
    })
}

/// `POST /v1/keyspaces/{keyspace}/flush`: the engine flushes all of them, as the log is one.
pub async fn flush(ask: &mut Ask) -> Outcome {
    ask.keyspace(Verb::Admin)?;
    let db = ask.shared.store.db().clone();
    ask.blocking(move || db.flush()).await?;
    ok_json(&json!({ "flushed": true }))
}

/// `POST /v1/keyspaces/{keyspace}/clear`
pub async fn clear(ask: &mut Ask) -> Outcome {
    let _what_it_says: ClearBody = ask.json_or_default().await?;
    let keyspace = ask.keyspace(Verb::Write)?;
    let durability = ask.query.durability()?;
    delete_span(ask, keyspace, Span::default(), durability).await
}
