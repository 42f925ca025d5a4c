//! Loading a dump: pairs into the keyspaces that it names.

use std::io::Write;

use lithedb::{Expiry, Keyspace, KeyspaceInfo, KeyspaceOptions};

use super::{Load, check_key};
use crate::args::{DEFAULT_KEYSPACE, Globals, Origin};
use crate::dump::{DumpReader, Item, on_line};
use crate::failure::{Failure, Outcome};
use crate::output::Notices;
use crate::progress::Done;

/// A longer value is written while it is read, in a commit of its own.
const GATHERED_MAX: u64 = 1 << 20;

/// Commits the pairs of a dump, batch by batch, up to its end or to what cannot be read.
pub fn load(
    load: &mut Load<'_>,
    mut dump: DumpReader,
    globals: &Globals,
    notices: Notices,
) -> Outcome {
    let loaded = load_pairs(load, &mut dump, globals, notices);
    load.commit_rest(dump.bytes_read(), loaded)
}

fn load_pairs(
    load: &mut Load<'_>,
    dump: &mut DumpReader,
    globals: &Globals,
    notices: Notices,
) -> Outcome {
    let is_named = globals.keyspace_origin == Origin::CommandLine;
    let into = is_named.then_some(globals.keyspace.as_str());
    let mut keyspace: Option<Keyspace> = None;
    let mut rows = load.done.rows;
    while let Some(item) = dump.next()? {
        let current = keyspace.as_ref();
        match item {
            Item::Keyspace(_, _) if into.is_some() && current.is_some() => {
                let what = "a second keyspace, and --keyspace names one for all";
                return Err(on_line(dump.line(), what));
            }
            Item::Keyspace(name, options) => {
                load.commit(Done { rows, bytes: dump.bytes_read() })?;
                let name = into.unwrap_or(&name);
                keyspace = Some(keyspace_for(load, name, options, notices)?);
            }
            Item::Pair(key, value, expiry) => {
                rows += 1;
                check_key(rows, &key)?;
                load.batch.put_until(known(current), key, value, expiry);
            }
            Item::Begin(key, len, expiry) => {
                rows += 1;
                check_key(rows, &key)?;
                if len <= GATHERED_MAX {
                    let value = gathered(dump, len)?;
                    load.batch.put_until(known(current), key, value, expiry);
                } else {
                    load.commit(Done { rows: rows - 1, bytes: dump.bytes_read() })?;
                    stream(load, known(current), (&key, len, expiry), dump)?;
                    load.committed(Done { rows, bytes: dump.bytes_read() })?;
                    load.go_on()?;
                }
            }
            Item::Piece(_) => unreachable!("pieces are read behind their beginning"),
        }
        if load.is_batch_full(rows) {
            load.commit(Done { rows, bytes: dump.bytes_read() })?;
            load.go_on()?;
        }
    }
    load.commit(Done { rows, bytes: dump.bytes_read() })?;
    // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
    load.go_on()
}

fn known(keyspace: Option<&Keyspace>) -> &Keyspace {
    keyspace.expect("a dump names a keyspace in front of pairs")
}

/// The keyspace of this name: the one that is there, or a new one with these options. One that is
/// as `create` makes it is as good as none: nobody has chosen its options.
fn keyspace_for(
    load: &Load<'_>,
    name: &str,
    options: KeyspaceOptions,
    notices: Notices,
) -> Result<Keyspace, Failure> {
    let Some(found) = load.db.keyspaces().into_iter().find(|info| info.name == name) else {
        return Ok(load.db.create_keyspace(name, options)?);
    };
    if found.options != options && is_blank(load, &found)? {
        load.db.drop_keyspace(name)?;
        return Ok(load.db.create_keyspace(name, options)?);
    }
    if found.options != options {
        notices.say(format!("keyspace {name:?} is there and keeps the options that it has"));
    }
    Ok(load.db.keyspace(name)?)
}

/// Whether it is `default` as `create` makes it.
fn is_blank(load: &Load<'_>, found: &KeyspaceInfo) -> Result<bool, Failure> {
    if found.name != DEFAULT_KEYSPACE || found.options != KeyspaceOptions::default() {
        return Ok(false);
    }
    let keyspace = load.db.keyspace(&found.name)?;
    let is_plain = !found.has_own_key && keyspace.indexes()?.is_empty();
    Ok(is_plain && keyspace.count::<&[u8]>(..)? == 0)
}

fn gathered(dump: &mut DumpReader, len: u64) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::with_capacity(len as usize);
    while (value.len() as u64) < len {
        value.extend_from_slice(&next_piece(dump)?);
    }
    Ok(value)
}

fn stream(
    load: &Load<'_>,
    keyspace: &Keyspace,
    (key, len, expiry): (&[u8], u64, Expiry),
    dump: &mut DumpReader,
) -> Outcome {
    let mut writer = keyspace.put_writer(key)?;
    writer.set_expiry(expiry);
    while writer.len() < len {
        writer.write_all(&next_piece(dump)?).map_err(Failure::of_value)?;
    }
    writer.commit_with(load.durability())?;
    Ok(())
}

fn next_piece(dump: &mut DumpReader) -> Result<Vec<u8>, Failure> {
    match dump.next()? {
        Some(Item::Piece(bytes)) => Ok(bytes),
        _ => unreachable!("while bytes are missing, a dump gives pieces or a failure"),
    }
}
