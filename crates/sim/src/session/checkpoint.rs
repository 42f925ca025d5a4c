//! Making checkpoints, and what must be as good as one: a backup that was restored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lithedb::base::{Clock as _, Entropy, SeededEntropy};
use lithedb::storage::Storage;
use lithedb::{
    BackupOptions, BackupRepository, BackupStream, Error, OpenExisting, RestoreOptions, SeqNo,
};

use super::{Session, Trouble, absurd};
use crate::checkpoints::backups_of;
use crate::random::seed_of;
use crate::readback::now_of;

/// Checkpoints of one opening at most: each is opened again and again.
const CHECKPOINT_COUNT_MAX: usize = 6;
/// Backups that stay in a repository.
const BACKUP_COUNT_MAX: usize = 2;

impl Session {
    /// Makes a checkpoint beside the database, and says before what it will have to show.
    pub(super) fn checkpoint(&self) -> Result<(), Trouble> {
        let Some((path, number)) = self.ask_for_checkpoint() else { return Ok(()) };
        let made = match (&self.opener, seed_of(&[self.setup.seed, number]) % 5) {
            (Some((storage, _)), 3) => self.back_up(storage, &path, number),
            (Some((storage, _)), 4) => self.send(storage, &path, number),
            _ => self.db.checkpoint(&path).map(|report| report.seqno),
        };
        let seqno = match made {
            Ok(seqno) => seqno,
            Err(error) => {
                self.expect_honest(&error)?;
                return Err(error.into());
            }
        };
        let mut timeline = self.timeline();
        timeline.mark_durable();
        timeline.checkpoint_is_made();
        let (newest, last) = (self.db.snapshot().seqno(), timeline.last_seqno());
        if seqno != newest || seqno < last {
            return Err(absurd(format!("a checkpoint at {newest}, behind {last}: {seqno}")));
        }
        Ok(())
    }

    /// Makes a backup in a repository, and restores it.
    fn back_up(
        &self,
        storage: &Arc<dyn Storage>,
        path: &Path,
        number: u64,
    ) -> Result<SeqNo, Error> {
        let (dir, existing) = (backups_of(&self.setup.path), OpenExisting::OrCreate);
        let entropy = self.entropy_of(number);
        let backups =
            BackupRepository::open_simulated(Arc::clone(storage), dir, existing, &*entropy)?;
        let made = backups.create(&self.db)?;
        let options = RestoreOptions::new().entropy(entropy);
        backups.restore(made.number, path, options)?;
        backups.prune(BACKUP_COUNT_MAX)?;
        Ok(made.seqno)
    }

    /// Makes a backup as a stream, and restores it.
    fn send(&self, storage: &Arc<dyn Storage>, path: &Path, number: u64) -> Result<SeqNo, Error> {
        let mut sent = Vec::new();
        let made = self.db.backup_to(&mut sent, BackupOptions::new())?;
        let options = RestoreOptions::new().storage(Arc::clone(storage));
        let options = options.entropy(self.entropy_of(number));
        BackupStream::open(&*sent)?.restore(path, options)?;
        Ok(made.seqno)
    }

    fn entropy_of(&self, number: u64) -> Arc<dyn Entropy> {
        Arc::new(SeededEntropy::new(self.began.wrapping_add(number)))
    }

    /// Notes what a checkpoint that is about to be made will have to show; where it is to be, and
    /// its number.
    fn ask_for_checkpoint(&self) -> Option<(PathBuf, u64)> {
        let now = now_of(&self.db).max(self.clock.wall_millis());
        let mut timeline = self.timeline();
        if timeline.checkpoints.len() >= CHECKPOINT_COUNT_MAX || timeline.is_in_doubt() {
            return None;
        }
        let number = self.table_count.fetch_add(1, Ordering::Relaxed);
        let path = self.setup.path.with_file_name(format!("checkpoint-{}-{number}", self.began));
        timeline.ask_for_checkpoint(&path, now).then_some((path, number))
    }
}
