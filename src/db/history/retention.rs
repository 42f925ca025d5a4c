//! How far back a keyspace that keeps its versions goes.
//!
//! With [`KeyspaceOptions::keep_for`](crate::KeyspaceOptions::keep_for) moments are whole that are
//! not longer ago than that. From where on an archive is whole is in the catalogue, durable before
//! anything in front of it is left out (H4), and moves with flushes, or when the keyspace is
//! compacted; by that the clock, set back, brings nothing back that is not there. Until then
//! moments that are too long ago are not shown either. With
//! [`KeyspaceOptions::keep_versions`](crate::KeyspaceOptions::keep_versions) no moment is whole by
//! that alone, but keys are known that have changed less often since.

use crate::base::{Result, SeqNo};
use crate::db::core::Core;
use crate::db::keyspace::Keyspace;
use crate::db::state::Runtime;
use crate::manifest::Edit;
use crate::structure::history::ChangeLimit;
use crate::structure::retention::Retention;

/// The catalogue is told after so many parts of the time that is kept.
const STEPS_PER_TIME: u64 = 32;

/// When the catalogue is told how far back an archive is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum TellKept {
    /// When enough can go by that.
    WhenWorthwhile,
    /// If anything can.
    Always,
}

impl Core {
    /// What the archive keeps by now, where `visible` is the newest commit, as of which all is
    /// known however long ago it is; `None` if that is everything.
    pub(in crate::db) fn retention_of(
        &self,
        archive: &Runtime,
        visible: SeqNo,
    ) -> Option<Retention> {
        let by_time = archive.options.keep_for.is_some();
        let horizon = if by_time { self.horizon_of(archive).min(visible) } else { SeqNo::ZERO };
        Retention::of(&archive.options, horizon.max(archive.store.kept_from()))
    }

    /// Moments in front of this one are longer ago than is kept.
    fn horizon_of(&self, archive: &Runtime) -> SeqNo {
        let kept = archive.options.keep_for.map_or(u64::MAX, |kept| kept.as_millis() as u64);
        SeqNo::from_parts(self.time.now().saturating_sub(kept), 0)
    }

    /// How much is known as of a moment of a keyspace with this archive; `None` if all is.
    pub(in crate::db) fn limit_at(
        &self,
        keyspace: &Runtime,
        archive: &Runtime,
        (at, visible): (SeqNo, SeqNo),
    ) -> Option<ChangeLimit> {
        let begins = archive.options.begins_at;
        let retention = self.retention_of(archive, visible);
        if at < begins {
            let from = retention.and_then(|retention| retention.from).unwrap_or(begins);
            let kept_from = Some(from.max(begins));
            let keyspace = keyspace.name.load().to_string();
            return Some(ChangeLimit { keyspace, kept_from, versions: None });
        }
        let Retention { from, versions } = retention?;
        if from.is_some_and(|from| at >= from) {
            return None;
        }
        let keyspace = keyspace.name.load().to_string();
        Some(ChangeLimit { keyspace, kept_from: from, versions })
    }

    /// H4: notes durably that what is longer ago than is kept may go from the archive, as far as
    /// everything that there was by then is in it: what memtables have, which may be older than an
    /// ingest, is not. The caller has the keyspace's turn to flush.
    pub(in crate::db) fn note_kept(&self, keyspace: &Runtime, when: TellKept) -> Result<()> {
        let Some(archive) = &keyspace.archive else { return Ok(()) };
        let Some(kept_for) = archive.options.keep_for else { return Ok(()) };
        if !keyspace.store.begun_flushes().is_empty() {
            return Ok(()); // What is replayed asks the archive for what there was before it.
        }
        let horizon = self.horizon_of(archive).min(self.archived_to(keyspace));
        let known = archive.store.kept_from();
        let step = match when {
            TellKept::WhenWorthwhile => kept_for.as_millis() as u64 / STEPS_PER_TIME,
            TellKept::Always => 0,
        };
        if horizon <= known || horizon.millis() < known.millis().saturating_add(step) {
            return Ok(());
        }
        let mut manifest = self.lock_manifest_for_edit()?;
        let record = manifest.state().keyspace(archive.id);
        let Some(mut options) = record.map(|record| record.options.clone()) else {
            return Ok(()); // It was dropped.
        };
        options.kept_from = horizon;
        self.apply_edit(&mut manifest, &Edit::SetOptions { id: archive.id, options })?;
        archive.store.keep_from(horizon);
        Ok(())
    }

    /// Everything up to this stamp is in the archive of a keyspace that has one. Under its turn to
    /// flush: what is committed meanwhile is above.
    fn archived_to(&self, keyspace: &Runtime) -> SeqNo {
        // In front of the state, whose memtables have all that is not above it.
        let structure_to = keyspace.store.last_seqno();
        let state = self.published.state();
        let Some(found) = state.find(keyspace.id) else { return SeqNo::ZERO };
        let ranges = found.tables().filter_map(|table| table.memtable.seqno_range());
        let in_front = |(oldest, _): (SeqNo, SeqNo)| oldest.as_u64().saturating_sub(1);
        let memtables_from = ranges.map(in_front).min().map_or(SeqNo::MAX, SeqNo::from_u64);
        let ingest = found.unarchived.as_ref().map(|of| of.stamp());
        let ingest = ingest.map(|stamp| stamp.as_u64().saturating_sub(1));
        structure_to.min(memtables_from).min(ingest.map_or(SeqNo::MAX, SeqNo::from_u64))
    }
}

impl Keyspace {
    /// The first moment as of which everything can be read that this keyspace was, the newest
    /// commit at the latest, if it keeps its versions and
    /// [`KeyspaceOptions::keep_for`](crate::KeyspaceOptions::keep_for) was set, with which it moves
    /// on with the clock; or if it keeps all of them, and was converted to that.
    #[must_use]
    pub fn kept_from(&self) -> Option<SeqNo> {
        let archive = self.runtime().archive.clone()?;
        let retention = self.core().retention_of(&archive, self.core().visible());
        let begins = Some(archive.options.begins_at).filter(|begins| *begins > SeqNo::ZERO);
        match retention {
            None => begins,
            Some(retention) => retention.from.map(|from| from.max(archive.options.begins_at)),
        }
    }
}
