//! RocksDB as an engine under test, by the crate `rocksdb`.
//!
//! Settings
//! - Memory: one block cache of the whole budget, to which a write buffer manager charges the
//!   memtables (at most half of the budget): memory that no memtable uses caches blocks. This is
//!   RocksDB's own way to bound both by one number. Indexes and filters lie outside, as by default:
//!   for the largest store they are about 2 % of the data, and reads are faster than when they
//!   compete with blocks.
//! - A memtable of a quarter of the budget, three at most (the default is two): a load goes on
//!   while one is written out.
//! - Bloom filters of 10 bits a key and hash indexes in data blocks, as its tuning guide advises
//!   for point reads. Blocks stay at 4 KiB.
//! - No compression, or LZ4 where values repeat. Level compaction with dynamic level sizes (default). 1 MiB `bytes_per_sync`,
//!   as its tuning guide advises.
//! - Values apart (W10): blob files, their values in the block cache as well; garbage collection of
//!   blob files is on.
//! - Two background jobs (the default), as the machine of the benchmarks has two cores.
//! - Without sync, the log is written by the process for each batch and not synced (default); with
//!   sync, `WriteOptions::sync`, which is fdatasync, with group commit over threads.
//! - Gets are pinned slices that are copied once. A view is a snapshot with one iterator.

use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk};
use peer::{About, Safety, version_of};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DBRawIterator, DataBlockIndexType, Options, ReadOptions, SnapshotWithThreadMode,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::path::Path;
use std::process::ExitCode;

const BITS_PER_KEY: f64 = 10.0;
const HASH_RATIO: f64 = 0.75;
const BYTES_PER_SYNC: u64 = 1 << 20;
const MEMTABLES_MAX: i32 = 3;
const MEMTABLE_SHARE: u64 = 4;
const MEMTABLES_SHARE: u64 = 2;

fn main() -> ExitCode {
    // `0.19.0+11.8.1`: of the crate, and of RocksDB.
    let version = version_of("librocksdb-sys");
    let version = version.rsplit('+').next().unwrap_or(&version).to_owned();
    peer::main::<Rocks>(&About {
        version,
        structure: "LSM tree",
        safety: Safety::Kill,
        settings: &[
            "One block cache of the whole budget; a write buffer manager charges memtables to it \
             (a quarter each, half in all).",
            "Bloom filters of 10 bits per key, hash index in data blocks, 4 KiB blocks, no \
             compression.",
            "Three memtables at most, bytes_per_sync of 1 MiB; level compaction, two jobs \
             (default).",
            "W10, values apart: blob files, cached with the blocks; their garbage is collected.",
        ],
    })
}

/// A database with its default column family.
struct Rocks {
    db: DB,
    buffered: WriteOptions,
    durable: WriteOptions,
    read: ReadOptions,
}

/// A snapshot, and the iterator on it once something was scanned. The iterator goes first.
struct RocksView<'a> {
    iterator: Option<DBRawIterator<'a>>,
    snapshot: SnapshotWithThreadMode<'a, DB>,
    read: ReadOptions,
    db: &'a DB,
}

impl Rocks {
    fn open_with(options: &Options, dir: &Path) -> Result<Rocks> {
        let db = DB::open(options, dir)?;
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(Rocks { db, buffered: WriteOptions::default(), durable, read: ReadOptions::default() })
    }

    fn write_options(&self, commit: Commit) -> &WriteOptions {
        match commit {
            Commit::Buffered => &self.buffered,
            Commit::Durable => &self.durable,
        }
    }
}

/// Values of `apart_from` bytes and more lie in blob files.
fn options(memory: Memory, apart_from: Option<u32>) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(BITS_PER_KEY, false);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(HASH_RATIO);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(match lithe_bench::values_repeat() {
        true => DBCompressionType::Lz4,
        false => DBCompressionType::None,
    });
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    if let Some(from) = apart_from {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(u64::from(from));
        options.set_enable_blob_gc(true);
    }
    if let Memory::Bytes(bytes) = memory {
        let cache = Cache::new_hyper_clock_cache(bytes as usize, 0);
        table.set_block_cache(&cache);
        if apart_from.is_some() {
            options.set_blob_cache(&cache);
        }
        options.set_write_buffer_size((bytes / MEMTABLE_SHARE) as usize);
        options.set_max_write_buffer_number(MEMTABLES_MAX);
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            (bytes / MEMTABLES_SHARE) as usize,
            false,
            cache,
        ));
    }
    options.set_block_based_table_factory(&table);
    options
}

impl View for RocksView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned_opt(key, &self.read)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let (db, snapshot) = (self.db, &self.snapshot);
        let iterator = self.iterator.get_or_insert_with(|| {
            let mut read = ReadOptions::default();
            read.set_snapshot(snapshot);
            db.raw_iterator_opt(read)
        });
        match walk {
            Walk::Forward => {
                iterator.seek_to_first();
                visit_up_to(u64::MAX, iterator, DBRawIterator::next, visit)
            }
            Walk::Reverse => {
                iterator.seek_to_last();
                visit_up_to(u64::MAX, iterator, DBRawIterator::prev, visit)
            }
            Walk::From { key, limit } => {
                iterator.seek(key);
                visit_up_to(limit, iterator, DBRawIterator::next, visit)
            }
        }
    }
}

/// Shows at most `limit` entries from where the iterator is, `step` by `step`.
fn visit_up_to<'a>(
    limit: u64,
    iterator: &mut DBRawIterator<'a>,
    step: impl Fn(&mut DBRawIterator<'a>),
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<u64> {
    let mut count = 0;
    while count < limit
        && let Some((key, value)) = iterator.item()
    {
        visit(key, value);
        count += 1;
        step(iterator);
    }
    iterator.status()?;
    Ok(count)
}

impl Engine for Rocks {
    const NAME: &'static str = "rocksdb";
    const BUFFERED_SURVIVES_KILL: bool = true;
    const VALUES_APART: Offered = Offered::Yes;
    type View<'a> = RocksView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        Rocks::open_with(&options(memory, None), dir)
    }

    fn open_apart(dir: &Path, memory: Memory, from: u32) -> Result<Self> {
        Rocks::open_with(&options(memory, Some(from)), dir)
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        Ok(self.db.put_opt(key, value, self.write_options(commit))?)
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in records.iter() {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, self.write_options(commit))?)
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        Ok(self.db.delete_opt(key, self.write_options(commit))?)
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        self.db.write_opt(batch, self.write_options(commit))?;
        Ok(Offered::Yes)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned_opt(key, &self.read)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn view(&self) -> Result<RocksView<'_>> {
        let snapshot = self.db.snapshot();
        let mut read = ReadOptions::default();
        read.set_snapshot(&snapshot);
        Ok(RocksView { iterator: None, snapshot, read, db: &self.db })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    /// Memtables to level 0, and the compactions that this asks for.
    fn flush(&self) -> Result<Offered> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        self.db.wait_for_compact(&options)?;
        Ok(Offered::Yes)
    }

    fn compact(&self) -> Result<Offered> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(Offered::Yes)
    }

    fn close(self) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
