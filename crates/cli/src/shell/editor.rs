//! The line editor: prompts, history and completion for those who type.

use std::path::Path;

use rustyline::completion::{Completer, Pair};
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History, SearchDirection};
use rustyline::validate::Validator;
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};

use super::complete::{Open, complete};
use super::history;
use super::pending::Pending;
use super::session::{Next, Session};
use super::words::Splitter;
use crate::args::DEFAULT_KEYSPACE;
use crate::failure::{Failure, Outcome};
use crate::notation::shown;

/// Lines that are kept.
const HISTORY_MAX: usize = 10_000;
/// Candidates that are shown without asking.
const SHOWN_MAX: usize = 120;
/// In front of the lines that a command goes on with.
const GOES_ON: &str = "   ...> ";

/// What the editor asks for.
struct Assistant {
    root: clap::Command,
    open: Open,
    /// The command so far, of lines that are over.
    begun: String,
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let front = format!("{}{}", self.begun, &line[..position]);
        let (offset, found) = complete(&self.root, &front, &self.open);
        // A word that was begun on an earlier line cannot be changed any more.
        let Some(offset) = offset.checked_sub(self.begun.len()) else {
            return Ok((position, Vec::new()));
        };
        let pair = |found: super::complete::Candidate| Pair {
            display: found.shown,
            replacement: found.text,
        };
        Ok((offset, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {}
impl Validator for Assistant {}
impl Helper for Assistant {}

/// Reads commands and runs them until whoever types has had enough.
pub fn run(session: &mut Session) -> Outcome {
    let path = session.history_path();
    let mut editor = editor(session).map_err(failure)?;
    if let Some(path) = &path
        && let Err(error) = history::make_private(path)
    {
        session.notices.say(format!("no history is kept in {}: {error}", path.display()));
    }
    if let Some(path) = &path {
        let _ = editor.load_history(path); // That it cannot be kept was said.
    }
    session.typed = entries(editor.history());
    session.notices.say("help lists the commands; Tab completes, Ctrl-C cancels, Ctrl-D leaves");
    let mut splitter = Splitter::default();
    let mut text = String::new();
    loop {
        session.interrupt.graceful();
        if let Some(helper) = editor.helper_mut() {
            helper.open = open_of(session);
            helper.begun.clone_from(&text);
        }
        let prompt = if text.is_empty() { prompt_of(session) } else { GOES_ON.to_owned() };
        let styled = format!("\x1b[1m{prompt}\x1b[0m");
        match editor.readline(&(prompt.as_str(), styled.as_str())) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
                splitter.feed(line.as_bytes());
                splitter.feed(b"\n");
            }
            Err(ReadlineError::Interrupted) => {
                text.clear();
                splitter = Splitter::default();
                continue;
            }
            Err(ReadlineError::Eof) if text.is_empty() => return Ok(()),
            Err(ReadlineError::Eof) => {
                text.clear();
                splitter = Splitter::default();
                continue;
            }
            Err(error) => return Err(failure(error)),
        }
        if splitter.is_within_command() {
            continue;
        }
        let typed = std::mem::take(&mut text);
        remember(session, &mut editor, typed.trim_end_matches('\n'), path.as_deref());
        for command in splitter.take_commands() {
            if session.take(command, "") == Next::Leave {
                return Ok(());
            }
        }
    }
}

fn editor(session: &Session) -> rustyline::Result<Editor<Assistant, FileHistory>> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .completion_prompt_limit(SHOWN_MAX)
        .build();
    let mut editor = Editor::with_config(config)?;
    let is_plain = anstream::stdout().current_choice() == anstream::ColorChoice::Never;
    editor.set_color_mode(if is_plain { ColorMode::Disabled } else { ColorMode::Enabled });
    let (root, open) = (super::line::definition(), open_of(session));
    editor.set_helper(Some(Assistant { root, open, begun: String::new() }));
    Ok(editor)
}

fn open_of(session: &Session) -> Open {
    Open { db: session.db().clone(), keyspace: session.globals.keyspace.clone() }
}

/// `lithe> `, with the keyspace if it is another one, and what was begun.
fn prompt_of(session: &Session) -> String {
    let keyspace = match session.globals.keyspace.as_str() {
        DEFAULT_KEYSPACE => String::new(),
        name => format!(":{}", shown(name)),
    };
    let pending = match session.pending {
        Pending::Nothing => "",
        Pending::Transaction(_) => "*",
        Pending::Batch(_) => "+",
    };
    format!("lithe{keyspace}{pending}> ")
}

/// Keeps what was typed, unless it begins with a blank.
fn remember(
    session: &mut Session,
    editor: &mut Editor<Assistant, FileHistory>,
    text: &str,
    path: Option<&Path>,
) {
    if text.trim().is_empty() || text.starts_with([' ', '\t']) {
        return;
    }
    session.typed.push(text.to_owned());
    let _ = editor.add_history_entry(text); // One that is there already is not added.
    if let Some(path) = path {
        let _ = editor.append_history(path); // That it cannot be kept was said.
    }
}

fn entries(history: &FileHistory) -> Vec<String> {
    let entry = |index| history.get(index, SearchDirection::Forward).ok().flatten();
    (0..history.len()).filter_map(entry).map(|found| found.entry.into_owned()).collect()
}

fn failure(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(source) => Failure::Input { path: "the terminal".into(), source },
        error => Failure::Other(Box::new(error)),
    }
}
