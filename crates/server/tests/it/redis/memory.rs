//! What all clients together make the server keep in memory.

use super::Served;
use super::client::{Client, Value, bulk, error, frame, ok};

const NO_ROOM: &str = "OOM all clients together take as much memory as they may";
const MIB: usize = 1 << 20;

/// Bytes that all clients take, as the server says.
fn taken(client: &mut Client) -> usize {
    let Value::Bulk(text) = client.run("INFO memory") else { panic!("text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("mem_clients_normal:"));
    line.unwrap().parse().unwrap()
}

fn wait_until_taken(client: &mut Client, is_enough: impl Fn(usize) -> bool) {
    while !is_enough(taken(client)) {
        std::thread::yield_now();
    }
}

#[test]
fn who_sends_more_than_there_is_memory_for_is_closed_and_the_others_are_not() {
    let served = Served::start(|config| config.limits.redis_memory = 4 * MIB as u64);
    let (mut other, mut first, mut second) = (served.client(), served.client(), served.client());
    let value = vec![b'x'; 3 * MIB];
    let whole = frame(&[&b"SET"[..], b"a", &value]);
    first.send(&whole[..whole.len() - 10]);
    wait_until_taken(&mut other, |taken| taken >= 3 * MIB);
    assert!(taken(&mut other) <= 4 * MIB);
    // It is told while it still sends.
    let mut sending = second.stream.try_clone().unwrap();
    let sender = std::thread::spawn({
        let whole = whole.clone();
        move || drop(std::io::Write::write_all(&mut sending, &whole))
    });
    assert_eq!(second.read(), Some(error(NO_ROOM)));
    drop(second);
    sender.join().unwrap();
    for number in 0..100 {
        assert_eq!(other.run(&format!("SET k{number} v")), ok(), "what is small needs none");
    }
    first.send(&whole[whole.len() - 10..]);
    assert_eq!(first.read(), Some(ok()), "what it had, it keeps");
    wait_until_taken(&mut other, |taken| taken < MIB);
    assert_eq!(served.client().call(&[&b"SET"[..], b"b", &value]), ok());
}

#[test]
fn replies_that_nobody_takes_are_bounded_for_all_clients_together() {
    const SIZE: usize = 6 * MIB;
    let served = Served::start(|config| config.limits.redis_memory = 8 * MIB as u64);
    let mut other = served.client();
    served.db.keyspace("default").unwrap().put("large", vec![b'x'; SIZE]).unwrap();
    other.run("SET small v");
    // More than the system keeps for a connection.
    const COUNT: usize = 16;
    let mut deaf = served.client();
    deaf.send(&frame(&["GET", "large"]).repeat(COUNT));
    wait_until_taken(&mut other, |taken| taken >= SIZE);
    let mut refused = served.client();
    refused.send(&frame(&["GET", "small"]));
    refused.send(&frame(&["GETDEL", "large"]));
    assert_eq!(refused.read(), Some(bulk("v")));
    assert_eq!(refused.read(), Some(error(NO_ROOM)));
    assert!(refused.is_closed());
    assert_eq!(other.run("GET small"), bulk("v"));
    assert_eq!(other.run("EXISTS large"), Value::Int(1), "nothing was done that is not told");
    for _ in 0..COUNT {
        let Some(Value::Bulk(value)) = deaf.read() else { panic!("a value") };
        assert_eq!(value.len(), SIZE);
    }
    wait_until_taken(&mut other, |taken| taken < SIZE);
    assert!(matches!(served.client().run("GET large"), Value::Bulk(value) if value.len() == SIZE));
}

#[test]
fn what_is_queued_and_watched_counts_and_is_given_back() {
    let served = Served::start(|config| config.limits.redis_memory = MIB as u64);
    let (mut client, mut other) = (served.client(), served.client());
    let value = "x".repeat(100_000);
    assert_eq!(client.run("MULTI"), ok());
    let said = (0..20).map(|_| client.call(&["SET", "k", &value]));
    let refused = said.filter(|said| *said == error(NO_ROOM)).count();
    assert!((8..20).contains(&refused), "{refused} of 20");
    assert!(matches!(client.run("EXEC"), Value::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(client.run("EXISTS k"), Value::Int(0));
    let keys: Vec<String> = (0..10_000).map(|number| format!("{number:064}")).collect();
    let watched = keys.chunks(100).map(|some| client.run(&format!("WATCH {}", some.join(" "))));
    assert!(watched.filter(|said| *said == error(NO_ROOM)).count() > 0);
    assert!(taken(&mut other) > MIB / 2);
    assert_eq!(client.run("UNWATCH"), ok());
    wait_until_taken(&mut other, |taken| taken < MIB / 2);
    client.run("MULTI");
    assert_eq!(client.call(&["SET", "k", &value]), Value::Simple("QUEUED".to_owned()));
    assert_eq!(client.run("EXEC"), Value::Array(vec![ok()]));
    assert_eq!(client.run("STRLEN k"), Value::Int(100_000));
}
