//! Records: the catalogue and its edits as bytes. `docs/format/manifest.md` has the tables.
//!
//! A snapshot is one head, one part for each keyspace, by rising id, one for each consumer, and
//! what there is of a trail.
//! What is read must obey every rule that an edit must obey when it is made; what does not is
//! damage.

use crate::base::{Error, Result, SeqNo, varint};
use crate::manifest::edit_log::{LogPosition, Record, RecordRef};
use crate::manifest::fields::{Decoded, Fields, Malformed, put_optional, put_position, put_text};
use crate::manifest::options::KeyspaceOptions;
use crate::manifest::state::{
    CatalogState, Closing, ConsumerRecord, Edit, FIRST_KEYSPACE_ID, GONE_INDEXES_MAX,
    KeyspaceRecord,
};
use crate::manifest::totals::Totals;
use crate::manifest::trail::{TrailNote, put_trail, put_trail_end, take_trail, take_trail_end};
use crate::pieces::Explained;
use std::collections::BTreeSet;

// First byte of a snapshot part.
const PART_HEAD: u8 = 1;
const PART_KEYSPACE: u8 = 2;
const PART_CONSUMER: u8 = 3;
const PART_GONE_INDEXES: u8 = 4;
/// A keyspace whose store has another number than itself.
const PART_CONVERTED_KEYSPACE: u8 = 5;
const PART_TRAIL: u8 = 6;
/// An edit that the trail has to tell of.
const PART_TRAIL_NOTE: u8 = 7;

// First byte of an edit.
const EDIT_CREATE: u8 = 1;
const EDIT_DROP: u8 = 2;
const EDIT_FORGET: u8 = 3;
const EDIT_RENAME: u8 = 4;
const EDIT_SET_OPTIONS: u8 = 5;
const EDIT_ADVANCE_LOG: u8 = 6;
const EDIT_CLEAN_CLOSE: u8 = 7;
const EDIT_KEEP_LOG: u8 = 8;
const EDIT_CREATE_WITH_ARCHIVE: u8 = 9;
const EDIT_SET_CONSUMER: u8 = 10;
const EDIT_REMOVE_CONSUMER: u8 = 11;
const EDIT_FINISH_INDEX: u8 = 12;
const EDIT_RESERVE_STORES: u8 = 13;
const EDIT_CONVERT: u8 = 14;
const EDIT_SET_TRAIL: u8 = 15;
const EDIT_END_TRAIL: u8 = 16;
const EDIT_REMOVE_TRAIL: u8 = 17;
const EDIT_STAMPED: u8 = 18;

/// The parts of a snapshot of `state`.
pub(super) fn encode_snapshot(state: &CatalogState) -> Vec<Vec<u8>> {
    let mut head = vec![PART_HEAD];
    varint::put(&mut head, state.database);
    varint::put(&mut head, state.created_millis);
    varint::put(&mut head, u64::from(state.next_keyspace_id));
    varint::put(&mut head, state.log_start);
    varint::put(&mut head, state.last_seqno.as_u64());
    varint::put(&mut head, state.newest_commit.as_u64());
    put_optional(&mut head, state.clean_log_end, varint::put);
    varint::put(&mut head, state.keyspaces.len() as u64);
    varint::put(&mut head, state.dropped.len() as u64);
    for &id in &state.dropped {
        varint::put(&mut head, u64::from(id));
    }
    varint::put(&mut head, state.kept_log);
    state.totals.encode(&mut head);
    let keyspaces = state.keyspaces.values().map(|record| {
        let mut part = vec![PART_KEYSPACE];
        if record.store == record.id {
            put_keyspace(&mut part, record);
        } else {
            part = vec![PART_CONVERTED_KEYSPACE];
            put_converted(&mut part, record);
        }
        part
    });
    let consumers = state.consumers.iter().map(|(name, consumer)| {
        let mut part = vec![PART_CONSUMER];
        put_consumer(&mut part, name, consumer);
        part
    });
    let gone = (!state.gone_indexes.is_empty()).then(|| gone_part(&state.gone_indexes));
    let trail = state.trail.iter().map(|record| {
        let mut part = vec![PART_TRAIL];
        put_trail(&mut part, record);
        part
    });
    let notes = state.trail_notes.iter().map(|note| {
        let mut part = vec![PART_TRAIL_NOTE];
        varint::put(&mut part, note.seqno.as_u64());
        put_edit(&mut part, &note.edit);
        part
    });
    let catalogue = std::iter::once(head).chain(keyspaces).chain(consumers).chain(gone);
    catalogue.chain(trail).chain(notes).collect()
}

fn gone_part(gone: &BTreeSet<u32>) -> Vec<u8> {
    let mut part = vec![PART_GONE_INDEXES];
    varint::put(&mut part, gone.len() as u64);
    gone.iter().for_each(|id| varint::put(&mut part, u64::from(*id)));
    part
}

/// An edit of a kind that says nothing but whose it is.
fn put_id(out: &mut Vec<u8>, kind: u8, id: u32) {
    out.push(kind);
    varint::put(out, u64::from(id));
}

/// An edit of a kind that says nothing but these.
fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| varint::put(out, *number));
}

/// An edit's payload, with the totals that go along.
pub(super) fn encode_edit(edit: &Edit, totals: &Totals) -> Vec<u8> {
    let mut out = Vec::new();
    put_edit(&mut out, edit);
    totals.encode(&mut out);
    out
}

/// An edit alone.
fn put_edit(out: &mut Vec<u8>, edit: &Edit) {
    match edit {
        Edit::CreateKeyspace(record) => {
            out.push(EDIT_CREATE);
            put_keyspace(out, record);
        }
        Edit::CreateWithArchive { archive, keyspace } => {
            out.push(EDIT_CREATE_WITH_ARCHIVE);
            put_keyspace(out, archive);
            put_keyspace(out, keyspace);
        }
        Edit::DropKeyspace { id } => put_id(out, EDIT_DROP, *id),
        Edit::ForgetDropped { id } => put_id(out, EDIT_FORGET, *id),
        Edit::FinishIndex { id } => put_id(out, EDIT_FINISH_INDEX, *id),
        Edit::ReserveStores { first, count } => {
            put_numbers(out, EDIT_RESERVE_STORES, &[u64::from(*first), u64::from(*count)]);
        }
        Edit::ConvertKeyspace { id, store, journal, options, archive } => {
            out.push(EDIT_CONVERT);
            varint::put(out, u64::from(*id));
            varint::put(out, u64::from(*store));
            put_position(out, *journal);
            options.encode(out);
            put_optional(out, archive.as_deref(), put_converted);
        }
        Edit::RenameKeyspace { id, name } => {
            out.push(EDIT_RENAME);
            varint::put(out, u64::from(*id));
            put_text(out, name);
        }
        Edit::SetOptions { id, options } => {
            out.push(EDIT_SET_OPTIONS);
            varint::put(out, u64::from(*id));
            options.encode(out);
        }
        Edit::AdvanceLog { log_start, journals, last_seqno } => {
            out.push(EDIT_ADVANCE_LOG);
            varint::put(out, *log_start);
            varint::put(out, last_seqno.as_u64());
            put_journals(out, journals);
        }
        Edit::KeepLog { bytes } => {
            out.push(EDIT_KEEP_LOG);
            varint::put(out, *bytes);
        }
        Edit::SetConsumer { name, consumer } => {
            out.push(EDIT_SET_CONSUMER);
            put_consumer(out, name, consumer);
        }
        Edit::RemoveConsumer { name } => {
            out.push(EDIT_REMOVE_CONSUMER);
            put_text(out, name);
        }
        Edit::CleanClose(Closing { log_end, last_seqno, newest_commit }) => {
            let numbers = [*log_end, last_seqno.as_u64(), newest_commit.as_u64()];
            put_numbers(out, EDIT_CLEAN_CLOSE, &numbers);
        }
        Edit::SetTrail(record) => {
            out.push(EDIT_SET_TRAIL);
            put_trail(out, record);
        }
        Edit::EndTrail(end) => {
            out.push(EDIT_END_TRAIL);
            put_trail_end(out, end);
        }
        Edit::RemoveTrail => out.push(EDIT_REMOVE_TRAIL),
        Edit::Stamped { seqno, edit } => {
            out.push(EDIT_STAMPED);
            varint::put(out, seqno.as_u64());
            put_edit(out, edit);
        }
    }
}

fn put_journals(out: &mut Vec<u8>, journals: &[(u32, LogPosition)]) {
    varint::put(out, journals.len() as u64);
    for &(id, position) in journals {
        varint::put(out, u64::from(id));
        put_position(out, position);
    }
}

impl Edit {
    /// As bytes, for elsewhere than in a manifest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_edit(&mut out, self);
        out
    }

    /// What [`Edit::encode`] has made; `None` of anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Edit> {
        let mut fields = Fields::new(bytes);
        let edit = take_edit(&mut fields).ok()?;
        fields.finish().ok()?;
        Some(edit)
    }
}

/// An edit, and the totals that go along; files of before have none.
pub(super) fn decode_edit(payload: &[u8]) -> Decoded<(Edit, Totals)> {
    let mut fields = Fields::new(payload);
    let edit = take_edit(&mut fields)?;
    let totals = Totals::decode(&mut fields)?;
    fields.finish()?;
    Ok((edit, totals))
}

/// What [`put_edit`] has put.
fn take_edit(fields: &mut Fields<'_>) -> Decoded<Edit> {
    match fields.byte("kind")? {
        EDIT_STAMPED => {
            let seqno = SeqNo::from_u64(fields.u64("stamp of an edit")?);
            let edit = match fields.byte("kind")? {
                EDIT_STAMPED => return fields.malformed("an edit with two stamps"),
                kind => take_plain_edit(kind, fields)?,
            };
            Ok(Edit::Stamped { seqno, edit: Box::new(edit) })
        }
        kind => take_plain_edit(kind, fields),
    }
}

/// An edit of this kind, which has no stamp.
fn take_plain_edit(kind: u8, fields: &mut Fields<'_>) -> Decoded<Edit> {
    Ok(match kind {
        EDIT_CREATE => Edit::CreateKeyspace(take_keyspace(fields)?),
        EDIT_CREATE_WITH_ARCHIVE => Edit::CreateWithArchive {
            archive: Box::new(take_keyspace(fields)?),
            keyspace: take_keyspace(fields)?,
        },
        EDIT_DROP => Edit::DropKeyspace { id: fields.u32("id")? },
        EDIT_FORGET => Edit::ForgetDropped { id: fields.u32("id")? },
        EDIT_FINISH_INDEX => Edit::FinishIndex { id: fields.u32("id")? },
        EDIT_RESERVE_STORES => {
            let first = fields.u32("first number")?;
            Edit::ReserveStores { first, count: fields.u32("number of stores")? }
        }
        EDIT_CONVERT => {
            let (id, store) = (fields.u32("id")?, fields.u32("number of the store")?);
            let journal = fields.position()?;
            let options = KeyspaceOptions::decode(fields)?;
            let archive = fields.optional("archive", take_converted)?.map(Box::new);
            Edit::ConvertKeyspace { id, store, journal, options, archive }
        }
        EDIT_RENAME => {
            let id = fields.u32("id")?;
            Edit::RenameKeyspace { id, name: fields.text("name")?.to_owned() }
        }
        EDIT_SET_OPTIONS => {
            let id = fields.u32("id")?;
            Edit::SetOptions { id, options: KeyspaceOptions::decode(fields)? }
        }
        EDIT_ADVANCE_LOG => {
            let log_start = fields.u64("start of the log")?;
            let last_seqno = SeqNo::from_u64(fields.u64("last stamp")?);
            let count = fields.count("number of journals")?;
            let journals = (0..count).map(|_| Ok((fields.u32("id")?, fields.position()?)));
            let journals = journals.collect::<Decoded<Vec<_>>>()?;
            Edit::AdvanceLog { log_start, journals, last_seqno }
        }
        EDIT_CLEAN_CLOSE => Edit::CleanClose(Closing {
            log_end: fields.u64("end of the log")?,
            last_seqno: SeqNo::from_u64(fields.u64("last stamp")?),
            newest_commit: SeqNo::from_u64(fields.u64("newest commit")?),
        }),
        EDIT_SET_CONSUMER => {
            let (name, consumer) = take_consumer(fields)?;
            Edit::SetConsumer { name, consumer }
        }
        EDIT_REMOVE_CONSUMER => {
            Edit::RemoveConsumer { name: fields.text("consumer's name")?.to_owned() }
        }
        EDIT_KEEP_LOG => Edit::KeepLog { bytes: fields.u64("bytes of the log to keep")? },
        EDIT_SET_TRAIL => Edit::SetTrail(take_trail(fields)?),
        EDIT_END_TRAIL => Edit::EndTrail(take_trail_end(fields)?),
        EDIT_REMOVE_TRAIL => Edit::RemoveTrail,
        other => return fields.malformed(format!("unknown kind of edit {other}")),
    })
}

/// What a record of a manifest says.
pub(crate) fn explain_manifest(record: Record<'_>) -> Explained {
    let mut explained = Explained::default();
    match record {
        Record::SnapshotPart(payload) => {
            let mut fields = Fields::new(payload);
            match fields.byte("kind") {
                Ok(PART_HEAD) => explained.field("part", "head"),
                Ok(PART_KEYSPACE) => match take_keyspace(&mut fields) {
                    Ok(record) => explained.field("keyspace", format!("{record:?}")),
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(PART_CONVERTED_KEYSPACE) => match take_converted(&mut fields) {
                    Ok(record) => explained.field("keyspace", format!("{record:?}")),
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(PART_CONSUMER) => match take_consumer(&mut fields) {
                    Ok((name, record)) => {
                        explained.field("consumer", format!("{name:?} {record:?}"));
                    }
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(PART_GONE_INDEXES) => match take_gone(&mut fields) {
                    Ok(gone) => explained.field("dropped indexes", format!("{gone:?}")),
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(PART_TRAIL) => match take_trail(&mut fields) {
                    Ok(record) => explained.field("trail", format!("{record:?}")),
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(PART_TRAIL_NOTE) => match take_note(&mut fields) {
                    Ok(note) => explained.field("to be told", format!("{note:?}")),
                    Err(malformed) => explained.unknown = Some(malformed.what),
                },
                Ok(other) => explained.unknown = Some(format!("a part of kind {other}")),
                Err(malformed) => explained.unknown = Some(malformed.what),
            }
        }
        Record::Edit(payload) => match decode_edit(payload) {
            Ok((edit, totals)) => {
                explained.field("edit", format!("{edit:?}"));
                if totals != Totals::default() {
                    explained.field("totals", format!("{totals:?}"));
                }
            }
            Err(malformed) => explained.unknown = Some(malformed.what),
        },
        Record::SnapshotEnd => {}
    }
    explained
}

fn put_keyspace(out: &mut Vec<u8>, record: &KeyspaceRecord) {
    varint::put(out, u64::from(record.id));
    put_text(out, &record.name);
    varint::put(out, record.created.as_u64());
    put_optional(out, record.journal, put_position);
    record.options.encode(out);
}

/// A keyspace behind the number of its store.
fn put_converted(out: &mut Vec<u8>, record: &KeyspaceRecord) {
    varint::put(out, u64::from(record.store));
    put_keyspace(out, record);
}

fn put_consumer(out: &mut Vec<u8>, name: &str, consumer: &ConsumerRecord) {
    put_text(out, name);
    varint::put(out, consumer.done.as_u64());
    varint::put(out, consumer.log_position);
    varint::put(out, consumer.log_max);
}

fn take_consumer(fields: &mut Fields<'_>) -> Decoded<(String, ConsumerRecord)> {
    let name = fields.text("consumer's name")?.to_owned();
    let consumer = ConsumerRecord {
        done: SeqNo::from_u64(fields.u64("consumer's stamp")?),
        log_position: fields.u64("consumer's place in the log")?,
        log_max: fields.u64("bytes of the log for a consumer")?,
    };
    Ok((name, consumer))
}

/// What [`put_converted`] has put.
fn take_converted(fields: &mut Fields<'_>) -> Decoded<KeyspaceRecord> {
    let store = fields.u32("number of the store")?;
    Ok(KeyspaceRecord { store, ..take_keyspace(fields)? })
}

fn take_keyspace(fields: &mut Fields<'_>) -> Decoded<KeyspaceRecord> {
    let id = fields.u32("id")?;
    Ok(KeyspaceRecord {
        id,
        store: id,
        name: fields.text("name")?.to_owned(),
        created: SeqNo::from_u64(fields.u64("creation stamp")?),
        journal: fields.optional("journal", Fields::position)?,
        options: KeyspaceOptions::decode(fields)?,
    })
}

fn take_gone(fields: &mut Fields<'_>) -> Decoded<BTreeSet<u32>> {
    let count = fields.count("number of dropped indexes")?;
    (0..count).map(|_| fields.u32("id of a dropped index")).collect()
}

fn take_note(fields: &mut Fields<'_>) -> Decoded<TrailNote> {
    let seqno = SeqNo::from_u64(fields.u64("stamp of an edit")?);
    let kind = fields.byte("kind")?;
    Ok(TrailNote { seqno, edit: take_plain_edit(kind, fields)? })
}

/// Builds the state from the records of a manifest.
#[derive(Debug)]
pub(super) struct Loader {
    /// What the file's header says.
    database: u64,
    state: Option<CatalogState>,
    keyspace_count: usize,
    /// Whether all of the snapshot was there.
    has_snapshot: bool,
}

impl Loader {
    pub fn new(database: u64) -> Loader {
        Loader { database, state: None, keyspace_count: 0, has_snapshot: false }
    }

    /// The state as of the last record that was taken, if the snapshot was whole.
    pub fn so_far(self) -> Option<CatalogState> {
        self.state.filter(|_| self.has_snapshot)
    }

    /// Takes the next record.
    pub fn take(&mut self, record: RecordRef<'_>) -> Result<()> {
        let taken = match (record.record, &mut self.state) {
            (Record::SnapshotPart(payload), None) => self.take_head(payload),
            (Record::SnapshotPart(payload), Some(state)) => load_part(state, payload),
            (Record::SnapshotEnd, _) => self.check_complete().map(|()| self.has_snapshot = true),
            (Record::Edit(payload), Some(state)) => load_edit(state, payload),
            (Record::Edit(_), None) => Err(headless()),
        };
        taken.map_err(|Malformed { index, what }| record.corruption(index, what))
    }

    /// The state, once every record was taken.
    pub fn finish(self) -> CatalogState {
        self.state.expect("a snapshot without a head was refused at its end record")
    }

    fn take_head(&mut self, payload: &[u8]) -> Decoded<()> {
        let mut fields = Fields::new(payload);
        if fields.byte("kind")? != PART_HEAD {
            return Err(headless());
        }
        let mut state =
            CatalogState::new(fields.u64("database id")?, fields.u64("time of creation")?);
        if state.database != self.database {
            let what = format!("database {:#x} in a file of {:#x}", state.database, self.database);
            return fields.malformed(what);
        }
        state.next_keyspace_id = fields.u32("next keyspace id")?;
        state.log_start = fields.u64("start of the log")?;
        state.last_seqno = SeqNo::from_u64(fields.u64("last stamp")?);
        state.newest_commit = SeqNo::from_u64(fields.u64("newest commit")?);
        state.clean_log_end = fields.optional("clean end", |fields| fields.u64("clean end"))?;
        // Not bounded by this record: the keyspaces come in records of their own.
        self.keyspace_count = fields.u32("number of keyspaces")? as usize;
        if state.next_keyspace_id < FIRST_KEYSPACE_ID {
            return fields.malformed("the next keyspace id is 0");
        }
        if state.clean_log_end.is_some_and(|end| end < state.log_start) {
            return fields.malformed("the log ends in front of its start");
        }
        if state.newest_commit > state.last_seqno {
            return fields.malformed("the newest commit is above the last stamp");
        }
        for _ in 0..fields.count("number of dropped keyspaces")? {
            let id = fields.u32("id of a dropped keyspace")?;
            if !(FIRST_KEYSPACE_ID..state.next_keyspace_id).contains(&id)
                || !state.dropped.insert(id)
            {
                return fields.malformed(format!("dropped keyspace #{id} is impossible"));
            }
        }
        state.kept_log = fields.u64("bytes of the log to keep")?;
        state.totals = Totals::decode(&mut fields)?;
        fields.finish()?;
        self.state = Some(state);
        Ok(())
    }

    fn check_complete(&self) -> Decoded<()> {
        let state = self.state.as_ref().ok_or_else(headless)?;
        if state.keyspaces.len() == self.keyspace_count {
            return Ok(());
        }
        let (found, expected) = (state.keyspaces.len(), self.keyspace_count);
        Err(Malformed { index: 0, what: format!("{found} keyspaces instead of {expected}") })
    }
}

fn load_part(state: &mut CatalogState, payload: &[u8]) -> Decoded<()> {
    let mut fields = Fields::new(payload);
    match fields.byte("kind")? {
        PART_KEYSPACE => {
            let record = take_keyspace(&mut fields)?;
            load_keyspace(state, record, fields)
        }
        PART_CONVERTED_KEYSPACE => {
            let record = take_converted(&mut fields)?;
            load_keyspace(state, record, fields)
        }
        PART_CONSUMER => load_consumer(state, fields),
        PART_GONE_INDEXES => load_gone(state, fields),
        PART_TRAIL => load_trail(state, fields),
        PART_TRAIL_NOTE => load_note(state, fields),
        other => fields.malformed(format!("unknown kind of part {other}")),
    }
}

fn load_consumer(state: &mut CatalogState, mut fields: Fields<'_>) -> Decoded<()> {
    let (name, consumer) = take_consumer(&mut fields)?;
    if state.consumers.contains_key(&name) {
        return fields.malformed(format!("the consumer {name:?} is there twice"));
    }
    let edit = Edit::SetConsumer { name: name.clone(), consumer };
    state.check(&edit).or_else(|error| fields.malformed(error.to_string()))?;
    fields.finish()?;
    state.consumers.insert(name, consumer);
    Ok(())
}

fn load_trail(state: &mut CatalogState, mut fields: Fields<'_>) -> Decoded<()> {
    if state.trail.is_some() {
        return fields.malformed("a second trail");
    }
    let record = take_trail(&mut fields)?;
    state.check_trail(&record).or_else(|error| fields.malformed(error.to_string()))?;
    fields.finish()?;
    state.trail = Some(record);
    Ok(())
}

fn load_note(state: &mut CatalogState, mut fields: Fields<'_>) -> Decoded<()> {
    let note = take_note(&mut fields)?;
    let Some(trail) = state.trail else { return fields.malformed("nobody is to be told") };
    let last = state.trail_notes.last().map_or(trail.done, |last| last.seqno);
    if note.seqno <= last {
        return fields.malformed("edits to be told that are out of order");
    }
    fields.finish()?;
    state.trail_notes.push(note);
    Ok(())
}

fn load_gone(state: &mut CatalogState, mut fields: Fields<'_>) -> Decoded<()> {
    let gone = take_gone(&mut fields)?;
    let is_possible = |id: &u32| {
        (FIRST_KEYSPACE_ID..state.next_keyspace_id).contains(id)
            && !state.keyspaces.contains_key(id)
    };
    if gone.len() > GONE_INDEXES_MAX || !gone.iter().all(is_possible) {
        return fields.malformed("dropped indexes that are impossible");
    }
    fields.finish()?;
    state.gone_indexes = gone;
    Ok(())
}

fn load_keyspace(
    state: &mut CatalogState,
    record: KeyspaceRecord,
    fields: Fields<'_>,
) -> Decoded<()> {
    // C1 and C4: by rising id, so that none can come twice.
    let lowest = state.keyspaces.last_key_value().map_or(FIRST_KEYSPACE_ID, |(&id, _)| id + 1);
    let is_taken = state.keyspaces.values().any(|other| other.store == record.store);
    if !(lowest..state.next_keyspace_id).contains(&record.id)
        || !(FIRST_KEYSPACE_ID..state.next_keyspace_id).contains(&record.store)
        || state.dropped.contains(&record.store)
        || is_taken
    {
        return fields.malformed(format!("keyspace #{} is impossible here", record.id));
    }
    state.check_name_free(&record.name).or_else(|error| fields.malformed(error.to_string()))?;
    if let Some(index) = &record.options.index {
        let checked = state.check_index(record.id, index, &record.options);
        checked.or_else(|error| fields.malformed(error.to_string()))?; // C8
    }
    fields.finish()?;
    state.insert(record);
    Ok(())
}

fn load_edit(state: &mut CatalogState, payload: &[u8]) -> Decoded<()> {
    let (edit, totals) = decode_edit(payload)?;
    let refused = |error: Error| Malformed { index: 0, what: format!("an edit fails: {error}") };
    state.check(&edit).map_err(refused)?;
    state.apply(edit, totals);
    Ok(())
}

fn headless() -> Malformed {
    Malformed { index: 0, what: "the snapshot does not begin with its head".to_owned() }
}
