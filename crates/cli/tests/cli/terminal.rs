//! A terminal of its own, in which a test types and reads.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// What takes longer has got stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

pub struct Terminal {
    master: File,
    child: Child,
    /// Pieces of what is shown; nothing more is read until they are taken.
    output: Receiver<Vec<u8>>,
    /// What was shown and not waited for yet.
    shown: Vec<u8>,
}

impl Terminal {
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        let child = command.spawn().unwrap();
        drop(terminal);
        drop(command); // It has the terminal as well.
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (sender, output) = sync_channel(1);
        std::thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { master, child, output, shown: Vec::new() }
    }

    pub fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Takes what is shown up to this text, without control sequences.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        loop {
            let plain = without_sequences(&self.shown);
            if let Some(at) = plain.find(text) {
                let (front, rest) = plain.split_at(at + text.len());
                self.shown = rest.as_bytes().to_vec();
                return front.to_owned();
            }
            match self.output.recv_timeout(STUCK_AFTER) {
                Ok(piece) => self.shown.extend(piece),
                Err(RecvTimeoutError::Timeout) => panic!("{text:?} did not come: {plain}"),
                Err(RecvTimeoutError::Disconnected) => panic!("ended before {text:?}: {plain}"),
            }
        }
    }

    /// The next piece that is shown, as it is; `None` if nothing comes for so long.
    pub fn next_piece(&mut self, most: Duration) -> Option<Vec<u8>> {
        self.output.recv_timeout(most).ok()
    }

    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether what is typed is shown, and read line by line.
    pub fn has_usual_modes(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Takes all that is still shown; the exit code.
    pub fn end(mut self) -> i32 {
        self.end_showing().0.code().unwrap()
    }

    /// How the program has ended, and all that was shown and not waited for.
    pub fn end_showing(&mut self) -> (ExitStatus, String) {
        while let Ok(piece) = self.output.recv() {
            self.shown.extend(piece);
        }
        let shown = String::from_utf8_lossy(&std::mem::take(&mut self.shown)).into_owned();
        (self.child.wait().unwrap(), shown)
    }
}

/// The text without what steers the terminal. A sequence that is not whole stays.
fn without_sequences(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (mut plain, mut rest) = (String::new(), text.as_ref());
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let is_final = |character: char| ('@'..='~').contains(&character);
        let end = match sequence.chars().nth(1) {
            Some('[') => sequence[2..].find(is_final).map(|end| end + 3),
            Some(_) => Some(2),
            None => None,
        };
        let Some(end) = end else {
            plain.push_str(sequence);
            return plain;
        };
        rest = &sequence[end..];
    }
    plain + rest
}
