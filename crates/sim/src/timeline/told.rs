//! What changes a history, told one by one: whoever hears it in another process has the same
//! history, also when the one who told it was killed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::{Durability, SeqNo};

use super::{Catalog, Change, Cut, IndexState, Timeline};
use crate::checkpoints::Checkpoint;

/// One change of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A commit is about to be made.
    Issued {
        /// About when.
        now: u64,
        /// Each key once.
        changes: Vec<Change>,
    },
    /// It was acknowledged.
    Acknowledged(SeqNo, Durability),
    /// It failed with the promise that nothing has changed.
    TakenBack,
    /// Everything acknowledged so far is durable.
    Durable,
    /// The keyspaces are about to become these.
    CatalogIssued(Catalog),
    /// They have, and this is the id of a new one.
    CatalogAcknowledged(Option<u32>),
    /// They have not.
    CatalogTakenBack,
    /// An index is about to become one of these.
    IndexMayBecome((u32, String), Vec<Option<IndexState>>),
    /// An index is so, or not there.
    IndexIs((u32, String), Option<IndexState>),
    /// A checkpoint is about to be made.
    CheckpointAskedFor {
        /// Where.
        path: PathBuf,
        /// About when.
        now: u64,
    },
    /// It was made.
    CheckpointMade,
    /// The key or passphrase of this number is about to open the database.
    KeyMayBe(u8),
    /// It does, and no other.
    KeyIs(u8),
}

/// Who is told of the changes of a history.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&Told) + Send + Sync>);

impl Listener {
    /// One that calls this.
    pub fn new(hears: impl Fn(&Told) + Send + Sync + 'static) -> Listener {
        Listener(Arc::new(hears))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Timeline {
    /// Has changes told to this one from here on.
    pub fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    pub(super) fn tell(&self, told: impl FnOnce() -> Told) {
        if let Some(Listener(hears)) = &self.listener {
            hears(&told());
        }
    }

    /// Changes as the history did that this was told of (L4).
    ///
    /// # Panics
    /// When told out of turn (L1).
    pub fn hear(&mut self, told: Told) {
        match told {
            Told::Issued { now, changes } => self.issue(now, changes),
            Told::Acknowledged(seqno, durability) => self.acknowledge(seqno, durability),
            Told::TakenBack => self.take_back(),
            Told::Durable => self.mark_durable(),
            Told::CatalogIssued(catalog) => self.issue_catalog(|now| *now = catalog),
            Told::CatalogAcknowledged(created) => self.acknowledge_catalog(created),
            Told::CatalogTakenBack => self.take_back_catalog(),
            Told::IndexMayBecome(which, states) => self.index_may_become(&which, states),
            Told::IndexIs(which, state) => self.index_is(&which, state),
            Told::CheckpointAskedFor { path, now } => {
                self.ask_for_checkpoint(&path, now);
            }
            Told::CheckpointMade => self.checkpoint_is_made(),
            Told::KeyMayBe(number) => self.key_may_be(number),
            Told::KeyIs(number) => self.key_is(number),
        }
    }

    /// The power was cut: what is acknowledged from here on may have been so when there was nothing
    /// any more to make it durable on, and does not have to be there. Nor has it behind another
    /// cut, that of an opening of which nothing was found.
    pub fn note_cut(&mut self) {
        if self.cut.is_none() {
            self.cut = Some(Cut {
                durable: self.durable,
                catalog_durable: self.catalog_durable,
                indexes: self.indexes.clone(),
            });
        }
    }

    /// Notes what a checkpoint that is about to be made will have to show. Not if that is not known
    /// for certain: whether it is.
    pub fn ask_for_checkpoint(&mut self, path: &Path, now: u64) -> bool {
        // What failed may have happened.
        let catalog: Option<BTreeMap<String, u32>> =
            self.catalog().iter().map(|(name, id)| Some((name.clone(), (*id)?))).collect();
        let Some(catalog) = catalog.filter(|_| self.is_catalog_certain()) else { return false };
        self.tell(|| Told::CheckpointAskedFor { path: path.to_owned(), now });
        let rows = catalog.values().map(|id| (*id, self.rows(*id))).collect();
        let (commit, is_made) = (Some(self.acknowledged), false);
        let path = path.to_owned();
        self.checkpoints.push(Checkpoint { path, catalog, rows, now, commit, is_made });
        true
    }

    /// The last checkpoint was made.
    pub fn checkpoint_is_made(&mut self) {
        self.tell(|| Told::CheckpointMade);
        let is_late = self.cut.is_some();
        if let Some(made) = self.checkpoints.last_mut().filter(|_| !is_late) {
            made.is_made = true;
        }
    }

    /// The database is about to get the key or passphrase of this number.
    pub fn key_may_be(&mut self, number: u8) {
        self.tell(|| Told::KeyMayBe(number));
        if let Some(keys) = &mut self.keys {
            keys.push(number);
        }
    }

    /// The database has got it.
    pub fn key_is(&mut self, number: u8) {
        self.tell(|| Told::KeyIs(number));
        if self.cut.is_none() {
            self.keys = Some(vec![number]);
        }
    }
}
