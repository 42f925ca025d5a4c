//! Making checkpoints.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use lithedb::base::Clock as _;

use super::{Session, Trouble, absurd};
use crate::readback::now_of;

/// Checkpoints of one opening at most: each is opened again and again.
const CHECKPOINT_COUNT_MAX: usize = 6;

impl Session {
    /// Makes a checkpoint beside the database, and says before what it will have to show.
    pub(super) fn checkpoint(&self) -> Result<(), Trouble> {
        let Some(path) = self.ask_for_checkpoint() else { return Ok(()) };
        let report = match self.db.checkpoint(&path) {
            Ok(report) => report,
            Err(error) => {
                self.expect_honest(&error)?;
                return Err(error.into());
            }
        };
        let mut timeline = self.timeline();
        timeline.mark_durable();
        timeline.checkpoint_is_made();
        let (newest, last) = (self.db.snapshot().seqno(), timeline.last_seqno());
        if report.seqno != newest || report.seqno < last || report.linked_files > report.files {
            return Err(absurd(format!("a checkpoint at {newest}, behind {last}: {report:?}")));
        }
        Ok(())
    }

    /// Notes what a checkpoint that is about to be made will have to show; where it is to be.
    fn ask_for_checkpoint(&self) -> Option<PathBuf> {
        let now = now_of(&self.db).max(self.clock.wall_millis());
        let mut timeline = self.timeline();
        if timeline.checkpoints.len() >= CHECKPOINT_COUNT_MAX || timeline.is_in_doubt() {
            return None;
        }
        let number = self.table_count.fetch_add(1, Ordering::Relaxed);
        let path = self.setup.path.with_file_name(format!("checkpoint-{}-{number}", self.began));
        timeline.ask_for_checkpoint(&path, now).then_some(path)
    }
}
