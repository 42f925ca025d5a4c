//! `lithe consumers`: who follows the changes by a name.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use lithedb::ConsumerInfo;
use serde_json::{Value, json};

use crate::args::Globals;
use crate::confirm::{Yes, confirm};
use crate::database::{Opened, close, open_existing, open_to_read};
use crate::failure::Outcome;
use crate::notation::{bytes_text, parse_size};
use crate::output::{Notices, Table, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe consumers
  lithe --db my.lithe consumers create mirror --log-max 1GiB
  lithe --db my.lithe changes --consumer mirror --acknowledge
  lithe --db my.lithe consumers remove mirror --yes

The log is kept from where the slowest of them is. One that is further behind than its bound is
lost: it has to be removed, and to begin anew with a copy of what there is.";

/// Bytes of the log that are kept for a consumer unless said otherwise.
const LOG_MAX: &str = "1GiB";

/// Options of `lithe consumers`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConsumersArgs {
    /// What to do with them; listed when left away.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// How the list is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ConsumersFormat,
}

/// How the list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConsumersFormat {
    /// A table
    Table,
    /// One object per line: `name`, `done`, `bytes_behind`, `log_max`, `is_lost`
    Jsonl,
}

/// What to do with consumers.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List them (the default)
    List,
    /// Add one: what is committed from now on is kept for it
    Create {
        /// Its name
        name: String,
        /// How much of the log is kept for it at most
        #[arg(long, value_name = "SIZE", default_value = LOG_MAX, value_parser = parse_log_max)]
        log_max: u64,
    },
    /// Remove one
    Remove {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// A consumer for whom nothing is kept is lost with the next commit.
fn parse_log_max(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("of a log that is not kept nothing can be read: say a size".to_owned()),
        size => Ok(size),
    }
}

/// Does what was asked for.
pub fn run(globals: &Globals, notices: Notices, args: ConsumersArgs) -> Outcome {
    match args.action.unwrap_or(Action::List) {
        Action::List => {
            let db = open_to_read(globals)?;
            let mut out = stdout();
            match args.format {
                ConsumersFormat::Table => write!(out, "{}", table_of(&db.consumers()?))?,
                ConsumersFormat::Jsonl => {
                    for consumer in db.consumers()? {
                        writeln!(out, "{}", json_line(&json_of(&consumer)))?;
                    }
                }
            }
            Ok(out.flush()?)
        }
        Action::Create { name, log_max } => {
            let db = open_existing(globals)?;
            db.create_consumer(&name, log_max)?;
            done(&db, notices, &format!("created consumer {name:?}"))
        }
        Action::Remove { name, yes } => {
            confirm(&format!("this forgets how far consumer {name:?} is"), Yes(yes))?;
            let db = open_existing(globals)?;
            db.remove_consumer(&name)?;
            done(&db, notices, &format!("removed consumer {name:?}"))
        }
    }
}

fn done(db: &Opened, notices: Notices, text: &str) -> Outcome {
    close(db)?;
    notices.say(text);
    Ok(())
}

fn table_of(consumers: &[ConsumerInfo]) -> Table {
    let mut table = Table::new(&["name", ">done", ">behind", ">kept at most", "state"]);
    for consumer in consumers {
        table.row([
            consumer.name.escape_debug().to_string(),
            consumer.done.to_string(),
            bytes_text(consumer.bytes_behind),
            bytes_text(consumer.log_max),
            if consumer.is_lost { "lost" } else { "ok" }.to_owned(),
        ]);
    }
    table
}

fn json_of(consumer: &ConsumerInfo) -> Value {
    json!({
        "name": consumer.name,
        "done": consumer.done.to_string(),
        "bytes_behind": consumer.bytes_behind,
        "log_max": consumer.log_max,
        "is_lost": consumer.is_lost,
    })
}
