//! Large values: written into JSON part by part, and held in memory within a bound.

use serde_json::{Value, json};

use super::{Client, Running};

const KEYS: &str = "/v1/keyspaces/default/keys";
const JSON: &[(&str, &str)] = &[("accept", "application/json")];
const MIB: usize = 1 << 20;

/// Bytes that are text, with characters across all places at which it may be cut, and such that
/// JSON escapes.
fn text(size: usize) -> String {
    let pattern = "é\u{1}\"\\a\u{1f43e}\n";
    pattern.repeat(size / pattern.len())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize] as char;
            out.push(if place <= group.len() { digit } else { '=' });
        }
    }
    out
}

#[test]
fn large_values_are_whole_in_every_form() {
    let server = Running::start();
    let db = &server.db;
    let versioned = db.create_keyspace("v", lithedb::KeyspaceOptions::history()).unwrap();
    let (readable, binary) = (text(MIB), vec![0xfe; MIB + 1]);
    let keys = db.keyspace("default").unwrap();
    for keyspace in [&keys, &versioned] {
        keyspace.put("a", &readable).unwrap();
        keyspace.put("b", &binary).unwrap();
        keyspace.put("c", "short").unwrap();
    }
    let (as_text, as_base64) = (json!(readable), json!(base64(&binary)));
    let mut client = server.client();
    let one = client.send("GET", &format!("{KEYS}/a"), JSON, b"");
    assert!(one.header("etag").is_some());
    assert_eq!(one.json()["value"], as_text);
    let two = client.send("GET", &format!("{KEYS}/b"), JSON, b"").json();
    assert_eq!(two["value_base64"], as_base64);
    assert_eq!(client.get("/key/a").json(), json!({ "key": "a", "value": readable }));
    assert_eq!(client.get("/range?start=a&end=a").json()[0]["value"], as_text);
    let check = |entries: &Value| {
        assert_eq!(entries[0]["value"], as_text);
        assert_eq!(entries[1]["value_base64"], as_base64);
        assert_eq!(entries[2]["value"], "short");
    };
    check(&client.get(&format!("{KEYS}?values=full")).json()["entries"]);
    let lines = [("accept", "application/x-ndjson")];
    let lines = client.send("GET", &format!("{KEYS}?values=full"), &lines, b"").body;
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(&lines)
        .into_iter()
        .map(|line| line.unwrap())
        .collect();
    check(&json!(lines));
    let wanted = json!({ "keys": ["a", "b", "c"] });
    let found = client.post("/v1/keyspaces/default/multi-get?values=full", &wanted).json();
    check(&found["entries"]);
    let history = client.get("/v1/keyspaces/v/history/a?values=full").json();
    assert_eq!(history["versions"][0]["value"], as_text);
}

/// Asks, and does not read on behind the head.
fn hold(server: &Running, path: &str, headers: &[(&str, &str)]) -> Client {
    let mut client = server.client();
    client.send_only("GET", path, headers, b"");
    assert_eq!(client.head().unwrap().0, 200);
    client
}

#[test]
fn large_values_that_are_held_at_a_time_have_a_bound() {
    // There is room for sixteen of the largest bodies: 64 MiB.
    let server = Running::start_with(|config| {
        config.limits.body_size = 4 << 20;
        config.limits.value_size = 4 << 20;
    });
    let keys = server.db.keyspace("default").unwrap();
    keys.put("large", vec![b'v'; 30 * MIB]).unwrap();
    keys.put("largest", vec![b'v'; 65 * MIB]).unwrap();
    keys.put("small", "v").unwrap();
    let large = format!("{KEYS}/large");
    let first = hold(&server, &large, &[]);
    let second = hold(&server, &format!("{KEYS}?values=full&prefix=large&limit=1"), &[]);
    let mut client = server.client();
    for (path, headers) in [
        (large.as_str(), &[][..]),
        (large.as_str(), JSON),
        ("/key/large", &[]),
        ("/range?start=large&end=large", &[]),
        ("/v1/keyspaces/default/keys?values=full&prefix=large", &[]),
    ] {
        let refused = client.send("GET", path, headers, b"");
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{path}");
    }
    let body = vec![b'v'; 4 << 20];
    let refused = server.client().put(&format!("{KEYS}/b"), &body);
    assert!(refused.status == 503 || refused.status == 200, "there may be room for one of these");
    assert_eq!(client.get(&format!("{KEYS}/small")).body, b"v", "what is small needs none");
    let listed = client.get(&format!("{KEYS}?prefix=large")).json();
    assert_eq!(listed["entries"][0]["value_size"], 30 * MIB);
    let never = client.get(&format!("{KEYS}/largest"));
    assert_eq!((never.status, never.code().as_str()), (413, "too_large"));
    drop((first, second));
    // It is free again when the server has seen that they are gone.
    while client.get(&large).status == 503 {
        std::thread::yield_now();
    }
    assert_eq!(client.get(&large).body.len(), 30 * MIB);
}
