//! Bytes handed to the caller: small ones inline, others shared with the block they lie in.

use crate::memory::SharedBytes;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

/// Bytes up to this many are copied into the slice itself.
const INLINE_LEN_MAX: usize = 30;

/// An immutable byte string that the store returns. Cloning is cheap; a slice that shares a
/// cached block keeps that block in memory until it is dropped.
///
/// ```
/// use lithedb::base::Slice;
/// let slice = Slice::from(&b"key"[..]);
/// assert_eq!(&*slice, b"key");
/// assert_eq!(slice.to_vec(), b"key".to_vec());
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_LEN_MAX] },
    Shared(SharedBytes),
}

impl Slice {
    /// Longer ones take memory beside the slice itself.
    pub(crate) const INLINE_LEN_MAX: usize = INLINE_LEN_MAX;

    /// `owner[range]`, without copying unless it is short.
    ///
    /// # Panics
    /// When the range is outside `owner`.
    #[inline]
    #[must_use]
    pub(crate) fn shared(owner: &SharedBytes, range: Range<usize>) -> Slice {
        if range.len() <= INLINE_LEN_MAX {
            return Slice::from(&owner[range]);
        }
        Slice(Repr::Shared(owner.slice(range)))
    }

    /// What is left without the first `count` bytes; not copied, unless it is short.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub(crate) fn behind(&self, count: usize) -> Slice {
        match &self.0 {
            Repr::Inline { .. } => Slice::from(&self[count..]),
            Repr::Shared(bytes) => Slice::shared(bytes, count..bytes.len()),
        }
    }
}

impl From<&[u8]> for Slice {
    #[inline]
    fn from(bytes: &[u8]) -> Slice {
        if bytes.len() <= INLINE_LEN_MAX {
            let mut inline = [0; INLINE_LEN_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            return Slice(Repr::Inline { len: bytes.len() as u8, bytes: inline });
        }
        Slice(Repr::Shared(SharedBytes::from(bytes)))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice::from(bytes.as_slice())
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Slice {
    fn default() -> Slice {
        Slice::from(&[][..])
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<&T> for Slice {
    fn eq(&self, other: &&T) -> bool {
        **self == *other.as_ref()
    }
}

impl PartialEq<Vec<u8>> for Slice {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_any_length_equal_their_bytes() {
        let bytes: Vec<u8> = (0..200).collect();
        let owner = SharedBytes::from(bytes.as_slice());
        for len in [0, 1, 29, 30, 31, 100] {
            let slice = Slice::shared(&owner, 7..7 + len);
            assert_eq!(&*slice, &owner[7..7 + len]);
            assert_eq!(slice, Slice::from(&owner[7..7 + len]));
        }
    }
}
