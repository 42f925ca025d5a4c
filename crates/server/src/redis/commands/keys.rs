//! Keys, whatever they have.

use std::cmp::Ordering;

use lithedb::{Entry, Expiry, KeyRange, Slice};

use super::strings::Unit;
use crate::redis::call::{Call, Done, Failure, NO_SUCH_KEY, SYNTAX, Until, millis_of, say};
use crate::redis::collection::{Found, Kind, Looked, key_of_record, record_key};
use crate::redis::databases::DATABASE_COUNT;
use crate::redis::glob;
use crate::redis::number::integer;

/// Keys that `KEYS` tells at most: whoever wants more scans.
const KEYS_MAX: usize = 1_000_000;

pub fn del(call: &mut Call<'_>) -> Done {
    let mut count = 0;
    for key in call.args.from(1).iter() {
        count += usize::from(call.remove(key)?);
    }
    call.out.count(count);
    Ok(())
}

pub fn exists(call: &mut Call<'_>) -> Done {
    let mut count = 0;
    for key in call.args.from(1).iter() {
        count += usize::from(!call.is_free(key)?);
    }
    call.out.count(count);
    Ok(())
}

pub fn kind(call: &mut Call<'_>) -> Done {
    let name = match call.look(call.args.at(1))? {
        Looked::Nothing => "none",
        Looked::Text => "string",
        Looked::Collection(collection) => collection.kind.name(),
    };
    call.out.simple(name);
    Ok(())
}

fn expiry_of(found: &Found) -> Option<Expiry> {
    match found {
        Found::Nothing => None,
        Found::Text(entry) => Some(entry.expiry),
        Found::Collection(collection) => Some(collection.expiry),
    }
}

fn set_expiry(call: &mut Call<'_>, key: &[u8], found: Found, expiry: Expiry) -> Done {
    match found {
        Found::Nothing => Ok(()),
        Found::Text(entry) => call.put_string(key, &entry.value, Until::As(expiry)),
        Found::Collection(mut collection) => call.set_expiry(key, &mut collection, expiry),
    }
}

pub fn expire(call: &mut Call<'_>) -> Done {
    expire_in(call, Unit::Seconds, "expire")
}

pub fn pexpire(call: &mut Call<'_>) -> Done {
    expire_in(call, Unit::Millis, "pexpire")
}

pub fn expireat(call: &mut Call<'_>) -> Done {
    expire_in(call, Unit::AtSeconds, "expireat")
}

pub fn pexpireat(call: &mut Call<'_>) -> Done {
    expire_in(call, Unit::AtMillis, "pexpireat")
}

/// Under which condition an expiry is set.
#[derive(Debug, Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn of(call: &Call<'_>) -> Result<Conditions, Failure> {
        let mut found = Conditions::default();
        for option in call.args.from(3).iter() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" => found.if_none = true,
                b"XX" => found.if_some = true,
                b"GT" => found.if_later = true,
                b"LT" => found.if_sooner = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return say(format!("ERR Unsupported option {option}"));
                }
            }
        }
        if found.if_none && (found.if_some || found.if_later || found.if_sooner) {
            return say("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if found.if_later && found.if_sooner {
            return say("ERR GT and LT options at the same time are not compatible");
        }
        Ok(found)
    }

    fn allow(&self, old: Expiry, at: i64) -> bool {
        match old.time().map(millis_of) {
            None => !self.if_some && !self.if_later,
            Some(old) => {
                !self.if_none && (!self.if_later || at > old) && (!self.if_sooner || at < old)
            }
        }
    }
}

fn expire_in(call: &mut Call<'_>, unit: Unit, command: &str) -> Done {
    let (key, number) = (call.args.at(1), call.integer(2)?);
    let conditions = Conditions::of(call)?;
    let now = call.now();
    let millis = match unit {
        Unit::Seconds | Unit::AtSeconds => number.checked_mul(1000),
        Unit::Millis | Unit::AtMillis => Some(number),
    };
    let at = match unit {
        Unit::Seconds | Unit::Millis => millis.and_then(|millis| millis.checked_add(now)),
        Unit::AtSeconds | Unit::AtMillis => millis,
    };
    let Some(at) = at else {
        return say(format!("ERR invalid expire time in '{command}' command"));
    };
    let found = call.find(key)?;
    let is_due = expiry_of(&found).is_some_and(|old| conditions.allow(old, at));
    if is_due {
        match at <= now {
            true => {
                call.remove(key)?;
            }
            false => {
                let expiry = Expiry::At(crate::redis::call::moment(at));
                set_expiry(call, key, found, expiry)?;
            }
        }
    }
    call.out.done(is_due);
    Ok(())
}

pub fn persist(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let found = call.find(key)?;
    let is_due = matches!(expiry_of(&found), Some(Expiry::At(_)));
    if is_due {
        set_expiry(call, key, found, Expiry::Never)?;
    }
    call.out.done(is_due);
    Ok(())
}

/// -2 without the key, -1 without an expiry, else the milliseconds at which it expires.
fn expires_at(call: &Call<'_>) -> Result<i64, Failure> {
    Ok(match expiry_of(&call.find(call.args.at(1))?) {
        None => -2,
        Some(Expiry::Never) => -1,
        Some(Expiry::At(time)) => millis_of(time),
    })
}

fn in_seconds(millis: i64) -> i64 {
    if millis < 0 { millis } else { (millis + 500) / 1000 }
}

fn left(call: &Call<'_>) -> Result<i64, Failure> {
    let at = expires_at(call)?;
    Ok(if at < 0 { at } else { (at - call.now()).max(0) })
}

pub fn ttl(call: &mut Call<'_>) -> Done {
    let left = left(call)?;
    call.out.integer(in_seconds(left));
    Ok(())
}

pub fn pttl(call: &mut Call<'_>) -> Done {
    let left = left(call)?;
    call.out.integer(left);
    Ok(())
}

pub fn expiretime(call: &mut Call<'_>) -> Done {
    let at = expires_at(call)?;
    call.out.integer(in_seconds(at));
    Ok(())
}

pub fn pexpiretime(call: &mut Call<'_>) -> Done {
    let at = expires_at(call)?;
    call.out.integer(at);
    Ok(())
}

pub fn rename(call: &mut Call<'_>) -> Done {
    let (from, to) = (call.args.at(1), call.args.at(2));
    let found = call.find(from)?;
    if matches!(found, Found::Nothing) {
        return say(NO_SUCH_KEY);
    }
    if from != to {
        move_to(call, from, to, found)?;
    }
    call.out.ok();
    Ok(())
}

pub fn renamenx(call: &mut Call<'_>) -> Done {
    let (from, to) = (call.args.at(1), call.args.at(2));
    let found = call.find(from)?;
    if matches!(found, Found::Nothing) {
        return say(NO_SUCH_KEY);
    }
    let is_free = from != to && call.is_free(to)?;
    if is_free {
        move_to(call, from, to, found)?;
    }
    call.out.done(is_free);
    Ok(())
}

/// A collection is renamed by its record: members know its id alone.
fn move_to(call: &mut Call<'_>, from: &[u8], to: &[u8], found: Found) -> Done {
    let there = call.find(to)?;
    match found {
        Found::Nothing => Ok(()),
        Found::Text(entry) => {
            call.remove(from)?;
            call.make_way(to, &there)?;
            call.put_string(to, &entry.value, Until::As(entry.expiry))
        }
        Found::Collection(mut collection) => {
            call.remove(to)?;
            let second = call.second_to_write()?;
            call.delete(second, &record_key(from))?;
            let expiry = collection.expiry;
            call.set_expiry(to, &mut collection, expiry)
        }
    }
}

/// The number of a database, as an argument has it.
fn database_at(call: &Call<'_>, index: usize) -> Result<usize, Failure> {
    let number = usize::try_from(call.integer(index)?).ok();
    let number = number.filter(|number| *number < DATABASE_COUNT);
    number.map_or_else(|| say("ERR DB index is out of range"), Ok)
}

const SAME: &str = "ERR source and destination objects are the same";

pub fn copy(call: &mut Call<'_>) -> Done {
    let (from, to) = (call.args.at(1), call.args.at(2));
    let (mut replaces, mut database) = (false, call.database);
    let mut at = 3;
    while at < call.args.count() {
        match () {
            () if call.args.is(at, "REPLACE") => replaces = true,
            () if call.args.is(at, "DB") && at + 1 < call.args.count() => {
                at += 1;
                database = database_at(call, at)?;
            }
            () => return say(SYNTAX),
        }
        at += 1;
    }
    if from == to && database == call.database {
        return say(SAME);
    }
    let found = call.find(from)?;
    let there = call.in_database(database)?.find(to)?;
    let is_due = !matches!(found, Found::Nothing) && (replaces || matches!(there, Found::Nothing));
    if is_due {
        copy_to(call, (database, to), found)?;
    }
    call.out.done(is_due);
    Ok(())
}

pub fn move_key(call: &mut Call<'_>) -> Done {
    let (key, database) = (call.args.at(1), database_at(call, 2)?);
    if database == call.database {
        return say(SAME);
    }
    let found = call.find(key)?;
    let there = call.in_database(database)?.find(key)?;
    let is_due = !matches!(found, Found::Nothing) && matches!(there, Found::Nothing);
    if is_due {
        copy_to(call, (database, key), found)?;
        call.remove(key)?;
    }
    call.out.done(is_due);
    Ok(())
}

/// Writes what was found to a key, in place of what that has.
fn copy_to(call: &mut Call<'_>, (database, to): (usize, &[u8]), found: Found) -> Done {
    call.in_database(database)?.remove(to)?;
    let from = match found {
        Found::Nothing => return Ok(()),
        Found::Text(entry) => {
            let until = Until::As(entry.expiry);
            return call.in_database(database)?.put_string(to, &entry.value, until);
        }
        Found::Collection(from) => from,
    };
    let mut copy = call.new_collection(from.kind);
    (copy.count, copy.head) = (from.count, from.head);
    let mut ranges = vec![from.members()];
    ranges.extend((from.kind == Kind::Sorted).then(|| from.scores()));
    for range in ranges {
        let entries = call.entries(range)?;
        let mut target = call.in_database(database)?;
        let second = target.second_to_write()?;
        for entry in entries {
            let mut key = entry.key.to_vec();
            key[1..9].copy_from_slice(&copy.id.to_be_bytes());
            target.put(second, &key, &entry.value, Until::As(Expiry::Never))?;
        }
    }
    call.in_database(database)?.set_expiry(to, &mut copy, from.expiry)
}

/// Keys in order, of strings and collections together.
pub struct AllKeys<'a> {
    strings: std::iter::Peekable<crate::redis::call::Walk<'a>>,
    records: std::iter::Peekable<crate::redis::call::Walk<'a>>,
}

/// A key, and its record if it is a collection.
pub struct Listed {
    pub key: Slice,
    pub record: Option<Entry>,
}

impl<'a> AllKeys<'a> {
    pub fn new(call: &'a Call<'_>, range: &KeyRange) -> Result<AllKeys<'a>, Failure> {
        use std::ops::Bound;
        let bound = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included(record_key(key)),
            Bound::Excluded(key) => Bound::Excluded(record_key(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let end = match bound(&range.end) {
            Bound::Unbounded => Bound::Excluded(b"s".to_vec()),
            end => end,
        };
        let start = match bound(&range.start) {
            Bound::Unbounded => Bound::Included(b"r".to_vec()),
            start => start,
        };
        let records = call.view.walk(call.second(), KeyRange { start, end })?;
        let strings = call.view.walk(call.strings(), range.clone())?;
        Ok(AllKeys { strings: strings.peekable(), records: records.peekable() })
    }
}

impl Iterator for AllKeys<'_> {
    type Item = Result<Listed, lithedb::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.strings.peek(), self.records.peek()) {
            (Some(Ok(string)), Some(Ok(record))) => (*string.key).cmp(key_of_record(&record.key)),
            (None, Some(_)) | (_, Some(Err(_))) => Ordering::Greater,
            (_, _) => Ordering::Less,
        };
        if order == Ordering::Equal {
            self.records.next(); // Hidden.
        }
        Some(match order {
            Ordering::Greater => self.records.next()?.map(|record| Listed {
                key: Slice::from(key_of_record(&record.key)),
                record: Some(record),
            }),
            _ => self.strings.next()?.map(|entry| Listed { key: entry.key, record: None }),
        })
    }
}

pub fn keys(call: &mut Call<'_>) -> Done {
    let pattern = call.args.at(1);
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut steps = glob::Steps(crate::redis::call::STEPS_MAX);
    for listed in AllKeys::new(call, &KeyRange::prefix(&glob::prefix(pattern)))? {
        let key = listed?.key;
        match glob::matches(pattern, &key, &mut steps) {
            Some(true) => {
                bytes += key.len() + 16;
                found.push(key);
            }
            Some(false) => {}
            None => return say("ERR there is too much to go through: SCAN does it in parts"),
        }
        if found.len() > KEYS_MAX || bytes > call.shared.limits.output_size {
            return say("ERR there are too many keys for one reply: SCAN tells them in parts");
        }
    }
    call.out.array(found.len());
    found.iter().for_each(|key| call.out.bulk(key));
    Ok(())
}

pub fn dbsize(call: &mut Call<'_>) -> Done {
    let strings = call.view.count(call.strings(), KeyRange::all())?;
    let records = call.view.count(call.second(), KeyRange::prefix(b"r"))?;
    call.out.integer(i64::try_from(strings + records).unwrap_or(i64::MAX));
    Ok(())
}

pub fn randomkey(call: &mut Call<'_>) -> Done {
    let strings = call.view.count(call.strings(), KeyRange::all())?;
    let records = call.view.count(call.second(), KeyRange::prefix(b"r"))?;
    let all = usize::try_from(strings + records).unwrap_or(usize::MAX);
    let strings = usize::try_from(strings).unwrap_or(usize::MAX);
    let found = match super::random(all) {
        None => None,
        Some(drawn) if drawn < strings => {
            let mut walk = call.view.walk(call.strings(), KeyRange::all())?;
            walk.nth(drawn).transpose()?.map(|entry| entry.key)
        }
        Some(drawn) => {
            let mut walk = call.view.walk(call.second(), KeyRange::prefix(b"r"))?;
            let found = walk.nth(drawn - strings).transpose()?;
            found.map(|entry| Slice::from(key_of_record(&entry.key)))
        }
    };
    call.out.bulk_or_null(found);
    Ok(())
}

pub fn object(call: &mut Call<'_>) -> Done {
    let found = call.find(call.args.at(2))?;
    if matches!(found, Found::Nothing) {
        call.out.null();
        return Ok(());
    }
    match call.args.at(1).to_ascii_lowercase().as_slice() {
        b"encoding" => call.out.text(match found {
            Found::Text(entry) if integer(&entry.value).is_some() => "int",
            Found::Text(entry) if entry.value.len() <= 44 => "embstr",
            Found::Text(_) | Found::Nothing => "raw",
            Found::Collection(collection) => match collection.kind {
                Kind::Hash | Kind::Set => "hashtable",
                Kind::Sorted => "skiplist",
                Kind::List => "quicklist",
            },
        }),
        b"refcount" => call.out.integer(1),
        b"idletime" => call.out.integer(0),
        b"freq" => return say("ERR an LFU maxmemory policy is not selected"),
        _ => return super::about::unknown_subcommand(call.args),
    }
    Ok(())
}

/// About what a key takes on disk.
pub fn memory(call: &mut Call<'_>) -> Done {
    match call.args.count() {
        3 => {}
        5 if call.args.is(3, "samples") => {
            if call.integer(4)? < 0 {
                return say(SYNTAX);
            }
        }
        _ => return say(SYNTAX),
    }
    let key = call.args.at(2);
    match call.find(key)? {
        Found::Nothing => call.out.null(),
        Found::Text(entry) => call.out.count(key.len() + entry.value.len() + 16),
        Found::Collection(collection) => {
            let sample = call.view.walk(call.second(), collection.members())?.take(100);
            let sizes: Result<Vec<usize>, _> = sample
                .map(|entry| entry.map(|entry| entry.key.len() + entry.value.len()))
                .collect();
            let sizes = sizes?;
            let mean = sizes.iter().sum::<usize>() / sizes.len().max(1) + 16;
            call.out.count(key.len() + 32 + mean * collection.count as usize);
        }
    }
    Ok(())
}

/// Deletes everything of a database.
pub fn flushdb(call: &mut Call<'_>) -> Done {
    super::server::check_flush(call.args)?;
    let strings = call.strings_to_write()?;
    call.delete_prefix(strings, b"")?;
    if let Some(second) = call.second() {
        call.delete_prefix(second, b"")?;
    }
    call.out.ok();
    Ok(())
}
