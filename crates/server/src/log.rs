//! Log lines, to standard error: what the server itself did or could not do, and, when asked for,
//! requests by their kind. Never keys, values or secrets (N4).

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::{LogFormat, RequestLog};
use crate::stream::Peer;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Somebody should look.
    Warn,
    /// It does not do what it is there for.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// What is said of an event.
#[derive(Clone, Copy)]
pub enum Said<'a> {
    Text(&'a dyn Display),
    Number(u64),
}

impl Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Text(text) => text.fmt(f),
            Said::Number(number) => number.fmt(f),
        }
    }
}

/// Where lines go.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    format: LogFormat,
    requests: RequestLog,
}

impl Log {
    pub fn new(format: LogFormat, requests: RequestLog) -> Log {
        Log { format, requests }
    }

    /// Whether each request is a line.
    pub fn has_requests(self) -> bool {
        self.requests == RequestLog::All && self.format != LogFormat::Off
    }

    /// Writes a line: an event, in words that are always the same, and what is to be said of it.
    pub fn line(self, level: Level, event: &str, fields: &[(&str, Said<'_>)]) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = format!("{}.{:03}", time.as_secs(), time.subsec_millis());
        let line = match self.format {
            LogFormat::Off => return,
            LogFormat::Text => as_text(&time, level, event, fields),
            LogFormat::Json => as_json(&time, level, event, fields),
        };
        // One call for each line, so that lines of several threads do not mix.
        let _nowhere_else_to_say_it = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Lines that anybody can cause: of wrong tokens.
#[derive(Debug, Default)]
pub struct WrongTokens(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    since: Duration,
    count: u32,
    left_out: u64,
}

impl WrongTokens {
    /// So many a minute are lines; the next one behind that says how many were none.
    const A_MINUTE: u32 = 60;
    const MINUTE: Duration = Duration::from_secs(60);

    /// Says that somebody could not be known by a token. `now` is monotonic.
    pub fn note(&self, log: Log, (protocol, peer): (&str, Peer), why: &str, now: Duration) {
        if let Some(left_out) = self.admit(now) {
            let fields = [
                ("protocol", Said::Text(&protocol)),
                ("peer", Said::Text(&peer)),
                ("why", Said::Text(&why)),
                ("left_out", Said::Number(left_out)),
            ];
            log.line(Level::Warn, "a token was refused", &fields);
        }
    }

    /// Whether there is to be a line; with how many were left out in front of it.
    fn admit(&self, now: Duration) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= told.since + Self::MINUTE {
            *told = Told { since: now, left_out: told.left_out, count: 0 };
        }
        if told.count >= Self::A_MINUTE {
            told.left_out += 1;
            return None;
        }
        told.count += 1;
        Some(std::mem::take(&mut told.left_out))
    }
}

fn as_text(time: &str, level: Level, event: &str, fields: &[(&str, Said<'_>)]) -> String {
    let mut line = format!("{time} {} {event}", level.name());
    for (name, value) in fields {
        let value = value.to_string();
        let is_word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        let is_word = is_word && !value.contains(['"', '=', '\\']);
        let _to_a_string = match is_word {
            true => write!(line, " {name}={value}"),
            // What would break a line, or pretend to be another, is escaped.
            false => write!(line, " {name}={value:?}"),
        };
    }
    line.push('\n');
    line
}

fn as_json(time: &str, level: Level, event: &str, fields: &[(&str, Said<'_>)]) -> String {
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let mut line = format!("{{\"time\":{time},\"level\":\"{}\"", level.name());
    let _to_a_string = write!(line, ",\"event\":{}", text(event));
    for (name, value) in fields {
        let value = match value {
            Said::Text(value) => text(&value.to_string()),
            Said::Number(number) => number.to_string(),
        };
        let _to_a_string = write!(line, ",{}:{value}", text(name));
    }
    line.push_str("}\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_logged_can_begin_a_line() {
        let evil = "a\n1.000 error \u{1b}[2J forged=1 \"x\"";
        let why = ("why", Said::Text(&evil));
        let text =
            as_text("1.000", Level::Info, "refused", &[("peer", Said::Text(&"10.0.0.1:9")), why]);
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{1b}') && text.contains("peer=10.0.0.1:9"), "{text}");
        let json = as_json("1.000", Level::Warn, "refused", &[why, ("status", Said::Number(401))]);
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["why"], evil);
        assert_eq!(parsed["status"], 401, "a number is one");
        assert_eq!(json.lines().count(), 1);
    }

    #[test]
    fn of_wrong_tokens_so_many_are_lines() {
        let (wrong, minute) = (WrongTokens::default(), WrongTokens::MINUTE);
        for second in 0..60 {
            assert_eq!(wrong.admit(Duration::from_secs(second / 2)), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(wrong.admit(minute / 2), None);
        }
        assert_eq!(wrong.admit(minute), Some(1000), "they are told behind it");
        assert_eq!(wrong.admit(minute), Some(0));
    }
}
