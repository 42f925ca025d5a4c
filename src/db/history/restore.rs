//! Bringing back what was: as an ordinary write.

use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use crate::base::{KeyRange, Result, SeqNo};
use crate::db::WriteBatch;
use crate::db::history::{Difference, Differences, PointInTime};
use crate::db::iter::{Cursor, Entry};
use crate::db::keyspace::Keyspace;

/// What restoring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The commit; the newest one if there was nothing to do.
    pub seqno: SeqNo,
    /// Keys that were put as they were.
    pub put: u64,
    /// Keys that were deleted, as they were not there.
    pub deleted: u64,
}

impl Keyspace {
    /// Makes `key` what it was then: puts the value that it had, with its expiry, or deletes it. A
    /// write like others, with the default durability; nothing of its history goes. If it is still
    /// what it was, nothing is written; what has expired since is deleted, if it is there again.
    ///
    /// # Errors
    /// As [`Keyspace::get_at`] and [`Keyspace::put`].
    pub fn restore(
        &self,
        key: impl AsRef<[u8]>,
        at: impl Into<PointInTime>,
    ) -> Result<RestoreReport> {
        let key = key.as_ref();
        self.restore_range(key..=key, at)
    }

    /// Makes all keys of `range` what they were then, by one commit: see [`Keyspace::restore`]. Of
    /// what others write to the range meanwhile nothing is overwritten but keys that had changed
    /// when this began. Costs a walk of the range as it was and one as it is, and memory for what
    /// is put.
    ///
    /// # Errors
    /// As [`Keyspace::restore`]; `InvalidArgument`, and nothing has changed, when it comes to more
    /// than a batch takes.
    pub fn restore_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        at: impl Into<PointInTime>,
    ) -> Result<RestoreReport> {
        let range = KeyRange::new(&range);
        let (then, as_of) = self.past(at.into())?;
        let then = Cursor::new(then, as_of, range.clone());
        let (mut batch, mut report) = (WriteBatch::new(), RestoreReport::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.core().time.now());
        for difference in Differences::new(self.cursor(range), then) {
            let Difference { key, before, after } = difference?;
            // What has expired since is not there, as it would not be if nothing had happened.
            let after = after.filter(|entry| entry.expires_at().is_none_or(|until| now < until));
            // It may have been written anew since, and be the same.
            let content = |entry: &Entry| (entry.value.clone(), entry.expiry);
            if before.as_ref().map(content) == after.as_ref().map(content) {
                continue;
            }
            match after {
                Some(Entry { value, expiry, .. }) => {
                    batch.put_until(self, key, value, expiry);
                    report.put += 1;
                }
                None => {
                    batch.delete(self, key);
                    report.deleted += 1;
                }
            }
        }
        let seqno = self.core().commit(batch, self.core().default_durability())?;
        Ok(RestoreReport { seqno, ..report })
    }
}
