//! Any bytes, answered as on a connection: it ends, nothing panics, what comes back are answers,
//! and others are answered behind it. What `fuzz/` does for hours.

use lithe_server::fuzzing::{HttpFeed, judge_http};
use lithedb::base::{Entropy, SeededEntropy};

struct Draw(SeededEntropy);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        (self.0.next_u64() % count as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

fn feed() -> HttpFeed {
    let feed = HttpFeed::new(|config| {
        config.limits.head_size = 8 << 10;
        config.limits.body_size = 10_000;
        config.limits.value_size = 10_000;
        config.limits.batch_count = 20;
        config.limits.page_count = 20;
    });
    feed.unwrap()
}

/// Calls that read their body, if they have one, whatever there is.
const CALLS: &[(&str, &str, &str)] = &[
    ("PUT", "/key/K", r#"{"value":"V"}"#),
    ("GET", "/key/K", ""),
    ("DELETE", "/key/K", ""),
    ("GET", "/range?start=a&end=z", ""),
    ("PUT", "/v1/keyspaces/default/keys/K", "V"),
    ("PUT", "/v1/keyspaces/default/keys/K?ttl=1000&durability=buffered", "V"),
    ("GET", "/v1/keyspaces/default/keys/K", ""),
    ("HEAD", "/v1/keyspaces/default/keys/K", ""),
    ("DELETE", "/v1/keyspaces/default/keys/K", ""),
    ("GET", "/v1/keyspaces/default/keys?limit=3&reverse=true", ""),
    ("DELETE", "/v1/keyspaces/default/keys?prefix=K", ""),
    ("GET", "/v1/keyspaces/default/count?from=K", ""),
    ("POST", "/v1/keyspaces/default/multi-get", r#"{"keys":["K","K"]}"#),
    (
        "POST",
        "/v1/batch",
        r#"{"operations":[{"op":"put","keyspace":"default","key":"K","value":"V"},
            {"op":"delete","keyspace":"default","key":"K"}]}"#,
    ),
    (
        "POST",
        "/v1/batch",
        r#"{"operations":[{"op":"put","keyspace":"default","key":"K","value":"V"}],
            "conditions":[{"keyspace":"default","key":"K","stamp":null}]}"#,
    ),
    ("GET", "/v1/keyspaces", ""),
    ("GET", "/v1/keyspaces/default", ""),
    ("GET", "/v1/keyspaces/default/tables", ""),
    ("POST", "/v1/keyspaces/default/flush", ""),
    ("GET", "/v1/keyspaces/default/history/K", ""),
    ("POST", "/v1/snapshots", ""),
    ("GET", "/v1/stats", ""),
    ("GET", "/v1/stats/stream", ""),
    ("GET", "/v1/changes", ""),
    ("GET", "/v1/health", ""),
    ("HEAD", "/ready", ""),
    ("GET", "/metrics", ""),
    ("GET", "/v1/jobs", ""),
    ("GET", "/v1/whoami", ""),
    ("GET", "/v1/openapi.json", ""),
    ("GET", "/v1/backups", ""),
    ("GET", "/", ""),
    ("GET", "/console/", ""),
    ("GET", "/nowhere", ""),
];

/// Calls besides, which may end a connection behind them.
const MORE_CALLS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/keyspaces", r#"{"name":"other","structure":"history","merge_operator":"max"}"#),
    ("DELETE", "/v1/keyspaces/other?confirm=yes", ""),
    ("PUT", "/v1/keyspaces/other/keys/K", "V"),
    ("POST", "/v1/keyspaces/other/merge/K", "V"),
    ("POST", "/v1/keyspaces/other/rename", r#"{"to":"default"}"#),
    ("POST", "/v1/keyspaces/other/convert", r#"{"structure":"lsm"}"#),
    ("POST", "/v1/keyspaces/other/compact", ""),
    ("POST", "/v1/keyspaces/other/clear", r#"{"confirm":"yes"}"#),
    ("POST", "/v1/keyspaces/other/restore", r#"{"at":"1","key":"K"}"#),
    ("POST", "/v1/check", ""),
    ("POST", "/nowhere", "V"),
    ("CONNECT", "localhost:80", ""),
    ("OPTIONS", "*", ""),
];

/// Headers that change how a request is read or answered.
const HEADERS: &[&str] = &[
    "expect: 100-continue\r\n",
    "connection: close\r\n",
    "connection: keep-alive\r\n",
    "connection: upgrade\r\nupgrade: h2c\r\n",
    "transfer-encoding: chunked\r\n",
    "content-length: 3\r\n",
    "accept: application/json\r\n",
    "content-type: text/plain\r\n",
    "if-none-match: *\r\n",
    "if-match: \"1\"\r\n",
    "host: elsewhere\r\n",
    "origin: http://elsewhere\r\n",
    "authorization: Bearer lithe_\r\n",
    "last-event-id: 1\r\n",
    "x-é: \u{1}\r\n",
];

/// The bytes of a call, its body announced or in chunks.
fn request((method, path, body): (&str, &str, &str), headers: &str, draw: &mut Draw) -> Vec<u8> {
    let key = format!("k{}", draw.below(5));
    let value = "v".repeat(draw.of(&[1, 10, 3000]));
    let filled = |text: &str| text.replace('K', &key).replace('V', &value);
    let (path, body) = (filled(path), filled(body));
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}");
    let is_json = body.starts_with('{');
    let kind = if is_json { "content-type: application/json\r\n" } else { "" };
    let whole = match (body.len(), draw.below(3)) {
        (0, _) => format!("{head}\r\n"),
        (size, 0) => {
            let (first, second) = body.split_at(size / 2);
            let second_size = second.len();
            let chunked = "transfer-encoding: chunked\r\n\r\n";
            let first = match first.len() {
                0 => String::new(),
                size => format!("{size:x}\r\n{first}\r\n"),
            };
            format!("{head}{kind}{chunked}{first}{second_size:X};a=b\r\n{second}\r\n0\r\n\r\n")
        }
        (size, _) => format!("{head}{kind}content-length: {size}\r\n\r\n{body}"),
    };
    whole.into_bytes()
}

fn mutate(bytes: &mut Vec<u8>, draw: &mut Draw) {
    const PIECES: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b" ",
        b":",
        b"%",
        b"%00",
        b"%ff",
        b"/",
        b"?",
        b"&limit=0",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"18446744073709551616",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"HEAD ",
        b"\0",
        b"\xff",
        b"\"",
        b"\\ud800",
        b"[[[[",
        b"null",
        b"1e999",
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for _ in 0..1 + draw.below(6) {
        let at = draw.below(bytes.len() + 1);
        match draw.below(6) {
            0 if at < bytes.len() => bytes[at] = draw.below(256) as u8,
            1 if draw.below(4) == 0 => bytes.truncate(at),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.insert(at, draw.of(b"0123456789\r\n :/?&={}\"")),
            4 => drop(bytes.splice(at..at, draw.of(HEADERS).bytes())),
            _ => drop(bytes.splice(at..at, draw.of(PIECES).iter().copied())),
        }
    }
}

#[test]
fn any_bytes_are_answered_or_refused() {
    let mut draw = Draw(SeededEntropy::new(1));
    for _ in 0..12 {
        let feed = feed();
        for _ in 0..25 {
            let mut bytes = Vec::new();
            for _ in 0..1 + draw.below(5) {
                let calls = draw.of(&[CALLS, MORE_CALLS]);
                let (call, headers) = (draw.of(calls), draw.of(HEADERS));
                let headers = if draw.below(3) == 0 { headers } else { "" };
                bytes.extend(request(call, headers, &mut draw));
            }
            if draw.below(8) == 0 {
                bytes = (0..draw.below(60)).map(|_| draw.below(256) as u8).collect();
            }
            mutate(&mut bytes, &mut draw);
            for at_a_time in [usize::MAX, 1 + draw.below(100)] {
                let said = feed.connection(&bytes, at_a_time);
                let judged = judge_http(&bytes, &said);
                assert!(judged.is_ok(), "{judged:?}: {}", String::from_utf8_lossy(&bytes));
            }
        }
        feed.ask_rightly().unwrap();
    }
}

#[test]
fn whole_requests_are_all_answered_at_once_and_in_pieces() {
    let mut draw = Draw(SeededEntropy::new(2));
    let feed = feed();
    for at_a_time in [usize::MAX, 1000, 7, 1] {
        let calls = CALLS.iter().map(|call| request(*call, "", &mut draw));
        let calls: Vec<Vec<u8>> = calls.collect();
        let (sent, said) = (calls.concat(), feed.connection(&calls.concat(), at_a_time));
        // Those to HEAD have no body: at most so many are seen, and no fewer.
        assert_eq!(judge_http(&sent, &said), Ok(calls.len() + 1), "{at_a_time} at a time");
    }
    feed.ask_rightly().unwrap();
}

#[test]
fn what_is_no_answer_is_found() {
    let one = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let get = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let said = |count: usize| one.repeat(count);
    assert_eq!(judge_http(get, &said(2)), Ok(2));
    assert!(judge_http(get, &said(4)).unwrap_err().contains("4 answers, and 3 requests"));
    assert!(judge_http(get, &[&said(1)[..], b"{}"].concat()).unwrap_err().contains("at 40: "));
    let fault = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
    assert!(judge_http(get, fault).unwrap_err().contains("at fault"));
    let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    assert_eq!(judge_http(get, &[&chunks[..], one].concat()), Ok(2));
    let head = b"HEAD /ready HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let bare = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    assert_eq!(judge_http(head, &[&bare[..], one].concat()), Ok(2));
    assert!(judge_http(get, &[&bare[..], one].concat()).is_err());
    assert_eq!(judge_http(get, &one[..30]), Ok(1), "it may be broken off");
}
