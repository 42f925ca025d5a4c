//! Ordinary use by real clients: scripts in `tests/clients/`, each run with the port of a server.
//!
//! Ignored, since they need what they are written for: `just redis-clients`.

use std::path::Path;
use std::process::Command;

use super::Served;

fn run(program: &str, before: &[&str], script: &str) {
    let served = Served::plain();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let status = Command::new(program)
        .args(before)
        .arg(script)
        .arg(served.address.port().to_string())
        .current_dir(dir)
        .status()
        .unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    assert!(status.success(), "{script}");
}

#[test]
#[ignore = "needs python3 with redis; LITHE_PYTHON says which"]
fn redis_py() {
    let python = std::env::var("LITHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    run(&python, &[], "redis_py.py");
}

#[test]
#[ignore = "needs node with ioredis"]
fn ioredis() {
    run("node", &[], "ioredis.mjs");
}

#[test]
#[ignore = "needs go"]
fn go_redis() {
    run("go", &["run", "-C", "go"], ".");
}

#[test]
#[ignore = "needs redis-cli and redis-benchmark"]
fn redis_tools() {
    run("sh", &[], "redis_tools.sh");
}

/// Serves until it is killed, for measurements by hand: the port is in `LITHE_REDIS_PORT`.
#[test]
#[ignore = "serves without an end"]
fn serve() {
    let port = std::env::var("LITHE_REDIS_PORT").unwrap_or_else(|_| "6399".to_owned());
    let durability = match std::env::var("LITHE_DURABILITY").as_deref() {
        Ok("always") => lithe_server::Durability::Always,
        _ => lithe_server::Durability::EverySecond,
    };
    let dir = tempfile::tempdir().unwrap();
    let db = lithedb::Db::open(dir.path().join("db")).unwrap();
    let mut config = lithe_server::Config::default();
    config.redis = Some(format!("127.0.0.1:{port}").parse().unwrap());
    config.durability = durability;
    lithe_server::Server::bind(db, config).unwrap().run().unwrap();
}
