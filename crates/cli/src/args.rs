//! The command line: options for all commands, and the list of commands. The options of one
//! command are beside its code.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use lithe_bench::Memory;
use lithedb::{Db, Encryption};

use crate::commands;
use crate::config::Settings;
use crate::demo::DemoArgs;
use crate::failure::Failure;
use crate::keys::{Ask, KeyOptions, KeySource};
use crate::notation::shown;
use crate::shell::{ShellArgs, similar_command};

/// An embedded, ordered, transactional key-value store.
#[derive(Debug, Parser)]
#[command(
    name = "lithe",
    version,
    after_help = "`lithe DB` opens the shell. `lithe COMMAND --help` shows examples.",
    after_long_help = EXIT_CODES,
    override_usage = "lithe [OPTIONS] COMMAND\n       lithe [OPTIONS] DB [-c COMMANDS | -f FILE]",
    max_term_width = 100
)]
pub struct Cli {
    /// Options for all commands.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do; without it the shell is opened.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How the shell begins.
    #[command(flatten)]
    pub shell: ShellArgs,
}

const EXIT_CODES: &str = "\
Start here:
  lithe demo                                   what the store does, on real data, in ten seconds
  lithe --db my.lithe put greeting hello
  lithe --db my.lithe get greeting
  lithe my.lithe                               the shell: the same commands, one after the other

Data goes to standard output, everything else to standard error.

Exit codes:
  0    done
  1    the key or the keyspace was not found; databases differ
  2    wrong usage: arguments, or input that cannot be loaded
  3    input or output failed, the disk is full, or the database is locked
  4    bytes on disk are damaged; `torture` has found something
  130  interrupted

`lithe COMMAND --help` shows examples.";

const BENCH_EXAMPLES: &str = "\
Examples:
  lithe bench --quick
  lithe bench W3 W4 --keys 1000000
  lithe bench W1 --memory 256MiB";

const VERSION_EXAMPLES: &str = "\
Examples:
  lithe version
  lithe version | head -1
  lithe --version";

/// The keyspace of those who name none.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Options for all commands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Directory of the database
    #[arg(short, long, global = true, env = "LITHE_DB", value_name = "PATH")]
    pub db: Option<PathBuf>,

    /// Keyspace to work on
    #[arg(long, global = true, value_name = "NAME", default_value = DEFAULT_KEYSPACE)]
    pub keyspace: String,

    /// Memory that the store may use, as in 512MiB [default: a quarter of what there is]
    // `bench` has an option of this name too: one name must be one type.
    #[arg(long, global = true, value_name = "SIZE")]
    pub memory: Option<Memory>,

    /// Change nothing on disk; commands that only read never do, and run beside each other
    #[arg(long, global = true)]
    pub read_only: bool,

    /// Read beside another program that writes to the database, as of now
    #[arg(long, global = true, conflicts_with = "read_only")]
    pub beside: bool,

    /// File with the key of an encrypted database: 32 bytes, or 64 hexadecimal digits
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Descriptor that the key is read from
    #[arg(long, global = true, value_name = "NUMBER")]
    pub key_fd: Option<u32>,

    /// Variable of the environment with the key, as 64 hexadecimal digits
    #[arg(long, global = true, value_name = "NAME")]
    pub key_env: Option<String>,

    /// Ask for the passphrase of an encrypted database, on the terminal
    #[arg(long, global = true)]
    pub passphrase: bool,

    /// File whose first line is the passphrase
    #[arg(long, global = true, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,

    /// Descriptor whose first line is the passphrase
    #[arg(long, global = true, value_name = "NUMBER")]
    pub passphrase_fd: Option<u32>,

    /// Say nothing but errors, and show no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Colours: auto, always, never; auto means on terminals, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub color: Color,

    /// Where the path of the database comes from.
    #[arg(skip)]
    pub db_origin: Origin,

    /// Where the name of the keyspace comes from.
    #[arg(skip)]
    pub keyspace_origin: Origin,

    /// What the command line says, by the names of options.
    #[arg(skip)]
    pub given: Vec<&'static str>,

    /// What the environment and the file with settings say.
    #[arg(skip)]
    pub settings: Settings,

    /// The database that a session has open.
    #[arg(skip)]
    pub held: Option<Db>,

    /// What the key options lead to, once it was read: descriptors can be read once.
    #[arg(skip)]
    pub encryption: OnceCell<Encryption>,
}

impl Globals {
    /// Where the key is, if one is named.
    pub fn key_source(&self) -> Result<Option<KeySource>, Failure> {
        let options = KeyOptions {
            file: self.key_file.as_ref(),
            descriptor: self.key_fd,
            variable: self.key_env.as_ref(),
            prompt: self.passphrase,
            passphrase_file: self.passphrase_file.as_ref(),
            passphrase_descriptor: self.passphrase_fd,
        };
        options.source()
    }

    /// Refuses a key: what a command makes is not encrypted, and nobody should think that it is.
    pub fn refuse_key(&self, why: &str) -> Result<(), Failure> {
        match self.key_source()? {
            Some(_) if self.is_key_given() => Err(Failure::usage(why)),
            _ => Ok(()),
        }
    }

    /// Whether the command line names a key, not only the file with settings.
    pub fn is_key_given(&self) -> bool {
        KEY_OPTIONS.iter().any(|option| self.given.contains(option))
    }

    /// The key or passphrase, if one is named.
    pub fn encryption(&self, ask: Ask) -> Result<Option<Encryption>, Failure> {
        if let Some(encryption) = self.encryption.get() {
            return Ok(Some(encryption.clone()));
        }
        let Some(source) = self.key_source()? else { return Ok(None) };
        let encryption = source.read("the database", ask)?;
        Ok(Some(self.encryption.get_or_init(|| encryption).clone()))
    }
}

/// The options that name a key or a passphrase.
const KEY_OPTIONS: [&str; 6] =
    ["key_file", "key_fd", "key_env", "passphrase", "passphrase_file", "passphrase_fd"];
/// The others that may be given for all commands.
const OTHER_OPTIONS: [&str; 7] =
    ["db", "keyspace", "memory", "read_only", "beside", "quiet", "color"];

/// Where the value of an option comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The user means it for this command.
    CommandLine,
    /// The environment, or nowhere: the default.
    #[default]
    Elsewhere,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// In any case
    Always,
    /// Never
    Never,
}

/// What `lithe` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what the store does, on a real data set that comes with the program
    Demo(DemoArgs),
    /// Create an empty database, which may be encrypted
    Create(commands::create::CreateArgs),
    /// Load lines, CSV, TSV, NDJSON or a dump from a file or standard input
    Load(crate::load::LoadArgs),
    /// Make table files part of a keyspace, all or none
    Ingest(commands::ingest::IngestArgs),
    /// Print the value of a key
    Get(commands::get::GetArgs),
    /// Store a value under a key, durably
    Put(commands::put::PutArgs),
    /// Merge an operand into the value of a key, durably and without reading it
    Merge(commands::merge::MergeArgs),
    /// Delete a key or a range of keys, durably
    Delete(commands::delete::DeleteArgs),
    /// Set when a key expires, durably
    Expire(commands::expire::ExpireArgs),
    /// Run a script of writes as one transaction
    Tx(commands::tx::TxArgs),
    /// Print keys and values in order
    Scan(commands::scan::ScanArgs),
    /// Count keys, exactly
    Count(commands::count::CountArgs),
    /// Work out a count, a sum or an extreme of a range
    Reduce(commands::reduce::ReduceArgs),
    /// Print how many keys are below a key
    Rank(commands::rank::RankArgs),
    /// Print the entry with so many keys below it
    Select(commands::rank::SelectArgs),
    /// Write pairs and options of keyspaces in a form that `load` reads back, to the byte
    Dump(commands::dump::DumpArgs),
    /// Show pairs to people: keys, values as far as they fit, sizes, times
    View(commands::view::ViewArgs),
    /// Print what another database has differently
    Diff(commands::diff::DiffArgs),
    /// Print what happened to a key, in a keyspace that keeps versions
    History(commands::history::HistoryArgs),
    /// Make keys what they were, in a keyspace that keeps versions
    Restore(commands::restore::RestoreArgs),
    /// Print the commits that the log still has
    Commits(commands::commits::CommitsArgs),
    /// Print what commits have written, in order
    Changes(commands::changes::ChangesArgs),
    /// List, create and remove those who follow the changes by a name
    Consumers(commands::consumers::ConsumersArgs),
    /// List the secondary indexes of a keyspace
    Indexes(commands::index::IndexesArgs),
    /// Create, drop, build and scan secondary indexes
    Index(commands::index::IndexArgs),
    /// List, create, drop and rename keyspaces
    Keyspaces(commands::keyspaces::KeyspacesArgs),
    /// Give a keyspace another structure or other options
    Convert(commands::convert::ConvertArgs),
    /// List the tables of an lsm keyspace, level by level
    Tables(commands::tables::TablesArgs),
    /// Show sizes, amplifications, memory and work done
    Stats(commands::stats::StatsArgs),
    /// Consolidate, and give back what overwritten and deleted entries take
    Compact(commands::compact::CompactArgs),
    /// Give back all room that is not needed
    Vacuum(commands::vacuum::VacuumArgs),
    /// Make backups in a directory or as streams, list, verify, restore and remove them
    Backup(commands::backup::BackupArgs),
    /// Make a copy of the whole database, which shares its files where it can
    Checkpoint(commands::checkpoint::CheckpointArgs),
    /// Give an encrypted database another key or passphrase
    Rekey(commands::rekey::RekeyArgs),
    /// Bring the files of the database to the newest format version
    Upgrade(commands::upgrade::UpgradeArgs),
    /// Verify every checksum and every structure of the database
    Check(commands::check::CheckArgs),
    /// Make a new database of what can be read of a damaged one, and list what is lost
    Repair(commands::repair::RepairArgs),
    /// Serve the database over HTTP and the Redis protocol
    Serve(commands::serve::ServeArgs),
    /// Make, list and remove the tokens of a server
    Token(commands::token::TokenArgs),
    /// Ask a server whether it is ready
    Health(commands::health::HealthArgs),
    /// Show what is in a file of a database, piece by piece, also if it is damaged
    Inspect(commands::inspect::InspectArgs),
    /// Work on a flexible space: a file whose bytes can be inserted and removed in the middle
    Space(commands::space::SpaceArgs),
    /// Watch the database at work: throughput, latency, amplification, memory, jobs
    Top(commands::top::TopArgs),
    /// Print the settings, and where each comes from
    Config(commands::config::ConfigArgs),
    /// Measure the store with standard workloads
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(lithe_bench::BenchArgs),
    /// A step of `bench`, which runs each in a process of its own
    #[command(name = lithe_bench::CHILD_SUBCOMMAND, hide = true)]
    BenchChild(lithe_bench::ChildArgs),
    /// Kill the store, and cut the power of its disk, again and again, and see what is there
    Torture(commands::torture::TortureArgs),
    /// A process of `torture`, which it kills
    #[command(name = commands::torture::CHILD_SUBCOMMAND, hide = true)]
    TortureChild(commands::torture::ChildArgs),
    /// Print a completion script for a shell
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual as man pages
    Man(commands::man::ManArgs),
    /// Print the version
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
}

/// The definition of the command line.
pub fn definition() -> clap::Command {
    with_examples(Cli::command())
}

/// A definition in which commands below others have the examples of these, if they have none.
pub fn with_examples(root: clap::Command) -> clap::Command {
    root.mut_subcommands(|command| {
        let Some(help) = command.get_after_help().cloned() else { return command };
        command.mut_subcommands(|inner| match inner.get_after_help() {
            None => inner.after_help(help.clone()),
            Some(_) => inner,
        })
    })
}

/// The first word that is neither an option nor the value of one in front of commands.
fn first_word<'a>(root: &clap::Command, arguments: &'a [OsString]) -> Option<&'a str> {
    let mut arguments = arguments.iter().skip(1);
    while let Some(argument) = arguments.next() {
        let argument = argument.to_str()?;
        let option = |is: &dyn Fn(&clap::Arg) -> bool| root.get_arguments().find(|it| is(it));
        let named = match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
            (Some(""), _) => return arguments.next()?.to_str(),
            (Some(long), _) => option(&|it| it.get_long() == Some(long)),
            (None, Some(short)) if short.chars().count() == 1 => {
                option(&|it| it.get_short().is_some_and(|name| short.starts_with(name)))
            }
            // With its value, as in `-dPATH`.
            (None, Some(short)) if !short.is_empty() => None,
            _ => return Some(argument),
        };
        if named.is_some_and(|option| option.get_action().takes_values()) {
            arguments.next();
        }
    }
    None
}

/// A name that is not known is the mistake, not what stands behind it.
fn explained(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let mut root = definition();
    let name = first_word(&root, arguments);
    let Some(name) = name.filter(|name| !std::path::Path::new(name).exists()) else { return error };
    if error.exit_code() == 0 || root.find_subcommand(name).is_some() || name == "help" {
        return error;
    }
    let similar = similar_command(std::path::Path::new(name));
    let similar = similar.map(|similar| format!("; is it `{similar}`?")).unwrap_or_default();
    let what = format!("{} is neither a command nor a database{similar}", shown(name));
    root.error(clap::error::ErrorKind::InvalidSubcommand, what)
}

impl Cli {
    /// Reads the command line, or says what is wrong with it.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let matches = definition().try_get_matches_from(&arguments);
        let matches = matches.map_err(|error| explained(error, &arguments))?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        let origin = |name| match matches.value_source(name) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            _ => Origin::Elsewhere,
        };
        cli.globals.db_origin = origin("db");
        cli.globals.keyspace_origin = origin("keyspace");
        let is_given = |name: &&'static str| origin(*name) == Origin::CommandLine;
        let options = KEY_OPTIONS.into_iter().chain(OTHER_OPTIONS);
        cli.globals.given = options.filter(is_given).collect();
        if cli.command.is_some() && cli.shell.is_for_shell() {
            let what = "DB, -c, -f and --bail are for the shell: with a command use --db";
            return Err(definition().error(clap::error::ErrorKind::ArgumentConflict, what));
        }
        Ok(cli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_stand_before_and_behind_the_command() {
        for line in ["lithe --db x --keyspace k -q count", "lithe count -q --db x --keyspace k"] {
            let globals = read(line).unwrap().globals;
            assert_eq!(globals.db, Some(PathBuf::from("x")));
            let origins = (globals.db_origin, globals.keyspace_origin);
            assert_eq!(origins, (Origin::CommandLine, Origin::CommandLine));
            assert_eq!((globals.keyspace.as_str(), globals.quiet), ("k", true));
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "lithe get",
            "lithe nope nope",
            "lithe my.lithe get a",
            "lithe -c scan get a",
            "lithe my.lithe -c scan -f file",
            "lithe --memory 3parsec count",
        ] {
            assert_eq!(read(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn the_memory_of_the_benchmark_is_the_one_of_all_commands() {
        for line in ["lithe --memory 64MiB bench", "lithe bench --memory 64MiB"] {
            let cli = read(line).unwrap();
            let Some(Command::Bench(args)) = cli.command else {
                panic!("{line} is another command");
            };
            assert_eq!(args.memory, Some(Memory::Bytes(64 << 20)));
            assert_eq!(cli.globals.memory, args.memory);
        }
    }

    #[test]
    fn every_command_has_three_examples() {
        let mut without = Vec::new();
        let mut left: Vec<clap::Command> = definition().get_subcommands().cloned().collect();
        while let Some(mut command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            let help = command.render_long_help().to_string();
            let examples = help.lines().filter(|line| is_example(line)).count();
            if examples < 3 && !command.is_hide_set() {
                without.push(format!("{}: {examples}", command.get_name()));
            }
        }
        assert!(without.is_empty(), "{without:?}");
    }

    fn is_example(line: &str) -> bool {
        let command = line.strip_prefix("  ").filter(|command| !command.starts_with(' '));
        command.is_some_and(|command| {
            command.split([' ', '(']).any(|word| word == "lithe") && !command.starts_with('-')
        })
    }
}
