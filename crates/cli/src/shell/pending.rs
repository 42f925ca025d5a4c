//! Transactions and batches of a session: what commands do between `begin` and `commit`, and
//! between `batch` and `end`.
//!
//! Invariants
//! - T1  What a transaction has written is seen by its own reads and by nobody else, until it is
//!   committed. A batch is seen by nobody until its end.
//! - T2  In a script, one of which a command has failed is not committed, but undone (S3): what
//!   stands between the two lines happens as a whole. Who types sees the failure, and decides.
//!   A key that `get` does not find is an answer, not a failure.
//! - T3  Keyspaces are not part of either: one that is written to and is not there is created at
//!   once, which is told, and stays. What the transaction has done so far is then done again, as of
//!   the same moment: see `begun`.

use lithedb::{Db, Error, Expiry, KeyRange, Keyspace, WriteBatch};

use super::begun::{Begun, Lasting, Step};
use crate::args::{Command, Globals};
use crate::commands::count::print_count;
use crate::commands::delete::{DeleteArgs, Target};
use crate::commands::expire::ExpireArgs;
use crate::commands::get::{self, Behind, GetArgs};
use crate::commands::merge::MergeArgs;
use crate::commands::put::{PutArgs, read_value};
use crate::commands::scan::ScanArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Columns, Notices, Row, RowWriter, Surface, stdout};

/// What was begun and is not over.
#[derive(Debug, Default)]
pub enum Pending {
    /// Nothing.
    #[default]
    Nothing,
    /// A transaction.
    Transaction(Box<Begun>),
    /// A batch.
    Batch(Box<WriteBatch>),
}

/// Where commands of a transaction or batch work.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The options, with the keyspace to work on.
    pub globals: &'a Globals,
    /// The database.
    pub db: &'a Db,
    /// Ends long walks.
    pub interrupt: &'a Interrupt,
    /// Says that a keyspace was made.
    pub notices: Notices,
}

/// Entries that are counted between two looks at Ctrl-C.
const COUNTED_AT_ONCE: u64 = 4096;

impl Pending {
    /// Whether there is something.
    pub fn is_something(&self) -> bool {
        !matches!(self, Pending::Nothing)
    }

    /// Whether it is a transaction that has come to nothing already.
    pub fn is_undone(&self) -> bool {
        matches!(self, Pending::Transaction(begun) if !begun.is_open())
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Pending::Nothing => "nothing",
            Pending::Transaction(_) => "transaction",
            Pending::Batch(_) => "batch",
        }
    }

    /// Runs a command as a part of it; gives back one that has nothing to do with it.
    pub fn run(&mut self, command: Command, place: Place<'_>) -> Result<Option<Command>, Failure> {
        if has_no_part(&command) {
            return Ok(Some(command));
        }
        match self {
            Pending::Nothing => return Ok(Some(command)),
            Pending::Transaction(begun) => run_in_transaction(begun, command, place)?,
            Pending::Batch(batch) => run_in_batch(batch, command, place)?,
        }
        Ok(None)
    }

    /// Has a payload kept with the commit.
    pub fn set_payload(&mut self, payload: Vec<u8>) -> Outcome {
        match self {
            Pending::Nothing => return Err(nothing_is_begun("payload")),
            Pending::Transaction(begun) => begun.take(Step::Payload(payload))?,
            Pending::Batch(batch) => batch.set_payload(payload),
        }
        Ok(())
    }

    /// Goes on only if the key has this value, or is not there.
    pub fn expect(&mut self, (key, expected): (&[u8], Option<&[u8]>), place: Place<'_>) -> Outcome {
        let Pending::Transaction(begun) = self else {
            return Err(Failure::usage("`expect` is for a transaction: `begin` begins one"));
        };
        let keyspace = place.keyspace()?;
        begun.note(Step::Read(keyspace.clone(), key.to_vec()));
        if begun.transaction().get(&keyspace, key)?.as_deref() == expected {
            return Ok(());
        }
        begun.rollback();
        let what = "the key is not as expected: the transaction is undone".to_owned();
        Err(Failure::NotFound { what })
    }
}

/// What a command says that needs one.
pub fn nothing_is_begun(command: &str) -> Failure {
    let what = format!("`{command}` is for a transaction or batch: `begin` or `batch` begins one");
    Failure::usage(what)
}

/// Commands that neither read nor write keys.
fn has_no_part(command: &Command) -> bool {
    match command {
        Command::Keyspaces(args) => args.is_list(),
        Command::Stats(_)
        | Command::Tables(_)
        | Command::Inspect(_)
        | Command::Config(_)
        | Command::Top(_)
        | Command::Version => true,
        _ => false,
    }
}

fn run_in_transaction(begun: &mut Begun, command: Command, place: Place<'_>) -> Outcome {
    match command {
        Command::Get(args) => get_in(begun, &args, place),
        Command::Scan(args) => scan_in(begun, &args, place),
        Command::Count(args) => {
            let keyspace = place.keyspace()?;
            let count = match args.range.key_range()? {
                Some(range) => count_in(begun, &keyspace, range, place.interrupt)?,
                None => 0,
            };
            print_count(count, args.format)
        }
        Command::Put(args) => {
            let (key, value) = read_pair(&args)?;
            let lasting = match (args.ttl, args.expires) {
                (Some(ttl), _) => Lasting::For(ttl),
                (None, Some(time)) => Lasting::Until(time.into()),
                (None, None) => Lasting::AsUsual,
            };
            let keyspace = keyspace_for(begun, place)?;
            Ok(begun.take(Step::Put(keyspace, key, value, lasting))?)
        }
        Command::Merge(args) => {
            let (key, operand) = args.key_and_operand()?;
            Ok(begun.take(Step::Merge(place.keyspace()?, key, operand))?)
        }
        Command::Expire(args) => expire_in(begun, &args, place),
        Command::Delete(args) => {
            let target = confirmed_target(&args, place)?;
            let keyspace = place.keyspace()?;
            Ok(begun.take(match target {
                Target::Key(key) => Step::Delete(keyspace, key),
                Target::Range(range) => Step::DeleteRange(keyspace, range),
            })?)
        }
        _ => Err(takes_no_part("a transaction", "get, scan, count, put, merge, expire, delete")),
    }
}

/// The keyspace that a transaction is to write to.
fn keyspace_for(begun: &mut Begun, place: Place<'_>) -> Result<Keyspace, Failure> {
    match place.keyspace() {
        Err(Error::KeyspaceNotFound { .. }) if begun.is_open() => {
            let keyspace = place.keyspace_or_create()?;
            begun.begin_again(place.db)?; // T3.
            Ok(keyspace)
        }
        found => Ok(found?),
    }
}

fn run_in_batch(batch: &mut WriteBatch, command: Command, place: Place<'_>) -> Outcome {
    match command {
        Command::Put(args) => {
            let (key, value) = read_pair(&args)?;
            let keyspace = place.keyspace_or_create()?;
            match (args.ttl, args.expires) {
                (Some(ttl), _) => batch.put_with_ttl(&keyspace, key, value, ttl),
                (None, Some(time)) => batch.put_until(&keyspace, key, value, time),
                (None, None) => batch.put(&keyspace, key, value),
            }
        }
        Command::Merge(args) => merge_in_batch(batch, &args, place)?,
        Command::Delete(args) => {
            let target = confirmed_target(&args, place)?;
            let keyspace = place.keyspace()?;
            match target {
                Target::Key(key) => batch.delete(&keyspace, key),
                Target::Range(range) => batch.delete_range(&keyspace, (range.start, range.end)),
            }
        }
        _ => return Err(takes_no_part("a batch", "put, merge, delete")),
    }
    Ok(())
}

fn takes_no_part(of: &str, what: &str) -> Failure {
    let end = if of == "a batch" { "`end`" } else { "`commit`" };
    Failure::usage(format!("in {of} there are {what}: {end} or `rollback` ends it first"))
}

fn read_pair(args: &PutArgs) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    Ok((key, read_value(&args.value, args.value_format)?))
}

fn merge_in_batch(batch: &mut WriteBatch, args: &MergeArgs, place: Place<'_>) -> Outcome {
    let (key, operand) = args.key_and_operand()?;
    batch.merge(&place.keyspace()?, key, operand);
    Ok(())
}

fn confirmed_target(args: &DeleteArgs, place: Place<'_>) -> Result<Target, Failure> {
    let target = args.target()?;
    args.confirm(&target, place.globals)?;
    Ok(target)
}

impl Place<'_> {
    fn keyspace(&self) -> Result<Keyspace, Error> {
        self.db.keyspace(&self.globals.keyspace)
    }

    /// T3: one that is made is told, as it stays.
    fn keyspace_or_create(&self) -> Result<Keyspace, Error> {
        match self.keyspace() {
            Err(Error::KeyspaceNotFound { name }) => {
                let made = self.db.keyspace_or_create(&name)?;
                self.notices.say(format!("made the keyspace {name:?}, which a rollback leaves"));
                Ok(made)
            }
            found => found,
        }
    }
}

fn get_in(begun: &mut Begun, args: &GetArgs, place: Place<'_>) -> Outcome {
    if args.at.is_some() {
        return Err(Failure::usage("a transaction sees one moment: leave --at out"));
    }
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let keyspace = place.keyspace()?;
    begun.note(Step::Read(keyspace.clone(), key.clone()));
    match begun.transaction().get_entry(&keyspace, &key)? {
        Some(entry) => {
            let place = (Surface::of_stdout(), Behind::LineEnd);
            get::write_entry(&mut stdout(), &entry, args, place)
        }
        None => Err(get::not_found(place.globals, args)),
    }
}

fn scan_in(begun: &mut Begun, args: &ScanArgs, place: Place<'_>) -> Outcome {
    if args.at.is_some() {
        return Err(Failure::usage("a transaction sees one moment: leave --at out"));
    }
    let keyspace = place.keyspace()?;
    let columns = Columns { values: !args.keys_only, stamps: args.stamps, expiry: args.expiry };
    let mut rows = RowWriter::new(stdout(), args.format, columns, Surface::of_stdout());
    if let Some(range) = args.range.key_range()? {
        begun.note(Step::Walk(keyspace.clone(), range.clone()));
        let transaction = begun.transaction();
        let mut cursor = transaction.cursor(&keyspace, range)?;
        match args.reverse {
            false => cursor.seek_first()?,
            true => cursor.seek_last()?,
        }
        let mut left = args.limit.unwrap_or(u64::MAX);
        while left > 0 && cursor.valid() {
            let value = if columns.values { Some(cursor.value()?.to_vec()) } else { None };
            let expiry = match columns.expiry {
                true => transaction.expiry(&keyspace, cursor.key())?,
                false => None,
            };
            let stamp = columns.stamps.then(|| cursor.seqno());
            rows.write(Row { key: cursor.key(), value: value.as_deref(), stamp, expiry })?;
            left -= 1;
            match args.reverse {
                false => cursor.next()?,
                true => cursor.prev()?,
            }
        }
    }
    rows.finish()?;
    Ok(())
}

fn count_in(
    begun: &mut Begun,
    keyspace: &Keyspace,
    range: KeyRange,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    begun.note(Step::Walk(keyspace.clone(), range.clone()));
    let mut cursor = begun.transaction().cursor(keyspace, range)?;
    cursor.seek_first()?;
    let mut count = 0;
    while cursor.valid() {
        count += 1;
        if count % COUNTED_AT_ONCE == 0 && interrupt.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        cursor.next()?;
    }
    Ok(count)
}

fn expire_in(begun: &mut Begun, args: &ExpireArgs, place: Place<'_>) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let keyspace = place.keyspace()?;
    begun.note(Step::Read(keyspace.clone(), key.clone()));
    let Some(value) = begun.transaction().get(&keyspace, &key)? else {
        let what = format!("{:?} is not in keyspace {:?}", args.key, place.globals.keyspace);
        return Err(Failure::NotFound { what });
    };
    let lasting = match (args.when.ttl, args.when.at) {
        (Some(ttl), _) => Lasting::For(ttl),
        (None, Some(time)) => Lasting::Until(time.into()),
        (None, None) => Lasting::Until(Expiry::Never),
    };
    Ok(begun.take(Step::Put(keyspace, key, value.to_vec(), lasting))?)
}
