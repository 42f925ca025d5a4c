//! What the catalogue says of a secondary index, among the options of the keyspace that it is kept
//! in.

use super::{KeyspaceOptions, Structure};
use crate::base::{Error, Result};
use crate::manifest::fields::{Decoded, Fields};

/// The longest name of an index, and of an extractor, in bytes.
const NAME_LEN_MAX: usize = 255;

const OF: &str = "index_of";
const UNIQUE: &str = "index_unique";
const READY: &str = "index_ready";
const NAME: &str = "index_name";
const EXTRACTOR: &str = "index_extractor";

/// A secondary index of another keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexRecord {
    /// The number of the keyspace whose entries it finds.
    pub of: u32,
    /// The name that users know it by. With that keyspace it is unique, but for an index that is
    /// built to take the place of one that is ready.
    pub name: String,
    /// The name of its extractor.
    pub extractor: String,
    /// Whether an index key is there once at most.
    pub is_unique: bool,
    /// Whether it has all entries.
    pub is_ready: bool,
}

impl IndexRecord {
    /// Its options that are numbers.
    pub(super) fn numbers(&self) -> [(&'static str, u64); 3] {
        let (is_unique, is_ready) = (u64::from(self.is_unique), u64::from(self.is_ready));
        [(OF, u64::from(self.of)), (UNIQUE, is_unique), (READY, is_ready)]
    }

    /// Its options that are texts.
    pub(super) fn texts(&self) -> [(&'static str, &str); 2] {
        [(NAME, &self.name), (EXTRACTOR, &self.extractor)]
    }

    fn check_limits(&self) -> Result<()> {
        check_index_name(&self.name)?;
        match (1..=NAME_LEN_MAX).contains(&self.extractor.len()) && self.of > 0 {
            true => Ok(()),
            false => Err(Error::invalid("an index has a keyspace and an extractor with a name")),
        }
    }
}

/// Checks that a name can be one of an index.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_index_name(name: &str) -> Result<()> {
    if (1..=NAME_LEN_MAX).contains(&name.len()) {
        return Ok(());
    }
    let len = name.len();
    let what = format!("the name of an index has {len} bytes: allowed are 1 to {NAME_LEN_MAX}");
    Err(Error::invalid(what))
}

impl KeyspaceOptions {
    /// Those of the keyspace in which an index of one with these options is kept: in the present
    /// alone, and without values.
    #[must_use]
    pub(crate) fn of_index(&self, record: IndexRecord) -> KeyspaceOptions {
        let mut options = match self.structure {
            Structure::Flex | Structure::History => KeyspaceOptions::flex(),
            Structure::Lsm => KeyspaceOptions::lsm(),
        };
        options.codec = self.codec;
        options.memtable_size = self.memtable_size;
        options.value_separation = None;
        options.index = Some(Box::new(record));
        options.own_key = self.own_key;
        options
    }

    /// Takes an option of an index that is a text; `None` if the name is none of those.
    pub(super) fn take_index_text(
        &mut self,
        name: &str,
        fields: &mut Fields<'_>,
    ) -> Decoded<Option<()>> {
        if name != NAME && name != EXTRACTOR {
            return Ok(None);
        }
        let index = self.index.get_or_insert_default();
        let place = if name == NAME { &mut index.name } else { &mut index.extractor };
        *place = fields.text(name)?.to_owned();
        Ok(Some(()))
    }

    /// Takes one that is a number: whether it can have this value; `None` if the name is none of
    /// those.
    pub(super) fn take_index_number(&mut self, name: &str, value: u64) -> Option<Option<()>> {
        if ![OF, UNIQUE, READY].contains(&name) {
            return None;
        }
        let index = self.index.get_or_insert_default();
        let flag = (value < 2).then_some(value == 1);
        Some(match name {
            OF => u32::try_from(value).ok().map(|of| index.of = of),
            UNIQUE => flag.map(|flag| index.is_unique = flag),
            _ => flag.map(|flag| index.is_ready = flag),
        })
    }

    /// What an index is kept in has nothing that expires by itself, that is merged, or that is
    /// large.
    pub(super) fn check_index(&self) -> Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        index.check_limits()?;
        let is_plain = self.structure != Structure::History
            && self.archive_of.is_none()
            && self.merge_operator.is_none()
            && self.ttl.is_none()
            && self.value_separation.is_none();
        match is_plain {
            true => Ok(()),
            false => Err(Error::invalid("no index is kept in a keyspace with such options")),
        }
    }
}
