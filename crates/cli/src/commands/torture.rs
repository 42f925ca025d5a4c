//! `lithe torture`: kills the store and cuts the power of its disk, on the machine at hand.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lithe_sim::journal::{Entry, Journal, shell_word};
use lithe_sim::ledger::Ledger;
use lithe_sim::torture::{
    self, Campaign, Copies, Cut, Disks, FileSystem, Honesty, KILLS, POWER_CUTS, Place,
};
use lithedb::base::{Clock as _, SystemClock};

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{count_text, duration_text};
use crate::output::{Notices, stdout};

/// The hidden subcommand of the processes that are killed.
pub const CHILD_SUBCOMMAND: &str = "torture-child";

const EXAMPLES: &str = "\
Examples:
  lithe torture kill --dir /mnt/disk/torture --rounds 10000 --workers 2
  lithe torture kill --dir /tmp/canary --rounds 200 --canary
  sudo lithe torture power --image /mnt/disk/torture.img --fs xfs --rounds 1000

Nothing but what it makes itself is touched. Exit code 0: nothing was found; 4: something was, and
the database is kept as it is, with its story beside it. With --canary a mistake is planted, and it
is the other way round. Ctrl-C ends behind the round at hand, and tidies up; a second one ends at
once, and leaves directories and files.";

const KILL_EXAMPLES: &str = "\
Examples:
  lithe torture kill --dir /mnt/disk/torture --rounds 10000 --seed 7 --workers 2
  lithe torture kill --dir /dev/shm/torture --rounds 50000
  lithe torture kill --dir /tmp/canary --rounds 200 --canary

A process of its own writes to a database, flushes, compacts, converts, ingests, makes checkpoints
and all else, as the seed says, and is killed (SIGKILL) at a moment that is drawn, also while it
opens, recovers or closes. What it had said that it would do, and that was acknowledged, is held
against what is there when the database is opened again.";

const POWER_EXAMPLES: &str = "\
Examples:
  sudo lithe torture power --image /var/tmp/torture.img --fs ext4 --rounds 1000
  sudo lithe torture power --image /dev/shm/torture.img --fs xfs --rounds 1000 --workers 2
  sudo lithe torture power --image /tmp/canary.img --fs ext4 --rounds 100 --canary

As `lithe torture kill`, on a file system in a file that is mounted through a loop device, and that
is shut down at the moment that was drawn, as if the power had gone: what was not synced is lost.
Flag 2 writes nothing any more, 1 writes the journal, 0 everything. It needs root, and mkfs of the
file system.";

/// Options of `lithe torture`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TortureArgs {
    /// How
    #[command(subcommand)]
    pub action: Action,
}

/// What is done to the store.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Kill a process that works on a database, again and again
    #[command(after_help = KILL_EXAMPLES)]
    Kill(KillArgs),
    /// Cut the power of a file system with a database, again and again
    #[command(after_help = POWER_EXAMPLES)]
    Power(PowerArgs),
}

/// Options of `lithe torture kill`.
#[derive(Args, Debug)]
pub struct KillArgs {
    /// Directory for the databases; it is made if it is not there
    #[arg(long, value_name = "PATH")]
    pub dir: PathBuf,

    /// Options of both.
    #[command(flatten)]
    pub rounds: RoundArgs,
}

/// Options of `lithe torture power`.
#[derive(Args, Debug)]
pub struct PowerArgs {
    /// File for the file system; each database has one, with a number behind the name
    #[arg(long, value_name = "FILE")]
    pub image: PathBuf,

    /// Kind of the file system
    #[arg(long, value_name = "KIND")]
    pub fs: Kind,

    /// How the power is cut: 2 nothing is written, 1 the journal, 0 all [default: drawn, mostly 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub flag: Option<u8>,

    /// What else `mount -o` is told, as in data=writeback
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,

    /// Options of both.
    #[command(flatten)]
    pub rounds: RoundArgs,
}

/// Options of both ways.
#[derive(Args, Debug)]
pub struct RoundArgs {
    /// How often in all
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub rounds: u64,

    /// So often with one database, then a new one is begun
    #[arg(long, value_name = "COUNT", default_value_t = 40,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub each: u64,

    /// Decides operations, options and moments, these as far as the machine is exact
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Databases at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub workers: u8,

    /// Only the database of this number, as a finding names it
    #[arg(long, value_name = "NUMBER")]
    pub only: Option<u64>,

    /// File that the ledger is added to, line by line while it goes on [default: ledger.txt in the
    /// directory, or beside the file]
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,

    /// Keep no copy of each database as the last strike has left it; faster
    #[arg(long)]
    pub no_copies: bool,

    /// Plant a mistake, which has to be found: commits that are acknowledged and not made, or
    /// before they are synced
    #[arg(long)]
    pub canary: bool,
}

/// Kinds of file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
}

/// Options of a process that is killed.
#[derive(Args, Debug)]
pub struct ChildArgs {
    /// What it is sent to do
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    pub errand: Vec<OsString>,
}

/// Runs a campaign. What is found is printed and added to the ledger's file when it is found, what
/// was done each minute and at the end.
pub fn run(notices: Notices, interrupt: &Interrupt, args: &TortureArgs) -> Outcome {
    let (place, rounds, ledger_path) = match &args.action {
        Action::Kill(kill) => {
            (Place::Directory(kill.dir.clone()), &kill.rounds, kill.dir.join("ledger.txt"))
        }
        Action::Power(power) => {
            let mut ledger_path = power.image.clone().into_os_string();
            ledger_path.push(".ledger.txt");
            (Place::Disks(disks_of(power)), &power.rounds, ledger_path.into())
        }
    };
    let ledger_path = rounds.ledger.as_ref().unwrap_or(&ledger_path);
    let campaign = campaign_of(place, rounds)?;
    interrupt.graceful_when_terminated().map_err(|error| Failure::Other(Box::new(error)))?;
    let (journal, command) = (Arc::new(open_journal(ledger_path)?), command_line());
    let say = move |text: &str| notices.say(text);
    let ledger = journal.ledger("lithe", &command, say);
    let clock = SystemClock::new();
    journal.add(Entry::Begun, &format!("lithe {command}"));
    let done = campaign.run(&ledger, &|| interrupt.is_raised());
    let effort = effort_of(&ledger, clock.monotonic());
    let broken_off = done.as_ref().err().map(|error| format!("broken off: {error}; "));
    let broken_off = broken_off.unwrap_or_default();
    let line = format!("lithe {command}: {broken_off}{}; {effort}", ledger.line());
    journal.add(Entry::Ended, &line);
    let mut out = stdout();
    writeln!(out, "lithe {command}\n{ledger}{effort}")?;
    out.flush()?;
    let path = ledger_path.display();
    journal.finish().map_err(|error| {
        Failure::Other(format!("could not add to the ledger {path}: {error}").into())
    })?;
    let outcome = outcome_of(&ledger, rounds, interrupt, done);
    if outcome.is_ok() {
        notices.say(format_args!("added to {path}"));
    }
    outcome
}

/// How long it took, and what took it.
fn effort_of(ledger: &Ledger, elapsed: Duration) -> String {
    let strikes = ledger.counted(KILLS).max(ledger.counted(POWER_CUTS)).max(1);
    let (took, each) = (duration_text(elapsed), duration_text(elapsed.div_f64(strikes as f64)));
    format!("{took}, {each} a strike; version {}", env!("CARGO_PKG_VERSION"))
}

/// The file of the ledger, and the directory that it is in.
fn open_journal(path: &Path) -> Result<Journal, Failure> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let journal = made.and_then(|()| Journal::append_to(path));
    journal.map_err(|error| Failure::Other(format!("the ledger: {error}").into()))
}

/// What this program was called with.
fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| shell_word(&word.to_string_lossy()).into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Does what `torture` has sent this process to do.
pub fn run_child(args: ChildArgs) -> Outcome {
    torture::run_child(args.errand, Box::new(io::stdout()))
        .map_err(|no_errand| Failure::usage(format!("no errand: {:?}", no_errand.0)))
}

fn disks_of(args: &PowerArgs) -> Disks {
    Disks {
        image: args.image.clone(),
        file_system: match args.fs {
            Kind::Ext4 => FileSystem::Ext4,
            Kind::Xfs => FileSystem::Xfs,
        },
        mount_options: args.mount_options.clone(),
        cut: args.flag.map(|flag| match flag {
            0 => Cut::AllWritten,
            1 => Cut::JournalWritten,
            _ => Cut::NothingWritten,
        }),
    }
}

fn campaign_of(place: Place, args: &RoundArgs) -> Result<Campaign, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::Other(format!("could not find out where this program is: {error}").into())
    })?;
    Ok(Campaign {
        program,
        child_subcommand: CHILD_SUBCOMMAND,
        place,
        rounds: args.rounds,
        each: args.each,
        seed: args.seed,
        workers: args.workers.into(),
        only: args.only,
        honesty: if args.canary { Honesty::Planted } else { Honesty::Honest },
        copies: if args.no_copies { Copies::None } else { Copies::Kept },
    })
}

fn outcome_of(
    ledger: &Ledger,
    args: &RoundArgs,
    interrupt: &Interrupt,
    done: io::Result<()>,
) -> Outcome {
    let found = ledger.finding_count();
    let tortured = |what: String| Err(Failure::Tortured { what });
    match (args.canary, found, done) {
        (true, 1.., _) => Ok(()),
        (false, 1, _) => tortured("1 finding, as told above".to_owned()),
        (false, 2.., _) => {
            tortured(format!("{} findings, the first of them told above", count_text(found)))
        }
        (_, 0, Err(error)) => Err(Failure::Other(format!("torture: {error}").into())),
        (_, 0, Ok(())) if interrupt.is_raised() => Err(Failure::Interrupted),
        (true, 0, Ok(())) => tortured("the mistake that was planted was not found".to_owned()),
        (false, 0, Ok(())) => Ok(()),
    }
}
