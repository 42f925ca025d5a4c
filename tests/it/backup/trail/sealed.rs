//! Trails of encrypted databases: nothing in the clear, and keys that change on the way.

use lithedb::{Encryption, IndexOptions};

use super::*;

struct Sealed {
    storage: SimStorage,
    setup: Setup,
}

impl Sealed {
    fn new(seed: u64) -> Sealed {
        Sealed { storage: SimStorage::new(seed), setup: Setup::tiny(seed).encrypted() }
    }

    /// Opens with the key or passphrase of this number.
    fn builder(&self, key: u8) -> Builder {
        static OPENINGS: AtomicU64 = AtomicU64::new(5000);
        let nth = OPENINGS.fetch_add(1, Ordering::Relaxed);
        let builder = self.setup.builder(Arc::new(self.storage.clone()), Arc::default(), nth);
        builder.encryption(self.key(key, nth))
    }

    fn key(&self, key: u8, nth: u64) -> Encryption {
        self.setup.encryption(key, nth)
    }

    fn restore(&self, at: SeqNo, key: u8) -> Result<Db, Error> {
        static TARGETS: AtomicU64 = AtomicU64::new(0);
        let target = format!("/unsealed {}", TARGETS.fetch_add(1, Ordering::Relaxed));
        let options = RestoreOptions::new().go_on_with(self.builder(key));
        let restored = repository(&self.storage).restore_at(at, &target, options);
        assert_eq!(self.storage.exists(Path::new(&target)).unwrap(), restored.is_ok());
        restored?;
        Ok(self.builder(key).existing(OpenExisting::Only).open(&target).unwrap())
    }

    /// Another data key, until nothing has the one of before: what is kept for the trail is told.
    fn rotate(&self, db: &Db) {
        for _ in 0..4 {
            if db.rotate_data_key().unwrap().is_complete {
                return;
            }
            write(db, 7);
            repository(&self.storage).extend_trail(db).unwrap();
        }
        panic!("a trail that has everything holds nothing");
    }

    fn expect(&self, moment: &Moment, key: u8) {
        let db = self.restore(moment.0, key).unwrap();
        assert!(contents(&db) == moment.1);
        assert_sound(&db);
    }
}

#[test]
fn nothing_in_the_clear_comes_to_a_trail() {
    const CANARY: &[u8] = b"whom nobody may see";
    let sealed = Sealed::new(31);
    let storage = &sealed.storage;
    let db = sealed.builder(0).open(PATH).unwrap();
    let backups = repository(storage);
    fill(&db, 0..20, 0);
    begin(&backups, &db);
    let keyspace = db.keyspace("structure 0").unwrap();
    keyspace.put(CANARY, CANARY.repeat(5000)).unwrap();
    keyspace.put("short", CANARY).unwrap();
    db.create_keyspace(std::str::from_utf8(CANARY).unwrap(), KeyspaceOptions::lsm()).unwrap();
    let told = write(&db, 1);
    backups.extend_trail(&db).unwrap();
    let has_canary = |bytes: &[u8]| bytes.windows(8).any(|window| *window == CANARY[..8]);
    let files = files_of_trails(storage, "");
    assert!(files.len() > 2, "{files:?}");
    for path in &files {
        assert!(!has_canary(&storage.read_file(path).unwrap()), "{path:?}");
    }
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok(), "no key is needed");
    sealed.expect(&told, 0);
    let without = Setup::tiny(31).builder(Arc::new(storage.clone()), Arc::default(), 1);
    let options = RestoreOptions::new().go_on_with(without);
    let refused = backups.restore_at(told.0, TARGET, options);
    assert!(matches!(refused, Err(Error::KeyNeeded { .. })), "{refused:?}");
    let refused = sealed.restore(told.0, 1).unwrap_err();
    assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
    // The keyring is found to be missing, or to be another one.
    let keyrings = files_of_trails(storage, "keyring-");
    let [keyring] = &keyrings[..] else { panic!("{files:?}") };
    let bytes = storage.read_file(keyring).unwrap();
    let file = storage.open(keyring, OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[bytes[99] ^ 1], 99).unwrap();
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert_eq!(check.trail_problems[0].file, *keyring);
    drop(file);
    storage.remove_file(keyring).unwrap();
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert_eq!(check.trail_problems[0].file, *keyring);
    assert!(!storage.exists(Path::new(TARGET)).unwrap());
}

/// What a backup was sealed with opens all that came behind it, until the data key is another one;
/// that is in the keyring of then.
#[test]
fn keys_change_along_a_trail() {
    let sealed = Sealed::new(32);
    let storage = &sealed.storage;
    let db = sealed.builder(0).open(PATH).unwrap();
    let backups = repository(storage);
    fill(&db, 0..20, 0);
    begin(&backups, &db);
    let first = write(&db, 1);
    backups.extend_trail(&db).unwrap();
    // Another data key: also of what was not told yet.
    let untold = write(&db, 2);
    let rotated = db.rotate_data_key().unwrap();
    assert!(!rotated.files_left.is_empty(), "the log is kept for the trail: {rotated:?}");
    let second = write(&db, 3);
    backups.extend_trail(&db).unwrap();
    for told in [&first, &untold, &second] {
        sealed.expect(told, 0);
    }
    sealed.rotate(&db);
    // Another master key: the data keys are the same ones.
    db.rekey(&sealed.key(1, 9000)).unwrap();
    let third = write(&db, 4);
    backups.extend_trail(&db).unwrap();
    sealed.expect(&third, 0);
    // Behind another data key, what is in the keyring of then takes the key of then.
    sealed.rotate(&db);
    let fourth = write(&db, 5);
    backups.extend_trail(&db).unwrap();
    sealed.expect(&third, 0);
    let refused = sealed.restore(fourth.0, 0).unwrap_err();
    assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
    // From the next backup on, it is that alone.
    backups.create(&db).unwrap();
    let fifth = write(&db, 6);
    backups.extend_trail(&db).unwrap();
    sealed.expect(&fifth, 1);
    db.close().unwrap();
    let segments = files_of_trails(storage, "segment-");
    assert!(segments.len() >= 3, "each has one data key: {segments:?}");
    let keyrings = files_of_trails(storage, "keyring-").len();
    assert!(keyrings >= 3, "{keyrings}");
    backups.prune(1).unwrap();
    assert!(files_of_trails(storage, "keyring-").len() < keyrings);
    sealed.expect(&fifth, 1);
    assert_eq!(storage.violations(), [""; 0]);
}

/// What is done again has keys of its own for those who had them. These have numbers that the
/// database has given to others.
#[test]
fn keyspaces_have_keys_of_their_own_along_a_trail() {
    let sealed = Sealed::new(33);
    let storage = &sealed.storage;
    let db = sealed.builder(0).open(PATH).unwrap();
    let backups = repository(storage);
    fill(&db, 0..20, 0);
    let options = || KeyspaceOptions::history().value_separation(Some(300));
    let create = |name: &str| {
        let keyspace = db.create_keyspace_with_own_key(name, options()).unwrap();
        keyspace.put("large", name.repeat(1000)).unwrap();
        keyspace.put("small", name).unwrap();
    };
    create("first");
    begin(&backups, &db);
    create("second");
    let first = db.keyspace("first").unwrap();
    first.create_index("by value", "value_prefix:3", IndexOptions::new()).unwrap();
    let all = write(&db, 1);
    backups.extend_trail(&db).unwrap();
    first.put("large", "untold".repeat(1000)).unwrap();
    drop(first);
    db.drop_keyspace("first").unwrap();
    let held = db.destroy_keys().unwrap();
    assert!(held.left > 0 && !held.files_left.is_empty(), "kept for the trail: {held:?}");
    let dropped = write(&db, 2);
    backups.extend_trail(&db).unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0, "everything was told");
    let mut moments = vec![all, dropped];
    for name in ["third", "fourth", "fifth"] {
        create(name);
        moments.push(write(&db, 3));
        backups.extend_trail(&db).unwrap();
    }
    let segments = files_of_trails(storage, "segment-");
    assert!(segments.len() >= 4, "each has one keyring: {segments:?}");
    for (at, moment) in moments.iter().enumerate() {
        sealed.expect(moment, 0);
        let restored = sealed.restore(moment.0, 0).unwrap();
        let own: Vec<String> = restored
            .keyspaces()
            .into_iter()
            .filter_map(|info| info.has_own_key.then_some(info.name))
            .collect();
        let expected: &[&str] = match at {
            0 => &["first", "second"],
            1 => &["second"],
            2 => &["second", "third"],
            3 => &["fourth", "second", "third"],
            _ => &["fifth", "fourth", "second", "third"],
        };
        assert_eq!(own, expected);
        for name in own {
            restored.drop_keyspace(&name).unwrap();
        }
        let report = restored.destroy_keys().unwrap();
        assert_eq!((report.left, report.files_left.len()), (0, 0), "{report:?}");
        assert_sound(&restored);
    }
    assert_eq!(storage.violations(), [""; 0]);
}
