//! `lithe config`: the settings, and where each comes from.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::config::{self, FILE_VARIABLE, Resolved, Settings, Source, shown_path};
use crate::failure::{Failure, Outcome};
use crate::notation::shown;
use crate::output::{ReportFormat, Table, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe config
  lithe --db my.lithe config --format json
  lithe config path

A value is that of an option of the command line, else of a variable of the environment, else of the
file, else that of the program. The file is TOML, at LITHE_CONFIG, else in the directory lithe below
XDG_CONFIG_HOME, or ~/.config:

  db = \"~/data/my.lithe\"
  key_file = \"~/.lithe-key\"

  [shell]
  mode = \"table\"
  timer = true

  [top]
  interval = \"2s\"

Paths in it start at its directory. Secrets are not for it: key_file and passphrase_file name files
that have them, and count for the database of the file alone. What it does not know, and what makes
no sense, is an error with its line.";

/// Options of `lithe config`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfigArgs {
    /// What to print; the settings when left away.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// How the settings are written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// What to print.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Print the settings (the default)
    List,
    /// Print where the file is, or would be
    Path,
}

impl ConfigArgs {
    /// Whether it is about the path, for which the file need not make sense.
    pub fn is_path(&self) -> bool {
        matches!(self.action, Some(Action::Path))
    }
}

/// Prints the settings.
pub fn run(globals: &Globals, args: &ConfigArgs) -> Outcome {
    let mut out = stdout();
    if args.is_path() {
        let Some(path) = config::path() else {
            let what = format!("there is no home directory: set {FILE_VARIABLE}");
            return Err(Failure::usage(what));
        };
        writeln!(out, "{}", shown(&path.display().to_string()))?;
        return Ok(out.flush()?);
    }
    let settings = &globals.settings;
    match args.format {
        ReportFormat::Table => write!(out, "{}", table_of(settings))?,
        ReportFormat::Json => writeln!(out, "{}", json_line(&json_of(settings)))?,
    }
    Ok(out.flush()?)
}

fn table_of(settings: &Settings) -> Table {
    let mut table = Table::new(&["setting", "value", "from"]);
    for Resolved { setting, value, source } in &settings.list {
        let value = value.as_ref().map_or_else(|| "-".to_owned(), |value| shown(value).into());
        let from = shown(&source_text(settings, source, setting.name)).into_owned();
        table.row([setting.name.to_owned(), value, from]);
    }
    table
}

fn source_text(settings: &Settings, source: &Source, name: &str) -> String {
    match source {
        Source::CommandLine => format!("option --{}", name.replace('_', "-")),
        Source::Variable(variable) => format!("environment {variable}"),
        Source::File(line) => format!("{}: line {line}", shown_path(settings.path.as_deref())),
        Source::Default => "default".to_owned(),
    }
}

fn json_of(settings: &Settings) -> Value {
    let list = settings.list.iter().map(|Resolved { setting, value, source }| {
        let kind = match source {
            Source::CommandLine => "option",
            Source::Variable(_) => "environment",
            Source::File(_) => "file",
            Source::Default => "default",
        };
        json!({
            "setting": setting.name,
            "value": value,
            "origin": kind,
            "from": source_text(settings, source, setting.name),
            "variables": setting.variables,
        })
    });
    json!({
        "file": settings.path.as_ref().map(|path| path.display().to_string()),
        "settings": list.collect::<Vec<Value>>(),
    })
}
