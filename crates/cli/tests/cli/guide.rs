//! Runs the shell sessions of the guide (`docs/guide/src`) as they stand there.
//!
//! A block marked `console` is a session. Lines that begin with `$ ` are run by `sh`, all blocks of
//! a chapter one after the other in one directory that is empty at first; what stands below a
//! command is its standard output, with `..` for anything within a line. `! exit code N` is said of
//! a command that fails, and means that nothing else is shown of it. Other blocks are not run:
//! `sh` is for what needs other programs or rights.

use std::fs::{read_dir, read_to_string};
use std::path::Path;

use super::shell::Shell;

/// A command of a session with what it shows.
#[derive(Debug)]
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// The commands of all sessions in a chapter.
fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut in_session): (Vec<Step>, bool) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            in_session = line == "```console";
        } else if in_session && let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            steps.push(Step { line: index + 1, command, shown: Vec::new() });
        } else if in_session {
            let step = steps.last_mut().expect("a session begins with a command");
            step.shown.push(line.to_owned());
        }
    }
    steps
}

/// Whether a line is what is shown, with `..` for anything.
fn is_as_shown(line: &str, shown: &str) -> bool {
    let mut pieces = shown.split("..");
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        let Some(found) = rest.find(piece) else { return false };
        rest = &rest[found + piece.len()..];
        last = Some(piece);
    }
    last.map_or(rest.is_empty(), |piece| piece.is_empty() || rest.is_empty())
}

fn run(chapter: &str, shell: &Shell, step: &Step) {
    let program = env!("CARGO_BIN_EXE_lithe");
    let line = format!("lithe() {{ '{program}' \"$@\"; }}; {}", step.command);
    let output = shell.shell_command(&line).output().unwrap();
    let at = format!("{chapter}:{}: $ {}", step.line, step.command);
    let code = output.status.code();
    let said = String::from_utf8_lossy(&output.stderr);
    if let [only] = &step.shown[..]
        && let Some(expected) = only.strip_prefix("! exit code ")
    {
        assert_eq!(code, expected.parse().ok(), "{at}: {said}");
        return;
    }
    assert_eq!(code, Some(0), "{at}: {said}");
    let found = String::from_utf8_lossy(&output.stdout);
    let found: Vec<&str> = found.lines().collect();
    let is_same = found.len() == step.shown.len()
        && found.iter().zip(&step.shown).all(|(line, shown)| is_as_shown(line, shown));
    assert!(is_same, "{at}\nshown: {:#?}\nfound: {found:#?}", step.shown);
}

#[test]
fn sessions_of_the_guide_go_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src");
    let mut chapters: Vec<_> = read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    chapters.sort_by_key(std::fs::DirEntry::file_name);
    let mut count = 0;
    for chapter in chapters {
        let name = chapter.file_name().to_string_lossy().into_owned();
        let steps = steps(&read_to_string(chapter.path()).unwrap());
        let shell = Shell::new();
        for step in &steps {
            run(&name, &shell, step);
        }
        count += steps.len();
    }
    assert!(count > 50, "only {count} commands were found");
}

#[test]
fn a_shown_line_may_leave_something_out() {
    for (line, shown) in [("ok: 3", "ok: .."), ("a b c", "a .. c"), ("abc", "abc"), ("", "")] {
        assert!(is_as_shown(line, shown), "{line:?} {shown:?}");
    }
    for (line, shown) in [("ok", "ok: .."), ("a b c", "a .. d"), ("abc", "ab"), ("b", "a..")] {
        assert!(!is_as_shown(line, shown), "{line:?} {shown:?}");
    }
}
