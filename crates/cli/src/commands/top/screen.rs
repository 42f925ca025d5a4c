//! The terminal while `top` is drawn on it: another screen, no echo, keys one by one.
//!
//! Invariant
//! - P1  Whatever ends the program, but for SIGKILL, the terminal is as it was before: a signal
//!   gives it back first, on a thread of its own, whatever the others are waiting for. Ctrl-Z does
//!   nothing: a handler for it, which cannot be taken back, would be in the way of the shell.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Failure, Outcome};
use crate::output::TerminalSize;

/// Another screen, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// How often a signal asks for the terminal while something is being drawn. A terminal that takes
/// no more output holds a drawing up; the signal is not to wait for it for ever.
const ATTEMPTS_MAX: u32 = 20;
const ATTEMPT_EVERY: Duration = Duration::from_millis(50);

/// The terminal, if it is drawn on: signals give it back.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// The modes that the terminal had.
struct Taken {
    before: Termios,
}

/// In place of a key: there is none that does it (`_POSIX_VDISABLE`).
const SWITCHED_OFF: u8 = if cfg!(target_os = "linux") { 0 } else { 0xFF };

/// What has happened on the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was pressed.
    Key(u8),
    /// The time is over.
    Nothing,
    /// There is no keyboard any more.
    End,
}

/// The screen; as it was before when it is dropped.
pub struct Screen {
    _by_enter: (),
}

impl Screen {
    /// Takes the terminal. Ctrl-C stays a signal.
    pub fn enter() -> Result<Screen, Failure> {
        hear_signals()?;
        let before = tcgetattr(io::stdin()).map_err(failed)?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        keys.special_codes[SpecialCodeIndex::VSUSP] = SWITCHED_OFF;
        *taken() = Some(Taken { before });
        let screen = Screen { _by_enter: () };
        tcsetattr(io::stdin(), OptionalActions::Now, &keys).map_err(failed)?;
        show(ENTER)?;
        Ok(screen)
    }

    /// Draws these lines, as far as they fit.
    pub fn draw(&mut self, lines: &[String], size: TerminalSize) -> Outcome {
        match &*taken() {
            Some(_) => Ok(show(&drawing(lines, size))?),
            None => Ok(()), // A signal has given it back.
        }
    }

    /// Waits for a key, so long at the most.
    pub fn wait_for_key(&mut self, most: Duration) -> Result<Event, Failure> {
        let stdin = io::stdin();
        let mut waited_for = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut waited_for, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Event::Nothing),
            Ok(_) => {}
            Err(error) => return Err(Failure::Output(error.into())),
        }
        let mut key = [0];
        match rustix::io::read(&stdin, &mut key) {
            Ok(0) => Ok(Event::End),
            Ok(_) => Ok(Event::Key(key[0])),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Event::Nothing),
            Err(_) => Ok(Event::End),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(taken().take());
    }
}

fn give_back(taken: Option<Taken>) {
    if let Some(Taken { before }) = taken {
        // Nobody is left to be told that it failed.
        let _ = show(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn taken() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn failed(error: rustix::io::Errno) -> Failure {
    Failure::Input { path: "the terminal".into(), source: error.into() }
}

/// From now on signals give the terminal back, and then do what they do anyway. Ctrl-C ends the
/// drawing by a flag that others look at: they may be waiting for a sample, and the next one ends
/// the program at once.
fn hear_signals() -> Outcome {
    static IS_HEARING: OnceLock<()> = OnceLock::new();
    if IS_HEARING.get().is_some() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])
        .map_err(|error| Failure::Other(Box::new(error)))?;
    thread::spawn(move || {
        for signal in signals.forever() {
            give_back_soon();
            if signal != SIGINT {
                let _it_is_a_known_one = emulate_default_handler(signal);
            }
        }
    });
    let _nobody_else_does = IS_HEARING.set(());
    Ok(())
}

fn give_back_soon() {
    for _ in 0..ATTEMPTS_MAX {
        let mut taken = match TAKEN.try_lock() {
            Ok(taken) => taken,
            Err(TryLockError::Poisoned(taken)) => taken.into_inner(),
            Err(TryLockError::WouldBlock) => {
                thread::sleep(ATTEMPT_EVERY);
                continue;
            }
        };
        return give_back(taken.take());
    }
}

/// From the upper left corner on; behind each line, and below the last one, nothing is left.
fn drawing(lines: &[String], size: TerminalSize) -> Vec<u8> {
    let mut text = b"\x1b[H".to_vec();
    for (index, line) in lines.iter().take(size.rows).enumerate() {
        if index > 0 {
            text.extend_from_slice(b"\r\n");
        }
        text.extend(line.chars().take(size.columns).collect::<String>().into_bytes());
        // A line that is full to its end would lose its last character.
        if line.chars().count() < size.columns {
            text.extend_from_slice(b"\x1b[K");
        }
    }
    text.extend_from_slice(b"\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_drawn_than_fits() {
        let lines = ["abcdef".to_owned(), "xy".to_owned(), "third".to_owned()];
        let drawn = drawing(&lines, TerminalSize { rows: 2, columns: 4 });
        assert_eq!(String::from_utf8(drawn).unwrap(), "\x1b[Habcd\r\nxy\x1b[K\x1b[J");
    }
}
