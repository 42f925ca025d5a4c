//! Opening on what a crash left, and judging it.
//!
//! What must hold of a database that was opened after a crash
//! - E1  It opens, reads and checks clean.
//! - E2  It shows a moment that had to survive, or a later one.
//! - E3  That moment is final: another crash, a close, a second opening show the same.
//! - E4  All this also when recovery itself is interrupted, at any mutation.
//! - E5  Writing goes on, and is as safe as before.
//! - E6  An opening that only reads shows the same moment, and leaves the disk as it is.
//! - E7  Indexes show what their keyspaces have, and what was being built of them can be built on.
//! - E8  Checkpoints show what they showed, also one that the crash has interrupted, if it is
//!   there; and what is done with them is no concern of the database. So do backups that were
//!   restored; and what a repository lists is whole.
//! - E9  So it is with one that was open and written to beside the database: it is recovered as the
//!   database is, whichever comes first, and may go on and crash beside it again.
//! - E10 An encrypted one is opened by the key that it got last, or by one that it was to get
//!   since; and no nonce is used for two messages, before the crash or behind it.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{Access, Db, Error, OpenExisting};

use crate::checkpoints::{Beside, Use, expect_backups_whole, write_to};
use crate::clock::SimClock;
use crate::crash::known::{Key, Known};
use crate::crash::states::{self, CrashState};
use crate::crash::{BESIDE_RECOVERED, BUILT_ON, CHECKPOINTS_NOT_MADE, CHECKPOINTS_OPENED};
use crate::crash::{STATES_AFTER_RECOVERY, STATES_IN_RECOVERY};
use crate::crash::{STATES_MET_BEFORE, STATES_READ_FIRST};
use crate::finding::{Fault, Finding, Verdict, expect_no_misuse};
use crate::indexed::expect_building_goes_on;
use crate::ledger::Ledger;
use crate::ops::{Mix, Op, Purpose, draw};
use crate::parallel::survive;
use crate::random::Random;
use crate::readback::{Detail, expect_check_ok, expect_pasts, expect_state_ok, read_all};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline, Trouble, expect_key, look};
use crate::setup::{Setup, start_of};
use crate::timeline::{Found, Moment, Survival, Timeline};
use crate::watched::{Mutation, WatchedStorage};

/// How many recoveries in a thousand are interrupted, and at how many of their first mutations.
const INTERRUPTED_PER_MILLE: u64 = 120;
const INTERRUPTED_MUTATIONS_PER_MILLE: u64 = 250;
/// After so many mutations it is half as many, after twice as many a third: one that removes
/// hundreds of files would be interrupted a hundred times, and those recoveries again.
const MUTATIONS_PER_HALVING: u64 = 16;
/// Operations behind a recovery.
const FURTHER_OPS_MAX: u64 = 14;
/// Within this many mutations behind a recovery the next crash comes.
const FURTHER_MUTATIONS_MAX: u64 = 60;
/// States that are tried at that crash.
const FURTHER_STATES: u64 = 2;
/// How many checkpoints in a thousand that were made are looked at.
const CHECKPOINT_PER_MILLE: u64 = 60;
/// How many in a thousand of those that crashed beside the database are written to behind that.
const WRITTEN_BESIDE_PER_MILLE: u64 = 250;
/// How many operations in a thousand are done in one of those.
const BESIDE_PER_MILLE: u64 = 350;
/// How many states in a thousand are opened to be read first.
const READ_FIRST_PER_MILLE: u64 = 120;
/// How many disks in a thousand that were met before are examined in full all the same.
const AGAIN_PER_MILLE: u64 = 20;

/// Judges crash states of one run.
#[derive(Clone)]
pub(super) struct Examiner {
    pub setup: Arc<Setup>,
    pub ledger: Arc<Ledger>,
    /// What was found on disks that were met before.
    pub known: Arc<Known>,
}

impl Examiner {
    /// The same for a history of its own.
    pub(super) fn forked(&self, salt: u64) -> Examiner {
        Examiner { setup: Arc::new(self.setup.forked(salt)), ..self.clone() }
    }

    /// Judges a state by what was found on its disk, if that was met before, or opens on it;
    /// `depth` is how many more crashes may follow. What is drawn comes from `seed` alone, so that
    /// a state is examined alike whatever was met before.
    pub(super) fn examine(
        &self,
        state: &CrashState,
        timeline: &Arc<Timeline>,
        seed: u64,
        depth: u32,
    ) -> Verdict {
        let mut random = Random::new(seed);
        let is_again = random.chance(AGAIN_PER_MILLE);
        let key = Key::of((&self.setup, &state.storage), timeline, depth);
        let known = key.and_then(|key| self.known.get(key));
        if let Some(found) = &known
            && !is_again
            && timeline.judge(found, state.survival).is_ok()
        {
            self.ledger.count(STATES_MET_BEFORE);
            return Ok(());
        }
        let note = |found: &Found| match (&known, key) {
            (Some(known), _) => expect_same(found, known, "the same disk showed another moment"),
            (None, Some(key)) => {
                self.known.note(key, found);
                Ok(())
            }
            (None, None) => Ok(()),
        };
        self.examine_in_full(state, timeline, (&mut random, note), depth)
    }

    /// Opens on a state and judges it. Hands on what it finds, if that is in order.
    fn examine_in_full(
        &self,
        state: &CrashState,
        timeline: &Arc<Timeline>,
        (random, note): (&mut Random, impl FnOnce(&Found) -> Verdict),
        depth: u32,
    ) -> Verdict {
        let storage = &state.storage;
        let read_first = match random.chance(READ_FIRST_PER_MILLE) {
            true => self.read_only(storage, random, depth)?,
            false => None,
        };
        let is_beside_first = random.chance(500);
        let mut beside = None;
        if is_beside_first {
            beside = self.open_beside(state, timeline, random, depth)?;
        }
        let is_interrupted = depth > 0 && random.chance(INTERRUPTED_PER_MILLE);
        let (db, clock) = if is_interrupted {
            self.open_interrupted(state, timeline, random, depth)?
        } else {
            self.open(Arc::new(storage.clone()), depth)?
        };
        let (found, moment) = self.read_and_judge(&db, timeline, state.survival)?;
        if let Some(seen) = read_first {
            expect_same(&seen, &found, "an opening that only read showed another moment")?;
        }
        expect_state_ok(&db, random)?;
        expect_key(&self.setup, &shared(storage), timeline)?; // E10
        expect_pasts(&db, timeline, moment.commit, random)?;
        self.expect_checkpoints(storage, timeline, random)?;
        if !is_beside_first {
            beside = self.open_beside(state, timeline, random, depth)?;
        }
        if let Some((beside, of)) = beside.as_ref().zip(timeline.beside.as_ref()) {
            // Not before: what a crash inside of the recovery above leaves must be the same.
            let used = self.use_beside(beside, &look(&of.timeline).clone(), storage, random);
            used.map_err(|finding| finding.at(&format!("{}", of.path.display())))?;
        }
        expect_no_misuse(storage)?; // Nobody writes to what a checkpoint has as well.
        note(&found)?;
        let verdict = match random.below(8) {
            0 => self.expect_same_after(&found, &storage.crash(CrashMode::DropAll, 0), "power cut"),
            1 => self.expect_same_after(&found, &storage.crash(CrashMode::KeepAll, 0), "kill"),
            2 => db
                .close()
                .map_err(|error| Finding::new(Fault::Refused, format!("close: {error}")))
                .and_then(|_| self.expect_same_after(&found, &storage.duplicate(), "close")),
            3 | 4 if depth > 0 => return self.go_on((db, clock), beside, state, (random, depth)),
            _ => expect_building_goes_on(&db).map(|built| {
                self.ledger.count_many(BUILT_ON, built);
            }),
        };
        abandon(storage, db);
        drop(beside);
        verdict
    }

    /// E9: recovers it.
    fn open_beside(
        &self,
        state: &CrashState,
        timeline: &Timeline,
        random: &Random,
        depth: u32,
    ) -> Verdict<Option<OpenBeside>> {
        let Some(beside) = &timeline.beside else { return Ok(None) };
        self.ledger.count(BESIDE_RECOVERED);
        let opened = self.recover_beside(state, beside, random, depth);
        let opened = opened.map_err(|finding| finding.at(&format!("{}", beside.path.display())));
        opened.map(Some)
    }

    fn recover_beside(
        &self,
        state: &CrashState,
        beside: &Beside,
        random: &Random,
        depth: u32,
    ) -> Verdict<OpenBeside> {
        let timeline = look(&beside.timeline).clone();
        let setup = self.setup.at(&beside.path);
        let nth = Beside::OPENING + nth_of(depth);
        let clock = Arc::new(SimClock::at_millis(start_of(nth)));
        let builder = setup.builder(Arc::new(state.storage.clone()), Arc::clone(&clock), nth);
        let opened = builder.existing(OpenExisting::Only).open(&setup.path);
        let db = opened.map_err(|error| failed_open("open", &error))?;
        let (_, moment) = self.read_and_judge(&db, &timeline, state.survival)?;
        expect_state_ok(&db, random)?;
        expect_key(&setup, &shared(&state.storage), &timeline)?; // E10
        Ok(OpenBeside { setup, db, clock, commit: moment.commit })
    }

    /// E9: looks at its past and at the checkpoints that were made of it, and now and then writes
    /// to it.
    fn use_beside(
        &self,
        beside: &OpenBeside,
        timeline: &Timeline,
        storage: &SimStorage,
        random: &mut Random,
    ) -> Verdict {
        let OpenBeside { db, commit, .. } = beside;
        expect_pasts(db, timeline, *commit, random)?;
        self.expect_checkpoints(storage, timeline, random)?;
        if random.chance(WRITTEN_BESIDE_PER_MILLE) {
            write_to(db, random).map_err(|error| failed_open("write to", &error))?;
            expect_check_ok(db)?;
        }
        Ok(())
    }

    fn open(&self, storage: Arc<dyn Storage>, depth: u32) -> Verdict<(Db, Arc<SimClock>)> {
        self.open_at(storage, depth, start_of(nth_of(depth)))
    }

    fn open_at(
        &self,
        storage: Arc<dyn Storage>,
        depth: u32,
        millis: u64,
    ) -> Verdict<(Db, Arc<SimClock>)> {
        let nth = nth_of(depth);
        let clock = Arc::new(SimClock::at_millis(millis));
        let opened = self.setup.builder(storage, Arc::clone(&clock), nth).open(&self.setup.path);
        opened.map(|db| (db, clock)).map_err(|error| failed_open("open", &error))
    }

    /// E4: opens while crashes strike the recovery.
    fn open_interrupted(
        &self,
        state: &CrashState,
        timeline: &Arc<Timeline>,
        random: &mut Random,
        depth: u32,
    ) -> Verdict<(Db, Arc<SimClock>)> {
        let storage = state.storage.clone();
        let nested = Nested {
            examiner: self.clone(),
            storage: storage.clone(),
            timeline: Arc::clone(timeline),
            survival: state.survival,
            depth: depth - 1,
            progress: Mutex::new(Progress { random: random.clone(), seen: 0, verdict: Ok(()) }),
        };
        let nested = Arc::new(nested);
        let watcher = Arc::clone(&nested);
        let hook = Arc::new(move |mutation: &Mutation<'_>| watcher.strike(mutation));
        let opened = self.open(Arc::new(WatchedStorage::new(storage, hook)), depth)?;
        // What follows is not recovery any more, and the hook goes on: it must find nothing to do.
        let verdict = nested.finish();
        verdict.map(|()| opened)
    }

    fn read_and_judge(
        &self,
        db: &Db,
        timeline: &Timeline,
        survival: Survival,
    ) -> Verdict<(Found, Moment)> {
        let found = read_all(db, Detail::Digests).map_err(|error| failed_open("read", &error))?;
        if let Ok(moment) = timeline.judge(&found, survival) {
            return Ok((found, moment));
        }
        // Once more with the rows, for the story.
        let found = read_all(db, Detail::Rows).map_err(|error| failed_open("read", &error))?;
        timeline.judge(&found, survival).map(|moment| (found, moment))
    }

    /// E3
    fn expect_same_after(&self, found: &Found, storage: &SimStorage, event: &str) -> Verdict {
        // At the same time: no more has expired.
        let (db, _) = self.open_at(Arc::new(storage.clone()), 0, found.now)?;
        let again = read_all(&db, Detail::Digests).map_err(|error| failed_open("read", &error))?;
        abandon(storage, db);
        let what = format!("a recovered moment was another one after a {event}");
        expect_same(&again, found, &what)
    }

    /// E6: what an opening that only reads shows; none where nothing was created yet.
    fn read_only(
        &self,
        storage: &SimStorage,
        random: &Random,
        depth: u32,
    ) -> Verdict<Option<Found>> {
        let nth = nth_of(depth);
        let clock = Arc::new(SimClock::at_millis(start_of(nth)));
        let mutations = storage.mutation_count();
        let builder = self.setup.builder(Arc::new(storage.clone()), clock, nth);
        let db = match builder.access(Access::ReadOnly).open(&self.setup.path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened.map_err(|error| failed_open("open to read", &error))?,
        };
        self.ledger.count(STATES_READ_FIRST);
        let found = read_all(&db, Detail::Digests).map_err(|error| failed_open("read", &error))?;
        expect_state_ok(&db, random)?;
        db.close().map_err(|error| failed_open("close what was opened to read", &error))?;
        match storage.mutation_count() - mutations {
            0 => Ok(Some(found)),
            count => {
                let what = format!("an opening that only read changed the disk {count} times");
                Err(Finding::new(Fault::Wrong, what))
            }
        }
    }

    /// E8: the last checkpoint, and now and then another, beside the database that is open.
    fn expect_checkpoints(
        &self,
        storage: &SimStorage,
        timeline: &Timeline,
        random: &mut Random,
    ) -> Verdict {
        let Some((last, others)) = timeline.checkpoints.split_last() else { return Ok(()) };
        let is_in_doubt = !last.is_made;
        let other = others.get(random.index(others.len().max(1)));
        let chosen = [Some(last).filter(|_| is_in_doubt || random.chance(CHECKPOINT_PER_MILLE))];
        let other = [other.filter(|_| random.chance(CHECKPOINT_PER_MILLE))];
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        if is_in_doubt || random.chance(CHECKPOINT_PER_MILLE) {
            expect_backups_whole(&storage, &self.setup.path)?;
        }
        for checkpoint in chosen.into_iter().chain(other).flatten() {
            let how = if random.chance(500) { Use::WrittenTo } else { Use::Read };
            let place = (&*self.setup, &storage);
            let is_there = checkpoint.expect_ok(place, timeline, (how, random))?;
            self.ledger.count(match is_there {
                true => CHECKPOINTS_OPENED,
                false => CHECKPOINTS_NOT_MADE,
            });
        }
        Ok(())
    }

    /// E5: writes on, crashes inside a mutation, and judges again.
    fn go_on(
        &self,
        (db, clock): (Db, Arc<SimClock>),
        beside: Option<OpenBeside>,
        state: &CrashState,
        (random, depth): (&mut Random, u32),
    ) -> Verdict {
        let (storage, timeline) = (&state.storage, SharedTimeline::default());
        let session = Session::adopt(&self.setup, db, clock, Arc::clone(&timeline));
        let mut session = session.map_err(|error| failed_open("read", &error))?;
        let has_beside = beside.is_some();
        if let Some(OpenBeside { setup, db, clock, .. }) = beside {
            let beside = Session::adopt(&setup, db, clock, SharedTimeline::default());
            session.put_beside(beside.map_err(|error| failed_open("read", &error))?);
        }
        storage.crash_inside(storage.mutation_count() + random.below(FURTHER_MUTATIONS_MAX));
        let mix = Mix { key_count: 40, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
        for _ in 0..=random.below(FURTHER_OPS_MAX) {
            let mut op = draw(random, mix);
            if has_beside && random.chance(BESIDE_PER_MILLE) {
                op = Op::Beside(Box::new(op));
            }
            match session.run(&op) {
                Ok(()) => {}
                Err(Trouble::Refused(_)) if storage.is_crashed() => break,
                Err(trouble) => return Err(trouble.into_finding().at("behind the recovery")),
            }
        }
        let timeline = Arc::new(look(&timeline).still());
        for number in 0..FURTHER_STATES {
            self.ledger.count(STATES_AFTER_RECOVERY);
            let number = random.below(32) * 2 + number;
            let state = states::numbered(storage, None, number, random.draw());
            self.examine(&state, &timeline, random.draw(), depth - 1)
                .map_err(|finding| finding.at(&format!("behind the recovery, {}", state.what)))?;
        }
        storage.crash_at(storage.mutation_count()); // Neither writes anything more.
        drop(session);
        Ok(())
    }
}

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

/// A checkpoint that was recovered beside its database.
struct OpenBeside {
    setup: Setup,
    db: Db,
    clock: Arc<SimClock>,
    /// How many of its commits are there.
    commit: u64,
}

/// Which opening it is: identities that are drawn now must differ from those drawn before the
/// crash.
fn nth_of(depth: u32) -> u64 {
    1 + u64::from(super::DEPTH - depth)
}

/// A recovery that is watched (E4).
struct Nested {
    examiner: Examiner,
    storage: SimStorage,
    timeline: Arc<Timeline>,
    survival: Survival,
    depth: u32,
    progress: Mutex<Progress>,
}

/// How far a watched recovery has got.
struct Progress {
    /// Chooses.
    random: Random,
    /// Mutations so far.
    seen: u64,
    verdict: Verdict,
}

impl Nested {
    fn finish(&self) -> Verdict {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut progress.verdict, Err(Finding::new(Fault::Panic, "it is over")))
    }

    fn strike(&self, mutation: &Mutation<'_>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Progress { random, seen, verdict } = &mut *progress;
        let chance = INTERRUPTED_MUTATIONS_PER_MILLE / (1 + *seen / MUTATIONS_PER_HALVING);
        *seen += 1;
        if verdict.is_err() || !random.chance(chance) {
            return;
        }
        self.examiner.ledger.count(STATES_IN_RECOVERY);
        *verdict = survive(|| {
            let mut state =
                states::numbered(&self.storage, Some(mutation), random.below(32), random.draw());
            if self.survival == Survival::Durable {
                state.survival = Survival::Durable; // The machine had lost power before.
            }
            let place = format!(
                "recovery: {} before {:?} {:?}",
                state.what, mutation.operation, mutation.path
            );
            let (examiner, seed) = (&self.examiner, random.draw());
            let verdict = examiner.examine(&state, &self.timeline, seed, self.depth);
            verdict.map_err(|finding| finding.at(&place))
        });
    }
}

fn expect_same(seen: &Found, found: &Found, otherwise: &str) -> Verdict {
    let is_same = seen.catalog == found.catalog && seen.indexes == found.indexes;
    if is_same && seen.digests == found.digests {
        return Ok(());
    }
    Err(Finding::new(Fault::Lost, otherwise.to_owned()))
}

/// Lets go of a database without letting it write anything more.
fn abandon(storage: &SimStorage, db: Db) {
    storage.crash_at(storage.mutation_count());
    drop(db);
}

fn failed_open(action: &str, error: &Error) -> Finding {
    Finding::new(Fault::FailedOpen, format!("{action}: {error}"))
}
