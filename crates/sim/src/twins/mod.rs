//! Twins: the same operations on two structures. Whatever can be read of one, with stamps and
//! expiries, must be the same of the other.
//!
//! Faster by far than [`crate::model`], which knows what must be there: so it goes on long enough
//! for levels to fill, and shows what depends on which entries meet in which run. Sizes are those
//! of small databases, not of tiny ones.

mod indexes;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use lithedb::storage::MemoryStorage;
use lithedb::{
    Db, Durability, Entry, Error, Iter, Keyspace, Slice, Snapshot, Structure, WriteBatch,
};

use crate::clock::SimClock;
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::operator::TAIL;
use crate::ops::SHORT_LIFE_MILLIS;
use crate::parallel::survive;
use crate::random::{Random, mix, seed_of};
use crate::readback::expect_check_ok;
use crate::sample::Key;
use crate::setup::{Setup, start_of};

use indexes::Indexing;

/// Count of operations, in the ledger: each is one of both twins.
pub const TWIN_OPERATIONS: &str = "operations on twins";
/// Count of entries that walks have compared, in the ledger.
pub const TWIN_ENTRIES: &str = "entries walked over and compared";
/// Operations are counted by so many, while they go on.
const COUNTED_EVERY: u64 = 1000;
/// Option sets that runs have.
pub const TWIN_SETUPS: u64 = 64;
/// Keys of odd shapes among those of a run.
const ODD_KEYS: u64 = 400;
/// Snapshots that are held at most.
const SNAPSHOTS_MAX: usize = 3;
/// Entries that a walk goes over at most.
const WALK_LEN_MAX: u64 = 60;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct TwinRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: u64,
}

impl TwinRun {
    /// Runs it.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        let mut done = 0;
        let outcome = survive(|| {
            let mut twins = Twins::open(self.seed)?;
            let verdict = (0..self.op_count).try_for_each(|number| {
                done = number + 1;
                if done.is_multiple_of(COUNTED_EVERY) {
                    ledger.count_many(TWIN_OPERATIONS, COUNTED_EVERY);
                }
                twins.step().map_err(|finding| finding.at(&format!("operation {number}")))
            });
            ledger.count_many(TWIN_OPERATIONS, done % COUNTED_EVERY);
            verdict?;
            twins.compare_all()?;
            twins.reopen()?;
            twins.compare_all()?;
            ledger.count_many(TWIN_ENTRIES, twins.walked);
            ledger.count("runs of twins");
            Ok(())
        });
        if let Err(finding) = outcome {
            let finding = finding.at(&format!("{:?}", setup_of(self.seed)));
            // What comes behind the one that went wrong is not needed.
            ledger.note(finding, || TwinRun { op_count: done, ..*self }.command());
        }
    }

    /// What the program is to be called with for this run.
    #[must_use]
    pub fn command(&self) -> String {
        format!("twins --run {:#x} --operations {}", self.seed, self.op_count)
    }
}

/// How the databases of a run are opened; the keyspaces' options are those of the twins.
fn setup_of(seed: u64) -> Setup {
    let mut setup = Setup::numbered(seed % TWIN_SETUPS);
    let mut random = Random::new(seed_of(&[setup.seed, 0x7315]));
    setup.memory_budget = random.pick(&[256 << 10, 1 << 20, 16 << 20]);
    setup.memtable_size = random.pick(&[16 << 10, 64 << 10, 256 << 10]);
    setup.wal_file_size = 1 << 20;
    setup.value_file_size = random.pick(&[64 << 10, 256 << 10]);
    setup.flush_slice_size = None;
    let apart = random.pick(&[None, None, Some(200), Some(600)]);
    let merges = random.chance(500); // Entries of such keyspaces do not expire.
    setup.index_step_entries = random.pick(&[None, None, Some(100)]);
    let twin = |structure| {
        let mut options = setup.clone().all_of(structure).keyspace_options(0);
        options.ttl = None;
        options.merge_operator = merges.then(|| TAIL.into());
        options.value_separation(apart)
    };
    let first = if random.chance(300) { Structure::History } else { Structure::Flex };
    setup.keyspaces = vec![twin(first), twin(Structure::Lsm)];
    setup
}

/// Two keyspaces of one database.
struct Twins {
    setup: Setup,
    storage: Arc<MemoryStorage>,
    clock: Arc<SimClock>,
    openings: u64,
    db: Db,
    flex: Keyspace,
    lsm: Keyspace,
    snapshots: VecDeque<Snapshot>,
    random: Random,
    key_count: u64,
    /// Whether they merge; else some entries expire.
    merges: bool,
    /// Whether ingests have given them different stamps.
    have_own_stamps: bool,
    indexing: Indexing,
    /// How many indexes there have been.
    index_count: u64,
    walked: u64,
}

impl Twins {
    fn open(seed: u64) -> Verdict<Twins> {
        let setup = setup_of(seed);
        let storage = Arc::new(MemoryStorage::new());
        let clock = Arc::new(SimClock::at_millis(start_of(0)));
        let db = setup
            .builder(Arc::clone(&storage) as _, Arc::clone(&clock), 0)
            .open(&setup.path)
            .map_err(refused)?;
        let flex = db.create_keyspace("flex", setup.keyspace_options(0)).map_err(refused)?;
        let lsm = db.create_keyspace("lsm", setup.keyspace_options(1)).map_err(refused)?;
        let mut random = Random::new(seed_of(&[seed, 3]));
        let key_count = random.pick(&[300, 3000, 20_000]);
        let (snapshots, have_own_stamps) = (VecDeque::new(), false);
        let merges = setup.keyspaces[0].merge_operator.is_some();
        Ok(Twins {
            setup,
            storage,
            clock,
            openings: 1,
            db,
            flex,
            lsm,
            snapshots,
            random,
            key_count,
            merges,
            have_own_stamps,
            indexing: Indexing::Without,
            index_count: 0,
            walked: 0,
        })
    }

    /// Closes both and opens them again.
    fn reopen(&mut self) -> Verdict {
        if matches!(self.indexing, Indexing::Underway(_)) {
            return Ok(()); // Between two steps, nobody is to close it.
        }
        self.snapshots.clear();
        self.db.close().map_err(refused)?;
        let nth = self.openings;
        self.openings += 1;
        self.clock = Arc::new(SimClock::at_millis(start_of(nth)));
        let builder =
            self.setup.builder(Arc::clone(&self.storage) as _, Arc::clone(&self.clock), nth);
        self.db = builder.open(&self.setup.path).map_err(refused)?;
        self.flex = self.db.keyspace("flex").map_err(refused)?;
        self.lsm = self.db.keyspace("lsm").map_err(refused)?;
        Ok(())
    }

    fn step(&mut self) -> Verdict {
        match self.random.below(10_000) {
            0..3000 => self.put(),
            3000..3600 => self.write_batch(),
            3600..4200 => self.delete(),
            4200..4500 => self.merge(),
            4500..4515 => self.delete_range(),
            4515..4530 => self.ingest(),
            4530..4532 => self.reopen(),
            4532..4560 => self.maintain(),
            4560..4600 => {
                if self.snapshots.len() == SNAPSHOTS_MAX || self.random.chance(300) {
                    self.snapshots.pop_front();
                }
                self.snapshots.push_back(self.db.snapshot());
                Ok(())
            }
            4790..4796 => self.change_index(),
            4600..4800 => {
                self.clock.jump(self.random.below(400) as i16);
                Ok(())
            }
            4800..8300 => self.get(),
            8300..8500 => self.get_several(),
            8500..9750 => self.walk(),
            9750..9900 => self.read_index(),
            // A walk over all runs of an Lsm where they overlap.
            9900..9920 => self.count(),
            9920..9940 => self.rank_and_select(),
            _ => self.ends(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        // The low ones more often than the others.
        let end = if self.random.chance(300) { self.key_count / 16 } else { self.key_count };
        key_bytes(self.random.below(end))
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(1000) {
            0..60 => 0,
            60..850 => 1 + self.random.below(60),
            850..990 => 60 + self.random.below(400),
            _ => 400 + self.random.below(5000),
        };
        let fill = self.random.draw();
        match fill % 3 {
            0 => vec![fill as u8; len as usize],
            _ => (0..len).map(|at| (mix(fill ^ (at / 8)) >> (at % 8 * 8)) as u8).collect(),
        }
    }

    fn write(&self, batch: WriteBatch) -> Verdict {
        match self.db.write_with(batch, Durability::Buffered) {
            Err(Error::UniqueViolation { .. }) if self.indexing.refuses() => Ok(()),
            written => written.map(drop).map_err(refused),
        }
    }

    fn put(&mut self) -> Verdict {
        let (key, value) = (self.key(), self.value());
        let life = self.random.below(40 * u64::from(SHORT_LIFE_MILLIS));
        let life = std::time::Duration::from_millis(life);
        let mut batch = WriteBatch::new();
        for keyspace in [&self.flex, &self.lsm] {
            match !self.merges && life.as_millis() < u128::from(SHORT_LIFE_MILLIS) {
                true => batch.put_with_ttl(keyspace, &key, &value, life),
                false => batch.put(keyspace, &key, &value),
            }
        }
        self.write(batch)
    }

    fn write_batch(&mut self) -> Verdict {
        let mut batch = WriteBatch::new();
        let start = self.random.below(self.key_count);
        let is_dense = self.random.chance(300);
        for number in 0..1 + self.random.below(24) {
            let key = if is_dense { key_bytes(start + number) } else { self.key() };
            let (value, kind) = (self.value(), self.random.below(10));
            for keyspace in [&self.flex, &self.lsm] {
                match kind {
                    0..6 => batch.put(keyspace, &key, &value),
                    6 if self.merges => batch.merge(keyspace, &key, &value[..value.len().min(40)]),
                    _ => batch.delete(keyspace, &key),
                }
            }
        }
        self.write(batch)
    }

    fn delete(&mut self) -> Verdict {
        let key = self.key();
        let mut batch = WriteBatch::new();
        batch.delete(&self.flex, &key);
        batch.delete(&self.lsm, &key);
        self.write(batch)
    }

    fn merge(&mut self) -> Verdict {
        if !self.merges {
            return self.put();
        }
        let (key, mut operand) = (self.key(), self.value());
        operand.truncate(100);
        let mut batch = WriteBatch::new();
        batch.merge(&self.flex, &key, &operand);
        batch.merge(&self.lsm, &key, &operand);
        self.write(batch)
    }

    fn delete_range(&mut self) -> Verdict {
        let (one, other) = (self.key(), self.key());
        let range = match self.random.below(30) {
            0 => Vec::new()..vec![0xFF; 80],
            _ => one.clone().min(other.clone())..one.max(other),
        };
        let mut batch = WriteBatch::new();
        batch.delete_range(&self.flex, range.clone());
        batch.delete_range(&self.lsm, range);
        self.write(batch)
    }

    fn ingest(&mut self) -> Verdict {
        match self.indexing {
            Indexing::Without => {}
            Indexing::Underway(_) => return Ok(()),
            Indexing::With(_) => {
                for keyspace in [&self.flex, &self.lsm] {
                    let begun = keyspace.begin_ingest();
                    if !matches!(begun, Err(Error::InvalidArgument { .. })) {
                        let what = format!("an ingest beside an index: {begun:?}");
                        return Err(Finding::new(Fault::Wrong, what));
                    }
                }
                return Ok(());
            }
        }
        self.have_own_stamps = true;
        let start = self.random.below(self.key_count);
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for number in 0..1 + self.random.below(300) {
            entries.push((key_bytes(start + number), self.value()));
        }
        entries.sort();
        entries.dedup_by(|a, b| a.0 == b.0);
        for keyspace in [&self.flex, &self.lsm] {
            let entries = entries.iter().map(|(key, value)| (key, value));
            keyspace.ingest(entries).map_err(refused)?;
        }
        Ok(())
    }

    fn maintain(&mut self) -> Verdict {
        match self.random.below(40) {
            0 => self.db.compact(),
            1 => self.db.vacuum().map(drop),
            2..10 => self.db.flush(),
            _ => self.db.step().map(drop),
        }
        .map_err(refused)
    }

    /// A snapshot, or the present.
    fn moment(&mut self) -> Option<Snapshot> {
        let is_past = self.random.chance(250) && !self.snapshots.is_empty();
        is_past.then(|| self.snapshots[self.random.index(self.snapshots.len())].clone())
    }

    fn get(&mut self) -> Verdict {
        let (key, moment, whole) = (self.key(), self.moment(), self.random.chance(100));
        if whole {
            let read = |keyspace: &Keyspace| match &moment {
                Some(snapshot) => snapshot.get_entry(keyspace, &key),
                None => keyspace.get_entry(&key),
            };
            let (one, other) = (self.said(read(&self.flex))?, self.said(read(&self.lsm))?);
            return expect_same("get_entry", &one, &other);
        }
        let read = |keyspace: &Keyspace| match &moment {
            Some(snapshot) => snapshot.get(keyspace, &key),
            None => keyspace.get(&key),
        };
        self.same("get", read)
    }

    fn get_several(&mut self) -> Verdict {
        let moment = self.moment();
        let keys: Vec<_> = (0..1 + self.random.below(12)).map(|_| self.key()).collect();
        self.same("multi_get", |keyspace| match &moment {
            Some(snapshot) => snapshot.multi_get(keyspace, &keys),
            None => keyspace.multi_get(&keys),
        })
    }

    fn walk(&mut self) -> Verdict {
        let (moment, start) = (self.moment(), self.key());
        let (is_backward, len) = (self.random.chance(300), self.random.below(WALK_LEN_MAX));
        let prefix_len = self.random.below(6) as usize;
        let kind = self.random.below(4);
        let (one, other) = {
            let iter = |keyspace: &Keyspace| -> Iter {
                match (&moment, kind) {
                    (None, 0) => keyspace.prefix(&start[..prefix_len.min(start.len())]),
                    (Some(at), 0) => at.prefix(keyspace, &start[..prefix_len.min(start.len())]),
                    (None, _) if is_backward => keyspace.range(..=start.clone()),
                    (Some(at), _) if is_backward => at.range(keyspace, ..=start.clone()),
                    (None, _) => keyspace.range(start.clone()..),
                    (Some(at), _) => at.range(keyspace, start.clone()..),
                }
            };
            (iter(&self.flex), iter(&self.lsm))
        };
        let walked = match is_backward {
            true => self.compare_walks(one.rev(), other.rev(), len),
            false => self.compare_walks(one, other, len),
        };
        self.walked += walked?;
        Ok(())
    }

    /// How many entries they had in common.
    fn compare_walks(
        &self,
        mut one: impl Iterator<Item = Result<Entry, Error>>,
        mut other: impl Iterator<Item = Result<Entry, Error>>,
        len: u64,
    ) -> Verdict<u64> {
        for number in 0..len {
            let (one, other) = (one.next().transpose(), other.next().transpose());
            let (one, other) = (self.said(one)?, self.said(other)?);
            expect_same("a walk", &one, &other)
                .map_err(|finding| finding.at(&format!("entry {number}")))?;
            if one.is_none() {
                return Ok(number);
            }
        }
        Ok(len)
    }

    fn count(&mut self) -> Verdict {
        let (moment, one, other) = (self.moment(), self.key(), self.key());
        let range = one.clone().min(other.clone())..one.max(other);
        self.same("count", |keyspace| match &moment {
            Some(snapshot) => snapshot.count(keyspace, range.clone()),
            None => keyspace.count(range.clone()),
        })
    }

    fn rank_and_select(&mut self) -> Verdict {
        let (moment, key) = (self.moment(), self.key());
        let rank_of = |keyspace: &Keyspace| match &moment {
            Some(snapshot) => snapshot.rank(keyspace, &key),
            None => keyspace.rank(&key),
        };
        self.same("rank", rank_of)?;
        let rank = rank_of(&self.flex).map_err(refused)?;
        let select = |keyspace: &Keyspace| match &moment {
            Some(snapshot) => snapshot.select(keyspace, rank),
            None => keyspace.select(rank),
        };
        let (one, other) = (self.said(select(&self.flex))?, self.said(select(&self.lsm))?);
        expect_same("select", &one, &other)
    }

    fn ends(&mut self) -> Verdict {
        let moment = self.moment();
        for is_first in [true, false] {
            let end = |keyspace: &Keyspace| match (&moment, is_first) {
                (Some(snapshot), true) => snapshot.first(keyspace),
                (Some(snapshot), false) => snapshot.last(keyspace),
                (None, true) => keyspace.first(),
                (None, false) => keyspace.last(),
            };
            let (one, other) = (self.said(end(&self.flex))?, self.said(end(&self.lsm))?);
            expect_same("first and last", &one, &other)?;
        }
        Ok(())
    }

    /// Everything, both ways, and what the database says of itself.
    fn compare_all(&mut self) -> Verdict {
        let forward = self.compare_walks(self.flex.iter(), self.lsm.iter(), u64::MAX)?;
        let backward =
            self.compare_walks(self.flex.iter().rev(), self.lsm.iter().rev(), u64::MAX)?;
        self.walked += forward + backward;
        self.same("len", Keyspace::len)?;
        expect_check_ok(&self.db)
    }

    fn same<T: PartialEq + fmt::Debug>(
        &self,
        what: &str,
        read: impl Fn(&Keyspace) -> Result<T, Error>,
    ) -> Verdict {
        let one = read(&self.flex).map_err(refused)?;
        expect_same(what, &one, &read(&self.lsm).map_err(refused)?)
    }

    /// What an entry says that the other's must say as well.
    fn said(&self, entry: Result<Option<Entry>, Error>) -> Verdict<Option<Said>> {
        let entry = entry.map_err(refused)?;
        let stamp = |entry: &Entry| (!self.have_own_stamps).then(|| entry.seqno.as_u64());
        Ok(entry.map(|entry| {
            let (stamp, expires) = (stamp(&entry), entry.expires_at());
            (entry.key, entry.value, stamp, expires)
        }))
    }
}

type Said = (Slice, Slice, Option<u64>, Option<std::time::SystemTime>);

fn key_bytes(number: u64) -> Vec<u8> {
    match (number < ODD_KEYS, number % 2) {
        (true, _) => Key(number as u16).bytes(),
        (false, 0) => format!("user/{number:08}").into_bytes(),
        (false, _) => mix(number).to_be_bytes().to_vec(),
    }
}

fn expect_same<T: PartialEq + fmt::Debug>(what: &str, flex: &T, lsm: &T) -> Verdict {
    if flex == lsm {
        return Ok(());
    }
    Err(Finding::new(Fault::Wrong, format!("{what}: Flex has {flex:?}, Lsm has {lsm:?}")))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: Error) -> Finding {
    Finding::new(Fault::Refused, error.to_string())
}
