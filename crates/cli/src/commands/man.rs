//! `lithe man`: the manual as man pages, one for each command.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::args::definition;
use crate::failure::{Failure, Outcome};
use crate::output::{Notices, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe man | man -l -
  lithe man get | man -l -
  lithe man --out ~/.local/share/man/man1

Without --out the page of `lithe`, or of the command that is named, is printed.";

/// Options of `lithe man`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The command whose page is printed, as in `keyspaces create`
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Vec<String>,

    /// Write all pages into this directory, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Writes the pages.
pub fn run(notices: Notices, args: &ManArgs) -> Outcome {
    let mut root = definition();
    root.build();
    if let Some(directory) = &args.out {
        let failed = |source| Failure::Write { path: directory.clone(), source };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let count = write_pages(directory, &root, "lithe")?;
        notices.say(format!("{count} pages in {}", directory.display()));
        return Ok(());
    }
    let (mut command, mut name) = (&root, "lithe".to_owned());
    for part in &args.command {
        let Some(found) = command.find_subcommand(part) else {
            return Err(Failure::usage(format!("there is no command {part:?} in `{name}`")));
        };
        (command, name) = (found, format!("{name}-{part}"));
    }
    let mut out = stdout();
    out.write_all(&page(command, &name)?)?;
    Ok(out.flush()?)
}

/// Writes the page of a command and those of the commands below it; how many.
fn write_pages(directory: &Path, command: &Command, name: &str) -> Result<u64, Failure> {
    let path = directory.join(format!("{name}.1"));
    write(&path, &page(command, name)?)?;
    let mut count = 1;
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            count += write_pages(directory, inner, &format!("{name}-{}", inner.get_name()))?;
        }
    }
    Ok(count)
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let man = clap_mangen::Man::new(command.clone()).title(name.to_owned());
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(page)
}

#[expect(clippy::disallowed_methods, reason = "a page of the manual is no file of a database")]
fn write(path: &Path, page: &[u8]) -> Outcome {
    let failed = |source| Failure::Write { path: path.to_owned(), source };
    std::fs::write(path, page).map_err(failed)
}
