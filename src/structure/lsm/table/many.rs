//! Finding several keys at once: what of the table they need is read at once, too.

use std::ops::Range;
use std::sync::Arc;

use super::caches::TableCaches;
use super::handle::Table;
use super::partition::Partition;
use crate::base::Result;
use crate::cache::Admission;
use crate::structure::Found;

/// Blocks with no more than this between them are read in one go.
const READ_THROUGH_MAX: u64 = 16 << 10;
/// Keys whose blocks are read at once: some megabytes of them.
const AT_ONCE_MAX: usize = 1024;

/// A key that is looked for, one of several.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'k> {
    /// The key.
    pub key: &'k [u8],
    /// Its hash (`base::hash_key`).
    pub hash: u64,
    /// Where what is found goes.
    pub position: usize,
}

/// The block that a key is in if the table has it.
struct BlockOf<'s, 'k> {
    sought: &'s Sought<'k>,
    partition: Arc<Partition>,
    block: usize,
}

impl BlockOf<'_, '_> {
    fn is_same(&self, other: &BlockOf<'_, '_>) -> bool {
        self.block == other.block && Arc::ptr_eq(&self.partition, &other.partition)
    }
}

impl Table {
    /// As [`Table::find`], of keys that ascend. What is found goes to its place in `found`.
    ///
    /// # Errors
    /// As [`Table::find`]. Some may have been found.
    pub fn find_many(
        &self,
        caches: &TableCaches,
        sought: &[Sought<'_>],
        found: &mut [Option<Found>],
    ) -> Result<()> {
        for sought in sought.chunks(AT_ONCE_MAX) {
            let blocks = self.blocks_of(caches, sought)?;
            self.begin_reading(&blocks)?;
            for together in blocks.chunk_by(BlockOf::is_same) {
                let Some(BlockOf { partition, block, .. }) = together.first() else { continue };
                let was_there = partition.slot(*block).is_some_and(|slot| slot.is_filled());
                let block = self.block(caches, partition, *block, Admission::Normal)?;
                for BlockOf { sought, .. } in together {
                    found[sought.position] = match was_there {
                        true => Found::in_block(&block, sought.key),
                        false => Found::copied_from(&block, sought.key),
                    };
                }
            }
        }
        Ok(())
    }

    /// Where the keys are that the filters do not deny.
    fn blocks_of<'s, 'k>(
        &self,
        caches: &TableCaches,
        sought: &'s [Sought<'k>],
    ) -> Result<Vec<BlockOf<'s, 'k>>> {
        let opened = self.opened(caches)?;
        let mut blocks = Vec::with_capacity(sought.len());
        let mut at: Option<(usize, Arc<Partition>)> = None;
        for one in sought {
            let index = opened.find(one.key);
            if opened.slot(index).is_none() {
                continue;
            }
            let (_, partition) = match &mut at {
                Some(same) if same.0 == index => same,
                other => {
                    let partition = self.partition(caches, opened, index, Admission::Normal)?;
                    other.insert((index, partition))
                }
            };
            if !partition.may_contain(one.hash) {
                continue;
            }
            let block = partition.find(one.key);
            if block < partition.block_count() {
                blocks.push(BlockOf { sought: one, partition: Arc::clone(partition), block });
            }
        }
        Ok(blocks)
    }

    /// Has the system begin to read the blocks that are not in memory, if these are several: a disk
    /// reads many at once in a fraction of the time that it takes for one after the other.
    fn begin_reading(&self, blocks: &[BlockOf<'_, '_>]) -> Result<()> {
        let is_absent = |it: &BlockOf<'_, '_>| {
            it.partition.slot(it.block).is_some_and(|slot| !slot.is_filled())
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut block_count = 0;
        for together in blocks.chunk_by(BlockOf::is_same) {
            let Some(it) = together.first().filter(|it| is_absent(it)) else { continue };
            let pointer = self.block_pointer(&it.partition, it.block)?;
            let range = pointer.offset..pointer.offset + u64::from(pointer.len);
            match ranges.last_mut() {
                // What the index says is not verified: it need not ascend.
                Some(near)
                    if (near.start..=near.end.saturating_add(READ_THROUGH_MAX))
                        .contains(&range.start) =>
                {
                    near.end = near.end.max(range.end);
                }
                _ => ranges.push(range),
            }
            block_count += 1;
        }
        if block_count > 1 {
            let file = self.file().open()?;
            ranges.iter().for_each(|range| file.begin_read(range.start, range.end - range.start));
        }
        Ok(())
    }
}
