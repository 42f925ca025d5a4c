//! Commands about the session itself, which begin with a dot.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::line::{OWN_COMMANDS, leaf};
use super::script;
use super::session::{Kind, Next, Session};
use crate::args::{DEFAULT_KEYSPACE, Globals, Origin};
use crate::config::MODES;
use crate::database::{Purpose, exists};
use crate::failure::{Failure, Outcome};
use crate::notation::shown;
use crate::output::{Table, redirect_stdout, stdout};

/// Texts that may read others within each other.
const DEPTH_MAX: usize = 16;
/// Read and written by who has it, and by nobody else.
const MODE_OF_OUTPUT: u32 = 0o600;
/// Lines of the history that are printed unless said otherwise.
const HISTORY_SHOWN: usize = 50;

/// Name, arguments, and what they do.
pub const DOT_COMMANDS: &[(&str, &str, &str)] = &[
    (".bail", "[on|off]", "End a text at the first command that fails"),
    (".help", "[COMMAND]", "List the commands, or explain one"),
    (".history", "[COUNT]", "Print the lines that were typed last"),
    (".keyspaces", "", "List the keyspaces"),
    (".mode", "[FORMAT]", "Choose the format of output; auto is each command's own"),
    (".open", "[OPTIONS] PATH", "Open another database; .help open has the options"),
    (".output", "[FILE]", "Send output to a file, or back to the terminal"),
    (".quit", "", "Leave"),
    (".read", "FILE", "Run the commands in a file"),
    (".timer", "[on|off]", "Tell how long each command takes"),
    (".use", "[KEYSPACE]", "Choose the keyspace to work on"),
];

const OPEN_EXAMPLES: &str = "\
Examples:
  .open other.lithe
  .open --create new.lithe
  .open --beside busy.lithe            read beside the program that writes to it
  .open --key-file key safe.lithe
  .open --passphrase safe.lithe        asks for it";

/// Options of `.open`.
#[derive(Debug, Parser)]
#[command(name = ".open", disable_version_flag = true, after_help = OPEN_EXAMPLES)]
struct OpenArgs {
    /// Directory of the database
    path: PathBuf,
    /// Make it; it must not be there yet
    #[arg(long, conflicts_with_all = ["read_only", "beside"])]
    create: bool,
    /// Change nothing on disk
    #[arg(long)]
    read_only: bool,
    /// Read beside another program that writes to it
    #[arg(long, conflicts_with = "read_only")]
    beside: bool,
    /// File with its key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Ask for its passphrase
    #[arg(long)]
    passphrase: bool,
    /// File whose first line is its passphrase
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// Runs one.
pub fn run(session: &mut Session, name: &str, rest: &[OsString]) -> Result<Next, Failure> {
    // A beginning that only one has will do.
    let named: Vec<&str> = DOT_COMMANDS.iter().map(|(name, ..)| *name).collect();
    let matching: Vec<&str> = named.iter().copied().filter(|it| it.starts_with(name)).collect();
    let name = match (named.contains(&name), &matching[..]) {
        (true, _) => name,
        (false, [only]) if name.len() > 1 => *only,
        (_, []) => return Err(Failure::usage(format!("there is no {name}: .help lists them"))),
        _ => {
            let them = matching.join(", ");
            return Err(Failure::usage(format!("{name} may be {them}")));
        }
    };
    if name == ".open" {
        return open(session, rest).map(|()| Next::GoOn);
    }
    let argument = match rest {
        [] => None,
        [argument] => Some(argument.as_os_str()),
        several if name == ".help" => return help_of(session, several).map(|()| Next::GoOn),
        _ => return Err(Failure::usage(format!("{name} takes one argument at most"))),
    };
    match (name, argument) {
        (".quit", None) => return Ok(Next::Leave),
        (".read", Some(path)) => return read(session, Path::new(path)),
        (".help", None) => list(session)?,
        (".help", Some(_)) => help_of(session, rest)?,
        (".keyspaces", None) => session.run_of_program(&["keyspaces".into()])?,
        (".mode", argument) => choose_mode(session, argument)?,
        (".timer", argument) => session.is_timed = switch(session.is_timed, argument, name)?,
        (".bail", argument) => session.bails = switch(session.bails, argument, name)?,
        (".use", argument) => choose_keyspace(session, argument)?,
        (".output", argument) => redirect_stdout(argument.map(create).transpose()?),
        (".history", argument) => print_history(session, argument)?,
        (name, None) => return Err(Failure::usage(format!("{name} takes an argument"))),
        (name, Some(_)) => return Err(Failure::usage(format!("{name} takes no argument"))),
    }
    Ok(Next::GoOn)
}

/// Whether a command says where those behind it are done, or which these are.
pub fn says_where(name: &str) -> bool {
    let dotted = [".open", ".use", ".read"];
    name == "use" || name.len() > 1 && dotted.iter().any(|command| command.starts_with(name))
}

/// The text of help without what stands in front of commands outside of the shell.
pub fn without_program(help: &str) -> String {
    help.replace("lithe --db my.lithe ", "").replace("lithe --db a.lithe ", "")
}

fn say(text: &str) -> Outcome {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn switch(now: bool, argument: Option<&OsStr>, name: &str) -> Result<bool, Failure> {
    match argument.map(|argument| argument.to_string_lossy()).as_deref() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        None => {
            say(if now { "on" } else { "off" })?;
            Ok(now)
        }
        Some(other) => Err(Failure::usage(format!("{name} is on or off, not {other:?}"))),
    }
}

fn choose_mode(session: &mut Session, argument: Option<&OsStr>) -> Outcome {
    let Some(argument) = argument else { return say(&session.mode) };
    let name = argument.to_string_lossy();
    let name = if name == "plain" { "auto" } else { name.as_ref() };
    if !MODES.contains(&name) {
        let modes = MODES.join(", ");
        return Err(Failure::usage(format!("there is no mode {name:?}; there are {modes}")));
    }
    session.mode = name.to_owned();
    Ok(())
}

fn choose_keyspace(session: &mut Session, argument: Option<&OsStr>) -> Outcome {
    let Some(argument) = argument else { return say(&shown(&session.globals.keyspace)) };
    let Some(name) = argument.to_str() else {
        return Err(Failure::usage("the name of a keyspace is text"));
    };
    session.db().keyspace(name)?;
    name.clone_into(&mut session.globals.keyspace);
    Ok(())
}

fn open(session: &mut Session, rest: &[OsString]) -> Outcome {
    let words = std::iter::once(OsString::from(".open")).chain(rest.iter().cloned());
    let args = match OpenArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return say(error.render().to_string().trim_end());
        }
        Err(error) => {
            let text = error.render().to_string();
            return Err(Failure::usage(text.trim_start_matches("error: ").trim_end()));
        }
    };
    if session.pending.is_something() {
        let what = format!("a {} was begun: end it first", session.pending.name());
        return Err(Failure::usage(what));
    }
    let is_there = exists(&args.path)?;
    if args.create && is_there {
        let path = args.path.display();
        return Err(Failure::usage(format!("there is a database in {path} already")));
    }
    if !args.create && !is_there {
        let path = args.path;
        return Err(Failure::NoDatabase { path, is_positional: false, similar: None });
    }
    let purpose = if args.create { Purpose::Make } else { Purpose::Change };
    // S2: with what `.open` says, and nothing that the other database was opened with.
    let globals = Globals {
        db: Some(args.path),
        db_origin: Origin::CommandLine,
        keyspace: DEFAULT_KEYSPACE.to_owned(),
        keyspace_origin: Origin::Elsewhere,
        read_only: args.read_only,
        beside: args.beside,
        key_file: args.key_file,
        key_fd: None,
        key_env: None,
        passphrase: args.passphrase,
        passphrase_file: args.passphrase_file,
        passphrase_fd: None,
        held: None,
        encryption: std::cell::OnceCell::new(),
        ..session.globals.clone()
    };
    session.switch(globals, purpose)?;
    if args.create {
        session.db().keyspace_or_create(DEFAULT_KEYSPACE)?;
    }
    Ok(())
}

/// Opens a file for output. What is made is for its owner alone, as values go there, and at the end
/// of no link; what is there keeps its mode.
fn create(path: &OsStr) -> Result<File, Failure> {
    let path = Path::new(path);
    let anew = File::options().write(true).create_new(true).mode(MODE_OF_OUTPUT).open(path);
    let file = match anew {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            File::options().write(true).truncate(true).open(path)
        }
        made => made,
    };
    file.map_err(|source| Failure::Write { path: path.to_owned(), source })
}

fn read(session: &mut Session, path: &Path) -> Result<Next, Failure> {
    if session.depth >= DEPTH_MAX {
        let what = format!("more than {DEPTH_MAX} texts read each other");
        return Err(Failure::usage(what));
    }
    let text = super::open_script(path)?;
    session.depth += 1;
    let next = script::run(session, script::Origin::File(path), text);
    session.depth -= 1;
    match next? {
        Next::Stop if session.kind == Kind::Terminal && session.depth == 0 => Ok(Next::GoOn),
        next => Ok(next),
    }
}

fn print_history(session: &Session, argument: Option<&OsStr>) -> Outcome {
    let count = match argument {
        None => HISTORY_SHOWN,
        Some(text) => text.to_string_lossy().parse().map_err(|_| {
            Failure::usage(format!("a number of lines, not {:?}", text.to_string_lossy()))
        })?,
    };
    if session.kind == Kind::Script {
        return Err(Failure::usage("there is a history on a terminal only"));
    }
    let mut out = stdout();
    let from = session.typed.len().saturating_sub(count);
    for (index, line) in session.typed.iter().enumerate().skip(from) {
        writeln!(out, "{:>5}  {}", index + 1, shown(line))?;
    }
    Ok(out.flush()?)
}

fn list(session: &Session) -> Outcome {
    let mut out = stdout();
    let mut table = Table::bare();
    for command in session.root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        table.row([format!("  {}", command.get_name()), about]);
    }
    writeln!(out, "Commands, as of the program; COMMAND --help explains one:\n{table}")?;
    let mut table = Table::bare();
    for (name, about) in OWN_COMMANDS {
        table.row([format!("  {name}"), (*about).to_owned()]);
    }
    writeln!(out, "Transactions, and more that only the shell has:\n{table}")?;
    let mut table = Table::bare();
    for (name, arguments, about) in DOT_COMMANDS {
        table.row([format!("  {name} {arguments}"), (*about).to_owned()]);
    }
    write!(out, "About the session:\n{table}")?;
    Ok(out.flush()?)
}

fn help_of(session: &mut Session, words: &[OsString]) -> Outcome {
    let name = words[0].to_string_lossy().into_owned();
    if let Some((name, about)) = OWN_COMMANDS.iter().find(|(it, _)| *it == name) {
        return say(&format!("{name}: {about}"));
    }
    let dotted = format!(".{}", name.trim_start_matches('.'));
    let found = DOT_COMMANDS.iter().find(|(it, ..)| *it == dotted);
    let (_, depth) = leaf(&session.root, words);
    if let (Some((name, arguments, about)), 0) = (found, depth) {
        if *name == ".open" {
            return say(OpenArgs::command().render_long_help().to_string().trim_end());
        }
        return say(&format!("{name} {arguments}\n{about}"));
    }
    let mut command = &mut session.root;
    for word in words {
        let found = match word.to_str() {
            Some(word) => command.find_subcommand_mut(word),
            None => None,
        };
        let Some(inner) = found else {
            let what = format!("there is no command {:?}: help lists them", word.to_string_lossy());
            return Err(Failure::usage(what));
        };
        command = inner;
    }
    let help = command.render_long_help().to_string();
    say(without_program(&help).trim_end())
}
