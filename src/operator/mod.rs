//! What users register: merge operators, which say what becomes of a value and the operands that
//! are merged into it; and reducers, which say what entries of a range come to.
//!
//! Knows values and operands as bytes; must not know where they lie.
//!
//! | file | what it owns |
//! |---|---|
//! | `builtin.rs` | the operators that are always registered |
//! | `merging.rs` | calling the operator of a keyspace |
//! | `reducing.rs` | reducers, those that are always registered, and calling them |
//! | `stuck.rs` | keys whose operands it has failed at |
//!
//! Invariants
//! - O1  What is read does not depend on which operands were combined, and when: the operator is
//!   associative, and nobody combines across an entry in between.
//! - O2  An operator that is missing, fails or panics loses nothing: its operands stay as they are.

mod builtin;
mod merging;
mod reducing;
mod stuck;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use merging::{MergeLimits, Merging};
pub use reducing::{Reducer, Reducers, Reducing};

use crate::base::{Error, Result};

/// Why an operator cannot merge. A string will do: `"too short".into()`.
pub type MergeError = Box<dyn std::error::Error + Send + Sync>;

/// The longest name of an operator, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Says what a value becomes when an operand is merged into it. Registered under a name by
/// [`crate::Builder::merge_operator`], and used by the keyspaces whose options have that name
/// ([`crate::KeyspaceOptions::merge_operator`]).
///
/// It has to be *associative*: merging `a` and then `b` gives the same as merging what
/// [`MergeOperator::combine`] makes of the two. When and how often it is called is not said: by
/// reads, flushes and consolidation, in any thread, again for what it was called for before. So its
/// results follow from its arguments alone, it is the same in every program that opens the
/// database, and it does not use the database. A panic in it is taken for an error.
///
/// ```
/// # use lithedb::{Db, KeyspaceOptions, MergeError, MergeOperator};
/// /// A set of bytes, sorted; operands are sets, too.
/// struct Union;
///
/// impl MergeOperator for Union {
///     fn merge(
///         &self,
///         _key: &[u8],
///         existing: Option<Vec<u8>>,
///         operand: &[u8],
///     ) -> Result<Vec<u8>, MergeError> {
///         let mut set = existing.unwrap_or_default();
///         set.extend_from_slice(operand);
///         set.sort_unstable();
///         set.dedup();
///         Ok(set)
///     }
/// }
///
/// # fn main() -> lithedb::Result<()> {
/// # let storage = std::sync::Arc::new(lithedb::storage::MemoryStorage::new());
/// let db = Db::builder().merge_operator("union", Union).storage(storage).open("/db")?;
/// let options = KeyspaceOptions::flex().merge_operator("union");
/// let tags = db.create_keyspace("tags", options)?;
/// tags.merge("page", "b")?;
/// tags.merge("page", "ac")?;
/// assert_eq!(tags.get("page")?.as_deref(), Some(&b"abc"[..]));
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The value of `key` when `operand` is merged into the one that it has, if it has one.
    ///
    /// # Errors
    /// That they cannot be merged: whoever reads the key gets [`Error::MergeFailed`] with this.
    fn merge(
        &self,
        key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, MergeError>;

    /// One operand in place of two. As [`MergeOperator::merge`] of a value, unless said otherwise:
    /// right where an operand alone makes a value of the same bytes, as numbers to be added and
    /// bytes to be appended do.
    ///
    /// # Errors
    /// That they cannot be combined: both are kept, and merged one after the other.
    fn combine(
        &self,
        key: &[u8],
        older: Vec<u8>,
        newer: &[u8],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        self.merge(key, Some(older), newer)
    }

    /// Whether `operand` can be merged into anything at all. Asked before it is written; all can,
    /// unless said otherwise.
    ///
    /// # Errors
    /// Why not: the write is refused with [`Error::InvalidArgument`].
    fn check(&self, operand: &[u8]) -> std::result::Result<(), MergeError> {
        let _any_will_do = operand;
        Ok(())
    }
}

/// The operators that keyspaces can use, by name.
#[derive(Clone)]
pub struct Operators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Operators {
    /// Those that are always there.
    #[must_use]
    pub fn builtin() -> Operators {
        Operators(
            builtin::all()
                .into_iter()
                .map(|(name, operator)| (name.to_owned(), operator))
                .collect(),
        )
    }

    /// Registers one; in place of one that was registered under this name before.
    pub fn add(&mut self, name: &str, operator: Arc<dyn MergeOperator>) {
        self.0.insert(name.to_owned(), operator);
    }

    /// Checks names and that the built-in operators are what they are.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn validate(&self) -> Result<()> {
        for (name, operator) in builtin::all() {
            let is_the_same = self.0.get(name).is_some_and(|other| same(other, &operator));
            if !is_the_same {
                return Err(Error::invalid(format!("the merge operator {name:?} is built in")));
            }
        }
        match self.0.keys().find(|name| !(1..=NAME_LEN_MAX).contains(&name.len())) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "a merge operator's name of {} bytes: allowed are 1 to {NAME_LEN_MAX}",
                name.len()
            ))),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<dyn MergeOperator>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn same(one: &Arc<dyn MergeOperator>, other: &Arc<dyn MergeOperator>) -> bool {
    Arc::ptr_eq(one, other)
}
