//! Who may do what, by which name, from which page.

use serde_json::{Value, json};

use super::{Client, Running};

#[test]
fn a_server_is_known_by_its_own_names() {
    let server = Running::start_with(|config| config.hosts = vec!["db.example".to_owned()]);
    let mut client = server.client();
    let mut status = |host: &str| client.send("GET", "/health", &[("host", host)], b"").status;
    for own in ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8080", "db.example", "db.example."]
    {
        assert_eq!(status(own), 200, "{own}");
    }
    for other in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "db.example.evil"] {
        assert_eq!(status(other), 421, "{other}");
    }
    let mut client = server.client();
    client.write(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(client.answer("GET").code(), "bad_request");
    let mut client = server.client();
    client.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\n\r\n").unwrap();
    assert_eq!(client.answer("GET").code(), "bad_request");
    let mut client = server.client();
    client.write(b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.answer("GET").code(), "misdirected");
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let server = Running::start();
    let mut client = server.client();
    let own = format!("http://{}", server.address);
    let mut put = |headers: &[(&str, &str)]| {
        client.send("PUT", "/v1/keyspaces/default/keys/a", headers, b"v").status
    };
    assert_eq!(put(&[("origin", &own)]), 200);
    for other in ["http://evil.example", "null", "http://localhost", "https://127.0.0.1"] {
        assert_eq!(put(&[("origin", other)]), 403, "{other}");
    }
    assert_eq!(put(&[("sec-fetch-site", "cross-site")]), 403);
    let simple = [("content-type", "text/plain"), ("origin", own.as_str())];
    let answer = client.send("POST", "/v1/batch", &simple, br#"{"operations":[]}"#);
    assert_eq!(answer.code(), "unsupported_media_type");
    let asked = client.send("OPTIONS", "/v1/batch", &[("origin", "http://evil.example")], b"");
    assert_eq!(asked.status, 403);
    assert!(!asked.headers.iter().any(|(name, _)| name.starts_with("access-control")));
    assert_eq!(client.send("OPTIONS", "/v1/batch", &[], b"").header("allow"), Some("POST"));
}

#[test]
fn without_a_token_nothing_is_told() {
    let (server, tokens) = Running::with_tokens([&["*:all"]]);
    let mut client = server.client();
    for path in ["/v1/keyspaces", "/v1/nothing", "/key/a", "/metrics", "/v1/openapi.json", "/x"] {
        let refused = client.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"lithe\""));
    }
    let mut with =
        |value: &str| client.send("GET", "/v1/keyspaces", &[("authorization", value)], b"").status;
    assert_eq!(with(&format!("bearer {}", tokens[0])), 200);
    assert_eq!(with(&format!("Basic {}", tokens[0])), 401);
    assert_eq!(with(&tokens[0]), 401);
    for _ in 0..10 {
        assert_eq!(with("Bearer lithe_0000000000000000_wrong"), 401);
    }
    assert_eq!(with("Bearer lithe_0000000000000000_wrong"), 429, "there were too many");
    assert_eq!(with(&format!("Bearer {}", tokens[0])), 200, "who is right is not kept out");
}

/// Every call, with parts filled in.
fn calls(admin: &mut Client) -> Vec<(String, String)> {
    let document = admin.get("/v1/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let calls = paths.iter().flat_map(|(template, item)| {
        let path = template.replace("{keyspace}", "default").replace("{key}", "k");
        let path = path.replace("{name}", "monday").replace("{id}", "1");
        let methods = item.as_object().unwrap().keys();
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    calls.collect()
}

#[test]
fn who_has_no_grant_is_told_nothing_by_any_call() {
    let (server, tokens) = Running::with_tokens([&["*:all"], &[]]);
    let mut admin = server.client().with_token(&tokens[0]);
    admin.put("/key/k", r#"{"value":"secret"}"#);
    let calls = calls(&mut admin);
    assert!(calls.len() > 40);
    for (method, path) in calls {
        let mut client = server.client().with_token(&tokens[1]);
        let json = [("content-type", "application/json")];
        let answer = client.send(&method, &path, &json, b"{}");
        if ["/health", "/ready"].contains(&path.as_str()) {
            assert_eq!(answer.status, 200, "{method} {path}");
        } else {
            assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
        }
    }
    assert_eq!(server.db.keyspace("default").unwrap().len().unwrap(), 1);
}

#[test]
fn grants_are_for_verbs_and_keyspaces() {
    let (server, tokens) =
        Running::with_tokens([&["*:all"], &["orders-*:read"], &["orders-1:write"], &["*:stats"]]);
    let mut clients = tokens.map(|token| server.client().with_token(&token));
    for name in ["orders-1", "secrets"] {
        clients[0].post("/v1/keyspaces", &json!({ "name": name }));
        clients[0].put(&format!("/v1/keyspaces/{name}/keys/k"), "v");
    }
    let [admin, reader, writer, watcher] = &mut clients;
    let key = |name: &str| format!("/v1/keyspaces/{name}/keys/k");
    assert_eq!(reader.get(&key("orders-1")).status, 200);
    assert_eq!(reader.get(&key("orders-none")).status, 404);
    assert_eq!(reader.put(&key("orders-1"), "x").status, 403);
    // Whether it is there makes no difference.
    for name in ["secrets", "none"] {
        assert_eq!(reader.get(&key(name)).json(), reader.get(&key("nothing")).json());
        assert_eq!(reader.get(&format!("/v1/keyspaces/{name}")).status, 403);
    }
    let listed = reader.get("/v1/keyspaces").json();
    assert_eq!(listed["keyspaces"].as_array().unwrap().len(), 1);
    assert_eq!(listed["keyspaces"][0].get("bytes_on_disk"), None, "that is a figure");
    assert_eq!(writer.put(&key("orders-1"), "x").status, 200);
    assert_eq!(writer.get(&key("orders-1")).status, 403);
    let probe = writer.send("PUT", &key("orders-1"), &[("if-none-match", "*")], b"x");
    assert_eq!(probe.status, 403, "whether it is there is for those who may read");
    assert_eq!(writer.post("/v1/keyspaces/orders-1/rename", &json!({ "to": "x" })).status, 403);
    assert_eq!(watcher.get("/v1/stats").status, 200);
    assert_eq!(watcher.get("/metrics").status, 200);
    assert_eq!(watcher.get(&key("orders-1")).status, 403);
    assert_eq!(reader.get("/v1/stats").status, 403);
    assert_eq!(reader.get("/v1/backups").status, 403);
    assert_eq!(watcher.get("/v1/changes").status, 403);
    assert_eq!(reader.get("/v1/changes?keyspaces=secrets").status, 403);
    let batch = json!({ "operations": [
        { "op": "put", "keyspace": "orders-1", "key": "k", "value": "y" },
        { "op": "put", "keyspace": "secrets", "key": "k", "value": "y" },
    ] });
    assert_eq!(writer.post("/v1/batch", &batch).status, 403);
    assert_eq!(admin.get(&key("orders-1")).body, b"x");
    let tables: Value = watcher.get("/v1/keyspaces/orders-1/tables").json();
    assert_eq!(tables["structure"], "flex");
}
