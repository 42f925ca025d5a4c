//! Nebari as an engine under test.
//!
//! Settings
//! - An unversioned tree: the cheaper of its two, as no workload asks for old versions.
//! - Memory: its cache is told in chunks (nodes and values), a chunk being at most 64 KiB; it has
//!   as many as there would be chunks of 4 KiB in the budget.
//! - Every transaction is durable: it syncs the tree's file and the log of transactions. There is
//!   nothing cheaper, so that unsynced writes cost the same.
//! - A batch is one modification of all its keys, sorted, which is its fastest way.
//! - A view is the tree itself: its readers see each newest state. It deletes no ranges.

use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk};
use nebari::io::fs::StdFile;
use nebari::tree::{Operation, Root, ScanEvaluation, Unversioned};
use nebari::{ArcBytes, ChunkCache, Config, Roots, Tree};
use peer::{About, Safety, version_of};
use std::convert::Infallible;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::path::Path;
use std::process::ExitCode;

const TREE: &str = "bench";
const CHUNK_SIZE_TYPICAL: u64 = 4096;
const CHUNK_SIZE_MAX: usize = 64 << 10;

fn main() -> ExitCode {
    peer::main::<Nebari>(&About {
        version: version_of("nebari"),
        structure: "B+-tree, append-only",
        safety: Safety::Kill,
        settings: &[
            "Unversioned tree; a cache of as many chunks as 4 KiB fit into the budget.",
            "Every transaction syncs twice: there is no cheaper one.",
            "A view is not a snapshot.",
        ],
    })
}

/// A directory of trees, and the one that is used.
struct Nebari {
    roots: Roots<StdFile>,
    tree: Tree<Unversioned, StdFile>,
}

struct NebariView<'a> {
    tree: &'a Tree<Unversioned, StdFile>,
}

fn plain(error: impl std::fmt::Display) -> lithe_bench::Error {
    error.to_string().into()
}

impl NebariView<'_> {
    fn walk<'k>(
        &self,
        range: &'k (impl RangeBounds<&'k [u8]> + Debug + Clone),
        forwards: bool,
        limit: u64,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        let (mut chosen, mut count) = (0, 0);
        self.tree
            .scan::<Infallible, _, _, _, _>(
                range,
                forwards,
                |_, _, _| ScanEvaluation::ReadData,
                |_, _| {
                    chosen += 1;
                    if chosen <= limit { ScanEvaluation::ReadData } else { ScanEvaluation::Stop }
                },
                |key, _, value| {
                    visit(&key, &value);
                    count += 1;
                    Ok(())
                },
            )
            .map_err(plain)?;
        Ok(count)
    }
}

impl View for NebariView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.tree.get(key).map_err(plain)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        match walk {
            Walk::Forward => self.walk(&(..), true, u64::MAX, visit),
            Walk::Reverse => self.walk(&(..), false, u64::MAX, visit),
            Walk::From { key, limit } => self.walk(&(key..), true, limit, visit),
        }
    }
}

impl Engine for Nebari {
    const NAME: &'static str = "nebari";
    const BUFFERED_SURVIVES_KILL: bool = true;
    type View<'a> = NebariView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let mut config = Config::default_for(dir);
        if let Memory::Bytes(bytes) = memory {
            let chunks = (bytes / CHUNK_SIZE_TYPICAL) as usize;
            config = config.cache(ChunkCache::new(chunks, CHUNK_SIZE_MAX));
        }
        let roots = config.open().map_err(plain)?;
        let tree = roots.tree(Unversioned::tree(TREE)).map_err(plain)?;
        Ok(Nebari { roots, tree })
    }

    fn put(&self, key: &[u8], value: &[u8], _commit: Commit) -> Result<()> {
        self.tree.set(key.to_vec(), value.to_vec()).map_err(plain)
    }

    fn put_batch(&self, records: &Records, _commit: Commit) -> Result<()> {
        let mut entries: Vec<_> = records.iter().collect();
        entries.sort_by(|a, b| a.0.cmp(b.0)); // Stable: of equal keys the last one stays last.
        let last_of_its_key = entries.chunk_by(|a, b| a.0 == b.0).filter_map(<[_]>::last);
        let (keys, values) = last_of_its_key
            .map(|&(key, value)| (ArcBytes::from(key), ArcBytes::from(value.to_vec())))
            .unzip();
        let transaction = self.roots.transaction(&[Unversioned::tree(TREE)]).map_err(plain)?;
        transaction
            .tree::<Unversioned>(0)
            .expect("the transaction has one tree")
            .modify(keys, Operation::SetEach(values))
            .map_err(plain)?;
        transaction.commit().map_err(plain)
    }

    fn delete(&self, key: &[u8], _commit: Commit) -> Result<()> {
        self.tree.remove(key).map_err(plain)?;
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        NebariView { tree: &self.tree }.get(key, out)
    }

    fn view(&self) -> Result<NebariView<'_>> {
        Ok(NebariView { tree: &self.tree })
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // Every transaction is durable already.
    }

    fn compact(&self) -> Result<Offered> {
        self.tree.compact().map_err(plain)?;
        Ok(Offered::Yes)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
