//! An open database on a simulated disk, and what threads do with it, noted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lithedb::base::sync::{thread, time};
use lithedb::base::{Clock, Entropy, SeededEntropy};
use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{
    Background, Builder, Db, Durability, Encryption, Error, FollowUpTo, Keyspace, KeyspaceOptions,
    Result, Snapshot, Transaction, WriteBatch,
};

use crate::history::{History, Place, Rows, Span};
use crate::random::Random;

/// Where the database is.
pub const PATH: &str = "/db";
/// When schedules begin: 2023-11-14.
const START_MILLIS: u64 = 1_700_000_000_000;
/// What a look at the clock takes.
const LOOK: Duration = Duration::from_micros(20);

/// The modelled clock.
#[derive(Debug)]
struct ModelClock;

impl Clock for ModelClock {
    fn wall_millis(&self) -> u64 {
        START_MILLIS + time::pass(LOOK).as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        time::pass(LOOK)
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// What a schedule is about.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides identities.
    pub seed: u64,
    /// Of the keyspaces.
    pub keyspaces: Vec<KeyspaceOptions>,
    /// Bytes of values: one of these.
    pub value_sizes: Vec<usize>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Who does the work of the background.
    pub background: Background,
    /// For memtables, cache and indexes.
    pub memory_budget: u64,
    /// How much of the log is kept to be read, if that is said.
    pub kept_log_size: Option<u64>,
}

impl Setup {
    /// The smallest of everything, in a structure that the seed chooses.
    pub fn tiny(random: &mut Random) -> Setup {
        let options = match random.below(4) {
            0 | 1 => KeyspaceOptions::flex().interval_size(512).segment_size(4096),
            2 => KeyspaceOptions::lsm().table_size(8 << 10).block_size(512),
            _ => KeyspaceOptions::history().interval_size(1024).segment_size(4096),
        };
        let mut setup = Setup {
            seed: random.next(),
            keyspaces: vec![options],
            value_sizes: vec![20],
            encrypted: false,
            background: Background::Threads,
            memory_budget: 256 << 10,
            kept_log_size: None,
        };
        if random.one_in(4) {
            setup.background = Background::Stepped;
        }
        setup
    }

    /// With values that lie apart.
    pub fn with_large_values(mut self) -> Setup {
        for options in &mut self.keyspaces {
            *options = options.clone().value_separation(Some(300));
        }
        self.value_sizes = vec![20, 1500];
        self
    }

    fn builder(&self, storage: &SimStorage) -> Builder {
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(self.seed));
        let builder = Db::builder()
            .storage(Arc::new(storage.clone()))
            .clock(Arc::new(ModelClock))
            .entropy(entropy)
            .background(self.background)
            .memory_budget(self.memory_budget)
            .memtable_size(4 << 10)
            .wal_file_size(16 << 10)
            .value_file_size(4 << 10)
            .garbage_share(0.05);
        let builder = match self.kept_log_size {
            Some(bytes) => builder.kept_log_size(bytes),
            None => builder,
        };
        if !self.encrypted {
            return builder;
        }
        let entropy = Arc::new(SeededEntropy::new(self.seed ^ 0x5eed));
        builder.encryption(Encryption::key([7; 32]).simulated(entropy))
    }
}

/// A database, and what has happened to it.
#[derive(Clone, Debug)]
pub struct World {
    pub setup: Arc<Setup>,
    pub storage: SimStorage,
    pub db: Db,
    pub keyspaces: Arc<[Keyspace]>,
    pub history: Arc<History>,
}

/// What a crash would leave, and which stamp it has to reach.
#[derive(Debug)]
pub struct Crashed {
    storage: SimStorage,
    durable: u64,
}

impl World {
    /// Opens it.
    pub fn open(setup: Setup) -> World {
        let storage = SimStorage::new(setup.seed);
        storage.panic_on_violation();
        let db = time::foreground(|| setup.builder(&storage).open(PATH)).unwrap();
        let made = setup.keyspaces.iter().enumerate();
        let made = made.map(|(index, options)| {
            db.create_keyspace(&format!("k{index}"), options.clone()).unwrap()
        });
        let keyspaces = made.collect();
        World { setup: Arc::new(setup), storage, db, keyspaces, history: Arc::default() }
    }

    /// The bytes of a value: which one it is, and how many that is.
    pub fn bytes_of(&self, value: u32) -> Vec<u8> {
        let sizes = &self.setup.value_sizes;
        let size = sizes[value as usize % sizes.len()];
        value.to_le_bytes().iter().copied().cycle().take(size).collect()
    }

    /// Which value it is.
    pub fn value_of(&self, bytes: &[u8]) -> u32 {
        let head: [u8; 4] = bytes[..4].try_into().unwrap();
        let value = u32::from_le_bytes(head);
        assert!(bytes == self.bytes_of(value), "bytes of no value");
        value
    }

    /// Commits new values of these keys.
    pub fn put(&self, places: &[Place], durability: Durability) -> Result<()> {
        self.write(places, &[], durability)
    }

    /// Commits new values of some keys, and that others are not there.
    pub fn write(&self, puts: &[Place], deletes: &[Place], durability: Durability) -> Result<()> {
        let (mut batch, mut changes) = (WriteBatch::new(), Vec::new());
        for place in puts {
            let value = self.history.next_value();
            batch.put(&self.keyspaces[usize::from(place.0)], [place.1], self.bytes_of(value));
            changes.push((*place, Some(value)));
        }
        for place in deletes {
            batch.delete(&self.keyspaces[usize::from(place.0)], [place.1]);
            changes.push((*place, None));
        }
        let began = self.history.tick();
        let stamp = self.db.write_with(batch, durability)?.as_u64();
        let is_durable = durability == Durability::Sync;
        self.history.note_written(began, (stamp, is_durable), changes, Vec::new());
        Ok(())
    }

    /// Looks a key up.
    pub fn look(&self, place: Place) -> Result<()> {
        let began = self.history.tick();
        let found = self.keyspaces[usize::from(place.0)].get([place.1])?;
        self.history.note_looked(began, place, found.map(|bytes| self.value_of(&bytes)));
        Ok(())
    }

    /// Takes a snapshot, for [`World::view`].
    pub fn snapshot(&self) -> (Snapshot, Span) {
        let began = self.history.tick();
        let snapshot = self.db.snapshot();
        (snapshot, Span { began, ended: self.history.tick() })
    }

    /// Goes through everything that a snapshot has.
    pub fn view(&self, (snapshot, span): &(Snapshot, Span)) -> Result<()> {
        let rows = self.rows_of(snapshot)?;
        self.history.note_viewed(*span, snapshot.seqno().as_u64(), rows);
        Ok(())
    }

    /// All rows that a snapshot has.
    pub fn rows_of(&self, snapshot: &Snapshot) -> Result<Rows> {
        self.rows_in(&self.keyspaces, snapshot)
    }

    fn rows_in(&self, keyspaces: &[Keyspace], snapshot: &Snapshot) -> Result<Rows> {
        let mut rows = BTreeMap::new();
        for (index, keyspace) in keyspaces.iter().enumerate() {
            for entry in snapshot.iter(keyspace) {
                let entry = entry?;
                rows.insert((index as u8, entry.key[0]), self.value_of(&entry.value));
            }
        }
        Ok(rows)
    }

    /// Follows the database as somebody else would, catches up some times, and goes through
    /// everything each time. Nothing goes back, and nothing is missing that has to show.
    pub fn follow(&self, up_to: FollowUpTo, count: u64) -> Result<()> {
        let Some(follower) =
            unless_out_of_breath(self.setup.builder(&self.storage).follow(PATH, up_to))?
        else {
            return Ok(());
        };
        let mut shown = 0;
        for _ in 0..count {
            let began = self.history.tick();
            let least = match up_to {
                FollowUpTo::Written => self.history.acknowledged(),
                FollowUpTo::Durable => self.history.durable_before_last(),
            };
            if unless_out_of_breath(follower.catch_up())?.is_none() {
                continue;
            }
            let span = Span { began, ended: self.history.tick() };
            let db = follower.db();
            let snapshot = db.snapshot();
            let stamp = snapshot.seqno().as_u64();
            assert!(stamp >= least.max(shown), "{up_to:?}: {stamp} below {least} or {shown}");
            shown = stamp;
            let keyspaces = named(&db, self.keyspaces.len()).expect("the keyspaces");
            let rows = self.rows_in(&keyspaces, &snapshot)?;
            self.history.note_followed(span, stamp, rows);
        }
        follower.close()
    }

    /// Takes a snapshot and goes through it.
    pub fn look_around(&self) -> Result<()> {
        self.view(&self.snapshot())
    }

    /// Reads a key and writes it and another, in a transaction that is tried until it is committed;
    /// each time it sees more than before.
    pub fn transact(&self, read: Place, also: Place) -> Result<()> {
        let mut seen = None;
        loop {
            let mut transaction = self.db.begin_update();
            let at = transaction.seqno()?;
            assert!(seen < Some(at), "a conflict at {at} with what could not be seen");
            match self.try_transact(&mut transaction, read, also) {
                Err(Error::Conflict) => seen = Some(at),
                other => return other,
            }
        }
    }

    fn try_transact(&self, transaction: &mut Transaction, read: Place, also: Place) -> Result<()> {
        let keyspace = |place: Place| &self.keyspaces[usize::from(place.0)];
        let found = transaction.get(keyspace(read), [read.1])?;
        let found = found.map(|bytes| self.value_of(&bytes));
        let mut changes = Vec::new();
        for place in [read, also] {
            let value = self.history.next_value();
            transaction.put(keyspace(place), [place.1], self.bytes_of(value))?;
            changes.push((place, Some(value)));
        }
        let began = self.history.tick();
        let stamp = transaction.commit()?.as_u64();
        self.history.note_written(began, (stamp, true), changes, vec![(read, found)]);
        Ok(())
    }

    /// What a crash at this moment would leave.
    pub fn crash(&self, random: &mut Random) -> Crashed {
        let durable = self.history.durable();
        let mode = CrashMode::ALL[random.below(CrashMode::ALL.len() as u64) as usize];
        Crashed { storage: self.storage.crash(mode, random.next()), durable }
    }

    /// Opens what a crash or a checkpoint has left: it has to have everything up to some stamp that
    /// is not below `least`.
    pub fn expect_prefix(&self, storage: &SimStorage, path: &str, least: u64) {
        expect_prefix(&self.setup, &self.history, (storage, path), least);
    }

    /// For another database, with the same options.
    pub fn builder(&self) -> Builder {
        let mut setup = Setup::clone(&self.setup);
        setup.background = Background::Stepped;
        setup.seed ^= 0x7a11;
        setup.builder(&self.storage)
    }

    /// Opens what has to be everything up to this stamp, and nothing else.
    pub fn expect_at(&self, path: &str, stamp: u64) {
        let reopened = reopened(&self.setup, &self.history, (&self.storage, path));
        let rows = reopened.rows_of(&reopened.db.snapshot()).unwrap();
        assert_eq!(rows, self.history.rows_at(stamp), "what is restored, up to {stamp}");
        reopened.expect_sound();
        drop(reopened.db.close().unwrap());
    }

    /// Opens what is left when everything was dropped: all of it.
    pub fn expect_left(setup: &Setup, storage: &SimStorage, history: &Arc<History>, path: &str) {
        expect_prefix(setup, history, (storage, path), history.acknowledged());
    }

    /// Opens what a closing has left: of keys, values, and whether it was acknowledged, those that
    /// were are there, and the others are there or not.
    pub fn expect_tried(self, tried: &[(u8, u32, bool)]) {
        let (setup, storage, history) = self.let_go();
        let reopened = reopened(&setup, &history, (&storage, PATH));
        let rows = reopened.rows_of(&reopened.db.snapshot()).unwrap();
        for (key, value, is_acknowledged) in tried {
            match rows.get(&(0, *key)) {
                None => assert!(!is_acknowledged, "{key} was acknowledged, and is not there"),
                Some(found) => assert_eq!(found, value, "what {key} has"),
            }
        }
        assert!(rows.len() <= tried.len(), "{rows:?} of {tried:?}");
        reopened.expect_sound();
        drop(reopened.db.close().unwrap());
    }

    /// Drops what a closed database still has files open by: nobody else may write to those.
    fn let_go(self) -> (Arc<Setup>, SimStorage, Arc<History>) {
        let World { setup, storage, db, keyspaces, history } = self;
        drop((keyspaces, db));
        (setup, storage, history)
    }

    /// Brings new values of these keys, which ascend, in at once.
    pub fn ingest(&self, places: &[Place]) -> Result<()> {
        let value = |place: &Place| (*place, self.history.next_value());
        let values: Vec<(Place, u32)> = places.iter().map(value).collect();
        let began = self.history.tick();
        let entries = values.iter().map(|(place, value)| ([place.1], self.bytes_of(*value)));
        let report = self.keyspaces[0].ingest(entries)?;
        let changes = values.iter().map(|(place, value)| (*place, Some(*value))).collect();
        let stamp = report.seqno.as_u64();
        self.history.note_written(began, (stamp, true), changes, Vec::new());
        Ok(())
    }

    /// Opens what a crash would have left.
    pub fn expect_survived(&self, crashed: &Crashed) {
        self.expect_prefix(&crashed.storage, PATH, crashed.durable);
    }

    /// That nothing is wrong with it.
    pub fn expect_sound(&self) {
        let report = self.db.check().unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
    }

    /// The end of a schedule: judges, checks, closes, and opens once more.
    pub fn end(self) {
        self.history.judge();
        let all = self.history.acknowledged();
        let snapshot = self.db.snapshot();
        assert_eq!(self.rows_of(&snapshot).unwrap(), self.history.rows_at(all), "at the end");
        drop(snapshot);
        self.expect_sound();
        let _its_figures = time::foreground(|| self.db.close()).unwrap();
        let (setup, storage, history) = self.let_go();
        expect_prefix(&setup, &history, (&storage, PATH), all);
    }
}

/// Opens a database again, which has to have everything up to some stamp that is not below `least`.
fn expect_prefix(setup: &Setup, history: &Arc<History>, place: (&SimStorage, &str), least: u64) {
    let reopened = reopened(setup, history, place);
    let snapshot = reopened.db.snapshot();
    let stamp = snapshot.seqno().as_u64();
    assert!(stamp >= least, "only up to {stamp}, but {least} was durable");
    let rows = reopened.rows_of(&snapshot).unwrap();
    assert_eq!(rows, history.rows_at(stamp), "what is left, up to {stamp}");
    reopened.expect_sound();
    drop(snapshot);
    drop(reopened.db.close().unwrap());
}

/// The database, opened once more. Its keyspaces were made before anything else.
fn reopened(setup: &Setup, history: &Arc<History>, (storage, path): (&SimStorage, &str)) -> World {
    let mut setup = Setup::clone(setup);
    setup.background = Background::Stepped;
    setup.seed ^= 0xc4a5;
    let db = setup.builder(storage).open(path).unwrap();
    let keyspaces = named(&db, setup.keyspaces.len()).expect("the keyspaces");
    let (storage, history) = (storage.clone(), Arc::clone(history));
    World { setup: Arc::new(setup), storage, db, keyspaces, history }
}

fn named(db: &Db, count: usize) -> Option<Arc<[Keyspace]>> {
    (0..count).map(|index| db.keyspace(&format!("k{index}")).ok()).collect()
}

/// Nothing, where it was given up because the database changed all the time.
fn unless_out_of_breath<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::TimedOut => Ok(None),
        other => other.map(Some),
    }
}

/// What a thread of a scenario does.
pub type Part = Box<dyn FnOnce() + Send>;

/// Runs threads beside each other.
pub fn together(parts: Vec<Part>) {
    time::foreground(|| {
        let threads: Vec<_> = parts.into_iter().map(thread::spawn).collect();
        for thread in threads {
            assert!(thread.join().is_ok(), "a thread of the scenario");
        }
    });
}
