//! Where standard output of commands leads: to standard output as it is, unless a session steers
//! it: to a file, or on a terminal to a pager when there is more of it than fits.

use std::fs::File;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;

use crate::failure::Cancelled;
use crate::interrupt::Interrupt;

/// What a session has said about its output; nothing of one-shot commands.
static SESSION: Mutex<Option<Steering>> = Mutex::new(None);

/// Options of `less` for those who have not said any: it ends when all fits, takes colours, and
/// leaves the screen as it is.
const LESS: &str = "FRX";

/// How many lines are written before a pager is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLength {
    /// No pager: nobody reads along.
    Endless,
    /// As many as the terminal has.
    OfTerminal,
}

impl PageLength {
    /// For a session, on a terminal or not.
    pub fn of_terminal(is_terminal: bool) -> PageLength {
        if is_terminal { PageLength::OfTerminal } else { PageLength::Endless }
    }
}

#[derive(Debug)]
struct Steering {
    /// Ends the command whose output it is.
    interrupt: Option<Interrupt>,
    page: PageLength,
    /// The program and its arguments.
    pager: Vec<String>,
    file: Option<File>,
    /// What the command at hand has written.
    command: Written,
}

#[derive(Debug, Default)]
enum Written {
    /// Not more than what fits, so far.
    Kept { text: Vec<u8>, lines: usize },
    /// To the pager.
    Paged(Child),
    /// To where output leads.
    #[default]
    Through,
}

/// Standard output as commands have it.
#[derive(Debug)]
pub enum Output {
    /// As it is.
    Plain(StdoutLock<'static>),
    /// As a session says.
    Steered,
}

fn session() -> MutexGuard<'static, Option<Steering>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on output is steered. With `interrupt`, writing it ends when Ctrl-C was pressed.
pub fn steer_stdout(interrupt: Option<Interrupt>, page: PageLength, pager: Vec<String>) {
    let (file, command) = (None, Written::Through);
    *session() = Some(Steering { interrupt, page, pager, file, command });
}

/// From now on output goes to this file, or where it went before.
pub fn redirect_stdout(file: Option<File>) {
    if let Some(steering) = session().as_mut() {
        steering.file = file;
    }
}

/// A command begins.
pub fn begin_output() {
    if let Some(steering) = session().as_mut() {
        let is_paged = steering.page == PageLength::OfTerminal
            && steering.file.is_none()
            && !steering.pager.is_empty();
        steering.command = match is_paged {
            true => Written::Kept { text: Vec::new(), lines: 0 },
            false => Written::Through,
        };
    }
}

/// A command is over: what was kept is shown, and a pager waited for.
pub fn end_output() -> io::Result<()> {
    let command = session().as_mut().map(|steering| std::mem::take(&mut steering.command));
    match command {
        Some(Written::Kept { text, .. }) => {
            let mut out = io::stdout().lock();
            out.write_all(&text)?;
            out.flush()
        }
        Some(Written::Paged(mut pager)) => {
            drop(pager.stdin.take());
            pager.wait().map(drop)
        }
        Some(Written::Through) | None => Ok(()),
    }
}

/// Whether what is written now is read by a person on a terminal.
pub fn leads_to_terminal() -> bool {
    let is_file = session().as_ref().is_some_and(|steering| steering.file.is_some());
    !is_file && io::stdout().is_terminal()
}

/// Standard output for a command.
pub fn output() -> Output {
    match session().is_some() {
        true => Output::Steered,
        false => Output::Plain(io::stdout().lock()),
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(out) => out.write(bytes),
            Output::Steered => match session().as_mut() {
                Some(steering) => steering.write(bytes),
                None => io::stdout().lock().write(bytes),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(out) => out.flush(),
            Output::Steered => match session().as_mut() {
                Some(steering) => steering.flush(),
                None => io::stdout().lock().flush(),
            },
        }
    }
}

impl Steering {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupt.as_ref().is_some_and(Interrupt::is_raised) {
            return Err(io::Error::other(Cancelled));
        }
        if let Some(file) = &mut self.file {
            return file.write(bytes);
        }
        match &mut self.command {
            Written::Through => io::stdout().lock().write(bytes),
            Written::Paged(pager) => match &mut pager.stdin {
                Some(stdin) => stdin.write(bytes),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
            Written::Kept { text, lines } => {
                text.extend_from_slice(bytes);
                *lines += lines_of(bytes);
                if *lines >= terminal_size().rows.saturating_sub(1) {
                    let text = std::mem::take(text);
                    self.call_pager(&text)?;
                }
                Ok(bytes.len())
            }
        }
    }

    /// Shows what was kept, by the pager if there is one.
    fn call_pager(&mut self, text: &[u8]) -> io::Result<()> {
        let mut command = Command::new(&self.pager[0]);
        command.args(&self.pager[1..]).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", LESS);
        }
        let Ok(mut pager) = command.spawn() else {
            self.command = Written::Through;
            return io::stdout().lock().write_all(text);
        };
        let written = pager.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(text));
        self.command = Written::Paged(pager);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        match (&mut self.file, &mut self.command) {
            (Some(file), _) => file.flush(),
            (None, Written::Through) => io::stdout().lock().flush(),
            (None, Written::Paged(pager)) => pager.stdin.as_mut().map_or(Ok(()), Write::flush),
            (None, Written::Kept { .. }) => Ok(()),
        }
    }
}

fn lines_of(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Its lines.
    pub rows: usize,
    /// The characters of a line.
    pub columns: usize,
}

/// That of standard output; 80 x 24 where nobody says.
pub fn terminal_size() -> TerminalSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row.into(), columns: size.ws_col.into() }
        }
        _ => TerminalSize { rows: 24, columns: 80 },
    }
}
