//! Figures, health, checks, backups and restoring.

use std::time::Duration;

use lithe_server::{Config, LogFormat, Server};
use lithedb::Db;
use serde_json::{Value, json};

use super::{Client, Running};

/// Begins a job and waits for its end.
pub fn until_over(client: &mut Client, path: &str, body: &Value) -> Value {
    let begun = client.post(path, body);
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()["job"]["id"].as_str().unwrap().to_owned();
    loop {
        let job = client.get(&format!("/v1/jobs/{id}")).json()["job"].take();
        if !["running", "cancelling"].contains(&job["state"].as_str().unwrap()) {
            return job;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_check_finds_nothing_wrong() {
    let server = Running::start();
    let mut client = server.client();
    client.put("/v1/keyspaces/default/keys/a", "1");
    let job = until_over(&mut client, "/v1/check", &json!({}));
    assert_eq!((&job["state"], &job["result"]["ok"]), (&"done".into(), &true.into()), "{job}");
    assert_eq!(job["message"], "nothing is wrong");
    let jobs = client.get("/v1/jobs").json();
    assert_eq!(jobs["jobs"][0]["id"], job["id"]);
    let over = client.delete(&format!("/v1/jobs/{}", job["id"].as_str().unwrap()));
    assert_eq!(over.json()["job"]["state"], "done", "it is too late");
    assert_eq!(client.get("/v1/jobs/99").code(), "job_not_found");
    assert_eq!(client.get("/v1/jobs/x").code(), "job_not_found");
}

#[test]
fn a_backup_is_made_verified_and_becomes_a_database() {
    let server = Running::start();
    let mut client = server.client();
    assert_eq!(client.get("/v1/backups").json(), json!({ "backups": [] }));
    client.put("/v1/keyspaces/default/keys/a", "1");
    let job = until_over(&mut client, "/v1/backups", &json!({ "name": "monday" }));
    assert_eq!(job["state"], "done", "{job}");
    client.put("/v1/keyspaces/default/keys/a", "2");
    let taken = client.post("/v1/backups", &json!({ "name": "monday" }));
    assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"));
    assert_eq!(until_over(&mut client, "/v1/backups", &json!({ "name": "tue" }))["state"], "done");
    let listed = client.get("/v1/backups").json();
    let names: Vec<&Value> =
        listed["backups"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["monday", "tue"]);
    let job = until_over(&mut client, "/v1/backups/monday/verify", &json!({}));
    assert_eq!((&job["state"], &job["result"]["ok"]), (&"done".into(), &true.into()), "{job}");
    let restore = "/v1/backups/monday/restore";
    let job = until_over(&mut client, restore, &json!({ "into": "then" }));
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(client.post(restore, &json!({ "into": "then" })).code(), "name_taken");
    let then = lithedb::Db::open(server.path("backups/restored/then")).unwrap();
    assert_eq!(then.keyspace("default").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    for name in ["", ".", "..", "../x", "a/b", "backup-00000001", ".hidden", "a b"] {
        let refused = client.post("/v1/backups", &json!({ "name": name }));
        assert_eq!(refused.code(), "invalid_argument", "{name}");
    }
    for into in ["", "..", "../data.lithe", "/tmp/x"] {
        assert_eq!(client.post(restore, &json!({ "into": into })).code(), "invalid_argument");
    }
    for name in ["none", "..%2Fx", "%FF", "backup-00000009"] {
        let refused = client.post(&format!("/v1/backups/{name}/verify"), &json!({}));
        assert_eq!(refused.code(), "backup_not_found", "{name}");
    }
}

#[test]
fn a_backup_that_is_deleted_is_gone_with_its_name() {
    let (server, [backup, other]) =
        Running::with_names([("ada", "*:backup"), ("bob", "*:read,write,stats")], |_| {});
    let mut client = server.client().with_token(&backup);
    let make = |client: &mut Client, name: &str| {
        let job = until_over(client, "/v1/backups", &json!({ "name": name }));
        assert_eq!(job["state"], "done", "{job}");
    };
    assert_eq!(client.delete("/v1/backups/monday").code(), "backup_not_found");
    make(&mut client, "monday");
    server.db.keyspace_or_create("default").unwrap().put("a", "1").unwrap();
    make(&mut client, "tuesday");
    let mut nobody = server.client().with_token(&other);
    assert_eq!(nobody.delete("/v1/backups/monday").code(), "forbidden");
    let deleted = client.delete("/v1/backups/monday");
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &"monday".into()));
    assert!(deleted.json()["files"].is_u64());
    for gone in ["monday", "none", "..%2Ftuesday", "%FF"] {
        assert_eq!(client.delete(&format!("/v1/backups/{gone}")).code(), "backup_not_found");
    }
    make(&mut client, "monday");
    let verified = until_over(&mut client, "/v1/backups/tuesday/verify", &json!({}));
    assert_eq!(verified["result"]["ok"], true, "{verified}");
    // One without a name goes by its number; a name without a backup goes as well.
    std::fs::remove_file(server.path("backups/names/tuesday")).unwrap();
    assert_eq!(client.delete("/v1/backups/backup-00000002").status, 200);
    std::fs::copy(server.path("backups/names/monday"), server.path("backups/names/old")).unwrap();
    std::fs::write(server.path("backups/names/old"), "9 9 9\n").unwrap();
    assert_eq!(client.delete("/v1/backups/old").status, 200);
    let listed = client.get("/v1/backups").json();
    assert_eq!(listed["backups"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["backups"][0]["name"], "monday");
}

#[test]
fn backups_are_for_their_owner_alone_and_their_place_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = std::path::PathBuf::new();
    let server = Running::start_with(|config| {
        let root = config.backup_root.clone().unwrap().join("place");
        config.backup_root = Some(root.clone());
        place = root;
    });
    let mut client = server.client();
    let job = until_over(&mut client, "/v1/backups", &json!({ "name": "monday" }));
    assert_eq!(job["state"], "done", "{job}");
    let restore = "/v1/backups/monday/restore";
    let job = until_over(&mut client, restore, &json!({ "into": "then" }));
    assert_eq!(job["state"], "done", "{job}");
    for (path, mode) in [
        ("", 0o700),
        ("names", 0o700),
        ("repository", 0o700),
        ("restored", 0o700),
        ("restored/then", 0o700),
        ("names/monday", 0o600),
    ] {
        let about = std::fs::metadata(place.join(path)).unwrap();
        assert_eq!(about.permissions().mode() & 0o7777, mode, "{path}");
    }
    let mut config = Config::default();
    config.http = Some("127.0.0.1:0".parse().unwrap());
    config.backup_root = Some(place.join("not/there"));
    let refused = Server::bind(server.db.clone(), config).unwrap_err();
    assert!(refused.to_string().contains("where backups should go"), "{refused}");
}

#[test]
fn without_a_place_there_are_no_backups() {
    let server = Running::start_with(|config| config.backup_root = None);
    let mut client = server.client();
    assert_eq!(client.get("/v1/backups").code(), "no_backups");
    assert_eq!(client.post("/v1/backups", &json!({ "name": "a" })).code(), "no_backups");
}

#[test]
fn figures_count_what_is_done() {
    let server = Running::start();
    let mut client = server.client();
    for number in 0..10 {
        client.put(&format!("/v1/keyspaces/default/keys/{number}"), "v");
        client.get(&format!("/v1/keyspaces/default/keys/{number}"));
    }
    client.send("GET", "/v1/keyspaces", &[("host", "elsewhere.example")], b"");
    let stats = client.get("/v1/stats").json();
    assert_eq!(stats["commits"], 10);
    let http = &stats["server"]["requests"]["http"];
    assert_eq!((&http["put"]["count"], &http["get"]["count"]), (&10.into(), &10.into()));
    for percentile in ["p50", "p90", "p99", "p999"] {
        assert!(http["put"][percentile].as_f64().unwrap() > 0.0);
    }
    assert_eq!(stats["server"]["connections"]["http"], 1);
    assert_eq!(stats["server"]["refusals"]["forbidden"], 1);
    for member in [
        "memory_budget",
        "memory_used",
        "memory_cache",
        "stall_seconds",
        "write_amplification",
        "read_amplification",
        "space_amplification",
        "bytes_on_disk",
        "health",
        "keyspaces",
    ] {
        assert!(!stats[member].is_null(), "{member}");
    }
    let metrics = client.get("/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(metrics.body).unwrap();
    let put = "lithedb_server_request_duration_seconds_count{protocol=\"http\",kind=\"put\"} 10\n";
    assert!(text.contains(put), "{text}");
    assert!(text.contains("lithedb_commits_total 10\n"));
    assert!(text.contains("lithedb_server_refusals_total{reason=\"forbidden\"} 1\n"));
}

#[test]
fn metrics_have_the_form_that_is_promised() {
    let server = Running::start();
    let odd = lithedb::KeyspaceOptions::flex();
    server.db.create_keyspace("odd \"name\"\n\\", odd).unwrap();
    let text = String::from_utf8(server.client().get("/metrics").body).unwrap();
    let (mut described, mut typed) = (Vec::new(), (String::new(), String::new()));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!described.contains(&name.to_owned()), "{name} is there twice");
            assert!(help.ends_with('.'), "{line}");
            described.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(described.last().map(String::as_str), Some(name));
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            typed = (name.to_owned(), kind.to_owned());
        } else {
            let name = &line[..line.find(['{', ' ']).unwrap()];
            let is_of = match typed.1.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| name == format!("{}{end}", typed.0)),
                _ => name == typed.0,
            };
            assert!(is_of, "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().unwrap().is_finite(), "{line}");
        }
    }
    assert!(text.contains(r#"keyspace="odd \"name\"\n\\""#));
}

#[test]
fn health_is_told_shortly_and_in_detail() {
    let (server, tokens) = Running::with_tokens([&["*:stats"]]);
    let mut nobody = server.client();
    assert_eq!(nobody.get("/health").json(), json!({ "status": "ok" }));
    assert_eq!(nobody.get("/ready").json(), json!({ "status": "ready" }));
    assert_eq!(nobody.send("HEAD", "/health", &[], b"").status, 200);
    assert_eq!(nobody.get("/v1/health").code(), "unauthenticated");
    let mut known = server.client().with_token(&tokens[0]);
    let health = known.get("/v1/health").json();
    assert_eq!((&health["state"], &health["is_good"]), (&"writable".into(), &true.into()));
    let who = known.get("/v1/whoami").json();
    assert_eq!(who["name"], "somebody");
    assert_eq!(who["grants"], json!(["*:stats"]));
    assert_eq!(who["tokens"], true);
}

#[test]
fn the_console_is_there_for_anybody() {
    let (server, _) = Running::with_tokens([&["*:all"]]);
    let mut client = server.client();
    for root in ["/", "/console"] {
        let root = client.get(root);
        assert_eq!((root.status, root.header("location")), (303, Some("/console/")));
    }
    let page = client.get("/console/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let tag = page.header("etag").unwrap().to_owned();
    let again = client.send("GET", "/console/", &[("if-none-match", &tag)], b"");
    assert_eq!(again.status, 304);
    for nothing in ["/console/../Cargo.toml", "/console/%2e%2e/x", "/console/none", "/consoles"] {
        assert!([401, 404].contains(&client.get(nothing).status), "{nothing}");
    }
}

#[test]
fn a_server_that_has_ended_holds_nothing_of_its_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.lithe");
    let mut config = Config::default();
    config.http = Some("127.0.0.1:0".parse().unwrap());
    config.log = LogFormat::Off;
    let server = Server::bind(Db::open(&path).unwrap(), config).unwrap();
    let (address, drain) = (server.http_address().unwrap(), server.drain());
    let thread = std::thread::spawn(move || server.run().unwrap());
    let mut client = Client::connect(address);
    assert_eq!(until_over(&mut client, "/v1/check", &json!({}))["state"], "done");
    assert_eq!(client.post("/v1/snapshots", &json!({})).status, 201);
    drain.begin();
    thread.join().unwrap();
    Db::open(&path).unwrap();
}
