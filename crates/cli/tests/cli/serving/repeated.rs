//! Writes that are sent again until they are answered, while the server is killed: each is done
//! once.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;

use super::wire::Http;
use super::{Server, Shell, Trigger};

const CLIENTS: u64 = 4;
const KILLS: u64 = 4;
/// As many as there may be until some write was done and not answered.
const KILLS_MAX: u64 = 100;
const ACKNOWLEDGED: i64 = 60;

/// Who appends numbers to a value, and knows which have been answered.
struct Appender {
    name: String,
    /// What is sent next, or has been sent without an answer.
    next: u64,
    answered_behind_a_kill: u64,
    /// That were done already.
    replayed: u64,
}

impl Appender {
    /// Until the server is gone.
    fn append(&mut self, server: &Server, trigger: Option<&Trigger<'_>>) {
        let Ok(mut http) = Http::connect(server.http) else { return };
        let path = format!("/v1/keyspaces/log/merge/{}", self.name);
        while !trigger.is_some_and(Trigger::is_pulled) {
            let headers =
                format!("host: localhost\r\nidempotency-key: {}-{}\r\n", self.name, self.next);
            let number = format!("{},", self.next);
            match http.ask_with(&headers, ("POST", &path), &number) {
                Err(_killed) => return,
                Ok((200, _stamp)) => self.next += 1,
                Ok((status, said)) => panic!("{status}: {said}"),
            }
            match trigger {
                Some(trigger) => trigger.acknowledged(),
                // Whatever it was that had no answer has one now.
                None => {
                    self.answered_behind_a_kill += 1;
                    self.replayed += u64::from(http.is_replayed);
                    return;
                }
            }
        }
    }
}

#[test]
fn what_is_sent_again_with_its_key_is_done_once() {
    let shell = Shell::new();
    let mut appenders: Vec<Appender> = (0..CLIENTS)
        .map(|client| Appender {
            name: format!("c{client}"),
            next: 0,
            answered_behind_a_kill: 0,
            replayed: 0,
        })
        .collect();
    let server = Server::start(&shell, "buffered");
    let mut http = Http::connect(server.http).unwrap();
    let log = r#"{"name":"log","structure":"lsm","merge_operator":"append"}"#;
    assert_eq!(http.ask("POST", "/v1/keyspaces", log).unwrap().0, 201);
    server.end();
    let mut kills = 0;
    while kills < KILLS || appenders.iter().all(|appender| appender.replayed == 0) {
        assert!(kills < KILLS_MAX, "none was done and not answered");
        kills += 1;
        let durability = if kills % 2 == 0 { "buffered" } else { "always" };
        let mut server = Server::start(&shell, durability);
        let trigger = Trigger { server: &server, left: AtomicI64::new(ACKNOWLEDGED) };
        std::thread::scope(|scope| {
            for appender in &mut appenders {
                scope.spawn(|| appender.append(&server, Some(&trigger)));
            }
        });
        assert!(!server.child.wait().unwrap().success(), "it was killed");
        let server = Server::start(&shell, durability);
        appenders.iter_mut().for_each(|appender| appender.append(&server, None));
        server.end();
    }
    for Appender { name, next, answered_behind_a_kill, .. } in &appenders {
        let all = shell.db(&["--keyspace", "log", "get", name]).ok_text();
        let numbers: Vec<u64> =
            all.trim().split_terminator(',').map(|number| number.parse().unwrap()).collect();
        let unique: BTreeSet<&u64> = numbers.iter().collect();
        assert_eq!(unique.len(), numbers.len(), "{name} has some twice: {all}");
        assert_eq!(numbers, (0..*next).collect::<Vec<u64>>(), "{name} has all that was answered");
        assert_eq!(*answered_behind_a_kill, kills);
    }
}
