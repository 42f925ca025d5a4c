//! Commands of a pipeline, which are done together where that can be: what they say, and what is
//! there behind them, is as if each had been sent by itself.

use std::collections::BTreeMap;

use super::Served;
use super::client::{Client, Value, bulk, error, frame, ok};
use super::collections::WRONG_TYPE;
use super::model::{Draw, command};

/// All that a client can see of the databases.
fn seen(client: &mut Client) -> BTreeMap<String, Vec<Value>> {
    let mut all = BTreeMap::new();
    for database in 0..3 {
        client.run(&format!("SELECT {database}"));
        let Value::Array(keys) = client.run("KEYS *") else { panic!("keys") };
        all.insert(format!("{database}"), vec![client.run("DBSIZE")]);
        for key in keys {
            let Value::Bulk(key) = key else { panic!("a key") };
            let key = String::from_utf8(key).unwrap();
            let kind = client.run(&format!("TYPE {key}"));
            let content = match &kind {
                Value::Simple(kind) => match kind.as_str() {
                    "string" => format!("GET {key}"),
                    "hash" => format!("HGETALL {key}"),
                    "set" => format!("SMEMBERS {key}"),
                    "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
                    "list" => format!("LRANGE {key} 0 -1"),
                    other => panic!("{other}"),
                },
                other => panic!("{other:?}"),
            };
            let content = vec![kind, client.run(&content), client.run(&format!("PTTL {key}"))];
            all.insert(format!("{database} {key}"), content);
        }
    }
    client.run("SELECT 0");
    all
}

/// A random command, also of transactions.
pub fn any_command(draw: &mut Draw) -> Vec<String> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    match draw.below(60) {
        0 => words("MULTI"),
        1..=3 => words("EXEC"),
        4 => words("DISCARD"),
        5 => words("WATCH k1 k2"),
        6 => words("UNWATCH"),
        7 => words("SELECT 1"),
        8..=10 => words("SELECT 0"),
        11..=14 => words("INCR k0"),
        15..=17 => words("RPUSH k5 a b"),
        _ => command(draw),
    }
}

#[test]
fn what_comes_together_is_done_as_if_it_came_alone() {
    for seed in 1..=12 {
        let mut draw = Draw(seed);
        let (one, other) = (Served::at(1_700_000_000_000), Served::at(1_700_000_000_000));
        let (mut alone, mut together) = (one.client(), other.client());
        for round in 0..60 {
            let count = 1 + draw.below(if seed % 2 == 0 { 20 } else { 300 });
            let commands: Vec<_> = (0..count).map(|_| any_command(&mut draw)).collect();
            let bytes: Vec<u8> = commands.iter().flat_map(|command| frame(command)).collect();
            together.send(&bytes);
            for command in &commands {
                let (said, expected) = (together.read().unwrap(), alone.call(command));
                assert_eq!(said, expected, "seed {seed}, round {round}: {command:?}");
            }
            for served in [&one, &other] {
                served.clock.as_ref().unwrap().advance(std::time::Duration::from_secs(7));
            }
        }
        alone.run("DISCARD");
        together.run("DISCARD");
        assert_eq!(seen(&mut together), seen(&mut alone), "seed {seed}");
    }
}

#[test]
fn a_pipeline_that_writes_is_one_transaction() {
    let served = Served::plain();
    let mut client = served.client();
    client.pipeline(&["SET a 0", "SADD other x"]);
    let before = served.db.stats().transaction_commits;
    let replies = client.pipeline(&["INCR a"; 100]);
    let expected: Vec<_> = (1..=100).map(Value::Int).collect();
    assert_eq!(replies, expected);
    // The bytes may have come in two parts.
    let count = served.db.stats().transaction_commits - before;
    assert!(count <= 5, "{count} transactions for 100 commands");
}

#[test]
fn an_error_of_one_undoes_nothing_of_the_others() {
    let served = Served::plain();
    let mut client = served.client();
    let long = "x".repeat(65_530);
    let half = format!("HSET h a 1 {long} 2");
    let replies = client.pipeline(&[
        "SET s text",
        "INCR n",
        "INCR s",
        "INCR n",
        "HSET s f v",
        "NOSUCH",
        "INCR n",
        "SADD set a",
        &half,
        "HSET h b 2",
        "INCR n",
        "SETEX n 0 x",
        "INCR n x",
        "INCR n",
    ]);
    let integer = "ERR value is not an integer or out of range";
    assert_eq!(
        replies[..5],
        [ok(), Value::Int(1), error(integer), Value::Int(2), error(WRONG_TYPE)]
    );
    assert!(matches!(&replies[5], Value::Error(text) if text.contains("unknown command")));
    assert_eq!(replies[6..8], [Value::Int(3), Value::Int(1)]);
    assert!(matches!(&replies[8], Value::Error(_)), "a field of so many bytes");
    assert_eq!(replies[9..11], [Value::Int(1), Value::Int(4)]);
    assert_eq!(replies[11], error("ERR invalid expire time in 'setex' command"));
    assert_eq!(replies[12], error("ERR wrong number of arguments for 'incr' command"));
    assert_eq!(replies[13], Value::Int(5));
    assert_eq!(client.run("HGETALL h"), Value::Array(vec![bulk("b"), bulk("2")]));
    assert_eq!(client.run("GET s"), bulk("text"));
}

#[test]
fn what_is_written_over_and_over_is_committed_in_parts() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "large", &"x".repeat(1 << 20)]), ok());
    let replies = client.pipeline(&["APPEND large y"; 60]);
    let expected: Vec<_> = (1..=60).map(|count| Value::Int((1 << 20) + count)).collect();
    assert_eq!(replies, expected);
    assert_eq!(client.run("STRLEN large"), Value::Int((1 << 20) + 60));
}

#[test]
fn whoever_watches_sees_what_a_pipeline_changes() {
    let served = Served::plain();
    let (mut client, mut other) = (served.client(), served.client());
    let mut attempt = |commands: &[&str]| {
        client.run("WATCH a");
        other.pipeline(commands);
        client.pipeline(&["MULTI", "INCR b", "EXEC"]).pop().unwrap()
    };
    assert_eq!(attempt(&["INCR a", "INCR c"]), Value::Null);
    assert_eq!(attempt(&["INCR c", "INCR d"]), Value::Array(vec![Value::Int(1)]));
    assert_eq!(attempt(&["DEL c", "DEL a", "SET c 1"]), Value::Null);
    // Its own, in front of the `WATCH` and behind it.
    let said = client.pipeline(&[
        "INCR a", "INCR a", "WATCH a", "MULTI", "INCR a", "EXEC", "WATCH a", "INCR a", "INCR a",
        "MULTI", "INCR a", "EXEC", "GET a",
    ]);
    assert_eq!(said[5], Value::Array(vec![Value::Int(3)]));
    assert_eq!(said[11], Value::Null);
    assert_eq!(said[12], bulk("5"));
}

#[test]
fn rights_are_looked_up_for_each_command_of_a_pipeline() {
    let (_dir, path, tokens) = super::token_file(&[("pen", &["default:write"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let mut pen = served.client();
    let auth = format!("AUTH {}", tokens[0]);
    let said = pen.pipeline(&[
        "SADD s a",
        &auth,
        "SADD s a",
        "INCR n",
        "SADD s b",
        "SELECT 1",
        "SADD s c",
        "SELECT 0",
        "RPUSH l a",
        "ZADD z INCR 1 m",
        "RPUSH l b",
        "RESET",
        "RPUSH l c",
        "SADD s d",
    ]);
    let is_error = |value: &Value| matches!(value, Value::Error(_));
    let errors: Vec<usize> = (0..said.len()).filter(|at| is_error(&said[*at])).collect();
    assert_eq!(errors, [0, 3, 6, 9, 12, 13]);
    let second = served.db.keyspace("default.redis").unwrap();
    assert_eq!(second.len().unwrap(), 2 + 2 + 2, "two collections with two each");
}
