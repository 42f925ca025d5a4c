//! `lithe man`: the manual as man pages, one for each command.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::definition;
use crate::config::{FILE_VARIABLE, SETTINGS};
use crate::failure::{Failure, Outcome};
use crate::output::{Notices, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe man | man -l -
  lithe man get | man -l -
  lithe man --out ~/.local/share/man/man1

Without --out the page of `lithe`, or of the command that is named, is printed.";

/// What all pages belong to.
const MANUAL: &str = "LitheDB";
/// What parts of a help begin with that are examples.
const EXAMPLES_TITLES: [&str; 2] = ["Examples:", "Start here:"];
/// What the part begins with that has the exit codes.
const EXIT_CODES_TITLE: &str = "Exit codes:";
/// Files that the program looks for by itself.
const FILES: [(&str, &str); 2] = [
    ("$XDG_CONFIG_HOME/lithe/config.toml, ~/.config/lithe/config.toml", "Settings."),
    (
        "$XDG_STATE_HOME/lithe/history, ~/.local/state/lithe/history",
        "Lines that were typed in the shell.",
    ),
];

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
    let source = format!("lithe {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name.to_owned()).source(source).manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    write_help(&mut roff, &help_behind(command));
    write_exit_status(&mut roff);
    write_environment(&mut roff);
    write_files(&mut roff);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// The text behind the options in the help of a command.
fn help_behind(command: &Command) -> String {
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    help.map(ToString::to_string).unwrap_or_default()
}

/// Examples as they are, and paragraphs as notes.
fn write_help(roff: &mut Roff, help: &str) {
    let parts = || help.split("\n\n").filter(|part| !part.starts_with(EXIT_CODES_TITLE));
    let is_example = |part: &&str| EXAMPLES_TITLES.iter().any(|title| part.starts_with(title));
    let examples: Vec<&str> = parts().filter(is_example).collect();
    let notes: Vec<&str> = parts().filter(|part| !is_example(part) && !part.is_empty()).collect();
    for (title, parts) in [("EXAMPLES", examples), ("NOTES", notes)] {
        if parts.is_empty() {
            continue;
        }
        roff.control("SH", [title]);
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                roff.control("PP", []);
            }
            write_part(roff, part);
        }
    }
}

/// Lines that begin with blanks stay as they are.
fn write_part(roff: &mut Roff, part: &str) {
    let mut is_verbatim = false;
    for line in part.lines().filter(|line| !EXAMPLES_TITLES.contains(line)) {
        if line.starts_with(' ') != is_verbatim {
            is_verbatim = !is_verbatim;
            roff.control(if is_verbatim { "nf" } else { "fi" }, []);
        }
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    if is_verbatim {
        roff.control("fi", []);
    }
}

/// As the help of the program has them.
fn write_exit_status(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    let help = help_behind(&definition());
    let codes = help.split("\n\n").find(|part| part.starts_with(EXIT_CODES_TITLE));
    for line in codes.unwrap_or_default().lines().skip(1) {
        let (code, meaning) = line.trim().split_once(' ').unwrap_or((line, ""));
        write_item(roff, code, meaning.trim());
    }
}

fn write_environment(roff: &mut Roff) {
    roff.control("SH", ["ENVIRONMENT"]);
    write_item(roff, FILE_VARIABLE, "The file with settings.");
    for setting in SETTINGS {
        for variable in setting.variables {
            write_item(roff, variable, &format!("The setting {}.", setting.name));
        }
    }
    write_item(roff, "NO_COLOR", "Nothing is coloured, whatever it is, unless it is empty.");
}

fn write_files(roff: &mut Roff) {
    roff.control("SH", ["FILES"]);
    for (path, what) in FILES {
        write_item(roff, path, what);
    }
}

fn write_item(roff: &mut Roff, name: &str, what: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(what)]);
}

#[expect(clippy::disallowed_methods, reason = "a page of the manual is no file of a database")]
fn write(path: &Path, page: &[u8]) -> Outcome {
    let failed = |source| Failure::Write { path: path.to_owned(), source };
    std::fs::write(path, page).map_err(failed)
}
