//! The past, snapshots, and what is to come.

use std::time::Duration;

use lithedb::{Db, FeedOptions, KeyspaceOptions, SeqNo, WriteBatch};
use serde_json::{Value, json};

use super::events::events;
use super::{Client, Running};

fn with_prices() -> Running {
    let server = Running::start();
    server.db.create_keyspace("prices", KeyspaceOptions::history()).unwrap();
    server
}

const BREAD: &str = "/v1/keyspaces/prices/keys/bread";

#[test]
fn the_past_can_be_read_and_brought_back() {
    let server = with_prices();
    let mut client = server.client();
    let first = client.put(BREAD, "3.10").stamp();
    let second = client.put(BREAD, "3.40").stamp();
    client.delete(BREAD);
    client.put("/v1/keyspaces/prices/keys/milk", "1.20");
    assert_eq!(client.get(&format!("{BREAD}?at={first}")).body, b"3.10");
    assert_eq!(client.get(&format!("{BREAD}?at={second}")).body, b"3.40");
    assert_eq!(client.get(BREAD).status, 404);
    let then = client.get(&format!("/v1/keyspaces/prices/keys?at={second}")).json();
    assert_eq!(then["entries"].as_array().unwrap().len(), 1);
    let count = client.get(&format!("/v1/keyspaces/prices/count?at={first}")).json();
    assert_eq!(count["count"], 1);
    let history = |client: &mut Client, query: &str| {
        client.get(&format!("/v1/keyspaces/prices/history/bread{query}")).json()
    };
    let all = history(&mut client, "");
    let deleted: Vec<bool> =
        all["versions"].as_array().unwrap().iter().map(|one| one["deleted"] == true).collect();
    assert_eq!((deleted, &all["next"]), (vec![true, false, false], &Value::Null));
    assert_eq!(all["versions"][2]["value"], "3.10");
    let page = history(&mut client, "?limit=1&order=oldest");
    assert_eq!(
        (&page["versions"][0]["stamp"], &page["next"]),
        (&first.clone().into(), &second.clone().into())
    );
    let page = history(&mut client, &format!("?to={second}&from={second}"));
    assert_eq!(page["versions"].as_array().unwrap().len(), 1);
    let restore = "/v1/keyspaces/prices/restore";
    let done = client.post(restore, &json!({ "key": "bread", "at": first }));
    assert_eq!(done.json(), json!({ "put": 1, "deleted": 0 }));
    assert_eq!(client.get(BREAD).body, b"3.10");
    let all = json!({ "prefix": "", "at": second });
    assert_eq!(client.post(restore, &all).code(), "confirmation_needed");
    let all = json!({ "prefix": "", "at": second, "confirm": "yes" });
    assert_eq!(client.post(restore, &all).json(), json!({ "put": 1, "deleted": 1 }));
    for wrong in [json!({ "key": "a" }), json!({ "at": "1" }), json!({ "at": "x", "key": "a" })] {
        assert_eq!(client.post(restore, &wrong).code(), "invalid_json", "{wrong}");
    }
    assert_eq!(client.get("/v1/keyspaces/default/history/a").code(), "no_history");
    assert_eq!(client.get(&format!("{BREAD}?at=2099-01-01T00:00:00Z")).code(), "invalid_argument");
}

#[test]
fn snapshots_show_their_moment_until_they_are_not_used() {
    let (server, tokens) = Running::with_tokens([&["*:all"]]);
    let mut client = server.client().with_token(&tokens[0]);
    let path = "/v1/keyspaces/default/keys/a";
    client.put(path, "1");
    let taken = client.post("/v1/snapshots", &json!({}));
    assert_eq!(taken.status, 201);
    let id = taken.json()["id"].as_str().unwrap().to_owned();
    client.put(path, "2");
    assert_eq!(client.get(&format!("{path}?snapshot={id}")).body, b"1");
    let page = client.get(&format!("/v1/keyspaces/default/keys?snapshot={id}")).json();
    assert_eq!(page["entries"][0]["value"], "1");
    assert_eq!(client.get(&format!("{path}?snapshot={id}&at=5m")).code(), "bad_parameter");
    assert_eq!(client.get(&format!("/v1/snapshots/{id}")).json()["stamp"], taken.json()["stamp"]);
    assert_eq!(client.delete(&format!("/v1/snapshots/{id}")).status, 200);
    assert_eq!(client.get(&format!("{path}?snapshot={id}")).code(), "snapshot_not_found");
}

#[test]
fn snapshots_are_few_and_expire() {
    let server = Running::start_with(|config| {
        config.limits.snapshots = 2;
        config.limits.snapshot_time = Duration::from_millis(50);
    });
    let mut client = server.client();
    let ids = [(); 2].map(|()| client.post("/v1/snapshots", &json!({})).json()["id"].take());
    let third = client.post("/v1/snapshots", &json!({}));
    assert!([503, 201].contains(&third.status), "{third:?}"); // On a slow machine one is gone.
    // What is not used is let go, which the engine says.
    while server.db.stats().snapshots > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = ids[0].as_str().unwrap();
    assert_eq!(client.get(&format!("/v1/snapshots/{id}")).code(), "snapshot_not_found");
    assert_eq!(client.post("/v1/snapshots", &json!({})).status, 201);
}

#[test]
fn a_client_says_how_long_a_snapshot_is_held() {
    let server = Running::start();
    let mut client = server.client();
    let taken = client.post("/v1/snapshots", &json!({ "seconds": 5 }));
    assert_eq!((taken.status, taken.json()["seconds"].as_f64()), (201, Some(5.0)));
    let path = format!("/v1/snapshots/{}", taken.json()["id"].as_str().unwrap());
    assert_eq!(client.get(&path).json()["seconds"], 5.0);
    for nothing in [json!({}), json!({ "seconds": null })] {
        assert_eq!(client.post("/v1/snapshots", &nothing).json()["seconds"], 60.0);
    }
    assert_eq!(client.send("POST", "/v1/snapshots", &[], b"").status, 201);
    for seconds in [json!(0), json!(-1), json!(60.5), json!(1e300)] {
        let refused = client.post("/v1/snapshots", &json!({ "seconds": seconds }));
        assert_eq!(refused.code(), "invalid_argument", "{seconds}");
        assert_eq!(refused.json()["error"]["limit"], 60.0);
    }
    for wrong in [json!({ "second": 5 }), json!({ "seconds": "5" }), json!([5])] {
        assert_eq!(client.post("/v1/snapshots", &wrong).code(), "invalid_json", "{wrong}");
    }
    let form = client.send("POST", "/v1/snapshots", &[], b"{\"seconds\":5}");
    assert_eq!(form.code(), "unsupported_media_type");
    // What is told nothing refuses what it is told.
    for call in ["/v1/check", "/v1/keyspaces/default/flush", "/v1/keyspaces/default/compact"] {
        assert_eq!(client.post(call, &json!({ "fast": true })).code(), "invalid_json", "{call}");
    }
}

#[test]
fn nobody_holds_all_snapshots() {
    let (server, [one, two]) = Running::with_names([("ada", "*:read"), ("bob", "*:read")], |it| {
        it.limits.snapshots = 3;
        it.limits.snapshots_per_token = 2;
    });
    let (mut ada, mut bob) = (server.client().with_token(&one), server.client().with_token(&two));
    let take = |client: &mut Client| client.post("/v1/snapshots", &json!({}));
    let first = take(&mut ada).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(take(&mut ada).status, 201);
    let refused = take(&mut ada);
    assert_eq!((refused.status, refused.code().as_str()), (503, "busy"));
    assert!(refused.header("retry-after").is_some());
    let error = refused.json()["error"].take();
    assert_eq!(error["limit"], 2);
    let said = "2 snapshots are held with this token";
    assert!(error["message"].as_str().unwrap().starts_with(said), "{error}");
    assert_eq!(take(&mut bob).status, 201);
    let error = take(&mut bob).json()["error"].take();
    let said = "3 snapshots are held by all clients";
    assert!(error["message"].as_str().unwrap().starts_with(said), "{error}");
    assert_eq!(ada.delete(&format!("/v1/snapshots/{first}")).status, 200);
    assert_eq!(take(&mut ada).status, 201);
}

fn follow(server: &Running, query: &str, headers: &[(&str, &str)]) -> Client {
    let mut client = server.client();
    client.send_only("GET", &format!("/v1/changes{query}"), headers, b"");
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.iter().any(|(_, value)| value == "text/event-stream"));
    client
}

fn put(db: &Db, keyspace: &str, key: &str, value: &[u8]) -> String {
    let stamp = db.keyspace_or_create(keyspace).unwrap().put(key, value).unwrap();
    stamp.as_u64().to_string()
}

#[test]
fn commits_are_followed_and_taken_up_again() {
    let server = with_prices();
    put(&server.db, "default", "before", b"");
    let mut feed = follow(&server, "", &[]);
    let first = put(&server.db, "default", "a", b"\xff");
    let second = put(&server.db, "other", "b", &[0; 100_000]);
    let found = events(&mut feed, 2);
    assert_eq!((found[0].0.as_str(), &found[0].1), ("commit", &first));
    assert_eq!(found[0].2["stamp"], first.as_str());
    let change = json!({
        "op": "put", "keyspace": "default", "key": "a", "value_base64": "/w==", "expires": null,
    });
    assert_eq!(found[0].2["changes"], json!([change]));
    assert_eq!(found[1].2["changes"][0]["value_size"], 100_000);
    drop(feed);
    let third = put(&server.db, "prices", "bread", b"3.10");
    let mut again = follow(&server, "?since=0", &[("last-event-id", &first)]);
    let stamps: Vec<String> = events(&mut again, 2).into_iter().map(|event| event.1).collect();
    assert_eq!(stamps, [second.clone(), third.clone()]);
    let mut one = follow(&server, &format!("?since={first}&keyspaces=prices&previous=true"), &[]);
    let fourth = put(&server.db, "prices", "bread", b"3.40");
    let found = events(&mut one, 2);
    assert_eq!((&found[0].1, &found[0].2["changes"][0]["old"]), (&third, &Value::Null));
    assert_eq!((&found[1].1, &found[1].2["changes"][0]["old"]), (&fourth, &"3.10".into()));
    let mut client = server.client();
    assert_eq!(client.get("/v1/changes?keyspaces=none").code(), "keyspace_not_found");
    assert_eq!(client.get("/v1/changes?since=x").code(), "bad_parameter");
    assert_eq!(client.get("/v1/changes?since=2099-01-01T00:00:00Z").code(), "invalid_argument");
}

#[test]
fn who_follows_is_told_where_it_is_before_there_is_anything() {
    let server = with_prices();
    let before = put(&server.db, "default", "before", b"");
    let mut feed = follow(&server, "", &[]);
    let text = String::from_utf8(feed.chunk().unwrap().unwrap()).unwrap();
    assert_eq!(text, format!("id: {before}\n\n"));
    drop(feed);
    let missed = put(&server.db, "default", "missed", b"");
    let mut again = follow(&server, "", &[("last-event-id", &before)]);
    assert_eq!(events(&mut again, 1)[0].1, missed);
}

/// A server of a database that keeps no more of its log than it needs.
fn with_small_log() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let builder = Db::builder().wal_file_size(64 << 10).kept_log_size(0);
    let db = builder.open(dir.path().join("data.lithe")).unwrap();
    Running::start_on(db, dir, |_| {})
}

/// Commits, and has the log given up that has them; what a feed from the first on is told by it.
fn lose_commits(db: &Db) {
    let mut number = 0_u64;
    while db.changes(SeqNo::ZERO, FeedOptions::new()).is_ok() {
        for _ in 0..100 {
            number += 1;
            put(db, "default", &number.to_string(), &[0; 1000]);
        }
        db.flush().unwrap();
    }
}

#[test]
fn commits_that_are_gone_are_a_gap_and_those_behind_it_are_shown() {
    let server = with_small_log();
    put(&server.db, "default", "a", b"1");
    lose_commits(&server.db);
    let mut feed = follow(&server, "?since=0", &[]);
    let gap = events(&mut feed, 1).remove(0);
    assert_eq!((gap.0.as_str(), &gap.2["stamp"]), ("gap", &gap.1.as_str().into()));
    // All that is kept is shown, the first one too.
    let oldest = server.db.commits(..).unwrap().next().unwrap().unwrap().seqno.as_u64();
    assert_eq!(gap.1, (oldest - 1).to_string());
    let last = put(&server.db, "default", "z", b"2");
    let last: u64 = last.parse().unwrap();
    let first = events(&mut feed, 1).remove(0);
    assert_eq!((first.0.as_str(), &first.1), ("commit", &oldest.to_string()));
    let mut before = oldest;
    while before < last {
        for (name, stamp, _) in events(&mut feed, 1) {
            let number: u64 = stamp.parse().unwrap();
            assert!(name == "commit" && number > before, "{name} {stamp} behind {before}");
            before = number;
        }
    }
    // The id of a gap is one to go on behind: there is none now.
    let mut again = follow(&server, "", &[("last-event-id", &gap.1)]);
    assert_eq!(events(&mut again, 1)[0].0, "commit");
}

#[test]
fn a_follower_that_falls_behind_what_is_kept_is_told_so() {
    let server = with_small_log();
    let mut feed = follow(&server, "", &[]);
    // More than waits for a client on the way: the feed stands still, and the log goes on.
    for round in 0..80_u8 {
        for number in 0..20_u8 {
            put(&server.db, "default", &format!("{round}.{number}"), &[b'v'; 60_000]);
        }
        server.db.flush().unwrap();
    }
    let last: u64 = put(&server.db, "default", "last", b"").parse().unwrap();
    let (mut before, mut gaps) = (0, 0);
    while before < last {
        for (name, stamp, _) in events(&mut feed, 1) {
            let number: u64 = stamp.parse().unwrap();
            assert!(number > before, "{name} {stamp} behind {before}");
            before = number;
            gaps += u32::from(name == "gap");
        }
    }
    assert!(gaps > 0);
}

#[test]
fn followers_are_few_and_end_with_the_server() {
    let server = Running::start_with(|config| config.limits.feeds = 2);
    let mut feed = follow(&server, "", &[]);
    let mut stats = server.client();
    stats.send_only("GET", "/v1/stats/stream?interval=0.25", &[], b"");
    assert_eq!(stats.head().unwrap().0, 200);
    let figures = events(&mut stats, 2);
    assert_eq!((figures[0].0.as_str(), &figures[1].2["server"]["feeds"]), ("stats", &2.into()));
    assert_eq!(server.client().get("/v1/changes").status, 503);
    drop(stats);
    let mut client = server.client();
    while client.get("/v1/stats").json()["server"]["feeds"] != 1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.drain.begin();
    let end = events(&mut feed, 1);
    assert_eq!((end[0].0.as_str(), &end[0].2["code"]), ("end", &"closing".into()));
    server.stop();
}

/// Events until the connection ends, the whole ones: their names and ids.
fn until_its_end(client: &mut Client) -> Vec<(String, String)> {
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = client.chunk() {
        text.extend_from_slice(&chunk);
    }
    let text = String::from_utf8_lossy(&text);
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _cut_off)| whole);
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().to_owned()
    };
    let events = whole.split("\n\n").map(|event| (field(event, "event: "), field(event, "id: ")));
    events.collect()
}

#[test]
fn who_does_not_read_takes_no_more_than_there_is_room_for_and_goes_on_where_it_was() {
    const COMMITS: usize = 12;
    const ROOM: u64 = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().kept_log_size(1 << 30).open(dir.path().join("data.lithe")).unwrap();
    let server = Running::start_on(db, dir, |config| {
        config.limits.body_size = ROOM / 16;
        config.limits.value_size = ROOM / 16;
        config.limits.first_byte = Duration::from_secs(2);
    });
    let begins_at = server.db.snapshot().seqno().as_u64().to_string();
    let since = format!("/v1/changes?since={begins_at}");
    let mut deaf: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut deaf {
        client.send_only("GET", &since, &[], b"");
        assert_eq!(client.head().unwrap().0, 200);
    }
    let keys = server.db.keyspace("default").unwrap();
    let stamps: Vec<String> = (0..COMMITS)
        .map(|number| {
            let mut batch = WriteBatch::new();
            for key in 0..80 {
                batch.put(&keys, format!("{number}-{key}-{}", "x".repeat(60_000)), b"v");
            }
            server.db.write(batch).unwrap().as_u64().to_string()
        })
        .collect();
    let mut watcher = server.client();
    let mut look = |is_so: &dyn Fn(u64, u64) -> bool| loop {
        let stats = watcher.get("/v1/stats").json();
        let (held, feeds) = (&stats["server"]["memory_http"], &stats["server"]["feeds"]);
        let (held, feeds) = (held.as_u64().unwrap(), feeds.as_u64().unwrap());
        assert!(held <= ROOM, "{held}");
        if is_so(held, feeds) {
            return;
        }
        std::thread::yield_now();
    };
    look(&|held, _| held >= 4 << 20);
    // Whoever takes nothing is not waited for; what it was to be sent is gone then.
    look(&|held, feeds| held == 0 && feeds == 0);
    for client in &mut deaf {
        let mut found = until_its_end(client);
        loop {
            let ids = found.iter().filter(|(name, _)| name == "commit").map(|(_, id)| id);
            assert!(ids.zip(&stamps).all(|(id, stamp)| id == stamp), "in order, none left out");
            let seen = found.iter().filter(|(name, _)| name == "commit").count();
            if seen == COMMITS {
                break;
            }
            let with_id = found.iter().rev().find(|(_, id)| !id.is_empty());
            let last = with_id.map_or(&begins_at, |(_, id)| id).clone();
            let mut again = server.client();
            again.send_only("GET", "/v1/changes", &[("last-event-id", &last)], b"");
            assert_eq!(again.head().unwrap().0, 200);
            let more = events(&mut again, COMMITS - seen);
            found.extend(more.into_iter().map(|(name, id, _)| (name, id)));
        }
    }
}
