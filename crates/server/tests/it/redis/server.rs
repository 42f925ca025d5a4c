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
    assert_eq!(client.run("COMMAND GETKEYS ZUNIONSTORE to 2 a b"), array(&["to", "a", "b"]));
    assert_eq!(client.run("COMMAND GETKEYS SINTERCARD 1 a LIMIT 1"), array(&["a"]));
    for wrong in ["OBJECT NOSUCH a", "MEMORY USAGE", "NOSUCH a"] {
        let refused = error("ERR Invalid command specified");
        assert_eq!(client.run(&format!("COMMAND GETKEYS {wrong}")), refused, "{wrong}");
    }
    for wrong in ["ZUNION x a", "ZUNION 3 a b", "ZUNION 0 a"] {
        let refused = error("ERR Invalid arguments specified for command");
        assert_eq!(client.run(&format!("COMMAND GETKEYS {wrong}")), refused, "{wrong}");
    }
    let none = error("ERR The command has no key arguments");
    assert_eq!(client.run("COMMAND GETKEYS PING"), none);
    assert_eq!(client.run("COMMAND GETKEYS OBJECT HELP"), none);
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
fn commands_with_parts_say_which() {
    let served = Served::plain();
    let mut client = served.client();
    for command in ["ACL", "CLIENT", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "OBJECT", "SLOWLOG"]
    {
        let Value::Array(lines) = client.run(&format!("{command} HELP")) else { panic!("lines") };
        assert!(lines.len() >= 5 && lines.contains(&Value::Simple("HELP".to_owned())), "{command}");
        let unknown = format!("ERR unknown subcommand 'NOSUCH'. Try {command} HELP.");
        assert_eq!(client.run(&format!("{command} NOSUCH")), error(&unknown));
        let lower = command.to_lowercase();
        let arity = format!("ERR wrong number of arguments for '{lower}|help' command");
        assert_eq!(client.run(&format!("{command} HELP x")), error(&arity));
    }
    let arity = |of: &str| error(&format!("ERR wrong number of arguments for '{of}' command"));
    assert_eq!(client.run("OBJECT ENCODING"), arity("object|encoding"));
    assert_eq!(client.run("MEMORY USAGE"), arity("memory|usage"));
    assert_eq!(client.run("CLIENT"), arity("client"));
    assert_eq!(client.run("ZRANK z a WITHSCORE x"), arity("zrank"));
    let number = error("ERR value is not an integer or out of range");
    assert_eq!(client.run("MEMORY USAGE a SAMPLES x"), number);
    assert_eq!(client.run("MEMORY USAGE a SAMPLES -1"), error("ERR syntax error"));
    assert_eq!(client.run("MEMORY USAGE a SAMPLE 1"), error("ERR syntax error"));
    assert_eq!(client.run("MEMORY USAGE a SAMPLES 5"), Value::Null);
    let of_lists = client.run("ACL CAT list");
    assert!(matches!(of_lists, Value::Array(all) if all.contains(&bulk("lpush"))));
    assert_eq!(client.run("ACL CAT NoSuch"), error("ERR Unknown category 'NoSuch'"));
    assert!(matches!(client.run("ACL CAT read x"), Value::Error(_)));
    let Value::Array(categories) = client.run("ACL CAT") else { panic!("categories") };
    for category in categories {
        let Value::Bulk(name) = category else { panic!("a name") };
        let of_it = client.call(&[&b"ACL"[..], b"CAT", &name]);
        assert!(matches!(of_it, Value::Array(all) if !all.is_empty()));
    }
    let Value::Array(told) = client.run("COMMAND INFO zunion object") else { panic!("told") };
    let Value::Array(zunion) = &told[0] else { panic!("told") };
    assert!(matches!(&zunion[2], Value::Array(flags)
        if flags.contains(&Value::Simple("movablekeys".to_owned()))));
    let Value::Array(object) = &told[1] else { panic!("told") };
    assert!(matches!(&object[9], Value::Array(parts) if parts.len() == 5));
    let Value::Array(told) = client.run("COMMAND INFO client|kill nosuch|x") else { panic!("") };
    assert!(matches!(&told[0], Value::Array(parts) if parts[1] == Value::Int(-3)));
    assert_eq!(told[1], Value::Null);
    let Value::Array(docs) = client.run("COMMAND DOCS object") else { panic!("docs") };
    assert!(matches!(&docs[1], Value::Array(of_it) if of_it.contains(&bulk("subcommands"))));
    // It is told within a transaction as well.
    let commands = ["ACL", "CLIENT", "COMMAND", "CONFIG", "MEMORY", "OBJECT"];
    let helps = commands.map(|command| format!("{command} HELP"));
    let alone: Vec<Value> = helps.iter().map(|help| client.run(help)).collect();
    client.run("MULTI");
    for help in &helps {
        assert_eq!(client.run(help), Value::Simple("QUEUED".to_owned()));
    }
    assert_eq!(client.run("EXEC"), Value::Array(alone));
    // An unknown part spoils a transaction when it is queued.
    let replies = client.pipeline(&["MULTI", "OBJECT NOSUCH a", "EXEC"]);
    assert!(matches!(&replies[2], Value::Error(text) if text.starts_with("EXECABORT")));
}

#[test]
fn a_client_is_shown_with_both_ends_and_what_it_does() {
    let served = Served::plain();
    let mut client = served.client();
    let Value::Bulk(list) = client.run("CLIENT LIST") else { panic!("text") };
    let list = String::from_utf8(list).unwrap();
    let (own, peer) = (client.stream.local_addr().unwrap(), client.stream.peer_addr().unwrap());
    assert!(list.contains(&format!(" addr={own} laddr={peer} ")), "{list}");
    assert!(list.contains(" cmd=client|list "), "{list}");
    let mut other = served.client();
    let Value::Int(id) = other.run("CLIENT ID") else { panic!("an id") };
    let count = |reply: Value| match reply {
        Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(client.run("CLIENT LIST TYPE normal")), 2);
    assert_eq!(count(client.run("CLIENT LIST TYPE replica")), 0);
    assert_eq!(count(client.run(&format!("CLIENT LIST ID {id} 999999"))), 1);
    assert_eq!(client.run("CLIENT LIST ID x"), error("ERR Invalid client ID"));
    assert_eq!(client.run("CLIENT LIST TYPE x"), error("ERR Unknown client type 'x'"));
    assert_eq!(client.run("CLIENT LIST x"), error("ERR syntax error"));
    assert_eq!(client.run("CLIENT KILL LADDR 1.2.3.4:5"), Value::Int(0));
    assert_eq!(client.run(&format!("CLIENT KILL LADDR {peer}")), Value::Int(1));
    assert!(other.is_closed());
}

#[test]
fn clients_are_not_answered_as_they_wish() {
    let served = Served::plain();
    let mut client = served.client();
    let send = |client: &mut super::client::Client, commands: &[&str]| {
        for command in commands {
            client.send(&super::client::frame(&command.split(' ').collect::<Vec<_>>()));
        }
    };
    send(&mut client, &["CLIENT REPLY SKIP", "SET a 1", "GET a"]);
    assert_eq!(client.read(), Some(bulk("1")));
    let quiet = ["SET a 2", "SET b 2", "HSET h a 1", "NOSUCH", "MULTI", "SET c 3", "EXEC", "GET c"];
    send(&mut client, &["SET a 3", "CLIENT REPLY OFF"]);
    send(&mut client, &quiet);
    send(&mut client, &["CLIENT REPLY SKIP", "GET a", "CLIENT REPLY ON", "MGET a b c"]);
    assert_eq!(client.read(), Some(ok()), "of the first SET");
    assert_eq!(client.read(), Some(ok()), "of REPLY ON");
    assert_eq!(client.read(), Some(array(&["2", "2", "3"])));
    send(&mut client, &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "CLIENT REPLY OFF", "RESET"]);
    assert_eq!(client.read(), Some(ok()));
    assert_eq!(client.read(), Some(Value::Simple("RESET".to_owned())));
    assert_eq!(client.run("CLIENT REPLY NOSUCH"), error("ERR syntax error"));
    let replies = client.pipeline(&["MULTI", "CLIENT REPLY OFF", "EXEC"]);
    assert_eq!(replies[1], error("ERR Command not allowed inside a transaction"));
    assert!(matches!(&replies[2], Value::Error(text) if text.starts_with("EXECABORT")));
    // All at once, and one after the other: what is answered is the same.
    let commands = [
        "SET a 1",
        "SET b 1",
        "CLIENT REPLY OFF",
        "SET a 2",
        "INCR n",
        "GET a",
        "INCR n",
        "INCR n",
        "SET b 3",
        "NOSUCH",
        "CLIENT REPLY ON",
        "GET b",
        "GET n",
        "CLIENT REPLY SKIP",
        "GET n",
        "INCR n",
    ];
    let bytes: Vec<Vec<u8>> = commands
        .map(|command| super::client::frame(&command.split(' ').collect::<Vec<_>>()))
        .to_vec();
    for at_once in [true, false] {
        client.run("DEL a b n");
        match at_once {
            true => client.send(&bytes.concat()),
            false => bytes.iter().for_each(|bytes| {
                client.send(bytes);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }),
        }
        let answers: Vec<Value> = (0..6).map(|_| client.read().unwrap()).collect();
        let expected = [ok(), ok(), ok(), bulk("3"), bulk("3"), Value::Int(4)];
        assert_eq!(answers, expected, "at once: {at_once}");
    }
    assert_eq!(client.run("PING"), Value::Simple("PONG".to_owned()));
}

#[test]
fn what_expires_of_collections_is_counted() {
    let served = Served::plain();
    let mut client = served.client();
    client.pipeline(&["SET a 1", "HSET h a 1", "SADD s a", "EXPIRE h 1000"]);
    client.pipeline(&["HSET gone a 1", "PEXPIRE gone 1"]);
    while client.run("EXISTS gone") == Value::Int(1) {}
    let Value::Bulk(info) = client.run("INFO keyspace") else { panic!("text") };
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("db0:keys=3,expires=1,avg_ttl=0"), "{info}");
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
