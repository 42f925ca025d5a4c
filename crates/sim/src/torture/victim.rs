//! A child from outside: it is started, listened to, and killed.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::child::Errand;
use super::records::Record;

/// Records that are kept, to be written down with a finding.
const KEPT_MAX: usize = 4000;
/// Of each so many bytes, about.
const KEPT_LEN_MAX: usize = 300;

/// What comes from a child.
#[derive(Debug)]
pub(super) enum Heard {
    /// A record; none, if it was no record.
    Record(Option<Record>),
    /// Nothing within the time.
    Nothing,
    /// There will be nothing any more.
    End,
}

/// A child process.
pub(super) struct Victim {
    child: Child,
    records: Receiver<Option<Record>>,
    reader: Option<JoinHandle<()>>,
}

impl Victim {
    /// Starts the program with this subcommand for this errand, in a group of processes of its own:
    /// Ctrl-C is not meant for it. What it complains of goes to the file.
    pub(super) fn start(
        (program, subcommand): (&Path, &str),
        errand: &Errand,
        complaints: File,
    ) -> io::Result<Victim> {
        let mut command = Command::new(program);
        command.arg(subcommand).args(errand.to_words());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints).process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdout.take().ok_or_else(|| io::Error::other("a child has no pipe"))?;
        let (sender, records) = channel();
        let reader = Some(std::thread::spawn(move || listen(pipe, &sender)));
        Ok(Victim { child, records, reader })
    }

    /// What it says next, waited for as long as this.
    pub(super) fn hear(&self, within: Duration) -> Heard {
        match self.records.recv_timeout(within) {
            Ok(record) => Heard::Record(record),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// Kills it, if it is still there, and waits until it has gone. What it has said until then.
    pub(super) fn end(&mut self) -> io::Result<(ExitStatus, Vec<Option<Record>>)> {
        self.child.kill()?; // Nothing, if it has ended by itself.
        let status = self.child.wait()?;
        let rest = self.records.iter().collect();
        self.join();
        Ok((status, rest))
    }

    /// Waits until it has gone by itself. It has said everything.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.join();
        Ok(status)
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join(); // It has nothing to say.
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join();
    }
}

/// Reads as fast as it comes: a child that waits for the pipe is struck nowhere else.
fn listen(pipe: ChildStdout, sender: &Sender<Option<Record>>) {
    let mut pipe = BufReader::with_capacity(64 << 10, pipe);
    while let Ok(Some(record)) = Record::read(&mut pipe) {
        let is_over = record.is_none();
        if sender.send(record).is_err() || is_over {
            return;
        }
    }
}

/// The last records, short.
#[derive(Debug, Default)]
pub(super) struct Transcript(VecDeque<String>);

impl Transcript {
    /// A child begins.
    pub(super) fn begin(&mut self, errand: &Errand) {
        self.add(short(errand));
    }

    /// It has said this.
    pub(super) fn note(&mut self, record: &Record) {
        match record {
            Record::Found(found) => {
                let rows: usize = found.rows.values().map(std::collections::BTreeMap::len).sum();
                let (catalog, indexes) = (&found.catalog, &found.indexes);
                self.add(format!("Found {rows} rows in {catalog:?}, {} indexes", indexes.len()));
            }
            other => self.add(short(other)),
        }
    }

    /// Something has happened.
    pub(super) fn add(&mut self, line: String) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// All lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }
}

/// The beginning of what is printed; no more of it is made, which would take its time.
fn short(what: &impl fmt::Debug) -> String {
    let mut short = Short(String::new());
    if write!(short, "{what:?}").is_err() {
        short.0.push_str(" ..");
    }
    short.0
}

struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > KEPT_LEN_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
