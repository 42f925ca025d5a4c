//! Confirmation of what cannot be taken back: by `--yes`, or by an answer on the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use crate::failure::{Failure, Outcome};
use crate::notation::shown;

/// Bytes of an answer that are read.
const ANSWER_LEN_MAX: u64 = 256;

/// Whether `--yes` was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yes(pub bool);

/// Goes on if it was said, or if who sits at the terminal agrees. `what` is a sentence without its
/// end, as in `this deletes all keys`.
pub fn confirm(what: &str, yes: Yes) -> Outcome {
    if yes.0 {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{what}: add --yes")));
    }
    let mut stderr = anstream::stderr().lock();
    write!(stderr, "{}. Go on? [y/N] ", shown(what))?;
    stderr.flush()?;
    let mut answer = Vec::new();
    let read = io::stdin().lock().take(ANSWER_LEN_MAX).read_until(b'\n', &mut answer);
    read.map_err(|source| Failure::Input { path: "the terminal".into(), source })?;
    match answer.trim_ascii().to_ascii_lowercase().as_slice() {
        b"y" | b"yes" => Ok(()),
        _ => Err(Failure::usage("nothing was done")),
    }
}
