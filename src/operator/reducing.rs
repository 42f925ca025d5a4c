//! Reducers: what the entries of a range come to. Whatever they do, it comes back as a result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::MergeError;
use crate::base::{Error, Result, contained};

/// The longest name of a reducer, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Bytes of the summaries of the reducers of numbers.
const NUMBER_SIZE: usize = size_of::<u64>();

/// Says what the entries of a range come to. Registered under a name by
/// [`crate::Builder::reducer`], and used by [`crate::Keyspace::reduce`].
///
/// A *summary* is bytes. What a range comes to does not depend on where it is divided: `join` is
/// associative, and adding entries to a summary is joining it with what they come to alone. They
/// are called in the order of keys, in any thread, and again for what they were called for before;
/// so results follow from arguments alone, and the database is not used. Summaries of up to 1 KiB
/// are kept with the structure; short ones are best. A panic is taken for an error.
///
/// ```
/// # use lithedb::{Db, MergeError, Reducer};
/// /// The longest value.
/// struct Longest;
///
/// impl Reducer for Longest {
///     fn add(
///         &self,
///         summary: Option<Vec<u8>>,
///         _key: &[u8],
///         value: &[u8],
///     ) -> Result<Option<Vec<u8>>, MergeError> {
///         self.join(summary.unwrap_or_default(), value).map(Some)
///     }
///
///     fn join(&self, left: Vec<u8>, right: &[u8]) -> Result<Vec<u8>, MergeError> {
///         Ok(if right.len() > left.len() { right.to_vec() } else { left })
///     }
/// }
///
/// # fn main() -> lithedb::Result<()> {
/// # let storage = std::sync::Arc::new(lithedb::storage::MemoryStorage::new());
/// let db = Db::builder().reducer("longest", Longest).storage(storage).open("/db")?;
/// let words = db.keyspace_or_create("words")?;
/// for (key, value) in [("a", "apple"), ("b", "banana"), ("c", "fig")] {
///     words.put(key, value)?;
/// }
/// assert_eq!(words.reduce("longest", "a"..)?.as_deref(), Some(&b"banana"[..]));
/// assert_eq!(words.reduce("count", "b"..)?.as_deref(), Some(&2u64.to_le_bytes()[..]));
/// assert_eq!(words.reduce("longest", "x"..)?, None);
/// # Ok(())
/// # }
/// ```
pub trait Reducer: Send + Sync {
    /// The summary of what `summary` is of, if there is one, and of the entry behind it. `None` if
    /// that comes to nothing, as that of no entries.
    ///
    /// # Errors
    /// That the entry has no summary: the reduction fails with [`Error::ReduceFailed`].
    fn add(
        &self,
        summary: Option<Vec<u8>>,
        key: &[u8],
        value: &[u8],
    ) -> std::result::Result<Option<Vec<u8>>, MergeError>;

    /// The summary of what both are of, `left` in front of `right`.
    ///
    /// # Errors
    /// That they cannot be joined: as for [`Reducer::add`].
    fn join(&self, left: Vec<u8>, right: &[u8]) -> std::result::Result<Vec<u8>, MergeError>;
}

/// A reducer under its name.
#[derive(Clone)]
pub struct Reducing {
    name: Arc<str>,
    /// Of those of a database, its own.
    tag: u64,
    reducer: Arc<dyn Reducer>,
}

impl fmt::Debug for Reducing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reducing").field(&self.name).finish()
    }
}

impl Reducing {
    /// Tells it from the other reducers of the database.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// As [`Reducer::add`].
    ///
    /// # Errors
    /// `ReduceFailed`.
    pub fn add(
        &self,
        summary: Option<Vec<u8>>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        contained(|| self.reducer.add(summary, key, value)).map_err(|why| self.failed(why))
    }

    /// As [`Reducer::join`].
    ///
    /// # Errors
    /// `ReduceFailed`.
    pub fn join(&self, left: Vec<u8>, right: &[u8]) -> Result<Vec<u8>> {
        contained(|| self.reducer.join(left, right)).map_err(|why| self.failed(why))
    }

    #[cold]
    fn failed(&self, why: String) -> Error {
        Error::ReduceFailed { reducer: self.name.to_string(), why }
    }
}

/// The reducers of a database, by name.
#[derive(Clone, Debug)]
pub struct Reducers(BTreeMap<Arc<str>, Reducing>);

impl Reducers {
    /// Those that are always there.
    #[must_use]
    pub fn builtin() -> Reducers {
        let mut reducers = Reducers(BTreeMap::new());
        for (name, reducer) in builtin() {
            reducers.add(name, reducer);
        }
        reducers
    }

    /// Registers one; in place of one that was registered under this name before.
    pub fn add(&mut self, name: &str, reducer: Arc<dyn Reducer>) {
        let (name, tag) = (Arc::<str>::from(name), self.0.len() as u64);
        let tag = self.0.get(&name).map_or(tag, |before| before.tag);
        self.0.insert(Arc::clone(&name), Reducing { name, tag, reducer });
    }

    /// Checks names.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn validate(&self) -> Result<()> {
        match self.0.keys().find(|name| !(1..=NAME_LEN_MAX).contains(&name.len())) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "a reducer's name of {} bytes: allowed are 1 to {NAME_LEN_MAX}",
                name.len()
            ))),
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none.
    pub fn find(&self, name: &str) -> Result<&Reducing> {
        let missing = || Error::invalid(format!("the reducer {name:?} is not registered"));
        self.0.get(name).ok_or_else(missing)
    }
}

fn builtin() -> [(&'static str, Arc<dyn Reducer>); 5] {
    [
        ("bytes", Arc::new(Sum(|key, value| Ok((key.len() + value.len()) as u64)))),
        ("count", Arc::new(Sum(|_, _| Ok(1)))),
        ("max", Arc::new(Extreme::Max)),
        ("min", Arc::new(Extreme::Min)),
        ("sum", Arc::new(Sum(|_, value| number(value)))),
    ]
}

/// Adds little-endian numbers of 64 bits, one for each entry; wraps at 2^64, as the merge operator
/// `counter` does.
struct Sum(fn(&[u8], &[u8]) -> std::result::Result<u64, MergeError>);

impl Reducer for Sum {
    fn add(
        &self,
        summary: Option<Vec<u8>>,
        key: &[u8],
        value: &[u8],
    ) -> std::result::Result<Option<Vec<u8>>, MergeError> {
        let number = self.0(key, value)?.to_le_bytes();
        match summary {
            Some(summary) => self.join(summary, &number).map(Some),
            None => Ok(Some(number.to_vec())),
        }
    }

    fn join(&self, mut left: Vec<u8>, right: &[u8]) -> std::result::Result<Vec<u8>, MergeError> {
        let sum = number(&left)?.wrapping_add(number(right)?);
        left.copy_from_slice(&sum.to_le_bytes());
        Ok(left)
    }
}

fn number(bytes: &[u8]) -> std::result::Result<u64, MergeError> {
    match bytes.try_into() {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => Err(format!("{} bytes: a number has {NUMBER_SIZE}", bytes.len()).into()),
    }
}

/// The smallest or the largest value, in the order of keys.
enum Extreme {
    Min,
    Max,
}

impl Reducer for Extreme {
    fn add(
        &self,
        summary: Option<Vec<u8>>,
        _key: &[u8],
        value: &[u8],
    ) -> std::result::Result<Option<Vec<u8>>, MergeError> {
        match summary {
            Some(summary) => self.join(summary, value).map(Some),
            None => Ok(Some(value.to_vec())),
        }
    }

    fn join(&self, left: Vec<u8>, right: &[u8]) -> std::result::Result<Vec<u8>, MergeError> {
        let takes_right = match self {
            Extreme::Min => right < &*left,
            Extreme::Max => right > &*left,
        };
        Ok(if takes_right { right.to_vec() } else { left })
    }
}
