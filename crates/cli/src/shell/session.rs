//! A session: a database that stays open, and the commands that are run on it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use clap::error::ErrorKind;
use lithedb::base::{Clock, SystemClock};
use lithedb::{Db, Follower};

use super::begun::Begun;
use super::line::{self, Line};
use super::pending::{Pending, Place, nothing_is_begun};
use super::words::Words;
use super::{dots, history};
use crate::args::{Globals, Origin};
use crate::database::{Purpose, database_path, follow, open};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::duration_text;
use crate::output::{Notices, begin_output, end_output, stdout};

/// Who gives the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody who types, and sees what fails.
    Terminal,
    /// A text.
    Script,
}

/// What comes after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next one.
    GoOn,
    /// No other one of this text: one has failed.
    Stop,
    /// The end of the session.
    Leave,
}

/// A session.
pub struct Session {
    pub(super) globals: Globals,
    pub(super) notices: Notices,
    pub(super) interrupt: Interrupt,
    pub(super) kind: Kind,
    /// The definition of the commands.
    pub(super) root: clap::Command,
    /// The format of `.mode`.
    pub(super) mode: String,
    /// Whether each command's time is told.
    pub(super) is_timed: bool,
    /// Whether a text ends at the first failure.
    pub(super) bails: bool,
    /// What was typed, for `.history`.
    pub(super) typed: Vec<String>,
    /// Texts that are being read within each other.
    pub(super) depth: usize,
    pub(super) pending: Pending,
    /// Whether a command of what is pending has failed (T2).
    has_failed: bool,
    /// The exit code of the last failure.
    code: Option<u8>,
    db: Db,
    follower: Option<Follower>,
    clock: SystemClock,
}

impl Session {
    /// Opens the database.
    pub fn open(
        mut globals: Globals,
        notices: Notices,
        interrupt: &Interrupt,
        kind: Kind,
    ) -> Result<Session, Failure> {
        let (db, follower) = open_database(&globals, Purpose::Change)?;
        globals.held = Some(db.clone());
        globals.keyspace_origin = Origin::Elsewhere;
        let settings = &globals.settings;
        Ok(Session {
            mode: settings.value("shell.mode").unwrap_or("auto").to_owned(),
            is_timed: settings.is_on("shell.timer"),
            bails: settings.is_on("shell.bail"),
            root: line::definition(),
            typed: Vec::new(),
            depth: 0,
            pending: Pending::Nothing,
            has_failed: false,
            code: None,
            clock: SystemClock::new(),
            interrupt: interrupt.clone(),
            globals,
            notices,
            kind,
            db,
            follower,
        })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The program that shows long output, and its arguments.
    pub fn pager(&self) -> Vec<String> {
        let pager = self.globals.settings.value("shell.pager").unwrap_or_default();
        pager.split_whitespace().map(str::to_owned).filter(|word| word != "off").collect()
    }

    /// Where typed lines are kept.
    pub fn history_path(&self) -> Option<PathBuf> {
        history::path(&self.globals.settings)
    }

    /// Opens another database in place of this one, which is closed behind it.
    pub(super) fn switch(&mut self, mut globals: Globals, purpose: Purpose) -> Outcome {
        let (db, follower) = open_database(&globals, purpose)?;
        let closed = self.close();
        globals.held = Some(db.clone());
        (self.globals, self.db, self.follower) = (globals, db, follower);
        closed
    }

    fn close(&self) -> Outcome {
        match &self.follower {
            Some(follower) => follower.close()?,
            None => self.db.close().map(drop)?,
        }
        Ok(())
    }

    /// Ends the session; its failure is that of its last command that has failed, if it is a text.
    pub fn end(mut self) -> Outcome {
        if self.pending.is_something() {
            let what = self.pending.name();
            self.undo();
            let text = format!("the {what} was not committed: it is undone");
            match self.kind {
                Kind::Terminal => self.notices.say(text),
                Kind::Script => {
                    self.note(Err(Failure::usage(text)), "");
                }
            }
        }
        self.close()?;
        match (self.kind, self.code) {
            (Kind::Script, Some(code)) => Err(Failure::Session { code }),
            _ => Ok(()),
        }
    }

    /// Takes a command of a text, or what is wrong with it.
    pub fn take(&mut self, command: Result<Words, String>, place: &str) -> Next {
        match command {
            Ok(words) => self.execute(&words, place),
            Err(what) => self.note(Err(Failure::usage(what)), place),
        }
    }

    /// Runs a command and says what has failed, with its place in front.
    pub fn execute(&mut self, words: &[OsString], place: &str) -> Next {
        match self.kind {
            Kind::Terminal => self.interrupt.graceful(),
            Kind::Script => self.interrupt.immediate(),
        }
        let began = self.clock.monotonic();
        begin_output();
        let ran = self.run(words);
        let ended = end_output().map_err(Failure::from);
        let is_answer = words.first().is_some_and(|word| word == "get")
            && matches!(ran, Err(Failure::NotFound { .. }));
        // What comes behind it would be done to something else than was meant.
        let has_strayed = ran.is_err()
            && (self.kind == Kind::Script || self.depth > 0)
            && words.first().is_some_and(|word| dots::says_where(&word.to_string_lossy()));
        let had_failed = self.has_failed;
        let next = match self.note(ran.and_then(|next| ended.map(|()| next)), place) {
            Next::GoOn if has_strayed => Next::Stop,
            next => next,
        };
        if is_answer {
            self.has_failed = had_failed;
        }
        if self.is_timed && next != Next::Leave {
            let taken = duration_text(self.clock.monotonic() - began);
            self.notices.say(format!("time: {taken}"));
        }
        next
    }

    /// Says what has failed, and what comes next.
    fn note(&mut self, ran: Result<Next, Failure>, place: &str) -> Next {
        let failure = match ran {
            Ok(next) => return next,
            Err(failure) => failure,
        };
        if let Some(message) = failure.message() {
            self.notices.fail(&format!("{place}{message}"), failure.advice());
        }
        if failure.exit_code() == 0 {
            return Next::GoOn; // Whoever read the output has seen enough.
        }
        self.code = Some(failure.exit_code());
        self.has_failed = self.pending.is_something();
        match (self.kind, &failure) {
            (Kind::Script, Failure::Interrupted) => Next::Leave,
            _ if self.bails && (self.kind == Kind::Script || self.depth > 0) => Next::Stop,
            _ => Next::GoOn,
        }
    }

    fn run(&mut self, words: &[OsString]) -> Result<Next, Failure> {
        if let Some(follower) = &self.follower {
            follower.catch_up()?;
            self.db = follower.db();
            self.globals.held = Some(self.db.clone());
        }
        let name = words[0].to_string_lossy().into_owned();
        let rest = &words[1..];
        if name.starts_with('.') {
            return dots::run(self, &name, rest);
        }
        if let Some(why) = line::refusal(&name)
            && !rest.iter().any(|word| word == "--help")
        {
            return Err(Failure::usage(format!("`{name}` is not for the shell: {why}")));
        }
        match name.as_str() {
            "exit" | "quit" => return Ok(Next::Leave),
            "help" | "?" => return dots::run(self, ".help", rest),
            "use" => return dots::run(self, ".use", rest),
            "begin" | "commit" | "rollback" | "abort" | "batch" | "end" | "expect"
            | "expect-absent" | "payload" => self.run_own(&name, rest)?,
            _ => self.run_of_program(words)?,
        }
        Ok(Next::GoOn)
    }

    fn run_own(&mut self, name: &str, rest: &[OsString]) -> Outcome {
        let bytes = |index: usize| rest[index].as_encoded_bytes();
        let count = match name {
            "expect" => 2,
            "expect-absent" | "payload" => 1,
            _ => 0,
        };
        if rest.len() != count {
            return Err(Failure::usage(format!("{name} takes {count} fields")));
        }
        match (name, &self.pending) {
            ("begin", Pending::Nothing) => {
                self.begin(Pending::Transaction(Box::new(Begun::new(&self.db))))?;
            }
            ("batch", Pending::Nothing) => self.begin(Pending::Batch(Box::default()))?,
            ("begin" | "batch", pending) => {
                let what = format!("a {} was begun already: end it first", pending.name());
                return Err(Failure::usage(what));
            }
            ("rollback" | "abort", pending) if pending.is_something() => self.undo(),
            ("commit", Pending::Transaction(_)) | ("end", Pending::Batch(_)) => self.commit()?,
            ("commit", Pending::Batch(_)) => return Err(Failure::usage("`end` ends a batch")),
            ("end", Pending::Transaction(_)) => {
                return Err(Failure::usage("`commit` ends a transaction"));
            }
            ("payload", _) => self.pending.set_payload(bytes(0).to_vec())?,
            ("expect" | "expect-absent", _) => {
                let expected = (name == "expect").then(|| bytes(1));
                let key = bytes(0);
                let (globals, interrupt) = (&self.globals, &self.interrupt);
                let place = Place { globals, db: &self.db, interrupt, notices: self.notices };
                let told = self.pending.expect((key, expected), place);
                // T2: in a script what follows up to `commit` still belongs to it.
                if self.pending.is_undone() && self.kind == Kind::Terminal {
                    self.undo();
                }
                told?;
            }
            (name, _) => return Err(nothing_is_begun(name)),
        }
        Ok(())
    }

    fn begin(&mut self, pending: Pending) -> Outcome {
        if self.follower.is_some() || self.globals.read_only {
            return Err(Failure::usage(
                "nothing is written here: the database is open for reading",
            ));
        }
        (self.pending, self.has_failed) = (pending, false);
        Ok(())
    }

    fn undo(&mut self) {
        (self.pending, self.has_failed) = (Pending::Nothing, false);
    }

    /// T2: what has failed in part is undone, not committed.
    fn commit(&mut self) -> Outcome {
        let pending = std::mem::take(&mut self.pending);
        if std::mem::take(&mut self.has_failed) && self.kind == Kind::Script {
            let what = format!("a command of this {} has failed: it is undone", pending.name());
            return Err(Failure::usage(what));
        }
        let stamp = match pending {
            Pending::Transaction(mut begun) => begun.commit()?,
            Pending::Batch(batch) if batch.is_empty() => None,
            Pending::Batch(batch) => Some(self.db.write(*batch)?),
            Pending::Nothing => return Ok(()),
        };
        match stamp {
            Some(stamp) => self.notices.say(format!("committed as {stamp}")),
            None => self.notices.say("nothing was written: there is no commit"),
        }
        Ok(())
    }

    /// Runs a command as the program has it.
    pub(super) fn run_of_program(&mut self, words: &[OsString]) -> Outcome {
        let name = words[0].to_string_lossy().into_owned();
        let with_mode = line::with_mode(&self.root, words, &self.mode);
        let matches = match self.root.try_get_matches_from_mut(with_mode) {
            // What was not typed is not to be named.
            Err(_) => self.root.try_get_matches_from_mut(words),
            matches => matches,
        };
        let matches = match matches {
            Ok(matches) => matches,
            Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
                return Err(line::unknown(&self.root, &name));
            }
            Err(error) => return show_or_fail(&error),
        };
        let line = Line::from_arg_matches(&matches).map_err(|error| usage_of(&error))?;
        let notices = if line.options.quiet { Notices::Silent } else { self.notices };
        let changed = line.options.keyspace.map(|keyspace| Globals {
            keyspace,
            keyspace_origin: Origin::CommandLine,
            ..self.globals.clone()
        });
        let globals = changed.as_ref().unwrap_or(&self.globals);
        let place = Place { globals, db: &self.db, interrupt: &self.interrupt, notices };
        match self.pending.run(line.command, place)? {
            Some(command) => crate::run_command(globals, notices, &self.interrupt, command),
            None => Ok(()),
        }
    }
}

fn open_database(globals: &Globals, purpose: Purpose) -> Result<(Db, Option<Follower>), Failure> {
    let path: &Path = database_path(globals)?;
    if globals.beside && purpose != Purpose::Make {
        let follower = follow(globals, path)?;
        return Ok((follower.db(), Some(follower)));
    }
    Ok((open(globals, path, purpose)?.into_db(), None))
}

/// Help is an answer; the rest are mistakes.
fn show_or_fail(error: &clap::Error) -> Outcome {
    use std::io::Write;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let mut out = stdout();
            let help = dots::without_program(&error.render().to_string());
            out.write_all(help.as_bytes())?;
            Ok(out.flush()?)
        }
        _ => Err(usage_of(error)),
    }
}

fn usage_of(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    Failure::usage(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use lithedb::storage::MemoryStorage;

    /// A session on a database in memory.
    fn session(kind: Kind) -> Session {
        let line = ["lithe", "--db", "/nowhere"].map(OsString::from);
        let mut globals = Cli::read(line).unwrap().globals;
        let storage = std::sync::Arc::new(MemoryStorage::new());
        let db = Db::builder().storage(storage).open("/db").unwrap();
        db.keyspace_or_create("default").unwrap();
        globals.held = Some(db);
        let interrupt = Interrupt::install().unwrap();
        Session::open(globals, Notices::Silent, &interrupt, kind).unwrap()
    }

    fn run(session: &mut Session, line: &str) -> Next {
        let words: Words = line.split_whitespace().map(OsString::from).collect();
        session.execute(&words, "")
    }

    #[test]
    fn a_script_ends_where_it_would_go_on_somewhere_else() {
        for line in [".open nowhere", ".o nowhere", ".use none", "use none", ".read nothing"] {
            let mut script = session(Kind::Script);
            assert_eq!(run(&mut script, line), Next::Stop, "{line}");
            assert!(script.code.is_some());
            let mut typed = session(Kind::Terminal);
            assert_eq!(run(&mut typed, line), Next::GoOn, "{line}: who types has seen it");
        }
        let mut script = session(Kind::Script);
        for line in [".use default", ".mode nothing", "count --no", "nothing"] {
            assert_eq!(run(&mut script, line), Next::GoOn, "{line}");
        }
    }

    #[test]
    fn a_conflict_is_told_and_nothing_has_happened() {
        let mut session = session(Kind::Script);
        let keyspace = session.db().keyspace("default").unwrap();
        for line in ["begin", "expect-absent a", "put b 1"] {
            assert_eq!(run(&mut session, line), Next::GoOn);
        }
        assert_eq!(session.code, None);
        keyspace.put("a", "of somebody else").unwrap();
        run(&mut session, "commit");
        assert_eq!(session.code, Some(3));
        assert!(!session.pending.is_something());
        assert_eq!(keyspace.get("b").unwrap(), None);
        for line in ["begin", "expect a of", "rollback"] {
            run(&mut session, line);
        }
        assert_eq!(session.code, Some(1));
    }

    #[test]
    fn a_keyspace_that_comes_late_changes_nothing_of_what_was_seen() {
        let mut session = session(Kind::Script);
        let keyspace = session.db().keyspace("default").unwrap();
        for line in ["begin", "expect-absent a", "put b 1"] {
            assert_eq!(run(&mut session, line), Next::GoOn);
        }
        keyspace.put("c", "of somebody else").unwrap();
        run(&mut session, "put --keyspace new d 1");
        assert_eq!(session.code, Some(3), "it would see another moment");
        run(&mut session, "commit");
        assert_eq!(keyspace.get("b").unwrap(), None);
        // Of what it has read there is the same, and it still conflicts with changes of it.
        session.code = None;
        for line in ["begin", "expect-absent a", "put b 1", "put --keyspace newer d 1"] {
            assert_eq!(run(&mut session, line), Next::GoOn);
        }
        assert_eq!(session.code, None);
        keyspace.put("a", "of somebody else").unwrap();
        run(&mut session, "commit");
        assert_eq!((session.code, keyspace.get("b").unwrap()), (Some(3), None));
    }

    #[test]
    fn what_a_script_expects_in_vain_takes_the_rest_up_to_commit_with_it() {
        let mut script = session(Kind::Script);
        let mut typed = session(Kind::Terminal);
        for line in ["begin", "expect a 1", "put b 1", "commit"] {
            run(&mut script, line);
            run(&mut typed, line);
        }
        let found = |session: &Session| {
            session.db().keyspace("default").unwrap().get("b").unwrap().is_some()
        };
        assert!(!found(&script));
        assert!(found(&typed), "who types has seen that there is no transaction any more");
        assert!(!script.pending.is_something() && !typed.pending.is_something());
    }
}
