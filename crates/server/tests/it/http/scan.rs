//! Ranges at `/v1`.

use std::time::Duration;

use lithedb::{KEY_LEN_MAX, WriteBatch};
use serde_json::{Value, json};

use super::{Client, Running};

const KEYS: &str = "/v1/keyspaces/default/keys";

fn fill(server: &Running, count: usize, value: &[u8]) {
    let keys = server.db.keyspace("default").unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..count {
        batch.put(&keys, format!("k{number:06}"), value);
    }
    server.db.write(batch).unwrap();
}

fn keys_of(page: &Value) -> Vec<String> {
    let entries = page["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
}

/// All keys, page by page.
fn walk(client: &mut Client, query: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{KEYS}?{query}{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        all.extend(keys_of(&page));
        match page["cursor"].as_str() {
            None => return all,
            Some(more) => cursor = format!("&cursor={more}"),
        }
    }
}

#[test]
fn pages_go_on_where_others_end_both_ways() {
    let server = Running::start();
    fill(&server, 250, b"v");
    let mut client = server.client();
    let all: Vec<String> = (0..250).map(|number| format!("k{number:06}")).collect();
    let mut backwards = all.clone();
    backwards.reverse();
    for limit in [1, 7, 100, 101, 250, 1000] {
        assert_eq!(walk(&mut client, &format!("limit={limit}")), all);
        assert_eq!(walk(&mut client, &format!("limit={limit}&reverse=true")), backwards);
        let part = walk(&mut client, &format!("limit={limit}&from=k000010&to=k000020"));
        assert_eq!(part, all[10..20]);
        let part = walk(&mut client, &format!("limit={limit}&prefix=k00001&reverse=true"));
        assert_eq!(part, backwards[230..240]);
    }
    assert_eq!(walk(&mut client, "from=k000200&to=k000100"), [""; 0]);
    assert_eq!(walk(&mut client, "prefix=none"), [""; 0]);
    assert_eq!(client.get(&format!("{KEYS}?limit=0")).code(), "bad_parameter");
    assert_eq!(client.get(&format!("{KEYS}?limit=10001")).code(), "bad_parameter");
    assert_eq!(client.get(&format!("{KEYS}?cursor=*")).code(), "bad_parameter");
}

#[test]
fn large_values_are_told_by_their_size() {
    let server = Running::start();
    let mut client = server.client();
    client.put(&format!("{KEYS}/large"), vec![b'x'; 100_000]);
    client.put(&format!("{KEYS}/small"), "s");
    let mut entries =
        |values: &str| client.get(&format!("{KEYS}?values={values}")).json()["entries"].take();
    let short = entries("short");
    assert_eq!((&short[0]["value_size"], &short[0]["value"]), (&100_000.into(), &Value::Null));
    assert_eq!(short[1]["value"], "s");
    assert_eq!(entries("full")[0]["value"].as_str().unwrap().len(), 100_000);
    assert_eq!(entries("none")[1].get("value"), None);
    let got = json!({ "keys": ["large", "none", { "key_base64": "c21hbGw=" }] });
    let got = client.post("/v1/keyspaces/default/multi-get", &got).json();
    assert_eq!(got["entries"][0]["value_size"], 100_000);
    assert_eq!(got["entries"][1], json!({ "key": "none", "found": false }));
    assert_eq!(
        (&got["entries"][2]["value"], &got["entries"][2]["found"]),
        (&"s".into(), &true.into())
    );
}

#[test]
fn lines_are_as_many_as_there_are_and_end_with_the_cursor() {
    let server = Running::start();
    fill(&server, 20_000, b"value");
    let mut client = server.client();
    let lines = [("accept", "application/x-ndjson")];
    let answer = client.send("GET", KEYS, &lines, b"");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let text = String::from_utf8(answer.body).unwrap();
    let parsed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed.len(), 20_001);
    assert_eq!(parsed[19_999]["key"], "k019999");
    assert_eq!(parsed[20_000], json!({ "cursor": null }));
    let short = client.send("GET", &format!("{KEYS}?limit=2"), &lines, b"");
    let text = String::from_utf8(short.body).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let cursor = last["cursor"].as_str().unwrap();
    let next = client.get(&format!("{KEYS}?limit=1&cursor={cursor}")).json();
    assert_eq!(next["entries"][0]["key"], "k000002");
}

#[test]
fn who_stops_reading_lines_is_not_waited_for() {
    let server = Running::start_with(|config| {
        config.limits.first_byte = Duration::from_millis(300);
        config.limits.rate_min = 1 << 30;
        config.limits.blocking_requests = 1;
    });
    fill(&server, 100_000, &[b'x'; 500]);
    let mut slow = server.client();
    slow.send_only("GET", KEYS, &[("accept", "application/x-ndjson")], b"");
    assert_eq!(slow.head().unwrap().0, 200);
    // The one thread is at work until the server has seen that nobody reads.
    let mut client = server.client();
    loop {
        let answer = client.get(&format!("{KEYS}?limit=1000"));
        match answer.status {
            200 => break,
            503 => assert_eq!(answer.header("retry-after"), Some("1")),
            _ => panic!("{answer:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = client.get("/v1/stats").json()["server"]["refusals"]["slow"].as_u64();
    assert_eq!(refused, Some(1));
}

#[test]
fn ranges_are_counted_and_deleted() {
    let server = Running::start();
    fill(&server, 100, b"v");
    let mut client = server.client();
    let mut count = |query: &str| {
        let counted = client.get(&format!("/v1/keyspaces/default/count?{query}"));
        counted.json()["count"].as_u64().unwrap()
    };
    assert_eq!(count(""), 100);
    assert_eq!(count("prefix=k00001"), 10);
    assert_eq!(count("from=k000050&to=k000040"), 0);
    let mut client = server.client();
    assert_eq!(client.delete(&format!("{KEYS}?prefix=k00001")).status, 200);
    assert_eq!(client.delete(&format!("{KEYS}?from=z&to=a")).status, 200);
    assert_eq!(client.delete(KEYS).code(), "confirmation_needed");
    assert_eq!(server.db.keyspace("default").unwrap().len().unwrap(), 90);
    assert_eq!(client.delete(&format!("{KEYS}?confirm=yes")).status, 200);
    assert!(server.db.keyspace("default").unwrap().is_empty().unwrap());
}

/// All keys, page by page, asked for by bodies.
fn walk_by_body(client: &mut Client, query: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let path = format!("/v1/keyspaces/default/scan?{query}");
    let headers = [&[("content-type", "application/json")], headers].concat();
    let (mut all, mut body) = (Vec::new(), json!({ "from": "a" }));
    loop {
        let page = client.send("POST", &path, &headers, body.to_string().as_bytes());
        assert_eq!(page.status, 200, "{page:?}");
        let text = String::from_utf8(page.body).unwrap();
        let page: Value = match headers.len() {
            1 => serde_json::from_str(&text).unwrap(),
            _ => {
                let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let mut lines: Vec<Value> = lines.collect();
                let last = lines.pop().unwrap();
                json!({ "entries": lines, "cursor": last["cursor"] })
            }
        };
        all.extend(keys_of(&page));
        match &page["cursor"] {
            Value::Null => return all,
            more => body["cursor"] = more.clone(),
        }
    }
}

/// An address is at most 64 KiB long, whatever the server is told of heads, and a cursor of
/// such a key is longer: with pages asked for by addresses there was no way past it.
#[test]
fn pages_go_on_behind_the_longest_keys_there_are() {
    let server = Running::start_with(|config| {
        // Of those that were written past this server.
        config.limits.key_size = 100;
        config.limits.body_size = 1000;
    });
    let keys = server.db.keyspace("default").unwrap();
    let ends = [12 << 10, 16 << 10, 64 << 10, KEY_LEN_MAX];
    let mut all: Vec<String> = (0..8)
        .map(|n| format!("k{n}{}", "\u{1}".repeat(ends[n % 4] - 2)))
        .map(|key| key[..key.len().min(KEY_LEN_MAX)].to_owned())
        .collect();
    for key in &all {
        keys.put(key, "v").unwrap();
    }
    let mut client = server.client();
    let lines = [("accept", "application/x-ndjson")];
    for limit in [1, 3, 101] {
        let query = format!("limit={limit}&values=none");
        assert!(walk_by_body(&mut client, &query, &[]) == all, "{limit}");
        assert!(walk_by_body(&mut client, &query, &lines) == all, "{limit}");
    }
    all.reverse();
    assert!(walk_by_body(&mut client, "limit=1&reverse=true", &[]) == all);
    // What a body may say besides is what an address may.
    let path = "/v1/keyspaces/default/scan";
    for (body, code) in [
        (json!({ "prefix": "x".repeat(101) }), "too_large"),
        (json!({ "cursor": "no base64!" }), "invalid_json"),
        (json!({ "from": "a", "from_base64": "YQ==" }), "invalid_json"),
        (json!({ "limit": 1 }), "invalid_json"),
        (json!(["a"]), "invalid_json"),
    ] {
        assert_eq!(client.post(path, &body).code(), code, "{body}");
    }
    let narrow = client.post(path, &json!({ "prefix": "k3", "to_base64": "azQ=" })).json();
    assert_eq!((keys_of(&narrow).len(), &narrow["cursor"]), (1, &Value::Null));
}
