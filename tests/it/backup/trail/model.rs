//! A database that does everything, and a trail that follows it through crashes, rotations of the
//! key, and what ends it: restored at each of many stamps it is what it was, the past included.

use lithe_sim::clock::SimClock;
use lithe_sim::parallel::run_cases;
use lithe_sim::random::Random;
use lithedb::IndexOptions;

use super::*;
use crate::THREADS;

const ROUND_COUNT: u64 = 70;
const KEY_COUNT: u64 = 60;
/// Of the moments that were looked at, so many are restored.
const RESTORED_COUNT: usize = 16;
const MODES: [CrashMode; 4] =
    [CrashMode::KeepAll, CrashMode::DropAll, CrashMode::RandomSectors, CrashMode::Prefix];

/// What there is to be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    contents: Contents,
    /// Of the keyspace that keeps versions, all of them.
    versions: Vec<String>,
    /// Of the index, who is found by what; if there is one.
    indexed: Option<Vec<Vec<u8>>>,
}

/// A moment that was looked at.
struct Moment {
    stamp: SeqNo,
    /// By the clock of the database.
    millis: u64,
    trail: u64,
    /// Whether a pass has added what is up to there.
    is_told: bool,
    look: Look,
}

struct Model {
    storage: SimStorage,
    setup: Setup,
    clock: Arc<SimClock>,
    opening: u64,
    random: Random,
    moments: Vec<Moment>,
    /// The trail that follows, and as of when its first backup is.
    followed: Option<(u64, SeqNo)>,
    /// Trails that have ended.
    ended: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let setup = Setup::tiny(seed);
        Model {
            storage: SimStorage::new(seed),
            setup: if seed.is_multiple_of(2) { setup } else { setup.encrypted() },
            clock: Arc::default(),
            opening: 0,
            random: Random::new(seed),
            moments: Vec::new(),
            followed: None,
            ended: 0,
        }
    }

    fn builder(&mut self, clock: &Arc<SimClock>) -> Builder {
        self.opening += 1;
        let storage = Arc::new(self.storage.clone());
        self.setup.builder(storage, Arc::clone(clock), self.opening)
    }

    fn open(&mut self) -> Db {
        let clock = Arc::clone(&self.clock);
        self.builder(&clock).open(PATH).unwrap()
    }

    /// A keyspace of each structure, one with an index, one that merges.
    fn create_keyspaces(db: &Db) {
        for (number, options) in tiny_structures().into_iter().enumerate() {
            let name = format!("structure {number}");
            db.create_keyspace(&name, options.value_separation(Some(600))).unwrap();
        }
        let history = KeyspaceOptions::history().value_separation(Some(600));
        db.create_keyspace("history", history).unwrap();
        let indexed = db.create_keyspace("indexed", KeyspaceOptions::lsm()).unwrap();
        indexed.create_index("by value", "value_prefix:1", IndexOptions::new()).unwrap();
        let counters = KeyspaceOptions::flex().merge_operator("counter");
        db.create_keyspace("counters", counters).unwrap();
    }

    fn look(db: &Db) -> Look {
        let history = db.keyspace("history").unwrap();
        let versions = history.versions_by_stamp(..).unwrap();
        let versions = versions.map(|version| format!("{:?}", version.unwrap())).collect();
        let index = db.keyspace("indexed").unwrap().index("by value").ok();
        let indexed = index.map(|index| {
            let view = index.view().unwrap();
            let found = (0..9u8).flat_map(|value| {
                let entries = view.get([value]);
                entries.map(|entry| entry.unwrap().primary_key().to_vec()).collect::<Vec<_>>()
            });
            found.collect()
        });
        Look { contents: contents(db), versions, indexed }
    }

    /// Notes what there is at a moment, if a trail is told of it.
    fn note(&mut self, db: &Db, stamp: SeqNo, look: Look) {
        let Some((trail, from)) = self.followed else { return };
        if db.trail().is_some_and(|trail| trail.end.is_none()) && stamp >= from {
            let millis = self.clock.wall_millis();
            self.moments.push(Moment { stamp, millis, trail, is_told: false, look });
        }
    }

    /// A commit; some are looked at before and after: edits of the catalogue come in between.
    fn commit(&mut self, db: &Db) {
        let before = (self.random.below(6) == 0).then(|| Model::look(db));
        let mut batch = WriteBatch::new();
        for _ in 0..=self.random.below(3) {
            self.write(db, &mut batch);
        }
        let durability = match self.random.below(4) {
            0 => Durability::Sync,
            _ => Durability::Buffered,
        };
        let newest = db.snapshot().seqno();
        let stamp = db.write_with(batch, durability).unwrap();
        // What deletes an empty range alone is no commit.
        if let Some(look) = before.filter(|_| stamp > newest) {
            self.note(db, SeqNo::from_u64(stamp.as_u64() - 1), look);
        }
        if self.random.below(6) == 0 {
            self.note(db, stamp, Model::look(db));
        }
    }

    fn write(&mut self, db: &Db, batch: &mut WriteBatch) {
        let infos = db.keyspaces();
        let name = &*infos[self.random.index(infos.len())].name;
        let keyspace = db.keyspace(name).unwrap();
        let key = format!("{:03}", self.random.below(KEY_COUNT));
        let value = vec![self.random.below(9) as u8; 1 + self.random.below(200) as usize];
        match (self.random.below(12), name) {
            (_, "counters") => batch.merge(&keyspace, key, 1i64.to_le_bytes()),
            (0 | 1, _) => batch.delete(&keyspace, key),
            (2, name) if name != "indexed" => {
                let other = format!("{:03}", self.random.below(KEY_COUNT));
                batch.delete_range(&keyspace, key.clone().min(other.clone())..key.max(other));
            }
            (3..=5, _) => {
                batch.put(&keyspace, key, vec![self.random.below(200) as u8; 1500]);
            }
            (6, "structure 1" | "structure 2") => {
                let ttl = self.random.pick(&[50, 2_000, 1 << 40]);
                batch.put_with_ttl(&keyspace, key, value, Duration::from_millis(ttl));
            }
            _ => batch.put(&keyspace, key, value),
        }
    }

    /// Keyspaces come, go and are renamed; an index does.
    fn edit(&mut self, db: &Db) {
        let number = self.random.below(3);
        let (name, other) = (format!("extra {number}"), format!("extra {}", (number + 1) % 3));
        match (self.random.below(4), db.keyspace(&name).is_ok()) {
            (3, _) => self.edit_index(db),
            (_, false) => {
                let structures = tiny_structures().into_iter().chain([KeyspaceOptions::history()]);
                let options = structures.collect::<Vec<_>>();
                let options = options[self.random.index(options.len())].clone();
                db.create_keyspace(&name, options.value_separation(Some(600))).unwrap();
            }
            (0, true) => db.drop_keyspace(&name).unwrap(),
            (_, true) if db.keyspace(&other).is_err() => {
                db.rename_keyspace(&name, &other).unwrap();
            }
            _ => {}
        }
    }

    fn edit_index(&mut self, db: &Db) {
        let indexed = db.keyspace("indexed").unwrap();
        let is_there = indexed.index("by value").is_ok();
        match self.random.below(2) {
            0 if is_there => {
                indexed.rebuild_index("by value").unwrap();
            }
            _ if is_there => indexed.drop_index("by value").unwrap(),
            _ => {
                let options = IndexOptions::new();
                indexed.create_index("by value", "value_prefix:1", options).unwrap();
            }
        }
    }

    fn act(&mut self, db: &Db) {
        self.clock.jump(self.random.below(300) as i16);
        for _ in 0..self.random.below(10) {
            self.commit(db);
        }
        match self.random.below(12) {
            0 => db.flush().unwrap(),
            1 => step_to_rest(db),
            2 => db.compact().unwrap(),
            3 | 4 => {
                db.vacuum().unwrap();
            }
            5..=7 => self.edit(db),
            8 if self.setup.encrypted => {
                db.rotate_data_key().unwrap();
            }
            _ => {
                db.step().unwrap();
            }
        }
    }

    fn begin(&mut self, db: &Db) {
        let info = repository(&self.storage).begin_trail(db, TrailOptions::new()).unwrap();
        let trail = info.trail.expect("it is on the trail that it begins");
        assert_eq!(db.trail().unwrap().trail, trail);
        self.followed = Some((trail, info.as_of));
    }

    /// What was told by now.
    fn note_told(&mut self, db: &Db) {
        let status = db.trail().unwrap();
        let told = self.moments.iter_mut().filter(|moment| moment.trail == status.trail);
        told.filter(|moment| moment.stamp <= status.done).for_each(|moment| moment.is_told = true);
    }

    fn extend(&mut self, db: &Db) {
        let passed = repository(&self.storage).extend_trail(db);
        let has_ended = match passed {
            Ok(report) => {
                assert_eq!(db.trail().unwrap().done, report.to);
                report.end.is_some()
            }
            Err(Error::TrailEnded { .. }) => true,
            Err(error) => panic!("{error}"),
        };
        self.note_told(db);
        if has_ended {
            let is_told = |moment: &Moment| moment.is_told;
            assert!(self.moments.iter().all(is_told), "none was noted behind its end");
            self.ended += 1;
            self.begin(db);
        }
    }

    fn ingest(&mut self, db: &Db) {
        let name = format!("structure {}", self.random.below(3));
        let keyspace = db.keyspace(&name).unwrap();
        let from = self.random.below(KEY_COUNT);
        let entries = (from..from + 9).map(|key| (format!("{key:03}"), vec![key as u8; 100]));
        keyspace.ingest(entries).unwrap();
    }

    /// The power is cut: what comes behind the newest commit that is left was not to be.
    fn crash(&mut self, db: Db) -> Db {
        let left = self.storage.crash(self.random.pick(&MODES), self.random.draw());
        assert_eq!(self.storage.violations(), [""; 0]);
        drop(db);
        self.storage = left;
        let db = self.open();
        let newest = db.snapshot().seqno();
        self.moments.retain(|moment| moment.is_told || moment.stamp <= newest);
        assert!(db.trail().is_some_and(|trail| Some(trail.trail) == self.followed.map(|it| it.0)));
        db
    }

    /// Back to an older backup, and on from there: that is another history.
    fn go_back(&mut self, db: Db) -> Db {
        db.close().unwrap();
        drop(db);
        let backups = repository(&self.storage);
        let list = backups.list().unwrap();
        let number = list[self.random.index(list.len())].number;
        backups.restore(number, PATH, RestoreOptions::new().replace()).unwrap();
        self.moments.retain(|moment| moment.is_told);
        let db = self.open();
        assert_eq!(db.trail(), None);
        self.begin(&db);
        db
    }

    /// Goes on with one round of what can happen.
    fn go_on(&mut self, db: Db) -> Db {
        self.act(&db);
        match self.random.below(16) {
            0..=3 => self.extend(&db),
            4 | 5 => {
                let is_followed = db.trail().unwrap().end.is_none();
                let info = repository(&self.storage).create(&db).unwrap();
                assert!(info.trail.is_some() || !is_followed);
                self.note_told(&db);
            }
            6 => {
                drop(db);
                return self.open();
            }
            7 | 8 => return self.crash(db),
            9 if self.random.below(3) == 0 => self.ingest(&db),
            10 if self.random.below(6) == 0 => return self.go_back(db),
            _ => {}
        }
        db
    }

    /// Restores a moment and compares.
    fn expect(&mut self, moment: &Moment, target: &str) {
        let Moment { stamp, millis, trail, .. } = *moment;
        let clock = Arc::new(SimClock::at_millis(millis));
        let options = RestoreOptions::new().trail(trail).go_on_with(self.builder(&clock));
        let restored = repository(&self.storage).restore_at(stamp, target, options).unwrap();
        let db = self.builder(&clock).existing(OpenExisting::Only).open(target).unwrap();
        assert!(restored.seqno <= stamp, "{stamp}");
        assert_eq!(db.snapshot().seqno(), restored.seqno, "{stamp}");
        let found = Model::look(&db);
        let names = |look: &Look| look.contents.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&moment.look), "{stamp}");
        assert_eq!(found.versions, moment.look.versions, "{stamp}");
        assert_eq!(found.indexed, moment.look.indexed, "{stamp}");
        assert!(found == moment.look, "{stamp}");
        assert_eq!(db.trail(), None);
        assert_sound(&db);
        // It goes on as any other.
        self.followed = None;
        self.act(&db);
        step_to_rest(&db);
        assert_sound(&db);
    }
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut model = Model::new(seed);
    let mut db = model.open();
    Model::create_keyspaces(&db);
    model.begin(&db);
    for _ in 0..ROUND_COUNT {
        db = model.go_on(db);
        assert_eq!(model.storage.violations(), [""; 0]);
    }
    model.extend(&db);
    assert!(model.moments.iter().all(|moment| moment.is_told));
    assert_sound(&db);
    db.close().unwrap();
    let storage = model.storage.clone();
    let check = repository(&storage).verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok() && check.segments > 0, "{check:?}");
    let mut moments = std::mem::take(&mut model.moments);
    assert!(moments.len() > 30, "{}", moments.len());
    for number in 0..RESTORED_COUNT {
        let index = model.random.index(moments.len());
        // The last one as well, in which everything was done again.
        let moment = if number == 0 { moments.pop() } else { Some(moments.swap_remove(index)) };
        let moment = moment.expect("there are more");
        model.expect(&moment, &format!("{TARGET} {number}"));
    }
    assert_eq!(model.storage.violations(), [""; 0]);
}

/// Draws so many runs from the first seed on.
fn run_seeds(first: u64, count: u64) {
    run_cases(THREADS, count, |number| {
        run(first + number);
        true
    });
}

/// The long version is the next test.
#[test]
fn restored_at_any_stamp_it_is_what_it_was() {
    run_seeds(0, 16);
}

#[test]
#[ignore = "takes minutes: `just trails`"]
fn restored_at_any_stamp_it_is_what_it_was_in_many_runs() {
    run_seeds(2300, 700);
}
