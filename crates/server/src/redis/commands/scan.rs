//! Scans: what was there from the first page to the last is told once at least, and what was not is
//! told at most once a page. Here it is exactly once: pages are in order of keys.

use std::ops::Bound;

use lithedb::{Entry, KeyRange};

use super::keys::AllKeys;
use super::sorted::score_of;
use crate::redis::call::{Call, Done, Failure, NOT_AN_INTEGER, SYNTAX, say};
use crate::redis::collection::{Kind, member_of};
use crate::redis::cursors::Scope;
use crate::redis::glob::{Steps, matches, prefix};
use crate::redis::number::integer;

/// Steps that patterns of one page may take.
const PATTERN_STEPS: u64 = 10_000_000;

/// What a scan is told.
struct Asked<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<Vec<u8>>,
}

impl<'a> Asked<'a> {
    /// Reads the cursor at an index, and the options behind it.
    fn of(call: &Call<'a>, from: usize, has_kind: bool) -> Result<Asked<'a>, Failure> {
        let args = call.args;
        let cursor = str::from_utf8(args.at(from)).ok();
        let cursor = cursor.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(cursor) = cursor.and_then(|text| text.parse().ok()) else {
            return say("ERR invalid cursor");
        };
        let mut asked = Asked { cursor, pattern: None, count: 10, kind: None };
        let mut at = from + 1;
        while at < args.count() {
            let Some(value) = args.get(at + 1) else { return say(SYNTAX) };
            match () {
                () if args.is(at, "MATCH") => asked.pattern = Some(value),
                () if args.is(at, "COUNT") => {
                    let count = integer(value).map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
                    let Ok(count @ 1..) = usize::try_from(count) else { return say(SYNTAX) };
                    asked.count = count.min(call.shared.limits.page_count);
                }
                () if has_kind && args.is(at, "TYPE") => {
                    asked.kind = Some(value.to_ascii_lowercase());
                }
                () => return say(SYNTAX),
            }
            at += 2;
        }
        Ok(asked)
    }

    fn fits(&self, text: &[u8], steps: &mut Steps) -> Result<bool, Failure> {
        let Some(pattern) = self.pattern else { return Ok(true) };
        let fits = matches(pattern, text, steps);
        fits.map_or_else(|| say("ERR the pattern takes too much"), Ok)
    }

    /// Behind what the page begins.
    fn behind(&self, call: &Call<'_>, scope: Scope) -> Result<Option<Vec<u8>>, Failure> {
        if self.cursor == 0 {
            return Ok(None);
        }
        match call.shared.redis.cursors.find(scope, self.cursor) {
            Some(behind) => Ok(Some(behind)),
            None => say("ERR invalid cursor: it is not known any more, begin again with 0"),
        }
    }

    /// The part of a range that is left.
    fn rest(&self, mut range: KeyRange, behind: Option<Vec<u8>>) -> KeyRange {
        if let Some(behind) = behind.filter(|behind| range.starts_by(behind)) {
            range.start = Bound::Excluded(behind);
        }
        range
    }
}

/// Tells a cursor, and how many things follow.
fn head(call: &mut Call<'_>, scope: Scope, behind: Option<&[u8]>, count: usize) {
    let cursor = behind.map_or(0, |behind| call.shared.redis.cursors.keep(scope, behind));
    call.out.array(2);
    call.out.text(&cursor.to_string());
    call.out.array(count);
}

pub fn scan(call: &mut Call<'_>) -> Done {
    let asked = Asked::of(call, 1, true)?;
    let scope = Scope { database: call.database, collection: 0 };
    let behind = asked.behind(call, scope)?;
    let all = KeyRange::prefix(&asked.pattern.map(prefix).unwrap_or_default());
    let range = asked.rest(all, behind);
    let mut steps = Steps(PATTERN_STEPS);
    let mut found = Vec::new();
    let mut last = None;
    let (mut walked, mut bytes) = (0, 0);
    let mut keys = AllKeys::new(call, &range)?;
    let is_over = loop {
        let Some(listed) = keys.next().transpose()? else { break true };
        walked += 1;
        let kind = match &listed.record {
            None => "string",
            Some(record) => kind_of(record),
        };
        let is_kind = asked.kind.as_deref().is_none_or(|asked| asked == kind.as_bytes());
        if is_kind && asked.fits(&listed.key, &mut steps)? {
            found.push(listed.key.clone());
        }
        bytes += listed.key.len();
        last = Some(listed.key);
        if walked >= asked.count || bytes > call.shared.limits.output_size {
            break false;
        }
    };
    drop(keys);
    let behind = last.filter(|_| !is_over);
    head(call, scope, behind.as_deref(), found.len());
    found.iter().for_each(|key| call.out.bulk(key));
    Ok(())
}

fn kind_of(record: &Entry) -> &'static str {
    let kinds = [Kind::Hash, Kind::Set, Kind::Sorted, Kind::List];
    let found = kinds.iter().find(|kind| record.value.get(1) == Some(&(**kind as u8)));
    found.map_or("none", |kind| kind.name())
}

fn members(call: &mut Call<'_>, kind: Kind) -> Done {
    let asked = Asked::of(call, 2, false)?;
    let Some(collection) = call.collection(call.args.at(1), kind)? else {
        head(call, Scope { database: 0, collection: 0 }, None, 0);
        return Ok(());
    };
    let scope = Scope { database: call.database, collection: collection.id };
    let behind = asked.behind(call, scope)?;
    let start = asked.pattern.map(prefix).unwrap_or_default();
    let all = KeyRange::prefix(&collection.member_key(&start));
    let range = asked.rest(all, behind);
    let mut steps = Steps(PATTERN_STEPS);
    let mut found = Vec::new();
    let (mut last, mut walked, mut bytes) = (None, 0, 0);
    let second = call.second();
    let mut walk = call.view.walk(second, range)?;
    let is_over = loop {
        let Some(entry) = walk.next().transpose()? else { break true };
        walked += 1;
        bytes += entry.key.len() + entry.value.len();
        last = Some(entry.key.clone());
        if asked.fits(member_of(&entry.key), &mut steps)? {
            found.push(entry);
        }
        if walked >= asked.count || bytes > call.shared.limits.output_size {
            break false;
        }
    };
    drop(walk);
    let each = if kind == Kind::Set { 1 } else { 2 };
    let behind = last.filter(|_| !is_over);
    head(call, scope, behind.as_deref(), found.len() * each);
    for entry in &found {
        call.out.bulk(member_of(&entry.key));
        match kind {
            Kind::Hash | Kind::List => call.out.bulk(&entry.value),
            Kind::Sorted => {
                let score = crate::redis::number::float_text(score_of(&entry.value));
                call.out.text(&score);
            }
            Kind::Set => {}
        }
    }
    Ok(())
}

pub fn hscan(call: &mut Call<'_>) -> Done {
    members(call, Kind::Hash)
}

pub fn sscan(call: &mut Call<'_>) -> Done {
    members(call, Kind::Set)
}

pub fn zscan(call: &mut Call<'_>) -> Done {
    members(call, Kind::Sorted)
}
