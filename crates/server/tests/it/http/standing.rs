//! Tokens that are gone while something goes on for who has shown them.

use lithedb::WriteBatch;
use serde_json::{Value, json};

use super::events::events;
use super::{Client, Running};

const KEY: &str = "/v1/keyspaces/default/keys/a";

fn open(server: &Running, token: &str, path: &str) -> Client {
    let mut client = server.client().with_token(token);
    client.send_only("GET", path, &[("accept", "application/x-ndjson")], b"");
    assert_eq!(client.head().unwrap().0, 200);
    client
}

/// The last event of a stream.
fn end(client: &mut Client) -> Value {
    loop {
        let event = events(client, 1).pop().unwrap();
        if event.0 == "end" {
            assert_eq!(client.chunk().unwrap(), None, "nothing comes behind it");
            return event.2;
        }
    }
}

#[test]
fn streams_end_soon_when_their_token_is_gone_and_those_of_others_go_on() {
    let (server, tokens) = Running::with_tokens([&["*:all"], &["*:read,stats"]]);
    let [kept, gone] = &tokens;
    let mut feed = open(&server, gone, "/v1/changes");
    let mut stats = open(&server, gone, "/v1/stats/stream?interval=60");
    let mut other = open(&server, kept, "/v1/changes");
    server.reload.now().unwrap();
    server.revoke(gone);
    for stream in [&mut feed, &mut stats] {
        assert_eq!(end(stream)["code"], "unauthenticated");
    }
    server.db.keyspace("default").unwrap().put("k", "v").unwrap();
    assert_eq!(events(&mut other, 1)[0].0, "commit");
}

#[test]
fn a_stream_ends_when_its_token_allows_something_else() {
    let (server, tokens) = Running::with_tokens([&["*:read"]]);
    let mut feed = open(&server, &tokens[0], "/v1/changes");
    let file = server.path("tokens");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("*:read", "public-*:read")).unwrap();
    server.reload.now().unwrap();
    assert_eq!(end(&mut feed)["code"], "unauthenticated");
    server.db.keyspace("default").unwrap().put("k", "secret").unwrap();
    assert_eq!(server.client().with_token(&tokens[0]).get(KEY).status, 403);
}

#[test]
fn a_long_scan_is_broken_off_when_its_token_is_gone() {
    let (server, tokens) = Running::with_tokens([&["*:read"]]);
    let keys = server.db.keyspace("default").unwrap();
    for part in 0..40 {
        let mut batch = WriteBatch::new();
        for number in 0..20 {
            batch.put(&keys, format!("{part:02}{number:02}"), [b'v'; 60_000]);
        }
        server.db.write(batch).unwrap();
    }
    // More than what waits for a client on the way.
    let mut client = open(&server, &tokens[0], "/v1/keyspaces/default/keys?values=full");
    client.chunk().unwrap();
    server.revoke(&tokens[0]);
    let received = client.until_closed();
    assert!(received.len() < 800 * 60_000, "{}", received.len());
    assert!(!received.windows(9).any(|part| part == b"\"cursor\":"), "it is not whole");
    assert_eq!(server.client().with_token(&tokens[0]).get(KEY).status, 401);
}

#[test]
fn what_is_still_being_sent_is_not_written_for_a_token_that_is_gone() {
    let (server, tokens) = Running::with_tokens([&["*:write"]]);
    let mut client = server.client().with_token(&tokens[0]);
    assert_eq!(client.put(KEY, "1").status, 200);
    client.send_only("PUT", KEY, &[("content-length", "2")], b"");
    client.write(b"2").unwrap();
    assert_eq!(server.client().get("/health").status, 200);
    server.revoke(&tokens[0]);
    client.write(b"2").unwrap();
    let refused = client.answer("PUT");
    assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"lithe\""));
    assert_eq!(&*server.db.keyspace("default").unwrap().get("a").unwrap().unwrap(), b"1");
}

#[test]
fn keyspaces_that_are_made_later_are_followed_by_who_may_read_them() {
    let (server, tokens) = Running::with_tokens([&["*:all"], &["new-*:read"]]);
    let mut feed = open(&server, &tokens[1], "/v1/changes");
    let mut admin = server.client().with_token(&tokens[0]);
    for name in ["new-1", "other", "new-2"] {
        assert_eq!(admin.post("/v1/keyspaces", &json!({ "name": name })).status, 201);
        assert_eq!(admin.put(&format!("/v1/keyspaces/{name}/keys/k"), name).status, 200);
    }
    let found = events(&mut feed, 2);
    let values: Vec<_> = found.iter().map(|event| &event.2["changes"][0]["value"]).collect();
    assert_eq!(values, ["new-1", "new-2"]);
}
