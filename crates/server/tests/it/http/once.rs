//! Writes that say by a key that they are to be done once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::{Client, Running};
use crate::http::client::Answer;

const KEYSPACE: &str = "lithe.idempotency-keys";

fn send(client: &mut Client, (method, path): (&str, &str), key: &str, body: &str) -> Answer {
    let headers = [("idempotency-key", key), ("content-type", "application/json")];
    client.send(method, path, &headers, body.as_bytes())
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// Each call that can promise it, with a body.
fn calls() -> [(&'static str, &'static str, String); 6] {
    let batch = json!({ "operations": [
        { "op": "merge", "keyspace": "counts", "key": "batch", "value": "x" },
    ] });
    [
        ("PUT", "/v1/keyspaces/default/keys/a", "1".to_owned()),
        ("DELETE", "/v1/keyspaces/default/keys/b", String::new()),
        ("POST", "/v1/keyspaces/counts/merge/n", "x".to_owned()),
        ("DELETE", "/v1/keyspaces/default/keys?prefix=c", String::new()),
        ("POST", "/v1/keyspaces/default/clear", String::new()),
        ("POST", "/v1/batch", batch.to_string()),
    ]
}

/// Makes a keyspace in which each merge makes a value longer by what it says.
fn with_counts(server: &Running) {
    let counts = json!({ "name": "counts", "structure": "flex", "merge_operator": "append" });
    assert_eq!(server.client().post("/v1/keyspaces", &counts).status, 201);
}

#[test]
fn what_comes_again_with_its_key_is_answered_and_not_done() {
    let server = Running::start();
    with_counts(&server);
    let mut client = server.client();
    for (index, (method, path, body)) in calls().into_iter().enumerate() {
        let key = format!("\"key {index}\"");
        let first = send(&mut client, (method, path), &key, &body);
        assert_eq!((first.status, is_replayed(&first)), (200, false), "{method} {path} {first:?}");
        let stamp = server.db.snapshot().seqno();
        for _ in 0..3 {
            let again = send(&mut client, (method, path), &key, &body);
            assert_eq!((again.status, is_replayed(&again)), (200, true), "{method} {path}");
            assert_eq!((&again.body, again.header("etag")), (&first.body, first.header("etag")));
        }
        assert_eq!(server.db.snapshot().seqno(), stamp, "{method} {path} has written nothing");
        let other = send(&mut client, (method, path), &format!("other-{index}"), &body);
        assert_eq!((other.status, is_replayed(&other)), (200, false));
        assert_ne!(other.body, first.body);
    }
    let counts = server.db.keyspace("counts").unwrap();
    for key in ["n", "batch"] {
        assert_eq!(*counts.get(key).unwrap().unwrap(), b"xx"[..], "{key}");
    }
}

#[test]
fn a_key_is_of_one_request_and_of_one_name() {
    let (server, [one, other]) =
        Running::with_names([("one", "*:all"), ("other", "*:all")], |_| {});
    let mut client = server.client().with_token(&one);
    let put = ("PUT", "/v1/keyspaces/default/keys/a");
    assert_eq!(send(&mut client, put, "k", "1").status, 200);
    for ((method, path), body) in [
        (put, "2"),
        (("PUT", "/v1/keyspaces/default/keys/b"), "1"),
        (("PUT", "/v1/keyspaces/default/keys/a?ttl=5"), "1"),
        (("DELETE", "/v1/keyspaces/default/keys/a"), "1"),
    ] {
        let refused = send(&mut client, (method, path), "k", body);
        let told = (refused.status, refused.code());
        assert_eq!(told, (422, "idempotency_key_reused".to_owned()), "{method} {path}");
    }
    let headers = [("idempotency-key", "k"), ("if-none-match", "*")];
    let refused = client.send(put.0, put.1, &headers, b"1");
    assert_eq!(refused.status, 422, "with a condition it is another request");
    let mut client = server.client().with_token(&other);
    let own = send(&mut client, put, "k", "2");
    assert_eq!((own.status, is_replayed(&own)), (200, false), "another's key is another");
    for wrong in ["", "a\"b", "a b"] {
        assert_eq!(send(&mut client, put, wrong, "3").status, 400, "{wrong:?}");
    }
    assert_eq!(client.get(put.1).body, b"2");
}

#[test]
fn a_condition_that_held_once_is_not_asked_again() {
    let server = Running::start();
    let mut client = server.client();
    let path = "/v1/keyspaces/default/keys/a";
    let headers = [("idempotency-key", "first"), ("if-none-match", "*")];
    let first = client.send("PUT", path, &headers, b"1");
    assert_eq!(first.status, 200);
    let again = client.send("PUT", path, &headers, b"1");
    assert_eq!((again.status, again.body), (200, first.body));
    // What was refused has done nothing, and is looked at anew.
    let headers = [("idempotency-key", "second"), ("if-none-match", "*")];
    assert_eq!(client.send("PUT", path, &headers, b"2").status, 412);
    assert_eq!(client.delete(path).status, 200);
    assert_eq!(client.send("PUT", path, &headers, b"2").status, 200);
}

#[test]
fn of_many_at_a_time_one_is_done() {
    const CLIENTS: usize = 8;
    let server = Running::start();
    with_counts(&server);
    let together = Barrier::new(CLIENTS);
    for round in 0..20 {
        let stamps: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = server.client();
                        together.wait();
                        let merge = ("POST", "/v1/keyspaces/counts/merge/n");
                        let key = format!("round-{round}");
                        let done = send(&mut client, merge, &key, "x");
                        assert_eq!(done.status, 200, "{done:?}");
                        done.json()["stamp"].as_str().unwrap().to_owned()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(stamps.iter().all(|stamp| *stamp == stamps[0]), "{stamps:?}");
    }
    let counts = server.db.keyspace("counts").unwrap();
    assert_eq!(*counts.get("n").unwrap().unwrap(), [b'x'; 20]);
}

#[test]
fn keys_are_there_behind_a_restart_and_go_when_their_time_is_over() {
    let server = Running::start();
    let put = ("PUT", "/v1/keyspaces/default/keys/a");
    let first = send(&mut server.client(), put, "k", "1");
    assert_eq!(server.db.keyspace(KEYSPACE).unwrap().count::<&[u8]>(..).unwrap(), 1);
    let dir = server.stop();
    let server = Running::start_in(dir, |config| {
        config.limits.idempotency_time = Duration::ZERO; // A millisecond.
    });
    let mut client = server.client();
    let again = send(&mut client, put, "k", "1");
    assert_eq!((again.body, again.status), (first.body, 200));
    assert!(!is_replayed(&send(&mut client, put, "short", "1")));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!is_replayed(&send(&mut client, put, "short", "1")), "it is not remembered any more");
}

#[test]
fn who_sends_no_key_leaves_nothing() {
    let server = Running::start();
    let mut client = server.client();
    client.put("/v1/keyspaces/default/keys/a", "1");
    // Calls that cannot promise it do not look at it.
    assert_eq!(client.send("GET", "/v1/whoami", &[("idempotency-key", "k")], b"").status, 200);
    let plain = [("idempotency-key", "k")];
    assert_eq!(client.send("PUT", "/key/a", &plain, b"{\"value\":\"2\"}").status, 200);
    assert!(server.db.keyspace(KEYSPACE).is_err());
}

#[test]
fn the_keyspace_of_keys_is_for_who_may_change_everything() {
    let (server, [some, all]) = Running::with_names([("some", "l*:all"), ("all", "*:all")], |_| {});
    let mut client = server.client().with_token(&some);
    let own = json!({ "name": KEYSPACE, "structure": "history" });
    assert_eq!(client.post("/v1/keyspaces", &own).status, 403, "nobody makes it beforehand");
    let mine = json!({ "name": "lists", "structure": "flex" });
    assert_eq!(client.post("/v1/keyspaces", &mine).status, 201);
    let put = ("PUT", "/v1/keyspaces/lists/keys/a");
    assert_eq!(send(&mut client, put, "k", "1").status, 200);
    let path = format!("/v1/keyspaces/{KEYSPACE}");
    let batch = json!({ "operations": [{ "op": "delete", "keyspace": KEYSPACE, "key": "a" }] });
    let to = json!({ "to": "other" });
    for refused in [
        client.put(&format!("{path}/keys/a"), "1"),
        client.delete(&format!("{path}/keys?confirm=yes")),
        client.delete(&format!("{path}?confirm=yes")),
        client.send("POST", &format!("{path}/clear"), &[], b""),
        client.post(&format!("{path}/rename"), &to),
        client.post("/v1/keyspaces/lists/rename", &json!({ "to": KEYSPACE })),
        client.post(&format!("{path}/convert"), &json!({ "structure": "flex" })),
        client.post("/v1/batch", &batch),
    ] {
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    assert!(is_replayed(&send(&mut client, put, "k", "1")));
    assert_eq!(client.get(&format!("{path}/count")).status, 200, "it can be looked at");
    // Who may do everything may drop it: then keys are forgotten, and writes go on.
    let mut boss = server.client().with_token(&all);
    assert_eq!(boss.delete(&format!("{path}?confirm=yes")).status, 200);
    let anew = send(&mut client, put, "k", "1");
    assert_eq!((anew.status, is_replayed(&anew)), (200, false));
    assert!(is_replayed(&send(&mut client, put, "k", "1")));
}

/// Whenever the keys go: what is written goes on, with a new keyspace for them.
#[test]
fn writes_go_on_while_the_keys_are_dropped_again_and_again() {
    let server = Running::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            let mut dropped = 0;
            while !is_over.load(Ordering::Relaxed) {
                dropped += u32::from(server.db.drop_keyspace(KEYSPACE).is_ok());
                std::thread::sleep(Duration::from_millis(2)); // Others are to come to something.
            }
            dropped
        });
        let mut client = server.client();
        for number in 0..100 {
            let put = ("PUT", "/v1/keyspaces/default/keys/a");
            let done = send(&mut client, put, &format!("k{number}"), "1");
            // 503: they went as often as it was tried.
            assert!([200, 503].contains(&done.status), "{done:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(dropping.join().unwrap() > 3);
    });
    let put = ("PUT", "/v1/keyspaces/default/keys/b");
    assert_eq!(send(&mut server.client(), put, "k", "1").status, 200);
}

#[test]
fn large_writes_and_ranges_have_their_place_among_what_takes_long() {
    let server = Running::start_with(|config| config.limits.blocking_requests = 1);
    let mut client = server.client();
    let large = "x".repeat(1 << 20);
    let put = ("PUT", "/v1/keyspaces/default/keys/a");
    assert_eq!(send(&mut client, put, "large", &large).status, 200);
    assert!(is_replayed(&send(&mut client, put, "large", &large)));
    let range = ("DELETE", "/v1/keyspaces/default/keys?prefix=a");
    assert_eq!(send(&mut client, range, "range", "").status, 200);
    assert_eq!(client.get(put.1).status, 404);
    assert_eq!(send(&mut client, put, "large", &large).status, 200, "it has been done");
    assert_eq!(client.get(put.1).status, 404, "and is not done again");
}
