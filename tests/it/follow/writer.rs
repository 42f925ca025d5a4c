//! A writer that does everything that there is, and what has to show as of each of its commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use lithe_sim::operator::{TAIL, tail};
use lithe_sim::random::Random;
use lithe_sim::setup::Setup;
use lithedb::storage::{SimStorage, Storage};
use lithedb::{
    Builder, Conversion, Db, Durability, Error, Follower, Keyspace, KeyspaceOptions, SeqNo,
    WriteBatch,
};

use super::port::Port;
use crate::support::{PATH, rows, tiny_structures};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What keyspaces have, by their numbers; of dropped ones what they had.
type Contents = BTreeMap<u32, Arc<Rows>>;

const KEY_COUNT: u64 = 150;

/// What there was, as of each commit.
#[derive(Default)]
pub struct Oracle {
    now: Contents,
    by_stamp: BTreeMap<SeqNo, Contents>,
}

impl Oracle {
    fn rows_mut(&mut self, id: u32) -> &mut Rows {
        Arc::make_mut(self.now.entry(id).or_default())
    }

    fn commit(&mut self, stamp: SeqNo) {
        assert!(self.newest() < stamp, "{stamp} behind {}", self.newest());
        self.by_stamp.insert(stamp, self.now.clone());
    }

    pub fn newest(&self) -> SeqNo {
        self.by_stamp.last_key_value().map_or(SeqNo::ZERO, |(stamp, _)| *stamp)
    }

    fn rows_at(&self, id: u32, stamp: SeqNo) -> Option<Arc<Rows>> {
        let (_, contents) = self.by_stamp.range(..=stamp).next_back()?;
        contents.get(&id).cloned()
    }

    /// What the follower shows is what there was.
    pub fn assert_shows(&self, follower: &Follower, random: &mut Random) {
        let (at, db) = (follower.position().stamp, follower.db());
        for info in db.keyspaces() {
            let keyspace = db.keyspace(&info.name).unwrap();
            let expected = self.rows_at(info.id, at).unwrap_or_default();
            let found = rows(&keyspace);
            let differing = expected.iter().find(|(key, value)| found.get(*key) != Some(*value));
            let differing = differing.map(|(key, _)| String::from_utf8_lossy(key));
            assert!(found == *expected, "{} at {at}: {differing:?}", info.name);
            assert_eq!(keyspace.len().unwrap(), expected.len() as u64);
            let key = key(random.below(KEY_COUNT));
            let got = keyspace.get(&key).unwrap();
            assert_eq!(got.as_deref(), expected.get(&key).map(Vec::as_slice));
            if keyspace.keeps_history() {
                self.assert_past(&keyspace, at, random);
            }
        }
    }

    /// Keys are what they were at moments of the past, as far as it is kept.
    fn assert_past(&self, keyspace: &Keyspace, at: SeqNo, random: &mut Random) {
        let stamps: Vec<SeqNo> = self.by_stamp.range(..=at).map(|(stamp, _)| *stamp).collect();
        for _ in 0..3 {
            let Some(stamp) = stamps.get(random.index(stamps.len().max(1))) else { return };
            let key = key(random.below(KEY_COUNT));
            let expected = self.rows_at(keyspace.id(), *stamp).unwrap_or_default();
            match keyspace.get_at(&key, *stamp) {
                Ok(found) => {
                    let expected = expected.get(&key).map(Vec::as_slice);
                    assert_eq!(found.as_deref(), expected, "at {stamp}");
                }
                Err(Error::BeyondRetention { .. }) => {} // It was converted since.
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

/// A writer on a storage that others read.
pub struct Writer {
    pub oracle: Oracle,
    storage: SimStorage,
    setup: Setup,
    port: Port,
    db: Option<Db>,
    random: Random,
    /// Keyspaces that it knows of, each with whether it merges.
    keyspaces: Vec<(String, bool)>,
    openings: u64,
    names: u64,
    checkpoints: u64,
}

impl Writer {
    pub fn new(storage: &SimStorage, setup: Setup, seed: u64) -> Writer {
        let port = Port::new(Arc::new(storage.clone()));
        let mut writer = Writer {
            oracle: Oracle::default(),
            storage: storage.clone(),
            setup,
            port,
            db: None,
            random: Random::new(seed),
            keyspaces: Vec::new(),
            openings: 0,
            names: 0,
            checkpoints: 0,
        };
        writer.open();
        writer.create(tiny_structures()[0].clone(), true);
        for options in &tiny_structures()[1..] {
            writer.create(options.clone().value_separation(Some(300)), false);
        }
        writer.create(history(), false);
        writer
    }

    /// Options for another process on the same database.
    pub fn builder_in(&mut self, storage: Arc<dyn Storage>) -> Builder {
        self.openings += 1;
        self.setup.builder(storage, Arc::default(), self.openings)
    }

    fn open(&mut self) {
        self.port = Port::new(Arc::new(self.storage.clone()));
        let builder = self.builder_in(Arc::new(self.port.clone())).flush_slice_size(700);
        self.db = Some(builder.open(PATH).unwrap());
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn create(&mut self, options: KeyspaceOptions, merges: bool) {
        self.names += 1;
        let name = format!("k{}", self.names);
        self.db().create_keyspace(&name, options).unwrap();
        self.keyspaces.push((name, merges));
    }

    /// Any of the keyspaces, and whether it merges.
    fn pick(&mut self) -> (Keyspace, bool) {
        let index = self.random.index(self.keyspaces.len());
        let (name, merges) = self.keyspaces[index].clone();
        (self.db().keyspace(&name).unwrap(), merges)
    }

    /// Does something.
    pub fn act(&mut self) {
        match self.random.below(100) {
            0..60 => self.write(),
            60..76 => {
                self.db().step().unwrap();
            }
            76..80 => self.ingest(),
            80..84 => self.db().flush().unwrap(),
            84..87 => self.db().sync().unwrap(),
            87 => self.db().compact().unwrap(),
            88 => {
                self.db().vacuum().unwrap();
            }
            89..92 => self.change_catalog(),
            92 => self.checkpoint(),
            93..95 => self.convert(),
            95..97 => self.reopen(),
            97 => self.be_killed(),
            _ => self.write_much(),
        }
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.below(6) {
            self.add_to(&mut batch);
        }
        self.commit(batch);
    }

    /// Enough to have memtables sealed and log files changed.
    fn write_much(&mut self) {
        for _ in 0..12 {
            self.write();
        }
    }

    fn commit(&mut self, batch: WriteBatch) {
        let durability = [Durability::Buffered, Durability::Sync][self.random.index(2)];
        let stamp = self.db().write_with(batch, durability).unwrap();
        self.oracle.commit(stamp);
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [8, 8, 40, 200, 700][self.random.index(5)];
        vec![b'a' + self.random.below(26) as u8; len]
    }

    fn add_to(&mut self, batch: &mut WriteBatch) {
        let (keyspace, merges) = self.pick();
        let (id, number, value) = (keyspace.id(), self.random.below(KEY_COUNT), self.value());
        let key_of = key;
        let key = key_of(number);
        match self.random.below(12) {
            0 | 1 => {
                batch.delete(&keyspace, &key);
                self.oracle.rows_mut(id).remove(&key);
            }
            2 => {
                let end = key_of(number + 12);
                batch.delete_range(&keyspace, key.clone()..end.clone());
                self.oracle.rows_mut(id).retain(|other, _| !(&key..&end).contains(&other));
            }
            3..6 if merges => {
                batch.merge(&keyspace, &key, &value);
                let rows = self.oracle.rows_mut(id);
                let merged = tail(rows.get(&key).map(Vec::as_slice), &value);
                rows.insert(key, merged);
            }
            _ => {
                batch.put(&keyspace, &key, &value);
                self.oracle.rows_mut(id).insert(key, value);
            }
        }
    }

    fn ingest(&mut self) {
        let (keyspace, _) = self.pick();
        let first = self.random.below(KEY_COUNT);
        let mut ingest = keyspace.begin_ingest().unwrap();
        for number in first..first + 1 + self.random.below(20) {
            let value = self.value();
            ingest.add(key(number), &value).unwrap();
            self.oracle.rows_mut(keyspace.id()).insert(key(number), value);
        }
        let stamp = ingest.finish().unwrap().seqno;
        self.oracle.commit(stamp);
    }

    fn change_catalog(&mut self) {
        match self.random.below(3) {
            0 if self.keyspaces.len() < 8 => {
                let index = self.random.index(3);
                self.create(tiny_structures()[index].clone(), index == 0);
            }
            1 if self.keyspaces.len() > 3 => {
                let index = self.random.index(self.keyspaces.len());
                let (name, _) = self.keyspaces.swap_remove(index);
                self.db().drop_keyspace(&name).unwrap();
            }
            _ => {
                self.names += 1;
                let (index, name) = (self.random.index(self.keyspaces.len()), self.names);
                let name = format!("renamed {name}");
                self.db().rename_keyspace(&self.keyspaces[index].0, &name).unwrap();
                self.keyspaces[index].0 = name;
            }
        }
    }

    fn checkpoint(&mut self) {
        self.checkpoints += 1;
        self.db().checkpoint(format!("/checkpoint {}", self.checkpoints)).unwrap();
    }

    fn convert(&mut self) {
        let (keyspace, merges) = self.pick();
        let target = match self.random.below(3) {
            0 => history(),
            other => tiny_structures()[other as usize].clone(),
        };
        let target = if merges { target.merge_operator(TAIL) } else { target };
        keyspace.convert(Conversion::to(target).losing_versions()).unwrap();
    }

    fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.open();
    }

    /// Has this happen in front of each call to its storage, until it is opened again.
    pub fn in_front_of_calls(&self, hook: impl FnMut() + Send + 'static) {
        self.port.in_front_of_calls(hook);
    }

    pub fn undisturbed(&self) {
        self.port.undisturbed();
    }

    /// Its process is killed, and another takes its place.
    pub fn be_killed(&mut self) {
        self.port.shut();
        drop(self.db.take());
        self.open();
    }
}

fn history() -> KeyspaceOptions {
    KeyspaceOptions::history().interval_size(1024).segment_size(4096).value_separation(Some(300))
}
