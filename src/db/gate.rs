//! The gate in front of the log: what a commit looks at before it is appended may have changed
//! since, and then it has to look again.
//!
//! The lowest bit of [`Log::gate`] says that commits are held ([`Core::hold_commits`]), the others
//! count what has changed: which indexes there are, and that a keyspace with a key of its own was
//! dropped. Of other keyspaces a commit is let through that has missed their drop, and comes to
//! nothing when it is applied.

use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result};
use crate::db::batch::{Target, WriteBatch};
use crate::db::commit::{CommitLog, Log, gone};
use crate::db::core::{Core, lock};
use crate::db::indexes::is_index_name;
use crate::db::state::State;

/// In [`Log::gate`], that commits are held.
pub(super) const HELD: u64 = 1;
/// What a change adds to it.
const GATE_STEP: u64 = 2;

impl Log {
    /// Whether commits wait.
    pub(super) fn is_held(&self) -> bool {
        self.gate & HELD != 0
    }
}

impl CommitLog {
    /// What is to be passed by a commit that looks at the state behind this.
    #[inline]
    pub(super) fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }
}

impl Core {
    /// The log, for a commit that looked at its keyspaces and their indexes behind `gate`;
    /// `Conflict` if these have others by now.
    #[inline]
    pub(super) fn enter_log(&self, batch: &WriteBatch, gate: u64) -> Result<MutexGuard<'_, Log>> {
        let mut log = lock(&self.log.log);
        if log.gate != gate {
            log = self.pass_gate(log, batch, gate)?;
        }
        self.check_writable()?;
        Ok(log)
    }

    #[cold]
    fn pass_gate<'l>(
        &'l self,
        log: MutexGuard<'l, Log>,
        batch: &WriteBatch,
        gate: u64,
    ) -> Result<MutexGuard<'l, Log>> {
        let log = self.wait_while_held(log)?;
        if log.gate == gate {
            return Ok(log);
        }
        let state = self.published.state();
        // R8: the log may have a file with another key by now, that nobody will destroy for it.
        let keyring = self.storage.keyring();
        let lost_its_key = |target: &&Target| {
            keyring.is_some_and(|keyring| keyring.is_gone(target.id.into()))
                && state.find(target.id).is_none()
        };
        if let Some(target) = batch.targets().find(lost_its_key) {
            return Err(gone(target));
        }
        let has_others = |target: &Target| match state.find(target.id) {
            Some(keyspace) => keyspace.indexes.as_ref().is_some_and(|set| set.since > gate),
            None => is_index_name(&target.name), // A keyspace may go at any time.
        };
        match batch.targets().any(has_others) {
            true => Err(Error::Conflict),
            false => Ok(log),
        }
    }

    /// Changes which indexes there are: what is not in the log by then has to look again. `change`
    /// gets the gate in front of which that was not seen.
    pub(super) fn change_indexes(&self, change: impl FnOnce(&State, u64) -> State) -> Result<()> {
        let mut log = lock(&self.log.log);
        log = self.wait_while_held(log)?;
        self.check_writable()?;
        let gate = log.gate + GATE_STEP;
        self.published.replace(|state| change(state, gate));
        log.gate = gate;
        // Behind the state: who has this gate finds the indexes.
        self.log.gate.store(gate, Ordering::Release);
        Ok(())
    }

    /// Has every commit look again that is not in the log yet: keyspaces with keys of their own are
    /// not in the state any more. Before the log goes on in a file with another key (R8).
    pub(super) fn raise_gate(&self) {
        let mut log = lock(&self.log.log);
        log.gate += GATE_STEP; // Held or not.
        self.log.gate.store(log.gate & !HELD, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::base::{Error, SeededEntropy};
    use crate::db::Db;
    use crate::db::batch::WriteBatch;
    use crate::db::options::Background;
    use crate::manifest::KeyspaceOptions;
    use crate::seal::Encryption;
    use crate::storage::MemoryStorage;

    fn open() -> Db {
        let key = Encryption::key([7; 32]).simulated(Arc::new(SeededEntropy::new(3)));
        let builder = Db::builder().storage(Arc::new(MemoryStorage::new())).encryption(key);
        let db = builder.background(Background::Stepped).open("/db").unwrap();
        db.create_keyspace("plain", KeyspaceOptions::flex()).unwrap();
        db.create_keyspace_with_own_key("own", KeyspaceOptions::flex()).unwrap();
        db
    }

    /// It would be in the new file of the log, whose key is there as long as the next drop is away.
    #[test]
    fn a_commit_that_has_missed_the_drop_of_a_key_does_not_come_to_the_log() {
        let db = open();
        let core = db.core();
        for other in ["plain", "own"] {
            let keyspace = db.keyspace(other).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(&keyspace, "key", "value");
            let gate = core.log.gate();
            drop(keyspace);
            db.drop_keyspace(other).unwrap();
            let entered = core.enter_log(&batch, gate).map(drop);
            match other {
                "plain" => entered.unwrap(), // It comes to nothing when it is applied.
                _ => assert!(matches!(entered, Err(Error::KeyspaceNotFound { .. })), "{entered:?}"),
            }
        }
        assert_eq!(db.destroy_keys().unwrap().left, 0);
    }

    /// The same, of one that waits at the log while the drop goes on to where it waits itself.
    #[test]
    fn a_commit_that_is_held_while_its_keyspace_loses_its_key_is_refused() {
        let db = open();
        let core = db.core();
        let keyspace = db.keyspace("own").unwrap();
        let id = u64::from(keyspace.runtime().id);
        std::thread::scope(|scope| {
            let held = core.hold_commits().unwrap();
            let commit = scope.spawn(|| keyspace.put("key", "value"));
            let dropped = scope.spawn(|| db.drop_keyspace("own"));
            while !core.storage.keyring().unwrap().is_gone(id) {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(held);
            let refused = commit.join().unwrap().unwrap_err();
            assert!(matches!(refused, Error::KeyspaceNotFound { .. }), "{refused}");
            dropped.join().unwrap().unwrap();
        });
        drop(keyspace);
        assert_eq!(db.destroy_keys().unwrap().left, 0);
        db.keyspace("plain").unwrap().put("key", "value").unwrap();
    }
}
