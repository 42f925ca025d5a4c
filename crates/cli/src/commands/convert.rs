//! `lithe convert`: gives a keyspace another structure, or other options.

use std::ops::ControlFlow;

use clap::Args;
use lithedb::{Conversion, ConversionReport, Db, Error, Keyspace, KeyspaceOptions, Structure};

use super::keyspaces::{OptionArgs, StructureName};
use crate::args::Globals;
use crate::confirm::{Yes, confirm};
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text};
use crate::output::Notices;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe convert events --structure lsm --codec zstd
  lithe --db my.lithe convert events --structure flex --interval-size 64KiB
  lithe --db my.lithe convert users --structure history --keep-for 30d
  lithe --db my.lithe convert prices --structure flex --yes

What is not said stays as it is, as far as the structure has it. The merge operator cannot be
changed. All keys and small values are read and written once; large values stay where they are. The
past of what is converted to structure history begins with that, and which versions are kept from
then on is said with it: for what has this structure already, --keep-for and --keep-versions cannot
be changed. What is converted from it loses all versions but the present ones, which has to be
confirmed by --yes. Ctrl-C ends it after the slice at hand, with exit code 130: the keyspace is as
it was. A second one ends it at once, which loses nothing: what was made is removed when the
database is opened next.";

/// Options of `lithe convert`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConvertArgs {
    /// The keyspace
    pub name: String,

    /// How it is to store its data
    #[arg(long, value_name = "STRUCTURE")]
    pub structure: StructureName,

    /// Do not ask when all versions but the present ones are lost by it
    #[arg(long)]
    pub yes: bool,

    /// Its other options.
    #[command(flatten)]
    pub options: OptionArgs,
}

/// Converts, and says what that came to.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &ConvertArgs,
) -> Outcome {
    let db = open_existing(globals)?;
    let (keyspace, now) = find(&db, &args.name)?;
    let options = args.options.add_to(with_what_stays(&now, args.structure))?;
    let mut loses_versions = args.yes;
    if now.structure == Structure::History && options.structure != now.structure {
        let name = &args.name;
        confirm(&format!("this loses all versions of keyspace {name:?}"), Yes(args.yes))?;
        loses_versions = true;
    }
    interrupt.graceful();
    let mut conversion = Conversion::to(options);
    conversion.loses_versions = loses_versions;
    let report = convert(&keyspace, conversion, (notices, interrupt))?;
    close(&db)?;
    let (entries, written) = (count_text(report.entries), bytes_text(report.bytes_written));
    if report.is_cancelled {
        notices.say(format!("{entries} entries were copied; the keyspace is as it was"));
        return Err(Failure::Interrupted);
    }
    let begins = report.begins_at.map(|stamp| format!("; its past begins with {stamp}"));
    let begins = begins.unwrap_or_default();
    notices.say(format!("{entries} entries copied, {written} written{begins}"));
    Ok(())
}

fn find(db: &Db, name: &str) -> Result<(Keyspace, KeyspaceOptions), Error> {
    let keyspace = db.keyspace(name)?;
    let info = db.keyspaces().into_iter().find(|info| info.id == keyspace.id());
    let missing = || Error::KeyspaceNotFound { name: name.to_owned() };
    Ok((keyspace, info.ok_or_else(missing)?.options))
}

fn convert(
    keyspace: &Keyspace,
    conversion: Conversion,
    (notices, interrupt): (Notices, &Interrupt),
) -> Result<ConversionReport, Failure> {
    let mut progress = Progress::start(notices, None);
    let report = keyspace.convert_while(conversion, |so_far| {
        // Of what is left only the number of entries is known.
        let mean = so_far.bytes / so_far.entries.max(1);
        progress.update_work((so_far.bytes, so_far.bytes_written), so_far.entries_left * mean);
        match interrupt.is_raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    progress.finish();
    Ok(report?)
}

/// The options of a keyspace, as far as one of the structure has them.
fn with_what_stays(now: &KeyspaceOptions, structure: StructureName) -> KeyspaceOptions {
    let mut options = structure.defaults();
    if options.structure == now.structure {
        return now.clone();
    }
    options.codec = now.codec;
    options.memtable_size = now.memtable_size;
    options.value_separation = now.value_separation;
    options.merge_operator.clone_from(&now.merge_operator);
    options.ttl = now.ttl;
    options
}
