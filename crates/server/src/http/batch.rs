//! Several keys in one call: read as of one moment, or written by one commit, if conditions hold.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use lithedb::{Error, Keyspace, SeqNo, Transaction, WriteBatch};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ask::{Ask, Object, Outcome, bytes_of, invalid_json};
use super::body::Received;
use super::conditions::{Effort, stamp_in, write_if};
use super::failure::{Code, Failure};
use super::keys::{moment, ttl_of, written};
use super::listing::{
    EntryRow, RowValue, Sink, VALUES, Values, judge, list, push_entry_members, short_list,
};
use super::options::Yes;
use super::scan::Span;
use super::text::push_member;
use crate::auth::Verb;

/// Larger bodies are read where nobody else waits for the thread.
const LARGE_BODY: usize = 1 << 20;
/// So many keys are looked up where the request is.
const FEW_KEYS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'b> {
    #[serde(borrow)]
    operations: &'b RawValue,
    #[serde(borrow, default)]
    conditions: Option<&'b RawValue>,
    payload: Option<String>,
    payload_base64: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Op {
    Put,
    Delete,
    Merge,
    DeleteRange,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationBody {
    op: Op,
    keyspace: String,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl: Option<f64>,
    prefix: Option<String>,
    prefix_base64: Option<String>,
    from: Option<String>,
    from_base64: Option<String>,
    to: Option<String>,
    to_base64: Option<String>,
    /// That everything is meant.
    confirm: Option<Yes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionBody {
    keyspace: String,
    key: Option<String>,
    key_base64: Option<String>,
    /// Has to be there, be it as null: that the key is not.
    #[serde(deserialize_with = "Option::deserialize")]
    stamp: Option<String>,
}

/// A write.
enum Step {
    Put { key: Vec<u8>, value: Vec<u8>, ttl: Option<Duration> },
    Delete { key: Vec<u8> },
    Merge { key: Vec<u8>, operand: Vec<u8> },
    DeleteRange(Span),
}

/// What an entry has to be; `None`: not there.
struct Condition {
    keyspace: Keyspace,
    key: Vec<u8>,
    stamp: Option<SeqNo>,
}

/// All that a batch says.
#[derive(Default)]
struct Plan {
    steps: Vec<(Keyspace, Step)>,
    conditions: Vec<Condition>,
    payload: Option<Vec<u8>>,
}

/// `POST /v1/batch`
pub async fn write(ask: &mut Ask) -> Outcome {
    let durability = ask.query.durability()?;
    let received = ask.json_text(ask.shared.limits.body_size).await?;
    let asked = &*ask;
    let read = || Plan::read(asked, &received.bytes);
    let plan = match received.bytes.len() >= LARGE_BODY {
        true => ask.in_place(read)??,
        false => read()?,
    };
    // Where there are indexes all of a range is read.
    let has_ranges = plan.steps.iter().any(|(_, step)| matches!(step, Step::DeleteRange(_)));
    if plan.conditions.is_empty() && ask.once.is_none() {
        let mut batch = WriteBatch::new();
        if let Some(payload) = plan.payload {
            batch.set_payload(payload);
        }
        for (keyspace, step) in &plan.steps {
            step.add_to(&mut batch, keyspace);
        }
        let Received { bytes, room: _until_it_is_written } = received;
        drop((plan.steps, bytes)); // The batch has it.
        return written(match has_ranges {
            true => ask.commit_apart(batch, durability).await?,
            false => ask.commit(batch, durability).await?,
        });
    }
    let effort = if has_ranges { Effort::Large } else { Effort::of(received.bytes.len()) };
    let done = write_if(asked, durability, effort, |transaction| {
        plan.check(asked, transaction)?;
        plan.write(transaction).map_err(|error| asked.engine(&error))
    });
    written(done.await?)
}

impl Plan {
    fn read(ask: &Ask, text: &[u8]) -> Result<Plan, Failure> {
        let body: Object<BatchBody<'_>> =
            serde_json::from_slice(text).map_err(|error| invalid_json(&error))?;
        let Object(BatchBody { operations, conditions, payload, payload_base64 }) = body;
        let payload = bytes_of("payload", payload, payload_base64.as_deref())?;
        let mut plan = Plan { payload, ..Plan::default() };
        let mut keyspaces = Keyspaces { ask, known: HashMap::new() };
        for_each(
            operations,
            ask.shared.limits.batch_count,
            |Object(operation): Object<OperationBody>| {
                let keyspace = keyspaces.find(Verb::Write, &operation.keyspace)?;
                plan.steps.push((keyspace, Step::read(ask, operation)?));
                Ok(())
            },
        )?;
        if let Some(conditions) = conditions {
            for_each(
                conditions,
                ask.shared.limits.batch_count,
                |Object(condition): Object<ConditionBody>| {
                    let keyspace = keyspaces.find(Verb::Read, &condition.keyspace)?;
                    plan.conditions.push(Condition::read(ask, keyspace, condition)?);
                    Ok(())
                },
            )?;
        }
        Ok(plan)
    }

    fn check(&self, ask: &Ask, transaction: &Transaction) -> Result<(), Failure> {
        for (index, condition) in self.conditions.iter().enumerate() {
            let found = stamp_in(transaction, &condition.keyspace, &condition.key);
            let found = found.map_err(|error| ask.engine(&error))?;
            if found != condition.stamp {
                let stamp = found.map(|found| found.as_u64().to_string());
                let what = format!("condition {index} does not hold");
                let failure = Failure::new(Code::Conflict, what);
                return Err(failure.with("condition", index).with("stamp", stamp));
            }
        }
        Ok(())
    }

    fn write(&self, transaction: &mut Transaction) -> Result<(), Error> {
        if let Some(payload) = &self.payload {
            transaction.set_payload(payload.as_slice())?;
        }
        self.steps.iter().try_for_each(|(keyspace, step)| step.write_to(transaction, keyspace))
    }
}

/// Keyspaces that a batch names, each looked for once for each verb (H1).
struct Keyspaces<'a> {
    ask: &'a Ask,
    known: HashMap<(u8, String), Keyspace>,
}

impl Keyspaces<'_> {
    fn find(&mut self, verb: Verb, name: &str) -> Result<Keyspace, Failure> {
        let key = (verb as u8, name.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let found = self.ask.keyspace_named(verb, name)?;
        self.known.insert(key, found.clone());
        Ok(found)
    }
}

fn missing(what: &str) -> Failure {
    Failure::new(Code::InvalidJson, format!("{what} is missing"))
}

impl Step {
    fn read(ask: &Ask, operation: OperationBody) -> Result<Step, Failure> {
        let OperationBody { op, key, key_base64, value, value_base64, ttl, .. } = operation;
        let key = bytes_of("key", key, key_base64.as_deref())?;
        let value = bytes_of("value", value, value_base64.as_deref())?;
        let part = |name: &str, text, base64: Option<String>| -> Result<_, Failure> {
            let bytes = bytes_of(name, text, base64.as_deref())?;
            bytes.as_deref().map_or(Ok(()), |bytes| ask.check_key(bytes))?;
            Ok(bytes)
        };
        let prefix = part("prefix", operation.prefix, operation.prefix_base64)?;
        let from = part("from", operation.from, operation.from_base64)?;
        let to = part("to", operation.to, operation.to_base64)?;
        let has_range = prefix.is_some() || from.is_some() || to.is_some();
        let is_put = matches!(op, Op::Put);
        let has_value = matches!(op, Op::Put | Op::Merge);
        let is_range = matches!(op, Op::DeleteRange);
        let wrong = |what: &str| Failure::new(Code::InvalidJson, what);
        if ttl.is_some() && !is_put
            || value.is_some() && !has_value
            || (has_range || operation.confirm.is_some()) && !is_range
            || key.is_some() && is_range
        {
            return Err(wrong("a member does not belong to its operation"));
        }
        if is_range {
            if !has_range {
                return Err(wrong("delete-range: prefix, from or to is needed"));
            }
            let span = Span::of(prefix.as_deref(), from.as_deref(), to.as_deref());
            if span.is_everything() && operation.confirm.is_none() {
                let what = "all keys would be deleted: say \"confirm\":\"yes\"";
                return Err(Failure::new(Code::ConfirmationNeeded, what));
            }
            return Ok(Step::DeleteRange(span));
        }
        let key = key.ok_or_else(|| missing("key"))?;
        ask.check_key(&key)?;
        if !has_value {
            return Ok(Step::Delete { key });
        }
        let value = value.ok_or_else(|| missing("value"))?;
        let size_max = ask.shared.limits.value_size;
        if value.len() as u64 > size_max {
            return Err(Failure::too_large("bytes of a value", size_max));
        }
        match is_put {
            true => Ok(Step::Put { key, value, ttl: ttl.map(ttl_of).transpose()? }),
            false => Ok(Step::Merge { key, operand: value }),
        }
    }

    fn add_to(&self, batch: &mut WriteBatch, keyspace: &Keyspace) {
        match self {
            Step::Put { key, value, ttl: None } => batch.put(keyspace, key, value),
            Step::Put { key, value, ttl: Some(ttl) } => {
                batch.put_with_ttl(keyspace, key, value, *ttl);
            }
            Step::Delete { key } => batch.delete(keyspace, key),
            Step::Merge { key, operand } => batch.merge(keyspace, key, operand),
            Step::DeleteRange(span) if span.is_empty() => {}
            Step::DeleteRange(span) => batch.delete_range(keyspace, span.bounds()),
        }
    }

    fn write_to(&self, transaction: &mut Transaction, keyspace: &Keyspace) -> Result<(), Error> {
        match self {
            Step::Put { key, value, ttl: None } => transaction.put(keyspace, key, value),
            Step::Put { key, value, ttl: Some(ttl) } => {
                transaction.put_with_ttl(keyspace, key, value, *ttl)
            }
            Step::Delete { key } => transaction.delete(keyspace, key),
            Step::Merge { key, operand } => transaction.merge(keyspace, key, operand),
            Step::DeleteRange(span) if span.is_empty() => Ok(()),
            Step::DeleteRange(span) => transaction.delete_range(keyspace, span.bounds()),
        }
    }
}

impl Condition {
    fn read(ask: &Ask, keyspace: Keyspace, body: ConditionBody) -> Result<Condition, Failure> {
        let key = bytes_of("key", body.key, body.key_base64.as_deref())?;
        let key = key.ok_or_else(|| missing("key"))?;
        ask.check_key(&key)?;
        let number = |stamp: String| {
            let number = stamp.parse().ok().filter(|_| stamp.bytes().all(|b| b.is_ascii_digit()));
            let wrong = || Failure::new(Code::InvalidJson, "stamp: its digits, or null");
            number.map(SeqNo::from_u64).ok_or_else(wrong)
        };
        Ok(Condition { keyspace, key, stamp: body.stamp.map(number).transpose()? })
    }
}

/// Reads an array piece by piece, so that no more of them are made than there may be.
fn for_each<T>(
    array: &RawValue,
    count_max: usize,
    take: impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    T: for<'j> Deserialize<'j>,
{
    struct Each<'f, T, F> {
        take: F,
        count_max: usize,
        failure: &'f mut Option<Failure>,
        of: std::marker::PhantomData<T>,
    }

    impl<'j, T, F> Visitor<'j> for Each<'_, T, F>
    where
        T: for<'o> Deserialize<'o>,
        F: FnMut(T) -> Result<(), Failure>,
    {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'j>>(mut self, mut array: A) -> Result<(), A::Error> {
            let mut count = 0;
            while let Some(one) = array.next_element::<T>()? {
                count += 1;
                let taken = match count > self.count_max {
                    true => Err(Failure::too_large("of a list", self.count_max as u64)),
                    false => (self.take)(one),
                };
                if let Err(failure) = taken {
                    *self.failure = Some(failure);
                    return Err(serde::de::Error::custom("refused"));
                }
            }
            Ok(())
        }
    }

    let mut failure = None;
    let each = Each { take, count_max, failure: &mut failure, of: std::marker::PhantomData };
    let mut text = serde_json::Deserializer::from_str(array.get());
    let read = text.deserialize_seq(each);
    match (failure, read) {
        (Some(failure), _) => Err(failure),
        (None, read) => read.map_err(|error| invalid_json(&error)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysBody<'b> {
    #[serde(borrow)]
    keys: &'b RawValue,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KeyBody {
    Text(String),
    Bytes(Object<KeyObject>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyObject {
    key: Option<String>,
    key_base64: Option<String>,
}

/// `POST /v1/keyspaces/{keyspace}/multi-get`
pub async fn multi_get(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let values = ask.query.choice("values", VALUES)?.unwrap_or(Values::Short);
    let received = ask.json_text(ask.shared.limits.body_size).await?;
    let keys = match received.bytes.len() >= LARGE_BODY {
        true => ask.in_place(|| read_keys(ask, &received.bytes))??,
        false => read_keys(ask, &received.bytes)?,
    };
    let then = moment(ask, &keyspace)?;
    let then = then.unwrap_or_else(|| ask.shared.store.db().snapshot());
    let is_short = keys.len() <= FEW_KEYS_MAX && values != Values::Full;
    let judge = judge(ask);
    let write = move |sink: &mut Sink| {
        sink.buffer().extend_from_slice(b"{\"entries\":[");
        for (index, key) in keys.iter().enumerate() {
            let found = then.get_entry(&keyspace, key).map_err(|error| judge(&error))?;
            let size = found.as_ref().map_or(0, |entry| entry.value.len());
            let _until_it_is_written = sink.room(if values == Values::Full { size } else { 0 })?;
            sink.buffer().extend_from_slice(if index == 0 { b"{" } else { b",{" });
            match &found {
                Some(entry) => {
                    let mut row = EntryRow::of(entry);
                    if values == Values::None {
                        row.value = RowValue::Unsaid;
                    }
                    push_entry_members(sink, &row, values);
                }
                None => push_member(sink.buffer(), "key", key),
            }
            sink.buffer().extend_from_slice(format!(",\"found\":{}}}", found.is_some()).as_bytes());
            if !sink.pass_on() {
                return Ok(());
            }
            if sink.is_left() {
                return Ok(());
            }
            if sink.is_late() {
                let what = "looking up the keys takes longer than it may: fewer at a time";
                return Err(Failure::new(Code::TooLarge, what));
            }
        }
        sink.buffer().extend_from_slice(b"]}");
        Ok(())
    };
    match is_short {
        true => short_list(ask, "application/json", write),
        false => list(ask, "application/json", write).await,
    }
}

fn read_keys(ask: &Ask, text: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let body: Object<KeysBody<'_>> =
        serde_json::from_slice(text).map_err(|error| invalid_json(&error))?;
    let mut keys = Vec::new();
    for_each(body.0.keys, ask.shared.limits.page_count, |key: KeyBody| {
        let key = match key {
            KeyBody::Text(text) => text.into_bytes(),
            KeyBody::Bytes(Object(KeyObject { key, key_base64 })) => {
                bytes_of("key", key, key_base64.as_deref())?.ok_or_else(|| missing("key"))?
            }
        };
        ask.check_key(&key)?;
        keys.push(key);
        Ok(())
    })?;
    Ok(keys)
}
