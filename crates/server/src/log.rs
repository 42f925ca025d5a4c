//! Log lines, to standard error: what the server itself did or could not do, and, when asked for,
//! requests by their kind. Never keys, values or secrets (N4).

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::{LogFormat, RequestLog};

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
    pub fn line(self, level: Level, event: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
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

fn as_text(
    time: &str,
    level: Level,
    event: &str,
    fields: &[(&str, &dyn std::fmt::Display)],
) -> String {
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

fn as_json(
    time: &str,
    level: Level,
    event: &str,
    fields: &[(&str, &dyn std::fmt::Display)],
) -> String {
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let mut line = format!("{{\"time\":{time},\"level\":\"{}\"", level.name());
    let _to_a_string = write!(line, ",\"event\":{}", text(event));
    for (name, value) in fields {
        let _to_a_string = write!(line, ",{}:{}", text(name), text(&value.to_string()));
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
        let text =
            as_text("1.000", Level::Info, "refused", &[("peer", &"10.0.0.1:9"), ("why", &evil)]);
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{1b}') && text.contains("peer=10.0.0.1:9"), "{text}");
        let json = as_json("1.000", Level::Warn, "refused", &[("why", &evil)]);
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["why"], evil);
        assert_eq!(json.lines().count(), 1);
    }
}
