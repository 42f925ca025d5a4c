//! Tests of which value counts.

use std::collections::BTreeMap;

use super::*;
use crate::args::Cli;

fn globals(line: &str) -> Globals {
    Cli::read(line.split_whitespace().map(OsString::from)).unwrap().globals
}

struct Place {
    directory: tempfile::TempDir,
    variables: BTreeMap<String, OsString>,
}

impl Place {
    fn new(file: &str) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("lithe");
        std::fs::create_dir(&folder).unwrap();
        write(&folder.join("config.toml"), file);
        let home = directory.path().as_os_str().to_owned();
        let variables = BTreeMap::from([("XDG_CONFIG_HOME".to_owned(), home)]);
        Place { directory, variables }
    }

    fn set(mut self, name: &str, value: &str) -> Place {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    fn read(&self, globals: &Globals) -> Result<Settings, Failure> {
        Settings::read_by(globals, &|name| self.variables.get(name).cloned())
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the user's")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let place = Place::new("keyspace = \"of-file\"\nmemory = \"1MiB\"\nquiet = true\n")
        .set("LITHE_KEYSPACE", "of-environment")
        .set("LITHE_MEMORY", "2MiB")
        .set("LITHE_COLOR", "");
    let mut globals = globals("lithe --db x --keyspace of-line count");
    let settings = place.read(&globals).unwrap();
    let is = |name, value: Option<&str>, source| {
        assert_eq!(settings.value(name), value, "{name}");
        assert_eq!(settings.find(name).unwrap().source, source, "{name}");
    };
    is("keyspace", Some("of-line"), Source::CommandLine);
    is("memory", Some("2MiB"), Source::Variable("LITHE_MEMORY"));
    is("quiet", Some("true"), Source::File(3));
    is("color", Some("auto"), Source::Default);
    is("shell.history", None, Source::Default);
    settings.apply(&mut globals).unwrap();
    assert_eq!((globals.keyspace.as_str(), globals.quiet), ("of-line", true));
    assert_eq!(globals.memory.unwrap().to_string(), (2 << 20).to_string());
}

#[test]
fn the_key_of_the_file_is_that_of_its_database_alone() {
    let place = Place::new("db = \"safe.lithe\"\nkey_file = \"key\"\n");
    let applied = |line| {
        let mut globals = globals(line);
        place.read(&globals).unwrap().apply(&mut globals).unwrap();
        globals
    };
    let of_file = applied("lithe count");
    let folder = place.directory.path().join("lithe");
    assert_eq!(of_file.db, Some(folder.join("safe.lithe")));
    assert_eq!(of_file.key_file, Some(folder.join("key")));
    assert!(!of_file.is_key_given());
    assert_eq!(applied("lithe --db other count").key_file, None);
    let asked = applied("lithe --passphrase count");
    assert_eq!((asked.key_file, asked.passphrase), (None, true));
}

#[test]
fn a_file_that_is_named_has_to_be_there() {
    let place = Place::new("").set(FILE_VARIABLE, "/nowhere/config.toml");
    assert_eq!(place.read(&globals("lithe count")).unwrap_err().exit_code(), 3);
    let place = Place::new("").set("XDG_CONFIG_HOME", "/nowhere");
    assert_eq!(place.read(&globals("lithe count")).unwrap().value("keyspace"), Some("default"));
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let place = Place::new("").set("LITHE_QUIET", "perhaps");
    let message = place.read(&globals("lithe count")).unwrap_err().message().unwrap();
    assert!(message.contains("LITHE_QUIET"), "{message}");
    let settings = Place::new("").set("PAGER", "").read(&globals("lithe count")).unwrap();
    assert_eq!(settings.value("shell.pager"), Some(""));
    assert_eq!(settings.find("shell.pager").unwrap().source, Source::Variable("PAGER"));
}
