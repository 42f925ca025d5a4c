//! Commands that may take long have turns, and what is quick goes on beside them.

use std::time::Duration;

use super::Served;
use super::client::{Value, array, bulk, error, frame, ok};

const SLOW: [&str; 6] =
    ["KEYS *", "SCAN 0", "HGETALL h", "ZRANGE z 0 -1", "LRANGE l 0 -1", "SUNION s t"];

#[test]
fn what_takes_long_waits_for_its_turn_and_what_is_quick_does_not() {
    let served = Served::start(|config| {
        config.limits.slow_commands = 0;
        config.limits.scan_time = Duration::from_millis(300);
    });
    let mut quick = served.client();
    quick.pipeline(&["SET a 1", "HSET h f v", "ZADD z 1 m"]);
    let mut waiting: Vec<_> =
        (0..20).flat_map(|_| SLOW).map(|slow| (served.client(), slow)).collect();
    for (client, slow) in &mut waiting {
        let words: Vec<&str> = slow.split(' ').collect();
        client.send(&[frame(&["GET", "a"]), frame(&words), frame(&["GET", "a"])].concat());
        assert_eq!(client.read(), Some(bulk("1")), "what came before it is answered");
    }
    for _ in 0..100 {
        assert_eq!(quick.run("GET a"), bulk("1"));
    }
    // In a transaction they wait with it.
    let mut queued = served.client();
    queued.pipeline(&["MULTI", "KEYS *", "SET a 2"]);
    queued.send(&frame(&["EXEC"]));
    let busy = error("BUSY there is too much to do at the moment");
    assert_eq!(queued.read(), Some(busy.clone()));
    for (client, slow) in &mut waiting {
        assert_eq!(client.read(), Some(busy.clone()), "{slow}");
        assert!(client.is_closed());
    }
    assert_eq!(quick.run("GET a"), bulk("1"), "nothing of it was done");
    assert_eq!(quick.run("MULTI"), ok());
    quick.run("SET a 3");
    assert_eq!(quick.run("EXEC"), Value::Array(vec![ok()]), "that one is quick");
}

#[test]
fn everybody_has_a_turn() {
    let served = Served::start(|config| config.limits.slow_commands = 1);
    served.client().pipeline(&["SET a 1", "SET b 2"]);
    let mut clients: Vec<_> = (0..50).map(|_| served.client()).collect();
    let commands = ["KEYS *", "MULTI", "KEYS a", "DBSIZE", "EXEC", "GET a", "KEYS b"];
    let frames: Vec<Vec<u8>> =
        commands.iter().map(|command| frame(&command.split(' ').collect::<Vec<_>>())).collect();
    clients.iter_mut().for_each(|client| client.send(&frames.concat()));
    for client in &mut clients {
        assert_eq!(client.read(), Some(array(&["a", "b"])));
        assert_eq!(client.read(), Some(ok()));
        let queued = || Some(Value::Simple("QUEUED".to_owned()));
        assert_eq!((client.read(), client.read()), (queued(), queued()));
        assert_eq!(client.read(), Some(Value::Array(vec![array(&["a"]), Value::Int(2)])));
        assert_eq!((client.read(), client.read()), (Some(bulk("1")), Some(array(&["b"]))));
    }
}
