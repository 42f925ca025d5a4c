//! What clients ask of a server before they work with it, and its end.

use super::Served;
use super::client::{Value, array, bulk, error, ok};

#[test]
fn clients_find_what_they_ask_for() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("PING"), Value::Simple("PONG".to_owned()));
    assert_eq!(client.run("PING hi"), bulk("hi"));
    assert_eq!(client.run("ECHO hi"), bulk("hi"));
    assert!(matches!(client.run("TIME"), Value::Array(parts) if parts.len() == 2));
    assert_eq!(client.run("CONFIG GET save"), array(&["save", ""]));
    assert_eq!(client.run("CONFIG GET appendonly"), array(&["appendonly", "yes"]));
    assert!(matches!(client.run("CONFIG SET save x"), Value::Error(_)));
    let Value::Bulk(info) = client.run("INFO") else { panic!("text") };
    let info = String::from_utf8(info).unwrap();
    for line in ["redis_version:", "loading:0", "role:master", "connected_clients:1"] {
        assert!(info.contains(line), "{line} of {info}");
    }
    assert_eq!(client.run("CLIENT SETNAME tester"), ok());
    assert_eq!(client.run("CLIENT GETNAME"), bulk("tester"));
    assert_eq!(client.run("CLIENT SETINFO LIB-NAME x"), ok());
    let Value::Bulk(list) = client.run("CLIENT LIST") else { panic!("text") };
    assert!(String::from_utf8(list).unwrap().contains("name=tester"));
    assert!(matches!(client.run("COMMAND"), Value::Array(all) if all.len() > 100));
    assert!(matches!(client.run("COMMAND COUNT"), Value::Int(count) if count > 100));
    let arity = error("ERR wrong number of arguments for 'command|count' command");
    assert_eq!(client.run("COMMAND COUNT x"), arity);
    let filtered = client.run("COMMAND LIST FILTERBY PATTERN ZREVRA*");
    assert_eq!(filtered, array(&["zrevrank", "zrevrange", "zrevrangebyscore", "zrevrangebylex"]));
    assert_eq!(client.run("COMMAND LIST FILTERBY MODULE json"), Value::Array(vec![]));
    let writing = client.run("COMMAND LIST FILTERBY ACLCAT write");
    assert!(matches!(writing, Value::Array(all) if all.contains(&bulk("set"))));
    assert_eq!(client.run("COMMAND LIST FILTERBY name x"), error("ERR syntax error"));
    assert!(matches!(client.run("COMMAND DOCS get"), Value::Array(_)));
    assert_eq!(client.run("COMMAND GETKEYS MSET a 1 b 2"), array(&["a", "b"]));
    assert_eq!(client.run("ACL WHOAMI"), bulk("default"));
    assert_eq!(client.run("WAIT 0 0"), Value::Int(0));
    assert_eq!(client.run("SAVE"), ok());
    assert_eq!(
        client.run("NOSUCH a b"),
        error("ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ")
    );
    assert_eq!(client.run("GET"), error("ERR wrong number of arguments for 'get' command"));
    for unknown in ["SUBSCRIBE c", "EVAL return 0", "DEBUG SLEEP 1", "MODULE LIST", "DUMP a"] {
        assert!(
            matches!(client.run(unknown), Value::Error(text) if text.contains("unknown command")),
            "{unknown}"
        );
    }
    client.send(b"SET inline \"a b\"\r\nGET inline\r\n");
    assert_eq!((client.read(), client.read()), (Some(ok()), Some(bulk("a b"))));
    assert_eq!(client.run("QUIT"), ok());
    assert!(client.is_closed());
}

#[test]
fn version_3_has_its_own_replies() {
    let served = Served::plain();
    let mut client = served.client();
    let Value::Map(hello) = client.run("HELLO 3") else { panic!("a map") };
    assert!(hello.contains(&(bulk("proto"), Value::Int(3))));
    assert_eq!(client.run("GET none"), Value::Null);
    client.run("HSET h a 1");
    assert_eq!(client.run("HGETALL h"), Value::Map(vec![(bulk("a"), bulk("1"))]));
    client.run("SADD s a");
    assert_eq!(client.run("SMEMBERS s"), Value::Set(vec![bulk("a")]));
    client.run("ZADD z 1.5 a");
    assert_eq!(client.run("ZSCORE z a"), Value::Double("1.5".to_owned()));
    let pair = Value::Array(vec![bulk("a"), Value::Double("1.5".to_owned())]);
    assert_eq!(client.run("ZRANGE z 0 -1 WITHSCORES"), Value::Array(vec![pair]));
    assert_eq!(client.run("HELLO 4"), error("NOPROTO unsupported protocol version"));
    assert!(matches!(client.run("HELLO 2"), Value::Array(_)));
}

#[test]
fn an_administrator_ends_connections() {
    let served = Served::plain();
    let (mut admin, mut victim) = (served.client(), served.client());
    let Value::Int(id) = victim.run("CLIENT ID") else { panic!("an id") };
    assert_eq!(admin.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    assert!(victim.is_closed());
    assert_eq!(admin.run("CLIENT KILL ID 999999"), Value::Int(0));
    assert_eq!(admin.run("CLIENT KILL 1.2.3.4:5"), error("ERR No such client"));
}

#[test]
fn draining_answers_what_has_arrived_and_closes() {
    let served = Served::plain();
    let mut client = served.client();
    assert_eq!(client.run("SET a 1"), ok());
    served.drain();
    assert!(client.is_closed());
    assert_eq!(served.db.keyspace("default").unwrap().get("a").unwrap().unwrap(), b"1");
}

#[test]
fn a_token_that_is_taken_back_ends_its_connections() {
    let (_dir, path, tokens) = super::token_file(&[("ada", &["*:all"]), ("bob", &["*:all"])]);
    let served = Served::start(|config| config.tokens = Some(path.clone()));
    let (mut ada, mut bob) = (served.client(), served.client());
    assert_eq!(ada.run(&format!("AUTH {}", tokens[0])), ok());
    assert_eq!(bob.run(&format!("AUTH {}", tokens[1])), ok());
    let kept: Vec<String> = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .filter(|line| !line.contains(" ada "))
        .map(str::to_owned)
        .collect();
    std::fs::write(&path, kept.join("\n") + "\n").unwrap();
    served.reload.now().unwrap();
    ada.send(b"GET a\r\n");
    assert!(!matches!(ada.read(), Some(Value::Null)));
    assert!(ada.is_closed());
    assert_eq!(bob.run("GET a"), Value::Null);
}
