//! Random commands against maps: what Redis says, said by the simplest code that says it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Served;
use super::client::{Value, bulk, error, ok};
use super::collections::WRONG_TYPE;

/// A source of choices, from a seed.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn score(draw: &mut Draw) -> String {
    match draw.below(12) {
        0 => "inf".to_owned(),
        1 => "-inf".to_owned(),
        2 => "0".to_owned(),
        _ => ((draw.below(41) as f64 - 20.0) / 2.0).to_string(),
    }
}

fn bound(draw: &mut Draw) -> String {
    let open = draw.of(&["", "", "("]);
    format!("{open}{}", score(draw))
}

/// Commands: K is a key, F a field, V, N, R, S, B and D are values, numbers, ranks, scores, bounds,
/// databases.
const REPEATABLE: &[&str] = &[
    "SET K V",
    "SET K V NX",
    "SET K V XX",
    "SET K V GET",
    "SET K V KEEPTTL",
    "SET K V EX 1000",
    "SET K V XX GET",
    "SET K V PX 0",
    "SET K V EX",
    "GET K",
    "GETSET K V",
    "GETDEL K",
    "GETEX K PERSIST",
    "SETNX K V",
    "SETEX K 1000 V",
    "MGET K K K",
    "MSET K V K V",
    "MSET K V K",
    "MSETNX K V K V",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K R R",
    "SETRANGE K 3 V",
    "SETRANGE K -1 V",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K 0.5",
    "INCRBY K x",
    "SETBIT K 9 1",
    "SETBIT K 9 2",
    "GETBIT K 9",
    "BITCOUNT K",
    "BITCOUNT K R R",
    "BITPOS K 0",
    "BITPOS K 1",
    "BITPOS K 2",
    "BITPOS K 0 R",
    "BITPOS K 1 R R",
    "BITPOS K 0 R N BYTE",
    "BITPOS K 1 R N BIT",
    "BITPOS K 0 R N BIT",
    "BITOP AND K K K",
    "BITOP OR K K K",
    "BITOP XOR K K K",
    "BITOP NOT K K",
    "BITOP NOT K K K",
    "DEL K",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K K",
    "TYPE K",
    "TOUCH K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "COPY K K DB D",
    "COPY K K REPLACE DB D",
    "COPY K K DB 99",
    "MOVE K D",
    "MOVE K x",
    "MOVE K 99",
    "EXPIRE K 1000",
    "EXPIRE K -1",
    "EXPIRE K 900 NX",
    "PEXPIREAT K 4102444800000 GT",
    "EXPIRE K 900 LT",
    "EXPIRE K 900 XX",
    "EXPIRE K x",
    "PERSIST K",
    "TTL K",
    "DBSIZE",
    "KEYS *",
    "KEYS k[1-3]",
    "HSET K F V",
    "HSET K F V F V",
    "HSET K F",
    "HSETNX K F V",
    "HGET K F",
    "HMGET K F F",
    "HGETALL K",
    "HDEL K F",
    "HDEL K F F",
    "HLEN K",
    "HEXISTS K F",
    "HKEYS K",
    "HVALS K",
    "HSTRLEN K F",
    "HINCRBY K F N",
    "HINCRBYFLOAT K F 1.5",
    "SADD K F",
    "SADD K F F F",
    "SREM K F",
    "SREM K F F",
    "SMEMBERS K",
    "SISMEMBER K F",
    "SMISMEMBER K F F",
    "SCARD K",
    "SMOVE K K F",
    "SINTER K K",
    "SUNION K K",
    "SDIFF K K",
    "SINTERSTORE K K K",
    "SUNIONSTORE K K K",
    "SDIFFSTORE K K K",
    "SINTERCARD 2 K K",
    "SINTERCARD 2 K K LIMIT 1",
    "ZADD K S F",
    "ZADD K S F S F",
    "ZADD K NX S F",
    "ZADD K XX S F",
    "ZADD K GT S F",
    "ZADD K LT CH S F",
    "ZADD K CH S F S F",
    "ZADD K INCR S F",
    "ZADD K NX INCR S F",
    "ZADD K NX GT S F",
    "ZADD K x F",
    "ZINCRBY K S F",
    "ZREM K F",
    "ZREM K F F",
    "ZSCORE K F",
    "ZMSCORE K F F",
    "ZCARD K",
    "ZRANK K F",
    "ZREVRANK K F",
    "ZCOUNT K B B",
    "ZRANGE K R R",
    "ZRANGE K R R WITHSCORES",
    "ZRANGE K R R REV",
    "ZRANGE K B B BYSCORE",
    "ZRANGE K B B BYSCORE REV WITHSCORES LIMIT 1 2",
    "ZRANGE K R R LIMIT 0 1",
    "ZREVRANGE K R R WITHSCORES",
    "ZRANGEBYSCORE K B B",
    "ZRANGEBYSCORE K B B WITHSCORES LIMIT 1 3",
    "ZREVRANGEBYSCORE K B B LIMIT 0 -1",
    "ZRANGEBYSCORE K x 1",
    "ZREMRANGEBYRANK K R R",
    "ZREMRANGEBYSCORE K B B",
    "ZPOPMIN K",
    "ZPOPMAX K",
    "ZPOPMIN K 2",
    "ZMPOP 1 K MIN",
    "ZMPOP 2 K K MAX COUNT 2",
    "ZMPOP 2 K MIN",
    "ZMPOP 1 K MIN COUNT 0",
    "ZADD K 1e400 F",
    "ZINCRBY K -1e400 F",
    "ZUNION 2 K K WITHSCORES",
    "ZINTER 2 K K WITHSCORES",
    "ZDIFF 2 K K WITHSCORES",
    "ZUNIONSTORE K 2 K K WEIGHTS 1 2",
    "ZINTERSTORE K 2 K K AGGREGATE MAX",
    "ZDIFFSTORE K 2 K K",
    "ZINTERCARD 2 K K",
    "ZRANGESTORE K K R R",
    "ZUNION 0 K",
    "LPUSH K V",
    "RPUSH K V V",
    "LPUSHX K V",
    "RPUSHX K V",
    "LPOP K",
    "RPOP K",
    "LPOP K 2",
    "RPOP K 0",
    "LLEN K",
    "LRANGE K R R",
    "LINDEX K R",
    "LSET K R V",
    "LTRIM K R R",
    "RPUSH K F F F F",
    "LPUSH K F F",
    "LREM K R F",
    "LREM K 0 F",
    "LREM K x F",
    "LINSERT K BEFORE F V",
    "LINSERT K AFTER F F",
    "LINSERT K beside F V",
    "LMOVE K K LEFT RIGHT",
    "LMOVE K K RIGHT LEFT",
    "LMOVE K K LEFT LEFT",
    "LMOVE K K LEFT up",
    "RPOPLPUSH K K",
    "LPOS K F",
    "LPOS K F RANK R",
    "LPOS K F COUNT 0",
    "LPOS K F RANK -1 COUNT 2",
    "LPOS K F COUNT 2 MAXLEN 3",
    "LPOS K F RANK 2 MAXLEN R",
    "LPOS K F COUNT",
    "LPOS K F COUNT R",
    "NOSUCH K",
    "GET",
    "SELECT 99",
    "PING",
    "ECHO V",
    "EXEC",
    "WAIT 0 0",
    "ROLE",
    "SLOWLOG LEN",
    "SLOWLOG GET -2",
    "LATENCY LATEST",
    "LATENCY RESET",
];

/// A random command whose reply is the same each time.
pub fn command(draw: &mut Draw) -> Vec<String> {
    let pattern = draw.of(REPEATABLE);
    let words = pattern.split(' ').map(|word| match word {
        "K" => format!("k{}", draw.below(6)),
        "F" => format!("m{}", draw.below(6)),
        "V" => match draw.below(3) {
            0 => draw.below(100).to_string(),
            1 => String::new(),
            _ => format!("value-{}", draw.below(1000)),
        },
        "N" => (draw.below(200) as i64 - 100).to_string(),
        "R" => (draw.below(12) as i64 - 6).to_string(),
        "S" => score(draw),
        "B" => bound(draw),
        "D" => draw.below(2).to_string(),
        word => word.to_owned(),
    });
    words.collect()
}

/// What a key has.
#[derive(Clone)]
enum Has {
    Text(String),
    Hash(BTreeMap<String, String>),
    Set(BTreeSet<String>),
}

/// Keys with what they have and when they expire.
#[derive(Default)]
struct Model {
    keys: BTreeMap<String, (Has, Option<u64>)>,
    now: u64,
}

impl Model {
    fn expire(&mut self) {
        let now = self.now;
        self.keys.retain(|_, (_, until)| until.is_none_or(|until| until > now));
    }

    fn run(&mut self, command: &[String]) -> Value {
        self.expire();
        let key = &command[1];
        let wrong = || error(WRONG_TYPE);
        let entry = self.keys.get_mut(key);
        match (command[0].as_str(), entry) {
            ("SET", _) => {
                let until = command.get(4).map(|millis| self.now + millis.parse::<u64>().unwrap());
                self.keys.insert(key.clone(), (Has::Text(command[2].clone()), until));
                ok()
            }
            ("GET", None) => Value::Null,
            ("GET", Some((Has::Text(text), _))) => bulk(text),
            ("APPEND", None) => {
                self.keys.insert(key.clone(), (Has::Text(command[2].clone()), None));
                Value::Int(command[2].len() as i64)
            }
            ("APPEND", Some((Has::Text(text), _))) => {
                text.push_str(&command[2]);
                Value::Int(text.len() as i64)
            }
            ("DEL", entry) => {
                Value::Int(i64::from(entry.is_some() && self.keys.remove(key).is_some()))
            }
            ("PEXPIRE", None) => Value::Int(0),
            ("PEXPIRE", Some((_, until))) => {
                *until = Some(self.now + command[2].parse::<u64>().unwrap());
                Value::Int(1)
            }
            ("PTTL", None) => Value::Int(-2),
            ("PTTL", Some((_, None))) => Value::Int(-1),
            ("PTTL", Some((_, Some(until)))) => Value::Int((*until - self.now) as i64),
            ("HSET", None) => {
                let fields = BTreeMap::from([(command[2].clone(), command[3].clone())]);
                self.keys.insert(key.clone(), (Has::Hash(fields), None));
                Value::Int(1)
            }
            ("HSET", Some((Has::Hash(fields), _))) => {
                let old = fields.insert(command[2].clone(), command[3].clone());
                Value::Int(i64::from(old.is_none()))
            }
            ("HGETALL" | "SMEMBERS", None) => Value::Array(vec![]),
            ("HGETALL", Some((Has::Hash(fields), _))) => {
                Value::Array(fields.iter().flat_map(|(f, v)| [bulk(f), bulk(v)]).collect())
            }
            ("SADD", None) => {
                let members = BTreeSet::from([command[2].clone()]);
                self.keys.insert(key.clone(), (Has::Set(members), None));
                Value::Int(1)
            }
            ("SADD", Some((Has::Set(members), _))) => {
                Value::Int(i64::from(members.insert(command[2].clone())))
            }
            ("SREM", None) => Value::Int(0),
            ("SREM", Some((Has::Set(members), _))) => {
                let was_one = members.remove(&command[2]);
                if members.is_empty() {
                    self.keys.remove(key);
                }
                Value::Int(i64::from(was_one))
            }
            ("SMEMBERS", Some((Has::Set(members), _))) => {
                Value::Array(members.iter().map(|member| bulk(member)).collect())
            }
            ("RENAME", None) => error("ERR no such key"),
            ("RENAME", Some(_)) => {
                if let Some(had) = self.keys.remove(key) {
                    self.keys.insert(command[2].clone(), had);
                }
                ok()
            }
            _ => wrong(),
        }
    }
}

#[test]
fn random_commands_do_what_maps_do() {
    const COMMANDS: &[&str] = &[
        "SET K V",
        "SET K V PX T",
        "GET K",
        "GET K",
        "APPEND K V",
        "DEL K",
        "PEXPIRE K T",
        "PTTL K",
        "HSET K F V",
        "HSET K F V",
        "HGETALL K",
        "SADD K F",
        "SADD K F",
        "SREM K F",
        "SMEMBERS K",
        "RENAME K K",
        "PASS",
    ];
    for seed in 1..=6 {
        let mut draw = Draw(seed);
        let start = 1_700_000_000_000;
        let served = Served::at(start);
        let mut client = served.client();
        let mut model = Model { now: start, ..Model::default() };
        for round in 0..3_000 {
            let pattern = draw.of(COMMANDS);
            if pattern == "PASS" {
                let millis = draw.below(400);
                served.clock.as_ref().unwrap().advance(Duration::from_millis(millis));
                model.now += millis;
                continue;
            }
            let words = pattern.split(' ').map(|word| match word {
                "K" => format!("k{}", draw.below(5)),
                "F" => format!("f{}", draw.below(4)),
                "V" => format!("v{}", draw.below(100)),
                "T" => (1 + draw.below(1000)).to_string(),
                word => word.to_owned(),
            });
            let command: Vec<String> = words.collect();
            let (found, expected) = (client.call(&command), model.run(&command));
            assert_eq!(found, expected, "seed {seed}, round {round}: {command:?}");
        }
        model.expire();
        assert_eq!(client.run("DBSIZE"), Value::Int(model.keys.len() as i64), "seed {seed}");
        let second = served.db.keyspace("default.redis").unwrap();
        client.run("FLUSHALL");
        assert_eq!(second.len().unwrap(), 0);
    }
}
