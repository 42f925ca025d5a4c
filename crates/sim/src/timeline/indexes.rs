//! Which indexes there are, and how far they are built: as acknowledged, and as they may be found.

use std::collections::BTreeMap;

use super::{Timeline, Told};
use crate::finding::{Fault, Finding, Verdict};
use crate::timeline::Found;

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexState {
    /// The name of its extractor.
    pub extractor: String,
    /// Whether each index key is there once at most.
    pub is_unique: bool,
    /// Whether it can be read.
    pub is_ready: bool,
    /// Whether it is being built, or built anew.
    pub is_building: bool,
}

impl IndexState {
    /// One that was built.
    #[must_use]
    pub fn finished(&self) -> IndexState {
        IndexState { is_ready: true, is_building: false, ..self.clone() }
    }
}

/// The indexes there are, by the id of their keyspace and their name.
pub type Indexes = BTreeMap<(u32, String), IndexState>;

impl Timeline {
    /// The indexes there are, as far as acknowledged.
    #[must_use]
    pub fn indexes(&self) -> &Indexes {
        &self.indexes[0]
    }

    /// The indexes of a keyspace, by name.
    pub fn indexes_of(&self, keyspace: u32) -> impl Iterator<Item = (&str, &IndexState)> {
        let of = self.indexes().iter().filter(move |((id, _), _)| *id == keyspace);
        of.map(|((_, name), state)| (name.as_str(), state))
    }

    /// Whether it is not known which indexes there are.
    #[must_use]
    pub fn are_indexes_in_doubt(&self) -> bool {
        self.indexes.len() > 1
    }

    /// An index is about to become one of these, or not to be there: which, only time will tell.
    pub fn index_may_become(
        &mut self,
        which: &(u32, String),
        states: impl IntoIterator<Item = Option<IndexState>>,
    ) {
        let states: Vec<Option<IndexState>> = states.into_iter().collect();
        self.tell(|| Told::IndexMayBecome(which.clone(), states.clone()));
        for state in states {
            let mut indexes = self.indexes().clone();
            set(&mut indexes, which, state);
            self.indexes.push(indexes);
        }
    }

    /// An index is acknowledged to be so, or not to be there; so are the others as they were.
    pub fn index_is(&mut self, which: &(u32, String), state: Option<IndexState>) {
        self.tell(|| Told::IndexIs(which.clone(), state.clone()));
        if let Some(cut) = &mut self.cut {
            cut.indexes.append(&mut self.indexes.clone());
        }
        self.indexes.truncate(1);
        set(&mut self.indexes[0], which, state);
    }

    /// A keyspace is gone, with its indexes.
    pub(super) fn forget_indexes_of_gone(&mut self) {
        let ids: Vec<u32> = self.catalog().values().flatten().copied().collect();
        for indexes in &mut self.indexes {
            indexes.retain(|(id, _), _| ids.contains(id));
        }
    }

    /// The indexes must be those acknowledged, or those that were about to be, of the keyspaces
    /// there are.
    pub(super) fn judge_indexes(&self, found: &Found) -> Verdict {
        let is_there = |id: u32| found.catalog.values().any(|found| *found == id);
        let fits = |indexes: &Indexes| {
            indexes.iter().filter(|((id, _), _)| is_there(*id)).eq(found.indexes.iter())
        };
        let at_cut = self.cut.iter().flat_map(|cut| &cut.indexes);
        if self.indexes.iter().chain(at_cut).any(fits) {
            return Ok(());
        }
        let what = format!("indexes {:?}, not one of {:?}", found.indexes, self.indexes);
        Err(Finding::new(Fault::Lost, what))
    }
}

fn set(indexes: &mut Indexes, which: &(u32, String), state: Option<IndexState>) {
    match state {
        Some(state) => indexes.insert(which.clone(), state),
        None => indexes.remove(which),
    };
}
