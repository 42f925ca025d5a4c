//! How a simulated database is opened: option sets that make everything happen all the time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lithedb::base::{Codec, SeededEntropy};
use lithedb::inspect::unlock;
use lithedb::storage::Storage;
use lithedb::{
    Background, Builder, Cipher, Cleaning, Compaction, Db, Encryption, Error, KeyspaceOptions,
    Leveled, NonceWatch, PassphraseCost, Structure, Tiered, Verify,
};

use crate::clock::SimClock;
use crate::extractors::{PIECES, Planted, pieces};
use crate::operator::{TAIL, Tail};
use crate::ops::{LONG_LIFE_MILLIS, SHORT_LIFE_MILLIS};
use crate::random::{Random, seed_of};

/// Where every simulated database is.
pub const DB_PATH: &str = "/db";
/// How much later the clock begins with each opening: no clock of one before comes so far.
pub const OPENING_MILLIS: u64 = 200_000;
/// One of so many option sets is encrypted.
const ENCRYPTED_ONE_IN: u64 = 4;
/// Keys and passphrases that a database which is rekeyed has in turn.
pub const KEY_COUNT: u8 = 3;
/// So often it is looked which key a database has, where a call may fail: once, in a run in which
/// one does.
const LOOK_COUNT: usize = 2;
/// When every simulated run begins: 2023-11-14.
pub const START_MILLIS: u64 = 1_700_000_000_000;

/// Option sets differ in these; all of them are small, so that seal, flush, consolidation, split,
/// removal of segments, switching of log files and eviction happen within tens of operations.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides identities.
    pub seed: u64,
    /// Where the database is.
    pub path: PathBuf,
    /// For memtables, cache and indexes.
    pub memory_budget: u64,
    /// When memtables are sealed.
    pub memtable_size: u64,
    /// Size of a log file.
    pub wal_file_size: u64,
    /// When value files are not appended to any more.
    pub value_file_size: u64,
    /// How much of the log is kept to be read, if that is said.
    pub kept_log_size: Option<u64>,
    /// When garbage in value files is cleaned up.
    pub cleaning: Cleaning,
    /// ... and how much of it there may be.
    pub garbage_share: f32,
    /// ... and up to how many bytes of files are read first, for it.
    pub read_first_max: u64,
    /// Bytes of the disk that are kept for when it is full.
    pub disk_reserve: u64,
    /// What is verified of values.
    pub verify_values: Verify,
    /// After so many bytes a flush makes durable what it has done, if that is said.
    pub flush_slice_size: Option<u64>,
    /// Of how many bytes the parts are in which the log is replayed, if that is said.
    pub replay_part_size: Option<u64>,
    /// At how many bytes tables of archives are closed, if that is said.
    pub archive_table_size: Option<u32>,
    /// How many entries a step of building an index reads, if that is said.
    pub index_step_entries: Option<usize>,
    /// The mistake that is planted in the extractor that is registered.
    pub planted: Planted,
    /// Who runs the background work.
    pub background: Background,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// .. with one key for good, or one after the other of so many: the first one when it is made.
    pub key_count: u8,
    /// What watches the nonces of all openings, if anything but each by itself.
    pub nonces: Option<Nonces>,
    /// For the keyspaces, in turn.
    pub keyspaces: Vec<KeyspaceOptions>,
}

/// Watches nonces from opening to opening, in one history.
#[derive(Clone, Default)]
pub struct Nonces {
    /// Tells the history from others that have the same beginning.
    salt: u64,
    /// Each opening draws others.
    openings: Arc<AtomicU64>,
    watch: Arc<NonceWatch>,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonces({:#x})", self.salt) // Those that were seen are many.
    }
}

impl Setup {
    /// The smallest of everything.
    #[must_use]
    pub fn tiny(seed: u64) -> Setup {
        let flex = KeyspaceOptions::flex().interval_size(512).segment_size(4096);
        let flex = flex.value_separation(Some(600)).merge_operator(TAIL);
        Setup {
            seed,
            path: DB_PATH.into(),
            memory_budget: 256 << 10,
            memtable_size: 4 << 10,
            wal_file_size: 16 << 10,
            value_file_size: 4 << 10,
            kept_log_size: None,
            cleaning: Cleaning::Background,
            garbage_share: 0.05,
            read_first_max: 1 << 30,
            disk_reserve: 0,
            verify_values: Verify::Checksums,
            flush_slice_size: None,
            replay_part_size: Some(1),
            archive_table_size: Some(1 << 10),
            index_step_entries: Some(3),
            planted: Planted::Nothing,
            background: Background::Stepped,
            encrypted: false,
            key_count: 1,
            nonces: None,
            keyspaces: vec![flex],
        }
    }

    /// Some set, by number: the first is [`Setup::tiny`], the others are drawn.
    #[must_use]
    pub fn numbered(number: u64) -> Setup {
        let mut setup = Setup::tiny(seed_of(&[number, 0x5E7]));
        if number == 0 {
            return setup;
        }
        let mut random = Random::new(setup.seed);
        setup.memory_budget = random.pick(&[64 << 10, 128 << 10, 512 << 10, 8 << 20]);
        setup.memtable_size = random.pick(&[4 << 10, 4 << 10, 6 << 10, 16 << 10]);
        setup.wal_file_size = random.pick(&[16 << 10, 16 << 10, 20 << 10, 64 << 10]);
        setup.keyspaces = (0..3).map(|_| draw_keyspace(&mut random)).collect();
        setup.value_file_size = random.pick(&[4 << 10, 4 << 10, 10 << 10, 64 << 10]);
        setup.kept_log_size = random.pick(&[None, Some(0), Some(40 << 10), Some(1 << 20)]);
        for options in &mut setup.keyspaces {
            let from = random.pick(&[None, None, Some(64), Some(200), Some(600)]);
            *options = options.clone().value_separation(from);
        }
        let background = Cleaning::Background;
        let modes = [background, background, Cleaning::WithFlush, Cleaning::OnDemand];
        setup.cleaning = random.pick(&modes);
        setup.garbage_share = random.pick(&[0.05, 0.2, 1.0]);
        setup.verify_values = random.pick(&[Verify::Checksums, Verify::Hash]);
        setup.flush_slice_size = random.pick(&[None, Some(256), Some(1 << 10)]);
        let mut random = Random::new(seed_of(&[setup.seed, 0x415]));
        for options in &mut setup.keyspaces {
            if options.structure == Structure::Flex && random.below(3) == 0 {
                keep_history(options);
            }
        }
        draw_retentions(&mut setup.keyspaces, setup.seed);
        let mut random = Random::new(seed_of(&[setup.seed, 0x8EAD]));
        setup.read_first_max = random.pick(&[0, 16 << 10, 1 << 30]);
        let mut random = Random::new(seed_of(&[setup.seed, 0x1DE5]));
        setup.index_step_entries = random.pick(&[None, Some(1), Some(3), Some(20)]);
        let mut random = Random::new(seed_of(&[setup.seed, 0x5EA1]));
        setup.encrypted = random.below(ENCRYPTED_ONE_IN) == 0;
        let mut random = Random::new(seed_of(&[setup.seed, 0x9A47]));
        setup.replay_part_size = random.pick(&[None, Some(1), Some(24 << 10)]);
        let mut random = Random::new(seed_of(&[setup.seed, 0xA2C4]));
        setup.archive_table_size =
            random.pick(&[None, Some(1 << 10), Some(1 << 10), Some(2 << 10)]);
        let mut random = Random::new(seed_of(&[setup.seed, 0xD15C]));
        setup.disk_reserve = random.pick(&[0, 0, 48 << 10, 512 << 10]);
        setup
    }

    /// The same with another draw for the keyspaces of any other structure.
    #[must_use]
    pub fn all_of(mut self, structure: Structure) -> Setup {
        let mut random = Random::new(seed_of(&[self.seed, 0xA11]));
        // One with a history has the options of one without.
        let drawn = if structure == Structure::History { Structure::Flex } else { structure };
        for options in &mut self.keyspaces {
            if options.structure == Structure::History {
                options.structure = Structure::Flex;
                (options.keep_for, options.keep_versions) = (None, None);
            }
            while options.structure != drawn {
                let from = options.value_separation;
                *options = draw_keyspace(&mut random).value_separation(from);
            }
            if structure == Structure::History {
                keep_history(options);
            }
        }
        draw_retentions(&mut self.keyspaces, self.seed);
        self
    }

    /// The same, of a database that is elsewhere.
    #[must_use]
    pub fn at(&self, path: &Path) -> Setup {
        Setup { path: path.to_owned(), ..self.clone() }
    }

    /// Options for the `index`-th keyspace.
    #[must_use]
    pub fn keyspace_options(&self, index: usize) -> KeyspaceOptions {
        self.keyspaces[index % self.keyspaces.len()].clone()
    }

    /// The same, for keyspaces in which nothing is to expire while it is looked.
    #[must_use]
    pub fn lasting_options(&self, index: usize) -> KeyspaceOptions {
        let mut options = self.keyspace_options(index);
        options.ttl = options.ttl.map(|_| Duration::from_millis(LONG_LIFE_MILLIS.into()));
        options
    }

    /// A builder for the `nth` opening of the database.
    #[must_use]
    pub fn builder(&self, storage: Arc<dyn Storage>, clock: Arc<SimClock>, nth: u64) -> Builder {
        let builder = match self.kept_log_size {
            Some(bytes) => Db::builder().kept_log_size(bytes),
            None => Db::builder(),
        };
        let builder = match self.flush_slice_size {
            Some(bytes) => builder.flush_slice_size(bytes),
            None => builder,
        };
        let builder = match self.replay_part_size {
            Some(bytes) => builder.replay_part_size(bytes),
            None => builder,
        };
        let builder = match self.archive_table_size {
            Some(bytes) => builder.archive_table_size(bytes),
            None => builder,
        };
        let builder = match self.index_step_entries {
            Some(entries) => builder.index_step_entries(entries),
            None => builder,
        };
        let builder = match self.encrypted {
            true => builder.encryption(self.encryption(self.key_on(&storage).unwrap_or(0), nth)),
            false => builder,
        };
        builder
            .merge_operator(TAIL, Tail)
            .index_extractor(PIECES, pieces(self.planted))
            .storage(storage)
            .clock(clock)
            .entropy(Arc::new(SeededEntropy::new(seed_of(&[self.seed, nth]))))
            .background(self.background)
            .memory_budget(self.memory_budget)
            .memtable_size(self.memtable_size)
            .wal_file_size(self.wal_file_size)
            .value_file_size(self.value_file_size)
            .cleaning(self.cleaning)
            .garbage_share(self.garbage_share)
            .read_first_max(self.read_first_max)
            .disk_reserve(self.disk_reserve)
            .verify_values(self.verify_values)
    }

    /// The key or passphrase of this number, for the `nth` opening. Keys and nonces are drawn from
    /// the seed, others each time; it is asserted that no nonce is used for two messages.
    #[must_use]
    pub fn encryption(&self, key: u8, nth: u64) -> Encryption {
        let cost = PassphraseCost { memory_kib: 8, passes: 1, lanes: 1 };
        let encryption = match key {
            2 => Encryption::passphrase("correct horse").passphrase_cost(cost),
            number => Encryption::key([0x5A + number; 32]),
        };
        let encryption = encryption.cipher(self.cipher());
        let Some(Nonces { salt, openings, watch }) = &self.nonces else {
            let entropy = SeededEntropy::new(seed_of(&[self.seed, nth, 0x5EA1]));
            return encryption.simulated(Arc::new(entropy));
        };
        let opening = openings.fetch_add(1, Ordering::Relaxed);
        let entropy = SeededEntropy::new(seed_of(&[self.seed, nth, 0x5EA1, *salt, opening]));
        encryption.simulated(Arc::new(entropy)).watched(Arc::clone(watch))
    }

    /// With what it is encrypted, if it is.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        match self.seed.count_ones().is_multiple_of(2) {
            true => Cipher::XAes256Gcm,
            false => Cipher::XChaCha20Poly1305,
        }
    }

    /// The number of the key or passphrase that opens the database as it is in `storage`; none if
    /// that is not to be told, as where there is no database.
    #[must_use]
    pub fn key_on(&self, storage: &Arc<dyn Storage>) -> Option<u8> {
        if !self.encrypted || self.key_count < 2 {
            return None;
        }
        for _ in 0..LOOK_COUNT {
            let opens = |key: &u8| {
                unlock(Arc::clone(storage), &self.path, &self.encryption(*key, u64::MAX)).is_ok()
            };
            let found = (0..self.key_count).find(opens);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The same, encrypted, with keys and passphrases in turn, and nonces watched throughout.
    #[must_use]
    pub fn rekeyed(mut self) -> Setup {
        (self.encrypted, self.key_count, self.nonces) = (true, KEY_COUNT, Some(Nonces::default()));
        self
    }

    /// The same with small tables of archives, and with versions that are kept for a time and then
    /// forgotten, where they are kept.
    #[must_use]
    pub fn forgetful(mut self) -> Setup {
        let mut random = Random::new(seed_of(&[self.seed, 0xF049]));
        self.archive_table_size = random.pick(&[Some(1 << 10), Some(1 << 10), Some(2 << 10)]);
        let short = u64::from(SHORT_LIFE_MILLIS);
        for options in &mut self.keyspaces {
            if options.structure == Structure::History {
                options.keep_for =
                    Some(Duration::from_millis(random.pick(&[short / 50, short, short])));
                options.keep_versions = random.pick(&[None, None, None, Some(2)]);
            }
        }
        self
    }

    /// The same for a history of its own from here on, of which `salt` decides what is drawn.
    #[must_use]
    pub fn forked(&self, salt: u64) -> Setup {
        let nonces = self.nonces.as_ref().map(|nonces| Nonces {
            salt,
            openings: Arc::default(),
            watch: Arc::new(nonces.watch.forked()),
        });
        Setup { nonces, ..self.clone() }
    }

    /// The same, encrypted.
    #[must_use]
    pub fn encrypted(mut self) -> Setup {
        self.encrypted = true;
        self
    }

    /// Opens the database for the `nth` time.
    ///
    /// # Errors
    /// What opening returns.
    pub fn open(&self, storage: Arc<dyn Storage>, nth: u64) -> Result<Db, Error> {
        let clock = Arc::new(SimClock::at_millis(start_of(nth)));
        self.builder(storage, clock, nth).open(&self.path)
    }
}

/// What the clock shows when a database is opened for the `nth` time.
#[must_use]
pub fn start_of(nth: u64) -> u64 {
    START_MILLIS + nth * OPENING_MILLIS
}

fn draw_keyspace(random: &mut Random) -> KeyspaceOptions {
    let options = match random.below(2) {
        0 => draw_flex(random),
        _ => draw_lsm(random),
    };
    let lives = [SHORT_LIFE_MILLIS / 2, LONG_LIFE_MILLIS].map(u64::from);
    match random.below(6) {
        0..3 => options.merge_operator(TAIL),
        3 => options.ttl(Duration::from_millis(random.pick(&lives))),
        _ => options,
    }
}

/// Has a keyspace of Flex keep every version.
fn keep_history(options: &mut KeyspaceOptions) {
    options.structure = Structure::History;
}

/// Says of those that keep their versions which: all, or what is newer than a moment, or some of
/// each key. Drawn apart, so that what else is drawn from a seed stays as it was.
fn draw_retentions(keyspaces: &mut [KeyspaceOptions], seed: u64) {
    let mut random = Random::new(seed_of(&[seed, 0x4EE9]));
    let short = u64::from(SHORT_LIFE_MILLIS);
    for options in keyspaces.iter_mut().filter(|of| of.structure == Structure::History) {
        let times = [None, None, Some(short / 50), Some(short), Some(OPENING_MILLIS)];
        options.keep_for = random.pick(&times).map(Duration::from_millis);
        options.keep_versions = random.pick(&[None, None, Some(1), Some(2), Some(5)]);
    }
}

fn draw_lsm(random: &mut Random) -> KeyspaceOptions {
    let leveled = Leveled::new()
        .level0_trigger(random.pick(&[2, 2, 4]))
        .level_ratio(random.pick(&[1.5, 2.0, 4.0]));
    let tiered = Tiered::new()
        .threshold(random.pick(&[2, 3, 4]))
        .run_count_max(random.pick(&[3, 6, 16]))
        .garbage_max(random.pick(&[0.2, 1.0, 8.0]));
    let styles =
        [Compaction::Leveled(leveled), Compaction::Leveled(leveled), Compaction::Tiered(tiered)];
    let codecs = [Codec::None, Codec::None, Codec::Lz4, Codec::Snappy];
    let filter_bits = random.pick(&[0, 5, 10]);
    let prefix_len = random.pick(&[0, 1, 3]);
    let options = KeyspaceOptions::lsm()
        .compaction(random.pick(&styles))
        .codec(random.pick(&codecs))
        .level_codec(random.below(3) as u8, random.pick(&codecs))
        .table_size(random.pick(&[4 << 10, 8 << 10, 64 << 10]))
        .block_size(random.pick(&[512, 512, 1024, 4096]))
        .restart_interval(random.pick(&[0, 1, 2, 16]))
        .filter_bits(filter_bits)
        .filter_prefix_len(if filter_bits == 0 { 0 } else { prefix_len })
        .pin_indexes(random.below(4) == 0);
    // Without it, what is drawn is as if there were none.
    match Codec::zstd().is_available() {
        true => draw_dictionary(options, random),
        false => options,
    }
}

/// Every third has the codec, with a dictionary or without, on all levels or on one. Tables have to
/// be of some size to have one.
fn draw_dictionary(options: KeyspaceOptions, random: &mut Random) -> KeyspaceOptions {
    let size = random.pick(&[0, 256, 512, 1024]);
    let options = match random.below(6) {
        0 => options.codec(Codec::Zstd(1)),
        1 => options.level_codec(random.below(3) as u8, Codec::zstd()),
        _ => return options,
    };
    options.table_size(128 << 10).dictionary_size(size)
}

fn draw_flex(random: &mut Random) -> KeyspaceOptions {
    KeyspaceOptions::flex()
        .codec(random.pick(&[Codec::None, Codec::Lz4, Codec::Snappy]))
        .interval_size(random.pick(&[512, 512, 700, 2048]))
        .segment_size(random.pick(&[4096, 8192, 16 << 10, 32 << 10]))
        .consolidation_pace(random.pick(&[0.05, 0.3, 0.6, 2.0, 8.0]))
        .delta_fan_in(random.pick(&[0, 2, 3, 8]))
}
