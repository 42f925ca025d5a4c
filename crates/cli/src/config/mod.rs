//! Settings: what the program does unless the command line says otherwise, and who said so.
//!
//! Invariants
//! - C1  The command line goes before the environment, that before the file, that before what the
//!   program has of itself. Each value knows where it is from.
//! - C2  A setting that is not known, or of which the value makes no sense, is an error that names
//!   the variable, or the file and the line; nothing is passed over.
//! - C3  No secret is ever a setting: only paths of files that have one.

mod file;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::args::{Color, Globals};
use crate::failure::{Failure, Outcome};
use crate::notation::{parse_duration, parse_size};
use file::ConfigFile;

/// The file, unless `XDG_CONFIG_HOME` says where files of its kind are.
const FOLDER_DEFAULT: &str = ".config";
/// Which file, below that.
const FILE_NAME: &str = "lithe/config.toml";
/// Names the file.
pub const FILE_VARIABLE: &str = "LITHE_CONFIG";

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path; in the file relative to its directory, `~/` is the home directory.
    Path,
    /// A path, or `off`.
    PathOrOff,
    /// Any text.
    Text,
    /// As in 512MiB.
    Size,
    /// As in 500ms.
    Duration,
    /// A whole number, at least 1.
    Count,
    /// true or false.
    Switch,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// A setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in the file: `section.name`, or `name` at the top.
    pub name: &'static str,
    /// Its variables of the environment, the first of which counts.
    pub variables: &'static [&'static str],
    /// What it is.
    pub kind: Kind,
    /// What it is if nobody says.
    pub default: Option<&'static str>,
}

/// Formats that `.mode` knows.
pub const MODES: &[&str] =
    &["auto", "table", "json", "jsonl", "csv", "hex", "escaped", "raw", "prometheus"];

/// All settings there are.
pub const SETTINGS: &[Setting] = &[
    setting("db", &["LITHE_DB"], Kind::Path, None),
    setting("keyspace", &["LITHE_KEYSPACE"], Kind::Text, Some("default")),
    setting("memory", &["LITHE_MEMORY"], Kind::Size, None),
    setting("read_only", &["LITHE_READ_ONLY"], Kind::Switch, Some("false")),
    setting("key_file", &[], Kind::Path, None),
    setting("passphrase_file", &[], Kind::Path, None),
    setting("quiet", &["LITHE_QUIET"], Kind::Switch, Some("false")),
    setting("color", &["LITHE_COLOR"], Kind::OneOf(&["auto", "always", "never"]), Some("auto")),
    setting("shell.mode", &["LITHE_MODE"], Kind::OneOf(MODES), Some("auto")),
    setting("shell.timer", &["LITHE_TIMER"], Kind::Switch, Some("false")),
    setting("shell.bail", &["LITHE_BAIL"], Kind::Switch, Some("false")),
    setting("shell.history", &["LITHE_HISTORY"], Kind::PathOrOff, None),
    setting("shell.pager", &["LITHE_PAGER", "PAGER"], Kind::Text, Some("less -FRX")),
    setting("top.interval", &["LITHE_TOP_INTERVAL"], Kind::Duration, Some("1s")),
    setting("serve.hosts", &["LITHE_HOSTS"], Kind::Text, None),
    setting("serve.connections", &["LITHE_SERVE_CONNECTIONS"], Kind::Count, Some("20000")),
    setting("serve.blocking_requests", &["LITHE_SERVE_BLOCKING_REQUESTS"], Kind::Count, Some("64")),
    setting("serve.slow_commands", &["LITHE_SERVE_SLOW_COMMANDS"], Kind::Count, Some("32")),
    setting("serve.body_size", &["LITHE_SERVE_BODY_SIZE"], Kind::Size, Some("64MiB")),
    setting("serve.key_size", &["LITHE_SERVE_KEY_SIZE"], Kind::Size, Some("64KiB")),
    setting("serve.value_size", &["LITHE_SERVE_VALUE_SIZE"], Kind::Size, Some("64MiB")),
    setting("serve.batch_count", &["LITHE_SERVE_BATCH_COUNT"], Kind::Count, Some("100000")),
    setting("serve.page_count", &["LITHE_SERVE_PAGE_COUNT"], Kind::Count, Some("10000")),
    setting("serve.scan_time", &["LITHE_SERVE_SCAN_TIME"], Kind::Duration, Some("60s")),
    setting("serve.snapshots", &["LITHE_SERVE_SNAPSHOTS"], Kind::Count, Some("256")),
    setting(
        "serve.snapshots_per_token",
        &["LITHE_SERVE_SNAPSHOTS_PER_TOKEN"],
        Kind::Count,
        Some("128"),
    ),
    setting(
        "serve.idempotency_time",
        &["LITHE_SERVE_IDEMPOTENCY_TIME"],
        Kind::Duration,
        Some("24h"),
    ),
    setting("serve.snapshot_time", &["LITHE_SERVE_SNAPSHOT_TIME"], Kind::Duration, Some("60s")),
    setting("serve.feeds", &["LITHE_SERVE_FEEDS"], Kind::Count, Some("256")),
    setting("serve.idle_time", &["LITHE_SERVE_IDLE_TIME"], Kind::Duration, Some("60s")),
    setting("serve.output_size", &["LITHE_SERVE_OUTPUT_SIZE"], Kind::Size, Some("64MiB")),
    setting("serve.redis_memory", &["LITHE_SERVE_REDIS_MEMORY"], Kind::Size, Some("1GiB")),
    setting("serve.pipeline_count", &["LITHE_SERVE_PIPELINE_COUNT"], Kind::Count, Some("10000")),
    setting("serve.wrong_tokens", &["LITHE_SERVE_WRONG_TOKENS"], Kind::Count, Some("10")),
    setting("serve.drain", &["LITHE_SERVE_DRAIN"], Kind::Duration, Some("10s")),
];

/// Counts are at most so large.
const COUNT_MAX: u64 = 1_000_000_000;

const fn setting(
    name: &'static str,
    variables: &'static [&'static str],
    kind: Kind,
    default: Option<&'static str>,
) -> Setting {
    Setting { name, variables, kind, default }
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An option of the command line.
    CommandLine,
    /// A variable of the environment.
    Variable(&'static str),
    /// A line of the file.
    File(u64),
    /// The program itself.
    Default,
}

/// A setting with its value.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value, if it has one.
    pub value: Option<String>,
    /// Where that is from.
    pub source: Source,
}

/// All settings with their values.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The file, if one is named or where one would be.
    pub path: Option<PathBuf>,
    /// In the order of [`SETTINGS`].
    pub list: Vec<Resolved>,
}

/// Looks up variables of the environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where the file is, or would be.
pub fn path() -> Option<PathBuf> {
    path_by(&|name| std::env::var_os(name))
}

fn path_by(environment: Environment<'_>) -> Option<PathBuf> {
    let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(FILE_VARIABLE) {
        return Some(path);
    }
    let folder = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let folder = folder.or_else(|| set("HOME").map(|home| home.join(FOLDER_DEFAULT)));
    Some(folder?.join(FILE_NAME))
}

impl Settings {
    /// Reads the environment and the file.
    pub fn read(globals: &Globals) -> Result<Settings, Failure> {
        Settings::read_by(globals, &|name| std::env::var_os(name))
    }

    fn read_by(globals: &Globals, environment: Environment<'_>) -> Result<Settings, Failure> {
        let path = path_by(environment);
        let is_named = environment(FILE_VARIABLE).is_some_and(|value| !value.is_empty());
        let file = match &path {
            Some(path) => ConfigFile::read(path, is_named, environment("HOME"))?,
            None => ConfigFile::default(),
        };
        let mut list = Vec::with_capacity(SETTINGS.len());
        for setting in SETTINGS {
            list.push(resolve(setting, globals, environment, &file)?);
        }
        Ok(Settings { path, list })
    }

    /// The setting of this name.
    pub fn find(&self, name: &str) -> Option<&Resolved> {
        self.list.iter().find(|resolved| resolved.setting.name == name)
    }

    /// Its value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.find(name)?.value.as_deref()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) == Some("true")
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        parse_duration(self.value(name)?).ok()
    }

    /// Gives the options of the command line what it does not say itself (C1).
    pub fn apply(&self, globals: &mut Globals) -> Outcome {
        for Resolved { setting, value, source } in &self.list {
            let Some(value) = value else { continue };
            if matches!(source, Source::CommandLine | Source::Default) {
                continue;
            }
            match setting.name {
                "db" if globals.db.is_none() => globals.db = Some(PathBuf::from(value)),
                "keyspace" => globals.keyspace.clone_from(value),
                "memory" => globals.memory = Some(value.parse().map_err(Failure::usage)?),
                "read_only" if !globals.beside => globals.read_only = value == "true",
                "quiet" => globals.quiet = value == "true",
                "color" => {
                    globals.color = Color::from_str(value, false).map_err(Failure::usage)?;
                }
                _ => {}
            }
        }
        self.apply_key(globals);
        Ok(())
    }

    /// The key of the file is that of the database of the file, and of no other one.
    fn apply_key(&self, globals: &mut Globals) {
        let db = self.find("db").map(|db| &db.source);
        if globals.is_key_given() || !matches!(db, Some(Source::File(_))) {
            return;
        }
        globals.key_file = self.value("key_file").map(PathBuf::from);
        globals.passphrase_file = self.value("passphrase_file").map(PathBuf::from);
    }
}

fn resolve(
    setting: &'static Setting,
    globals: &Globals,
    environment: Environment<'_>,
    file: &ConfigFile,
) -> Result<Resolved, Failure> {
    if globals.given.contains(&setting.name) {
        let value = value_of_option(setting.name, globals);
        return Ok(Resolved { setting, value, source: Source::CommandLine });
    }
    for variable in setting.variables {
        let Some(value) = environment(variable) else { continue };
        let text = value.to_string_lossy().into_owned();
        // An empty variable is as none, but of the pager, which it switches off.
        if text.is_empty() && setting.name != "shell.pager" {
            continue;
        }
        let value = checked(setting, &text)
            .map_err(|what| Failure::usage(format!("{variable} in the environment: {what}")))?;
        return Ok(Resolved { setting, value: Some(value), source: Source::Variable(variable) });
    }
    if let Some((value, line)) = file.value(setting.name) {
        return Ok(Resolved { setting, value: Some(value), source: Source::File(line) });
    }
    let value = setting.default.map(str::to_owned);
    Ok(Resolved { setting, value, source: Source::Default })
}

fn value_of_option(name: &str, globals: &Globals) -> Option<String> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    match name {
        "db" => path(&globals.db),
        "keyspace" => Some(globals.keyspace.clone()),
        "memory" => globals.memory.map(|memory| memory.to_string()),
        "read_only" => Some(globals.read_only.to_string()),
        "key_file" => path(&globals.key_file),
        "passphrase_file" => path(&globals.passphrase_file),
        "quiet" => Some(globals.quiet.to_string()),
        "color" => globals.color.to_possible_value().map(|value| value.get_name().to_owned()),
        _ => None,
    }
}

/// The value as it is kept, or what is wrong with it (C2).
pub fn checked(setting: &Setting, text: &str) -> Result<String, String> {
    match setting.kind {
        Kind::Path | Kind::PathOrOff | Kind::Text => Ok(text.to_owned()),
        Kind::Size if text == "default" => Ok(text.to_owned()),
        Kind::Size => parse_size(text).map(|_| text.to_owned()),
        Kind::Duration => match parse_duration(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(error) => Err(error.to_string()),
        },
        Kind::Count => match text.parse::<u64>() {
            Ok(1..=COUNT_MAX) => Ok(text.to_owned()),
            _ => Err(format!("{text:?} is no number from 1 to {COUNT_MAX}")),
        },
        Kind::Switch => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok("true".to_owned()),
            "0" | "false" | "no" | "off" => Ok("false".to_owned()),
            _ => Err(format!("{text:?} is neither true nor false")),
        },
        Kind::OneOf(values) if values.contains(&text) => Ok(text.to_owned()),
        Kind::OneOf(values) => Err(format!("{text:?} is none of {}", values.join(", "))),
    }
}

/// The path of the file as messages have it.
pub fn shown_path(path: Option<&Path>) -> String {
    path.map_or_else(|| "-".to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests;
