//! Many edits in one pass from left to right. Subtrees that no edit touches are taken over as
//! they are, subtrees that an edit removes whole are dropped without being looked at; the cost is
//! the touched leaves and the paths to them.

use std::convert::identity;
use std::ops::Range;
use std::sync::Arc;

use super::FlexTree;
use super::item::{Item, Total};
use super::node::{Child, Children, Inner, Leaf, Node, group_children, group_items, mend};

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// Replaces the items at `range` by `items`: O(k + log n) for k removed and inserted items.
    ///
    /// # Panics
    /// When `range` is not within the tree.
    pub fn splice(&mut self, range: Range<usize>, items: impl IntoIterator<Item = T>) {
        self.rewrite([(range, items)]);
    }

    /// Applies edits, each of which replaces a range of indices (of the tree before the call) by
    /// items. Ranges ascend and do not overlap; an empty range inserts, and several may be at one
    /// index. If the iterator panics, the tree is left empty.
    ///
    /// # Panics
    /// When a range is not within the tree or not behind the one before it.
    pub fn rewrite<I, R>(&mut self, edits: I)
    where
        I: IntoIterator<Item = (Range<usize>, R)>,
        R: IntoIterator<Item = T>,
    {
        let mut edits = Edits::new(edits.into_iter(), self.len());
        if edits.current.is_none() {
            return;
        }
        let FlexTree { root, height, .. } = std::mem::take(self);
        let nodes = root.rewrite(Span { start: 0, limit: usize::MAX }, &mut edits);
        *self = Self::over(mend(nodes), height);
    }
}

/// The share by which a rewritten leaf may grow without moving, as a divisor.
const REWRITE_SLACK_DIVISOR: usize = 8;

/// Which edits belong to a node: those that start at `start..limit`. The limit is the end of the
/// node, except that the last nodes also take what is appended at the end of the tree.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    limit: usize,
}

/// The edits that are still to be done.
struct Edits<I, R> {
    rest: I,
    /// The next; its items are gone if a leaf before has taken them and a part of the range.
    current: Option<(Range<usize>, Option<R>)>,
    len: usize,
}

impl<I: Iterator<Item = (Range<usize>, R)>, R> Edits<I, R> {
    fn new(rest: I, len: usize) -> Self {
        let mut edits = Edits { rest, current: None, len };
        edits.pull(0);
        edits
    }

    fn pull(&mut self, floor: usize) {
        self.current = self.rest.next().map(|(range, items)| {
            assert!(
                floor <= range.start && range.start <= range.end && range.end <= self.len,
                "the edit of {range:?} is not within {floor}..{}",
                self.len
            );
            (range, Some(items))
        });
    }

    fn starts_before(&self, limit: usize) -> bool {
        self.current.as_ref().is_some_and(|(range, _)| range.start < limit)
    }

    /// Whether `range` is removed whole, and nothing comes in its place.
    fn removes(&self, range: &Range<usize>) -> bool {
        self.current.as_ref().is_some_and(|(removed, items)| {
            items.is_none() && removed.start <= range.start && range.end <= removed.end
        })
    }

    /// The next edit if it starts before `limit`, as far as it goes before `end`.
    fn take(&mut self, limit: usize, end: usize) -> Option<(Range<usize>, Option<R>)> {
        if !self.starts_before(limit) {
            return None;
        }
        let (range, items) = self.current.take()?;
        if range.end > end {
            self.current = Some((end..range.end, None));
            return Some((range.start..end, items));
        }
        self.pull(range.end);
        Some((range, items))
    }

    /// The items of a leaf after the edits in it. `old` yields those before; what stays of them
    /// is made an item by `keep`.
    fn replace_in<T, O>(
        &mut self,
        mut old: impl ExactSizeIterator<Item = O>,
        keep: impl Fn(O) -> T,
        span: Span,
    ) -> Vec<T>
    where
        R: IntoIterator<Item = T>,
    {
        let end = span.start + old.len();
        let mut result = Vec::with_capacity(old.len() + old.len() / REWRITE_SLACK_DIVISOR);
        let mut position = span.start;
        while let Some((range, items)) = self.take(span.limit, end) {
            result.extend(old.by_ref().take(range.start - position).map(&keep));
            result.extend(items.into_iter().flatten());
            old.by_ref().take(range.len()).for_each(drop);
            position = range.end;
        }
        result.extend(old.map(keep));
        result
    }
}

/// A node to rewrite: one that this tree holds alone, or one that others keep, of which only what
/// stays is cloned.
trait Source<T: Item, const LEAF: usize, const FAN: usize> {
    /// The node, as it is.
    fn keep(self) -> Node<T, LEAF, FAN>;

    /// What becomes of the node: none, one or several of its level, each sound but for one that
    /// may be alone (see `node.rs`).
    fn rewrite<I, R>(self, span: Span, edits: &mut Edits<I, R>) -> Children<T, LEAF, FAN>
    where
        I: Iterator<Item = (Range<usize>, R)>,
        R: IntoIterator<Item = T>;
}

impl<T: Item, const LEAF: usize, const FAN: usize> Source<T, LEAF, FAN> for Node<T, LEAF, FAN> {
    fn keep(self) -> Node<T, LEAF, FAN> {
        self
    }

    fn rewrite<I, R>(self, span: Span, edits: &mut Edits<I, R>) -> Children<T, LEAF, FAN>
    where
        I: Iterator<Item = (Range<usize>, R)>,
        R: IntoIterator<Item = T>,
    {
        match self {
            Node::Leaf(leaf) => group_items(match Arc::try_unwrap(leaf) {
                Ok(Leaf { items, .. }) => edits.replace_in(items.into_iter(), identity, span),
                Err(shared) => edits.replace_in(shared.items.iter(), T::clone, span),
            }),
            Node::Inner(inner) => match Arc::try_unwrap(inner) {
                Ok(Inner { children, totals, .. }) => {
                    rewrite_children(children.into_iter(), &totals, span, edits)
                }
                Err(shared) => {
                    rewrite_children(shared.children.iter(), &shared.totals, span, edits)
                }
            },
        }
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Source<T, LEAF, FAN> for &Node<T, LEAF, FAN> {
    fn keep(self) -> Node<T, LEAF, FAN> {
        self.clone()
    }

    fn rewrite<I, R>(self, span: Span, edits: &mut Edits<I, R>) -> Children<T, LEAF, FAN>
    where
        I: Iterator<Item = (Range<usize>, R)>,
        R: IntoIterator<Item = T>,
    {
        match self {
            Node::Leaf(leaf) => group_items(edits.replace_in(leaf.items.iter(), T::clone, span)),
            Node::Inner(inner) => {
                rewrite_children(inner.children.iter(), &inner.totals, span, edits)
            }
        }
    }
}

fn rewrite_children<T: Item, I, R, const LEAF: usize, const FAN: usize>(
    nodes: impl ExactSizeIterator<Item = impl Source<T, LEAF, FAN>>,
    totals: &[Total<T::Size>],
    span: Span,
    edits: &mut Edits<I, R>,
) -> Children<T, LEAF, FAN>
where
    I: Iterator<Item = (Range<usize>, R)>,
    R: IntoIterator<Item = T>,
{
    let mut children: Children<T, LEAF, FAN> = Vec::with_capacity(nodes.len() + 1);
    let mut start = span.start;
    for (position, (node, &total)) in nodes.zip(totals).enumerate() {
        let end = start + total.count;
        let limit = if position + 1 == totals.len() { span.limit } else { end };
        if !edits.starts_before(limit) {
            children.push(Child { node: node.keep(), total });
        } else if limit == end && edits.removes(&(start..end)) {
            edits.take(limit, end);
        } else {
            children.extend(node.rewrite(Span { start, limit }, edits));
        }
        start = end;
    }
    group_children(mend(children))
}
