//! A line of the shell as a command of the program: the same definitions, without the options that
//! are for opening a database.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, CommandFactory, Parser};

use super::words::Words;
use crate::args::{Command, with_examples};
use crate::failure::Failure;

/// A command as it is typed in the shell.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_version_flag = true, max_term_width = 100)]
pub struct Line {
    /// Options for all commands.
    #[command(flatten)]
    pub options: LineOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command of the shell has.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub struct LineOptions {
    /// Keyspace to work on, for this command [default: that of `.use`]
    #[arg(long, global = true, value_name = "NAME")]
    pub keyspace: Option<String>,

    /// Say nothing but errors, and show no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// Commands of the program that make no sense within the shell, and why.
const NOT_INSIDE: &[(&str, &str)] = &[
    ("create", "a database is open; `.open --create PATH` makes another one and opens it"),
    ("demo", "it opens a database of its own: run `lithe demo` outside"),
    ("serve", "it opens the database for itself: run `lithe serve` outside"),
    ("bench", "it measures stores of its own: run `lithe bench` outside"),
    ("torture", "it works on databases of its own: run `lithe torture` outside"),
    ("completions", "it is for shells of the system: run `lithe completions` outside"),
];

/// What the shell knows beside the commands of the program: for help and completion.
pub const OWN_COMMANDS: &[(&str, &str)] = &[
    ("begin", "Begin a transaction: reads see one moment and what it has written"),
    ("commit", "Commit the transaction, all of it or nothing"),
    ("rollback", "Undo the transaction, or forget the batch"),
    ("expect", "In a transaction: undo it unless KEY has this VALUE"),
    ("expect-absent", "In a transaction: undo it unless KEY is not there"),
    ("payload", "In a transaction or batch: keep this TEXT with the commit"),
    ("batch", "Begin a batch: writes that are done together, at its end"),
    ("end", "Commit the batch, all of it or nothing"),
    ("use", "Choose the keyspace to work on, as .use"),
    ("help", "List the commands, or explain one, as .help"),
    ("exit", "Leave, as .quit"),
];

/// Why a command of this name is not run here.
pub fn refusal(name: &str) -> Option<&'static str> {
    NOT_INSIDE.iter().find(|(refused, _)| *refused == name).map(|(_, why)| *why)
}

/// The definition of all commands as the shell has them.
pub fn definition() -> clap::Command {
    with_examples(Line::command())
        .mut_subcommands(|command| match refusal(command.get_name()) {
            Some(_) => command.hide(true),
            None => command,
        })
        .disable_help_subcommand(true)
}

/// The words with the format of `.mode`, where the command has it and none is named.
pub fn with_mode(root: &clap::Command, words: &[OsString], mode: &str) -> Words {
    let (command, depth) = leaf(root, words);
    let is_named = |word: &OsString| {
        word.to_str().is_some_and(|word| word == "--format" || word.starts_with("--format="))
    };
    let format = command.get_arguments().find(|argument| argument.get_id() == "format");
    let (Some(format), false) = (format, words.iter().any(is_named)) else { return words.to_vec() };
    // What `load` reads is another matter.
    if mode == "auto" || depth == 0 || command.get_name() == "load" {
        return words.to_vec();
    }
    let values = format.get_possible_values();
    let has = |name: &str| values.iter().any(|value| value.matches(name, false));
    let near = match mode {
        "json" => ["json", "jsonl"],
        "jsonl" => ["jsonl", "json"],
        mode => [mode, mode],
    };
    let Some(name) = near.into_iter().find(|name| has(name)) else { return words.to_vec() };
    let mut words = words.to_vec();
    words.insert(depth, format!("--format={name}").into());
    words
}

/// The command that the first words name, and how many they are.
pub fn leaf<'a>(root: &'a clap::Command, words: &[OsString]) -> (&'a clap::Command, usize) {
    let (mut command, mut depth) = (root, 0);
    while let Some(inner) = words
        .get(depth)
        .and_then(|word| word.to_str())
        .and_then(|word| command.get_subcommands().find(|inner| inner.get_name() == word))
    {
        (command, depth) = (inner, depth + 1);
    }
    (command, depth)
}

/// What is said of a command that is not known.
pub fn unknown(root: &clap::Command, name: &str) -> Failure {
    let is_known = root.get_subcommands().any(|command| command.get_name() == name);
    let what = if is_known { "such action of" } else { "command" };
    let next = match similar_in(root, name).filter(|_| !is_known) {
        Some(similar) => format!("is it `{similar}`?"),
        None => "help lists what there is".to_owned(),
    };
    Failure::usage(format!("there is no {what} `{name}`; {next}"))
}

/// The command of the program whose name is nearly this one.
pub fn similar_command(path: &Path) -> Option<String> {
    similar_in(&crate::args::definition(), path.to_str()?)
}

fn similar_in(root: &clap::Command, name: &str) -> Option<String> {
    let names = root.get_subcommands().filter(|it| !it.is_hide_set()).map(clap::Command::get_name);
    let nearest = names.min_by_key(|candidate| distance(name, candidate))?;
    let is_near = name.len() > 2 && distance(name, nearest) <= mistakes_max(name);
    is_near.then(|| nearest.to_owned())
}

/// Mistakes in a name by which another one is still likely to be meant: in `foo` one, not the two
/// that it is away from `top`.
fn mistakes_max(name: &str) -> usize {
    if name.len() < 5 { 1 } else { 2 }
}

/// How many characters have to be put in, left out, changed, or exchanged with the next one
/// (V. Levenshtein, F. Damerau; nothing is changed twice).
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let (mut before, mut row) = (Vec::new(), (0..=right.len()).collect::<Vec<usize>>());
    for above in 0..left.len() {
        let mut next = vec![above + 1];
        for at in 0..right.len() {
            let changed = row[at] + usize::from(left[above] != right[at]);
            let mut least = changed.min(row[at + 1] + 1).min(next[at] + 1);
            let is_pair = above > 0 && at > 0;
            if is_pair && left[above] == right[at - 1] && left[above - 1] == right[at] {
                least = least.min(before[at - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_consistent_and_has_no_options_for_opening() {
        definition().debug_assert();
        let read = |line: &str| Line::try_parse_from(words(line));
        let line = read("get --keyspace users a").unwrap();
        assert_eq!(line.options.keyspace.as_deref(), Some("users"));
        for refused in ["get a --db x", "get a --read-only", "--key-file k get a", "nope"] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_mode_is_a_format_where_the_command_has_it() {
        let root = definition();
        let with = |line: &str, mode: &str| {
            let words = with_mode(&root, &words(line), mode);
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(with("scan --limit 3", "csv"), "scan --format=csv --limit 3");
        assert_eq!(with("scan --format hex", "csv"), "scan --format hex");
        assert_eq!(with("count", "csv"), "count");
        assert_eq!(with("count", "jsonl"), "count --format=json");
        assert_eq!(with("changes", "json"), "changes --format=jsonl");
        assert_eq!(with("scan", "auto"), "scan");
        assert_eq!(with("put a b", "json"), "put a b");
        assert_eq!(with("load words.txt", "csv"), "load words.txt");
        assert_eq!(with("consumers", "json"), "consumers --format=jsonl");
    }

    #[test]
    fn a_name_that_is_nearly_a_command_is_found() {
        let similar = |name: &str| similar_command(Path::new(name));
        assert_eq!(similar("cuont").as_deref(), Some("count"));
        assert_eq!(similar("scann").as_deref(), Some("scan"));
        assert_eq!(similar("gte").as_deref(), Some("get"));
        assert_eq!(similar("keyspcaes").as_deref(), Some("keyspaces"));
        assert_eq!(similar("keyspase").as_deref(), Some("keyspaces"));
        assert_eq!(similar("foo"), None, "`top` is another word");
        assert_eq!(similar("my.lithe"), None);
        assert_eq!(similar("x"), None);
    }

    #[test]
    fn commands_of_the_shell_are_none_of_the_program() {
        let root = definition();
        for (name, _) in OWN_COMMANDS {
            assert!(root.find_subcommand(name).is_none(), "{name}");
        }
    }
}
