//! Commands from a file, a pipe or an option, one after the other.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::session::{Next, Session};
use super::words::Splitter;
use crate::failure::Failure;

/// Where the commands come from: for messages.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// `-c`.
    Command,
    /// A file.
    File(&'a Path),
    /// Standard input.
    Stdin,
}

impl Origin<'_> {
    fn name(self) -> PathBuf {
        match self {
            Origin::Command => PathBuf::from("-c"),
            Origin::File(path) => path.to_owned(),
            Origin::Stdin => PathBuf::from("standard input"),
        }
    }

    /// In front of what is said about a command that begins on a line.
    fn place(self, line: u64) -> String {
        match self {
            Origin::Command => String::new(),
            Origin::File(path) => format!("{}: line {line}: ", path.display()),
            Origin::Stdin => format!("line {line}: "),
        }
    }
}

/// Runs all that is there.
pub fn run(
    session: &mut Session,
    origin: Origin<'_>,
    mut text: impl BufRead,
) -> Result<Next, Failure> {
    let mut splitter = Splitter::default();
    let (mut line, mut number, mut begun_at) = (Vec::new(), 0, 1);
    loop {
        line.clear();
        let read = text.read_until(b'\n', &mut line);
        read.map_err(|source| Failure::Input { path: origin.name(), source })?;
        if line.is_empty() {
            break;
        }
        number += 1;
        if !splitter.is_within_command() {
            begun_at = number;
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n'); // The last one of a file that does not end with a line end.
        }
        splitter.feed(&line);
        for command in splitter.take_commands() {
            let next = session.take(command, &origin.place(begun_at));
            if next != Next::GoOn {
                return Ok(next);
            }
        }
    }
    if splitter.is_within_command() {
        let what = "the text ends within this command: a quote is open, or there is a `\\` at the \
                    end";
        return Ok(session.take(Err(what.to_owned()), &origin.place(begun_at)));
    }
    Ok(Next::GoOn)
}
