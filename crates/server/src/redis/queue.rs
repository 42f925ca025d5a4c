//! Transactions: commands that are queued by `MULTI`, and done in one transaction of the engine.

use lithedb::Error;

use super::call::{Call, Done, Failure, STEPS_MAX, View, say};
use super::databases::{DATABASE_COUNT, Databases, stripe_of};
use super::frame::{Args, FrameLimits};
use super::glob::Steps;
use super::number::integer;
use super::reply::Reply;
use super::session::{Session, TRY_COUNT, Watch, commit};
use super::table::{MAKES, Run, Spec};

/// What a queued argument takes besides its bytes.
const OVERHEAD: usize = 8;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    /// Whether one of them was refused: then none is done.
    pub is_bad: bool,
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
    pub fn count(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, if there is room for it.
    pub fn push(&mut self, spec: &'static Spec, args: Args<'_>, limits: &FrameLimits) -> Done {
        let size = args.iter().map(|arg| arg.len() + OVERHEAD).sum::<usize>() + 64;
        if self.bytes + size > limits.frame || self.commands.len() >= limits.arguments {
            self.is_bad = true;
            return say("ERR the transaction is larger than it may be");
        }
        self.bytes += size;
        let mut queued = Queued { spec, bytes: Vec::new(), places: Vec::new() };
        for arg in args.iter() {
            let start = queued.bytes.len() as u32;
            queued.bytes.extend_from_slice(arg);
            queued.places.push((start, queued.bytes.len() as u32));
        }
        self.commands.push(queued);
        Ok(())
    }

    /// The databases that are written to, whether collections may be made in them, and the stripes
    /// of all keys.
    fn needs(&self, mut database: usize) -> ([Option<bool>; DATABASE_COUNT], Vec<usize>) {
        let mut databases = [None; DATABASE_COUNT];
        let mut stripes = Vec::new();
        for command in &self.commands {
            let (spec, args) = (command.spec, command.args());
            if spec.name == "select" {
                let chosen = integer(args.at(1)).and_then(|number| usize::try_from(number).ok());
                database = chosen.filter(|n| *n < DATABASE_COUNT).unwrap_or(database);
            }
            if spec.writes() {
                let makes = databases[database].get_or_insert(false);
                *makes |= spec.has(MAKES);
                stripes.extend(spec.keys_of(args).map(|key| stripe_of(database, key)));
            }
        }
        (databases, stripes)
    }
}

impl Session {
    /// `EXEC`.
    pub fn execute_queue(&mut self, out: &mut Reply) -> Done {
        let Some(queue) = self.queue.take() else { return say("ERR EXEC without MULTI") };
        let watches = std::mem::take(&mut self.watches);
        self.watched_bytes = 0;
        if queue.is_bad {
            return say("EXECABORT Transaction discarded because of previous errors.");
        }
        let shared = std::sync::Arc::clone(&self.shared);
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
        let (mark, database) = (out.mark(), self.database);
        for _ in 0..TRY_COUNT {
            self.choose(database);
            let transaction = db.begin_update();
            let mut view = View::Transaction { transaction, has_written: false };
            if self.is_any_changed(&watches, &mut view, out)? {
                out.null_array();
                return Ok(());
            }
            out.array(queue.count());
            for command in &queue.commands {
                self.run_queued(command, &mut view, out)?;
                if out.bytes.len() - mark > shared.limits.output_size {
                    return say("EXECABORT the reply is larger than replies may be");
                }
            }
            match commit(&shared, view) {
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
    fn run_queued(&mut self, command: &Queued, view: &mut View, out: &mut Reply) -> Done {
        let (mark, args) = (out.mark(), command.args());
        self.kinds[command.spec.kind as usize] += 1;
        let run = match command.spec.run {
            Run::Session(run) => {
                let done = run(self, args, out);
                return self.told(done, mark, command.spec, out);
            }
            Run::Keys(run) => run,
        };
        let savepoint = match view {
            View::Transaction { transaction, .. } if command.spec.writes() => {
                Some(transaction.savepoint()?)
            }
            View::Transaction { .. } | View::Snapshot(_) => None,
        };
        let shared = std::sync::Arc::clone(&self.shared);
        let done = on_keys(&shared, self.database, view, args, out, run);
        if let (Err(_), View::Transaction { transaction, .. }, Some(savepoint)) =
            (&done, &mut *view, savepoint)
        {
            transaction.rollback_to(savepoint)?;
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

    fn is_any_changed(
        &self,
        watches: &[Watch],
        view: &mut View,
        out: &mut Reply,
    ) -> Result<bool, Failure> {
        for watch in watches {
            if stamp(self, watch.database, &watch.key, view, out)? != watch.stamp {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `WATCH`.
    pub fn watch(&mut self, args: Args<'_>, out: &mut Reply) -> Done {
        if self.queue.is_some() {
            return say("ERR WATCH inside MULTI is not allowed");
        }
        let limits = self.frame_limits();
        let mut view = View::Snapshot(self.shared.store.db().snapshot());
        for key in args.from(1).iter() {
            self.watched_bytes += key.len() + 64;
            if self.watched_bytes > limits.frame {
                return say("ERR too many keys are watched");
            }
            let database = self.database;
            if self.watches.iter().any(|known| known.database == database && known.key == key) {
                continue;
            }
            let stamp = stamp(self, database, key, &mut view, out)?;
            self.watches.push(Watch { database, key: key.to_vec(), stamp });
        }
        out.ok();
        Ok(())
    }
}

fn stamp(
    session: &Session,
    database: usize,
    key: &[u8],
    view: &mut View,
    out: &mut Reply,
) -> Result<Option<lithedb::SeqNo>, Failure> {
    let databases: &Databases = &session.shared.redis.databases;
    let handles = &databases.at(database).handles();
    let (shared, args, steps) = (&*session.shared, Args::new(&[], &[]), Steps(STEPS_MAX));
    Call { args, out, view, handles, shared, database, steps }.stamp(key)
}

fn on_keys(
    shared: &crate::server::Shared,
    database: usize,
    view: &mut View,
    args: Args<'_>,
    out: &mut Reply,
    run: fn(&mut Call<'_>) -> Done,
) -> Done {
    let handles = &shared.redis.databases.at(database).handles();
    run(&mut Call { args, out, view, handles, shared, database, steps: Steps(STEPS_MAX) })
}
