//! Completion: what a word may become, by the definitions of the commands and by what the database
//! has.
//!
//! Invariant
//! - K1  Completing reads a bounded number of keys, and never a value.

use std::ffi::OsString;
use std::path::Path;

use clap::ArgAction;
use lithedb::{Db, KeyRange};

use super::dots::DOT_COMMANDS;
use super::line::{OWN_COMMANDS, leaf};
use super::words::{Partial, Splitter, quoted};
use crate::config::MODES;

/// Keys that are offered at most.
const KEYS_MAX: usize = 100;
/// Files that are looked at in a directory.
const FILES_MAX: usize = 1000;

/// What the database has, as far as completion wants to know.
pub trait Names {
    /// The names of its keyspaces.
    fn keyspaces(&self) -> Vec<String>;
    /// Keys that begin so, in order: so many at the most, and then the last one, so that what all
    /// have in common is what these have.
    fn keys(&self, prefix: &[u8], most: usize) -> Vec<Vec<u8>>;
}

/// A database, and the keyspace to work on.
pub struct Open {
    /// The database.
    pub db: Db,
    /// The name of the keyspace.
    pub keyspace: String,
}

impl Names for Open {
    fn keyspaces(&self) -> Vec<String> {
        self.db.keyspaces().into_iter().map(|info| info.name).collect()
    }

    fn keys(&self, prefix: &[u8], most: usize) -> Vec<Vec<u8>> {
        // What cannot be read is not offered; the command will say why.
        self.try_keys(prefix, most).unwrap_or_default()
    }
}

impl Open {
    fn try_keys(&self, prefix: &[u8], most: usize) -> lithedb::Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        let mut cursor = self.db.keyspace(&self.keyspace)?.cursor(KeyRange::prefix(prefix));
        cursor.seek_first()?;
        while cursor.valid() && keys.len() < most {
            keys.push(cursor.key().to_vec());
            cursor.next()?;
        }
        if cursor.valid() {
            cursor.seek_last()?;
            if cursor.valid() {
                keys.push(cursor.key().to_vec());
            }
        }
        Ok(keys)
    }
}

/// Something that the word may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As it is shown.
    pub shown: String,
    /// As it is put into the line.
    pub text: String,
}

/// What the word in front of the cursor may become, and where in the text it begins.
pub fn complete(root: &clap::Command, front: &str, names: &dyn Names) -> (usize, Vec<Candidate>) {
    let mut splitter = Splitter::default();
    splitter.feed(front.as_bytes());
    let Partial { words, word, offset } = splitter.partial();
    let found = match words.first().and_then(|first| first.to_str()) {
        None => plain(first_words(root), &word),
        Some(first) if first.starts_with('.') => of_dot(root, first, &word, names),
        Some("help" | "?") => plain(first_words(root), &word),
        Some("use") => plain(names.keyspaces(), &word),
        Some("expect" | "expect-absent") if words.len() == 1 => keys(&word, names),
        Some(_) => of_command(root, &words, &word, names),
    };
    (offset, found)
}

/// Those that begin as the word does, in order.
fn plain(all: impl IntoIterator<Item = impl Into<String>>, word: &[u8]) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = all
        .into_iter()
        .map(Into::<String>::into)
        .filter(|name| name.as_bytes().starts_with(word))
        .map(|name| Candidate { shown: quoted(name.as_bytes()), text: closed(name.as_bytes()) })
        .collect();
    found.sort_by(|left, right| left.shown.cmp(&right.shown));
    found.dedup();
    found
}

/// A word that is over, with the blank behind it.
fn closed(word: &[u8]) -> String {
    quoted(word) + " "
}

fn first_words(root: &clap::Command) -> Vec<String> {
    let of_program = root.get_subcommands().filter(|command| !command.is_hide_set());
    let of_program = of_program.map(|command| command.get_name().to_owned());
    let own = OWN_COMMANDS.iter().map(|(name, _)| (*name).to_owned());
    let dots = DOT_COMMANDS.iter().map(|(name, ..)| (*name).to_owned());
    of_program.chain(own).chain(dots).collect()
}

fn of_dot(root: &clap::Command, name: &str, word: &[u8], names: &dyn Names) -> Vec<Candidate> {
    match name {
        ".help" => plain(first_words(root), word),
        ".mode" => plain(MODES.iter().copied(), word),
        ".timer" | ".bail" => plain(["on", "off"], word),
        ".use" => plain(names.keyspaces(), word),
        ".open" if word.starts_with(b"-") => {
            plain(["--create", "--read-only", "--beside", "--key-file", "--passphrase"], word)
        }
        ".open" | ".read" | ".output" => files(word),
        _ => Vec::new(),
    }
}

fn of_command(
    root: &clap::Command,
    words: &[OsString],
    word: &[u8],
    names: &dyn Names,
) -> Vec<Candidate> {
    let (command, depth) = leaf(root, words);
    if depth == 0 {
        return Vec::new();
    }
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    if word.starts_with(b"-") {
        let global = root.get_arguments().filter(|argument| argument.is_global_set());
        let options = command.get_arguments().chain(global);
        let options = options
            .filter(|option| !option.is_hide_set())
            .filter_map(|option| option.get_long().map(|long| format!("--{long}")));
        return plain(options.chain(["--help".to_owned()]), word);
    }
    // The value of an option that was named last.
    if let Some(option) = words[depth..].last().and_then(|last| option_of(root, command, last)) {
        return values_of(option, word, names);
    }
    if words.len() == depth && command.has_subcommands() {
        return plain(command.get_subcommands().map(clap::Command::get_name), word);
    }
    let mut given = 0;
    let mut behind = words[depth..].iter().peekable();
    while let Some(next) = behind.next() {
        if option_of(root, command, next).is_some() {
            behind.next();
        } else if !is_option(next) {
            given += 1;
        }
    }
    let positional = command.get_positionals().nth(given);
    let positional =
        positional.or_else(|| command.get_positionals().last().filter(|last| takes_several(last)));
    positional.map(|argument| values_of(argument, word, names)).unwrap_or_default()
}

fn takes_several(argument: &clap::Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

/// The option of this name, if a value follows it.
fn option_of<'a>(
    root: &'a clap::Command,
    command: &'a clap::Command,
    word: &OsString,
) -> Option<&'a clap::Arg> {
    let name = word.to_str()?.strip_prefix("--")?;
    let mut options = command.get_arguments().chain(root.get_arguments());
    let option = options.find(|option| option.get_long() == Some(name))?;
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append).then_some(option)
}

/// What an argument may be, by what it is called.
fn values_of(argument: &clap::Arg, word: &[u8], names: &dyn Names) -> Vec<Candidate> {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return plain(shown.map(|value| value.get_name().to_owned()), word);
    }
    let id = argument.get_id().as_str();
    let value_name = argument.get_value_names().and_then(|names| names.first());
    match (id, value_name.map(clap::builder::Str::as_str)) {
        ("keyspace" | "name" | "old" | "of", _) => plain(names.keyspaces(), word),
        (_, Some("KEY")) => keys(word, names),
        (_, Some("FILE" | "DIR" | "DIRECTORY" | "TABLE" | "PATH" | "SOURCE" | "TARGET")) => {
            files(word)
        }
        ("directory" | "file" | "target" | "other" | "tables", _) => files(word),
        _ => Vec::new(),
    }
}

/// K1: some keys that begin so.
fn keys(prefix: &[u8], names: &dyn Names) -> Vec<Candidate> {
    let keys = names.keys(prefix, KEYS_MAX);
    keys.iter().map(|key| Candidate { shown: quoted(key), text: closed(key) }).collect()
}

/// Files whose path begins so; directories with their slash.
fn files(word: &[u8]) -> Vec<Candidate> {
    let Ok(word) = std::str::from_utf8(word) else { return Vec::new() };
    let (folder, start) =
        word.rsplit_once('/').map_or(("", word), |(folder, start)| (&word[..=folder.len()], start));
    let directory = if folder.is_empty() { Path::new(".") } else { Path::new(folder) };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.take(FILES_MAX).flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(start) || (name.starts_with('.') && !start.starts_with('.')) {
            continue;
        }
        let path = format!("{folder}{name}");
        found.push(match entry.path().is_dir() {
            true => Candidate { shown: name + "/", text: quoted(format!("{path}/").as_bytes()) },
            false => Candidate { shown: name, text: closed(path.as_bytes()) },
        });
    }
    found.sort_by(|left, right| left.shown.cmp(&right.shown));
    found
}

#[cfg(test)]
mod tests {
    use super::super::line::definition;
    use super::*;

    struct Few;

    impl Names for Few {
        fn keyspaces(&self) -> Vec<String> {
            vec!["default".to_owned(), "users".to_owned(), "us ed".to_owned()]
        }

        fn keys(&self, prefix: &[u8], most: usize) -> Vec<Vec<u8>> {
            let keys = ["ada", "adam", "bob", "b\n", "b c"].map(|key| key.as_bytes().to_vec());
            keys.into_iter().filter(|key| key.starts_with(prefix)).take(most).collect()
        }
    }

    fn completed(front: &str) -> (usize, Vec<String>) {
        let (offset, found) = complete(&definition(), front, &Few);
        (offset, found.into_iter().map(|candidate| candidate.text).collect())
    }

    #[test]
    fn commands_are_completed() {
        assert_eq!(completed("sc"), (0, vec!["scan ".to_owned()]));
        let (_, all) = completed("");
        for name in ["get ", "begin ", ".mode ", "keyspaces "] {
            assert!(all.contains(&name.to_owned()), "{name}");
        }
        assert!(!all.contains(&"demo ".to_owned()) && !all.contains(&"bench-child ".to_owned()));
        assert_eq!(completed("get a; comp").1, ["compact "]);
        assert_eq!(completed("keyspaces cr").1, ["create "]);
        assert_eq!(completed(".ti"), (0, vec![".timer ".to_owned()]));
        assert_eq!(completed(".timer o").1, ["off ", "on "]);
        assert_eq!(completed("help compa").1, ["compact "]);
    }

    #[test]
    fn options_and_their_values_are_completed() {
        let (offset, found) = completed("scan --re");
        assert_eq!((offset, &found[..]), (5, &["--reverse ".to_owned()][..]));
        assert!(completed("scan --k").1.contains(&"--keyspace ".to_owned()));
        assert_eq!(completed("scan --format js").1, ["json ", "jsonl "]);
        assert_eq!(completed("get --keyspace us").1, ["\"us ed\" ", "users "]);
        assert!(completed("get --db").1.is_empty());
    }

    #[test]
    fn keyspaces_and_keys_are_completed_with_what_has_to_be_escaped() {
        assert_eq!(completed(".use u").1, ["\"us ed\" ", "users "]);
        assert_eq!(completed("use d").1, ["default "]);
        assert_eq!(completed("keyspaces drop d").1, ["default "]);
        assert_eq!(completed("get ad"), (4, vec!["ada ".to_owned(), "adam ".to_owned()]));
        assert_eq!(
            completed("get \"b"),
            (4, ["bob ", "\"b\\x0a\" ", "\"b c\" "].map(String::from).into())
        );
        assert_eq!(completed("scan --from ad").1, ["ada ", "adam "]);
        assert_eq!(completed("get --format hex bo").1, ["bob "]);
        assert_eq!(completed("expect bo").1, ["bob "]);
        assert!(completed("put ada ad").1.is_empty());
    }

    #[test]
    fn keys_are_bounded_and_have_in_common_what_all_have() {
        let storage = std::sync::Arc::new(lithedb::storage::MemoryStorage::new());
        let db = Db::builder().storage(storage).open("/db").unwrap();
        let keyspace = db.keyspace_or_create("default").unwrap();
        for number in 0..1000 {
            keyspace.put(format!("user:{number:04}"), "value").unwrap();
        }
        let open = Open { db, keyspace: "default".to_owned() };
        let keys = open.keys(b"user", KEYS_MAX);
        assert_eq!(keys.len(), KEYS_MAX + 1);
        assert_eq!(keys[KEYS_MAX - 1], b"user:0099");
        assert_eq!(keys[KEYS_MAX], b"user:0999");
        assert_eq!(open.keys(b"user:099", KEYS_MAX).len(), 10);
        assert!(open.keys(b"x", KEYS_MAX).is_empty());
        let elsewhere = Open { keyspace: "no".to_owned(), ..open };
        assert!(elsewhere.keys(b"", KEYS_MAX).is_empty());
    }
}
