//! Other keys for an encrypted database.

use std::ops::ControlFlow;
use std::sync::Arc;

use lithedb::Error;
use lithedb::storage::Storage;

use super::{Session, Trouble, absurd};
use crate::finding::{Fault, Finding, Verdict};
use crate::setup::{KEY_COUNT, Setup};
use crate::timeline::Timeline;

impl Session {
    /// Gives the database another key or passphrase, or refuses to, where it is not encrypted.
    pub(super) fn rekey(&self, number: u8) -> Result<(), Trouble> {
        let number = number % KEY_COUNT;
        self.timeline().key_may_be(number); // It may have it or not, from here on.
        let rekeyed = self.db.rekey(&self.setup.encryption(number, u64::MAX));
        if !self.setup.encrypted {
            return expect_not_encrypted(rekeyed);
        }
        rekeyed?;
        self.timeline().key_is(number);
        Ok(())
    }

    /// Gives the data another key, for so many slices at most. What it flushes is durable.
    pub(super) fn rotate_data_key(&self, slice_count: u8) -> Result<(), Trouble> {
        let mut left = slice_count;
        let rotated = self.db.rotate_data_key_while(|_| {
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if !self.setup.encrypted {
            return expect_not_encrypted(rotated.map(drop));
        }
        let report = rotated?;
        self.timeline().mark_durable();
        let is_over = report.is_cancelled || report.is_complete == report.files_left.is_empty();
        if !is_over || report.key == 0 {
            return Err(absurd(format!("a rotation of the data key: {report:?}")));
        }
        Ok(())
    }
}

fn expect_not_encrypted(done: Result<(), Error>) -> Result<(), Trouble> {
    match done {
        Err(Error::NotEncrypted { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(absurd("what is not encrypted got another key".to_owned())),
    }
}

/// Whether what opens the database is a key that it may have.
///
/// # Errors
/// `Wrong`.
pub fn expect_key(setup: &Setup, storage: &Arc<dyn Storage>, timeline: &Timeline) -> Verdict {
    match (&timeline.keys, setup.key_on(storage)) {
        (Some(keys), Some(found)) if !keys.contains(&found) => {
            let what = format!("key {found} opens it, and it should be one of {keys:?}");
            Err(Finding::new(Fault::Wrong, what))
        }
        _ => Ok(()),
    }
}
