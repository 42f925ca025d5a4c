//! Transactions: commands that are queued by `MULTI`, and done in one transaction of the engine.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use lithedb::{Error, SeqNo};

use super::NO_ROOM;
use super::call::{Call, Done, Failure, STEPS_MAX, View, Written, say};
use super::commands::about;
use super::databases::{DATABASE_COUNT, Handles, stripe_of};
use super::frame::{Args, FrameLimits};
use super::glob::Steps;
use super::number::integer;
use super::reply::Reply;
use super::session::{Session, TRY_COUNT, commit, is_said, make_way};
use super::table::{self, AT_ONCE, MAKES, Run, Spec};
use crate::room::{Room, Taken as RoomTaken};
use crate::server::Shared;

const NO_ARGS: Args<'static> = Args::new(&[], &[]);
/// What a queued argument takes besides its bytes, and what a command does.
const OVERHEAD: usize = 8;
const COMMAND_OVERHEAD: usize = 128;
/// What a watched key takes besides its bytes.
const WATCH_OVERHEAD: usize = 128;
/// A transaction of more commands takes long.
const QUICK_COUNT_MAX: usize = 16;
/// What is counted by walking in a transaction, which sees what it has written itself.
const COUNTS: [&str; 4] = ["zcount", "zlexcount", "zrank", "zrevrank"];
/// What a transaction may write, as a multiple of what a command may be long: some commands write
/// more than they say, as an `APPEND` does.
const WRITTEN_FACTOR: usize = 4;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    held: RoomTaken,
    /// Whether one of them was refused: then none is done.
    pub is_bad: bool,
    /// The database that will be chosen when the next one is done.
    pub database: usize,
}

struct Queued {
    spec: &'static Spec,
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Queued {
    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.places)
    }
}

impl Queue {
    pub fn of(database: usize) -> Queue {
        Queue { database, ..Queue::default() }
    }

    pub fn count(&self) -> usize {
        self.commands.len()
    }

    fn is_slow(&self) -> bool {
        let is_slow = |command: &Queued| {
            command.spec.is_slow(command.args()) || COUNTS.contains(&command.spec.name)
        };
        self.commands.len() > QUICK_COUNT_MAX || self.commands.iter().any(is_slow)
    }

    /// Queues a command, if there is room for it.
    pub fn push(
        &mut self,
        spec: &'static Spec,
        args: Args<'_>,
        (limits, room): (&FrameLimits, &Room),
    ) -> Done {
        let len = args.iter().map(<[u8]>::len).sum::<usize>();
        let size = len + args.count() * OVERHEAD + COMMAND_OVERHEAD;
        if self.bytes + size > limits.frame || self.commands.len() >= limits.arguments {
            self.is_bad = true;
            return say("ERR the transaction is larger than it may be");
        }
        if self.held.hold(room, self.bytes + size).is_err() {
            self.is_bad = true;
            return say(NO_ROOM);
        }
        self.bytes += size;
        self.database = chosen(spec, args).unwrap_or(self.database);
        let (bytes, places) = (Vec::with_capacity(len), Vec::with_capacity(args.count()));
        let mut queued = Queued { spec, bytes, places };
        for arg in args.iter() {
            let start = queued.bytes.len() as u32;
            queued.bytes.extend_from_slice(arg);
            queued.places.push((start, queued.bytes.len() as u32));
        }
        self.commands.push(queued);
        Ok(())
    }

    /// The databases that commands are done in or write to, from this one on.
    fn databases(&self, database: usize) -> impl Iterator<Item = usize> {
        let named = self.commands.iter().flat_map(|queued| {
            let (spec, args) = (queued.spec, queued.args());
            // It may be the one that is chosen then, which is in it anyway.
            let other = spec.elsewhere(args, DATABASE_COUNT).map(|(other, _)| other);
            chosen(spec, args).into_iter().chain(other)
        });
        std::iter::once(database).chain(named)
    }

    /// The databases that are written to, whether collections may be made in them, and the stripes
    /// of all keys.
    fn needs(&self, mut database: usize) -> ([Option<bool>; DATABASE_COUNT], Vec<usize>) {
        let mut databases = [None; DATABASE_COUNT];
        let mut stripes = Vec::new();
        for command in &self.commands {
            let (spec, args) = (command.spec, command.args());
            database = chosen(spec, args).unwrap_or(database);
            if spec.writes() {
                let makes = databases[database].get_or_insert(false);
                *makes |= spec.has(MAKES);
                stripes.extend(spec.changed_keys_of(args).map(|key| stripe_of(database, key)));
            }
            if let Some((other, key)) = spec.elsewhere(args, database) {
                databases[other] = Some(true); // It may be a collection.
                stripes.push(stripe_of(other, key));
            }
        }
        (databases, stripes)
    }
}

/// The database that a command chooses.
fn chosen(spec: &Spec, args: Args<'_>) -> Option<usize> {
    let number = (spec.name == "select").then(|| integer(args.at(1))).flatten()?;
    usize::try_from(number).ok().filter(|number| *number < DATABASE_COUNT)
}

/// Keys of databases whose change makes `EXEC` do nothing, as they were.
#[derive(Debug, Default)]
pub struct Watches {
    keys: HashMap<(usize, Vec<u8>), Option<SeqNo>>,
    bytes: usize,
    held: RoomTaken,
}

/// The keyspaces of databases, taken before a transaction begins.
struct Taken<'a> {
    shared: &'a Shared,
    all: [Option<Handles>; DATABASE_COUNT],
}

impl Taken<'_> {
    fn new(shared: &Shared) -> Taken<'_> {
        Taken { shared, all: [const { None }; DATABASE_COUNT] }
    }

    fn take(&mut self, database: usize) {
        let handles = || self.shared.redis.databases.at(database).handles();
        self.all[database].get_or_insert_with(handles);
    }

    /// A command on keys of a database, and perhaps of another one.
    fn call<'c>(
        &'c self,
        (database, other): (usize, Option<usize>),
        args: Args<'c>,
        view: &'c mut View,
        out: &'c mut Reply,
    ) -> Result<Call<'c>, Failure> {
        let (shared, steps) = (self.shared, Steps(STEPS_MAX));
        let other = other.and_then(|other| Some((other, self.all[other].as_ref()?)));
        match &self.all[database] {
            Some(handles) => Ok(Call { args, out, view, handles, shared, database, other, steps }),
            None => say("ERR the database is not there"),
        }
    }
}

impl Session {
    /// Whether a command may take so long that it has to wait for its turn among such.
    pub fn takes_long(&self, args: Args<'_>) -> bool {
        let spec = table::find(args.at(0)).filter(|spec| spec.takes(args.count()));
        let Some(spec) = spec.filter(|_| self.principal.is_some()) else { return false };
        match &self.queue {
            Some(queue) if spec.name == "exec" => self.is_slow_queue(queue, &self.watches),
            Some(_) if !spec.has(AT_ONCE) => false,
            _ => spec.is_slow(args),
        }
    }

    fn is_slow_queue(&self, queue: &Queue, watches: &Watches) -> bool {
        !queue.is_bad && (queue.is_slow() || watches.keys.len() > QUICK_COUNT_MAX)
    }

    /// `EXEC`.
    pub fn execute_queue(&mut self, out: &mut Reply) -> Done {
        let Some(queue) = self.queue.take() else { return say("ERR EXEC without MULTI") };
        let watches = std::mem::take(&mut self.watches);
        if queue.is_bad {
            return say("EXECABORT Transaction discarded because of previous errors.");
        }
        let is_slow = self.is_slow_queue(&queue, &watches);
        let database = self.database;
        let mark = out.mark();
        let mut work = || {
            let done = match self.try_queue(&queue, &watches, out) {
                Err(Failure::Engine(Error::KeyspaceNotFound { .. })) => {
                    // It was dropped past this: what there is now is looked at.
                    out.back_to(mark);
                    self.refresh();
                    self.choose(database);
                    self.try_queue(&queue, &watches, out)
                }
                done => done,
            };
            if done.is_err() {
                self.choose(database);
            }
            done
        };
        match is_slow {
            true => tokio::task::block_in_place(work),
            false => work(),
        }
    }

    fn try_queue(&mut self, queue: &Queue, watches: &Watches, out: &mut Reply) -> Done {
        let shared = Arc::clone(&self.shared);
        let (db, databases) = (shared.store.db(), &shared.redis.databases);
        let (needs, stripes) = queue.needs(self.database);
        for (database, makes) in needs.into_iter().enumerate() {
            match makes {
                None => {}
                Some(true) => databases.for_collections(db, database)?,
                Some(false) => databases.for_writing(db, database)?,
            }
        }
        let _held = databases.hold(stripes);
        let (mark, database, began) = (out.mark(), self.database, shared.store.began().elapsed());
        for conflicts in 0..TRY_COUNT {
            make_way(conflicts);
            self.choose(database);
            let mut taken = Taken::new(&shared);
            watches.keys.keys().for_each(|(database, _)| taken.take(*database));
            queue.databases(database).for_each(|database| taken.take(database));
            let mut view = View::transaction(db);
            for ((database, key), stamp) in &watches.keys {
                let call = taken.call((*database, None), NO_ARGS, &mut view, out)?;
                if call.stamp(key)? != *stamp {
                    out.null_array();
                    return Ok(());
                }
            }
            out.array(queue.count());
            for command in &queue.commands {
                // Others wait for the keys meanwhile.
                if shared.store.began().elapsed().saturating_sub(began) > shared.limits.scan_time {
                    return say("EXECABORT the transaction takes longer than it may");
                }
                self.run_queued(command, &taken, &mut view, out)?;
                is_said(out)?;
                if out.bytes.len() - mark > shared.limits.output_size {
                    return say("EXECABORT the reply is larger than replies may be");
                }
                if view.written().bytes > WRITTEN_FACTOR * self.frame_limits().frame {
                    return say("EXECABORT the transaction writes more than it may");
                }
            }
            match commit(&shared, &mut view) {
                Ok(has_written) => {
                    self.has_written |= has_written;
                    return Ok(());
                }
                Err(Error::Conflict) => out.back_to(mark),
                Err(error) => return Err(error.into()),
            }
        }
        say("TRYAGAIN others change these keys all the time")
    }

    /// Does one of the commands; that it fails is part of the reply.
    fn run_queued(
        &mut self,
        command: &Queued,
        taken: &Taken<'_>,
        view: &mut View,
        out: &mut Reply,
    ) -> Done {
        let (mark, args) = (out.mark(), command.args());
        self.kinds[command.spec.kind as usize] += 1;
        // What it may do was looked up when it was queued, and may be other by now.
        if let Err(refusal) = self.check_rights(command.spec, args, self.rights) {
            return self.told(Err(refusal), mark, command.spec, out);
        }
        if about::helped(command.spec, args, out) {
            return Ok(());
        }
        let run = match command.spec.run {
            Run::Session(run) => {
                let done = run(self, args, out);
                return self.told(done, mark, command.spec, out);
            }
            Run::Keys(run) => run,
        };
        let savepoint = match view {
            View::Transaction { transaction, written } if command.spec.writes() => {
                Some((transaction.savepoint()?, *written))
            }
            View::Transaction { .. } | View::Snapshot(_) => None,
        };
        let other = command.spec.elsewhere(args, self.database).map(|(other, _)| other);
        let places = (self.database, other);
        let done = taken.call(places, args, view, out).and_then(|mut call| run(&mut call));
        if let (Err(_), View::Transaction { transaction, written }, Some((savepoint, before))) =
            (&done, &mut *view, savepoint)
            && *written != before
        {
            transaction.rollback_to(savepoint)?;
            *written = Written { count: before.count, ..*written };
        }
        self.told(done, mark, command.spec, out)
    }

    fn told(&self, done: Done, mark: usize, spec: &Spec, out: &mut Reply) -> Done {
        match done {
            Ok(()) => Ok(()),
            Err(failure @ (Failure::Say(_) | Failure::Engine(Error::InvalidArgument { .. }))) => {
                out.back_to(mark);
                self.tell(&failure, spec.kind, out);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// `WATCH`.
    pub fn watch(&mut self, args: Args<'_>, out: &mut Reply) -> Done {
        if self.queue.is_some() {
            return say("ERR WATCH inside MULTI is not allowed");
        }
        let limits = self.frame_limits();
        let shared = Arc::clone(&self.shared);
        let database = self.database;
        let mut taken = Taken::new(&shared);
        taken.take(database);
        let mut view = View::Snapshot(shared.store.db().snapshot());
        for key in args.from(1).iter() {
            let watches = &mut self.watches;
            watches.bytes += key.len() + WATCH_OVERHEAD;
            if watches.bytes > limits.frame {
                return say("ERR too many keys are watched");
            }
            if watches.held.hold(&shared.redis.room, watches.bytes).is_err() {
                return say(NO_ROOM);
            }
            if let Entry::Vacant(free) = watches.keys.entry((database, key.to_vec())) {
                free.insert(taken.call((database, None), NO_ARGS, &mut view, out)?.stamp(key)?);
            }
        }
        out.ok();
        Ok(())
    }
}
