//! Backups at random moments of a database that does everything: what is restored is the database
//! at its stamp, the past included, from a directory and from a stream, encrypted or not.

use lithe_sim::random::Random;
use lithedb::{BackupStream, IndexOptions, Keyspace, SeqNo};

use super::*;

const ROUND_COUNT: u64 = 60;
const KEY_COUNT: u64 = 120;

/// What a backup must show.
struct Expected {
    seqno: SeqNo,
    contents: Contents,
    /// Of the keyspace that keeps versions, all of them.
    versions: Vec<String>,
    /// Of the index, who is found by what.
    indexed: Vec<Vec<u8>>,
    /// The backup as a stream, if it was sent.
    sent: Option<Vec<u8>>,
}

struct Model {
    storage: SimStorage,
    setup: Setup,
    opening: u64,
    random: Random,
}

impl Model {
    fn builder(&mut self) -> Builder {
        self.opening += 1;
        let storage = Arc::new(self.storage.clone());
        self.setup.builder(storage, Arc::default(), self.opening)
    }

    fn open(&mut self, path: &str) -> Db {
        self.builder().open(path).unwrap()
    }

    /// A keyspace of each structure, one with an index, one that merges.
    fn create_keyspaces(&self, db: &Db) {
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

    fn act(&mut self, db: &Db) {
        let infos = db.keyspaces();
        let keyspaces: Vec<Keyspace> =
            infos.iter().map(|info| db.keyspace(&info.name).unwrap()).collect();
        for _ in 0..self.random.below(30) {
            let index = self.random.index(keyspaces.len());
            let (keyspace, name) = (&keyspaces[index], &*infos[index].name);
            let key = format!("{:03}", self.random.below(KEY_COUNT));
            let mut batch = WriteBatch::new();
            match (self.random.below(10), name) {
                (_, "counters") => batch.merge(keyspace, key, 1i64.to_le_bytes()),
                (0 | 1, _) => batch.delete(keyspace, key),
                (2, name) if name != "indexed" => {
                    let other = format!("{:03}", self.random.below(KEY_COUNT));
                    batch.delete_range(keyspace, key.clone().min(other.clone())..key.max(other));
                }
                (3, _) => batch.put(keyspace, key, vec![self.random.below(200) as u8; 1500]),
                _ => {
                    let len = 1 + self.random.below(200) as usize;
                    batch.put(keyspace, key, vec![self.random.below(9) as u8; len]);
                }
            }
            let durability = match self.random.below(4) {
                0 => Durability::Sync,
                _ => Durability::Buffered,
            };
            db.write_with(batch, durability).unwrap();
        }
        match self.random.below(9) {
            0 => db.flush().unwrap(),
            1 => step_to_rest(db),
            2 => db.compact().unwrap(),
            3 => {
                db.vacuum().unwrap();
            }
            4 => self.ingest(db),
            _ => {
                db.step().unwrap();
            }
        }
    }

    fn ingest(&mut self, db: &Db) {
        let name = format!("structure {}", self.random.below(3));
        let keyspace = db.keyspace(&name).unwrap();
        let from = self.random.below(KEY_COUNT);
        let to = from + 1 + self.random.below(20);
        let entries = (from..to).map(|key| (format!("{key:03}"), vec![key as u8; 100]));
        keyspace.ingest(entries).unwrap();
    }

    fn look(db: &Db) -> (Vec<String>, Vec<Vec<u8>>) {
        let history = db.keyspace("history").unwrap();
        let versions = history.versions_by_stamp(..).unwrap();
        let versions = versions.map(|version| format!("{:?}", version.unwrap())).collect();
        let indexed = db.keyspace("indexed").unwrap();
        let view = indexed.index("by value").unwrap().view().unwrap();
        let found = (0..9u8).flat_map(|value| {
            view.get([value]).map(|entry| entry.unwrap().primary_key().to_vec()).collect::<Vec<_>>()
        });
        (versions, found.collect())
    }

    fn expect(&mut self, path: &str, expected: &Expected) {
        let db = self.open(path);
        assert_eq!(db.snapshot().seqno(), expected.seqno, "{path}");
        assert!(contents(&db) == expected.contents, "{path}");
        let (versions, indexed) = Model::look(&db);
        assert_eq!(versions, expected.versions, "{path}");
        assert_eq!(indexed, expected.indexed, "{path}");
        assert_sound(&db);
        self.act(&db); // It goes on as any other.
        assert_sound(&db);
    }
}

fn run(seed: u64) {
    println!("seed {seed}");
    let setup = Setup::tiny(seed);
    let setup = if seed.is_multiple_of(2) { setup } else { setup.encrypted() };
    let storage = SimStorage::new(seed);
    let mut model = Model { storage, setup, opening: 0, random: Random::new(seed) };
    let mut db = model.open(PATH);
    model.create_keyspaces(&db);
    let storage = model.storage.clone();
    let backups = repository(&storage);
    let mut made: BTreeMap<u64, Expected> = BTreeMap::new();
    for _ in 0..ROUND_COUNT {
        model.act(&db);
        match model.random.below(8) {
            0 | 1 => {
                let (versions, indexed) = Model::look(&db);
                let contents = contents(&db);
                let info = backups.create(&db).unwrap();
                let mut expected =
                    Expected { seqno: info.seqno, contents, versions, indexed, sent: None };
                if model.random.below(2) == 0 {
                    let mut sent = Vec::new();
                    db.backup_to(&mut sent, BackupOptions::new()).unwrap();
                    expected.sent = Some(sent);
                }
                made.insert(info.number, expected);
            }
            2 if made.len() > 3 => {
                let keys: Vec<u64> = made.keys().copied().collect();
                let number = keys[model.random.index(keys.len() - 1)];
                backups.remove(number).unwrap();
                made.remove(&number);
            }
            3 => {
                db.close().unwrap();
                drop(db); // As long as it is there, it has its files open.
                db = model.open(PATH);
            }
            4 if !made.is_empty() && model.random.below(3) == 0 => {
                // Back to an older one, and on from there.
                db.close().unwrap();
                let keys: Vec<u64> = made.keys().copied().collect();
                let number = keys[model.random.index(keys.len())];
                backups.restore(number, PATH, RestoreOptions::new().replace()).unwrap();
                drop(db);
                db = model.open(PATH);
                assert!(contents(&db) == made[&number].contents);
            }
            _ => {}
        }
    }
    assert!(made.len() > 2);
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok(), "{check:?}");
    backups.prune(usize::MAX).unwrap();
    assert_eq!(check.files, files_of(&storage, "files").len() as u64);
    for (number, expected) in &made {
        let target = format!("{TARGET} {number}");
        backups.restore(*number, &target, RestoreOptions::new()).unwrap();
        model.expect(&target, expected);
        if let Some(sent) = &expected.sent {
            let target = format!("/streamed {number}");
            let options = RestoreOptions::new().storage(Arc::new(storage.clone()));
            let options = options.open_with(model.builder());
            BackupStream::open(&**sent).unwrap().restore(&target, options).unwrap();
            model.expect(&target, expected);
        }
    }
    assert_eq!(storage.violations(), [""; 0]);
}

#[test]
fn restored_is_what_there_was_at_its_stamp() {
    (0..6).for_each(run);
}

/// Of an encrypted database nothing in the clear comes to a repository or a stream, and restoring
/// takes no key.
#[test]
fn an_encrypted_database_stays_sealed_on_its_way() {
    const CANARY: &[u8] = b"whom nobody may see";
    let storage = SimStorage::new(9);
    let setup = Setup::tiny(9).encrypted();
    let builder = |nth| setup.builder(Arc::new(storage.clone()), Arc::default(), nth);
    let db = builder(0).open(PATH).unwrap();
    fill(&db, 0..60, 0);
    let keyspace = db.keyspace("structure 0").unwrap();
    keyspace.put(CANARY, CANARY.repeat(50)).unwrap();
    keyspace.put("short", CANARY).unwrap();
    let expected = contents(&db);
    let backups = repository(&storage);
    backups.create(&db).unwrap();
    let mut sent = Vec::new();
    db.backup_to(&mut sent, BackupOptions::new()).unwrap();
    let has_canary = |bytes: &[u8]| bytes.windows(8).any(|window| *window == CANARY[..8]);
    assert!(!has_canary(&sent));
    for path in files_of(&storage, "files").into_iter().chain(files_of(&storage, "backups")) {
        assert!(!has_canary(&storage.read_file(&path).unwrap()), "{path:?}");
    }
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    backups.restore(1, TARGET, RestoreOptions::new()).unwrap();
    let without_key = Setup::tiny(9).builder(Arc::new(storage.clone()), Arc::default(), 5);
    let refused = without_key.existing(OpenExisting::Only).open(TARGET).unwrap_err();
    assert!(matches!(refused, Error::KeyNeeded { .. }), "{refused}");
    let restored = builder(6).existing(OpenExisting::Only).open(TARGET).unwrap();
    assert_eq!(contents(&restored), expected);
    assert_sound(&restored);
    // A check before it gets its name needs the key.
    let unlocked = RestoreOptions::new().open_with(builder(7));
    backups.restore(1, "/unlocked", unlocked).unwrap();
    let locked = Setup::tiny(9).builder(Arc::new(storage.clone()), Arc::default(), 8);
    let refused = backups.restore(1, "/locked", RestoreOptions::new().open_with(locked));
    assert!(matches!(refused, Err(Error::KeyNeeded { .. })));
    assert!(!storage.exists(Path::new("/locked")).unwrap());
}
