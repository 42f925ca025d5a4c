//! The terminal while `top` is drawn on it: another screen, no echo, keys one by one.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::failure::{Failure, Outcome};
use crate::output::TerminalSize;

/// Another screen, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

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
    before: Termios,
}

impl Screen {
    /// Takes the terminal. Ctrl-C stays a signal.
    pub fn enter() -> Result<Screen, Failure> {
        let failed = |error: rustix::io::Errno| Failure::Input {
            path: "the terminal".into(),
            source: error.into(),
        };
        let before = tcgetattr(io::stdin()).map_err(failed)?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &keys).map_err(failed)?;
        let screen = Screen { before };
        let mut out = io::stdout().lock();
        out.write_all(ENTER)?;
        out.flush()?;
        Ok(screen)
    }

    /// Draws these lines, as far as they fit.
    pub fn draw(&mut self, lines: &[String], size: TerminalSize) -> Outcome {
        let mut out = io::stdout().lock();
        out.write_all(&drawing(lines, size))?;
        Ok(out.flush()?)
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
        // Nobody is left to be told that it failed.
        let _ = io::stdout().lock().write_all(LEAVE);
        let _ = io::stdout().lock().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
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
