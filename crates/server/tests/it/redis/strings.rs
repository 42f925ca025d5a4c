//! Strings, keys, expiry, counters, pipelines.

use super::Served;
use super::client::{Value, array, bulk, error, frame, ok};

#[test]
fn a_string_is_what_http_and_the_engine_have() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("SET a 1"), ok());
    let keyspace = served.db.keyspace("default").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
    keyspace.put("b", "2").unwrap();
    assert_eq!(client.run("MGET a b c"), Value::Array(vec![bulk("1"), bulk("2"), Value::Null]));
    assert_eq!(client.run("INCR a"), Value::Int(2));
    assert_eq!(client.run("SELECT 3"), ok());
    assert_eq!(client.run("GET a"), Value::Null);
    assert!(served.db.keyspace("redis-3").is_err(), "nothing was written there");
    assert_eq!(client.run("SET a x"), ok());
    assert_eq!(served.db.keyspace("redis-3").unwrap().get("a").unwrap().unwrap(), b"x");
    served.db.create_keyspace("redis-4", lithedb::KeyspaceOptions::flex()).unwrap();
    served.db.keyspace("redis-4").unwrap().put("k", "v").unwrap();
    assert_eq!(client.run("SELECT 4"), ok());
    assert_eq!(client.run("GET k"), bulk("v"));
    assert_eq!(client.run("SELECT 16"), error("ERR DB index is out of range"));
}

#[test]
fn set_does_as_it_is_told() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("SET a 1 XX"), Value::Null);
    assert_eq!(client.run("SET a 1 NX"), ok());
    assert_eq!(client.run("SET a 2 NX"), Value::Null);
    assert_eq!(client.run("SET a 2 GET"), bulk("1"));
    assert_eq!(client.run("SET a 3 EX 100"), ok());
    assert_eq!(client.run("SET a 4 KEEPTTL"), ok());
    assert_eq!(client.run("TTL a"), Value::Int(100));
    assert_eq!(client.run("SET a 5"), ok());
    assert_eq!(client.run("TTL a"), Value::Int(-1));
    assert_eq!(client.run("SET a 5 EX 0"), error("ERR invalid expire time in 'set' command"));
    assert_eq!(client.run("SET a 5 NX XX"), error("ERR syntax error"));
    assert_eq!(client.run("SET a 5 EX"), error("ERR syntax error"));
    assert_eq!(client.run("SET a 5 EX x"), error("ERR value is not an integer or out of range"));
    assert_eq!(client.run("HSET h f v"), Value::Int(1));
    assert!(matches!(client.run("GET h"), Value::Error(text) if text.starts_with("WRONGTYPE")));
    assert_eq!(client.run("SET h now-a-string"), ok());
    assert_eq!(client.run("GET h"), bulk("now-a-string"));
    assert_eq!(client.run("TYPE h"), Value::Simple("string".to_owned()));
    assert_eq!(client.run("DEL h"), Value::Int(1));
    assert_eq!(client.run("HGETALL h"), Value::Array(vec![]));
}

#[test]
fn what_expires_is_gone_when_its_time_has_come() {
    let served = Served::at(1_700_000_000_000);
    let clock = served.clock.clone().unwrap();
    let mut client = served.client();
    let pass = |millis| clock.advance(std::time::Duration::from_millis(millis));
    assert_eq!(client.run("SET a 1 PX 1500"), ok());
    assert_eq!(client.run("SET b 1"), ok());
    assert_eq!(client.run("EXPIRE b 10"), Value::Int(1));
    assert_eq!(client.run("HSET h f v"), Value::Int(1));
    assert_eq!(client.run("PEXPIRE h 2000"), Value::Int(1));
    assert_eq!(client.run("EXPIRE none 10"), Value::Int(0));
    assert_eq!(client.run("PTTL a"), Value::Int(1500));
    pass(1000);
    assert_eq!(client.run("PTTL a"), Value::Int(500));
    assert_eq!(client.run("GET a"), bulk("1"));
    pass(600);
    assert_eq!(client.run("GET a"), Value::Null);
    assert_eq!(client.run("TTL a"), Value::Int(-2));
    assert_eq!(client.run("HGET h f"), bulk("v"));
    pass(500);
    assert_eq!(client.run("EXISTS h"), Value::Int(0));
    assert_eq!(client.run("HGET h f"), Value::Null);
    // A new one of the same name has nothing of the old one's.
    assert_eq!(client.run("HSET h g w"), Value::Int(1));
    assert_eq!(client.run("HGETALL h"), array(&["g", "w"]));
    assert_eq!(client.run("PERSIST b"), Value::Int(1));
    assert_eq!(client.run("TTL b"), Value::Int(-1));
    assert_eq!(client.run("EXPIRE b 100 XX"), Value::Int(0));
    assert_eq!(client.run("EXPIRE b 100 NX"), Value::Int(1));
    assert_eq!(client.run("EXPIRE b 50 GT"), Value::Int(0));
    assert_eq!(client.run("EXPIRE b 50 LT"), Value::Int(1));
    assert_eq!(client.run("TTL b"), Value::Int(50));
    assert_eq!(client.run("INCR b"), Value::Int(2));
    assert_eq!(client.run("TTL b"), Value::Int(50), "a counter keeps its expiry");
    assert_eq!(client.run("EXPIREAT b 1"), Value::Int(1));
    assert_eq!(client.run("EXISTS b"), Value::Int(0));
    assert_eq!(client.run("GETEX h"), error(super::collections::WRONG_TYPE));
}

#[test]
fn counters_count_and_say_why_they_do_not() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("INCR n"), Value::Int(1));
    assert_eq!(client.run("INCRBY n 41"), Value::Int(42));
    assert_eq!(client.run("DECRBY n 2"), Value::Int(40));
    assert_eq!(client.run("DECR n"), Value::Int(39));
    assert_eq!(client.run("INCRBYFLOAT n 0.5"), bulk("39.5"));
    assert_eq!(client.run("INCR n"), error("ERR value is not an integer or out of range"));
    assert_eq!(client.run("SET max 9223372036854775807"), ok());
    assert_eq!(client.run("INCR max"), error("ERR increment or decrement would overflow"));
    assert_eq!(client.run("APPEND s abc"), Value::Int(3));
    assert_eq!(client.run("APPEND s def"), Value::Int(6));
    assert_eq!(client.run("GETRANGE s -3 -1"), bulk("def"));
    assert_eq!(client.run("SETRANGE s 8 x"), Value::Int(9));
    assert_eq!(client.run("GET s"), bulk("abcdef\0\0x"));
    assert_eq!(client.run("STRLEN s"), Value::Int(9));
    assert_eq!(client.run("SETBIT bits 7 1"), Value::Int(0));
    assert_eq!(client.run("GETBIT bits 7"), Value::Int(1));
    assert_eq!(client.run("BITCOUNT bits"), Value::Int(1));
    assert_eq!(client.run("GETDEL s"), bulk("abcdef\0\0x"));
    assert_eq!(client.run("GETSET t new"), Value::Null);
    assert_eq!(client.run("MSETNX t 1 u 2"), Value::Int(0));
    assert_eq!(client.run("EXISTS u t t"), Value::Int(2));
    assert_eq!(client.run("RENAME t v"), ok());
    assert_eq!(client.run("RENAME t v"), error("ERR no such key"));
    assert_eq!(client.run("COPY v w"), Value::Int(1));
    assert_eq!(client.run("GET w"), bulk("new"));
}

#[test]
fn a_pipeline_is_answered_in_order_wherever_it_is_cut() {
    let served = Served::plain();
    let mut client = served.client();
    let commands = ["SET a 1", "SET b 2", "GET a", "INCR a", "SET a x", "INCR a", "GET a", "PING"];
    let expected = client.pipeline(&commands);
    assert_eq!(expected[2], bulk("1"));
    assert_eq!(expected[6], bulk("x"));
    let bytes: Vec<u8> =
        commands.iter().flat_map(|c| frame(&c.split(' ').collect::<Vec<_>>())).collect();
    for cut in (1..bytes.len()).step_by(7) {
        client.send(&bytes[..cut]);
        client.send(&bytes[cut..]);
        let found: Vec<_> = commands.iter().map(|_| client.read().unwrap()).collect();
        assert_eq!(found, expected, "cut at {cut}");
    }
    let many: Vec<String> = (0..30_000).map(|number| format!("SET k{number} {number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (mut writer, bytes) = (
        client.stream.try_clone().unwrap(),
        many.iter().flat_map(|c| frame(&c.split(' ').collect::<Vec<_>>())).collect::<Vec<u8>>(),
    );
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        writer.write_all(&bytes).unwrap();
    });
    for _ in &many {
        assert_eq!(client.read(), Some(ok()));
    }
    sender.join().unwrap();
    assert_eq!(client.run("DBSIZE"), Value::Int(30_002));
    assert_eq!(client.run("GET k29999"), bulk("29999"));
}

#[test]
fn scans_tell_everything_once() {
    let served = Served::plain();
    let mut client = served.client();
    for number in 0..500 {
        client.run(&format!("SET s:{number} x"));
        client.run(&format!("SADD c:{number} x"));
    }
    let scan = |options: &str| {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            // Any connection may go on.
            let mut client = served.client();
            let Value::Array(page) = client.run(&format!("SCAN {cursor}{options}")) else {
                panic!("a page")
            };
            let Value::Bulk(next) = &page[0] else { panic!("a cursor") };
            let Value::Array(keys) = &page[1] else { panic!("keys") };
            found.extend(keys.clone());
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                return found;
            }
        }
    };
    assert_eq!(scan(" COUNT 37").len(), 1000);
    assert_eq!(scan(" MATCH s:1?? COUNT 100").len(), 100);
    assert_eq!(scan(" TYPE set COUNT 100").len(), 500);
    assert_eq!(client.run("DBSIZE"), Value::Int(1000));
    let Value::Array(keys) = client.run("KEYS c:*9") else { panic!("keys") };
    assert_eq!(keys.len(), 50);
    let unknown = "ERR invalid cursor: it is not known any more, begin again with 0";
    assert_eq!(client.run("SCAN 12345"), error(unknown));
    assert_eq!(client.run("SCAN x"), error("ERR invalid cursor"));
    assert_ne!(client.run("RANDOMKEY"), Value::Null);
    assert_eq!(client.run("FLUSHDB"), ok());
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    assert_eq!(client.run("RANDOMKEY"), Value::Null);
}

#[test]
fn bits_are_found_and_put_together() {
    let served = Served::plain();
    let mut client = served.client();
    client.call(&[&b"SET"[..], b"a", b"\xff\xf0\x00"]);
    client.call(&[&b"SET"[..], b"ones", b"\xff\xff"]);
    for (command, expected) in [
        ("BITPOS a 0", 12),
        ("BITPOS a 1 2", -1),
        ("BITPOS a 1 7 15 BIT", 7),
        ("BITPOS a 0 0 0", -1),
        ("BITPOS ones 0", 16),
        ("BITPOS ones 0 0 -1", -1),
        ("BITPOS ones 0 5", -1),
        ("BITPOS none 0", 0),
        ("BITPOS none 1 0 -1", -1),
        ("BITOP AND to a ones", 3),
        ("BITOP XOR to to a", 3),
        ("BITOP NOT to none", 0),
    ] {
        assert_eq!(client.run(command), Value::Int(expected), "{command}");
    }
    assert_eq!(client.run("EXISTS to"), Value::Int(0));
    client.run("RPUSH list a");
    client.run("BITOP OR list a ones");
    assert_eq!(client.run("GET list"), Value::Bulk(b"\xff\xff\x00".to_vec()));
    for (command, said) in [
        ("BITPOS a 2", "ERR The bit argument must be 1 or 0."),
        ("BITPOS a 0 0 -1 WORD", "ERR syntax error"),
        ("BITOP NOT to a ones", "ERR BITOP NOT must be called with a single source key."),
        ("BITOP NAND to a ones", "ERR syntax error"),
    ] {
        assert_eq!(client.run(command), error(said), "{command}");
    }
}
