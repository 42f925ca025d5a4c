//! The plain calls, to the letter.

use super::Running;

#[test]
fn the_plain_calls_answer_as_they_always_have() {
    let server = Running::start();
    let mut client = server.client();
    let mut said = |method: &str, path: &str, body: &str| {
        let answer = client.send(method, path, &[], body.as_bytes());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let is = |status: u16, text: &str| (status, text.to_owned());
    assert_eq!(said("GET", "/range?start=a&end=z", ""), is(200, "null"));
    assert_eq!(
        said("PUT", "/key/b", r#"{"value":"two"}"#),
        is(200, r#"{"key":"b","value":"two"}"#)
    );
    assert_eq!(said("PUT", "/key/a%2Fb", r#"{"value":""}"#).0, 200);
    assert_eq!(said("GET", "/key/b", ""), is(200, r#"{"key":"b","value":"two"}"#));
    assert_eq!(said("GET", "/key/a%2Fb", ""), is(200, r#"{"key":"a/b","value":""}"#));
    assert_eq!(said("GET", "/key/none", ""), is(404, r#"{"error":"not found"}"#));
    assert_eq!(said("GET", "/key/", ""), is(404, r#"{"error":"not found"}"#));
    for body in ["", "{", "[]", "\"x\"", r#"{"value":1}"#, "[\"x\"]"] {
        assert_eq!(said("PUT", "/key/c", body), is(400, r#"{"error":"invalid json"}"#), "{body}");
    }
    assert_eq!(
        said("GET", "/range?start=a&end=b", ""),
        is(200, r#"[{"key":"a/b","value":""},{"key":"b","value":"two"}]"#)
    );
    assert_eq!(said("DELETE", "/key/b", ""), is(200, r#"{"deleted":"b"}"#));
    assert_eq!(said("DELETE", "/key/b", ""), is(200, r#"{"deleted":"b"}"#));
    assert_eq!(said("GET", "/key/b", "").0, 404);
    let required = is(400, r#"{"error":"start and end query params required"}"#);
    for query in ["", "?start=a", "?end=a", "?start=&end=a"] {
        assert_eq!(said("GET", &format!("/range{query}"), ""), required, "{query}");
    }
    assert_eq!(
        said("GET", "/range?start=b&end=a", ""),
        is(400, r#"{"error":"start must be <= end"}"#)
    );
}

#[test]
fn what_is_no_text_is_left_to_the_other_calls() {
    let server = Running::start();
    server.db.keyspace("default").unwrap().put("k", b"\xff").unwrap();
    let mut client = server.client();
    let answer = client.get("/key/k");
    assert_eq!(answer.status, 422);
    assert!(answer.json()["error"].as_str().unwrap().contains("/v1"));
    assert_eq!(client.get("/range?start=a&end=z").status, 422);
    assert_eq!(client.get("/key/%FF").status, 422);
    assert_eq!(client.get("/v1/keyspaces/default/keys/k").body, b"\xff");
}

#[test]
fn what_is_no_text_is_refused_wherever_in_a_range_it_is() {
    let server = Running::start();
    let keys = server.db.keyspace("default").unwrap();
    let mut batch = lithedb::WriteBatch::new();
    for number in 0..20_000 {
        batch.put(&keys, format!("a{number:05}"), "a value of some bytes");
    }
    batch.put(&keys, "b", vec![b'x'; 1 << 20]);
    batch.put(&keys, "c", b"\xff");
    server.db.write(batch).unwrap();
    let mut client = server.client();
    for (start, end, status) in
        [("a", "z", 422), ("b", "z", 422), ("c", "c", 422), ("a", "bz", 200), ("b", "b", 200)]
    {
        let answer = client.get(&format!("/range?start={start}&end={end}"));
        assert_eq!(answer.status, status, "{start} to {end}");
        answer.json();
    }
    keys.put(b"\xc3", "é").unwrap();
    assert_eq!(client.get("/range?start=d&end=%FF").status, 422);
    keys.put("é", "é").unwrap();
    assert_eq!(client.get("/range?start=%C3%A9&end=%C3%A9").json()[0]["value"], "é");
}

#[test]
fn a_long_range_is_sent_as_it_comes() {
    let server = Running::start();
    let keys = server.db.keyspace("default").unwrap();
    let mut batch = lithedb::WriteBatch::new();
    for number in 0..30_000 {
        batch.put(&keys, format!("{number:05}"), "a value of some bytes");
    }
    server.db.write(batch).unwrap();
    let answer = server.client().get("/range?start=0&end=9");
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let all = answer.json();
    let all = all.as_array().unwrap();
    assert_eq!((all.len(), &all[29_999]["key"]), (30_000, &"29999".into()));
}
