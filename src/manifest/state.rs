//! The state of the catalogue, and what each edit does to it. Pure: no files, no bytes.
//!
//! Invariants
//! - C1  Ids of keyspaces and numbers of stores are drawn from one sequence that starts at 1 and
//!   rises. None is drawn twice. A keyspace is created with a store of its own id.
//! - C2  No two keyspaces have one name. A name is data: it is never part of a file name.
//! - C3  `log_start`, `last_seqno`, `newest_commit` and the position of each journal never go back.
//!   `newest_commit` is not above `last_seqno`.
//! - C4  A number is that of a keyspace's store, or loose, or neither; never both. Loose is what
//!   may have files that nobody needs: of a store that was dropped, or replaced and not cleaned up
//!   yet, or that is being made.
//! - C5  A keyspace of structure History has an archive, and no archive is without its keyspace:
//!   they come and go by one edit.
//! - C6  What a consumer of changes is done with never goes back.
//! - C7  From where on an archive is whole never goes back.
//! - C8  A keyspace in which an index is kept is of a keyspace that is there and keeps none itself;
//!   it goes with that by one edit. Of one keyspace and name at most one index is ready, and at
//!   most one is not; the edit that makes that one ready drops the other.
//! - C9  See `trail.rs`.
//! - C10 A keyspace has a key of its own or not for ever; an archive and an index as what they
//!   are of.

use crate::base::{Error, Result, SeqNo};
use crate::manifest::edit_log::LogPosition;
use crate::manifest::options::{KeyspaceOptions, Structure};
use crate::manifest::totals::Totals;
use crate::manifest::trail::{TrailEnd, TrailNote, TrailRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the longest name.
pub const NAME_LEN_MAX: usize = 255;
/// Id of the first keyspace; 0 means none.
pub const FIRST_KEYSPACE_ID: u32 = 1;
/// Numbers of dropped indexes that are remembered.
pub(super) const GONE_INDEXES_MAX: usize = 4096;

/// A keyspace in the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceRecord {
    /// Its number, which the write-ahead log knows it by.
    pub id: u32,
    /// The number of its store, which names its folder: that of the keyspace until it is converted.
    pub store: u32,
    /// Its name: any UTF-8 of 1 to 255 bytes.
    pub name: String,
    /// Its structure and options.
    pub options: KeyspaceOptions,
    /// When it was created.
    pub created: SeqNo,
    /// Up to where the journal of its index is known to be durable: a journal that does not reach
    /// it is damaged.
    pub journal: Option<LogPosition>,
}

/// Somebody who follows the changes of the database, and for whom the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Commits up to this stamp are done with.
    pub done: SeqNo,
    /// Where in the write-ahead log those behind it begin, or in front of that.
    pub log_position: u64,
    /// Bytes of the log that are kept for it, at most.
    pub log_max: u64,
}

/// A change to the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Adds a keyspace, whose id must be [`CatalogState::next_keyspace_id`].
    CreateKeyspace(KeyspaceRecord),
    /// Adds a keyspace of structure History, and in front of it its archive, whose id must be
    /// [`CatalogState::next_keyspace_id`].
    CreateWithArchive {
        /// The archive.
        archive: Box<KeyspaceRecord>,
        /// The keyspace.
        keyspace: KeyspaceRecord,
    },
    /// Removes a keyspace, with its archive and its indexes; their files are still to be removed.
    DropKeyspace {
        /// The keyspace.
        id: u32,
    },
    /// Says that an index has all entries; removes the one of its name that was ready before.
    FinishIndex {
        /// The keyspace that it is kept in.
        id: u32,
    },
    /// The files of a store that is loose are gone.
    ForgetDropped {
        /// The number of the store.
        id: u32,
    },
    /// Draws numbers for stores that are about to be made. They are loose: should nothing come of
    /// it, their files are removed as those of dropped keyspaces are.
    ReserveStores {
        /// The first of them, which must be [`CatalogState::next_keyspace_id`].
        first: u32,
        /// How many.
        count: u32,
    },
    /// Gives a keyspace another store and other options. The one that it had is loose from then on,
    /// as is an archive that it has no more.
    ConvertKeyspace {
        /// The keyspace.
        id: u32,
        /// The number of its store from now on, which is loose until then.
        store: u32,
        /// Up to where the journal of that store is durable.
        journal: LogPosition,
        /// Its options from now on.
        options: KeyspaceOptions,
        /// The archive that it has from now on: the one that it has, with other options perhaps,
        /// or a new one, whose number is loose until then.
        archive: Option<Box<KeyspaceRecord>>,
    },
    /// Gives a keyspace another name.
    RenameKeyspace {
        /// The keyspace.
        id: u32,
        /// Its new name.
        name: String,
    },
    /// Gives a keyspace other options, of the same structure.
    SetOptions {
        /// The keyspace.
        id: u32,
        /// Its new options.
        options: KeyspaceOptions,
    },
    /// Says that nothing in front of `log_start` is needed from the write-ahead log any more.
    AdvanceLog {
        /// Where replay starts from now on.
        log_start: u64,
        /// Up to where journals are durable, by keyspace.
        journals: Vec<(u32, LogPosition)>,
        /// The newest stamp at this time.
        last_seqno: SeqNo,
    },
    /// Says how much of the write-ahead log is kept to be read when it is not needed.
    KeepLog {
        /// Bytes of log files, at most.
        bytes: u64,
    },
    /// Adds a consumer of changes, or says how far one is.
    SetConsumer {
        /// Its name: any UTF-8 of 1 to 255 bytes.
        name: String,
        /// How far it is.
        consumer: ConsumerRecord,
    },
    /// Removes a consumer of changes.
    RemoveConsumer {
        /// Its name.
        name: String,
    },
    /// Has a trail follow the database, or says how far it is.
    SetTrail(TrailRecord),
    /// The trail does not tell what comes from here on.
    EndTrail(TrailEnd),
    /// Nothing is kept for a trail any more.
    RemoveTrail,
    /// An edit that a trail has to tell of: see [`CatalogState::wants_stamp`].
    Stamped {
        /// Above those of all commits in front of it.
        seqno: SeqNo,
        /// The edit, which is none of this kind.
        edit: Box<Edit>,
    },
    /// Says that the database was closed, with its write-ahead log whole to its end.
    CleanClose(Closing),
}

/// What is known of a database that is being closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// End of the write-ahead log.
    pub log_end: u64,
    /// No later stamp is below it.
    pub last_seqno: SeqNo,
    /// The newest commit.
    pub newest_commit: SeqNo,
}

/// The catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogState {
    // Constant.
    pub(super) database: u64,
    pub(super) created_millis: u64,
    // Keyspaces.
    pub(super) next_keyspace_id: u32,
    pub(super) keyspaces: BTreeMap<u32, KeyspaceRecord>,
    pub(super) ids_by_name: BTreeMap<String, u32>,
    pub(super) dropped: BTreeSet<u32>,
    /// Numbers of indexes that were dropped, the highest ones: the log may still have their
    /// entries.
    pub(super) gone_indexes: BTreeSet<u32>,
    // The write-ahead log.
    pub(super) log_start: u64,
    pub(super) last_seqno: SeqNo,
    pub(super) newest_commit: SeqNo,
    pub(super) clean_log_end: Option<u64>,
    pub(super) kept_log: u64,
    pub(super) consumers: BTreeMap<String, ConsumerRecord>,
    pub(super) trail: Option<TrailRecord>,
    pub(super) trail_notes: Vec<TrailNote>,
    // What was written.
    pub(super) totals: Totals,
}

impl CatalogState {
    /// The catalogue of a new database.
    #[must_use]
    pub fn new(database: u64, created_millis: u64) -> CatalogState {
        CatalogState {
            database,
            created_millis,
            next_keyspace_id: FIRST_KEYSPACE_ID,
            keyspaces: BTreeMap::new(),
            ids_by_name: BTreeMap::new(),
            dropped: BTreeSet::new(),
            gone_indexes: BTreeSet::new(),
            log_start: 0,
            last_seqno: SeqNo::ZERO,
            newest_commit: SeqNo::ZERO,
            clean_log_end: None,
            kept_log: 0,
            consumers: BTreeMap::new(),
            trail: None,
            trail_notes: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// This catalogue with other keyspaces, for a database that is made of what is left of this
    /// one: it has a new log, no stamp was given above `last_seqno`, and no value file has a number
    /// above `value_files`. What follows its changes is not there any more.
    #[must_use]
    pub fn rebuilt(
        &self,
        keyspaces: Vec<KeyspaceRecord>,
        last_seqno: SeqNo,
        value_files: u64,
    ) -> CatalogState {
        let mut state = CatalogState::new(self.database, self.created_millis);
        let last = keyspaces.iter().map(|record| record.id.max(record.store)).max();
        state.next_keyspace_id = self.next_keyspace_id.max(last.unwrap_or(0).saturating_add(1));
        for record in keyspaces {
            state.ids_by_name.insert(record.name.clone(), record.id);
            state.keyspaces.insert(record.id, record);
        }
        let gone = self.gone_indexes.iter().copied();
        state.gone_indexes = gone.filter(|id| !state.keyspaces.contains_key(id)).collect();
        state.last_seqno = last_seqno.max(self.last_seqno);
        state.newest_commit = self.newest_commit;
        state.kept_log = self.kept_log;
        state.totals.value_files = self.totals.value_files.max(value_files);
        state
    }

    /// The database's id; not 0.
    #[must_use]
    pub fn database(&self) -> u64 {
        self.database
    }

    /// When the database was created, in milliseconds since 1970.
    #[cfg(test)]
    pub fn created_millis(&self) -> u64 {
        self.created_millis
    }

    /// The id that the next keyspace gets.
    #[must_use]
    pub fn next_keyspace_id(&self) -> u32 {
        self.next_keyspace_id
    }

    /// The keyspaces, by id.
    pub fn keyspaces(&self) -> impl ExactSizeIterator<Item = &KeyspaceRecord> {
        self.keyspaces.values()
    }

    /// The keyspace of that id.
    #[must_use]
    pub fn keyspace(&self, id: u32) -> Option<&KeyspaceRecord> {
        self.keyspaces.get(&id)
    }

    /// The keyspace of that name.
    #[cfg(test)]
    pub fn find(&self, name: &str) -> Option<&KeyspaceRecord> {
        self.ids_by_name.get(name).and_then(|id| self.keyspaces.get(id))
    }

    /// Numbers of stores that are loose: their files may still be there.
    pub fn dropped(&self) -> impl ExactSizeIterator<Item = u32> {
        self.dropped.iter().copied()
    }

    /// Whether this was the number of an index that was dropped, as far as that is remembered.
    #[must_use]
    pub fn is_gone_index(&self, id: u32) -> bool {
        self.gone_indexes.contains(&id)
    }

    /// Where replay of the write-ahead log starts.
    #[must_use]
    pub fn log_start(&self) -> u64 {
        self.log_start
    }

    /// The newest stamp that the manifest has heard of; the log may hold newer ones.
    #[must_use]
    pub fn last_seqno(&self) -> SeqNo {
        self.last_seqno
    }

    /// The newest commit when the database was closed last; the log may hold newer ones.
    #[must_use]
    pub fn newest_commit(&self) -> SeqNo {
        self.newest_commit
    }

    /// Where the write-ahead log ended when the database was closed, if nothing was changed in the
    /// catalogue since. The log must be valid up to there; it may go on.
    #[must_use]
    pub fn clean_log_end(&self) -> Option<u64> {
        self.clean_log_end
    }

    /// Bytes of the write-ahead log that are kept to be read when it is not needed.
    #[must_use]
    pub fn kept_log(&self) -> u64 {
        self.kept_log
    }

    /// Consumers of changes, by name.
    #[must_use]
    pub fn consumers(&self) -> &BTreeMap<String, ConsumerRecord> {
        &self.consumers
    }

    /// Where the write-ahead log is kept from, for consumers of changes and the trail.
    #[must_use]
    pub fn held_log(&self) -> Option<u64> {
        let of_trail = self.trail.filter(|trail| !trail.is_over());
        let of_trail = of_trail.map(|trail| trail.log_position);
        self.consumers.values().map(|consumer| consumer.log_position).chain(of_trail).min()
    }

    /// What was written since the database was created, as of the last edit.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether `edit` may be applied.
    ///
    /// # Errors
    /// `InvalidArgument`, `KeyspaceExists`, `KeyspaceNotFound`.
    pub fn check(&self, edit: &Edit) -> Result<()> {
        match edit {
            Edit::FinishIndex { id } => self.check_unfinished(*id),
            Edit::CreateKeyspace(record) => self.check_creation(record),
            Edit::CreateWithArchive { archive, keyspace } => self.check_archive(archive, keyspace),
            Edit::DropKeyspace { id } => self.existing(*id).map(drop),
            Edit::ForgetDropped { id } => self.check_loose(*id),
            Edit::ReserveStores { first, count } => {
                let next = self.next_keyspace_id;
                let end = first.checked_add(*count).filter(|end| *end < u32::MAX);
                match *first == next && *count > 0 && end.is_some() {
                    true => Ok(()),
                    false => Err(Error::invalid(format!(
                        "{count} numbers from {first} on cannot be drawn: the next is {next}"
                    ))),
                }
            }
            Edit::ConvertKeyspace { id, store, options, archive, .. } => {
                self.check_conversion(*id, *store, options, archive.as_deref())
            }
            Edit::RenameKeyspace { id, name } => {
                let record = self.existing(*id)?;
                if record.name == *name { Ok(()) } else { self.check_name_free(name) }
            }
            Edit::SetOptions { id, options } => {
                let record = self.existing(*id)?;
                if record.options.structure != options.structure {
                    return Err(Error::invalid("the structure of a keyspace is not an option"));
                }
                let (now, next) = (record.options.kept_from, options.kept_from);
                check_forward("kept_from", &now, &next)?; // C7
                if record.options.index != options.index {
                    return Err(Error::invalid("what a keyspace is an index of is not an option"));
                }
                check_own_key(options, record.options.own_key)?;
                let (now, next) = (record.options.begins_at, options.begins_at);
                check_forward("begins_at", &now, &next)?;
                let (now, next) = (record.options.has_ingests, options.has_ingests);
                check_forward("has_ingests", &now, &next)?;
                options.check_limits()
            }
            Edit::AdvanceLog { log_start, journals, last_seqno } => {
                for (id, position) in journals {
                    let journal = self.existing(*id)?.journal;
                    check_forward(
                        &format!("journal of keyspace #{id}"),
                        &journal,
                        &Some(*position),
                    )?;
                }
                check_forward("log_start", &self.log_start, log_start)?;
                check_forward("last_seqno", &self.last_seqno, last_seqno)
            }
            Edit::KeepLog { .. } => Ok(()),
            Edit::SetConsumer { name, consumer } => self.check_consumer(name, consumer),
            Edit::RemoveConsumer { name } => match self.consumers.contains_key(name) {
                true => Ok(()),
                false => Err(Error::ConsumerNotFound { name: name.clone() }),
            },
            Edit::SetTrail(record) => self.check_trail(record),
            Edit::EndTrail(end) => self.check_trail_end(end),
            Edit::RemoveTrail => match self.trail {
                Some(_) => Ok(()),
                None => Err(Error::invalid("there is no trail that follows")),
            },
            Edit::Stamped { seqno, edit } => self.check_stamped(*seqno, edit),
            Edit::CleanClose(Closing { log_end, last_seqno, newest_commit }) => {
                check_forward("end of the log", &self.log_start, log_end)?;
                check_forward("last_seqno", &self.last_seqno, last_seqno)?;
                check_forward("newest_commit", &self.newest_commit, newest_commit)?;
                match newest_commit <= last_seqno {
                    true => Ok(()),
                    false => Err(Error::invalid("the newest commit is above the last stamp")),
                }
            }
        }
    }

    /// Applies an edit that [`CatalogState::check`] let pass, with its totals.
    pub(super) fn apply(&mut self, edit: Edit, totals: Totals) {
        self.clean_log_end = None;
        self.totals = totals;
        match self.take_stamp(edit) {
            Edit::CreateKeyspace(record) => {
                self.next_keyspace_id = record.id + 1;
                self.insert(record);
            }
            Edit::CreateWithArchive { archive, keyspace } => {
                self.next_keyspace_id = keyspace.id + 1;
                self.insert(*archive);
                self.insert(keyspace);
            }
            Edit::DropKeyspace { id } => {
                let archive = self.archive_of(id).map(|archive| archive.id);
                let indexes: Vec<u32> = self.indexes_of(id).map(|(record, _)| record.id).collect();
                archive.into_iter().chain(indexes).chain([id]).for_each(|id| self.remove(id));
            }
            Edit::FinishIndex { id } => {
                self.replaced_by(id).into_iter().for_each(|before| self.remove(before));
                let record = self.keyspaces.get_mut(&id);
                if let Some(index) = record.and_then(|record| record.options.index.as_mut()) {
                    index.is_ready = true;
                }
            }
            Edit::ForgetDropped { id } => {
                self.dropped.remove(&id);
            }
            Edit::ReserveStores { first, count } => {
                self.next_keyspace_id = first + count;
                self.dropped.extend(first..first + count);
            }
            Edit::ConvertKeyspace { id, store, journal, options, archive } => {
                self.convert((id, store, journal), options, archive.map(|archive| *archive));
            }
            Edit::RenameKeyspace { id, name } => {
                if let Some(record) = self.keyspaces.get_mut(&id) {
                    self.ids_by_name.remove(&record.name);
                    self.ids_by_name.insert(name.clone(), id);
                    record.name = name;
                }
            }
            Edit::SetOptions { id, options } => {
                if let Some(record) = self.keyspaces.get_mut(&id) {
                    record.options = options;
                }
            }
            Edit::AdvanceLog { log_start, journals, last_seqno } => {
                for (id, position) in journals {
                    if let Some(record) = self.keyspaces.get_mut(&id) {
                        record.journal = Some(position);
                    }
                }
                self.log_start = log_start;
                self.last_seqno = last_seqno;
            }
            Edit::KeepLog { bytes } => self.kept_log = bytes,
            Edit::SetConsumer { name, consumer } => {
                self.consumers.insert(name, consumer);
            }
            Edit::RemoveConsumer { name } => {
                self.consumers.remove(&name);
            }
            Edit::SetTrail(record) => self.set_trail(record),
            Edit::EndTrail(end) => self.end_trail(end),
            Edit::RemoveTrail => self.remove_trail(),
            Edit::Stamped { .. } => debug_assert!(false, "its stamp was taken, and it has one"),
            Edit::CleanClose(Closing { log_end, last_seqno, newest_commit }) => {
                self.last_seqno = last_seqno;
                self.newest_commit = newest_commit;
                self.clean_log_end = Some(log_end);
            }
        }
        let stores: BTreeSet<u32> = self.keyspaces.values().map(|record| record.store).collect();
        self.totals.fold_gone(|store| stores.contains(&store));
    }

    fn convert(
        &mut self,
        (id, store, journal): (u32, u32, LogPosition),
        options: KeyspaceOptions,
        archive: Option<KeyspaceRecord>,
    ) {
        let before = self.archive_of(id).map(|archive| archive.id);
        match archive {
            Some(archive) if before == Some(archive.id) => {
                self.keyspaces.insert(archive.id, archive);
            }
            archive => {
                before.into_iter().for_each(|id| self.remove(id));
                if let Some(archive) = archive {
                    self.dropped.remove(&archive.store);
                    self.insert(archive);
                }
            }
        }
        if let Some(record) = self.keyspaces.get_mut(&id) {
            self.dropped.remove(&store);
            self.dropped.insert(record.store);
            (record.store, record.journal, record.options) = (store, Some(journal), options);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(record) = self.keyspaces.remove(&id) else { return };
        self.ids_by_name.remove(&record.name);
        self.dropped.insert(record.store);
        if record.options.index.is_some() {
            self.gone_indexes.insert(id);
            if self.gone_indexes.len() > GONE_INDEXES_MAX {
                self.gone_indexes.pop_first();
            }
        }
    }

    /// The archive of a keyspace, if it has one.
    #[must_use]
    pub fn archive_of(&self, id: u32) -> Option<&KeyspaceRecord> {
        self.keyspaces.values().find(|record| record.options.archive_of == Some(id))
    }

    fn check_loose(&self, number: u32) -> Result<()> {
        match self.dropped.contains(&number) {
            true => Ok(()),
            false => Err(Error::invalid(format!("#{number} is no store that is loose"))),
        }
    }

    /// C4, C5
    fn check_conversion(
        &self,
        id: u32,
        store: u32,
        options: &KeyspaceOptions,
        archive: Option<&KeyspaceRecord>,
    ) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid(format!("keyspace #{id}: {what}")));
        let record = self.existing(id)?;
        self.check_loose(store)?;
        if record.options.archive_of.is_some() || options.archive_of.is_some() {
            return refuse("an archive is not converted");
        }
        if record.options.index != options.index {
            return refuse("what it is an index of is not an option");
        }
        if archive.is_some() != (options.structure == Structure::History) {
            return refuse("keyspaces of structure history have an archive, and no others");
        }
        check_own_key(options, record.options.own_key)?;
        options.check_limits()?;
        let Some(archive) = archive else { return Ok(()) };
        check_own_key(&archive.options, options.own_key)?;
        if archive.options.archive_of != Some(id) {
            return refuse("the archive is another's");
        }
        archive.options.check_limits()?;
        match self.archive_of(id) {
            Some(before) => {
                let of_record = |of: &KeyspaceRecord| (of.id, of.store, of.created, of.journal);
                if of_record(before) != of_record(archive) || before.name != archive.name {
                    return refuse("its archive is not replaced");
                }
                let (now, next) = (before.options.kept_from, archive.options.kept_from);
                check_forward("kept_from", &now, &next)?; // C7
                let (now, next) = (before.options.has_ingests, archive.options.has_ingests);
                check_forward("has_ingests", &now, &next)?;
                check_forward("begins_at", &before.options.begins_at, &archive.options.begins_at)
            }
            None if archive.store == store => refuse("its archive has its store"),
            None => {
                check_own_store(archive)?;
                self.check_loose(archive.id)?;
                if self.keyspaces.contains_key(&archive.id) {
                    // Its first store is loose, as it was converted.
                    return refuse("its archive has the number of another keyspace");
                }
                self.check_name_free(&archive.name)
            }
        }
    }

    fn check_creation(&self, record: &KeyspaceRecord) -> Result<()> {
        check_own_store(record)?;
        if record.id != self.next_keyspace_id || record.id == u32::MAX {
            let (id, next) = (record.id, self.next_keyspace_id);
            return Err(Error::invalid(format!(
                "a new keyspace has the id {id}; the next id is {next} of at most {}",
                u32::MAX - 1
            )));
        }
        let options = &record.options;
        if options.structure == Structure::History || options.archive_of.is_some() {
            return Err(Error::invalid("a keyspace with its archive is made by one edit"));
        }
        self.check_name_free(&record.name)?;
        record.options.check_limits()?;
        let index = options.index.as_ref();
        index.map_or(Ok(()), |index| self.check_index(record.id, index, options))
    }

    /// C5
    fn check_archive(&self, archive: &KeyspaceRecord, keyspace: &KeyspaceRecord) -> Result<()> {
        let is_pair = archive.id == self.next_keyspace_id
            && Some(keyspace.id) == archive.id.checked_add(1)
            && keyspace.id != u32::MAX
            && archive.options.archive_of == Some(keyspace.id)
            && keyspace.options.structure == Structure::History
            && keyspace.options.archive_of.is_none()
            && archive.name != keyspace.name;
        if !is_pair {
            let (first, second) = (archive.id, keyspace.id);
            let what = format!("#{first} and #{second} are no archive and its keyspace to be made");
            return Err(Error::invalid(what));
        }
        check_own_key(&archive.options, keyspace.options.own_key)?;
        for record in [archive, keyspace] {
            check_own_store(record)?;
            self.check_name_free(&record.name)?;
            record.options.check_limits()?;
        }
        Ok(())
    }

    /// C6
    fn check_consumer(&self, name: &str, consumer: &ConsumerRecord) -> Result<()> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            let len = name.len();
            let what = format!("the name of a consumer has {len} bytes: allowed are 1 to 255");
            return Err(Error::invalid(what));
        }
        let Some(now) = self.consumers.get(name) else { return Ok(()) };
        check_forward("stamp of a consumer", &now.done, &consumer.done)?;
        check_forward("place of a consumer", &now.log_position, &consumer.log_position)
    }

    /// Adds a keyspace that is known to be new.
    pub(super) fn insert(&mut self, record: KeyspaceRecord) {
        self.ids_by_name.insert(record.name.clone(), record.id);
        self.keyspaces.insert(record.id, record);
    }

    /// C2.
    ///
    /// # Errors
    /// `InvalidArgument`, `KeyspaceExists`.
    pub fn check_name_free(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            return Err(Error::invalid(format!(
                "the name of a keyspace has {} bytes: allowed are 1 to {NAME_LEN_MAX}",
                name.len()
            )));
        }
        match self.ids_by_name.contains_key(name) {
            true => Err(Error::KeyspaceExists { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    fn existing(&self, id: u32) -> Result<&KeyspaceRecord> {
        let missing = || Error::KeyspaceNotFound { name: format!("#{id}") };
        self.keyspaces.get(&id).ok_or_else(missing)
    }
}

/// C10
pub(super) fn check_own_key(options: &KeyspaceOptions, expected: bool) -> Result<()> {
    match options.own_key == expected {
        true => Ok(()),
        false => Err(Error::invalid("whether a keyspace has a key of its own is no option")),
    }
}

/// C1
fn check_own_store(record: &KeyspaceRecord) -> Result<()> {
    let KeyspaceRecord { id, store, .. } = *record;
    match id == store {
        true => Ok(()),
        false => Err(Error::invalid(format!("the new keyspace #{id} has the store #{store}"))),
    }
}

/// C3.
pub(super) fn check_forward<T: PartialOrd + std::fmt::Debug>(
    what: &str,
    now: &T,
    next: &T,
) -> Result<()> {
    if next >= now {
        return Ok(());
    }
    Err(Error::invalid(format!("the {what} would go back from {now:?} to {next:?}")))
}
