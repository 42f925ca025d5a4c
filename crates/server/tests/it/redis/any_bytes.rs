//! Any bytes, cut into commands and done: nothing panics, and nothing grows beyond its limits. What
//! `fuzz/` does for hours.

use lithe_server::fuzzing::{FrameLimits, Parsed, RedisFeed, parse_redis};

use super::client::frame;
use super::model::{Draw, command};

fn mutate(bytes: &mut Vec<u8>, draw: &mut Draw) {
    const PIECES: &[&[u8]] = &[
        b"\r\n",
        b"*",
        b"$",
        b"-1",
        b"*0\r\n",
        b"$0\r\n\r\n",
        b"9223372036854775807",
        b"\"",
        b"'",
        b"\\x",
        b"\0",
        b"\xff",
        b"*3\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"WATCH k1\r\n",
        b"HELLO 3\r\n",
        b"SELECT 1\r\n",
        b"RESET\r\n",
        b"SPOP k1 3\r\n",
        b"SCAN 0\r\n",
        b"COMMAND DOCS\r\n",
        b"CLIENT REPLY OFF\r\n",
        b"CLIENT REPLY SKIP\r\n",
        b"CLIENT REPLY ON\r\n",
    ];
    for _ in 0..1 + draw.below(6) {
        let at = draw.below(bytes.len() as u64 + 1) as usize;
        match draw.below(5) {
            0 if at < bytes.len() => bytes[at] = draw.below(256) as u8,
            1 => bytes.truncate(at),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.insert(at, b"0123456789\r\n*$ "[draw.below(16).min(14) as usize]),
            _ => {
                let piece = PIECES[draw.below(PIECES.len() as u64) as usize];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
}

#[test]
fn any_bytes_are_cut_into_commands_or_refused() {
    let mut draw = Draw(1);
    let limits = FrameLimits { arguments: 20, bulk: 100, frame: 400, line: 200, is_unknown: false };
    for _ in 0..30_000 {
        let mut bytes = frame(&command(&mut draw));
        if draw.below(8) == 0 {
            bytes = (0..draw.below(60)).map(|_| draw.below(256) as u8).collect();
        }
        mutate(&mut bytes, &mut draw);
        let (whole, args) = parse_redis(&bytes, &limits);
        assert!(args.len() <= 20 && args.iter().all(|arg| arg.len() <= 100), "{bytes:?}");
        if let Parsed::Command(len) | Parsed::Nothing(len) = whole {
            assert!(len <= bytes.len());
            // What is behind a command is none of it, and in front of its end it is not whole.
            assert_eq!(parse_redis(&bytes[..len], &limits).0, whole);
            assert!(matches!(parse_redis(&bytes[..len - 1], &limits).0, Parsed::Need(_)));
        }
    }
}

#[test]
fn what_is_not_answered_is_so_wherever_it_is_cut() {
    let feed = RedisFeed::new(|_| {}).unwrap();
    let bytes = b"SET a 1\r\nGET a\r\nCLIENT REPLY OFF\r\nSET a 2\r\nINCR a\r\nCLIENT REPLY ON\r\n\
        GET a\r\nCLIENT REPLY SKIP\r\nGET a\r\nPING\r\n";
    let expected = "+OK\r\n$1\r\n1\r\n+OK\r\n$1\r\n3\r\n+PONG\r\n";
    for at_a_time in 1..=bytes.len() {
        let (said, is_over) = feed.session(bytes, at_a_time);
        assert_eq!(String::from_utf8_lossy(&said), expected, "{at_a_time} at a time");
        assert!(!is_over);
    }
}

#[test]
fn any_bytes_are_done_the_same_at_once_and_in_pieces() {
    let mut draw = Draw(2);
    for _ in 0..40 {
        let feed = || {
            let feed = RedisFeed::new(|config| {
                config.limits.body_size = 10_000;
                config.limits.value_size = 10_000;
                config.limits.output_size = 20_000;
            });
            feed.unwrap()
        };
        let (one, other) = (feed(), feed());
        for _ in 0..250 {
            let mut bytes = Vec::new();
            for _ in 0..1 + draw.below(8) {
                bytes.extend(frame(&command(&mut draw)));
            }
            mutate(&mut bytes, &mut draw);
            let at_a_time = 1 + draw.below(40) as usize;
            let (whole, pieces) =
                (one.session(&bytes, usize::MAX), other.session(&bytes, at_a_time));
            // `SPOP` draws, times and cursors differ: what is said is compared elsewhere.
            assert_eq!(whole.1, pieces.1, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
