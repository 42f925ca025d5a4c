//! Clients that mean no good, or do not know better: bounded, refused, and nobody else is hurt.

use std::io::Write;
use std::time::Duration;

use super::client::{Value, bulk, error, frame, ok};
use super::{Served, token_file};

#[test]
fn who_is_not_known_does_nothing_and_sends_little() {
    let (_dir, path, tokens) =
        token_file(&[("ada", &["*:all"]), ("reader", &["default:read"]), ("other", &["x:all"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let noauth = || error("NOAUTH Authentication required.");
    let mut client = served.client();
    for command in ["GET a", "SET a 1", "PING", "INFO", "CONFIG GET *", "MULTI", "NOSUCH", "KEYS *"]
    {
        assert_eq!(client.run(command), noauth(), "{command}");
    }
    assert!(matches!(client.run("HELLO 3"), Value::Error(text) if text.starts_with("NOAUTH")));
    client.send(b"*11\r\n");
    assert_eq!(client.read(), Some(error("ERR Protocol error: unauthenticated multibulk length")));
    assert!(client.is_closed());
    let mut client = served.client();
    client.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n");
    assert_eq!(client.read(), Some(error("ERR Protocol error: unauthenticated bulk length")));
    assert!(client.is_closed());
    // Each is small enough, and all of them are not.
    let mut client = served.client();
    let large = vec![b'x'; 16_000];
    let _it_may_be_closed = client.stream.write_all(&frame(&vec![large; 9]));
    assert!(matches!(client.read(), None | Some(Value::Error(_))));
    let mut client = served.client();
    assert_eq!(client.run(&format!("AUTH {}", tokens[0])), ok());
    assert_eq!(client.run("SET a 1"), ok());
    assert_eq!(client.run("ACL WHOAMI"), bulk("ada"));
    assert_eq!(client.run("RESET"), Value::Simple("RESET".to_owned()));
    assert_eq!(client.run("GET a"), noauth());
    let mut reader = served.client();
    assert!(matches!(
        reader.run(&format!("AUTH ada {}", tokens[1])),
        Value::Error(text) if text.starts_with("WRONGPASS")
    ));
    assert!(matches!(reader.run(&format!("HELLO 3 AUTH reader {}", tokens[1])), Value::Map(_)));
    assert_eq!(reader.run("GET a"), bulk("1"));
    let denied = |name: &str| {
        error(&format!("NOPERM User reader has no permissions to run the '{name}' command"))
    };
    assert_eq!(reader.run("SET a 2"), denied("set"));
    assert_eq!(reader.run("INCR a"), denied("incr"));
    assert_eq!(reader.run("FLUSHALL"), denied("flushall"));
    assert_eq!(reader.run("CONFIG GET *"), denied("config"));
    assert_eq!(reader.run("CLIENT LIST"), denied("client|list"));
    assert_eq!(reader.run("MULTI"), ok());
    assert_eq!(reader.run("SET a 2"), denied("set"));
    assert!(matches!(reader.run("EXEC"), Value::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(reader.run("SELECT 1"), ok());
    assert_eq!(reader.run("GET a"), denied("get"));
    let mut other = served.client();
    assert_eq!(other.run(&format!("AUTH {}", tokens[2])), ok());
    assert!(matches!(other.run("GET a"), Value::Error(text) if text.starts_with("NOPERM")));
}

#[test]
fn guessing_tokens_is_shut_out() {
    let (_dir, path, tokens) = token_file(&[("ada", &["*:all"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    for _ in 0..10 {
        let mut client = served.client();
        for _ in 0..3 {
            let said = client.run("AUTH lithe_0123456789abcdef_00");
            assert!(matches!(said, Value::Error(text) if text.starts_with("WRONGPASS")));
            if client.read_if_closed() {
                break;
            }
        }
    }
    let mut guessing = served.client();
    let said = guessing.run("AUTH lithe_0123456789abcdef_00");
    assert!(matches!(said, Value::Error(text) if text.starts_with("WRONGPASS")));
    assert!(guessing.is_closed(), "for a minute, at the first");
    let mut client = served.client();
    let said = client.run(&format!("AUTH {}", tokens[0]));
    assert!(!matches!(said, Value::Error(_)), "who is right is not kept out");
}

impl super::client::Client {
    fn read_if_closed(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut byte = [0];
        let closed = matches!(self.stream.peek(&mut byte), Ok(0));
        self.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        closed
    }
}

#[test]
fn a_broken_frame_is_told_once_and_ends_the_connection() {
    let served = Served::plain();
    for (bytes, said) in [
        (&b"*1\r\n$-1\r\n"[..], "invalid bulk length"),
        (b"*99999999999\r\n", "invalid multibulk length"),
        (b"*2\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$2000000000\r\n", "invalid bulk length"),
        (b"get \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = served.client();
        client.send(&[b"PING\r\n", bytes, b"PING\r\nPING\r\n"].concat());
        assert_eq!(client.read(), Some(Value::Simple("PONG".to_owned())));
        assert_eq!(client.read(), Some(error(&format!("ERR Protocol error: {said}"))));
        assert!(client.is_closed(), "{said}");
    }
    let mut client = served.client();
    client.send(b"*-1\r\n*0\r\n\r\nPING\r\n");
    assert_eq!(client.read(), Some(Value::Simple("PONG".to_owned())));
}

#[test]
fn a_browser_that_is_sent_here_gets_nothing() {
    let served = Served::plain();
    served.client().run("SET a secret");
    for request in [
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET a evil\r\nGET a\r\n",
        "Host: 127.0.0.1\r\nGET a\r\n",
        "post /x HTTP/1.1\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    ] {
        let mut client = served.client();
        client.send(request.as_bytes());
        assert_eq!(client.read(), None, "{request}");
    }
    let mut client = served.client();
    client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nDEL a\r\n");
    assert!(matches!(client.read(), Some(Value::Error(_))), "GET takes one key");
    assert_eq!(client.read(), None);
    assert_eq!(served.client().run("GET a"), bulk("secret"));
}

#[test]
fn the_silent_and_the_slow_are_closed() {
    let served = Served::start(|config| {
        config.limits.first_byte = Duration::from_millis(200);
        config.limits.rate_min = 1 << 20;
    });
    let mut silent = served.client();
    let mut slow = served.client();
    slow.send(b"*2\r\n$3\r\nGE");
    let mut idle = served.client();
    assert_eq!(idle.run("PING"), Value::Simple("PONG".to_owned()));
    assert!(silent.is_closed());
    assert!(slow.is_closed());
    // Who takes nothing of a large reply.
    let mut deaf = served.client();
    let value = "x".repeat(1 << 20);
    assert_eq!(deaf.call(&["SET", "large", &value]), ok());
    let gets = frame(&["GET", "large"]).repeat(200);
    deaf.send(&gets);
    std::thread::sleep(Duration::from_millis(1500));
    let mut count = 0;
    while deaf.read_whole() {
        count += 1;
    }
    assert!(count < 200, "it was cut off, after {count}");
    assert_eq!(idle.run("PING"), Value::Simple("PONG".to_owned()), "the idle one is known");
}

impl super::client::Client {
    /// Reads a bulk of any size; `false` when it is cut off.
    fn read_whole(&mut self) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.read()))
            .ok()
            .flatten()
            .is_some()
    }
}

#[test]
fn a_thousand_half_commands_hold_nobody_up() {
    let served = Served::plain();
    let mut slow: Vec<_> = (0..1000).map(|_| served.client()).collect();
    for client in &mut slow {
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000");
    }
    let mut client = served.client();
    for number in 0..100 {
        assert_eq!(client.run(&format!("SET k{number} v")), ok());
    }
    for client in slow.iter_mut().take(10) {
        client.send(b"\r\n");
        client.send(&[b'x'; 1000]);
        client.send(b"\r\n");
        assert_eq!(client.read(), Some(ok()));
    }
}

#[test]
fn random_bytes_break_nothing() {
    let served = Served::plain();
    served.client().run("SET keep me");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let whole = frame(&["SET", "fuzz", "value"]);
    for round in 0..300 {
        let mut client = served.client();
        let mut bytes = whole.repeat(3);
        for _ in 0..1 + next() % 4 {
            let at = (next() % bytes.len() as u64) as usize;
            match round % 3 {
                0 => bytes[at] = next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, next() as u8),
            }
        }
        let _it_may_be_closed = client.stream.write_all(&bytes);
        let _or_so = client.stream.shutdown(std::net::Shutdown::Write);
        while client.read_whole() {}
    }
    assert_eq!(served.client().run("GET keep"), bulk("me"));
}

#[test]
fn limits_are_told_and_nothing_is_done() {
    let served = Served::start(|config| {
        config.limits.output_size = 10_000;
        config.limits.body_size = 5_000;
        config.limits.batch_count = 1_000;
    });
    let mut client = served.client();
    let value = "x".repeat(4_000);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.call(&["SET", key, &value]), ok());
    }
    let large = "ERR the reply is larger than replies may be";
    assert_eq!(client.run("MGET a b c d"), error(large));
    assert_eq!(client.run("GET a"), bulk(&value));
    client.send(b"*2\r\n$3\r\nGET\r\n$5001\r\n");
    assert_eq!(client.read(), Some(error("ERR Protocol error: invalid bulk length")));
    let mut client = served.client();
    client.send(b"*1001\r\n");
    assert_eq!(client.read(), Some(error("ERR Protocol error: invalid multibulk length")));
    let mut client = served.client();
    assert_eq!(client.run("MULTI"), ok());
    let mut said = Value::Simple("QUEUED".to_owned());
    for _ in 0..100 {
        said = client.call(&["SET", "k", &value]);
        if matches!(said, Value::Error(_)) {
            break;
        }
    }
    assert_eq!(said, error("ERR the transaction is larger than it may be"));
    assert!(matches!(client.run("EXEC"), Value::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(client.run("EXISTS k"), Value::Int(0));
}
