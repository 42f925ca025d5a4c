//! Several writes at once.

use std::sync::Barrier;

use serde_json::json;

use super::Running;

#[test]
fn a_batch_is_one_commit_over_keyspaces() {
    let server = Running::start();
    let mut client = server.client();
    assert_eq!(client.post("/v1/keyspaces", &json!({ "name": "other" })).status, 201);
    client.put("/v1/keyspaces/other/keys/old/", "");
    let batch = json!({ "payload": "why", "operations": [
        { "op": "put", "keyspace": "default", "key": "a", "value": "1" },
        { "op": "put", "keyspace": "other", "key_base64": "/w==", "value_base64": "AA==",
            "ttl": 60 },
        { "op": "delete", "keyspace": "default", "key": "b" },
        { "op": "delete-range", "keyspace": "other", "prefix": "x" },
    ] });
    let written = client.post("/v1/batch", &batch);
    assert_eq!(written.status, 200, "{written:?}");
    let stamp = written.json()["stamp"].as_str().unwrap().to_owned();
    assert_eq!(client.get("/v1/keyspaces/default/keys/a").stamp(), stamp);
    let other = client.get("/v1/keyspaces/other/keys/%FF");
    assert_eq!((other.stamp(), other.body.as_slice()), (stamp.clone(), &b"\0"[..]));
    let stamp = lithedb::SeqNo::from_u64(stamp.parse().unwrap());
    let commit = server.db.commit_at(stamp).unwrap().unwrap();
    assert_eq!((commit.operations, commit.payload), (4, Some(b"why".to_vec())));
}

#[test]
fn a_batch_that_is_wrong_does_nothing() {
    let server = Running::start_with(|config| config.limits.batch_count = 3);
    let mut client = server.client();
    let put = json!({ "op": "put", "keyspace": "default", "key": "a", "value": "1" });
    for (wrong, code) in [
        (json!({ "op": "put", "keyspace": "default", "key": "b" }), "invalid_json"),
        (json!({ "op": "put", "keyspace": "none", "key": "b", "value": "" }), "keyspace_not_found"),
        (json!({ "op": "push", "keyspace": "default", "key": "b" }), "invalid_json"),
        (json!({ "op": "delete", "keyspace": "default", "key": "b", "value": "" }), "invalid_json"),
        (json!({ "op": "delete-range", "keyspace": "default" }), "invalid_json"),
        (
            json!({ "op": "delete-range", "keyspace": "default", "prefix": "" }),
            "confirmation_needed",
        ),
        (
            json!({ "op": "delete", "keyspace": "default", "key": "b", "confirm": "yes" }),
            "invalid_json",
        ),
        (json!({ "op": "delete", "keyspace": "default", "key": "b", "x": 1 }), "invalid_json"),
        (json!(["delete", "default", "b"]), "invalid_json"),
        (
            json!({ "op": "merge", "keyspace": "default", "key": "b", "value": "" }),
            "invalid_argument",
        ),
    ] {
        let batch = json!({ "operations": [put, wrong] });
        assert_eq!(client.post("/v1/batch", &batch).code(), code, "{batch}");
    }
    let many = client.post("/v1/batch", &json!({ "operations": [put, put, put, put] }));
    assert_eq!(many.code(), "too_large");
    for body in [json!([]), json!({}), json!({ "operations": {} }), json!({ "operations": null })] {
        assert_eq!(client.post("/v1/batch", &body).code(), "invalid_json", "{body}");
    }
    let text = client.send("POST", "/v1/batch", &[], br#"{"operations":[]}"#);
    assert_eq!(text.code(), "unsupported_media_type");
    assert!(server.db.keyspace("default").unwrap().is_empty().unwrap());
    assert_eq!(client.post("/v1/batch", &json!({ "operations": [] })).status, 200);
}

#[test]
fn a_batch_with_conditions_is_done_by_one_of_several() {
    let server = Running::start();
    let mut client = server.client();
    let stamp = client.put("/v1/keyspaces/default/keys/a", "0").stamp();
    let barrier = Barrier::new(3);
    let (address, barrier, stamp) = (server.address, &barrier, &stamp);
    let run = move |writer: usize| {
        let batch = json!({
            "operations": [
                { "op": "put", "keyspace": "default", "key": "a", "value": "1" },
                { "op": "put", "keyspace": "default", "key": format!("by {writer}"), "value": "" },
            ],
            "conditions": [
                { "keyspace": "default", "key": "a", "stamp": stamp },
                { "keyspace": "default", "key": format!("by {writer}"), "stamp": null },
            ],
        });
        barrier.wait();
        super::Client::connect(address).post("/v1/batch", &batch)
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|writer| scope.spawn(move || run(writer))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let done = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(done, 1, "{answers:?}");
    let refused = answers.iter().find(|answer| answer.status == 409).unwrap();
    assert_eq!(
        (refused.code().as_str(), &refused.json()["error"]["condition"]),
        ("conflict", &0.into())
    );
    assert_eq!(server.db.keyspace("default").unwrap().len().unwrap(), 2);
}
