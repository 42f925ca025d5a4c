//! The rules of the catalogue about secondary indexes (C8).

use crate::base::{Error, Result};
use crate::manifest::options::{IndexRecord, KeyspaceOptions};
use crate::manifest::state::{CatalogState, KeyspaceRecord, check_own_key};

impl CatalogState {
    /// The indexes of a keyspace, by the number of what they are kept in.
    pub fn indexes_of(&self, id: u32) -> impl Iterator<Item = (&KeyspaceRecord, &IndexRecord)> {
        let indexes = self
            .keyspaces
            .range(id..)
            .filter_map(|(_, record)| Some((record, record.options.index.as_deref()?)));
        indexes.filter(move |(_, index)| index.of == id)
    }

    /// Whether an index can be there beside what is.
    ///
    /// # Errors
    /// `InvalidArgument`, `IndexExists`.
    pub(super) fn check_index(
        &self,
        id: u32,
        index: &IndexRecord,
        options: &KeyspaceOptions,
    ) -> Result<()> {
        let parent = self.keyspaces.get(&index.of).filter(|_| index.of < id);
        let parent = parent
            .filter(|record| record.options.archive_of.is_none() && record.options.index.is_none());
        let Some(parent) = parent else {
            return Err(Error::invalid(format!("#{} cannot have an index", index.of)));
        };
        check_own_key(options, parent.options.own_key)?;
        let is_same =
            |other: &IndexRecord| other.name == index.name && other.is_ready == index.is_ready;
        match self.indexes_of(index.of).any(|(_, other)| is_same(other)) {
            true => Err(Error::IndexExists { name: index.name.clone() }),
            false => Ok(()),
        }
    }

    /// Whether it is an index that is not ready.
    pub(super) fn check_unfinished(&self, id: u32) -> Result<()> {
        let index = self.keyspaces.get(&id).and_then(|record| record.options.index.as_deref());
        match index.is_some_and(|index| !index.is_ready) {
            true => Ok(()),
            false => Err(Error::invalid(format!("#{id} is no index that is being built"))),
        }
    }

    /// The index that is dropped when this one is ready.
    #[must_use]
    pub fn replaced_by(&self, id: u32) -> Option<u32> {
        let new = self.keyspaces.get(&id)?.options.index.as_deref()?;
        let mut indexes = self.indexes_of(new.of);
        let before = indexes.find(|(record, index)| record.id != id && index.name == new.name)?;
        Some(before.0.id)
    }
}
