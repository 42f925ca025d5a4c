//! What stands in addresses and headers.

use serde_json::{Value, json};

use crate::config::Limits;
use crate::http::once;
use crate::http::routes::{Operation, Route};

/// Digits, a dot and a counter, a time, or how long ago.
pub const MOMENT: &str = "^([0-9]{1,20}|[0-9]{1,14}\\.[0-9]{1,5}|[0-9]{1,20}(ms|s|m|h|d)|\
    [0-9]{4,5}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?\
    ([Zz]|[+-][0-9]{2}:[0-9]{2}))$";
/// Of texts for the same bytes the one that has no bits left over.
pub const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|\
    [A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// What the cursor of a page looks like, for who makes one up.
pub const CURSOR: &str = "^([A-Za-z0-9_-]{4})*$";
const ONCE: &str = "^([!#-\\[\\]-~]{1,255}|\"[ !#-\\[\\]-~]{1,255}\")$";
const TAGS: &str = "^(\\*|(W/)?\"[0-9]{1,20}\"(, ?(W/)?\"[0-9]{1,20}\")*)$";

/// The parameters of a call.
pub fn of(route: &Route, limits: &Limits) -> Value {
    let parts = route.template.split('/').filter_map(|part| part.strip_prefix('{'));
    let parts = parts.map(|part| part.trim_end_matches('}')).map(in_path);
    let query = route.query.iter().map(|name| in_query(route.operation, name, limits));
    parts.chain(query).chain(headers(route.operation)).collect()
}

fn in_path(name: &str) -> Value {
    let (schema, description) = match name {
        "key" => (
            json!({ "type": "string", "minLength": 1 }),
            "Any bytes, percent-encoded; at /v1 the empty key as well.",
        ),
        "keyspace" => {
            (json!({ "type": "string", "minLength": 1, "maxLength": 255 }), "A keyspace's name.")
        }
        "name" => (
            json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" }),
            "A backup's name.",
        ),
        _ => (json!({ "type": "string", "minLength": 1, "maxLength": 64 }), "As it was given out."),
    };
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": schema,
        "description": description,
    })
}

fn in_query(operation: Operation, name: &str, limits: &Limits) -> Value {
    let is_past = operation == Operation::History;
    let moment = || json!({ "type": "string", "pattern": MOMENT });
    let bytes = || json!({ "type": "string" });
    let words = |words: &[&str]| json!({ "type": "string", "enum": words });
    let (schema, description) = match name {
        "at" => (moment(), "A stamp, a time, or how long ago: what was then."),
        "since" => (moment(), "Behind this moment; if it is left out, from now on."),
        "from" if is_past => (moment(), "From this moment on."),
        "to" if is_past => (moment(), "Up to this moment, inclusive."),
        "snapshot" => (
            json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" }),
            "The id of a snapshot: what it shows.",
        ),
        "key_base64" => (
            json!({ "type": "string", "pattern": BASE64 }),
            "The key, where the address ends with the slash in front of it.",
        ),
        "ttl" => (
            json!({ "type": "number", "minimum": 0.001, "maximum": 1e10 }),
            "Seconds after which it expires.",
        ),
        "expires" => (
            json!({ "type": "string", "pattern": "^(never|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+)$" }),
            "When it expires, whatever the keyspace says; not beside ttl.",
        ),
        "durability" => (words(&["always", "buffered"]), "What it has to be when it is answered."),
        "prefix" => (bytes(), "Keys that begin with this."),
        "from" => (bytes(), "Keys from this one on."),
        "to" => (bytes(), "Keys in front of this one."),
        "start" => (json!({ "type": "string", "minLength": 1 }), "The first key."),
        "end" => (json!({ "type": "string", "minLength": 1 }), "The last key, inclusive."),
        "reverse" | "previous" => (words(&["true", "false"]), "Backwards; with values of before."),
        "limit" => (
            json!({ "type": "integer", "minimum": 1, "maximum": limits.page_count }),
            "At most so many; of lines, without a limit if it is left out.",
        ),
        "cursor" => (
            json!({ "type": "string", "pattern": CURSOR }),
            "That of the page before; where it is too long for an address, in a body.",
        ),
        "values" => {
            (words(&["none", "short", "full"]), "None, those of up to 64 KiB (else), or all.")
        }
        "order" => (words(&["newest", "oldest"]), "Which comes first."),
        "confirm" => (words(&["yes"]), "That everything is meant."),
        "keyspaces" => (json!({ "type": "string" }), "Names, with commas between them."),
        "interval" => {
            (json!({ "type": "number", "minimum": 0.25, "maximum": 60 }), "Seconds in between.")
        }
        _ => (json!({ "type": "string" }), ""),
    };
    let is_required = operation == Operation::PlainRange;
    json!({
        "name": name,
        "in": "query",
        "required": is_required,
        "schema": schema,
        "description": description,
    })
}

fn headers(operation: Operation) -> Vec<Value> {
    let header = |name: &str, pattern: &str, description: &str| {
        json!({
            "name": name,
            "in": "header",
            "required": false,
            "schema": { "type": "string", "pattern": pattern },
            "description": description,
        })
    };
    let mut headers = match operation {
        Operation::GetKey | Operation::PutKey | Operation::DeleteKey => vec![
            header("If-Match", TAGS, "The entry has one of these tags."),
            header("If-None-Match", TAGS, "It has none of these; `*`: it is not there."),
        ],
        Operation::Changes => {
            vec![header("Last-Event-ID", "^[0-9]{1,20}$", "Behind the event of this id.")]
        }
        _ => Vec::new(),
    };
    if once::is_for(operation) {
        let what = "Done once, however often this request comes with this key.";
        headers.push(header("Idempotency-Key", ONCE, what));
    }
    headers
}
