//! Commands that write, one behind the other in a pipeline: done in one transaction of the engine.
//!
//! A transaction for each of them costs more than what it does. So those that come together, and
//! say little, are kept until one comes that is no such, or all that has arrived was read; then one
//! transaction does all of them in their order, with the stripes of all their keys held. What each
//! says, and what is there behind it, is as if each had been done by itself:
//! - One that fails and has written nothing says so, and the others go on.
//! - When one fails that has written something, or the transaction cannot be committed (it is in
//!   conflict with a writer past this protocol), nothing of it has happened, what was said is taken
//!   back, and each is done by itself.
//!
//! None is told to be done before all are as durable as asked for, as always (N1).

use std::sync::Arc;

use lithedb::Error;

use super::call::{Call, Done, Failure, STEPS_MAX, View, say};
use super::databases::stripe_of;
use super::frame::Args;
use super::glob::Steps;
use super::reply::Reply;
use super::session::{Session, commit, is_said};
use super::table::{MAKES, Run, Spec, TOGETHER};

/// So many commands, or so many bytes of them, are kept.
const COUNT_MAX: usize = 128;
const BYTES_MAX: usize = 1 << 20;
/// A command with more bytes is done by itself.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Behind a command with which so much was written, a transaction is committed: some write more
/// than they say, as an `APPEND` does.
const WRITTEN_MAX: usize = 4 << 20;

/// Commands that are done together.
#[derive(Debug, Default)]
pub struct Together {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
    commands: Vec<Kept>,
}

/// One of them, and which of all places are those of its arguments.
#[derive(Clone, Copy)]
struct Kept {
    spec: &'static Spec,
    first: usize,
    last: usize,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Together {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.commands.len() >= COUNT_MAX || self.bytes.len() >= BYTES_MAX
    }

    pub fn push(&mut self, spec: &'static Spec, args: Args<'_>) {
        let first = self.places.len();
        for arg in args.iter() {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(arg);
            self.places.push((start, self.bytes.len() as u32));
        }
        self.commands.push(Kept { spec, first, last: self.places.len() });
    }

    fn args(&self, kept: &Kept) -> Args<'_> {
        Args::new(&self.bytes, &self.places[kept.first..kept.last])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.commands.clear();
    }
}

/// Whether a command may be done with others: it says little, and takes little time.
pub fn goes_together(spec: &Spec, args: Args<'_>) -> bool {
    let bytes = || args.iter().map(<[u8]>::len).sum::<usize>();
    spec.has(TOGETHER) && !spec.is_slow(args) && !spec.tells(args) && bytes() <= COMMAND_BYTES_MAX
}

impl Session {
    /// Does those that were kept.
    pub fn do_together(&mut self, together: &mut Together, out: &mut Reply) {
        let mut rest = &*together.commands;
        while rest.len() > 1 {
            let mark = out.mark();
            match self.try_together(together, rest, out) {
                Ok(count) => rest = &rest[count..],
                Err(_by_itself_each_says_why) => {
                    out.back_to(mark);
                    break;
                }
            }
        }
        for kept in rest {
            let mark = out.mark();
            if let Err(failure) = self.run(kept.spec, together.args(kept), out) {
                out.back_to(mark);
                self.tell(&failure, kept.spec.kind, out);
            }
        }
        together.clear();
    }

    /// Does the first of these in one transaction; says how many, one at least. When it fails
    /// nothing has happened.
    fn try_together(
        &mut self,
        together: &Together,
        commands: &[Kept],
        out: &mut Reply,
    ) -> Result<usize, Failure> {
        let shared = &*Arc::clone(&self.shared);
        let (db, databases, database) = (shared.store.db(), &shared.redis.databases, self.database);
        match commands.iter().any(|kept| kept.spec.has(MAKES)) {
            true => databases.for_collections(db, database)?,
            false => databases.for_writing(db, database)?,
        }
        let mut stripes = Vec::with_capacity(commands.len());
        for kept in commands {
            let keys = kept.spec.keys_of(together.args(kept));
            stripes.extend(keys.map(|key| stripe_of(database, key)));
        }
        let _held = databases.hold(stripes);
        let handles = &databases.at(database).handles();
        let view = &mut View::transaction(db);
        let mut count = 0;
        for kept in commands {
            let (mark, before) = (out.mark(), view.written());
            let (args, steps) = (together.args(kept), Steps(STEPS_MAX));
            let call = &mut Call { args, out, view, handles, shared, database, other: None, steps };
            if let Err(failure) = run_on(kept.spec, call) {
                let is_told = matches!(
                    failure,
                    Failure::Say(_) | Failure::Engine(Error::InvalidArgument { .. })
                );
                if !is_told || view.written() != before {
                    return Err(failure);
                }
                out.back_to(mark);
                self.tell(&failure, kept.spec.kind, out);
            }
            is_said(out)?;
            count += 1;
            if view.written().bytes >= WRITTEN_MAX {
                break;
            }
        }
        self.has_written |= commit(shared, view)?;
        Ok(count)
    }
}

fn run_on(spec: &Spec, call: &mut Call<'_>) -> Done {
    match spec.run {
        Run::Keys(run) => run(call),
        // None of these has the flag.
        Run::Session(_) => say("ERR the command is none on keys"),
    }
}
