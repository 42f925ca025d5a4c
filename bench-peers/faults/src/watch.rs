//! Calls of a process that sync, watched, and one of them made to fail.
//!
//! By a filter of system calls that asks us (seccomp's user notification): what it is installed
//! for, and every thread and process that comes of it, stops in such a call until we say that it
//! goes on or which error it gives. So it holds for programs that make the calls themselves, as
//! those in Go do, where a preloaded library sees nothing; and calls are counted for all threads
//! together, which `strace --inject` does for each thread. A filter cannot be installed for another
//! process: this program becomes the other one, having installed it (`launch`).
//!
//! A call that fails is not made: what it was to write is in the page cache as before, and what is
//! called next succeeds, as with Linux, which says an error once. What is not watched: writes
//! through descriptors that sync by themselves (`O_DSYNC`, as LMDB writes its meta page).

#![expect(unsafe_code, reason = "calls to the kernel that nobody wraps")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The name of the hidden subcommand that installs the filter and becomes another program.
pub const LAUNCH_SUBCOMMAND: &str = "launch-watched";

/// Calls that make something durable.
const CALLS: [(&str, libc::c_long); 4] = [
    ("fsync", libc::SYS_fsync),
    ("fdatasync", libc::SYS_fdatasync),
    ("msync", libc::SYS_msync),
    ("syncfs", libc::SYS_syncfs),
];

/// What the kernel calls the instruction set.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Instructions of the filter: load a word, compare with a constant, answer.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Where the number of the call and the instruction set lie in what the filter is shown.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

const RECEIVE: Opcode = opcode::read_write::<libc::seccomp_notif>(b'!', 0);
const SEND: Opcode = opcode::read_write::<libc::seccomp_notif_resp>(b'!', 1);
/// So often it is looked whether the watch is over.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Installs the filter in this process, hands what asks us through standard input, which is a
/// socket, and becomes the program that `words` say. Returns only if that fails.
pub fn launch(mut words: impl Iterator<Item = OsString>) -> io::Error {
    let Some(program) = words.next() else {
        return io::Error::other("which program is to be watched?");
    };
    match install().and_then(|listener| hand_over(&listener)) {
        Ok(()) => Command::new(program).args(words).exec(),
        Err(error) => error,
    }
}

/// Asks about the calls, lets all others through.
fn filter() -> Vec<libc::sock_filter> {
    let instruction = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let count = CALLS.len() as u8;
    let mut filter = vec![
        instruction(LOAD_WORD, ARCHITECTURE_OFFSET, 0, 0),
        // Past the rest of the comparisons, to "let it through".
        instruction(JUMP_IF_EQUAL, ARCHITECTURE, 0, count + 1),
        instruction(LOAD_WORD, NUMBER_OFFSET, 0, 0),
    ];
    for (index, (_, number)) in CALLS.iter().enumerate() {
        // Past the rest of the comparisons and "let it through", to "ask".
        filter.push(instruction(JUMP_IF_EQUAL, *number as u32, count - index as u8, 0));
    }
    filter.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    filter.push(instruction(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    filter
}

fn install() -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    let mut instructions = filter();
    let program = libc::sock_fprog {
        len: instructions.len() as libc::c_ushort,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the kernel reads `len` instructions behind `filter`, which are there until the call
    // returns, and changes no memory of ours.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) })
}

fn hand_over(listener: &OwnedFd) -> io::Result<()> {
    let descriptors = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("there is no room for one descriptor"));
    }
    sendmsg(io::stdin(), &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// A call that was made to fail.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Strike {
    /// `fsync`, `fdatasync`, ..
    pub call: &'static str,
    /// Of which file; empty if that could not be told.
    pub file: String,
    /// While this command was obeyed.
    pub command: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Calls since the watch was armed.
    seen: u64,
    /// Which of them fails, if one is to.
    doomed: Option<u64>,
    is_armed: bool,
    strike: Option<Strike>,
    command: u64,
    is_over: bool,
}

/// Watches a process that was launched.
#[derive(Debug)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Takes over what a launched process hands through the other end of `socket`.
    ///
    /// # Errors
    /// If it hands nothing: it could not install the filter.
    pub fn take_over(socket: &UnixStream) -> io::Result<Watch> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut pieces = [IoSliceMut::new(&mut byte)];
        recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let handed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let Some(listener) = handed else {
            return Err(io::Error::other("the kernel does not let calls be watched"));
        };
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let thread = Some(std::thread::spawn(move || supervise(&listener, &shared)));
        Ok(Watch { state, thread })
    }

    /// From here on calls are counted, and the `doomed`th fails, the first being 1.
    pub fn arm(&self, doomed: Option<u64>) {
        let mut state = look(&self.state);
        (state.seen, state.doomed, state.is_armed) = (0, doomed, true);
    }

    /// Says which command will be obeyed next.
    pub fn begin(&self, command: u64) {
        look(&self.state).command = command;
    }

    /// Calls since the watch was armed.
    pub fn seen(&self) -> u64 {
        look(&self.state).seen
    }

    /// What was made to fail.
    pub fn strike(&self) -> Option<Strike> {
        look(&self.state).strike.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        look(&self.state).is_over = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It has nothing to say.
        }
    }
}

fn look(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers until the process has gone, or nobody watches any more.
fn supervise(listener: &OwnedFd, state: &Mutex<State>) {
    while !look(state).is_over {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut polled, Some(&LOOK_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let ready = polled[0].revents();
        if ready.contains(PollFlags::IN) {
            answer(listener, state);
        } else if ready.intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
    }
}

/// Answers one call. That it has gone meanwhile, with its process, is no failure.
fn answer(listener: &OwnedFd, state: &Mutex<State>) {
    // SAFETY: it is made of integers alone, for which all zeros are values.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the opcode is that of this call, which fills in a `seccomp_notif` that is zero.
    let call = unsafe { Updater::<{ RECEIVE }, libc::seccomp_notif>::new(&mut asked) };
    // SAFETY: what `Updater` hands the kernel is what the opcode wants.
    let received = unsafe { ioctl(listener, call) };
    if received.is_err() {
        return;
    }
    let error = if is_doomed(&asked, state) { -libc::EIO } else { 0 };
    let goes_on = if error == 0 { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 };
    let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags: goes_on };
    // SAFETY: the opcode is that of this call, which reads a `seccomp_notif_resp`.
    let call = unsafe { Updater::<{ SEND }, libc::seccomp_notif_resp>::new(&mut answer) };
    // SAFETY: what `Updater` hands the kernel is what the opcode wants.
    let _ = unsafe { ioctl(listener, call) };
}

fn is_doomed(asked: &libc::seccomp_notif, state: &Mutex<State>) -> bool {
    let mut state = look(state);
    if !state.is_armed {
        return false;
    }
    state.seen += 1;
    if state.doomed != Some(state.seen) {
        return false;
    }
    let number = libc::c_long::from(asked.data.nr);
    let call = CALLS.iter().find(|(_, of)| *of == number).map_or("", |(name, _)| *name);
    // The process stands still in the call: its descriptors are as they were.
    let link = format!("/proc/{}/fd/{}", asked.pid, asked.data.args[0]);
    let file = match call {
        "msync" => String::new(),
        _ => fs::read_link(link).map(|path| path.display().to_string()).unwrap_or_default(),
    };
    state.strike = Some(Strike { call, file, command: state.command });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter answers, by going through it as the kernel does.
    fn answer_of(architecture: u32, number: u32) -> u32 {
        let (filter, mut at, mut loaded) = (filter(), 0, 0);
        loop {
            let instruction = filter[at];
            match instruction.code {
                LOAD_WORD if instruction.k == NUMBER_OFFSET => loaded = number,
                LOAD_WORD => loaded = architecture,
                JUMP_IF_EQUAL if loaded == instruction.k => at += usize::from(instruction.jt),
                JUMP_IF_EQUAL => at += usize::from(instruction.jf),
                RETURN => return instruction.k,
                code => panic!("instruction {code}"),
            }
            at += 1;
        }
    }

    #[test]
    fn the_filter_asks_about_syncs_and_lets_everything_else_through() {
        for (name, number) in CALLS {
            let answer = answer_of(ARCHITECTURE, number as u32);
            assert_eq!(answer, libc::SECCOMP_RET_USER_NOTIF, "{name}");
            assert_eq!(answer_of(1, number as u32), libc::SECCOMP_RET_ALLOW, "{name}");
        }
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_exit_group] {
            assert_eq!(answer_of(ARCHITECTURE, number as u32), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn the_opcodes_are_those_of_the_kernel() {
        assert_eq!((RECEIVE, SEND), (0xC050_2100, 0xC018_2101));
    }
}
