//! Keyspaces: made, shown, renamed, converted, dropped.

use serde_json::{Value, json};

use super::maintenance::until_over;
use super::{Client, Running};

fn names(client: &mut Client) -> Vec<String> {
    let listed = client.get("/v1/keyspaces").json();
    let listed = listed["keyspaces"].as_array().unwrap().clone();
    listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn keyspaces_are_made_of_each_structure_and_shown() {
    let server = Running::start();
    let mut client = server.client();
    for structure in ["flex", "lsm", "history"] {
        let made = json!({ "name": structure, "structure": structure, "codec": "lz4" });
        let made = client.post("/v1/keyspaces", &made);
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(made.json()["options"]["codec"], "lz4");
        let shown = client.get(&format!("/v1/keyspaces/{structure}")).json();
        assert_eq!((&shown["structure"], &shown["gets"]), (&structure.into(), &0.into()));
        assert_eq!(client.get(&format!("/v1/keyspaces/{structure}/tables")).status, 200);
    }
    assert_eq!(names(&mut client), ["default", "flex", "history", "lsm"]);
    let again = client.post("/v1/keyspaces", &json!({ "name": "lsm" }));
    assert_eq!((again.status, again.code().as_str()), (409, "keyspace_exists"));
    for (wrong, code) in [
        (json!({ "name": "" }), "invalid_argument"),
        (json!({}), "invalid_json"),
        (json!({ "name": "x", "structure": "heap" }), "invalid_json"),
        (json!({ "name": "x", "codecs": "lz4" }), "invalid_json"),
        (json!({ "name": "x", "interval_size": 1 }), "invalid_argument"),
        (json!({ "name": "x", "table_size": 4096 }), "invalid_argument"),
        (json!({ "name": "\0x" }), "invalid_argument"),
        (json!(["x"]), "invalid_json"),
    ] {
        assert_eq!(client.post("/v1/keyspaces", &wrong).code(), code, "{wrong}");
    }
    assert_eq!(client.get("/v1/keyspaces/none").code(), "keyspace_not_found");
    assert_eq!(client.get("/v1/keyspaces/%FF").code(), "keyspace_not_found");
    assert_eq!(client.post("/v1/keyspaces/lsm/flush", &json!({})).status, 200);
}

#[test]
fn keyspaces_are_renamed_cleared_and_dropped() {
    let server = Running::start();
    let mut client = server.client();
    client.post("/v1/keyspaces", &json!({ "name": "a" }));
    client.put("/v1/keyspaces/a/keys/k", "v");
    assert_eq!(client.post("/v1/keyspaces/a/rename", &json!({ "to": "b/c" })).status, 200);
    assert_eq!(client.get("/v1/keyspaces/b%2Fc/keys/k").body, b"v");
    assert_eq!(client.get("/v1/keyspaces/a/keys/k").status, 404);
    let taken = client.post("/v1/keyspaces/b%2Fc/rename", &json!({ "to": "default" }));
    assert_eq!(taken.code(), "keyspace_exists");
    assert_eq!(client.delete("/v1/keyspaces/b%2Fc").code(), "confirmation_needed");
    let clear = [("content-type", "application/json")];
    let path = "/v1/keyspaces/b%2Fc/clear";
    assert_eq!(client.send("POST", path, &[], b"").status, 200);
    assert_eq!(client.send("POST", path, &clear, br#"{"confirm":"yes"}"#).status, 200);
    assert_eq!(client.delete("/v1/keyspaces/b%2Fc").status, 200, "it is empty");
    client.post("/v1/keyspaces", &json!({ "name": "a" }));
    client.put("/v1/keyspaces/a/keys/k", "v");
    assert_eq!(client.delete("/v1/keyspaces/a?confirm=yes").status, 200);
    assert_eq!(names(&mut client), ["default"]);
}

#[test]
fn keyspaces_are_converted_and_compacted_by_jobs() {
    let server = Running::start();
    let mut client = server.client();
    for number in 0..100 {
        client.put(&format!("/v1/keyspaces/default/keys/{number}"), vec![1; 100]);
    }
    let path = "/v1/keyspaces/default/convert";
    let job = until_over(&mut client, path, &json!({ "structure": "history" }));
    assert_eq!((&job["state"], &job["result"]["entries"]), (&"done".into(), &100.into()), "{job}");
    assert_eq!(job["keyspace"], "default");
    assert_ne!(client.get("/v1/keyspaces/default").json()["kept_from"], Value::Null);
    let back = json!({ "structure": "lsm" });
    assert_eq!(client.post(path, &back).code(), "confirmation_needed");
    let back = json!({ "structure": "lsm", "confirm": "yes" });
    assert_eq!(until_over(&mut client, path, &back)["state"], "done");
    let job = until_over(&mut client, "/v1/keyspaces/default/compact", &json!({}));
    assert_eq!((&job["state"], &job["kind"]), (&"done".into(), &"compact".into()), "{job}");
    let tables = client.get("/v1/keyspaces/default/tables").json();
    assert_eq!(tables["structure"], "lsm");
    assert_eq!(tables["tables"][0]["first"], "0");
    assert_eq!(server.db.keyspace("default").unwrap().len().unwrap(), 100);
}
