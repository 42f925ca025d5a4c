//! The file with settings: TOML, of which every key has to be known.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Kind, SETTINGS, Setting, checked};
use crate::failure::Failure;

/// Names that somebody may think secrets go by (C3).
const SECRETS: &[&str] = &["key", "passphrase", "password", "secret", "token"];
/// Bytes that a file may have.
const FILE_LEN_MAX: u64 = 1 << 20;

/// What the file says.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// By name: the value, and its line.
    values: BTreeMap<&'static str, (String, u64)>,
}

impl ConfigFile {
    /// Reads the file; one that is not there says nothing, unless it was named.
    pub fn read(
        path: &Path,
        is_named: bool,
        home: Option<OsString>,
    ) -> Result<ConfigFile, Failure> {
        let failed = |source| Failure::Input { path: path.to_owned(), source };
        let text = match read_text(path) {
            Ok(text) => text,
            Err(error) if !is_named && is_absence(&error) => return Ok(ConfigFile::default()),
            Err(error) => return Err(failed(error)),
        };
        let place = Place { path, home: home.map(PathBuf::from) };
        ConfigFile::parse(&text, &place)
    }

    /// The value of a setting, and its line.
    pub fn value(&self, name: &str) -> Option<(String, u64)> {
        self.values.get(name).cloned()
    }

    fn parse(text: &str, place: &Place<'_>) -> Result<ConfigFile, Failure> {
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            place.mistake(line_of(text, at), error.message())
        })?;
        let mut file = ConfigFile::default();
        file.take_table(text, place, "", table.get_ref())?;
        Ok(file)
    }

    fn take_table(
        &mut self,
        text: &str,
        place: &Place<'_>,
        section: &str,
        table: &DeTable<'_>,
    ) -> Result<(), Failure> {
        for (key, value) in table {
            let line = line_of(text, key.span().start);
            let name = match section {
                "" => key.get_ref().to_string(),
                section => format!("{section}.{}", key.get_ref()),
            };
            let is_section = SETTINGS.iter().any(|it| it.name.starts_with(&format!("{name}.")));
            if let (DeValue::Table(inner), true) = (value.get_ref(), is_section) {
                self.take_table(text, place, &name, inner)?;
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                return Err(place.mistake(line, &unknown(&name)));
            };
            let value = value_of(setting, value, place);
            let value = value.map_err(|what| place.mistake(line, &format!("{name}: {what}")))?;
            self.values.insert(setting.name, (value, line));
        }
        Ok(())
    }
}

/// Where the text is from.
struct Place<'a> {
    path: &'a Path,
    home: Option<PathBuf>,
}

impl Place<'_> {
    fn mistake(&self, line: u64, what: &str) -> Failure {
        Failure::usage(format!("{}: line {line}: {what}", self.path.display()))
    }

    /// A path as the file means it.
    fn path_of(&self, text: &str) -> String {
        let path = match (text.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.path.parent().unwrap_or(Path::new("")).join(text),
        };
        path.to_string_lossy().into_owned()
    }
}

fn unknown(name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    if SECRETS.contains(&last) {
        return format!("{name}: secrets are not for this file; key_file names one that has it");
    }
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    format!("there is no setting {name:?}; there are {}", names.join(", "))
}

fn value_of(
    setting: &Setting,
    value: &Spanned<DeValue<'_>>,
    place: &Place<'_>,
) -> Result<String, String> {
    let text = match (setting.kind, value.get_ref()) {
        (Kind::Switch, DeValue::Boolean(is_on)) => return Ok(is_on.to_string()),
        (Kind::Switch, other) => return Err(wrong_type("true or false", other)),
        (Kind::Size | Kind::Count, DeValue::Integer(number)) if number.radix() == 10 => {
            number.as_str()
        }
        (_, DeValue::String(text)) => text.as_ref(),
        (_, other) => return Err(wrong_type("text in quotes", other)),
    };
    if text.is_empty() && setting.name != "shell.pager" {
        return Err("it is empty".to_owned());
    }
    match setting.kind {
        Kind::PathOrOff if text == "off" => Ok(text.to_owned()),
        Kind::Path | Kind::PathOrOff => Ok(place.path_of(text)),
        _ => checked(setting, text),
    }
}

fn wrong_type(expected: &str, found: &DeValue<'_>) -> String {
    format!("expected {expected}, found {}", found.type_str())
}

fn line_of(text: &str, offset: usize) -> u64 {
    let front = &text.as_bytes()[..offset.min(text.len())];
    memchr::memchr_iter(b'\n', front).count() as u64 + 1
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[expect(clippy::disallowed_methods, reason = "settings are the user's file, not the database's")]
fn read_text(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ConfigFile, Failure> {
        let home = Some(PathBuf::from("/home/ada"));
        ConfigFile::parse(text, &Place { path: Path::new("/etc/lithe/config.toml"), home })
    }

    #[test]
    fn values_are_known_with_their_lines() {
        let text = "# comment\ndb = \"data.lithe\"\nmemory = 1048576\nquiet = true\n\n[shell]\n\
                    history = \"~/lithe-history\"\nmode = \"csv\"\n[top]\ninterval = \"2s\"\n";
        let file = parsed(text).unwrap();
        let is = |name, value: &str, line| {
            assert_eq!(file.value(name), Some((value.to_owned(), line)), "{name}");
        };
        is("db", "/etc/lithe/data.lithe", 2);
        is("memory", "1048576", 3);
        is("quiet", "true", 4);
        is("shell.history", "/home/ada/lithe-history", 7);
        is("shell.mode", "csv", 8);
        is("top.interval", "2s", 10);
        assert_eq!(file.value("keyspace"), None);
        assert_eq!(parsed("shell.timer = true").unwrap().value("shell.timer").unwrap().1, 1);
    }

    #[test]
    fn mistakes_name_file_and_line() {
        for (text, line, said) in [
            ("db = 3", 1, "db: expected text in quotes, found integer"),
            ("\nquiet = \"yes\"", 2, "quiet: expected true or false, found string"),
            ("[shell]\nmode = \"xml\"", 2, "none of auto, table"),
            ("colour = \"never\"", 1, "no setting \"colour\""),
            ("[top]\ncolumns = 3", 2, "no setting \"top.columns\""),
            ("[server]\nport = 3", 1, "no setting \"server\""),
            ("db = { a = 1 }", 1, "found table"),
            ("passphrase = \"secret\"", 1, "secrets are not for this file"),
            ("memory = \"3 parsec\"", 1, "memory: a size"),
            ("db = ", 1, ""),
            ("db = \"a\"\ndb = \"b\"", 2, "duplicate key"),
        ] {
            let message = parsed(text).unwrap_err().message().unwrap();
            let place = format!("/etc/lithe/config.toml: line {line}: ");
            assert!(message.starts_with(&place), "{text}: {message}");
            assert!(message.contains(said), "{text}: {message}");
        }
    }
}
