//! bf-tree as an engine under test.
//!
//! Settings
//! - Memory: the whole budget is its circular buffer, rounded down to a power of two as it must be.
//! - Its only durable state is a snapshot of the whole tree: `sync` and closing take one, opening
//!   begins with the last one. Hence it is shown, and not counted.
//! - No log: with it each insert waits for a timer of a millisecond, the log is never synced, and
//!   the function that would replay it is unfinished. So single durable writes are refused, and a
//!   killed process loses everything since the last snapshot.
//! - Keys of at most 64 bytes (default 16): the workloads have 21.
//! - No batches, no scans backwards, no snapshots to read from (a view is the tree itself), no
//!   range delete, no values above 1.8 KiB (half of its pages).

mod store;

use bf_tree::{BfTree, LeafInsertResult, LeafReadResult, ScanReturnField};
use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk, wrong};
use peer::{About, Safety, version_of};
use std::path::Path;
use std::process::ExitCode;
use store::Store;

/// Room for the longest record: they are limited to less than a page.
const RECORD_SIZE_MAX: usize = 4096;

fn main() -> ExitCode {
    peer::main::<Bf>(&About {
        version: version_of("bf-tree"),
        structure: "B+-tree with small pages in a circular buffer",
        safety: Safety::None("only snapshots of the whole tree are durable; its log is unfinished"),
        settings: &[
            "The circular buffer is the whole budget; keys of up to 64 bytes; no log.",
            "A sync is a snapshot of the whole tree.",
            "A view is not a snapshot; batches are not atomic.",
        ],
    })
}

/// The tree and its files.
struct Bf {
    tree: BfTree,
    store: Store,
}

struct BfView<'a> {
    tree: &'a BfTree,
    record: Vec<u8>,
}

fn read(tree: &BfTree, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
    let start = out.len();
    out.resize(start + RECORD_SIZE_MAX, 0);
    let found = tree.read(key, &mut out[start..]);
    let len = if let LeafReadResult::Found(len) = found { len as usize } else { 0 };
    out.truncate(start + len);
    match found {
        LeafReadResult::Found(_) => Ok(true),
        LeafReadResult::Deleted | LeafReadResult::NotFound => Ok(false),
        LeafReadResult::InvalidKey => wrong("bf-tree does not take this key"),
    }
}

impl View for BfView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        read(self.tree, key, out)
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let (key, limit) = match walk {
            Walk::Forward => (&[0][..], u64::MAX),
            Walk::From { key, limit } => (key, limit),
            Walk::Reverse => return wrong("bf-tree cannot scan back"),
        };
        let field = ScanReturnField::KeyAndValue;
        let scan = self.tree.scan_with_count(key, limit as usize, field);
        let mut scan = scan.map_err(|error| format!("bf-tree: {error:?}"))?;
        let mut count = 0;
        while let Some((key_len, value_len)) = scan.next(&mut self.record) {
            let (key, value) = self.record[..key_len + value_len].split_at(key_len);
            visit(key, value);
            count += 1;
        }
        Ok(count)
    }
}

impl Engine for Bf {
    const NAME: &'static str = "bf-tree";
    const BUFFERED_SURVIVES_KILL: bool = false;
    const SCANS_BACK: Offered = Offered::No;
    type View<'a> = BfView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let (store, tree) = Store::open(dir, memory)?;
        Ok(Bf { tree, store })
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        if commit == Commit::Durable {
            return wrong("bf-tree cannot make a single write durable");
        }
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(why) => wrong(format!("bf-tree: {why}")),
        }
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        records.iter().try_for_each(|(key, value)| self.put(key, value, commit))
    }

    fn delete(&self, key: &[u8], _commit: Commit) -> Result<()> {
        self.tree.delete(key);
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        read(&self.tree, key, out)
    }

    fn view(&self) -> Result<BfView<'_>> {
        Ok(BfView { tree: &self.tree, record: vec![0; RECORD_SIZE_MAX] })
    }

    fn sync(&self) -> Result<()> {
        self.store.take_snapshot(&self.tree)
    }

    fn close(self) -> Result<()> {
        self.sync()
    }
}
