//! `lithe load --table`: writes the records of an input to a table file, and to no database. One
//! that is for an encrypted database is sealed with a key of that, and has the options of its
//! keyspace.

use std::path::Path;

use lithedb::{Keyspace, KeyspaceOptions, TableWriter};

use super::{Input, LoadArgs, check_key};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text};
use crate::output::Notices;
use crate::progress::{Done, Progress};

/// Rows between two looks at the clock and at Ctrl-C.
const ROWS_PER_UPDATE: u64 = 1000;

/// Writes the table; a failure, or Ctrl-C, leaves no file.
pub(super) fn write(
    input: Input,
    (path, keyspace): (&Path, Option<&Keyspace>),
    args: &LoadArgs,
    (notices, interrupt): (Notices, &Interrupt),
    mut progress: Progress,
) -> Outcome {
    let Input::Records(mut records) = input else {
        return Err(Failure::usage("a dump is not written to a table"));
    };
    interrupt.graceful();
    let mut writer = create(path, keyspace, args)?;
    let mut rows = 0;
    while let Some(record) = records.next()? {
        rows += 1;
        check_key(rows, record.key)?;
        writer.put(record.key, record.value).map_err(|error| match error {
            lithedb::Error::InvalidArgument { what } => {
                Failure::usage(format!("record {rows}: {what}; nothing was written"))
            }
            other => other.into(),
        })?;
        if rows % ROWS_PER_UPDATE == 0 {
            progress.update(Done { rows, bytes: records.bytes_read() });
            go_on(interrupt)?;
        }
    }
    // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
    go_on(interrupt)?;
    let summary = writer.finish()?;
    progress.finish();
    let (rows, bytes) = (count_text(summary.entries), bytes_text(summary.file_bytes));
    notices.say(format!("wrote {rows} rows, {bytes}"));
    Ok(())
}

fn create(
    path: &Path,
    keyspace: Option<&Keyspace>,
    args: &LoadArgs,
) -> Result<TableWriter, Failure> {
    let Some(keyspace) = keyspace else {
        let options = KeyspaceOptions::lsm()
            .codec(args.codec.unwrap_or_default())
            .dictionary_size(args.dictionary_size.unwrap_or(0));
        return Ok(TableWriter::create(path, &options)?);
    };
    if args.codec.is_some() || args.dictionary_size.is_some() {
        let what = "a table for an encrypted database has its keyspace's options, no others";
        return Err(Failure::usage(what));
    }
    Ok(keyspace.table_writer(path)?)
}

fn go_on(interrupt: &Interrupt) -> Outcome {
    if interrupt.is_raised() { Err(Failure::Interrupted) } else { Ok(()) }
}
