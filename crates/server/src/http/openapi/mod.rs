//! The description of the calls for programs, in OpenAPI 3.1: made of the table of routes, so that
//! there is none that is not in it.
//!
//! `parameters.rs` says what stands in addresses and headers, `requests.rs` and `answers.rs` what
//! bodies are.

mod answers;
mod parameters;
mod requests;

use serde_json::{Map, Value, json};

use super::ask::{Ask, Outcome, ok_json};
use super::failure::Code;
use super::routes::{Access, Operation, ROUTES, Route};
use crate::config::Limits;

/// `GET /v1/openapi.json`
pub fn show(ask: &mut Ask) -> Outcome {
    let tokens = match ask.shared.config.tokens {
        Some(_) => Tokens::Needed,
        None => Tokens::None,
    };
    ok_json(&document(&ask.shared.limits, tokens))
}

/// Whether a call is one of programs: the console is for people.
fn is_described(route: &Route) -> bool {
    !matches!(route.operation, Operation::Root | Operation::Console)
}

/// Whether the server that is described knows tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    Needed,
    None,
}

/// All of it.
fn document(limits: &Limits, tokens: Tokens) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter().filter(|route| is_described(route)) {
        let item = paths.entry(route.template.to_owned()).or_insert_with(|| json!({}));
        item[route.method.to_lowercase()] = operation(route, limits);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "LitheDB",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Keys and values over HTTP: the plain calls of a key-value service, \
                and /v1 with everything else.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": if tokens == Tokens::Needed { json!([{ "token": [] }]) } else { json!([]) },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": {
                "Failure": {
                    "description": "Why it was not done.",
                    "content": { "application/json": { "schema": reference("Failure") } },
                },
                "PlainFailure": {
                    "description": "Why it was not done.",
                    "content": { "application/json": { "schema": reference("PlainFailure") } },
                },
            },
            "schemas": answers::schemas(),
        },
    })
}

/// Another part of the document.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn operation(route: &Route, limits: &Limits) -> Value {
    let is_head = route.method == "HEAD";
    let suffix = if is_head { "Head" } else { "" };
    let mut described = json!({
        "operationId": format!("{:?}{suffix}", route.operation),
        "summary": route.summary,
        "tags": [tag(route)],
        "parameters": parameters::of(route, limits),
        "responses": responses(route),
    });
    if route.access == Access::Public {
        described["security"] = json!([]);
    }
    if let Some(body) = requests::of(route.operation, limits) {
        described["requestBody"] = body;
    }
    described
}

fn tag(route: &Route) -> &'static str {
    match route.template.split('/').nth(1) {
        Some("key" | "range") => "plain",
        Some("v1") => match route.template.split('/').nth(2) {
            Some("keyspaces") if route.template.split('/').count() <= 4 => "keyspaces",
            Some("keyspaces") => "keys",
            Some("batch") => "keys",
            Some("snapshots" | "changes") => "moments",
            Some("check" | "backups" | "jobs") => "maintenance",
            _ => "server",
        },
        _ => "server",
    }
}

fn responses(route: &Route) -> Value {
    let is_plain = route.template == "/range" || route.template.starts_with("/key/");
    let failure = if is_plain { "PlainFailure" } else { "Failure" };
    let failure = json!({ "$ref": format!("#/components/responses/{failure}") });
    let mut responses = answers::of(route);
    // Failures of every call; which of them have which code says the schema.
    let mut statuses: Vec<u16> = Code::ALL.iter().map(|(_, _, status, _)| *status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        let status = status.to_string();
        if route.method == "HEAD" {
            responses.entry(status).or_insert_with(|| json!({ "description": "See GET." }));
        } else {
            responses.entry(status).or_insert_with(|| failure.clone());
        }
    }
    Value::Object(responses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_described_and_nothing_else_is() {
        let document = document(&Limits::default(), Tokens::Needed);
        let paths = document["paths"].as_object().unwrap();
        let mut described = 0;
        for (template, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                described += 1;
                let route = ROUTES.iter().find(|route| {
                    route.template == template && route.method.eq_ignore_ascii_case(method)
                });
                let route = route.unwrap_or_else(|| panic!("{method} {template} is no call"));
                let parameters = operation["parameters"].as_array().unwrap();
                let is_there = |name: &str, place: &str| {
                    parameters.iter().any(|known| known["name"] == name && known["in"] == place)
                };
                assert!(route.query.iter().all(|name| is_there(name, "query")), "{template}");
                for part in template.split('/').filter_map(|part| part.strip_prefix('{')) {
                    assert!(is_there(part.trim_end_matches('}'), "path"), "{template}");
                }
            }
        }
        let routes = ROUTES.iter().filter(|route| is_described(route)).count();
        assert_eq!(described, routes);
    }

    #[test]
    fn what_is_referred_to_is_there() {
        fn references<'d>(value: &'d Value, found: &mut Vec<&'d str>) {
            match value {
                Value::Object(object) => {
                    found.extend(object.get("$ref").and_then(Value::as_str));
                    object.values().for_each(|value| references(value, found));
                }
                Value::Array(array) => array.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document(&Limits::default(), Tokens::Needed);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = document(&Limits::default(), Tokens::Needed);
        let items = document["paths"].as_object().unwrap().values();
        let ids = items.flat_map(|item| item.as_object().unwrap().values());
        let ids: Vec<&str> = ids.map(|one| one["operationId"].as_str().unwrap()).collect();
        let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
    }
}
