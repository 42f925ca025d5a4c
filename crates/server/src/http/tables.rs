//! What the structure of a keyspace consists of, as far as the engine tells: tables by levels, of
//! the others how many pieces of which kind there are.

use lithedb::TableInfo;
use serde_json::{Map, Value, json};

use super::ask::{Ask, Outcome, ok_json};
use super::failure::Failure;
use super::stats::keyspace_json;
use super::text::insert_bytes;
use crate::auth::Verb;

/// `GET /v1/keyspaces/{keyspace}/tables`: keys are told to who may read them.
pub async fn list(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Stats)?;
    let has_keys = ask.principal.may(Verb::Read, ask.name(0).unwrap_or_default());
    let id = keyspace.id();
    let db = ask.shared.store.db().clone();
    let found = ask.blocking(move || {
        let figures = db.stats().keyspaces.into_iter().find(|of| of.id == id);
        Ok((keyspace.tables(), figures))
    });
    let (tables, figures) = found.await?;
    let figures = figures.ok_or_else(Failure::keyspace_not_found)?;
    let tables: Vec<Value> = tables.iter().map(|table| table_json(table, has_keys)).collect();
    ok_json(&json!({
        "structure": figures.structure,
        "tables": tables,
        "intervals": figures.intervals,
        "runs": figures.runs,
        "segments": figures.segments,
        "figures": keyspace_json(&figures),
    }))
}

fn table_json(table: &TableInfo, has_keys: bool) -> Value {
    let mut shown = Map::new();
    let mut add = |name: &str, value: u64| shown.insert(name.to_owned(), value.into());
    add("level", table.level.into());
    add("run", table.run);
    add("number", table.number);
    add("bytes", table.bytes);
    add("logical_bytes", table.logical_bytes);
    add("entries", table.entries);
    add("tombstones", table.tombstones);
    add("deleted_ranges", table.deleted_ranges.into());
    add("expiring", table.expiring.into());
    if has_keys {
        insert_bytes(&mut shown, "first", &table.first);
        match &table.end {
            Some(end) => insert_bytes(&mut shown, "end", end),
            None => drop(shown.insert("end".to_owned(), Value::Null)),
        }
    }
    Value::Object(shown)
}
