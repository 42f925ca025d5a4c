//! What a client could once do, and cannot: rights that were passed by, replies without a bound,
//! states that were wrong.

use std::time::{Duration, Instant};

use super::client::{Value, array, bulk, error, frame, ok};
use super::{Served, token_file};

#[test]
fn rights_are_those_of_the_database_that_a_transaction_has_chosen() {
    let (_dir, path, tokens) =
        token_file(&[("ada", &["*:all"]), ("bob", &["default:read,write", "redis-2:read,write"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let (mut ada, mut bob) = (served.client(), served.client());
    assert_eq!(ada.run(&format!("AUTH {}", tokens[0])), ok());
    assert_eq!(bob.run(&format!("AUTH {}", tokens[1])), ok());
    ada.pipeline(&["SELECT 1", "SET secret x", "SELECT 2", "SET shared y", "SELECT 0"]);
    let denied = |name: &str| {
        error(&format!("NOPERM User bob has no permissions to run the '{name}' command"))
    };
    bob.pipeline(&["MULTI", "SELECT 1"]);
    assert_eq!(bob.run("GET secret"), denied("get"));
    assert!(matches!(bob.run("EXEC"), Value::Error(text) if text.starts_with("EXECABORT")));
    bob.pipeline(&["MULTI", "SELECT 1"]);
    assert_eq!(bob.run("DEL secret"), denied("del"));
    assert_eq!(bob.run("DISCARD"), ok());
    // One that it has not chosen, from one that it may do nothing with.
    bob.pipeline(&["SELECT 1", "MULTI", "SELECT 2", "GET shared", "SELECT 0", "SET a 1"]);
    assert_eq!(bob.run("EXEC"), Value::Array(vec![ok(), bulk("y"), ok(), ok()]));
    assert_eq!(bob.run("GET a"), bulk("1"));
    ada.run("SELECT 1");
    assert_eq!(ada.run("GET secret"), bulk("x"));
}

#[test]
fn rights_that_are_taken_back_are_not_used_by_what_is_queued() {
    let (dir, path, tokens) = token_file(&[("ada", &["*:all"])]);
    let served = Served::start(|config| config.tokens = Some(path.clone()));
    let mut ada = served.client();
    assert_eq!(ada.run(&format!("AUTH {}", tokens[0])), ok());
    ada.pipeline(&["SET a 1", "MULTI", "SET a 2", "GET a"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let less = text.replace("*:all", "*:read").replace("*:read,write,admin,backup,stats", "*:read");
    assert_ne!(text, less, "{text}");
    std::fs::write(&path, less).unwrap();
    served.reload.now().unwrap();
    let denied = error("NOPERM User ada has no permissions to run the 'set' command");
    assert_eq!(ada.run("EXEC"), Value::Array(vec![denied, bulk("1")]));
    drop(dir);
}

#[test]
fn who_may_only_write_is_told_nothing() {
    let (_dir, path, tokens) = token_file(&[("ada", &["*:all"]), ("pen", &["*:write"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let (mut ada, mut pen) = (served.client(), served.client());
    ada.run(&format!("AUTH default {}", tokens[0]));
    ada.pipeline(&["SET s secret", "ZADD z 7 m", "RPUSH l secret"]);
    assert_eq!(pen.run(&format!("AUTH pen {}", tokens[1])), ok());
    for command in [
        "GET s",
        "SET s x GET",
        "GETSET s x",
        "GETDEL s",
        "GETEX s",
        "INCR s",
        "ZADD z INCR 0 m",
        "ZADD z XX CH INCR 0 m",
        "ZINCRBY z 0 m",
        "LPOP l",
        "ZPOPMIN z",
        "WATCH s",
    ] {
        let said = pen.run(command);
        assert!(matches!(&said, Value::Error(text) if text.starts_with("NOPERM")), "{command}");
    }
    assert_eq!(pen.run("ZADD z 1 incr"), Value::Int(1), "that is a member");
    assert_eq!(pen.run("SET t x"), ok());
}

#[test]
fn the_name_that_redis_gives_everybody_goes_with_any_token() {
    let (_dir, path, tokens) = token_file(&[("ada", &["*:all"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let mut client = served.client();
    assert!(matches!(client.run(&format!("HELLO 3 AUTH default {}", tokens[0])), Value::Map(_)));
    assert_eq!(client.run("ACL WHOAMI"), bulk("ada"));
    let mut client = served.client();
    let said = client.run("AUTH default lithe_0123456789abcdef_00");
    assert!(matches!(said, Value::Error(text) if text.starts_with("WRONGPASS")));
}

#[test]
fn a_reset_gives_time_to_say_who_one_is() {
    let (_dir, path, tokens) = token_file(&[("ada", &["*:all"])]);
    let served = Served::start(|config| {
        config.tokens = Some(path);
        config.limits.idle = Duration::from_millis(1500);
    });
    let mut client = served.client();
    assert_eq!(client.run(&format!("AUTH {}", tokens[0])), ok());
    let mut unknown = served.client();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1600) {
        let _it_may_be_closed = unknown.call_if_open(&["RESET"]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(unknown.call_if_open(&["RESET"]), None, "who is not known gains no time by it");
    assert_eq!(client.run("RESET"), Value::Simple("RESET".to_owned()));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.run(&format!("AUTH {}", tokens[0])), ok());
}

impl super::client::Client {
    fn call_if_open(&mut self, args: &[&str]) -> Option<Value> {
        use std::io::Write;
        self.stream.write_all(&frame(args)).ok()?;
        self.read()
    }
}

#[test]
fn no_reply_is_larger_than_replies_may_be() {
    let served = Served::start(|config| config.limits.output_size = 200_000);
    let mut client = served.client();
    let large = "x".repeat(50_000);
    assert_eq!(client.call(&["SADD", "s", &large]), Value::Int(1));
    assert_eq!(client.call(&["HSET", "h", "f", &large]), Value::Int(1));
    for number in 0..10 {
        let member = format!("{number}{large}");
        client.call(&["ZADD", "z", &number.to_string(), &member]);
        client.call(&["SET", &member, "v"]);
    }
    let too_large = error("ERR the reply is larger than replies may be");
    assert_eq!(client.run("SRANDMEMBER s -20000"), too_large);
    assert_eq!(client.run("HRANDFIELD h -20000 WITHVALUES"), too_large);
    assert_eq!(client.run("ZPOPMIN z 10"), too_large);
    assert_eq!(client.run("ZPOPMAX z 10"), too_large);
    assert_eq!(client.run("ZCARD z"), Value::Int(10), "nothing was taken out");
    assert!(matches!(client.run("SRANDMEMBER s -3"), Value::Array(drawn) if drawn.len() == 3));
    // A scan has smaller pages instead.
    let (mut cursor, mut count, mut pages) = ("0".to_owned(), 0, 0);
    loop {
        let Value::Array(page) = client.run(&format!("SCAN {cursor} COUNT 10000")) else {
            panic!("a page")
        };
        let (Value::Bulk(next), Value::Array(keys)) = (&page[0], &page[1]) else {
            panic!("a cursor and keys")
        };
        assert!(keys.len() <= 5, "{} keys of 50,000 bytes", keys.len());
        (count, pages) = (count + keys.len(), pages + 1);
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(count, 13);
    assert!(pages >= 3);
}

#[test]
fn a_transaction_writes_no_more_than_a_few_times_what_a_command_may() {
    let served = Served::start(|config| {
        config.limits.body_size = 100_000;
        config.limits.value_size = 1_000_000;
    });
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", &"x".repeat(90_000)]), ok());
    assert_eq!(client.run("MULTI"), ok());
    for _ in 0..1_000 {
        client.run("APPEND a x");
    }
    let said = client.run("EXEC");
    assert_eq!(said, error("EXECABORT the transaction writes more than it may"));
    assert_eq!(client.run("STRLEN a"), Value::Int(90_000));
}

#[test]
fn a_keyspace_that_was_dropped_and_made_again_is_seen() {
    let served = Served::plain();
    let (mut client, mut other) = (served.client(), served.client());
    for client in [&mut client, &mut other] {
        client.pipeline(&["SET a 1", "HSET h f v", "SELECT 3", "SET b 2", "SELECT 0"]);
        client.run("GET a");
    }
    served.db.drop_keyspace("default").unwrap();
    let made = served.db.keyspace_or_create("default").unwrap();
    made.put("a", "anew").unwrap();
    assert_eq!(client.run("GET a"), bulk("anew"));
    assert_eq!(other.run("MGET a b"), Value::Array(vec![bulk("anew"), Value::Null]));
    // Found by a transaction first, and by one that flushes.
    for _ in 0..2 {
        served.db.drop_keyspace("redis-3").unwrap();
        assert_eq!(
            other.pipeline(&["MULTI", "SELECT 3", "SET b 3", "GET b", "EXEC"])[4],
            Value::Array(vec![ok(), ok(), bulk("3")])
        );
        assert_eq!(other.run("SELECT 0"), ok());
    }
    served.db.drop_keyspace("redis-3").unwrap();
    served.db.drop_keyspace("default.redis").unwrap();
    assert_eq!(client.run("FLUSHALL"), ok());
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    assert_eq!(client.run("FLUSHALL NOW"), error("ERR syntax error"));
    assert_eq!(client.run("FLUSHDB ASYNC"), ok());
}

#[test]
fn within_a_transaction_is_drawn_from_what_it_has_made() {
    let served = Served::plain();
    let mut client = served.client();
    let members: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    client.run("MULTI");
    client.run(&format!("SADD s {}", members.join(" ")));
    client.run("SRANDMEMBER s");
    (0..900).for_each(|_| drop(client.run("SPOP s")));
    client.run("SCARD s");
    let Value::Array(said) = client.run("EXEC") else { panic!("an array") };
    let mut popped = std::collections::BTreeSet::new();
    for value in &said[2..902] {
        let Value::Bulk(member) = value else { panic!("{value:?}") };
        assert!(popped.insert(member.clone()), "twice");
    }
    assert_eq!(said[902], Value::Int(100));
    assert_eq!(client.run("SCARD s"), Value::Int(100));
}

#[test]
fn bits_are_counted_by_bit_as_by_byte() {
    let served = Served::plain();
    let mut client = served.client();
    let bytes: Vec<u8> = (0..40_u8).map(|byte| byte.wrapping_mul(37)).collect();
    assert_eq!(client.call(&[&b"SET"[..], b"a", &bytes]), ok());
    for (start, end) in
        [(0, 319), (3, 5), (3, 8), (0, 7), (7, 8), (5, 300), (-9, -2), (16, 23), (9, 3)]
    {
        let from = |at: i64| if at < 0 { 320 + at } else { at };
        let is_one = |bit: &i64| bytes[*bit as usize / 8] & (0x80 >> (bit % 8)) != 0;
        let expected = (from(start)..=from(end)).filter(is_one).count() as i64;
        let said = client.run(&format!("BITCOUNT a {start} {end} BIT"));
        assert_eq!(said, Value::Int(expected), "{start} {end}");
    }
}

#[test]
fn who_is_killed_ends_though_it_reads_nothing() {
    let served = Served::plain();
    let (mut admin, mut deaf) = (served.client(), served.client());
    let Value::Int(id) = deaf.run("CLIENT ID") else { panic!("an id") };
    deaf.call(&["SET", "large", &"x".repeat(4 << 20)]);
    deaf.send(&frame(&["GET", "large"]).repeat(8));
    let line = format!("id={id} ");
    let is_there = |admin: &mut super::client::Client| {
        let Value::Bulk(list) = admin.run("CLIENT LIST") else { panic!("text") };
        String::from_utf8(list).unwrap().contains(&line)
    };
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(admin.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    let gone = (0..40).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !is_there(&mut admin)
    });
    assert!(gone, "long before the ten seconds that it has for its reply");
}

#[test]
fn moments_that_are_far_away_break_nothing() {
    let served = Served::plain();
    let mut client = served.client();
    for moment in ["9223372036854775807", "9223372036854775000", "4611686018427387903", "1"] {
        for command in [
            "SET k v PXAT M",
            "SET k v PX M",
            "PEXPIREAT k M",
            "PEXPIRE k M",
            "EXPIREAT k M",
            "EXPIRE k M",
            "PSETEX k M v",
            "SETEX k M v",
            "GETEX k PXAT M",
            "SET k v EX M",
            "SADD s m",
            "PEXPIREAT s M",
            "EXPIRE s M",
        ] {
            client.run(&command.replace('M', moment));
            for look in ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"] {
                for key in ["k", "s"] {
                    let said = client.run(&format!("{look} {key}"));
                    assert!(matches!(said, Value::Int(-2..)), "{command} {moment} {said:?}");
                }
            }
        }
    }
    assert_eq!(client.run("FLUSHALL"), ok());
    assert_eq!(client.run("KEYS *"), array(&[]));
}

#[test]
fn many_keys_are_watched_in_no_time_that_grows_with_their_square() {
    let served = Served::plain();
    let mut client = served.client();
    let keys: Vec<String> = (0..50_000).map(|number| format!("k{number}")).collect();
    assert_eq!(client.run(&format!("WATCH {}", keys.join(" "))), ok());
    assert_eq!(client.run("WATCH k1 k2 k1"), ok());
    served.client().run("SET k49999 x");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), Value::Null);
}

#[test]
fn thousands_that_have_expired_are_swept_without_waiting_for_seconds() {
    let served = Served::at(1_700_000_000_000);
    let mut client = served.client();
    for number in 0..1_000 {
        client.pipeline(&[&format!("SADD s{number} a b"), &format!("PEXPIRE s{number} 100")]);
    }
    let fields: Vec<String> = (0..200).map(|number| format!("f{number} v")).collect();
    client.run(&format!("HSET large {}", fields.join(" ")));
    client.run("PEXPIRE large 100");
    let second = served.db.keyspace("default.redis").unwrap();
    served.clock.as_ref().unwrap().advance(Duration::from_secs(5));
    let began = Instant::now();
    while second.len().unwrap() > 0 {
        client.run("PING");
        assert!(began.elapsed() < Duration::from_secs(60), "{} are left", second.len().unwrap());
    }
}
