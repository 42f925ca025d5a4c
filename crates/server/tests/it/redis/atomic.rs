//! Transactions, and commands of many clients on one key.

use super::Served;
use super::client::{Value, array, bulk, error, ok};

#[test]
fn a_transaction_is_done_at_once_or_not_at_all() {
    let served = Served::plain();
    let mut client = served.client();
    let queued = || Value::Simple("QUEUED".to_owned());
    assert_eq!(client.run("MULTI"), ok());
    assert_eq!(client.run("SET a 1"), queued());
    assert_eq!(client.run("INCR a"), queued());
    assert_eq!(client.run("GET a"), queued());
    assert_eq!(client.run("LPOP a"), queued());
    assert_eq!(client.run("HSET h f v"), queued());
    assert_eq!(client.run("HGETALL h"), queued());
    assert_eq!(served.client().run("EXISTS a h"), Value::Int(0));
    assert_eq!(
        client.run("EXEC"),
        Value::Array(vec![
            ok(),
            Value::Int(2),
            bulk("2"),
            error(super::collections::WRONG_TYPE),
            Value::Int(1),
            array(&["f", "v"]),
        ])
    );
    assert_eq!(client.run("MULTI"), ok());
    assert_eq!(client.run("MULTI"), error("ERR MULTI calls can not be nested"));
    assert_eq!(client.run("SET a 9"), queued());
    assert!(matches!(client.run("NOSUCH"), Value::Error(_)));
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(client.run("EXEC"), error(aborted));
    assert_eq!(client.run("GET a"), bulk("2"));
    assert_eq!(client.run("EXEC"), error("ERR EXEC without MULTI"));
    assert_eq!(client.run("DISCARD"), error("ERR DISCARD without MULTI"));
    client.run("MULTI");
    assert_eq!(client.run("SET a 9"), queued());
    assert_eq!(client.run("DISCARD"), ok());
    assert_eq!(client.run("GET a"), bulk("2"));
    client.run("MULTI");
    client.run("SELECT 2");
    client.run("SET other x");
    client.run("HSET coll f v");
    client.run("EXEC");
    assert_eq!(client.run("GET other"), bulk("x"));
    assert_eq!(client.run("HGET coll f"), bulk("v"));
    assert_eq!(client.run("SELECT 0"), ok());
    assert_eq!(client.run("EXISTS other coll"), Value::Int(0));
}

#[test]
fn a_watched_key_that_has_changed_stops_a_transaction() {
    let served = Served::plain();
    let (mut client, mut other) = (served.client(), served.client());
    let mut attempt = |change: &mut dyn FnMut()| {
        assert_eq!(client.run("WATCH a h"), ok());
        change();
        client.run("MULTI");
        client.run("SET done x");
        client.run("EXEC")
    };
    let done = || Value::Array(vec![ok()]);
    assert_eq!(attempt(&mut || {}), done());
    assert_eq!(attempt(&mut || drop(other.run("SET a 1"))), Value::Null);
    assert_eq!(attempt(&mut || drop(other.run("SET b 1"))), done());
    assert_eq!(attempt(&mut || drop(other.run("HSET h f v"))), Value::Null);
    // The same number of fields, and another value.
    assert_eq!(attempt(&mut || drop(other.run("HSET h f w"))), Value::Null);
    assert_eq!(attempt(&mut || drop(other.run("DEL h"))), Value::Null);
    assert_eq!(attempt(&mut || drop(other.run("EXPIRE a 100"))), Value::Null);
    let keyspace = served.db.keyspace("default").unwrap();
    let mut past_this = || {
        keyspace.put("a", "by another way").unwrap();
    };
    assert_eq!(attempt(&mut past_this), Value::Null);
    assert_eq!(attempt(&mut || {}), done());
    assert_eq!(client.run("WATCH a"), ok());
    other.run("SET a 2");
    assert_eq!(client.run("UNWATCH"), ok());
    client.run("MULTI");
    client.run("PING");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Simple("PONG".to_owned())]));
}

#[test]
fn sixteen_count_on_one_key_and_none_is_lost() {
    let served = Served::plain();
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let mut client = served.client();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let replies =
                        client.pipeline(&["INCR n", "HINCRBY h f 1", "ZINCRBY z 1 m", "RPUSH l x"]);
                    assert!(replies.iter().all(|r| !matches!(r, Value::Error(_))), "{replies:?}");
                }
                client.run(&format!("SADD s {number}"));
            })
        })
        .collect();
    // And somebody who takes no part in their locks.
    let keyspace = served.db.keyspace("default").unwrap();
    for _ in 0..200 {
        keyspace.increment_text("n");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut client = served.client();
    assert_eq!(client.run("GET n"), bulk("3400"));
    assert_eq!(client.run("HGET h f"), bulk("3200"));
    assert_eq!(client.run("ZSCORE z m"), bulk("3200"));
    assert_eq!(client.run("LLEN l"), Value::Int(3200));
    assert_eq!(client.run("SCARD s"), Value::Int(16));
}

trait IncrementText {
    fn increment_text(&self, key: &str);
}

impl IncrementText for lithedb::Keyspace {
    fn increment_text(&self, key: &str) {
        self.fetch_update(key, |old| {
            let old = old.map_or(0, |old| str::from_utf8(old).unwrap().parse().unwrap());
            let new: i64 = old + 1;
            Some(new.to_string().into_bytes())
        })
        .unwrap();
    }
}

#[test]
fn a_key_is_a_string_or_a_collection_whoever_is_first() {
    // The second keyspace is made while others write: `databases.rs` says why that is right.
    for _ in 0..20 {
        let served = Served::plain();
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let mut client = served.client();
                let barrier = std::sync::Arc::clone(&barrier);
                std::thread::spawn(move || {
                    barrier.wait();
                    for key in 0..20 {
                        match number % 4 {
                            0 => client.run(&format!("SADD k{key} m")),
                            1 => client.run(&format!("SETNX k{key} v")),
                            _ => client.run(&format!("SET k{key} v")),
                        };
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let strings = served.db.keyspace("default").unwrap();
        let second = served.db.keyspace("default.redis").unwrap();
        for key in 0..20 {
            let is_string = strings.contains(format!("k{key}")).unwrap();
            let is_set = second.contains(format!("rk{key}")).unwrap();
            assert!(is_string, "k{key}: a `SET` replaces whatever there is");
            assert!(!is_set, "k{key}: whoever comes behind a `SET` finds a string");
        }
    }
}

#[test]
fn exec_of_many_moves_and_loses_nothing() {
    let served = Served::plain();
    let mut setup = served.client();
    for account in 0..4 {
        setup.run(&format!("SET account:{account} 100"));
    }
    let threads: Vec<_> = (0..8_u64)
        .map(|number| {
            let mut client = served.client();
            std::thread::spawn(move || {
                let mut done = 0;
                for round in 0..60_u64 {
                    let (from, to) = ((number + round) % 4, (number * 3 + round * 7 + 1) % 4);
                    client.run(&format!("WATCH account:{from} account:{to}"));
                    client.run("MULTI");
                    client.run(&format!("DECRBY account:{from} 3"));
                    client.run(&format!("INCRBY account:{to} 3"));
                    done += usize::from(client.run("EXEC") != Value::Null);
                }
                done
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(done > 0);
    let sum: i64 = (0..4)
        .map(|account| match setup.run(&format!("GET account:{account}")) {
            Value::Bulk(text) => String::from_utf8(text).unwrap().parse::<i64>().unwrap(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(sum, 400);
}
