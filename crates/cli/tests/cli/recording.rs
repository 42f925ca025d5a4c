//! A recorded session for the documentation.

use std::fmt::Write;
use std::time::Duration;

use crate::shell::Shell;
use crate::terminal::Terminal;

const ROWS: u16 = 24;
const COLUMNS: u16 = 96;
/// Between keys, behind a command, and when nothing more is shown, in the time of the recording.
const KEY_MILLIS: u64 = 60;
const COMMAND_MILLIS: u64 = 1200;
/// What comes later than this belongs to the next key.
const QUIET_AFTER: Duration = Duration::from_millis(40);
const QUIET_AFTER_COMMAND: Duration = Duration::from_millis(400);

/// What is typed. Tabs complete; the end of the line is added.
const TYPED: &[&str] = &[
    "help begin",
    "put user:17 '{\"name\": \"Ada\"}'",
    "put user:18 '{\"name\": \"Grace\"}'",
    "get us\t\t7",
    "scan --prefix user: --format table --stamps",
    "begin",
    "put user:17 '{\"name\": \"Ada Lovelace\"}'",
    "delete user:18",
    "scan --prefix user:",
    "rollback",
    "count --prefix user:",
    "delete --prefix user:",
    "n",
    ".timer on",
    "scan --format json",
    ".quit",
];

/// Writes `docs/cli/shell-session.cast`, as asciicast v2: `asciinema play` shows it.
#[test]
#[ignore = "writes docs/cli/shell-session.cast: `just record-shell`"]
fn a_session_is_recorded() {
    let shell = Shell::new();
    shell.run(&["--db", "my.lithe", "create"]).ok();
    let mut command = shell.command(&["my.lithe"]);
    command.env("LITHE_PAGER", "off");
    let mut terminal = Terminal::start(command, ROWS, COLUMNS);
    let mut cast = format!("{{\"version\":2,\"width\":{COLUMNS},\"height\":{ROWS},");
    cast.push_str("\"title\":\"The shell of LitheDB\"}\n");
    let mut millis = 0;
    let mut event = |terminal: &mut Terminal, quiet: Duration, millis: u64| {
        let mut shown = Vec::new();
        while let Some(piece) = terminal.next_piece(quiet) {
            shown.extend(piece);
        }
        let text = serde_json::Value::from(String::from_utf8_lossy(&shown).into_owned());
        let (seconds, rest) = (millis / 1000, millis % 1000);
        writeln!(cast, "[{seconds}.{rest:03},\"o\",{text}]").unwrap();
    };
    event(&mut terminal, QUIET_AFTER_COMMAND, millis);
    for line in TYPED {
        millis += COMMAND_MILLIS;
        for key in line.chars() {
            millis += KEY_MILLIS;
            terminal.type_text(&key.to_string());
            event(&mut terminal, QUIET_AFTER, millis);
        }
        millis += KEY_MILLIS;
        terminal.type_text("\r");
        event(&mut terminal, QUIET_AFTER_COMMAND, millis);
    }
    assert_eq!(terminal.end(), 0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli/shell-session.cast");
    std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
    std::fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, cast.as_bytes()))
        .unwrap();
}
