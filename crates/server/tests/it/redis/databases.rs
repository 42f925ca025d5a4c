//! What goes from one database to another; what is told of tokens and of the server.

use super::client::{Value, array, bulk, error, ok};
use super::{Served, token_file};

#[test]
fn keys_are_moved_and_copied_to_other_databases() {
    let served = Served::at(1_800_000_000_000);
    let mut client = served.client();
    client.run("SET text 1 PX 100000");
    client.run("ZADD sorted 1 a 2 b");
    client.run("EXPIRE sorted 500");
    client.run("RPUSH list a b c");
    assert_eq!(client.run("MOVE text 3"), Value::Int(1));
    assert_eq!(client.run("MOVE text 3"), Value::Int(0), "it is gone");
    assert_eq!(client.run("MOVE sorted 3"), Value::Int(1));
    assert_eq!(client.run("COPY list other DB 3"), Value::Int(1));
    assert_eq!(client.run("COPY list list DB 3"), Value::Int(1));
    assert_eq!(client.run("COPY list list DB 3"), Value::Int(0), "there is one");
    client.run("RPUSH list d");
    assert_eq!(client.run("COPY list list DB 3 REPLACE"), Value::Int(1));
    assert_eq!(client.run("DBSIZE"), Value::Int(1));
    let same = error("ERR source and destination objects are the same");
    assert_eq!(
        (client.run("MOVE list 0"), client.run("COPY list list DB 0")),
        (same.clone(), same)
    );
    let range = error("ERR DB index is out of range");
    assert_eq!(
        (client.run("MOVE list 16"), client.run("COPY list x DB -1")),
        (range.clone(), range)
    );
    client.run("SELECT 3");
    assert_eq!((client.run("GET text"), client.run("PTTL text")), (bulk("1"), Value::Int(100_000)));
    assert_eq!(client.run("ZRANGE sorted 0 -1 WITHSCORES"), array(&["a", "1", "b", "2"]));
    assert_eq!(client.run("TTL sorted"), Value::Int(500));
    assert_eq!(client.run("LRANGE other 0 -1"), array(&["a", "b", "c"]));
    assert_eq!(client.run("LRANGE list 0 -1"), array(&["a", "b", "c", "d"]));
    assert_eq!(client.run("MOVE list 0"), Value::Int(0), "there is one");
    assert_eq!(client.run("DBSIZE"), Value::Int(4));
}

#[test]
fn transactions_go_from_database_to_database() {
    let served = Served::plain();
    let mut client = served.client();
    client.run("SADD s a");
    let all = ["MULTI", "MOVE s 2", "SELECT 2", "SADD s b", "COPY s t DB 5", "MOVE s 0", "EXEC"];
    let said = client.pipeline(&all);
    let [one, added] = [Value::Int(1), Value::Int(1)];
    let done = vec![one.clone(), ok(), added, one.clone(), one];
    assert_eq!(said.last(), Some(&Value::Array(done)));
    client.run("SELECT 5");
    assert_eq!(client.run("SMEMBERS t"), array(&["a", "b"]));
    client.run("SELECT 0");
    assert_eq!(client.run("SMEMBERS s"), array(&["a", "b"]));
}

#[test]
fn who_may_not_write_there_or_read_here_brings_nothing_elsewhere() {
    let (_dir, path, tokens) = token_file(&[
        ("ada", &["default:read,write", "redis-1:read,write", "redis-2:read"]),
        ("bob", &["default:write", "redis-1:read,write"]),
    ]);
    let served = Served::start(|config| config.tokens = Some(path));
    let refused = |name: &str, command: &str| {
        error(&format!("NOPERM User {name} has no permissions to run the '{command}' command"))
    };
    let mut ada = served.client();
    ada.run(&format!("AUTH {}", tokens[0]));
    ada.run("SET a 1");
    assert_eq!(ada.run("COPY a a DB 1"), Value::Int(1));
    assert_eq!(ada.run("COPY a a DB 2"), refused("ada", "copy"));
    assert_eq!(ada.run("MOVE a 2"), refused("ada", "move"));
    let mut bob = served.client();
    bob.run(&format!("AUTH {}", tokens[1]));
    assert_eq!(bob.run("COPY a b"), Value::Int(1));
    assert_eq!(bob.run("COPY a b DB 1"), refused("bob", "copy"), "it would tell what is there");
    assert_eq!(bob.run("MOVE a 1"), refused("bob", "move"));
    // Counted from the database that a transaction has chosen.
    for command in ["MULTI", "SELECT 1"] {
        bob.run(command);
    }
    assert_eq!(bob.run("COPY a c DB 0"), Value::Simple("QUEUED".to_owned()));
    assert_eq!(bob.run("EXEC"), Value::Array(vec![ok(), Value::Int(1)]));
}

#[test]
fn who_there_is_is_told_to_who_administers() {
    let (_dir, path, tokens) =
        token_file(&[("ada", &["*:all"]), ("bob", &["default:read", "redis-1:write"])]);
    let served = Served::start(|config| config.tokens = Some(path));
    let mut ada = served.client();
    ada.run(&format!("AUTH {}", tokens[0]));
    assert_eq!(ada.run("ACL USERS"), array(&["ada", "bob"]));
    let Value::Array(lines) = ada.run("ACL LIST") else { panic!("lines") };
    assert_eq!(lines[1], bulk("user bob on default:read redis-1:write"));
    let Value::Array(user) = ada.run("ACL GETUSER bob") else { panic!("a user") };
    assert_eq!((&user[0], &user[1]), (&bulk("flags"), &array(&["on"])));
    assert_eq!((&user[4], &user[5]), (&bulk("commands"), &bulk("-@all +@read +@write")));
    assert_eq!(user[13], array(&["default:read", "redis-1:write"]));
    let Value::Array(user) = ada.run("ACL GETUSER ada") else { panic!("a user") };
    assert_eq!(user[5], bulk("+@all"));
    assert_eq!(ada.run("ACL GETUSER nobody"), Value::Null);
    let said = format!("{lines:?}{user:?}");
    assert!(tokens.iter().all(|token| !said.contains(&token[30..])), "{said}");
    let mut bob = served.client();
    bob.run(&format!("AUTH {}", tokens[1]));
    for command in ["ACL LIST", "ACL USERS", "ACL GETUSER bob"] {
        let refused = bob.run(command);
        assert!(
            matches!(&refused, Value::Error(what) if what.starts_with("NOPERM")),
            "{refused:?}"
        );
    }
    assert!(matches!(bob.run("SLOWLOG LEN"), Value::Error(what) if what.starts_with("NOPERM")));
    let open = Served::plain();
    let line = array(&["user default on nopass ~* &* +@all"]);
    assert_eq!(open.client().run("ACL LIST"), line);
    assert_eq!(open.client().run("ACL USERS"), array(&["default"]));
}

#[test]
fn monitors_find_what_they_ask_for() {
    let served = Served::plain();
    let mut client = served.client();
    let role = vec![bulk("master"), Value::Int(0), Value::Array(vec![])];
    assert_eq!(client.run("ROLE"), Value::Array(role));
    let none = Value::Array(vec![]);
    for command in ["SLOWLOG GET", "SLOWLOG GET 5", "LATENCY LATEST", "LATENCY HISTORY command"] {
        assert_eq!(client.run(command), none, "{command}");
    }
    assert_eq!(client.run("SLOWLOG LEN"), Value::Int(0));
    assert_eq!(client.run("SLOWLOG RESET"), ok());
    assert_eq!(client.run("LATENCY RESET"), Value::Int(0));
    client.run("SET a 1");
    for command in ["GET a", "EXISTS a", "GET b", "TYPE a"] {
        client.run(command);
    }
    client.run("HSET h a 1"); // From now on there may be collections.
    client.run("GET c");
    let Value::Bulk(info) = client.run("INFO stats") else { panic!("text") };
    let info = String::from_utf8(info).unwrap();
    for line in ["keyspace_hits:3", "keyspace_misses:2", "instantaneous_ops_per_sec:"] {
        assert!(info.contains(line), "{line} of {info}");
    }
}
