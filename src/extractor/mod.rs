//! Extractors: which keys a secondary index has for an entry.
//!
//! Knows keys and values as bytes; must not know where they lie, or what an index is kept in.
//!
//! | file | what it owns |
//! |---|---|
//! | `builtin.rs` | the extractors that need not be registered |
//! | `extraction.rs` | calling the extractor of an index, its failures contained |

mod builtin;
mod extraction;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use extraction::Extraction;

use crate::base::{Error, Result};

/// Why an extractor cannot say what an entry's index keys are. A string will do.
pub type ExtractError = Box<dyn std::error::Error + Send + Sync>;

/// The longest name of an extractor, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Index keys that one entry may have in one index.
const KEY_COUNT_MAX: usize = 1 << 16;

/// Says under which keys an entry is found in an index. Registered under a name by
/// [`crate::Builder::index_extractor`], and used by the indexes that
/// [`crate::Keyspace::create_index`] makes with that name. A function with these arguments is one.
///
/// Its results follow from its arguments alone, and are the same in every program that opens the
/// database: what it said when an entry was put is asked again when the entry is overwritten or
/// deleted. When it changes, take another name, or rebuild the indexes
/// ([`crate::Keyspace::rebuild_index`]). It is called by whoever writes, in any thread, perhaps
/// several times for one write, and does not use the database. A panic in it is taken for an error:
/// the write fails, and nothing has changed.
///
/// ```
/// # use lithedb::{Db, IndexKeys, IndexOptions};
/// # fn main() -> lithedb::Result<()> {
/// # let storage = std::sync::Arc::new(lithedb::storage::MemoryStorage::new());
/// /// Each word of the value.
/// fn words(_key: &[u8], value: &[u8], keys: &mut IndexKeys) -> Result<(), lithedb::ExtractError> {
///     value.split(|byte| *byte == b' ').for_each(|word| keys.push(word));
///     Ok(())
/// }
///
/// let db = Db::builder().index_extractor("words", words).storage(storage).open("/db")?;
/// let pages = db.keyspace_or_create("pages")?;
/// let by_word = pages.create_index("by_word", "words", IndexOptions::new())?;
/// pages.put("p1", "the quick fox")?;
/// pages.put("p2", "the lazy dog")?;
/// let found: Result<Vec<_>, _> = by_word.get("the").map(|entry| Ok(entry?.primary_key().to_vec()))
///     .collect();
/// assert_eq!(found?, [b"p1", b"p2"]);
/// # Ok::<(), lithedb::Error>(())
/// # }
/// ```
pub trait IndexExtractor: Send + Sync {
    /// Adds the index keys of the entry to `keys`: none, one or several; twice the same is once.
    ///
    /// # Errors
    /// That it cannot tell: the write fails with [`Error::ExtractorFailed`].
    fn extract(
        &self,
        key: &[u8],
        value: &[u8],
        keys: &mut IndexKeys,
    ) -> std::result::Result<(), ExtractError>;
}

impl<F> IndexExtractor for F
where
    F: Fn(&[u8], &[u8], &mut IndexKeys) -> std::result::Result<(), ExtractError> + Send + Sync,
{
    fn extract(
        &self,
        key: &[u8],
        value: &[u8],
        keys: &mut IndexKeys,
    ) -> std::result::Result<(), ExtractError> {
        self(key, value, keys)
    }
}

/// The index keys of an entry, as an [`IndexExtractor`] says them.
#[derive(Debug, Default)]
pub struct IndexKeys {
    keys: Vec<Vec<u8>>,
    /// There were more than an entry may have.
    has_too_many: bool,
}

impl IndexKeys {
    /// Adds one: any bytes. At most 65,536 for an entry; with its primary key, and one byte more
    /// for each byte 0 in it, one has at most [`crate::KEY_LEN_MAX`] bytes less two.
    pub fn push(&mut self, key: impl AsRef<[u8]>) {
        match self.keys.len() < KEY_COUNT_MAX {
            true => self.keys.push(key.as_ref().to_vec()),
            false => self.has_too_many = true,
        }
    }
}

/// The extractors that indexes can use, by name.
#[derive(Clone, Default)]
pub struct Extractors(BTreeMap<String, Arc<dyn IndexExtractor>>);

impl Extractors {
    /// Registers one; in place of one that was registered under this name before.
    pub fn add(&mut self, name: &str, extractor: Arc<dyn IndexExtractor>) {
        self.0.insert(name.to_owned(), extractor);
    }

    /// Checks the names.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn validate(&self) -> Result<()> {
        self.0.keys().try_for_each(|name| {
            check_name(name)?;
            match builtin::is_reserved(name) {
                true => Err(Error::invalid(format!("the extractor {name:?} is built in"))),
                false => Ok(()),
            }
        })
    }

    fn find(&self, name: &str) -> Option<Arc<dyn IndexExtractor>> {
        self.0.get(name).cloned().or_else(|| builtin::find(name))
    }
}

/// Checks that a name can be one of an extractor.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_name(name: &str) -> Result<()> {
    if (1..=NAME_LEN_MAX).contains(&name.len()) {
        return Ok(());
    }
    let len = name.len();
    let what = format!("an extractor's name of {len} bytes: allowed are 1 to {NAME_LEN_MAX}");
    Err(Error::invalid(what))
}

impl fmt::Debug for Extractors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
