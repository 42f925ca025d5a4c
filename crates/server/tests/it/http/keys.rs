//! Single keys at `/v1`.

use std::sync::Barrier;

use serde_json::{Value, json};

use super::client::escaped;
use super::{Client, Running};

const KEYS: &str = "/v1/keyspaces/default/keys";

#[test]
fn keys_and_values_are_any_bytes() {
    let server = Running::start();
    let mut client = server.client();
    let odd: [&[u8]; 12] = [
        b"",
        b"\0",
        b"a/b",
        b"%",
        b"%2F",
        b"..",
        b"a b+c?d#e&f=g",
        b"\xff\xfe",
        "schl\u{fc}ssel".as_bytes(),
        b"__TOMBSTONE__",
        b"\0\0tombstone",
        b"null",
    ];
    for (index, key) in odd.iter().enumerate() {
        let path = format!("{KEYS}/{}", escaped(key));
        for value in [*key, b"", b"__deleted__", b"\xf0\x28\x8c\x28"] {
            let put = client.put(&path, value);
            assert_eq!(put.status, 200, "{put:?}");
            let got = client.get(&path);
            assert_eq!((got.status, got.body.as_slice()), (200, value));
            assert_eq!(got.stamp(), put.json()["stamp"].as_str().unwrap());
            assert_eq!(got.header("content-type"), Some("application/octet-stream"));
        }
        assert_eq!(server.db.keyspace("default").unwrap().len().unwrap(), index as u64 + 1);
    }
    for key in odd {
        let path = format!("{KEYS}/{}", escaped(key));
        assert_eq!(client.send("HEAD", &path, &[], b"").header("content-length"), Some("4"));
        assert_eq!(client.delete(&path).status, 200);
        assert_eq!(client.get(&path).code(), "key_not_found");
        assert_eq!(client.delete(&path).status, 200, "it may be gone already");
    }
}

#[test]
fn a_key_that_browsers_cannot_send_is_sent_otherwise() {
    let server = Running::start();
    let mut client = server.client();
    assert_eq!(client.put(&format!("{KEYS}/?key_base64=Li4="), "up").status, 200);
    assert_eq!(client.get(&format!("{KEYS}/%2E%2E")).body, b"up");
    assert_eq!(client.get(&format!("{KEYS}/x?key_base64=Li4=")).code(), "bad_parameter");
    assert_eq!(client.get(&format!("{KEYS}/?key_base64=Li4")).body, b"up");
    assert_eq!(client.get(&format!("{KEYS}/?key_base64=!")).code(), "bad_parameter");
}

#[test]
fn an_entry_as_json_says_what_it_is() {
    let server = Running::start();
    let mut client = server.client();
    let path = format!("{KEYS}/a");
    let stamp = client.put(&format!("{path}?ttl=1000"), b"\xff").stamp();
    let json = [("accept", "application/json")];
    let entry = client.send("GET", &path, &json, b"").json();
    let expires = entry["expires"].as_str().unwrap().to_owned();
    let expected =
        json!({ "key": "a", "value_base64": "/w==", "stamp": stamp, "expires": expires });
    assert_eq!(entry, expected);
    assert_eq!(client.get(&path).header("lithe-expires"), Some(expires.as_str()));
    client.put(&path, "text");
    let entry = client.send("GET", &path, &json, b"").json();
    assert_eq!((&entry["value"], &entry["expires"]), (&"text".into(), &Value::Null));
}

#[test]
fn conditions_hold_or_nothing_is_done() {
    let server = Running::start();
    let mut client = server.client();
    let path = format!("{KEYS}/a");
    let mut with = |method: &str, name: &str, value: &str, body: &[u8]| {
        client.send(method, &path, &[(name, value)], body)
    };
    assert_eq!(with("PUT", "if-match", "*", b"0").code(), "precondition_failed");
    let first = with("PUT", "if-none-match", "*", b"1").stamp();
    let refused = with("PUT", "if-none-match", "*", b"2");
    assert_eq!((refused.status, &refused.json()["error"]["stamp"]), (412, &first.clone().into()));
    let tag = format!("\"{first}\"");
    assert_eq!(with("GET", "if-none-match", &tag, b"").status, 304);
    assert_eq!(with("GET", "if-match", &tag, b"").body, b"1");
    let second = with("PUT", "if-match", &tag, b"3").stamp();
    assert_ne!(first, second);
    assert_eq!(with("PUT", "if-match", &tag, b"4").status, 412);
    assert_eq!(with("DELETE", "if-match", &tag, b"").status, 412);
    assert_eq!(with("GET", "if-match", &tag, b"").status, 412);
    assert_eq!(with("GET", "if-none-match", &tag, b"").body, b"3");
    assert_eq!(with("PUT", "if-match", "no tag", b"4").code(), "bad_request");
    assert_eq!(with("DELETE", "if-match", &format!("\"{second}\""), b"").status, 200);
    assert_eq!(with("GET", "if-match", "*", b"").status, 412);
}

#[test]
fn of_those_who_write_on_one_condition_one_does() {
    let server = Running::start();
    let path = format!("{KEYS}/contended");
    let mut stamp = server.client().put(&path, "0").stamp();
    for round in 0..50 {
        let barrier = Barrier::new(4);
        let write = |writer: usize| {
            let mut client = Client::connect(server.address);
            let tag = format!("\"{stamp}\"");
            barrier.wait();
            let body = format!("{round} {writer}");
            client.send("PUT", &path, &[("if-match", &tag)], body.as_bytes())
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert!(answers.iter().all(|answer| [200, 412].contains(&answer.status)), "{answers:?}");
        stamp = winners[0].stamp();
    }
}

#[test]
fn merges_need_an_operator() {
    let server = Running::start();
    let mut client = server.client();
    let visits = json!({ "name": "visits", "structure": "lsm", "merge_operator": "append" });
    assert_eq!(client.post("/v1/keyspaces", &visits).status, 201);
    for part in ["a", "b"] {
        let path = "/v1/keyspaces/visits/merge/k";
        assert_eq!(client.send("POST", path, &[], part.as_bytes()).status, 200);
    }
    assert_eq!(client.get("/v1/keyspaces/visits/keys/k").body, b"ab");
    let refused = client.send("POST", "/v1/keyspaces/default/merge/k", &[], b"a");
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_argument"));
}

#[test]
fn parameters_that_are_not_known_are_refused() {
    let server = Running::start();
    let mut client = server.client();
    for query in [
        "tll=5",
        "ttl=0",
        "ttl=x",
        "ttl=1&ttl=2",
        "expires=soon",
        "ttl=1&expires=never",
        "durability=maybe",
        "at=0",
    ] {
        let answer = client.put(&format!("{KEYS}/a?{query}"), "v");
        assert_eq!(answer.code(), "bad_parameter", "{query}");
    }
    assert_eq!(client.get(&format!("{KEYS}/a?at=5m")).code(), "no_history");
    assert_eq!(client.get(&format!("{KEYS}/a")).status, 404);
}

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let server = Running::start();
    let mut client = server.client();
    for number in 0..100 {
        assert_eq!(client.put(&format!("{KEYS}/{number}"), format!("v{number}")).status, 200);
    }
    let large = vec![7; 1 << 20];
    assert_eq!(client.put(&format!("{KEYS}/large"), &large).status, 200);
    let server = Running::start_in(server.stop(), |_| {});
    let mut client = server.client();
    for number in 0..100 {
        assert_eq!(client.get(&format!("{KEYS}/{number}")).body, format!("v{number}").as_bytes());
    }
    assert_eq!(client.get(&format!("{KEYS}/large")).body, large);
}

#[test]
fn values_are_what_was_sent_and_shown_as_who_asks_prefers() {
    let server = Running::start();
    let mut client = server.client();
    let path = "/v1/keyspaces/default/keys/a";
    for coding in ["gzip", "br", "identity, gzip", ""] {
        let coded = client.send("PUT", path, &[("content-encoding", coding)], b"x");
        assert_eq!((coded.status, coded.code().as_str()), (415, "unsupported_media_type"));
    }
    let json = [("content-type", "application/json"), ("content-encoding", "deflate")];
    assert_eq!(client.send("POST", "/v1/batch", &json, b"{\"operations\":[]}").status, 415);
    assert_eq!(client.get(path).status, 404);
    assert_eq!(client.send("PUT", path, &[("content-encoding", "Identity")], b"x").status, 200);
    for (accept, is_json) in [
        ("application/json;q=0", false),
        ("text/plain, application/json;q=0.5", false),
        ("application/json, text/plain, */*", true),
    ] {
        let found = client.send("GET", path, &[("accept", accept)], b"");
        assert_eq!(found.body != b"x", is_json, "{accept}");
    }
}
