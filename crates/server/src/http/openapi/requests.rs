//! Bodies of requests.

use serde_json::{Map, Value, json};

use super::parameters::{BASE64, CURSOR, MOMENT};
use crate::config::Limits;
use crate::http::routes::Operation;
use crate::http::snapshots::SECONDS_MIN;

/// The body of a call, if it has one.
pub fn of(operation: Operation, limits: &Limits) -> Option<Value> {
    use Operation as Op;
    let schema = match operation {
        Op::PutKey | Op::MergeKey => {
            let binary = json!({ "schema": { "type": "string", "format": "binary" } });
            let content = json!({ "application/octet-stream": binary });
            return Some(json!({ "required": true, "content": content }));
        }
        Op::PlainPut => json!({
            "type": "object",
            "properties": { "value": { "type": "string" } },
            "required": ["value"],
        }),
        Op::CreateKeyspace => options(json!({ "name": name() }), &["name"]),
        Op::ConvertKeyspace => options(json!({ "confirm": yes() }), &["structure"]),
        Op::RenameKeyspace => object(json!({ "to": name() }), &["to"]),
        Op::ClearKeyspace => {
            return Some(optional(&object(json!({ "confirm": yes() }), &[])));
        }
        Op::TakeSnapshot => {
            let seconds = json!({
                "type": ["number", "null"],
                "minimum": SECONDS_MIN,
                "maximum": limits.snapshot_time.as_secs_f64(),
                "description": "How long it is held behind its last use.",
            });
            return Some(optional(&object(json!({ "seconds": seconds }), &[])));
        }
        Op::MultiGet => object(
            json!({ "keys": { "type": "array", "maxItems": 10_000, "items": key_item() } }),
            &["keys"],
        ),
        Op::ScanByBody => scan(),
        Op::Batch => batch(),
        Op::RestoreKeys => restore(),
        Op::MakeBackup => object(json!({ "name": plain_name() }), &["name"]),
        Op::RestoreBackup => object(json!({ "into": plain_name() }), &["into"]),
        _ => return None,
    };
    Some(json!({ "required": true, "content": { "application/json": { "schema": schema } } }))
}

/// A body that may be left out.
fn optional(schema: &Value) -> Value {
    json!({ "required": false, "content": { "application/json": { "schema": schema } } })
}

fn object(properties: impl Into<Value>, required: &[&str]) -> Value {
    let properties: Value = properties.into();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Null says as much as nothing.
fn yes() -> Value {
    json!({ "enum": ["yes", null] })
}

fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    schema
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 255 })
}

fn plain_name() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$" })
}

fn base64() -> Value {
    json!({ "type": "string", "pattern": BASE64 })
}

/// Members by which bytes are said.
fn bytes(names: &[&str]) -> Map<String, Value> {
    let both = names.iter().flat_map(|name| {
        let text = or_null(json!({ "type": "string" }));
        [((*name).to_owned(), text), (format!("{name}_base64"), or_null(base64()))]
    });
    both.collect()
}

/// These members, each of them more than null.
fn said(names: &[&str]) -> Value {
    let text = |name: &&str| ((*name).to_owned(), json!({ "type": "string" }));
    let properties: Map<String, Value> = names.iter().map(text).collect();
    json!({ "required": names, "properties": properties })
}

/// One of two members.
fn one_of(name: &str) -> Value {
    json!({ "oneOf": [said(&[name]), said(&[&format!("{name}_base64")])] })
}

fn key_item() -> Value {
    let mut as_object = object(bytes(&["key"]), &[]);
    as_object["oneOf"] = one_of("key")["oneOf"].take();
    json!({ "oneOf": [{ "type": "string" }, as_object] })
}

/// A bound is said as text or as base64, not both.
fn scan() -> Value {
    let bounds = ["prefix", "from", "to"];
    let mut members = bytes(&bounds);
    let cursor = or_null(json!({ "type": "string", "pattern": CURSOR }));
    members.insert("cursor".to_owned(), cursor);
    let mut schema = object(members, &[]);
    let both = bounds.iter().map(|name| said(&[name, &format!("{name}_base64")]));
    schema["not"] = json!({ "anyOf": both.collect::<Vec<_>>() });
    schema
}

fn operation(op: &str, members: &[&str], needed: &[&str], more: Value) -> Value {
    let mut properties = bytes(members);
    properties.insert("op".to_owned(), json!({ "type": "string", "enum": [op] }));
    properties.insert("keyspace".to_owned(), json!({ "type": "string" }));
    if let Value::Object(more) = more {
        properties.extend(more);
    }
    let mut schema = object(properties, &["op", "keyspace"]);
    schema["allOf"] = needed.iter().map(|name| one_of(name)).collect();
    schema
}

fn batch() -> Value {
    let ttl = json!({ "ttl": { "type": ["number", "null"], "minimum": 0.001, "maximum": 1e10 } });
    let mut condition_members = bytes(&["key"]);
    condition_members.insert("keyspace".to_owned(), json!({ "type": "string" }));
    condition_members.insert(
        "stamp".to_owned(),
        json!({ "type": ["string", "null"], "pattern": "^[0-9]{1,20}$" }),
    );
    let mut condition = object(condition_members, &["keyspace", "stamp"]);
    condition["allOf"] = json!([one_of("key")]);
    let operations = json!({ "oneOf": [
        operation("put", &["key", "value"], &["key", "value"], ttl),
        operation("merge", &["key", "value"], &["key", "value"], Value::Null),
        operation("delete", &["key"], &["key"], Value::Null),
        range_operation(),
    ] });
    let mut properties = Map::new();
    properties.insert("operations".to_owned(), json!({ "type": "array", "items": operations }));
    let conditions = json!({ "type": ["array", "null"], "items": condition });
    properties.insert("conditions".to_owned(), conditions);
    properties.extend(bytes(&["payload"]));
    object(properties, &["operations"])
}

fn range_operation() -> Value {
    let mut schema =
        operation("delete-range", &["prefix", "from", "to"], &[], json!({ "confirm": yes() }));
    schema["anyOf"] = any_range();
    schema["allOf"] = none_twice();
    schema
}

fn any_range() -> Value {
    let names = ["prefix", "from", "to"];
    let names = names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}_base64")]);
    names.map(|name| said(&[&name])).collect()
}

/// Each is said once.
fn none_twice() -> Value {
    let names = ["prefix", "from", "to"].into_iter();
    names.map(|name| json!({ "not": said(&[name, &format!("{name}_base64")]) })).collect()
}

fn restore() -> Value {
    let at = json!({ "type": "string", "pattern": MOMENT });
    let mut key = bytes(&["key"]);
    key.insert("at".to_owned(), at.clone());
    key.insert("confirm".to_owned(), yes());
    let mut key = object(key, &["at"]);
    key["allOf"] = json!([one_of("key")]);
    let mut range = bytes(&["prefix", "from", "to"]);
    range.insert("at".to_owned(), at);
    range.insert("confirm".to_owned(), yes());
    let mut range = object(range, &["at"]);
    range["anyOf"] = any_range();
    range["allOf"] = none_twice();
    json!({ "oneOf": [key, range] })
}

fn options(mut more: Value, required: &[&str]) -> Value {
    let integer =
        |low: u64, high: u64| json!({ "type": "integer", "minimum": low, "maximum": high });
    let number = |low: f64, high: f64| json!({ "type": "number", "minimum": low, "maximum": high });
    let compaction = object(
        json!({
            "style": { "type": "string", "enum": ["leveled", "tiered"] },
            "level0_trigger": integer(2, 64),
            "level_ratio": number(1.5, 100.0),
            "bucket_low": number(0.05, 1.0),
            "bucket_high": number(1.0, 20.0),
            "threshold": integer(2, 32),
            "run_count_max": integer(2, 200),
            "garbage_max": number(0.05, 8.0),
        }),
        &["style"],
    );
    let mut structure = json!({ "type": "string", "enum": ["flex", "lsm", "history"] });
    if !required.contains(&"structure") {
        structure = or_null(structure);
    }
    let merge_operator = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "description": "Built in are counter, append, min and max; others have to be registered.",
    });
    let known = json!({
        "structure": structure,
        "codec": or_null(json!({ "type": "string", "enum": ["none", "lz4", "snappy"] })),
        "memtable_size": integer(4 << 10, 1 << 30),
        "value_separation": integer(64, 1 << 30),
        "merge_operator": or_null(merge_operator),
        "ttl_seconds": number(0.001, 1e9),
        "keep_for_seconds": number(0.001, 1e9),
        "keep_versions": integer(1, 1_000_000),
        "interval_size": integer(512, 1 << 20),
        "segment_size": integer(4 << 10, 256 << 20),
        "consolidation_pace": number(0.05, 8.0),
        "delta_fan_in": integer(2, 64),
        "compaction": or_null(compaction),
        "table_size": integer(1 << 10, 1 << 30),
        "block_size": integer(512, 1 << 20),
        "restart_interval": integer(0, 1024),
        "filter_bits": integer(0, 32),
        "filter_prefix_len": integer(0, 255),
        "dictionary_size": integer(256, 256 << 10),
        "pin_indexes": { "type": ["boolean", "null"] },
    });
    if let (Value::Object(more), Value::Object(known)) = (&mut more, known) {
        more.extend(known);
    }
    object(more, required)
}
