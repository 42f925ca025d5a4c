//! `lithe completions`: completion scripts for shells.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::args::definition;
use crate::failure::Outcome;
use crate::output::stdout;

const EXAMPLES: &str = "\
Examples:
  lithe completions bash > ~/.local/share/bash-completion/completions/lithe
  lithe completions zsh > ~/.zfunc/_lithe
  lithe completions fish > ~/.config/fish/completions/lithe.fish";

/// Options of `lithe completions`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Outcome {
    // Made in memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "lithe", &mut script);
    let mut out = stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
