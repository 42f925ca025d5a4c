//! Options for opening a database.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::limits::MEMTABLE_SIZE_MAX;
use crate::base::{Clock, Entropy, Error, Result, SystemClock, SystemEntropy};
use crate::db::Db;
use crate::db::health::{Health, HealthListener};
use crate::db::scrub::ScrubOptions;
use crate::extractor::{Extractors, IndexExtractor};
use crate::operator::{MergeOperator, Operators, Reducer, Reducers};
use crate::seal::Encryption;
use crate::storage::{OsStorage, Overlay, Storage, read_small};
use crate::value_log::{FilesWriter, ValueLogOptions, Verify};

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk: it survives a power cut. Commits that wait at the same time share
    /// one sync.
    #[default]
    Sync,
    /// When the operating system has it: it survives the process, not the machine, unless a later
    /// commit with `Sync`, or [`Db::sync`], made it durable.
    Buffered,
}

/// Who runs flushes and other work beside the commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// Threads of the database.
    #[default]
    Threads,
    /// The caller, by [`Db::step`]; and writers that would otherwise wait for it. With storage,
    /// clock and entropy given, a run is then deterministic.
    Stepped,
}

/// When room is given back that takes writing to give back: values are moved out of value files
/// with garbage, and what flushes left in delta runs is consolidated. Whatever can be given back
/// without, as segments and value files in which nothing is live, is so at once, in any case; and
/// flushes consolidate at the pace of [`KeyspaceOptions::consolidation_pace`].
///
/// [`KeyspaceOptions::consolidation_pace`]: crate::KeyspaceOptions::consolidation_pace
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleaning {
    /// In the background, at up to [`Builder::cleaning_rate`]: values when garbage is more than
    /// [`Builder::garbage_share`], delta runs when nothing was committed for a moment. Where that
    /// does not keep step with the writers, flushes clean as well, as with
    /// [`Cleaning::WithFlush`], which slows the writers down.
    #[default]
    Background,
    /// Only when something was flushed and garbage is more than [`Builder::garbage_share`]: then,
    /// in front of the next flush, as much as keeps step with the garbage that comes: twice as
    /// much goes; ten times as much, and some megabytes at least, when garbage is 1.4 times that
    /// share.
    WithFlush,
    /// Only by [`Db::vacuum`] and [`Db::compact`].
    OnDemand,
}

/// Whether a database may be created by opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenExisting {
    /// It is created if there is none.
    #[default]
    OrCreate,
    /// There has to be one.
    Only,
}

/// What an opening may do with a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Everything; one opening at a time has it.
    #[default]
    ReadWrite,
    /// Read it. Nothing on disk is changed, so a directory that cannot be written to will do, and
    /// what a crash left stays as it is for who looks into it: recovery is done in memory. Any
    /// number of openings that read may be there at a time, in any processes, and none that writes
    /// beside them: for that see [`Builder::follow`]. Every write gives [`Error::ReadOnly`].
    ReadOnly,
}

/// Options for opening a database; made by [`Db::builder`].
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// use lithedb::{Db, Durability, storage::MemoryStorage};
/// let db = Db::builder()
///     .storage(std::sync::Arc::new(MemoryStorage::new()))
///     .memory_budget(64 << 20)
///     .durability(Durability::Buffered)
///     .open("/in-memory")?;
/// # db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) memory_budget: Option<u64>,
    pub(super) memtable_size: Option<u64>,
    pub(super) wal_file_size: Option<u64>,
    pub(super) value_file_size: Option<u64>,
    pub(super) kept_log_size: Option<u64>,
    pub(super) verify_values: Verify,
    pub(super) cleaning: Cleaning,
    pub(super) cleaning_rate: u64,
    pub(super) compaction_rate: Option<u64>,
    pub(super) garbage_share: f32,
    pub(super) durability: Durability,
    pub(super) background: Background,
    pub(super) existing: OpenExisting,
    pub(super) access: Access,
    /// Whether it is read beside somebody who writes it.
    pub(super) follows: bool,
    pub(super) encryption: Option<Encryption>,
    pub(super) operators: Operators,
    pub(super) reducers: Reducers,
    pub(super) extractors: Extractors,
    pub(super) flush_slice_size: Option<u64>,
    pub(super) index_step_entries: Option<usize>,
    pub(super) read_first_max: Option<u64>,
    pub(super) replay_part_size: Option<u64>,
    pub(super) archive_table_size: Option<u32>,
    pub(super) disk_reserve: Option<u64>,
    pub(super) slow_disk_after: Duration,
    pub(super) listener: Option<HealthListener>,
    pub(super) scrub: Option<ScrubOptions>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            storage: Arc::new(OsStorage::new()),
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy::default()),
            memory_budget: None,
            memtable_size: None,
            wal_file_size: None,
            value_file_size: None,
            kept_log_size: None,
            verify_values: Verify::Checksums,
            cleaning: Cleaning::default(),
            cleaning_rate: CLEANING_RATE_DEFAULT,
            compaction_rate: None,
            garbage_share: GARBAGE_SHARE_DEFAULT,
            durability: Durability::default(),
            background: Background::default(),
            existing: OpenExisting::default(),
            access: Access::default(),
            follows: false,
            encryption: None,
            operators: Operators::builtin(),
            reducers: Reducers::builtin(),
            extractors: Extractors::default(),
            flush_slice_size: None,
            index_step_entries: None,
            read_first_max: None,
            replay_part_size: None,
            archive_table_size: None,
            disk_reserve: None,
            slow_disk_after: SLOW_DISK_AFTER_DEFAULT,
            listener: None,
            scrub: None,
        }
    }
}

/// The smallest memory budget.
const MEMORY_BUDGET_MIN: u64 = 64 << 10;
/// The budget when the memory of the machine cannot be learnt.
const MEMORY_BUDGET_UNKNOWN: u64 = 256 << 20;
/// The default budget is this part of what the process may use.
const MEMORY_BUDGET_SHARE: u64 = 4;
/// The system is given this part of that to read value files ahead that are cleaned.
const READ_FIRST_SHARE: u64 = 4;
/// The default memtable is this part of the budget, within bounds: the larger it is against the
/// data, the less is written. When no flush is behind, the cache has the rest.
const MEMTABLE_SHARE: u64 = 4;
const MEMTABLE_SIZE_DEFAULT_MAX: u64 = 64 << 20;
const MEMTABLE_SIZE_MIN: u64 = 4 << 10;
const WAL_FILE_SIZE_DEFAULT: u64 = 8 << 20;
const WAL_FILE_SIZE_MIN: u64 = 16 << 10;
const WAL_FILE_SIZE_MAX: u64 = 4 << 30;
const VALUE_FILE_SIZE_DEFAULT: u64 = 64 << 20;
/// The small end is for tests.
const VALUE_FILE_SIZE_MIN: u64 = 4 << 10;
const VALUE_FILE_SIZE_MAX: u64 = 4 << 30;
/// Half of what a common solid-state disk takes.
const CLEANING_RATE_DEFAULT: u64 = 128 << 20;
const RATE_MIN: u64 = 64 << 10;
/// `docs/decisions/0023-value-log.md` has what was measured.
const GARBAGE_SHARE_DEFAULT: f32 = 0.16;
/// With less, cleaning would write more than the writers.
const GARBAGE_SHARE_RANGE: RangeInclusive<f32> = 0.05..=8.0;

/// The default reserve is so many log files: one of them is left to deletions.
const RESERVE_LOG_FILES: u64 = 2;
const DISK_RESERVE_MAX: u64 = 1 << 40;
const SLOW_DISK_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// Below, sound disks would be told of all the time.
const SLOW_DISK_AFTER_MIN: Duration = Duration::from_millis(10);

impl Builder {
    /// Where files are. Default: the operating system.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Builder {
        self.storage = storage;
        self
    }

    /// Where time is read. Default: the operating system.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// Where identities are drawn. Default: the operating system.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Builder {
        self.entropy = entropy;
        self
    }

    /// Bytes of memory for memtables, cached blocks and indexes together; at least 64 KiB.
    /// Default: a quarter of what the process may use (by its control group or the machine). What
    /// an allocator keeps beside indexes, transactions and buffers is reckoned with a third of
    /// them; with glibc's and its many arenas more was seen, with `MALLOC_ARENA_MAX=1` or jemalloc
    /// not.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Builder {
        self.memory_budget = Some(bytes);
        self
    }

    /// Bytes at which a memtable is sealed, where the keyspace's options do not say: 4 KiB to
    /// 1 GiB. Default: a quarter of the memory budget, at most 64 MiB. Larger ones write less to
    /// the structures and take longer to recover.
    #[must_use]
    pub fn memtable_size(mut self, bytes: u64) -> Builder {
        self.memtable_size = Some(bytes);
        self
    }

    /// Bytes of a log file: 16 KiB to 4 GiB. Default 8 MiB.
    #[must_use]
    pub fn wal_file_size(mut self, bytes: u64) -> Builder {
        self.wal_file_size = Some(bytes);
        self
    }

    /// Bytes after which a value file is not appended to any more: 4 KiB to 4 GiB. Default 64 MiB.
    /// Room is given back by whole files: smaller ones move less to give room back, and are more
    /// files.
    #[must_use]
    pub fn value_file_size(mut self, bytes: u64) -> Builder {
        self.value_file_size = Some(bytes);
        self
    }

    /// Bytes of the commit log that are kept when recovery does not need them any more, so that
    /// [`Db::commits`] can read them: whole log files, at most this much; the oldest go first. The
    /// database remembers this. Default: what it remembers, none if it is new; then commits can be
    /// read until they are flushed.
    #[must_use]
    pub fn kept_log_size(mut self, bytes: u64) -> Builder {
        self.kept_log_size = Some(bytes);
        self
    }

    /// What is verified when a value is read from a value file. Default: [`Verify::Checksums`],
    /// which finds whatever a disk does by accident. With [`Verify::Hash`] the value's BLAKE3 hash
    /// is computed as well; a reader of parts then verifies it if it reads all of the value in
    /// order. [`Db::check`] always does.
    #[must_use]
    pub fn verify_values(mut self, verify: Verify) -> Builder {
        self.verify_values = verify;
        self
    }

    /// When garbage is cleaned up. Default: [`Cleaning::Background`].
    #[must_use]
    pub fn cleaning(mut self, cleaning: Cleaning) -> Builder {
        self.cleaning = cleaning;
        self
    }

    /// Bytes a second that cleaning in the background writes at most, 64 KiB or more. Default 128
    /// MiB. Averaged over slices of up to 8 MiB. Nobody keeps to it with [`Background::Stepped`].
    /// [`Db::set_cleaning_rate`] changes it.
    #[must_use]
    pub fn cleaning_rate(mut self, bytes_per_second: u64) -> Builder {
        self.cleaning_rate = bytes_per_second;
        self
    }

    /// Bytes a second that compaction in the background writes at most, for all keyspaces together,
    /// 64 KiB or more: of [`Structure::Lsm`](crate::Structure::Lsm), and consolidation of
    /// [`Structure::Flex`](crate::Structure::Flex) in idle moments, which keeps to
    /// [`Builder::cleaning_rate`] as well. Default: no limit. Averaged over slices of an eighth of
    /// a second or 64 KiB, up to 4 MiB (8 MiB of `Flex`). [`Db::set_compaction_rate`] changes it.
    ///
    /// The rate comes first, then writers are slowed down, then the rate gives way. Where it is too
    /// low for what is written to an `Lsm` keyspace, runs pile up; from 12 on that wait to be
    /// merged, its writers are slowed down, more with each. At 36, when they get no slower, or when
    /// compaction would have to read more than all that the keyspace has (and 256 MiB), that
    /// keyspace's compactions go as fast as may be until it is better. So what is behind has a
    /// bound, whatever the rate.
    ///
    /// Not held back by it: flushes, with the maintenance that `Flex` does in them; and what
    /// somebody asks for, as by [`Db::compact`], for the part that the asking thread does. Nobody
    /// keeps to it with [`Background::Stepped`].
    #[must_use]
    pub fn compaction_rate(mut self, bytes_per_second: u64) -> Builder {
        self.compaction_rate = Some(bytes_per_second);
        self
    }

    /// Garbage in value files, for each byte of values that is live, from which on cleaning is due:
    /// 0.05 to 8, default 0.16. It then goes on until half of that is left. Less takes less room
    /// and writes more. Values that are overwritten count as live until the entry is consolidated
    /// that has overwritten them.
    #[must_use]
    pub fn garbage_share(mut self, share: f32) -> Builder {
        self.garbage_share = share;
        self
    }

    /// Durability of commits that do not say. Default: [`Durability::Sync`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.durability = durability;
        self
    }

    /// Who runs background work. Default: threads.
    #[must_use]
    pub fn background(mut self, background: Background) -> Builder {
        self.background = background;
        self
    }

    /// Whether the database may be created. Default: yes.
    #[must_use]
    pub fn existing(mut self, existing: OpenExisting) -> Builder {
        self.existing = existing;
        self
    }

    /// What the opening may do. Default: everything. With [`Access::ReadOnly`] there has to be a
    /// database, as with [`OpenExisting::Only`]. What its log has that was not flushed is in memory
    /// while it is open, beside the memory budget if it must be: up to what its memtables took
    /// when it was written. Nothing runs in the background.
    #[must_use]
    pub fn access(mut self, access: Access) -> Builder {
        self.access = access;
        self
    }

    /// What opens the database if it is encrypted, and what it is encrypted with if it is created
    /// by this. Everything is encrypted then that says anything about keys, values or names of
    /// keyspaces: the log, the manifest, indexes, segments, tables, value files, what is being made
    /// of these, and checkpoints. Readable stay which files there are, how long they and the
    /// records in them are, and how many; when they were written; positions in the log; numbers of
    /// keyspaces, of files and of keys. Compression makes lengths say more about contents.
    ///
    /// What is changed on the disk is noticed when it is read, but that it is an older state of the
    /// whole database, or that the end of the log is missing that was written last. A database
    /// cannot be given encryption, or lose it, but by a copy: see `lithe dump` and `lithe load`.
    ///
    /// Costs what sealing and opening take where something is written or is not in the cache: about
    /// 0.9 us for a record of 100 bytes, 2 us for a KiB. That is with the flag of the compiler
    /// `--cfg poly1305_backend="soft"`; without it 2.7 and 3.4 us: programs that write little at a
    /// time set it.
    ///
    /// Opening then also gives [`Error::WrongKey`], [`Error::KeyNeeded`] when an encrypted database
    /// is opened without this, [`Error::NotEncrypted`] when another one is opened with it, and
    /// [`Error::VaultFailed`]. Nothing has changed then.
    #[must_use]
    pub fn encryption(mut self, encryption: Encryption) -> Builder {
        self.encryption = Some(encryption);
        self
    }

    /// Registers a merge operator for the keyspaces whose options have its name, 1 to 255 bytes; in
    /// place of one that was registered under that name before. See [`MergeOperator`].
    ///
    /// Every opening has to register the operators that it needs: a keyspace whose operator is
    /// missing can be used, but for what was merged, which gives
    /// [`Error::MergeOperatorMissing`]. Nothing is lost by that.
    #[must_use]
    pub fn merge_operator(mut self, name: &str, operator: impl MergeOperator + 'static) -> Builder {
        self.operators.add(name, Arc::new(operator));
        self
    }

    /// Registers a reducer under a name, 1 to 255 bytes; in place of one that was registered under
    /// that name before, be it a built-in one. See [`Reducer`].
    #[must_use]
    pub fn reducer(mut self, name: &str, reducer: impl Reducer + 'static) -> Builder {
        self.reducers.add(name, Arc::new(reducer));
        self
    }

    /// Registers an extractor for the indexes that have its name, 1 to 255 bytes; in place of one
    /// that was registered under that name before. See [`IndexExtractor`]. Built in, and not to be
    /// registered, are `value`, the whole value; `value_prefix:N`, its first N bytes; and
    /// `field:SEPARATOR:N`, of a value that is parted at each separator, part N, counted from 1, if
    /// there are so many (in a separator `\t` is a tab).
    ///
    /// Every opening has to register the extractors that it needs: an index whose extractor is
    /// missing, and its keyspace, can be read, and writes to the keyspace give
    /// [`Error::ExtractorMissing`]. Nothing is lost by that.
    #[must_use]
    pub fn index_extractor(
        mut self,
        name: &str,
        extractor: impl IndexExtractor + 'static,
    ) -> Builder {
        self.extractors.add(name, Arc::new(extractor));
        self
    }

    /// Bytes of disk that are kept in a file, `RESERVE`, so that room can be made when there is
    /// none: up to 1 TiB, 0 for none. Default: two log files, so 16 MiB, if nothing else is said.
    ///
    /// When the disk is full, flushes, compaction, cleaning and edits of the catalogue take from it
    /// what they need; half of it, at least, is left to commits that only delete, and to dropping
    /// keyspaces. Other commits give [`Error::DiskFull`] from then on, until there is room for all
    /// of it again, and for what had found none: that is looked for ten times a second, and by each
    /// commit that is refused, and needs no reopening. Reads go on in any case.
    ///
    /// A log file should fit into half of it: deletions need one now and then. The more there is in
    /// memtables when the disk becomes full, the more flushes need: with room for all memtables,
    /// deletions are certain to get as far as giving room back. Where the disk had no room for all
    /// of it when the database was opened, or recovery needed some, it is what there was room for.
    /// Closing removes the file.
    ///
    /// Without a reserve, and on file systems that cannot reserve blocks, a full disk stops flushes
    /// and deletions as it does everything else; all the same writing goes on when there is room.
    #[must_use]
    pub fn disk_reserve(mut self, bytes: u64) -> Builder {
        self.disk_reserve = Some(bytes);
        self
    }

    /// A call to the storage that takes longer than this is told as slow: by [`Db::health`], also
    /// while it is under way, and to the listener; 10 ms at least. Default: a second. It is looked
    /// four times within that, a thread's calls at a time; with [`Background::Stepped`] by
    /// [`Db::step`] alone.
    #[must_use]
    pub fn slow_disk_after(mut self, duration: Duration) -> Builder {
        self.slow_disk_after = duration;
        self
    }

    /// What is told how the database is, whenever that has changed: by a thread of its own, a
    /// fourth of a second behind it at most, with no lock held; with [`Background::Stepped`] by
    /// [`Db::step`], and by calls that have to do such a step. It may use the database and close
    /// it; one that keeps a [`Db`] keeps it open. Closing by others waits until it has returned: it
    /// must not wait for them. Changes that come quickly are told together. One that panics is told
    /// on; the panic is among [`Health::failures`] until it has returned.
    #[must_use]
    pub fn on_health(mut self, listener: impl Fn(&Health) + Send + Sync + 'static) -> Builder {
        self.listener = Some(HealthListener(Arc::new(listener)));
        self
    }

    /// Reads and verifies in the background, over and over, all that keyspaces have on disk:
    /// indexes, every block and its order, filters, large values against their hashes; as
    /// [`Db::check`] does, but for the log, memtables, and secondary indexes against what they are
    /// of. Default: it is not done.
    ///
    /// What is wrong is told by [`Db::health`], and to the listener ([`Builder::on_health`]), once
    /// for each keyspace, as [`BackgroundWork::Scrub`](crate::BackgroundWork::Scrub); nothing else
    /// follows from it. So data that nobody reads does not rot for longer than there are backups
    /// that have it. With the default rate a gigabyte takes four minutes, and a terabyte three
    /// days. It is a thread's work with [`Background::Threads`]; with [`Background::Stepped`] that
    /// of [`Db::step`] when nothing else is due. It rests while background work is paused
    /// ([`Db::pause_background`]), and begins at the beginning when the database is opened, unless
    /// it is told where it was.
    #[must_use]
    pub fn scrub(mut self, options: ScrubOptions) -> Builder {
        self.scrub = Some(options);
        self
    }

    /// Bytes after which a flush makes durable what it has done. Default: an eighth of the
    /// memtable, 1 MiB at least. Smaller ones are for simulations: they make small memtables take
    /// several slices.
    #[doc(hidden)]
    #[must_use]
    pub fn flush_slice_size(mut self, bytes: u64) -> Builder {
        self.flush_slice_size = Some(bytes);
        self
    }

    /// Entries of a keyspace that a step of building an index reads at most, from 1 on. Default:
    /// 1024. Fewer are for simulations: they make small keyspaces take several steps.
    #[doc(hidden)]
    #[must_use]
    pub fn index_step_entries(mut self, entries: usize) -> Builder {
        self.index_step_entries = Some(entries);
        self
    }

    /// Bytes of value files that are read from end to end before values are moved out of them, if a
    /// round of cleaning has no more. Default: a quarter of what the process may use. Others are
    /// for tests of what is done without.
    #[doc(hidden)]
    #[must_use]
    pub fn read_first_max(mut self, bytes: u64) -> Builder {
        self.read_first_max = Some(bytes);
        self
    }

    /// Bytes of the log, from 1 on, that each of the two parts has at least in which it is replayed
    /// at once, if there are two processors; by one thread, one after the other, with
    /// [`Background::Stepped`]. Default: 32 MiB, and one part with `Stepped`. Others are for
    /// simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn replay_part_size(mut self, bytes: u64) -> Builder {
        self.replay_part_size = Some(bytes);
        self
    }

    /// Bytes at which tables of archives are closed that are made from now on, 1 KiB to 1 GiB.
    /// Default: 64 MiB. Others are for simulations, whose pasts are short.
    #[doc(hidden)]
    #[must_use]
    pub fn archive_table_size(mut self, bytes: u32) -> Builder {
        self.archive_table_size = Some(bytes);
        self
    }

    /// Opens the database in the directory `path`.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range, or a merge operator or an extractor with the
    /// name of a built-in one; else as [`Db::open`]. With
    /// [`OpenExisting::Only`], `Io` (`NotFound`) when there is no database.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        super::open::open(self, path.as_ref()).map(Db::from_core)
    }

    /// The same, for what is only to be read: nothing on disk is changed.
    pub(super) fn for_reading(self, dir: &Path) -> Result<Builder> {
        let overlay = Overlay::new(self.storage, dir);
        let overlay = overlay.map_err(|error| Error::io("list the files of", dir, error))?;
        Ok(Builder {
            storage: Arc::new(overlay),
            existing: OpenExisting::Only,
            background: Background::Stepped,
            kept_log_size: None,
            scrub: None,
            ..self
        })
    }

    /// The sizes, with defaults filled in.
    pub(super) fn sizes(&self) -> Result<Sizes> {
        let budget = self.memory_budget.unwrap_or_else(default_budget);
        if budget < MEMORY_BUDGET_MIN {
            return Err(Error::invalid(format!(
                "a memory budget of {budget} bytes: at least {MEMORY_BUDGET_MIN} are needed"
            )));
        }
        let default = (budget / MEMTABLE_SHARE).clamp(MEMTABLE_SIZE_MIN, MEMTABLE_SIZE_DEFAULT_MAX);
        let memtable = self.memtable_size.unwrap_or(default);
        check_range("memtable_size", memtable, MEMTABLE_SIZE_MIN, MEMTABLE_SIZE_MAX)?;
        let wal_file = self.wal_file_size.unwrap_or(WAL_FILE_SIZE_DEFAULT);
        check_range("wal_file_size", wal_file, WAL_FILE_SIZE_MIN, WAL_FILE_SIZE_MAX)?;
        let value_file = self.value_file_size.unwrap_or(VALUE_FILE_SIZE_DEFAULT);
        check_range("value_file_size", value_file, VALUE_FILE_SIZE_MIN, VALUE_FILE_SIZE_MAX)?;
        check_rate("cleaning_rate", self.cleaning_rate)?;
        self.compaction_rate.map_or(Ok(()), |rate| check_rate("compaction_rate", rate))?;
        self.scrub.as_ref().map_or(Ok(()), ScrubOptions::check)?;
        if !GARBAGE_SHARE_RANGE.contains(&self.garbage_share) {
            let (share, range) = (self.garbage_share, GARBAGE_SHARE_RANGE);
            let (start, end) = (range.start(), range.end());
            return Err(Error::invalid(format!(
                "garbage_share is {share}; it is from {start} to {end}"
            )));
        }
        let reserve = self.disk_reserve.unwrap_or(RESERVE_LOG_FILES.saturating_mul(wal_file));
        check_range("disk_reserve", reserve, 0, DISK_RESERVE_MAX)?;
        if self.slow_disk_after < SLOW_DISK_AFTER_MIN {
            let (given, least) = (self.slow_disk_after, SLOW_DISK_AFTER_MIN);
            return Err(Error::invalid(format!(
                "slow_disk_after is {given:?}; it is {least:?} or more"
            )));
        }
        let archive_table = self.archive_table_size;
        Ok(Sizes { budget, memtable, wal_file, value_file, reserve, archive_table })
    }

    /// How values are written and read.
    pub(super) fn value_log_options(&self, sizes: &Sizes) -> ValueLogOptions {
        let writer = if self.follows { FilesWriter::Other } else { FilesWriter::Own };
        ValueLogOptions { file_size: sizes.value_file, verify: self.verify_values, writer }
    }

    /// How garbage is cleaned up.
    pub(super) fn cleaning_policy(&self) -> CleaningPolicy {
        CleaningPolicy {
            mode: self.cleaning,
            bytes_per_second: self.cleaning_rate,
            garbage_share: f64::from(self.garbage_share),
            read_first_max: self.read_first_max.unwrap_or_else(read_first_default),
        }
    }
}

/// How garbage is cleaned up.
#[derive(Clone, Copy, Debug)]
pub(super) struct CleaningPolicy {
    pub mode: Cleaning,
    pub bytes_per_second: u64,
    pub garbage_share: f64,
    /// Files of so many bytes in all are read by the system before values are moved out of them.
    pub read_first_max: u64,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub budget: u64,
    pub memtable: u64,
    pub wal_file: u64,
    pub value_file: u64,
    /// Of room on the disk.
    pub reserve: u64,
    /// Of tables of archives, if that is said.
    pub archive_table: Option<u32>,
}

/// Checks a rate of background work.
pub(super) fn check_rate(option: &str, bytes_per_second: u64) -> Result<()> {
    check_range(option, bytes_per_second, RATE_MIN, u64::MAX)
}

fn check_range(option: &str, value: u64, min: u64, max: u64) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{option} is {value}; it is from {min} to {max}")))
}

/// A quarter of what the process may use.
fn default_budget() -> u64 {
    process_memory()
        .map_or(MEMORY_BUDGET_UNKNOWN, |bytes| bytes / MEMORY_BUDGET_SHARE)
        .max(MEMORY_BUDGET_MIN)
}

/// A quarter of what the process may use.
fn read_first_default() -> u64 {
    process_memory().map_or(0, |bytes| bytes / READ_FIRST_SHARE)
}

/// What the control group or the machine gives to the process, if that can be learnt.
fn process_memory() -> Option<u64> {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|path| read_small(path)?.trim().parse().ok());
    let machine = read_small("/proc/meminfo").and_then(|text| total_of(&text));
    limit.chain(machine).min()
}

/// `MemTotal:       24576000 kB` as bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_memory_is_read_from_its_figures() {
        assert_eq!(total_of("MemTotal:       24576 kB\nMemFree: 1 kB"), Some(24576 * 1024));
        assert_eq!(total_of("MemFree: 1 kB"), None);
        assert!(default_budget() >= MEMORY_BUDGET_MIN);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for builder in [
            Builder::default().memory_budget(1),
            Builder::default().memtable_size(1),
            Builder::default().wal_file_size(1),
            Builder::default().value_file_size(1),
            Builder::default().cleaning_rate(1),
            Builder::default().compaction_rate(1),
            Builder::default().garbage_share(0.01),
            Builder::default().garbage_share(f32::NAN),
            Builder::default().disk_reserve(u64::MAX),
            Builder::default().slow_disk_after(Duration::from_millis(1)),
            Builder::default().scrub(ScrubOptions::new().rate(1)),
        ] {
            assert!(matches!(builder.sizes(), Err(Error::InvalidArgument { .. })));
        }
    }
}
