//! Ctrl-C. A command that says nothing dies at once with exit code 130, which is safe at any
//! moment: the store survives it. One that wants to finish its batch asks for `graceful`.
//!
//! Invariant
//! - I1  The second Ctrl-C ends the program at once, whatever it is doing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// 128 + the number of the signal, as shells have it.
const EXIT_CODE_INTERRUPTED: i32 = 130;

/// Tells a graceful command that Ctrl-C was pressed.
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// Whether the next signal ends the program: so from the start, and again after a first one.
    is_final: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the handlers.
    pub fn install() -> io::Result<Interrupt> {
        let is_final = Arc::new(AtomicBool::new(true));
        // Handlers run in this order: the first looks at the flag before the second sets it (I1).
        flag::register_conditional_shutdown(SIGINT, EXIT_CODE_INTERRUPTED, Arc::clone(&is_final))?;
        flag::register(SIGINT, Arc::clone(&is_final))?;
        Ok(Interrupt { is_final })
    }

    /// From now on the first Ctrl-C only raises the flag that [`Self::is_raised`] reads.
    pub fn graceful(&self) {
        self.is_final.store(false, Ordering::SeqCst);
    }

    /// Whether Ctrl-C was pressed since [`Self::graceful`].
    pub fn is_raised(&self) -> bool {
        self.is_final.load(Ordering::SeqCst)
    }
}
