//! Signals. Most is about Ctrl-C: a command that says nothing dies at once with exit code 130,
//! which is safe at any moment, as the store survives it. One that wants to finish its batch asks
//! for `graceful`.
//!
//! Invariant
//! - I1  The second Ctrl-C ends the program at once, whatever it is doing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// 128 + the number of the signal, as shells have it.
const EXIT_CODE_INTERRUPTED: i32 = 130;
const EXIT_CODE_TERMINATED: i32 = 143;

/// Has writes that are over the limit for files fail, and be told as that, and not end the program.
/// A handler that does nothing is as good as none: programs that are started have it not.
pub fn survive_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Tells a graceful command that Ctrl-C was pressed.
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// Whether the next signal ends the program: so from the start, and again after a first one.
    is_final: Arc<AtomicBool>,
    /// Whether somebody has asked for the first one, so that `is_final` means that it came.
    is_graceful: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the handlers.
    pub fn install() -> io::Result<Interrupt> {
        let is_graceful = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt { is_final: Arc::new(AtomicBool::new(true)), is_graceful };
        interrupt.listen(SIGINT, EXIT_CODE_INTERRUPTED)?;
        Ok(interrupt)
    }

    fn listen(&self, signal: i32, exit_code: i32) -> io::Result<()> {
        // Handlers run in this order: the first looks at the flag before the second sets it (I1).
        flag::register_conditional_shutdown(signal, exit_code, Arc::clone(&self.is_final))?;
        flag::register(signal, Arc::clone(&self.is_final))?;
        Ok(())
    }

    /// As [`Self::graceful`], also for when the program is terminated: for a command that has
    /// something to tidy up.
    pub fn graceful_when_terminated(&self) -> io::Result<()> {
        self.listen(SIGTERM, EXIT_CODE_TERMINATED)?;
        self.graceful();
        Ok(())
    }

    /// From now on the first Ctrl-C only raises the flag that [`Self::is_raised`] reads.
    pub fn graceful(&self) {
        self.is_final.store(false, Ordering::SeqCst);
        self.is_graceful.store(true, Ordering::SeqCst);
    }

    /// From now on the first Ctrl-C ends the program, as at the start.
    pub fn immediate(&self) {
        self.is_graceful.store(false, Ordering::SeqCst);
        self.is_final.store(true, Ordering::SeqCst);
    }

    /// Whether Ctrl-C was pressed, for code that runs with and without [`Self::graceful`].
    pub fn is_cancelled(&self) -> bool {
        self.is_graceful.load(Ordering::SeqCst) && self.is_raised()
    }

    /// Whether Ctrl-C was pressed since [`Self::graceful`].
    pub fn is_raised(&self) -> bool {
        self.is_final.load(Ordering::SeqCst)
    }
}
