//! Nodes of the tree: their memory, how readers see them, how the one writer makes them.
//!
//! A leaf has room for [`WIDTH`] entries: a sorted part that never changes and behind it a tail in
//! the order of insertion. An insert writes a slot behind the tail and then the counts, so a
//! reader finds a whole leaf at any instant and never waits. A full leaf is replaced by a merged
//! one, an inner node by a copy with one more key; only the pointers to children change in place.
//! Must not know the order of entries.
//!
//! Invariants
//! - N1  Slots below the count are initialised and never change while the node can be reached.
//! - N2  A leaf's counts are stored with `Release` after the slots below them are written, and
//!   loaded with `Acquire`.
//! - N3  Pointers to nodes are stored and loaded `SeqCst`, after the node is whole; grace periods
//!   need that (`readers.rs`, G1).
//! - N4  A node is reused only after a grace period that began when it could not be reached any
//!   more, as a node of the same sort. Memory is freed by the drop of `Nodes` only.
//! - N5  Whoever looks at nodes has a [`Hold`]: a pin, or a borrow of `Nodes`, which the writer
//!   must give up to make or reuse a node.
//!
//! Layout of a node (64-byte lines): line 0 counts, level and prefix; lines 1-8 heads; lines 9-12
//! ids; inner nodes have 65 child pointers behind.

#![expect(unsafe_code, reason = "a leaf grows while readers search it")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use super::arena::EntryId;
use super::chunk::{self, Chunk, HUGE_PAGE_SIZE, LINE_SIZE, SpareChunks};
use super::order::{Keys, Prefix};
use super::readers::{Grace, Pin, Readers};
use crate::base::prefetch;
use crate::base::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Entries of a leaf, and separators of an inner node, at most.
pub(super) const WIDTH: usize = 64;
const CHILD_COUNT_MAX: usize = WIDTH + 1;

/// Nodes are cut from huge pages once they take so much; the entries take several times that.
const HUGE_FROM: usize = HUGE_PAGE_SIZE / 2;
const ONE_BY_ONE_BELOW: usize = 16 << 10;

const COUNT_BITS: u32 = 16;

/// The first line of a node.
#[repr(C, align(64))]
struct Top {
    /// Of a leaf, the sorted count in the upper half, the count in the lower.
    counts: AtomicU32,
    level: u8,
    prefix: Prefix,
}

/// What leaves and inner nodes have in common; a leaf is just this.
#[repr(C)]
struct Block {
    top: Top,
    heads: [u64; WIDTH],
    ids: [EntryId; WIDTH],
}

#[repr(C)]
struct InnerBlock {
    block: Block,
    children: [AtomicPtr<Block>; CHILD_COUNT_MAX],
}

const _: () = assert!(size_of::<Block>() == LINE_SIZE + WIDTH * 12);

/// Proof that nodes that can be reached are not reused meanwhile (N5).
///
/// # Safety
/// As long as a value borrowed as `Hold` lives, no node that was reachable since is reused.
pub(super) unsafe trait Hold {
    /// Brings in the lines of a leaf that the holder is going to touch.
    fn prefetch(leaf: Leaf<'_>);
}

// SAFETY: G1 and G2 of `readers.rs` with N3 and N4.
unsafe impl Hold for Pin<'_> {
    #[inline]
    fn prefetch(leaf: Leaf<'_>) {
        const SEARCHED: usize = LINE_SIZE + WIDTH * size_of::<u64>();
        prefetch_lines(leaf.block, SEARCHED / LINE_SIZE);
    }
}

// SAFETY: nodes are made and reused only through `&mut Nodes`.
unsafe impl Hold for Nodes {
    #[inline]
    fn prefetch(leaf: Leaf<'_>) {
        prefetch(leaf.block.as_ptr().cast());
    }
}

/// A node that is held.
#[derive(Clone, Copy)]
pub(super) enum Node<'h> {
    Leaf(Leaf<'h>),
    Inner(Inner<'h>),
}

/// A leaf that is held.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'h> {
    block: NonNull<Block>,
    held: PhantomData<&'h Block>,
}

/// An inner node that is held.
#[derive(Clone, Copy)]
pub(super) struct Inner<'h> {
    block: NonNull<InnerBlock>,
    held: PhantomData<&'h InnerBlock>,
}

/// The name of a node of one [`Nodes`], without a hold on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodePtr(NonNull<Block>);

// SAFETY: a name alone gives access to nothing; the memory behind it is not bound to a thread.
unsafe impl Send for NodePtr {}

/// A leaf at one instant: sorted part and tail.
#[derive(Clone, Copy)]
pub(super) struct LeafView<'h> {
    pub(super) sorted: Keys<'h>,
    pub(super) tail_heads: &'h [u64],
    pub(super) tail_ids: &'h [EntryId],
}

/// Where a new entry of a leaf belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Append {
    /// Behind all others: the sorted part grows. Only while there is no tail.
    InOrder,
    /// Anywhere: the tail grows.
    Unordered,
}

impl<'h> Leaf<'h> {
    /// The entries as of now.
    #[inline]
    pub(super) fn view(self) -> LeafView<'h> {
        // SAFETY: the block is held (N5) and initialised (N1).
        let counts = unsafe { &(*self.block.as_ptr()).top.counts };
        let counts = counts.load(Ordering::Acquire); // N2
        let (sorted, count) =
            ((counts >> COUNT_BITS) as usize, (counts & ((1 << COUNT_BITS) - 1)) as usize);
        // SAFETY: held for 'h (N5), and `count` was published (N2).
        let all = unsafe { keys(self.block, count) };
        let (heads, tail_heads) = all.heads.split_at(sorted);
        let (ids, tail_ids) = all.ids.split_at(sorted);
        LeafView { sorted: Keys { prefix: all.prefix, heads, ids }, tail_heads, tail_ids }
    }

    pub(super) fn name(self) -> NodePtr {
        NodePtr(self.block)
    }

    /// Brings in the slot that the next append writes. For the writer.
    #[inline]
    pub(super) fn prefetch_slot(self) {
        let view = self.view();
        let count = (view.sorted.len() + view.tail_ids.len()).min(WIDTH - 1);
        prefetch(view.sorted.heads.as_ptr().wrapping_add(count).cast());
        prefetch(view.sorted.ids.as_ptr().wrapping_add(count).cast());
    }
}

impl<'h> Inner<'h> {
    pub(super) fn name(self) -> NodePtr {
        NodePtr(self.block.cast())
    }

    /// The separators: each is the first entry of the child behind it.
    #[inline]
    pub(super) fn keys(self) -> Keys<'h> {
        let block = self.block.cast::<Block>();
        // SAFETY: the block is held (N5) and initialised (N1).
        let counts = unsafe { &(*block.as_ptr()).top.counts };
        // Relaxed: constant since before the node was published (N3).
        let count = counts.load(Ordering::Relaxed) as usize;
        // SAFETY: held for 'h (N5); an inner node is whole when it is published (N3).
        unsafe { keys(block, count) }
    }

    /// Levels above the leaves: at least 1.
    #[inline]
    pub(super) fn level(self) -> u8 {
        // SAFETY: the block is held (N5) and initialised (N1).
        unsafe { (*self.block.as_ptr()).block.top.level }
    }

    /// The child before separator `index`, or the last.
    #[inline]
    pub(super) fn child<H: Hold>(self, index: usize, _hold: &'h H) -> Node<'h> {
        let child = self.child_ptr(index);
        if self.level() > 1 {
            return Node::Inner(Inner { block: child.0.cast(), held: PhantomData });
        }
        let leaf = Leaf { block: child.0, held: PhantomData };
        H::prefetch(leaf);
        Node::Leaf(leaf)
    }

    /// Brings in the leaf behind that child, if this node leads to it: for a walk in order.
    #[inline]
    pub(super) fn prefetch_next_leaf(self, index: usize) {
        if self.level() == 1 && index < self.keys().len() {
            prefetch_lines(self.child_ptr(index + 1).0, size_of::<Block>() / LINE_SIZE);
        }
    }

    /// The name of that child.
    #[inline]
    pub(super) fn child_ptr(self, index: usize) -> NodePtr {
        let child = self.child_slot(index).load(Ordering::SeqCst); // N3
        NodePtr(NonNull::new(child).expect("an inner node has a child behind each separator"))
    }

    #[inline]
    fn child_slot(self, index: usize) -> &'h AtomicPtr<Block> {
        // SAFETY: the block is held for 'h (N5); all slots were initialised, unused ones to null.
        let children = unsafe { &(*self.block.as_ptr()).children };
        &children[index]
    }
}

#[inline]
fn prefetch_lines(block: NonNull<Block>, count: usize) {
    for line in 0..count {
        prefetch(block.as_ptr().cast::<u8>().wrapping_add(line * LINE_SIZE));
    }
}

/// The first `count` keys of a node.
///
/// # Safety
/// The node must stay held for `'h`, and `count` slots must be published to this thread.
#[inline]
unsafe fn keys<'h>(block: NonNull<Block>, count: usize) -> Keys<'h> {
    let block = block.as_ptr();
    // SAFETY: the fields of an allocated block (caller).
    let heads = unsafe { &raw const (*block).heads }.cast::<u64>();
    // SAFETY: as before.
    let ids = unsafe { &raw const (*block).ids }.cast::<EntryId>();
    // SAFETY: written before the node was published, constant since (N1, caller).
    let prefix = unsafe { &(*block).top.prefix };
    // SAFETY: `count` slots are initialised and constant (N1, caller).
    let heads = unsafe { slice::from_raw_parts(heads, count) };
    // SAFETY: as before.
    let ids = unsafe { slice::from_raw_parts(ids, count) };
    Keys { prefix, heads, ids }
}

/// Where a descent begins.
pub(super) struct Root {
    top: AtomicPtr<Block>,
}

impl Root {
    /// The topmost node.
    #[inline]
    pub(super) fn load<'h>(&self, _hold: &'h impl Hold) -> Node<'h> {
        let top = self.top.load(Ordering::SeqCst); // N3
        let top = NonNull::new(top).expect("a root is made with a leaf");
        // SAFETY: the node is whole (N3) and held (N5); its level is constant.
        let level = unsafe { (*top.as_ptr()).top.level };
        if level == 0 {
            return Node::Leaf(Leaf { block: top, held: PhantomData });
        }
        Node::Inner(Inner { block: top.cast(), held: PhantomData })
    }

    /// Puts another node on top.
    pub(super) fn store(&self, top: NodePtr) {
        self.top.store(top.0.as_ptr(), Ordering::SeqCst); // N3
    }
}

/// The writer's side: makes nodes, takes them back, owns their memory.
pub(super) struct Nodes {
    chunks: Vec<Chunk>,
    spares: Arc<SpareChunks>,
    /// Bytes given away of the last chunk.
    chunk_used: usize,
    allocated: usize,
    leaves: Stock,
    inners: Stock,
    grace: Grace,
}

/// Nodes of one sort that are out of the tree.
#[derive(Default)]
struct Stock {
    /// Held by nobody.
    free: Vec<NodePtr>,
    /// Unlinked before the current grace period began.
    draining: Vec<NodePtr>,
    /// Unlinked since.
    unlinked: Vec<NodePtr>,
}

impl Nodes {
    /// The nodes of one tree, and its root: an empty leaf.
    pub(super) fn with_root(spares: &Arc<SpareChunks>) -> (Nodes, Root) {
        let mut nodes = Nodes {
            chunks: Vec::new(),
            spares: Arc::clone(spares),
            chunk_used: 0,
            allocated: 0,
            leaves: Stock::default(),
            inners: Stock::default(),
            grace: Grace::default(),
        };
        let leaf = nodes.new_leaf(Keys { prefix: &Prefix::EMPTY, heads: &[], ids: &[] });
        (nodes, Root { top: AtomicPtr::new(leaf.0.as_ptr()) })
    }

    /// Bytes of memory taken.
    pub(super) fn allocated(&self) -> usize {
        self.allocated
    }

    /// The inner node of this name, which must be one.
    #[inline]
    pub(super) fn inner(&self, name: NodePtr) -> Inner<'_> {
        // SAFETY: nodes stay allocated and initialised (N4); the level of a node never changes
        // between leaf and inner.
        let level = unsafe { (*name.0.as_ptr()).top.level };
        assert!(level > 0, "the path to a leaf is made of inner nodes");
        Inner { block: name.0.cast(), held: PhantomData }
    }

    /// The leaf of this name.
    #[inline]
    pub(super) fn leaf(&self, name: NodePtr) -> Leaf<'_> {
        Leaf { block: name.0, held: PhantomData }
    }

    /// A leaf whose sorted part is `keys`.
    pub(super) fn new_leaf(&mut self, keys: Keys<'_>) -> NodePtr {
        let block = match self.leaves.free.pop() {
            Some(NodePtr(block)) => block,
            None => self.allocate(size_of::<Block>()).cast(),
        };
        let count = keys.len() as u32;
        // SAFETY: fresh, or reused after its grace period (N4): nobody else can reach it.
        unsafe { write_block(block, 0, count << COUNT_BITS | count, keys) };
        NodePtr(block)
    }

    /// An inner node with one child more than keys.
    pub(super) fn new_inner(&mut self, level: u8, keys: Keys<'_>, children: &[NodePtr]) -> NodePtr {
        assert!(level > 0 && children.len() == keys.len() + 1 && keys.len() <= WIDTH);
        let block: NonNull<InnerBlock> = match self.inners.free.pop() {
            Some(NodePtr(block)) => block.cast(),
            None => self.allocate(size_of::<InnerBlock>()).cast(),
        };
        // SAFETY: fresh, or reused after its grace period (N4): nobody else can reach it.
        unsafe { write_block(block.cast(), level, keys.len() as u32, keys) };
        for index in 0..CHILD_COUNT_MAX {
            let child = children.get(index).map_or(ptr::null_mut(), |child| child.0.as_ptr());
            // SAFETY: a field of the block, within the array.
            let slot = unsafe { &raw mut (*block.as_ptr()).children[index] };
            // SAFETY: nobody else can reach the block.
            unsafe { slot.write(AtomicPtr::new(child)) };
        }
        NodePtr(block.cast())
    }

    /// Adds an entry to the leaf and makes it visible.
    ///
    /// # Panics
    /// When the leaf is full.
    #[inline]
    pub(super) fn append(&mut self, leaf: NodePtr, head: u64, id: EntryId, how: Append) {
        let block = leaf.0.as_ptr();
        // SAFETY: nodes stay allocated (N4) and initialised; `counts` is atomic.
        let counts = unsafe { &(*block).top.counts };
        // Relaxed: this thread, the one writer, stored it.
        let old = counts.load(Ordering::Relaxed);
        let slot = (old & ((1 << COUNT_BITS) - 1)) as usize;
        assert!(slot < WIDTH, "the caller makes room first");
        // SAFETY: a field of an allocated block.
        let heads = unsafe { &raw mut (*block).heads }.cast::<u64>();
        // SAFETY: `slot` is within the array, not published yet, and so read by nobody (N2).
        unsafe { heads.wrapping_add(slot).write(head) };
        // SAFETY: a field of an allocated block.
        let ids = unsafe { &raw mut (*block).ids }.cast::<EntryId>();
        // SAFETY: as for the head.
        unsafe { ids.wrapping_add(slot).write(id) };
        let sorted = match how {
            Append::InOrder => 1 << COUNT_BITS,
            Append::Unordered => 0,
        };
        counts.store(old + sorted + 1, Ordering::Release); // N2
    }

    /// Puts another child into a place of an inner node.
    pub(super) fn replace_child(&self, inner: NodePtr, index: usize, child: NodePtr) {
        self.inner(inner).child_slot(index).store(child.0.as_ptr(), Ordering::SeqCst); // N3
    }

    /// Takes back a leaf that no pointer leads to any more.
    pub(super) fn retire_leaf(&mut self, leaf: NodePtr) {
        self.leaves.unlinked.push(leaf);
    }

    /// Takes back an inner node that no pointer leads to any more.
    pub(super) fn retire_inner(&mut self, inner: NodePtr) {
        self.inners.unlinked.push(inner);
    }

    /// Makes retired nodes reusable if their grace period is over, and begins the next.
    pub(super) fn collect(&mut self, readers: &Readers) {
        if self.leaves.unlinked.is_empty() || !self.grace.is_over(readers) {
            return;
        }
        for stock in [&mut self.leaves, &mut self.inners] {
            stock.free.append(&mut stock.draining);
            std::mem::swap(&mut stock.draining, &mut stock.unlinked);
        }
        self.grace.begin(readers);
    }

    /// Fresh memory for a node, aligned to lines.
    fn allocate(&mut self, size: usize) -> NonNull<u8> {
        let size = size.next_multiple_of(LINE_SIZE);
        let room = self.chunks.last().map_or(0, |chunk| chunk.size() - self.chunk_used);
        if room < size {
            // A small memtable takes its nodes one by one.
            let chunk_size = match self.allocated {
                ..ONE_BY_ONE_BELOW => size,
                allocated => chunk::next_size(allocated, HUGE_FROM).max(size),
            };
            self.chunks.push(Chunk::allocate(chunk_size, &self.spares));
            self.chunk_used = 0;
            self.allocated += chunk_size;
        }
        let chunk = self.chunks.last().expect("a chunk with room was pushed if none was there");
        // SAFETY: `chunk_used + size` is at most the size of the chunk.
        let node = unsafe { chunk.start().add(self.chunk_used) };
        self.chunk_used += size;
        node
    }
}

/// Writes what all nodes have.
///
/// # Safety
/// `block` must be allocated, and nobody else may reach it.
unsafe fn write_block(block: NonNull<Block>, level: u8, counts: u32, keys: Keys<'_>) {
    assert!(keys.len() <= WIDTH && keys.ids.len() == keys.len());
    let block = block.as_ptr();
    let top = Top { counts: AtomicU32::new(counts), level, prefix: *keys.prefix };
    // SAFETY: the first field of an allocated block that nobody else reaches (caller).
    unsafe { block.cast::<Top>().write(top) };
    // SAFETY: a field of an allocated block.
    let heads = unsafe { &raw mut (*block).heads }.cast::<u64>();
    // SAFETY: at most `WIDTH` heads, and `keys` is not of this block: nobody else reaches it.
    unsafe { heads.copy_from_nonoverlapping(keys.heads.as_ptr(), keys.heads.len()) };
    // SAFETY: a field of an allocated block.
    let ids = unsafe { &raw mut (*block).ids }.cast::<EntryId>();
    // SAFETY: as for the heads.
    unsafe { ids.copy_from_nonoverlapping(keys.ids.as_ptr(), keys.ids.len()) };
}
