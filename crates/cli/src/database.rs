//! Opening the database that the command line names, or taking the one that a session has open.

use std::ops::Deref;
use std::path::Path;

use lithe_bench::Memory;
use lithedb::{Access, Builder, Db, FollowUpTo, Follower, Keyspace, OpenExisting};

use crate::args::Globals;
use crate::failure::{Failure, Outcome};
use crate::keys::Ask;

/// A database that a command works on. It is a [`Db`]; [`close`] closes it, unless it belongs to a
/// session that goes on.
#[derive(Clone, Debug)]
pub struct Opened {
    db: Db,
    owner: Owner,
}

/// Whose a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Command,
    Session,
}

impl Opened {
    /// One that the command has opened.
    pub fn by_command(db: Db) -> Opened {
        Opened { db, owner: Owner::Command }
    }

    /// One that a session keeps open.
    pub fn by_session(db: Db) -> Opened {
        Opened { db, owner: Owner::Session }
    }

    /// The database, for whoever keeps it.
    pub fn into_db(self) -> Db {
        self.db
    }
}

impl Deref for Opened {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// What a command does with a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads it, beside others who do: nothing on disk is changed, not even what a crash has left.
    Read,
    /// Changes one that exists, alone.
    Change,
    /// The same; one that does not exist is created.
    Make,
}

/// Opens the database to be read; it must exist: reading never creates one.
pub fn open_to_read(globals: &Globals) -> Result<Opened, Failure> {
    open(globals, database_path(globals)?, Purpose::Read)
}

/// Opens the database to be changed; it must exist.
pub fn open_existing(globals: &Globals) -> Result<Opened, Failure> {
    open(globals, database_path(globals)?, Purpose::Change)
}

/// Opens the database, or creates it.
pub fn open_or_create(globals: &Globals) -> Result<Opened, Failure> {
    open(globals, database_path(globals)?, Purpose::Make)
}

/// Opens the database at `path` with the options of the command line.
pub fn open(globals: &Globals, path: &Path, purpose: Purpose) -> Result<Opened, Failure> {
    if let Some(held) = &globals.held
        && globals.db.as_deref() == Some(path)
    {
        return Ok(Opened::by_session(held.clone()));
    }
    if globals.beside {
        if purpose == Purpose::Make {
            return Err(Failure::usage("with --beside nothing can be written: leave it out"));
        }
        // Until it is closed, what it shows is there, as of now.
        return Ok(Opened::by_command(follow(globals, path)?.db()));
    }
    let is_made = purpose == Purpose::Make && !exists(path)?;
    let ask = if is_made { Ask::Twice } else { Ask::Once };
    Ok(Opened::by_command(builder_asking(globals, purpose, ask)?.open(path)?))
}

/// Reads the database at `path` beside whoever writes it.
pub fn follow(globals: &Globals, path: &Path) -> Result<Follower, Failure> {
    let builder = builder_asking(globals, Purpose::Read, Ask::Once)?;
    Ok(builder.follow(path, FollowUpTo::Written)?)
}

/// Whether there is a database in the directory, by what its log is in.
pub fn exists(path: &Path) -> Result<bool, Failure> {
    let log = path.join("wal");
    log.try_exists().map_err(|source| Failure::Input { path: log, source })
}

/// The options of the command line.
pub fn builder(globals: &Globals, purpose: Purpose) -> Result<Builder, Failure> {
    if globals.beside {
        return Err(Failure::usage("this cannot be done --beside another program: leave it out"));
    }
    builder_asking(globals, purpose, Ask::Once)
}

fn builder_asking(globals: &Globals, purpose: Purpose, ask: Ask) -> Result<Builder, Failure> {
    let builder = plain_builder(globals, purpose);
    Ok(match globals.encryption(ask)? {
        Some(encryption) => builder.encryption(encryption),
        None => builder,
    })
}

/// The options of the command line but the key.
pub fn plain_builder(globals: &Globals, purpose: Purpose) -> Builder {
    let existing = match purpose {
        Purpose::Read | Purpose::Change => OpenExisting::Only,
        Purpose::Make => OpenExisting::OrCreate,
    };
    let is_reading = purpose == Purpose::Read || globals.read_only || globals.beside;
    let access = if is_reading { Access::ReadOnly } else { Access::ReadWrite };
    let builder = Db::builder().existing(existing).access(access);
    match globals.memory {
        Some(Memory::Bytes(bytes)) => builder.memory_budget(bytes),
        _ => builder,
    }
}

/// Whether a key is needed for the database in the directory.
pub fn is_encrypted(path: &Path) -> Result<bool, Failure> {
    let keyring = path.join("KEYRING");
    keyring.try_exists().map_err(|source| Failure::Input { path: keyring, source })
}

/// The database and the keyspace to read, or to change; both must exist.
pub fn open_keyspace(globals: &Globals, purpose: Purpose) -> Result<(Opened, Keyspace), Failure> {
    let db = open(globals, database_path(globals)?, purpose)?;
    let keyspace = db.keyspace(&globals.keyspace)?;
    Ok((db, keyspace))
}

/// The database and the keyspace to write; both are created when they do not exist.
pub fn open_or_create_keyspace(globals: &Globals) -> Result<(Opened, Keyspace), Failure> {
    let db = open_or_create(globals)?;
    let keyspace = db.keyspace_or_create(&globals.keyspace)?;
    Ok((db, keyspace))
}

/// Closes the database, so that a failure in doing so is reported. That of a session stays open.
pub fn close(db: &Opened) -> Outcome {
    if db.owner == Owner::Command {
        db.close()?;
    }
    Ok(())
}

/// Where the command line says that the database is.
pub fn database_path(globals: &Globals) -> Result<&Path, Failure> {
    globals
        .db
        .as_deref()
        .filter(|path| !path.as_os_str().is_empty())
        .ok_or_else(|| Failure::usage("no database named: use --db PATH or set LITHE_DB"))
}
