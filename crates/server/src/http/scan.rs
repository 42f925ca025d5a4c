//! Ranges of keys: walked in pages or as a stream of lines, counted, deleted.

use std::ops::Bound;

use lithedb::{Cursor, Error, KEY_LEN_MAX, KeyRange, Keyspace, Snapshot, WriteBatch};
use serde::Deserialize;
use serde_json::json;

use super::ask::{Ask, Outcome, bytes_of, ok_json};
use super::conditions::{Effort, write_if};
use super::failure::{Code, Failure};
use super::keys::{moment, written};
use super::listing::{EntryRow, Sink, VALUES, Values, judge, list, push_entry, short_list};
use super::text::{Alphabet, base64, base64_decoded};
use crate::auth::Verb;
use crate::room::Taken;

/// Entries of a page, unless that is said.
const LIMIT_DEFAULT: usize = 1000;
/// Pages of up to so many are made where the request is.
const SHORT_PAGE_MAX: usize = 100;
/// The clock is looked at every so many entries.
const ENTRIES_A_LOOK: usize = 64;
/// A cursor is the last key of its page as base64, which is of any length that the store allows.
const CURSOR_LEN_MAX: usize = KEY_LEN_MAX.div_ceil(3) * 4;
/// Bounds in a body that says all three of them: a byte is at most six of a string of JSON.
const BOUNDS_GROWTH_MAX: u64 = 3 * 6;
/// Names of members, and what is between them.
const MEMBERS_SIZE_MAX: u64 = 4 << 10;
/// A line each.
pub const NDJSON: &str = "application/x-ndjson";

/// Keys from one on, up to in front of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

impl Span {
    /// What begins with a prefix, from a key on, up to in front of one: all of that.
    pub fn of(prefix: Option<&[u8]>, from: Option<&[u8]>, to: Option<&[u8]>) -> Span {
        let (mut start, mut end) = KeyRange::prefix(prefix.unwrap_or_default()).half_open();
        if let Some(from) = from {
            start = start.max(from.to_vec());
        }
        if let Some(to) = to {
            end = Some(end.map_or_else(|| to.to_vec(), |end| end.min(to.to_vec())));
        }
        Span { start, end }
    }

    fn asked(ask: &Ask) -> Result<Span, Failure> {
        let part = |name| ask.query.bytes(name);
        let span = Span::of(part("prefix"), part("from"), part("to"));
        for key in ["prefix", "from", "to"].into_iter().filter_map(part) {
            ask.check_key(key)?;
        }
        Ok(span)
    }

    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub fn is_everything(&self) -> bool {
        self.start.is_empty() && self.end.is_none()
    }

    pub fn range(&self) -> KeyRange {
        KeyRange::from_half_open(&self.start, self.end.as_deref())
    }

    pub fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let range = self.range();
        (range.start, range.end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Rising,
    Falling,
}

/// What addresses have no room for, where keys are long: an address may be a few times shorter
/// than a key.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScanBody {
    prefix: Option<String>,
    prefix_base64: Option<String>,
    from: Option<String>,
    from_base64: Option<String>,
    to: Option<String>,
    to_base64: Option<String>,
    cursor: Option<String>,
}

impl ScanBody {
    async fn read(ask: &mut Ask) -> Result<ScanBody, Failure> {
        let limits = &ask.shared.limits;
        let bounds = BOUNDS_GROWTH_MAX.saturating_mul(limits.key_size as u64);
        // Whatever bodies may be, the cursor of any page can be sent.
        let size_max = bounds.min(limits.body_size) + CURSOR_LEN_MAX as u64 + MEMBERS_SIZE_MAX;
        ask.json_up_to(size_max).await
    }

    fn part(
        ask: &Ask,
        name: &str,
        text: Option<String>,
        base64: Option<&str>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let key = bytes_of(name, text, base64)?;
        key.as_deref().map_or(Ok(()), |key| ask.check_key(key))?;
        Ok(key)
    }

    /// The bounds, and the key behind which a page begins.
    fn parts(self, ask: &Ask) -> Result<(Span, Option<Vec<u8>>), Failure> {
        let prefix = Self::part(ask, "prefix", self.prefix, self.prefix_base64.as_deref())?;
        let from = Self::part(ask, "from", self.from, self.from_base64.as_deref())?;
        let to = Self::part(ask, "to", self.to, self.to_base64.as_deref())?;
        let cursor = self.cursor.map(|cursor| {
            let wrong = || Failure::new(Code::InvalidJson, "cursor: that of a page");
            base64_decoded(&cursor).ok_or_else(wrong)
        });
        Ok((Span::of(prefix.as_deref(), from.as_deref(), to.as_deref()), cursor.transpose()?))
    }
}

/// What a walk is to show.
#[derive(Clone, Copy, Debug)]
struct Page {
    order: Order,
    limit: usize,
    values: Values,
}

const YES_NO: &[(&str, bool)] = &[("true", true), ("false", false), ("yes", true), ("no", false)];

/// `GET /v1/keyspaces/{keyspace}/keys`
pub async fn scan(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let (span, behind) = (Span::asked(ask)?, ask.query.base64("cursor")?);
    scan_span(ask, keyspace, span, behind).await
}

/// `POST /v1/keyspaces/{keyspace}/scan`: the same, with what may be long in the body.
pub async fn scan_by_body(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let (span, behind) = ScanBody::read(ask).await?.parts(ask)?;
    scan_span(ask, keyspace, span, behind).await
}

/// Shows the keys of a span, or those of them behind the last of the page before.
async fn scan_span(
    ask: &Ask,
    keyspace: Keyspace,
    mut span: Span,
    behind: Option<Vec<u8>>,
) -> Outcome {
    let reverse = ask.query.choice("reverse", YES_NO)?.unwrap_or(false);
    let order = if reverse { Order::Falling } else { Order::Rising };
    let is_lines = ask.accepts(NDJSON);
    let limit_max = if is_lines { usize::MAX >> 1 } else { ask.shared.limits.page_count };
    let limit = ask.query.number("limit", 1..=limit_max)?;
    let limit = limit.unwrap_or(if is_lines { limit_max } else { LIMIT_DEFAULT.min(limit_max) });
    let values = ask.query.choice("values", VALUES)?.unwrap_or(Values::Short);
    if let Some(last) = behind {
        match order {
            Order::Rising => span.start = span.start.max([&last[..], &[0]].concat()),
            Order::Falling => span.end = Some(span.end.map_or(last.clone(), |end| end.min(last))),
        }
    }
    let then = moment(ask, &keyspace)?;
    let page = Page { order, limit, values };
    let (judge, is_short) = (judge(ask), limit <= SHORT_PAGE_MAX && values != Values::Full);
    let write = move |sink: &mut Sink| {
        let mut cursor = cursor_over(&keyspace, then.as_ref(), &span);
        match is_lines {
            true => write_lines(sink, &mut cursor, page, &judge),
            false => write_page(sink, &mut cursor, page, &judge),
        }
    };
    let content_type = if is_lines { NDJSON } else { "application/json" };
    match is_short {
        true => short_list(ask, content_type, write),
        false => list(ask, content_type, write).await,
    }
}

fn cursor_over(keyspace: &Keyspace, then: Option<&Snapshot>, span: &Span) -> Cursor {
    let range = match span.is_empty() {
        true => KeyRange::from_half_open(&span.start, Some(&span.start)),
        false => span.range(),
    };
    match then {
        None => keyspace.cursor(range),
        Some(then) => then.cursor(keyspace, range),
    }
}

/// Walks, and has each entry written. Returns the key to go on behind, when there is more.
fn walk(
    sink: &mut Sink,
    cursor: &mut Cursor,
    page: Page,
    judge: &impl Fn(&Error) -> Failure,
    mut write: impl FnMut(&mut Sink, &EntryRow<'_>),
) -> Result<Option<Vec<u8>>, Failure> {
    let judged = |done: Result<(), Error>| done.map_err(|error| judge(&error));
    judged(match page.order {
        Order::Rising => cursor.seek_first(),
        Order::Falling => cursor.seek_last(),
    })?;
    let (mut count, mut last) = (0, Vec::new());
    while cursor.valid() {
        let is_late = count % ENTRIES_A_LOOK == ENTRIES_A_LOOK - 1 && sink.is_late();
        if count >= page.limit || is_late {
            return Ok(Some(last));
        }
        let _until_it_is_written = room_for_value(sink, cursor, page, judge)?;
        let row = EntryRow::at(cursor, page.values).map_err(|error| judge(&error))?;
        write(sink, &row);
        count += 1;
        last.clear();
        last.extend_from_slice(cursor.key());
        if !sink.pass_on() {
            return Ok(None); // Nobody listens any more.
        }
        judged(match page.order {
            Order::Rising => cursor.next(),
            Order::Falling => cursor.prev(),
        })?;
    }
    Ok(None)
}

/// Room for the value at the position, in front of reading it.
fn room_for_value(
    sink: &Sink,
    cursor: &Cursor,
    page: Page,
    judge: &impl Fn(&Error) -> Failure,
) -> Result<Taken, Failure> {
    if page.values != Values::Full {
        return Ok(Taken::default());
    }
    let size = cursor.value_len().map_err(|error| judge(&error))?;
    sink.room(usize::try_from(size).unwrap_or(usize::MAX))
}

fn write_page(
    sink: &mut Sink,
    cursor: &mut Cursor,
    page: Page,
    judge: &impl Fn(&Error) -> Failure,
) -> Result<(), Failure> {
    sink.buffer().extend_from_slice(b"{\"entries\":[");
    let mut is_first = true;
    let more = walk(sink, cursor, page, judge, |sink, entry| {
        if !std::mem::take(&mut is_first) {
            sink.buffer().push(b',');
        }
        push_entry(sink, entry, page.values);
    })?;
    let more = json!(more.map(|last| base64(&last, Alphabet::Address)));
    sink.buffer().extend_from_slice(format!("],\"cursor\":{more}}}").as_bytes());
    Ok(())
}

/// The last line says that it is: `{"cursor":..}`.
fn write_lines(
    sink: &mut Sink,
    cursor: &mut Cursor,
    page: Page,
    judge: &impl Fn(&Error) -> Failure,
) -> Result<(), Failure> {
    let more = walk(sink, cursor, page, judge, |sink, entry| {
        push_entry(sink, entry, page.values);
        sink.buffer().push(b'\n');
    })?;
    let more = json!(more.map(|last| base64(&last, Alphabet::Address)));
    sink.buffer().extend_from_slice(format!("{{\"cursor\":{more}}}\n").as_bytes());
    Ok(())
}

/// `GET /v1/keyspaces/{keyspace}/count`
pub async fn count(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Read)?;
    let span = Span::asked(ask)?;
    let then = moment(ask, &keyspace)?;
    if span.is_empty() {
        return ok_json(&json!({ "count": 0 }));
    }
    let count = ask.blocking(move || match then {
        None => keyspace.count(span.bounds()),
        Some(then) => then.count(&keyspace, span.bounds()),
    });
    ok_json(&json!({ "count": count.await? }))
}

/// `DELETE /v1/keyspaces/{keyspace}/keys`
pub async fn delete(ask: &mut Ask) -> Outcome {
    let keyspace = ask.keyspace(Verb::Write)?;
    let span = Span::asked(ask)?;
    let is_confirmed = ask.query.choice("confirm", CONFIRM)?.is_some();
    let durability = ask.query.durability()?;
    if span.is_everything() && !is_confirmed {
        let what = "all keys would be deleted: add confirm=yes, or prefix, from, to";
        return Err(Failure::new(Code::ConfirmationNeeded, what));
    }
    delete_span(ask, keyspace, span, durability).await
}

/// What `confirm` may say.
pub const CONFIRM: &[(&str, ())] = &[("yes", ())];

/// Deletes a range. Where there are indexes all of it is read: so that is done elsewhere.
pub async fn delete_span(
    ask: &Ask,
    keyspace: Keyspace,
    span: Span,
    durability: Option<crate::config::Durability>,
) -> Outcome {
    if ask.once.is_some() {
        let done = write_if(ask, durability, Effort::Large, |transaction| match span.is_empty() {
            true => Ok(()),
            false => {
                let deleted = transaction.delete_range(&keyspace, span.bounds());
                deleted.map_err(|error| ask.engine(&error))
            }
        });
        return written(done.await?);
    }
    let mut batch = WriteBatch::new();
    if !span.is_empty() {
        batch.delete_range(&keyspace, span.bounds());
    }
    let shared = std::sync::Arc::clone(&ask.shared);
    let stamp = ask.blocking(move || {
        let store = &shared.store;
        store.buffered(|| store.db().write_with(batch, lithedb::Durability::Buffered))
    });
    let stamp = stamp.await?;
    ask.settle(durability).await?;
    written(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_what_all_of_their_parts_allow() {
        let span = |prefix: Option<&str>, from: Option<&str>, to: Option<&str>| {
            Span::of(prefix.map(str::as_bytes), from.map(str::as_bytes), to.map(str::as_bytes))
        };
        assert!(span(None, None, None).is_everything());
        assert!(!span(None, None, Some("a")).is_everything());
        let narrow = span(Some("ab"), Some("abc"), Some("b"));
        assert_eq!(narrow, Span { start: b"abc".to_vec(), end: Some(b"ac".to_vec()) });
        assert!(span(Some("ab"), Some("b"), None).is_empty());
        assert!(span(None, Some("b"), Some("b")).is_empty());
        assert!(span(None, None, Some("")).is_empty());
    }
}
