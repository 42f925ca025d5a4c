//! What clients may take, and for how long.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, Running};

const KEY: &str = "/v1/keyspaces/default/keys/a";

#[test]
fn heads_are_limited() {
    let server = Running::start_with(|config| {
        config.limits.head_size = 8 << 10;
        config.limits.header_count = 16;
    });
    let long = "x".repeat(20_000);
    let mut client = server.client();
    client.send_only("GET", &format!("/v1/keyspaces/default/keys/{long}"), &[], b"");
    let answered = client.until_closed();
    assert!(answered.is_empty() || answered.starts_with(b"HTTP/1.1 4"), "{answered:?}");
    let mut client = server.client();
    let headers: Vec<(&str, &str)> = (0..40).map(|_| ("x-header", "y")).collect();
    assert_eq!(client.send("GET", "/health", &headers, b"").status, 431);
    for nonsense in ["\r\n\r\nnonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let mut client = server.client();
        let _it_may_be_closed = client.write(nonsense.as_bytes());
        let answered = client.until_closed();
        assert!(answered.is_empty() || answered.starts_with(b"HTTP/1.1 4"), "{answered:?}");
    }
    assert_eq!(server.client().get("/health").status, 200);
}

#[test]
fn bodies_are_limited_whatever_is_announced() {
    let server = Running::start_with(|config| {
        config.limits.body_size = 1000;
        config.limits.value_size = 500;
        config.limits.key_size = 10;
    });
    let mut client = server.client();
    assert_eq!(client.put(KEY, [1; 500]).status, 200);
    let refused = server.client().put(KEY, [1; 501]);
    assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"));
    let mut client = server.client();
    let announced = [("content-length", "9000000000000000000")];
    client.send_only("PUT", KEY, &announced, b"");
    assert_eq!(client.answer("PUT").code(), "too_large", "it is not waited for");
    let mut client = server.client();
    client.send_only("PUT", KEY, &[("transfer-encoding", "chunked")], b"");
    let chunk = [b"64\r\n".as_slice(), &[1; 100], b"\r\n"].concat();
    client.write(&chunk.repeat(6)).unwrap();
    assert_eq!(client.answer("PUT").code(), "too_large");
    let mut client = server.client();
    let long = client.get("/v1/keyspaces/default/keys/0123456789a");
    assert_eq!((long.status, long.json()["error"]["limit"].as_u64()), (413, Some(10)));
    let json = format!(r#"{{"value":"{}"}}"#, "x".repeat(600));
    assert_eq!(client.put("/key/a", json).status, 413);
}

#[test]
fn who_waits_to_be_asked_for_a_body_is_asked_only_for_one_that_is_wanted() {
    let (server, [token]) = Running::with_tokens_and([&["default:write"]], |config| {
        config.limits.body_size = 1000;
    });
    let refused = |token: &str, path: &str, size: &str, status: u16| {
        let mut client = server.client().with_token(token);
        let headers = [("content-length", size), ("expect", "100-continue")];
        client.send_only("PUT", path, &headers, b"");
        let answer = client.answer("PUT");
        assert_eq!(answer.status, status, "{path}: it is the first that is said");
        assert_eq!(answer.header("connection"), Some("close"), "{path}");
        assert_eq!(client.until_closed(), b"");
    };
    refused("lithe_0123456789abcdef_00", KEY, "10", 401);
    refused(&token, "/v1/keyspaces/other/keys/a", "10", 403);
    refused(&token, KEY, "1001", 413);
    refused(&token, "/v1/nothing", "10", 404);
    let mut client = server.client().with_token(&token);
    for coding in [("content-length", "2"), ("transfer-encoding", "chunked")] {
        client.send_only("PUT", KEY, &[coding, ("expect", "100-Continue")], b"");
        assert_eq!(client.head().unwrap().0, 100);
        let body: &[u8] = if coding.1 == "2" { b"12" } else { b"2\r\n12\r\n0\r\n\r\n" };
        client.write(body).unwrap();
        assert_eq!(client.answer("PUT").status, 200);
    }
    // Without a body there is nothing to be asked for.
    assert_eq!(client.send("DELETE", KEY, &[("expect", "100-continue")], b"").status, 200);
    let other = client.send("PUT", KEY, &[("expect", "200-ok")], b"12");
    assert_eq!((other.status, other.code().as_str()), (417, "expectation_failed"));
}

#[test]
fn who_sends_slowly_is_not_waited_for() {
    let server = Running::start_with(|config| {
        config.limits.first_byte = Duration::from_millis(200);
        config.limits.idle = Duration::from_millis(600);
        config.limits.rate_min = 1 << 20;
    });
    // No first byte; a head that does not end; a body that does not come.
    assert_eq!(server.client().until_closed(), b"");
    let mut client = server.client();
    client.write(b"GET /health HTTP/1.1\r\n").unwrap();
    assert!(!client.until_closed().starts_with(b"HTTP/1.1 2"));
    let mut client = server.client();
    client.send_only("PUT", KEY, &[("content-length", "10")], b"");
    client.write(b"12345").unwrap();
    assert_eq!(client.answer("PUT").code(), "request_timeout");
    assert_eq!(client.until_closed(), b"");
    // A connection without a request is not kept for ever.
    let mut client = server.client();
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.until_closed(), b"");
    assert!(server.db.keyspace("default").unwrap().is_empty().unwrap());
}

#[test]
fn connections_are_limited() {
    let server = Running::start_with(|config| config.limits.connections = 2);
    let mut first = server.client();
    let mut second = server.client();
    assert_eq!((first.get("/health").status, second.get("/health").status), (200, 200));
    assert_eq!(server.client().until_closed(), b"");
    drop(first);
    loop {
        let mut client = server.client();
        client.send_only("GET", "/health", &[], b"");
        if client.try_answer("GET").is_ok_and(|answer| answer.status == 200) {
            break;
        }
    }
}

#[test]
fn a_request_under_way_is_answered_and_an_idle_connection_closed_when_the_server_ends() {
    let server = Running::start();
    let mut idle = server.client();
    assert_eq!(idle.get("/health").status, 200);
    let mut busy = server.client();
    let headers = [("content-length", "2"), ("expect", "100-continue")];
    busy.send_only("PUT", KEY, &headers, b"");
    assert_eq!(busy.head().unwrap().0, 100, "it is under way: its body is asked for");
    busy.write(b"1").unwrap();
    server.drain.begin();
    assert_eq!(idle.until_closed(), b"");
    busy.write(b"2").unwrap();
    assert_eq!(busy.answer("PUT").status, 200);
    assert_eq!(busy.until_closed(), b"");
    let server = Running::start_in(server.stop(), |_| {});
    assert_eq!(server.client().get(KEY).body, b"12");
}

#[test]
fn requests_may_be_sent_ahead() {
    let server = Running::start();
    let mut client: Client = server.client();
    for number in 0..50 {
        client.send_only("PUT", &format!("{KEY}{number}"), &[], b"v");
        client.send_only("GET", &format!("{KEY}{number}"), &[], b"");
    }
    for _ in 0..50 {
        assert_eq!(client.answer("PUT").status, 200);
        assert_eq!(client.answer("GET").body, b"v");
    }
}

#[test]
fn what_is_quick_goes_on_where_what_takes_long_has_no_place() {
    let server = Running::start_with(|config| config.limits.blocking_requests = 0);
    let mut client = server.client();
    assert_eq!(client.put(KEY, "v").status, 200);
    let batch = |operation: Value| json!({ "operations": [operation] });
    let range = json!({ "op": "delete-range", "keyspace": "default", "prefix": "b" });
    let put = json!({ "op": "put", "keyspace": "default", "key": "b", "value": "v" });
    let condition = json!([{ "keyspace": "default", "key": "z", "stamp": null }]);
    let mut conditional = batch(range.clone());
    conditional["conditions"] = condition;
    let keyspace = "/v1/keyspaces/default";
    let refused = [
        client.get(&format!("{keyspace}/keys?limit=1000")),
        client.get(&format!("{keyspace}/count")),
        client.delete(&format!("{keyspace}/keys?prefix=b")),
        client.post("/v1/check", &json!({})),
        client.post("/v1/batch", &batch(range)),
        client.post("/v1/batch", &conditional),
    ];
    for answer in refused {
        assert_eq!((answer.status, answer.code().as_str()), (503, "busy"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(client.post("/v1/batch", &batch(put)).status, 200);
    assert_eq!(client.get(KEY).body, b"v");
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.get(&format!("{keyspace}/keys?limit=10")).status, 200);
}
