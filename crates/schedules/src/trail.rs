//! A trail in a repository beside the database, and what is restored along it.

use std::sync::Arc;

use lithedb::storage::Storage;
use lithedb::{BackupRepository, Error, OpenExisting, RestoreOptions, Result, SeqNo, TrailOptions};

use crate::world::World;

const REPOSITORY: &str = "/backups";
const RESTORED: &str = "/restored";

/// A repository for the trail of a world.
#[derive(Clone, Debug)]
pub struct Trail {
    repository: BackupRepository,
}

impl Trail {
    /// A new repository.
    pub fn open(world: &World) -> Trail {
        let storage: Arc<dyn Storage> = Arc::new(world.storage.clone());
        let opened = BackupRepository::open_in(storage, REPOSITORY, OpenExisting::OrCreate);
        Trail { repository: opened.unwrap() }
    }

    /// Has a trail follow the database from now on.
    pub fn begin(&self, world: &World) -> Result<()> {
        self.repository.begin_trail(&world.db, TrailOptions::new()).map(drop)
    }

    /// Adds what has come, unless the trail is over.
    pub fn extend(&self, world: &World) -> Result<()> {
        match self.repository.extend_trail(&world.db) {
            Ok(_) | Err(Error::TrailEnded { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Restores the last moment that the trail has, which has to be what the database was then.
    pub fn expect_restored(&self, world: &World) {
        let status = world.db.trail().unwrap();
        let done = status.done;
        let options = RestoreOptions::new().trail(status.trail).go_on_with(world.builder());
        match self.repository.restore_at(done, RESTORED, options) {
            Ok(restored) => {
                assert!(restored.seqno <= done);
                world.expect_at(RESTORED, done.as_u64());
            }
            // It was ended before its first backup was made: nothing of it can be restored.
            Err(error) => assert!(status.end.is_some_and(|end| end.at <= done), "{error}"),
        }
        assert!(done > SeqNo::ZERO);
    }
}
