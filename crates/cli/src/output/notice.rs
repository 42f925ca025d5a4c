//! Notices: what is said on standard error while the data goes to standard output. Names, keys and
//! paths in them steer no terminal (O3).

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};

use crate::notation::shown;

/// Says things on standard error, unless told to be quiet. Errors are said in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notices {
    /// Say them.
    Shown,
    /// `--quiet`.
    Silent,
}

impl Notices {
    /// Something worth knowing. An unwritable standard error is nobody's concern.
    pub fn say(self, text: impl Display) {
        if self == Notices::Shown {
            let text = text.to_string();
            let _ = writeln!(anstream::stderr(), "{}", shown(&text));
        }
    }

    /// What went wrong and what to do next.
    pub fn fail(self, message: &str, advice: Option<&str>) {
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(stderr, "{red}error:{red:#} {}", shown(message));
        if let Some(advice) = advice {
            let bold = Style::new().bold();
            let _ = writeln!(stderr, "{bold} next:{bold:#} {advice}");
        }
    }
}
