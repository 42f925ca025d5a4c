//! `lithe rekey`: another key or passphrase for an encrypted database.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use lithedb::Db;

use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::keys::{Ask, KeyOptions};
use crate::notation::bytes_text;
use crate::output::Notices;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe --key-file old-key rekey --new-key-file new-key
  lithe --db my.lithe --passphrase rekey --new-passphrase
  lithe --db my.lithe --key-fd 3 rekey --new-passphrase-fd 4 3< key 4< phrase
  lithe --db my.lithe --key-file key rekey --data

The database is opened with the new one from then on, and not with the old one any more. Only the
small file with the database's own keys is written, not the data: it takes as long for any size.
Whoever has copied that file before, and has the old key, has the database's own keys: `--data`
makes a new one, and writes all data anew. Ctrl-C ends that after the slice at hand; it is gone on
with by the next `--data`. Checkpoints that were made before are opened with the old one.";

/// Options of `lithe rekey`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RekeyArgs {
    /// File with the new key: 32 bytes, or 64 hexadecimal digits; nobody else may read it
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,

    /// Descriptor that the new key is read from
    #[arg(long, value_name = "NUMBER")]
    pub new_key_fd: Option<u32>,

    /// Variable of the environment with the new key, as 64 hexadecimal digits
    #[arg(long, value_name = "NAME")]
    pub new_key_env: Option<String>,

    /// Ask for the new passphrase on the terminal
    #[arg(long)]
    pub new_passphrase: bool,

    /// File whose first line is the new passphrase; nobody else may read it
    #[arg(long, value_name = "FILE")]
    pub new_passphrase_file: Option<PathBuf>,

    /// Descriptor whose first line is the new passphrase
    #[arg(long, value_name = "NUMBER")]
    pub new_passphrase_fd: Option<u32>,

    /// Make a new key for the data as well, and write everything anew
    #[arg(long)]
    pub data: bool,
}

/// Gives it the new one.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &RekeyArgs,
) -> Outcome {
    let options = KeyOptions {
        file: args.new_key_file.as_ref(),
        descriptor: args.new_key_fd,
        variable: args.new_key_env.as_ref(),
        prompt: args.new_passphrase,
        passphrase_file: args.new_passphrase_file.as_ref(),
        passphrase_descriptor: args.new_passphrase_fd,
    };
    let new = options.source()?;
    if new.is_none() && !args.data {
        return Err(Failure::usage("name the new key or passphrase, or say `--data`"));
    }
    let db = open_existing(globals)?;
    if !db.is_encrypted() {
        let what = "the database is not encrypted, so that it has no key to be changed: load a \
                    dump of it into one that is";
        return Err(Failure::usage(what));
    }
    if let Some(new) = new {
        db.rekey(&new.read("the database from now on", Ask::Twice)?)?;
        notices.say("the database is opened with the new key from now on");
    }
    if !args.data && db.is_data_key_rotating() {
        notices.say("the data has two keys: `rekey --data` goes on with giving it the newer one");
    }
    let outcome = if args.data { rotate(&db, notices, interrupt) } else { Ok(()) };
    close(&db)?;
    outcome
}

/// Gives the data a new key.
fn rotate(db: &Db, notices: Notices, interrupt: &Interrupt) -> Outcome {
    interrupt.graceful();
    let report = db.rotate_data_key_while(|_| match interrupt.is_raised() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    if report.is_cancelled {
        return Err(Failure::Interrupted);
    }
    let written = bytes_text(report.bytes_written + report.value_bytes_moved);
    notices.say(format!("key {}: {written} written anew", report.key));
    for file in &report.files_left {
        notices.say(format!("{} has an older key still", file.display()));
    }
    Ok(())
}
