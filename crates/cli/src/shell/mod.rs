//! The shell: `lithe DB`. The commands of the program against one database that stays open, from a
//! terminal, a file, or a pipe.
//!
//! Owns what is there for a whole session. `words` makes lines into words, `session` runs commands,
//! `dots` those that are about the session itself, `pending` and `begun` have transactions and
//! batches, `editor` and `complete` are for those who type.
//!
//! Invariants
//! - S1  No command of a session is done unless the line that it stands on is complete.
//! - S2  A database that is not there is never made, but by `.open --create`.
//! - S3  In a script, what has failed in part is not committed: see `pending`.

mod begun;
mod complete;
mod dots;
mod editor;
mod history;
mod line;
mod pending;
mod script;
mod session;
mod words;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::args::Globals;
use crate::database::{database_path, exists};
use crate::failure::{Failure, Outcome};
use crate::input;
use crate::interrupt::Interrupt;
use crate::output::{Notices, PageLength, steer_stdout};
pub use line::similar_command;
use session::{Kind, Next, Session};

/// How a session begins: the options of `lithe` without a command.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Options of the shell")]
pub struct ShellArgs {
    /// Directory of a database, to open the shell on
    #[arg(value_name = "DB")]
    pub database: Option<PathBuf>,

    /// Run these commands of the shell and end; can be said several times
    #[arg(short = 'c', long = "command", value_name = "COMMANDS")]
    pub commands: Vec<String>,

    /// Run the commands in this file and end; `-` is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "commands")]
    pub file: Option<PathBuf>,

    /// End at the first command that fails, with its exit code
    #[arg(long)]
    pub bail: bool,
}

impl ShellArgs {
    /// Whether there is something in it that only the shell knows.
    pub fn is_for_shell(&self) -> bool {
        self.database.is_some() || !self.commands.is_empty() || self.file.is_some() || self.bail
    }
}

/// Runs a session; its failure is that of the last command that failed, which was told already.
pub fn run(
    mut globals: Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &ShellArgs,
) -> Outcome {
    if let Some(path) = &args.database {
        if globals.db_origin == crate::args::Origin::CommandLine {
            check_there_at(path, true)?;
            return Err(Failure::usage("name the database once: as DB or by --db"));
        }
        globals.db = Some(path.clone());
    }
    check_there(&globals, args.database.is_some())?;
    let is_typed = args.commands.is_empty() && args.file.is_none();
    let is_terminal = is_typed && io::stdin().is_terminal() && io::stdout().is_terminal();
    let kind = if is_terminal { Kind::Terminal } else { Kind::Script };
    let mut session = Session::open(globals, notices, interrupt, kind)?;
    session.bails |= args.bail;
    let page = PageLength::of_terminal(kind == Kind::Terminal);
    steer_stdout((kind == Kind::Terminal).then(|| interrupt.clone()), page, session.pager());
    match (&args.file, kind) {
        (None, Kind::Terminal) => {
            drop(input::take_stdin()?); // The editor reads it, and `confirm`.
            editor::run(&mut session)?;
        }
        (None, Kind::Script) if !args.commands.is_empty() => {
            for commands in &args.commands {
                let ran = script::run(&mut session, script::Origin::Command, commands.as_bytes());
                if ran? != Next::GoOn {
                    break;
                }
            }
        }
        (Some(path), _) if path != Path::new("-") => {
            let file = open_script(path)?;
            script::run(&mut session, script::Origin::File(path), file)?;
        }
        _ => {
            let lines = input::take_stdin()?;
            script::run(&mut session, script::Origin::Stdin, lines)?;
        }
    }
    session.end()
}

/// Opens a file with commands.
#[expect(clippy::disallowed_methods, reason = "a script is the user's file, not the database's")]
fn open_script(path: &Path) -> Result<io::BufReader<std::fs::File>, Failure> {
    let file = std::fs::File::open(path);
    let file = file.map_err(|source| Failure::Input { path: path.to_owned(), source })?;
    Ok(io::BufReader::new(file))
}

/// S2: says so when there is no database.
fn check_there(globals: &Globals, is_positional: bool) -> Outcome {
    check_there_at(database_path(globals)?, is_positional)
}

fn check_there_at(path: &Path, is_positional: bool) -> Outcome {
    if exists(path)? {
        return Ok(());
    }
    let similar = if is_positional { similar_command(path) } else { None };
    Err(Failure::NoDatabase { path: path.to_owned(), is_positional, similar })
}
