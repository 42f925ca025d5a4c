//! What the server is told by options and the environment, and what its log tells.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::Value;

use super::wire::{Http, Redis, push_command};
use super::{Server, Shell};

#[test]
fn limits_are_options_and_variables() {
    let shell = Shell::new();
    let limits = ["--page-count", "2", "--log", "off"];
    let variables = [("LITHE_SERVE_VALUE_SIZE", "1KiB"), ("LITHE_SERVE_PAGE_COUNT", "1")];
    let server = Server::start_with(&shell, &limits, &variables);
    let mut http = Http::connect(server.http).unwrap();
    let path = "/v1/keyspaces/default/keys";
    for key in ["a", "b", "c"] {
        assert_eq!(http.ask("PUT", &format!("{path}/{key}"), "1").unwrap().0, 200);
    }
    assert_eq!(http.ask("PUT", &format!("{path}/d"), &"x".repeat(1025)).unwrap().0, 413);
    let (status, said) = http.ask("GET", &format!("{path}?limit=3"), "").unwrap();
    assert_eq!(status, 400, "the command line goes first: {said}");
    assert!(said.contains("from 1 to 2"), "{said}");
    server.end();
}

#[test]
fn names_of_the_server_are_said_by_the_environment() {
    let shell = Shell::new();
    let hosts = [("LITHE_HOSTS", "db, lithe.example")];
    let server = Server::start_with(&shell, &["--log", "off"], &hosts);
    let mut http = Http::connect(server.http).unwrap();
    let mut ask =
        |host: &str| http.ask_with(&format!("host: {host}\r\n"), ("GET", "/health"), "").unwrap().0;
    assert_eq!(["db:8080", "lithe.example", "localhost"].map(&mut ask), [200; 3]);
    assert_eq!(ask("other.example"), 421);
    let mut command = shell.command(&["health"]);
    command.env("LITHE_HEALTH_URL", format!("http://{}", server.http));
    assert_eq!(command.output().unwrap().stdout, b"ready\n");
    server.end();
}

/// Asks for the status of this Redis command.
fn told(redis: &mut Redis, command: &[&str]) -> String {
    let mut bytes = Vec::new();
    push_command(&mut bytes, command);
    redis.send(&bytes).unwrap();
    redis.line().unwrap()
}

/// Reads lines until one says this.
fn read_until(from: &mut impl BufRead, said: &mut String, last: &str) {
    while !said.lines().last().is_some_and(|line| line.contains(last)) {
        assert_ne!(from.read_line(said).unwrap(), 0, "it ends before it says {last}: {said}");
    }
}

#[test]
fn log_lines_are_objects_and_say_who_was_refused_and_no_key() {
    let shell = Shell::new();
    let made = ["token", "create", "--tokens", "tokens", "--name", "ada", "--grant", "*:all"];
    let token = shell.run(&made).ok_text().trim().to_owned();
    let options = ["--tokens", "tokens", "--log", "json", "--log-requests"];
    let mut server = Server::start_with(&shell, &options, &[]);
    let wrong = format!("lithe_{}_{}", "0".repeat(16), "1".repeat(64));
    let mut http = Http::connect(server.http).unwrap();
    let mut ask = |token: &str, method: &str, path: &str| {
        let headers = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
        http.ask_with(&headers, (method, path), "otters").unwrap().0
    };
    assert_eq!(ask(&token, "PUT", "/v1/keyspaces/default/keys/badger"), 200);
    assert_eq!(ask(&wrong, "GET", "/v1/keyspaces"), 401);
    let mut redis = Redis::connect(server.redis).unwrap();
    assert!(told(&mut redis, &["AUTH", &wrong]).starts_with("-WRONGPASS"));
    assert_eq!(told(&mut redis, &["AUTH", &token]), "+OK");
    assert_eq!(told(&mut redis, &["SET", "badger", "otters"]), "+OK");
    assert!(told(&mut redis, &["LPUSH", "badger", "otters"]).starts_with("-WRONGTYPE"));
    let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
    let mut said = String::new();
    server.signal(Signal::HUP);
    read_until(&mut stderr, &mut said, "were read again");
    std::fs::remove_file(shell.path("tokens")).unwrap();
    server.signal(Signal::HUP);
    read_until(&mut stderr, &mut said, "as they were read before");
    server.end();
    for secret in ["badger", "otters", &wrong, &token] {
        assert!(!said.contains(secret), "{said}");
    }
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["event"] == event).collect()
    };
    let refused = of("a token was refused");
    assert_eq!(
        (&refused[0]["protocol"], &refused[1]["protocol"]),
        (&"http".into(), &"redis".into())
    );
    assert!(refused.iter().all(|line| {
        line["level"] == "warn" && line["peer"].as_str().unwrap().starts_with("127.0.0.1:")
    }));
    let statuses: Vec<u64> =
        of("request").iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 401]);
    let commands: Vec<(&str, &str)> = of("command")
        .iter()
        .map(|line| {
            assert!(line["micros"].is_u64() && line["together"] == 1, "{line}");
            (line["command"].as_str().unwrap(), line["code"].as_str().unwrap())
        })
        .collect();
    let expected = [("auth", "WRONGPASS"), ("auth", ""), ("set", ""), ("lpush", "WRONGTYPE")];
    assert_eq!(commands, expected);
    assert_eq!(of("tokens and certificates were read again").len(), 1);
    assert_eq!(of("tokens and certificates are as they were read before").len(), 1);
}

#[test]
fn a_server_is_watched_by_its_figures() {
    let shell = Shell::new();
    let create = |grant: &str| {
        let made = ["token", "create", "--tokens", "tokens", "--name", "prometheus", "--grant"];
        shell.run(&[&made[..], &[grant]].concat()).ok_text().trim().to_owned()
    };
    let (token, other) = (create("*:stats,write"), create("*:read"));
    let server = Server::start_with(&shell, &["--tokens", "tokens", "--log", "off"], &[]);
    let url = format!("http://{}", server.http);
    let watch = |more: &[&str]| {
        shell.run(&[&["top", "--url", &url, "--interval", "200ms"][..], more].concat())
    };
    assert!(watch(&["--once"]).fails(3).contains("401"), "without a token");
    for (file, text) in [("token", &token), ("other", &other)] {
        shell.write(file, text.as_bytes());
    }
    let exposed = watch(&["--once", "--token-file", "token"]).fails(2);
    assert!(exposed.contains("chmod 600"), "{exposed}");
    for file in ["token", "other"] {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(shell.path(file), private).unwrap();
    }
    let refused = watch(&["--once", "--token-file", "other"]).fails(3);
    assert!(refused.contains("403") && !refused.contains(&other), "{refused}");
    let path = "/v1/keyspaces/default/keys/a?durability=buffered";
    let headers = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut http = Http::connect(server.http).unwrap();
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                assert_eq!(http.ask_with(&headers, ("PUT", path), "value").unwrap().0, 200);
            }
        });
        let text = watch(&["--json", "--count", "1", "--token-file", "token"]).ok_text();
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        text
    });
    let sample: Value = serde_json::from_str(&text).unwrap();
    for figure in ["commits_per_second", "data_bytes_per_second", "memory_budget_bytes"] {
        assert!(sample[figure].as_f64().unwrap() > 0.0, "{figure} {text}");
    }
    assert_eq!(sample["keyspaces"][0]["name"], "default");
    assert!(sample["memory"]["memtables_bytes"].as_u64().unwrap() > 0, "{text}");
    assert!(sample["server"]["requests_per_second"].as_f64().unwrap() > 0.0, "{text}");
    assert!(sample["server"]["request_seconds_mean"].as_f64().unwrap() > 0.0, "{text}");
    let drawn = watch(&["--once", "--token-file", "token"]).ok_text();
    assert!(drawn.contains(&url) && drawn.contains(" requests/s, mean "), "{drawn}");
    shell.run(&["--db", "db", "top", "--url", &url, "--once"]).fails(2);
    server.end();
}
