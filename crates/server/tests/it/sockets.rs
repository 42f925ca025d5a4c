//! Both protocols at paths of this machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lithe_server::auth::NewToken;
use lithe_server::{Config, LogFormat, Probe, ServeError, Server};
use lithedb::Db;
use lithedb::storage::MemoryStorage;

use crate::http::{Client, files_in};

fn database() -> Db {
    Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap()
}

fn config_in(dir: &Path) -> Config {
    let mut config = Config::default();
    config.http_socket = Some(dir.join("http"));
    config.redis_socket = Some(dir.join("redis"));
    config.log = LogFormat::Off;
    config
}

/// Who came by a path is known by no name of a network.
fn http_at(path: &Path) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    Client::over(stream, SocketAddr::from(([127, 0, 0, 1], 80)))
}

struct Redis(BufReader<UnixStream>);

impl Redis {
    fn at(path: &Path) -> Redis {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Redis(BufReader::new(stream))
    }

    /// The first line that an inline command is answered with.
    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

#[test]
fn both_protocols_are_served_at_paths_and_at_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (http, redis) = (dir.path().join("http"), dir.path().join("redis"));
    let mut config = config_in(dir.path());
    config.socket_mode = Some(0o660);
    let server = Server::bind(database(), config).unwrap();
    assert_eq!((server.http_address(), server.redis_address()), (None, None));
    let drain = server.drain();
    let thread = std::thread::spawn(move || server.run().unwrap());
    for path in [&http, &redis] {
        assert_eq!(fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777, 0o660);
    }
    let mut client = http_at(&http);
    assert_eq!(client.put("/key/a", r#"{"value":"1"}"#).status, 200);
    let metrics = client.get("/metrics");
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("lithedb_server_connections{protocol=\"redis\"} 0"), "{metrics}");
    // The plain calls and database 0 have one keyspace.
    let mut redis_client = Redis::at(&redis);
    assert_eq!(redis_client.ask("GET a"), "$1");
    assert_eq!(redis_client.line(), "1");
    let len = redis_client.ask("CLIENT INFO");
    assert!(len.starts_with('$'), "{len}");
    let line = redis_client.line();
    let own = format!(" addr=unix:{} laddr={}:0 ", std::process::id(), redis.display());
    assert!(line.contains(&own) && line.contains(" flags=U "), "{line}");

    let url = format!("unix:{}", http.display());
    let probe = Probe { url, patience: Duration::from_secs(60), ..Probe::default() };
    assert_eq!(probe.ask().unwrap(), 200);
    drop((client, redis_client));
    drain.begin();
    thread.join().unwrap();
    assert!(!http.exists() && !redis.exists(), "nobody listens there any more");
    assert!(probe.ask().is_err());
}

#[test]
fn tokens_are_asked_for_at_paths_as_well_and_tls_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_in(dir.path());
    config.tls = Some(files_in(dir.path()));
    let token = NewToken::make("reader", &["default:read".parse().unwrap()]).unwrap();
    token.add_to(&dir.path().join("tokens")).unwrap();
    config.tokens = Some(dir.path().join("tokens"));
    config.limits.wrong_tokens_a_minute = 2;
    let server = Server::bind(database(), config).unwrap();
    let drain = server.drain();
    let thread = std::thread::spawn(move || server.run().unwrap());
    let (http, redis) = (dir.path().join("http"), dir.path().join("redis"));
    assert_eq!(http_at(&http).get("/key/a").status, 401);
    assert_eq!(http_at(&http).with_token(token.text()).get("/key/a").status, 404);
    assert_eq!(http_at(&http).with_token(token.text()).put("/key/a", "1").status, 403);
    let statuses = [401, 401, 429].map(|_| http_at(&http).with_token("wrong").get("/key/a").status);
    assert_eq!(statuses, [401, 401, 429], "they are counted");
    let mut client = Redis::at(&redis);
    assert!(client.ask("GET a").starts_with("-NOAUTH"));
    assert_eq!(client.ask(&format!("AUTH {}", token.text())), "+OK");
    assert_eq!(client.ask("GET a"), "$-1");
    drop(client);
    drain.begin();
    thread.join().unwrap();
}

/// A keyspace that is called something else is another's: what a database of the Redis protocol is
/// goes by its name, as rights do, also for who is connected already.
#[test]
fn after_a_rename_both_protocols_have_what_the_names_mean_now() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_in(dir.path());
    let token = |name: &str, grant: &str| {
        let token = NewToken::make(name, &[grant.parse().unwrap()]).unwrap();
        token.add_to(&dir.path().join("tokens")).unwrap();
        token
    };
    let (admin, some) = (token("admin", "*:all"), token("some", "default:read,write"));
    config.tokens = Some(dir.path().join("tokens"));
    let db = database();
    let server = Server::bind(db.clone(), config).unwrap();
    let drain = server.drain();
    let thread = std::thread::spawn(move || server.run().unwrap());
    let mut http = http_at(&dir.path().join("http")).with_token(admin.text());
    let mut client = Redis::at(&dir.path().join("redis"));
    assert_eq!(client.ask(&format!("AUTH {}", some.text())), "+OK");
    assert_eq!(client.ask("SET k mine"), "+OK");
    assert_eq!((client.ask("GET k"), client.line()), ("$4".into(), "mine".into()));
    assert_eq!(client.ask("APPEND k !"), ":5");
    let to = serde_json::json!({ "to": "archive" });
    assert_eq!(http.post("/v1/keyspaces/default/rename", &to).status, 200);
    assert_eq!(client.ask("GET k"), "$-1", "it is the archive's");
    assert_eq!(client.ask("EXISTS k"), ":0");
    assert_eq!(client.ask("SET k other"), "+OK");
    assert_eq!(client.ask("APPEND k !"), ":6");
    let value = |keyspace: &str| db.keyspace(keyspace).unwrap().get("k").unwrap().unwrap();
    assert_eq!((&*value("archive"), &*value("default")), (&b"mine!"[..], &b"other!"[..]));
    // And back, in place of another.
    let to = serde_json::json!({ "to": "aside" });
    assert_eq!(http.post("/v1/keyspaces/default/rename", &to).status, 200);
    let to = serde_json::json!({ "to": "default" });
    assert_eq!(http.post("/v1/keyspaces/archive/rename", &to).status, 200);
    assert_eq!((client.ask("GET k"), client.line()), ("$5".into(), "mine!".into()));
    drop((client, http));
    drain.begin();
    thread.join().unwrap();
}

#[test]
fn a_path_at_which_there_is_something_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::bind(database(), config_in(dir.path())).unwrap();
    let second = Server::bind(database(), config_in(dir.path()));
    let Err(ServeError::Socket { path, .. }) = second else { panic!("somebody listens") };
    assert_eq!(path, dir.path().join("http"));
    assert!(path.exists(), "it is the first's");
    drop(first);
    assert!(!path.exists());
    let mut config = config_in(dir.path());
    let other = dir.path().join("file");
    fs::write(&other, b"mine").unwrap();
    config.redis_socket = Some(other.clone());
    assert!(matches!(Server::bind(database(), config), Err(ServeError::Socket { .. })));
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    assert!(!path.exists(), "what was bound before goes");
}
