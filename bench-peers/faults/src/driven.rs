//! An engine's program, driven: one command at a time, each within a time limit, all within a
//! memory limit.

use crate::args::Args;
use crate::watch::{LAUNCH_SUBCOMMAND, Watch};
use lithe_bench::{Memory, Result, wrong};
use peer::driven::{ANSWER, DRIVEN_SUBCOMMAND};
use programs::Built;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Of a complaint.
const QUOTE_LEN_MAX: usize = 300;
/// A process that has said everything has gone within this time, or is told to go.
const LEAVE_TIME: Duration = Duration::from_secs(5);
const LEAVE_POLL: Duration = Duration::from_millis(5);

/// How a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done.
    Done,
    /// It was not, with this error.
    Refused(String),
    /// The program ended, in this way.
    Ended(String),
    /// Nothing came within the time.
    Late,
}

/// Whether calls that sync are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// They are.
    Yes,
    /// They are not.
    No,
}

/// A program that is driven.
#[derive(Debug)]
pub struct Driven {
    child: Child,
    commands: UnixStream,
    answers: Receiver<String>,
    readers: Vec<JoinHandle<()>>,
    complaint: Arc<Mutex<String>>,
    patience: Duration,
    watch: Option<Watch>,
}

/// How programs are started.
#[derive(Clone, Debug)]
pub struct Starter {
    program: PathBuf,
    memory: Memory,
    memory_limit: u64,
    patience: Duration,
}

impl Starter {
    /// For an engine.
    pub fn new(args: &Args, built: &Built) -> Starter {
        Starter {
            program: built.program.clone(),
            memory: args.memory,
            memory_limit: args.memory_limit << 20,
            patience: args.patience(),
        }
    }

    /// Starts the program with a store in `dir`; nothing is open yet.
    ///
    /// # Errors
    /// If it cannot be started, limited or watched.
    pub fn start(&self, dir: &Path, watched: Watched) -> Result<Driven> {
        let (commands, theirs) = UnixStream::pair()?;
        let mut child = self.spawn(dir, watched, theirs)?;
        let (sender, answers) = channel();
        let complaint = Arc::new(Mutex::new(String::new()));
        let mut readers = Vec::new();
        if let Some(output) = child.stdout.take() {
            readers.push(thread::spawn(move || {
                each_line(output, |line| match line.strip_prefix(ANSWER) {
                    Some(answer) => sender.send(answer.to_owned()).is_ok(),
                    None => true,
                });
            }));
        }
        if let Some(errors) = child.stderr.take() {
            let kept = Arc::clone(&complaint);
            readers.push(thread::spawn(move || keep_last_line(errors, &kept)));
        }
        let patience = self.patience;
        let mut driven =
            Driven { child, commands, answers, readers, complaint, patience, watch: None };
        if watched == Watched::Yes {
            driven.watch = Some(Watch::take_over(&driven.commands)?);
        }
        driven.limit(self.memory_limit)?;
        Ok(driven)
    }

    fn spawn(&self, dir: &Path, watched: Watched, theirs: UnixStream) -> Result<Child> {
        let mut words: Vec<OsString> = match watched {
            Watched::Yes => {
                let own = std::env::current_exe()?;
                vec![own.into(), LAUNCH_SUBCOMMAND.into(), self.program.clone().into()]
            }
            Watched::No => vec![self.program.clone().into()],
        };
        words.extend::<[OsString; 3]>([DRIVEN_SUBCOMMAND.into(), "--dir".into(), dir.into()]);
        words.extend::<[OsString; 2]>(["--memory".into(), self.memory.to_string().into()]);
        // The command holds their end of the socket: it must be gone when this returns.
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }
}

impl Driven {
    /// Limits its memory: what it has for itself, mapped files apart, of which some engines map
    /// much more than they use. It waits for its first command meanwhile.
    fn limit(&self, memory: u64) -> Result<()> {
        let pid = Some(Pid::from_child(&self.child));
        for (resource, most) in [(Resource::Data, memory), (Resource::Core, 0)] {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            prlimit(pid, resource, limit)?;
        }
        Ok(())
    }

    /// What watches its calls.
    ///
    /// # Errors
    /// If it was started without.
    pub fn watch(&self) -> Result<&Watch> {
        self.watch.as_ref().ok_or_else(|| "nothing watches".into())
    }

    /// Has it obey a command, and shows what it says on the way.
    pub fn ask(&mut self, command: &str, mut show: impl FnMut(&str)) -> Reply {
        if writeln!(self.commands, "{command}").is_err() {
            return self.ended();
        }
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(line) if line == "ok" => return Reply::Done,
                Ok(line) => match line.strip_prefix("error ") {
                    Some(text) => {
                        return Reply::Refused(text.chars().take(QUOTE_LEN_MAX).collect());
                    }
                    None => show(&line),
                },
                Err(RecvTimeoutError::Timeout) => return Reply::Late,
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            }
        }
    }

    /// Has it obey a command that says nothing on the way.
    pub fn tell(&mut self, command: &str) -> Reply {
        self.ask(command, |_| {})
    }

    /// The same, which must be done.
    ///
    /// # Errors
    /// If it was not.
    pub fn must(&mut self, command: &str) -> Result<()> {
        match self.tell(command) {
            Reply::Done => Ok(()),
            reply => {
                let command = command.lines().next().unwrap_or_default();
                wrong(format!("`{command}`: {reply:?}"))
            }
        }
    }

    /// Kills it, as it is.
    ///
    /// # Errors
    /// If the system does not let us.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// It has ended, or is about to: how.
    fn ended(&mut self) -> Reply {
        let status = self.wait_for_end();
        self.readers.drain(..).for_each(|reader| {
            let _ = reader.join(); // All has been said.
        });
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Reply::Ended(format!("{status}: {complaint}"))
    }

    /// Its output is closed: it has little left to do.
    fn wait_for_end(&mut self) -> std::io::Result<ExitStatus> {
        let deadline = Instant::now() + LEAVE_TIME;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.child.kill()?;
                return self.child.wait();
            }
            thread::sleep(LEAVE_POLL);
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // It may have gone already; else it goes now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows each line, until nobody listens any more. What the last one has without its end was cut
/// off with the process, and says nothing.
fn each_line(output: impl Read, mut is_heard: impl FnMut(&str) -> bool) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while output.read_line(&mut line).is_ok() {
        let Some(whole) = line.strip_suffix('\n') else { return };
        if !is_heard(whole) {
            return;
        }
        line.clear();
    }
}

/// Keeps the line that says why: the last one, or the first of a panic, whose last are a trace.
fn keep_last_line(errors: impl Read, kept: &Mutex<String>) {
    let mut is_final = false;
    for line in BufReader::new(errors).split(b'\n').map_while(std::io::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if is_final || line.is_empty() {
            continue;
        }
        is_final = ["panic:", "fatal error:", "thread '"].iter().any(|of| line.starts_with(of));
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = line.chars().take(QUOTE_LEN_MAX).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that only pretends to be an engine.
    fn pretender(dir: &Path, script: &str) -> Starter {
        let program = dir.join("pretender");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Starter {
            program,
            memory: Memory::EngineDefault,
            memory_limit: 1 << 30,
            patience: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_command_is_done_refused_or_not_answered() {
        let dir = tempfile::tempdir().unwrap();
        let script = "read a; echo noise; echo =ok\nread b; echo =v 1 2; echo '=error it is'\n\
                      read c; sleep 5";
        let starter = pretender(dir.path(), script);
        let mut driven = starter.start(dir.path(), Watched::No).unwrap();
        assert_eq!(driven.tell("open"), Reply::Done);
        let mut said = Vec::new();
        let reply = driven.ask("gets", |line| said.push(line.to_owned()));
        assert_eq!(reply, Reply::Refused("it is".into()));
        assert_eq!(said, ["v 1 2"]);
        assert_eq!(driven.tell("scan"), Reply::Late);
        driven.kill().unwrap();
    }

    #[test]
    fn how_it_ended_is_told_with_its_complaint() {
        let dir = tempfile::tempdir().unwrap();
        let script = "read a; echo 'panic: at the disk' >&2; echo ' a trace' >&2; exit 3";
        let mut driven = pretender(dir.path(), script).start(dir.path(), Watched::No).unwrap();
        let Reply::Ended(how) = driven.tell("open") else { panic!("it goes on") };
        assert!(how.contains('3') && how.ends_with("panic: at the disk"), "{how}");
        assert!(driven.must("open").is_err());
    }

    #[test]
    fn a_line_that_was_cut_off_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let script = "read a; echo =v 1 2; printf '=v 1'; exit 2";
        let mut driven = pretender(dir.path(), script).start(dir.path(), Watched::No).unwrap();
        let mut said = Vec::new();
        let reply = driven.ask("gets", |line| said.push(line.to_owned()));
        assert!(matches!(reply, Reply::Ended(_)), "{reply:?}");
        assert_eq!(said, ["v 1 2"]);
    }
}
