//! Hashes, sets, sorted sets, lists.

use super::Served;
use super::client::{Client, Value, array, bulk, error, ok};

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn hashes() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("HSET h a 1 b 2"), Value::Int(2));
    assert_eq!(client.run("HSET h a 3 c 4"), Value::Int(1));
    assert_eq!(client.run("HGETALL h"), array(&["a", "3", "b", "2", "c", "4"]));
    assert_eq!(client.run("HMGET h a x"), Value::Array(vec![bulk("3"), Value::Null]));
    assert_eq!(client.run("HLEN h"), Value::Int(3));
    assert_eq!(client.run("HINCRBY h a 7"), Value::Int(10));
    assert_eq!(client.run("HINCRBYFLOAT h a 0.5"), bulk("10.5"));
    assert_eq!(client.run("HSETNX h a x"), Value::Int(0));
    assert_eq!(client.run("HEXISTS h a"), Value::Int(1));
    assert_eq!(client.run("HDEL h a b c d"), Value::Int(3));
    assert_eq!(client.run("EXISTS h"), Value::Int(0), "without fields it is not there");
    assert_eq!(client.run("HSET h a"), error("ERR wrong number of arguments for 'hset' command"));
    assert_eq!(client.run("SET s x"), ok());
    assert_eq!(client.run("HSET s a 1"), error(WRONG_TYPE));
    assert_eq!(client.run("SADD s a"), error(WRONG_TYPE));
    assert_eq!(client.run("GET s"), bulk("x"));
}

#[test]
fn sets() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("SADD a 1 2 3 3"), Value::Int(3));
    assert_eq!(client.run("SADD b 2 3 4"), Value::Int(3));
    assert_eq!(client.run("SINTER a b"), array(&["2", "3"]));
    assert_eq!(client.run("SUNION a b c"), array(&["1", "2", "3", "4"]));
    assert_eq!(client.run("SDIFF a b"), array(&["1"]));
    assert_eq!(client.run("SINTERSTORE d a b"), Value::Int(2));
    assert_eq!(client.run("SMEMBERS d"), array(&["2", "3"]));
    assert_eq!(client.run("SINTERSTORE d a none"), Value::Int(0));
    assert_eq!(client.run("EXISTS d"), Value::Int(0));
    assert_eq!(client.run("SMOVE a b 1"), Value::Int(1));
    assert_eq!(client.run("SCARD b"), Value::Int(4));
    assert_eq!(client.run("SMISMEMBER b 1 9"), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    assert_eq!(client.run("SREM b 1 9"), Value::Int(1));
    let Value::Array(popped) = client.run("SPOP b 2") else { panic!("an array") };
    assert_eq!(popped.len(), 2);
    assert_eq!(client.run("SCARD b"), Value::Int(1));
    assert_eq!(client.run("SINTERCARD 2 a b LIMIT 1").clone(), client.run("SINTERCARD 2 a b"));
    // A large one, from which is drawn by number.
    for part in 0..10 {
        let members: Vec<String> = (0..100).map(|n| format!("{part}-{n}")).collect();
        client.run(&format!("SADD large {}", members.join(" ")));
    }
    for left in (0..1000).rev().take(20) {
        assert!(matches!(client.run("SPOP large"), Value::Bulk(_)));
        assert_eq!(client.run("SCARD large"), Value::Int(left));
    }
    let Value::Array(drawn) = client.run("SRANDMEMBER large -50") else { panic!("an array") };
    assert_eq!(drawn.len(), 50);
    assert_eq!(client.run("DEL large"), Value::Int(1));
    assert_eq!(client.run("SMEMBERS large"), Value::Array(vec![]));
    assert_eq!(client.run("SADD large x"), Value::Int(1));
    assert_eq!(client.run("SMEMBERS large"), array(&["x"]));
}

#[test]
fn sorted_sets() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("ZADD z 1 a 2 b 3 c"), Value::Int(3));
    assert_eq!(client.run("ZADD z CH 1 a 5 b"), Value::Int(1));
    assert_eq!(client.run("ZADD z NX 9 a"), Value::Int(0));
    assert_eq!(client.run("ZADD z XX GT CH 0 a"), Value::Int(0));
    assert_eq!(client.run("ZADD z INCR 1.5 a"), bulk("2.5"));
    assert_eq!(client.run("ZRANGE z 0 -1 WITHSCORES"), array(&["a", "2.5", "c", "3", "b", "5"]));
    assert_eq!(client.run("ZREVRANGE z 0 0"), array(&["b"]));
    assert_eq!(client.run("ZRANGEBYSCORE z (2.5 +inf LIMIT 0 1"), array(&["c"]));
    assert_eq!(client.run("ZRANGE z 5 -inf BYSCORE REV"), array(&["b", "c", "a"]));
    assert_eq!(client.run("ZRANK z b"), Value::Int(2));
    assert_eq!(client.run("ZREVRANK z b"), Value::Int(0));
    let with_score = Value::Array(vec![Value::Int(1), bulk("3")]);
    assert_eq!(client.run("ZRANK z c WITHSCORE"), with_score);
    assert_eq!(client.run("ZREVRANK z c withscore"), with_score);
    assert_eq!(client.run("ZRANK z nobody WITHSCORE"), Value::Null);
    assert_eq!(client.run("ZRANK nothing b WITHSCORE"), Value::Null);
    assert_eq!(client.run("ZRANK z b SCORE"), error("ERR syntax error"));
    assert_eq!(client.run("ZSCORE z b"), bulk("5"));
    assert_eq!(client.run("ZCOUNT z 2.5 (5"), Value::Int(2));
    assert_eq!(client.run("ZCOUNT z 9 1"), Value::Int(0));
    assert_eq!(client.run("ZRANGEBYSCORE z 9 1"), Value::Array(vec![]));
    assert_eq!(client.run("ZPOPMIN z"), array(&["a", "2.5"]));
    assert_eq!(client.run("ZREMRANGEBYSCORE z -inf 3"), Value::Int(1));
    assert_eq!(client.run("ZCARD z"), Value::Int(1));
    assert_eq!(client.run("ZADD z nan x"), error("ERR value is not a valid float"));
    assert_eq!(client.run("ZADD inf inf x"), Value::Int(1));
    let nan = "ERR resulting score is not a number (NaN)";
    assert_eq!(client.run("ZINCRBY inf -inf x"), error(nan));
    assert_eq!(client.run("ZADD l 0 a 0 b 0 c 0 d"), Value::Int(4));
    assert_eq!(client.run("ZRANGEBYLEX l [b (d"), array(&["b", "c"]));
    assert_eq!(client.run("ZLEXCOUNT l - +"), Value::Int(4));
    assert_eq!(client.run("ZREMRANGEBYRANK l 0 1"), Value::Int(2));
    assert_eq!(client.run("ZUNIONSTORE u 2 l z WEIGHTS 1 2"), Value::Int(3));
    assert_eq!(client.run("ZRANGE u 0 -1 WITHSCORES"), array(&["c", "0", "d", "0", "b", "10"]));
    assert_eq!(client.run("ZINTER 2 u l"), array(&["c", "d"]));
    assert_eq!(client.run("ZDIFF 2 u l WITHSCORES"), array(&["b", "10"]));
}

#[test]
fn lists() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("RPUSH l a b c"), Value::Int(3));
    assert_eq!(client.run("LPUSH l x y"), Value::Int(5));
    assert_eq!(client.run("LRANGE l 0 -1"), array(&["y", "x", "a", "b", "c"]));
    assert_eq!(client.run("LRANGE l -2 10"), array(&["b", "c"]));
    assert_eq!(client.run("LINDEX l -1"), bulk("c"));
    assert_eq!(client.run("LSET l 0 z"), ok());
    assert_eq!(client.run("LPOP l"), bulk("z"));
    assert_eq!(client.run("RPOP l 2"), array(&["c", "b"]));
    assert_eq!(client.run("LLEN l"), Value::Int(2));
    assert_eq!(client.run("LTRIM l 1 -1"), ok());
    assert_eq!(client.run("LRANGE l 0 -1"), array(&["a"]));
    assert_eq!(client.run("LTRIM l 5 6"), ok());
    assert_eq!(client.run("EXISTS l"), Value::Int(0));
    assert_eq!(client.run("LPUSHX l a"), Value::Int(0));
    assert_eq!(client.run("LPOP l"), Value::Null);
}

#[test]
fn elements_within_lists() {
    let served = Served::plain();
    let mut client = served.client();
    client.run("RPUSH l a b a c a d");
    assert_eq!(client.run("LPOS l a"), Value::Int(0));
    assert_eq!(client.run("LPOS l a RANK -1"), Value::Int(4));
    let places = [Value::Int(2), Value::Int(4)];
    assert_eq!(client.run("LPOS l a RANK 2 COUNT 0"), Value::Array(places.to_vec()));
    assert_eq!(client.run("LPOS l d MAXLEN 3"), Value::Null);
    assert_eq!(client.run("LREM l -2 a"), Value::Int(2));
    assert_eq!(client.run("LRANGE l 0 -1"), array(&["a", "b", "c", "d"]));
    assert_eq!(client.run("LINSERT l BEFORE b x"), Value::Int(5));
    assert_eq!(client.run("LINSERT l AFTER d y"), Value::Int(6));
    assert_eq!(client.run("LINSERT l AFTER none y"), Value::Int(-1));
    assert_eq!(client.run("LRANGE l 0 -1"), array(&["a", "x", "b", "c", "d", "y"]));
    assert_eq!(client.run("LMOVE l m LEFT RIGHT"), bulk("a"));
    assert_eq!(client.run("RPOPLPUSH l m"), bulk("y"));
    assert_eq!(client.run("LRANGE m 0 -1"), array(&["y", "a"]));
    assert_eq!(client.run("LMOVE m m LEFT RIGHT"), bulk("y"));
    assert_eq!(client.run("LRANGE m 0 -1"), array(&["a", "y"]));
    assert_eq!(client.run("LREM m 0 a"), Value::Int(1));
    assert_eq!(client.run("RPOPLPUSH m l"), bulk("y"));
    assert_eq!(client.run("EXISTS m"), Value::Int(0));
    assert_eq!(client.run("LRANGE l 0 -1"), array(&["y", "x", "b", "c", "d"]));
    client.run("SET s text");
    assert_eq!(client.run("LMOVE l s LEFT LEFT"), error(WRONG_TYPE));
    assert_eq!(client.run("LLEN l"), Value::Int(5), "nothing was taken out");
    assert_eq!(client.run("DEL l s"), Value::Int(2));
    let second = served.db.keyspace("default.redis").unwrap();
    assert_eq!(second.len().unwrap(), 0, "no element is left");
}

fn scan(client: &mut Client, command: &str, key: &str) -> Vec<Value> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Value::Array(page) = client.run(&format!("{command} {key} {cursor} COUNT 7")) else {
            panic!("a page")
        };
        let (Value::Bulk(next), Value::Array(values)) = (&page[0], &page[1]) else {
            panic!("a cursor and values")
        };
        found.extend(values.clone());
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn collections_are_scanned_renamed_and_copied() {
    let served = Served::plain();
    let mut client = served.client();
    for number in 0..100 {
        client.run(&format!("HSET h f{number} v"));
        client.run(&format!("SADD s m{number}"));
        client.run(&format!("ZADD z {number} m{number}"));
    }
    assert_eq!(scan(&mut client, "HSCAN", "h").len(), 200);
    assert_eq!(scan(&mut client, "SSCAN", "s").len(), 100);
    assert_eq!(scan(&mut client, "ZSCAN", "z").len(), 200);
    assert_eq!(client.run("COPY z copy"), Value::Int(1));
    assert_eq!(client.run("RENAME z renamed"), ok());
    assert_eq!(client.run("ZCARD copy"), Value::Int(100));
    assert_eq!(client.run("ZRANK renamed m42"), Value::Int(42));
    assert_eq!(client.run("EXISTS z"), Value::Int(0));
    assert_eq!(client.run("EXPIRE copy 100"), Value::Int(1));
    assert_eq!(client.run("RENAME copy s"), ok());
    assert_eq!(client.run("TYPE s"), Value::Simple("zset".to_owned()));
    assert_eq!(client.run("TTL s"), Value::Int(100));
    assert_eq!(client.run("DEL h s renamed"), Value::Int(3));
    let second = served.db.keyspace("default.redis").unwrap();
    assert_eq!(second.len().unwrap(), 0, "nothing is left of them");
}

#[test]
fn members_of_what_has_expired_are_swept() {
    let served = Served::at(1_700_000_000_000);
    let mut client = served.client();
    client.run("HSET h a 1 b 2");
    client.run("ZADD z 1 a 2 b");
    client.run("PEXPIRE h 100");
    client.run("PEXPIRE z 100");
    let second = served.db.keyspace("default.redis").unwrap();
    assert!(second.len().unwrap() > 0);
    served.clock.as_ref().unwrap().advance(std::time::Duration::from_secs(5));
    let mut is_swept = false;
    for _ in 0..200 {
        client.run("PING");
        is_swept = second.len().unwrap() == 0;
        if is_swept {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(is_swept);
}

#[test]
fn the_first_sorted_set_that_is_there_is_popped_from() {
    let served = Served::plain();
    let mut client = served.client();
    client.run("ZADD z 1 a 2 b 3 c");
    let popped = |key: &str, pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(member, score)| array(&[member, score]));
        Value::Array(vec![bulk(key), Value::Array(pairs.collect())])
    };
    assert_eq!(client.run("ZMPOP 2 none z MIN"), popped("z", &[("a", "1")]));
    assert_eq!(client.run("ZMPOP 1 z MAX COUNT 9"), popped("z", &[("c", "3"), ("b", "2")]));
    assert_eq!(client.run("EXISTS z"), Value::Int(0));
    assert_eq!(client.run("ZMPOP 1 z MIN"), Value::Null);
    client.run("SET text 1");
    assert_eq!(client.run("ZMPOP 1 text MIN"), error(WRONG_TYPE));
    assert_eq!(client.run("ZMPOP 0 z MIN"), error("ERR numkeys should be greater than 0"));
    assert_eq!(client.run("ZMPOP 1 z MIN COUNT 0"), error("ERR count should be greater than 0"));
    assert_eq!(client.run("ZMPOP 2 z MIN"), error("ERR syntax error"));
    for score in ["1e400", "-1e400", "1e-400", "infinit"] {
        let refused = error("ERR value is not a valid float");
        assert_eq!(client.run(&format!("ZADD z {score} a")), refused, "{score}");
    }
    assert_eq!(client.run("ZADD z inf a"), Value::Int(1));
    assert_eq!(client.run("ZCOUNT z -1e400 1e400"), Value::Int(1));
}
