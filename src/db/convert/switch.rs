//! The beginning of a conversion and its ends: giving the keyspace the new store, or giving it up.

use std::sync::{Arc, PoisonError};

use super::job::ConversionJob;
use super::{Conversion, ConversionReport};
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, RangeTombstones, Result, SeqNo};
use crate::block::BlockCursor;
use crate::db::core::{Core, lock};
use crate::db::history::stamps_to_delete;
use crate::db::keyspace::Keyspace;
use crate::db::maintain::{new_runtime, runtime_of};
use crate::db::state::{KeyspaceState, Runtime, State, archive_name, conversion_name};
use crate::manifest::{Edit, KeyspaceOptions, KeyspaceRecord, Manifest, Structure};
use crate::merge::MergeCursor;
use crate::structure::{Compacted, FlushOrder};

/// Runs of the new store that are to be looked into by a read, at most, when it goes on.
const FRESH_RUNS_MAX: usize = 4;
/// Runs of a new store of tables at most, when it goes on.
const RUNS_MAX: u64 = 16;
/// Bytes that a slice of compaction of the new store writes.
const COMPACTION_SLICE_BYTES: u64 = 8 << 20;

/// A conversion that somebody is at. When it is dropped before it is over, it is given up.
pub(super) struct Underway<'c> {
    core: &'c Core,
    /// The keyspace with its old store.
    pub runtime: Arc<Runtime>,
    pub job: Arc<ConversionJob>,
    options: KeyspaceOptions,
    pub report: ConversionReport,
    is_over: bool,
}

impl Underway<'_> {
    pub(super) fn not_found(&self) -> Error {
        Error::KeyspaceNotFound { name: self.runtime.name.load().to_string() }
    }

    pub(super) fn note_written(&mut self) {
        let both = self.job.archive.iter().chain([&self.job.store]);
        let written = both.map(|runtime| runtime.store.stats(0).segment_bytes_written);
        self.report.bytes_written = written.sum();
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.core.give_up_conversion(&self.runtime, &self.job);
        }
    }
}

/// Checks that a keyspace may be converted so.
fn check_conversion(runtime: &Runtime, conversion: &Conversion) -> Result<()> {
    let (old, new) = (&runtime.options, &conversion.options);
    let name = runtime.name.load();
    let refuse = |what: &str| Err(Error::invalid(format!("keyspace {name:?} {what}")));
    if old.merge_operator != new.merge_operator {
        return refuse("would have another merge operator, which a conversion cannot change");
    }
    if old.structure != Structure::History {
        return Ok(());
    }
    if new.structure != Structure::History {
        return match conversion.loses_versions {
            true => Ok(()),
            false => refuse("keeps versions, which it would lose: that has to be said"),
        };
    }
    match (old.keep_for, old.keep_versions) == (new.keep_for, new.keep_versions) {
        true => Ok(()),
        false => refuse("would keep other versions, which a conversion cannot change"),
    }
}

/// Whether nothing is left of flushes that were interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Yes,
    /// Memtables have entries.
    FlushFirst,
}

/// A flush that brings nothing, but that the store has what is in front of this place of the log.
fn order_of_nothing(log_end: u64) -> FlushOrder {
    FlushOrder {
        memtable_bytes: 0,
        value_bytes: 0,
        log_end,
        last_seqno: SeqNo::ZERO,
        now: 0,
        slice_bytes: u64::MAX,
    }
}

impl Core {
    /// Begins to convert a keyspace.
    pub(super) fn begin_conversion(
        &self,
        keyspace: &Keyspace,
        conversion: &Conversion,
    ) -> Result<Underway<'_>> {
        self.check_writable()?;
        conversion.options.validate()?;
        // Its key stays what it is.
        let own_key = keyspace.runtime().options.own_key;
        let options = KeyspaceOptions { own_key, ..conversion.options.clone().rounded() };
        let conversion = &Conversion { options: options.clone(), ..conversion.clone() };
        if options.archive_of.is_some() {
            return Err(Error::invalid("these are the options of an archive"));
        }
        let turn = Arc::clone(&keyspace.runtime().flushing);
        let turn = lock(&turn);
        self.check_writable()?; // Under the turn, which closing waits for.
        let runtime = keyspace.runtime();
        if runtime.dropped.load(Ordering::Acquire) {
            return Err(keyspace.not_found());
        }
        if runtime.conversion().is_some() {
            let what = format!("keyspace {:?} is being converted already", keyspace.name());
            return Err(Error::invalid(what));
        }
        check_conversion(&runtime, conversion)?;
        let job = Arc::new(self.make_stores(&runtime, &options)?);
        *lock(&runtime.conversion) = Some(Arc::clone(&job));
        let report = ConversionReport::default();
        let underway = Underway { core: self, runtime, job, options, report, is_over: false };
        drop(turn);
        if underway.job.archive.is_some() {
            keyspace.limit_archived_keys(true);
            self.key_limits_begun.fetch_add(1, Ordering::AcqRel);
            // What was appended before that is in memtables then, and is flushed.
            drop(self.hold_commits()?);
        }
        self.flush_keyspace(&underway.runtime)?;
        while self.settle_begun_flushes(&underway.runtime)? == Settled::FlushFirst {
            self.flush_keyspace(&underway.runtime)?;
        }
        underway.job.forget_debts();
        Ok(underway)
    }

    /// Has the store know that flushes which a crash has interrupted are complete, where nothing
    /// was left of their memtables (X8): the new store knows of no such flushes.
    fn settle_begun_flushes(&self, runtime: &Runtime) -> Result<Settled> {
        let _turn = lock(&runtime.flushing);
        self.check_writable()?; // Under the turn, which closing waits for.
        let store = &runtime.store;
        let newest = store.begun_flushes().iter().map(|flush| flush.last_seqno).max();
        let Some(last_seqno) = newest else { return Ok(Settled::Yes) };
        let log_end = {
            let applier = self.log.lock_applier();
            let state = self.published.state();
            let tables = state.find(runtime.id).into_iter().flat_map(|of| of.tables());
            let mut has_entries = tables.map(|table| !table.memtable.is_empty());
            (!has_entries.any(|has_some| has_some)).then(|| applier.applied())
        };
        let Some(log_end) = log_end else { return Ok(Settled::FlushFirst) };
        self.sync_to(log_end)?; // D5
        let order = FlushOrder { last_seqno, ..order_of_nothing(log_end.as_u64()) };
        let mut nothing = MergeCursor::<BlockCursor>::new(Vec::new());
        let none = RangeTombstones::default();
        let flushed = self.in_work("a flush", || store.flush(&mut nothing, &none, order));
        let flushed = flushed.inspect_err(|error| self.note_work_failure(error))?;
        self.published.replace(|state| state.with_version(runtime.store_id, &flushed.version));
        Ok(Settled::Yes)
    }

    /// Makes the store that a keyspace is to have, and its archive, if it gets one.
    fn make_stores(&self, runtime: &Runtime, options: &KeyspaceOptions) -> Result<ConversionJob> {
        let needs_archive = options.structure == Structure::History && runtime.archive.is_none();
        let count = 1 + u32::from(needs_archive);
        // Closing waits for the turns of the keyspaces that there are; this may be dropped by now.
        let _open = self.staging.read().unwrap_or_else(PoisonError::into_inner);
        let (first, created) = {
            let mut manifest = self.lock_manifest_for_edit()?;
            let first = manifest.state().next_keyspace_id();
            self.apply_edit(&mut manifest, &Edit::ReserveStores { first, count })?;
            (first, self.log.next_stamp(self.time.wall_for_stamp()))
        };
        let record = |number, name, options| KeyspaceRecord {
            id: number,
            store: number,
            name,
            options,
            created,
            journal: None,
        };
        let of_store = record(first, conversion_name(runtime.id), options.clone());
        let of_archive = needs_archive.then(|| {
            record(
                first + 1,
                archive_name(runtime.id),
                options.of_archive(runtime.id, self.sizes.archive_table),
            )
        });
        let made = || -> Result<ConversionJob> {
            let numbers: Vec<u32> = (first..first + count).collect();
            self.share_own_key(self.lock_manifest_for_edit()?.state(), runtime.id, &numbers)?;
            let sizes = (self.sizes.memtable, &self.time);
            let (values, budget) = (&self.values, &self.budget);
            let archive = of_archive.as_ref().map(|record| {
                let store = self.create_store_of(record)?;
                Ok(runtime_of(record, store, values, budget, sizes, None))
            });
            let archive = archive.transpose()?;
            let store = self.create_store_of(&of_store)?;
            let mut store = new_runtime(&of_store, store, values, budget, sizes, None);
            store.flushing = Arc::clone(&runtime.flushing); // O5
            Ok(ConversionJob::new(Arc::new(store), archive))
        };
        match made() {
            Ok(job) => {
                let both = job.archive.iter().chain([&job.store]);
                self.published.replace(|state| {
                    both.fold(state.clone(), |state, runtime| state.with(self.state_of(runtime)))
                });
                Ok(job)
            }
            Err(error) => {
                for number in first..first + count {
                    self.forget_loose(number);
                }
                Err(error)
            }
        }
    }

    /// Removes the files of a store that came to nothing, if that is possible: else opening does.
    /// The caller has closing wait.
    fn forget_loose(&self, number: u32) {
        if self.check_writable().is_ok() {
            let _opening_does_it = self.remove_loose(number);
        }
    }

    /// Merges a slice of what the new store has, if too many runs came together there. The caller
    /// has the keyspace's turn. Whether there was any.
    pub(super) fn compact_new_store(&self, job: &ConversionJob) -> Result<bool> {
        for runtime in job.archive.iter().chain([&job.store]) {
            let is_of_tables = runtime.options.structure == Structure::Lsm;
            let has_many = || runtime.store.stats(0).runs > RUNS_MAX;
            let fresh_runs = runtime.store.debt().fresh_runs;
            if !is_of_tables || (fresh_runs <= FRESH_RUNS_MAX && !has_many()) {
                continue;
            }
            let slice_bytes = self.flush_slice_size.unwrap_or(COMPACTION_SLICE_BYTES);
            let compacted = runtime.store.compact(slice_bytes, self.time.now_if_used())?;
            if compacted == Compacted::Nothing {
                continue;
            }
            let _turn = job.archive.as_ref().filter(|archive| Arc::ptr_eq(archive, runtime));
            let _turn = _turn.map(|archive| lock(&archive.flushing));
            if let Some(version) = runtime.store.install()? {
                self.publish_version(runtime, &version);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives the keyspace its new store (O1). The caller has its turn to flush.
    pub(super) fn switch(
        &self,
        underway: &mut Underway<'_>,
        keyspace: &KeyspaceState,
    ) -> Result<()> {
        let (old, job) = (Arc::clone(&underway.runtime), Arc::clone(&underway.job));
        assert!(old.store.begun_flushes().is_empty(), "O3: what was begun was flushed");
        assert!(keyspace.unarchived.is_none(), "H5: it was archived under the same turn");
        assert_eq!(old.store.log_end(), job.store.store.log_end(), "O1: the log in front");
        let hold = job.archive.as_ref().map(|_| self.hold_commits()).transpose()?;
        let begins_at = hold.as_ref().map(|hold| hold.next_stamp(self.time.wall_for_stamp()));
        let new_archive = job.archive.as_ref().zip(begins_at);
        if let Some((archive, begins_at)) = new_archive {
            self.begin_archive(archive, begins_at)?;
        }
        let mut manifest = self.lock_manifest_for_edit()?;
        let record = manifest.state().keyspace(old.id).cloned();
        let record = record.ok_or_else(|| underway.not_found())?;
        self.note_stamp_of(&old, &mut manifest)?;
        let archive = self.archive_record(&manifest, underway, new_archive);
        let edit = Edit::ConvertKeyspace {
            id: old.id,
            store: job.store.store_id,
            journal: job.store.store.log_position(),
            options: underway.options.clone(),
            archive: archive.clone().map(Box::new),
        };
        self.apply_edit(&mut manifest, &edit)?;
        underway.is_over = true;
        let gone = old.archive.as_ref().filter(|_| archive.is_none());
        [&old].into_iter().chain(gone).for_each(|runtime| self.note_gone(runtime.store_id));
        let (archive, new) = self.runtimes_behind(underway, (&record, archive.as_ref()));
        let change = |state: &State| {
            let Some(before) = state.find(old.id) else { return state.clone() };
            let mut next = state.without(job.store.id);
            if let Some(gone) = gone {
                next = next.without(gone.id);
            }
            if let Some(archive) = &archive
                && let Some(before) = next.find(archive.id).cloned()
            {
                before.seat.store(Arc::clone(archive));
                let runtime = Arc::clone(archive);
                next = next.with(KeyspaceState { runtime, ..KeyspaceState::clone(&before) });
            }
            let (runtime, version) = (Arc::clone(&new), new.store.version());
            next.with(KeyspaceState { runtime, version, ..KeyspaceState::clone(before) })
        };
        match begins_at {
            Some(stamp) => self.published.replace_and_publish(change, stamp),
            None => self.published.replace(change),
        }
        keyspace.seat.store(new);
        for runtime in [&old].into_iter().chain(gone) {
            runtime.dropped.store(true, Ordering::Release);
            self.dropped.note(runtime);
        }
        *lock(&old.conversion) = None;
        underway.report.begins_at = begins_at;
        Ok(())
    }

    /// O4: has the past of a keyspace begin with this stamp, which is above all that there are.
    fn begin_archive(&self, archive: &Arc<Runtime>, begins_at: SeqNo) -> Result<()> {
        let _turn = lock(&archive.flushing);
        let store = &archive.store;
        let deleted = stamps_to_delete(archive, begins_at)?;
        // It is visible when the database is opened next, too.
        let order = FlushOrder { last_seqno: begins_at, ..order_of_nothing(store.log_end()) };
        let mut nothing = MergeCursor::<BlockCursor>::new(Vec::new());
        self.bring_to(archive, &mut nothing, &deleted, order)
    }

    /// What the catalogue is to say of the archive that the keyspace has from now on.
    fn archive_record(
        &self,
        manifest: &Manifest,
        underway: &Underway<'_>,
        new_archive: Option<(&Arc<Runtime>, SeqNo)>,
    ) -> Option<KeyspaceRecord> {
        let id = underway.runtime.id;
        if underway.options.structure != Structure::History {
            return None;
        }
        let mut options = underway.options.of_archive(id, self.sizes.archive_table);
        if let Some((archive, begins_at)) = new_archive {
            options.begins_at = begins_at;
            if options.keep_for.is_some() {
                options.kept_from = begins_at;
                archive.store.keep_from(begins_at);
            }
            return Some(KeyspaceRecord {
                id: archive.id,
                store: archive.store_id,
                name: archive_name(id),
                options,
                created: begins_at,
                journal: Some(archive.store.log_position()),
            });
        }
        let before = manifest.state().archive_of(id)?;
        options.kept_from = before.options.kept_from;
        options.begins_at = before.options.begins_at;
        options.has_ingests = before.options.has_ingests;
        Some(KeyspaceRecord { options, ..before.clone() })
    }

    /// The keyspace and its archive as they are from now on.
    fn runtimes_behind(
        &self,
        underway: &Underway<'_>,
        (record, archive): (&KeyspaceRecord, Option<&KeyspaceRecord>),
    ) -> (Option<Arc<Runtime>>, Arc<Runtime>) {
        let (old, job) = (&underway.runtime, &underway.job);
        let sizes = (self.sizes.memtable, &self.time);
        let (values, budget) = (&self.values, &self.budget);
        let archive = archive.zip(job.archive.as_ref().or(old.archive.as_ref()));
        let archive = archive.map(|(record, before)| {
            let store = Arc::clone(&before.store);
            let mut archive = new_runtime(record, store, values, budget, sizes, None);
            archive.flushing = Arc::clone(&before.flushing);
            Arc::new(archive)
        });
        let record = KeyspaceRecord {
            store: job.store.store_id,
            options: underway.options.clone(),
            ..record.clone()
        };
        let store = Arc::clone(&job.store.store);
        let mut new = new_runtime(&record, store, values, budget, sizes, archive.clone());
        new.name = Arc::clone(&old.name); // O5
        new.flushing = Arc::clone(&old.flushing);
        new.gets_before = old.gets_before + old.gets.total(0);
        (archive, Arc::new(new))
    }

    /// Gives up a conversion that is not over: the keyspace stays as it is. The files that were
    /// made are removed, unless the database is closed, or there is doubt about what is durable.
    fn give_up_conversion(&self, runtime: &Runtime, job: &Arc<ConversionJob>) {
        *lock(&runtime.conversion) = None;
        if let Some(keyspace) = self.published.state().find(runtime.id) {
            keyspace.seat.limit_archived_keys(runtime.archive.is_some());
        }
        let both = || job.archive.iter().chain([&job.store]);
        both().for_each(|made| self.note_gone(made.store_id));
        self.published
            .replace(|state| both().fold(state.clone(), |state, made| state.without(made.id)));
        // An edit that failed may be durable all the same, and the keyspace have this store then:
        // opening knows. Said here, and not where files are removed: a thread may be on its way
        // there that has found the database writable.
        let is_in_doubt = self.check_writable().is_err();
        for made in both() {
            made.dropped.store(true, Ordering::Release);
            if !is_in_doubt {
                self.dropped.note(made);
            }
        }
    }
}
