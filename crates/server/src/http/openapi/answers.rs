//! Bodies of answers.

use serde_json::{Map, Value, json};

use super::reference;
use crate::http::failure::Code;
use crate::http::once;
use crate::http::routes::{Operation, Route};

/// What a call answers with when it was done.
pub fn of(route: &Route) -> Map<String, Value> {
    use Operation as Op;
    let mut responses = Map::new();
    let (status, description, content) = match route.operation {
        Op::GetKey => {
            responses.insert("304".to_owned(), json!({ "description": "It is known already." }));
            let binary = json!({ "schema": { "type": "string", "format": "binary" } });
            let entry = json!({ "schema": reference("Entry") });
            let content = json!({ "application/octet-stream": binary, "application/json": entry });
            (200, "The value, or with `Accept: application/json` the entry.", content)
        }
        Op::Scan | Op::ScanByBody => {
            let lines = json!({ "schema": { "type": "string" } });
            let page = json!({ "schema": reference("Page") });
            let content = json!({ "application/json": page, "application/x-ndjson": lines });
            (200, "A page; or lines, of which the last has the cursor.", content)
        }
        Op::Metrics => {
            let text = json!({ "schema": { "type": "string" } });
            (200, "Figures.", json!({ "text/plain": text }))
        }
        Op::Changes | Op::StatsStream => {
            let events = json!({ "schema": { "type": "string" } });
            (200, "Events, without an end.", json!({ "text/event-stream": events }))
        }
        operation => {
            let (status, schema) = schema_of(operation);
            let content = json!({ "application/json": { "schema": schema } });
            (status, "It was done.", content)
        }
    };
    if route.operation == Op::Ready {
        let content = json!({ "application/json": { "schema": reference("Status") } });
        let not_ready = json!({ "description": "It is not.", "content": content });
        responses.insert("503".to_owned(), not_ready);
    }
    let mut response = match route.method {
        "HEAD" => json!({ "description": description }),
        _ => json!({ "description": description, "content": content }),
    };
    if once::is_for(route.operation) {
        response["headers"]["Idempotency-Replayed"] = json!({
            "description": "It was done when the same request came before.",
            "schema": { "type": "string", "enum": ["true"] },
        });
    }
    responses.insert(status.to_string(), response);
    responses
}

fn schema_of(operation: Operation) -> (u16, Value) {
    use Operation as Op;
    let name = match operation {
        Op::PlainPut | Op::PlainGet => "Pair",
        Op::PlainDelete => "Deleted",
        Op::PlainRange => "Pairs",
        Op::ListKeyspaces => "Keyspaces",
        Op::CreateKeyspace => return (201, reference("Keyspace")),
        Op::ShowKeyspace | Op::RenameKeyspace => "Keyspace",
        Op::ConvertKeyspace
        | Op::CompactKeyspace
        | Op::Check
        | Op::MakeBackup
        | Op::VerifyBackup
        | Op::RestoreBackup => return (202, reference("OneJob")),
        Op::ShowJob | Op::CancelJob => "OneJob",
        Op::ListJobs => "Jobs",
        Op::ListBackups => "Backups",
        Op::RemoveBackup => "RemovedBackup",
        Op::ListTables => "Tables",
        Op::PutKey
        | Op::DeleteKey
        | Op::MergeKey
        | Op::DeleteRange
        | Op::ClearKeyspace
        | Op::Batch => "Written",
        Op::Count => "Count",
        Op::MultiGet => "Entries",
        Op::History => "History",
        Op::RestoreKeys => "Restored",
        Op::TakeSnapshot => return (201, reference("Snapshot")),
        Op::ShowSnapshot => "Snapshot",
        Op::Alive | Op::Ready => "Status",
        Op::Health => "Health",
        Op::WhoAmI => "WhoAmI",
        _ => "Figures",
    };
    (200, reference(name))
}

fn object(properties: impl Into<Value>, required: &[&str]) -> Value {
    let properties: Value = properties.into();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn list_of(name: &str) -> Value {
    json!({ "type": "array", "items": reference(name) })
}

/// Parts that answers have in common.
pub fn schemas() -> Value {
    let string = || json!({ "type": "string" });
    let integer = || json!({ "type": "integer", "minimum": 0 });
    let stamp = || json!({ "type": "string", "pattern": "^[0-9]+$" });
    let time = || json!({ "type": ["string", "null"], "format": "date-time" });
    let mut schemas = failures();
    let mut add = |name: &str, schema: Value| drop(schemas.insert(name.to_owned(), schema));
    add("Pair", object(json!({ "key": string(), "value": string() }), &["key", "value"]));
    add("Pairs", json!({ "type": ["array", "null"], "items": reference("Pair") }));
    add("Deleted", object(json!({ "deleted": string() }), &["deleted"]));
    add("Written", object(json!({ "stamp": stamp() }), &["stamp"]));
    add("Count", object(json!({ "count": integer() }), &["count"]));
    let entry = json!({
        "key": string(), "key_base64": string(), "value": string(), "value_base64": string(),
        "value_size": integer(), "stamp": stamp(), "expires": time(),
        "found": { "type": "boolean" },
    });
    add("Entry", object(entry.clone(), &["stamp", "expires"]));
    add("Found", object(entry, &["found"]));
    let cursor = json!({ "type": ["string", "null"] });
    let page = json!({ "entries": list_of("Entry"), "cursor": cursor });
    add("Page", object(page, &["entries", "cursor"]));
    add("Entries", object(json!({ "entries": list_of("Found") }), &["entries"]));
    let version = json!({
        "deleted": { "type": "boolean" }, "value": string(), "value_base64": string(),
        "value_size": integer(), "stamp": stamp(), "time": string(), "expires": time(),
    });
    add("Version", object(version, &["deleted", "stamp", "time"]));
    let history = json!({
        "key": string(), "key_base64": string(), "versions": list_of("Version"),
        "next": { "type": ["string", "null"], "description": "The stamp of the next version." },
    });
    add("History", object(history, &["versions", "next"]));
    let restored = json!({ "put": integer(), "deleted": integer() });
    add("Restored", object(restored, &["put", "deleted"]));
    let snapshot = json!({
        "id": string(), "stamp": stamp(), "time": string(), "expires": string(),
        "seconds": { "type": "number" },
    });
    add("Snapshot", object(snapshot, &["id", "stamp", "expires"]));
    let keyspace = json!({
        "name": string(), "id": integer(), "structure": string(),
        "options": { "type": "object" }, "has_own_key": { "type": "boolean" },
        "kept_from": stamp(), "entries_estimate": integer(), "bytes_on_disk": integer(),
    });
    add("Keyspace", object(keyspace, &["name", "id", "structure", "options"]));
    add("Keyspaces", object(json!({ "keyspaces": list_of("Keyspace") }), &["keyspaces"]));
    let tables = json!({
        "structure": string(), "tables": { "type": "array", "items": { "type": "object" } },
        "intervals": integer(), "runs": integer(), "segments": integer(),
        "figures": { "type": "object" },
    });
    add("Tables", object(tables, &["structure", "tables", "figures"]));
    add("Figures", json!({ "type": "object" }));
    maintenance(&mut schemas);
    Value::Object(schemas)
}

fn maintenance(schemas: &mut Map<String, Value>) {
    let string = || json!({ "type": "string" });
    let integer = || json!({ "type": "integer", "minimum": 0 });
    let mut add = |name: &str, schema: Value| drop(schemas.insert(name.to_owned(), schema));
    let states = ["running", "cancelling", "done", "failed", "cancelled"];
    let progress = json!({
        "done": integer(), "total": { "type": ["integer", "null"] }, "unit": string(),
    });
    let job = json!({
        "id": string(), "kind": string(), "state": { "type": "string", "enum": states },
        "progress": object(progress, &["done", "total", "unit"]), "began": string(),
        "ended": { "type": ["string", "null"] }, "message": string(),
        "result": { "type": "object" }, "error": { "type": "object" },
    });
    add("Job", object(job, &["id", "kind", "state", "progress", "began", "ended"]));
    add("OneJob", object(json!({ "job": reference("Job") }), &["job"]));
    add("Jobs", object(json!({ "jobs": list_of("Job") }), &["jobs"]));
    let backup = json!({
        "name": string(), "number": integer(), "created": string(), "stamp": string(),
        "files": integer(), "bytes": integer(), "written_bytes": integer(), "database": string(),
    });
    add("Backup", object(backup, &["name", "number", "created", "stamp", "bytes"]));
    let removed = json!({ "deleted": string(), "files": integer(), "bytes": integer() });
    add("RemovedBackup", object(removed, &["deleted", "files", "bytes"]));
    add("Backups", object(json!({ "backups": list_of("Backup") }), &["backups"]));
    add("Status", object(json!({ "status": string() }), &["status"]));
    let states =
        ["writable", "failing", "disk_full", "read_only", "opened_for_reading", "closed", "other"];
    let health = json!({
        "state": { "type": "string", "enum": states }, "message": string(),
        "is_good": { "type": "boolean" },
    });
    add("Health", object(health, &["state", "message", "is_good"]));
    let strings = || json!({ "type": "array", "items": string() });
    let who = json!({
        "name": string(), "grants": strings(), "with_all": strings(),
        "tokens": { "type": "boolean" },
    });
    add("WhoAmI", object(who, &["name", "grants", "tokens"]));
}

fn failures() -> Map<String, Value> {
    let codes: Vec<&str> = Code::ALL.iter().map(|(_, name, ..)| *name).collect();
    let listed = Code::ALL
        .iter()
        .map(|(_, name, status, meaning)| format!("- `{name}` ({status}): {meaning}\n"));
    let error = json!({
        "code": {
            "type": "string",
            "enum": codes,
            "description": listed.collect::<String>(),
        },
        "message": { "type": "string" },
    });
    let mut schemas = Map::new();
    let failure = json!({ "error": object(error, &["code", "message"]) });
    schemas.insert("Failure".to_owned(), object(failure, &["error"]));
    let plain = json!({ "error": { "type": "string" } });
    schemas.insert("PlainFailure".to_owned(), object(plain, &["error"]));
    schemas
}
