//! Strings and counters.

use std::time::Duration;

use lithedb::Expiry;

use crate::redis::call::{
    Call, Done, Failure, NOT_A_FLOAT, NOT_AN_INTEGER, OVERFLOW, SYNTAX, Until, say, wrong_arity,
};
use crate::redis::collection::Found;
use crate::redis::frame::Args;
use crate::redis::number::{float, integer, plain_float_text, put_integer};

/// How an expiry is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Millis,
    AtSeconds,
    AtMillis,
}

impl Unit {
    fn of(word: &[u8]) -> Option<Unit> {
        let units = [
            ("EX", Unit::Seconds),
            ("PX", Unit::Millis),
            ("EXAT", Unit::AtSeconds),
            ("PXAT", Unit::AtMillis),
        ];
        let found = units.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, unit)| *unit)
    }

    /// The expiry that such a number says; `None` when it is out of reach.
    pub fn until(self, number: i64) -> Option<Until> {
        let millis = match self {
            Unit::Seconds | Unit::AtSeconds => number.checked_mul(1000)?,
            Unit::Millis | Unit::AtMillis => number,
        };
        match self {
            Unit::Seconds | Unit::Millis if millis > i64::MAX / 2 => None,
            Unit::Seconds | Unit::Millis => {
                Some(Until::For(Duration::from_millis(u64::try_from(millis).ok()?)))
            }
            Unit::AtSeconds | Unit::AtMillis => Some(Until::at_millis(millis)),
        }
    }
}

fn bad_expiry<T>(command: &str) -> Result<T, Failure> {
    say(format!("ERR invalid expire time in '{command}' command"))
}

fn positive_expiry(unit: Unit, number: i64, command: &str) -> Result<Until, Failure> {
    let until = (number > 0).then(|| unit.until(number)).flatten();
    until.map_or_else(|| bad_expiry(command), Ok)
}

/// What `SET` is told besides key and value.
#[derive(Debug, Default)]
struct SetOptions {
    until: Option<Until>,
    keeps: bool,
    if_absent: bool,
    if_there: bool,
    tells: bool,
}

impl SetOptions {
    fn of(args: Args<'_>) -> Result<SetOptions, Failure> {
        let mut options = SetOptions::default();
        let mut at = 3;
        while at < args.count() {
            let has_expiry = options.until.is_some() || options.keeps;
            match Unit::of(args.at(at)) {
                Some(unit) if !has_expiry && at + 1 < args.count() => {
                    let number = integer(args.at(at + 1));
                    let number = number.map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
                    options.until = Some(positive_expiry(unit, number, "set")?);
                    at += 1;
                }
                None if args.is(at, "NX") && !options.if_there => options.if_absent = true,
                None if args.is(at, "XX") && !options.if_absent => options.if_there = true,
                None if args.is(at, "GET") => options.tells = true,
                None if args.is(at, "KEEPTTL") && !has_expiry => options.keeps = true,
                _ => return say(SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// When what this `SET` puts expires, if that is all it is told.
pub fn plain_set(args: Args<'_>) -> Option<Until> {
    match args.count() {
        3 => Some(Until::Default),
        5 => {
            let unit = Unit::of(args.at(3)).filter(|unit| *unit != Unit::AtSeconds)?;
            let number = integer(args.at(4)).filter(|number| *number > 0)?;
            unit.until(number)
        }
        _ => None,
    }
}

pub fn get(call: &mut Call<'_>) -> Done {
    let found = call.string(call.args.at(1))?;
    call.out.bulk_or_null(found.map(|entry| entry.value));
    Ok(())
}

pub fn set(call: &mut Call<'_>) -> Done {
    let (key, value) = (call.args.at(1), call.args.at(2));
    let options = SetOptions::of(call.args)?;
    let found = call.find(key)?;
    let old = match &found {
        Found::Text(entry) => Some(entry.clone()),
        Found::Collection(_) if options.tells => {
            return say(crate::redis::call::WRONG_TYPE);
        }
        Found::Collection(_) | Found::Nothing => None,
    };
    let is_there = !matches!(found, Found::Nothing);
    let is_done = !(options.if_absent && is_there || options.if_there && !is_there);
    if is_done {
        let kept = match &found {
            Found::Text(entry) => entry.expiry,
            Found::Collection(collection) => collection.expiry,
            Found::Nothing => Expiry::Never,
        };
        let kept = (options.keeps && is_there).then_some(Until::As(kept));
        call.make_way(key, &found)?;
        call.put_string(key, value, options.until.or(kept).unwrap_or(Until::Default))?;
    }
    match (options.tells, is_done) {
        (true, _) => call.out.bulk_or_null(old.map(|entry| entry.value)),
        (false, true) => call.out.ok(),
        (false, false) => call.out.null(),
    }
    Ok(())
}

pub fn setnx(call: &mut Call<'_>) -> Done {
    let (key, value) = (call.args.at(1), call.args.at(2));
    let is_absent = call.is_free(key)?;
    if is_absent {
        call.put_string(key, value, Until::Default)?;
    }
    call.out.done(is_absent);
    Ok(())
}

pub fn setex(call: &mut Call<'_>) -> Done {
    set_for(call, Unit::Seconds, "setex")
}

pub fn psetex(call: &mut Call<'_>) -> Done {
    set_for(call, Unit::Millis, "psetex")
}

fn set_for(call: &mut Call<'_>, unit: Unit, command: &str) -> Done {
    let until = positive_expiry(unit, call.integer(2)?, command)?;
    let key = call.args.at(1);
    let found = call.find(key)?;
    call.make_way(key, &found)?;
    call.put_string(key, call.args.at(3), until)?;
    call.out.ok();
    Ok(())
}

pub fn getset(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let old = call.string(key)?;
    call.put_string(key, call.args.at(2), Until::Default)?;
    call.out.bulk_or_null(old.map(|entry| entry.value));
    Ok(())
}

pub fn getdel(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let old = call.string(key)?;
    if old.is_some() {
        call.remove(key)?;
    }
    call.out.bulk_or_null(old.map(|entry| entry.value));
    Ok(())
}

pub fn getex(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let until = match call.args.count() {
        2 => None,
        3 if call.args.is(2, "PERSIST") => Some(Until::As(Expiry::Never)),
        4 => {
            let unit = Unit::of(call.args.at(2)).map_or_else(|| say(SYNTAX), Ok)?;
            Some(positive_expiry(unit, call.integer(3)?, "getex")?)
        }
        _ => return say(SYNTAX),
    };
    let found = call.string(key)?;
    if let (Some(entry), Some(until)) = (&found, until)
        && until != Until::As(entry.expiry)
    {
        call.put_string(key, &entry.value, until)?;
    }
    call.out.bulk_or_null(found.map(|entry| entry.value));
    Ok(())
}

pub fn mget(call: &mut Call<'_>) -> Done {
    call.out.array(call.args.count() - 1);
    for key in call.args.from(1).iter() {
        match call.find(key)? {
            Found::Text(entry) => call.out.bulk(&entry.value),
            Found::Collection(_) | Found::Nothing => call.out.null(),
        }
        call.check_size()?;
    }
    Ok(())
}

fn check_pairs(args: Args<'_>, command: &str) -> Done {
    match args.count() % 2 {
        1 => Ok(()),
        _ => wrong_arity(command),
    }
}

pub fn mset(call: &mut Call<'_>) -> Done {
    check_pairs(call.args, "mset")?;
    put_pairs(call)?;
    call.out.ok();
    Ok(())
}

fn put_pairs(call: &mut Call<'_>) -> Done {
    let args = call.args;
    for at in (1..args.count()).step_by(2) {
        let key = args.at(at);
        // Without collections nothing is in the way, and nothing is to be read.
        if call.second().is_some() {
            let found = call.find(key)?;
            call.make_way(key, &found)?;
        }
        call.put_string(key, args.at(at + 1), Until::Default)?;
    }
    Ok(())
}

pub fn msetnx(call: &mut Call<'_>) -> Done {
    check_pairs(call.args, "msetnx")?;
    let args = call.args;
    for at in (1..args.count()).step_by(2) {
        if !call.is_free(args.at(at))? {
            call.out.integer(0);
            return Ok(());
        }
    }
    put_pairs(call)?;
    call.out.integer(1);
    Ok(())
}

pub fn append(call: &mut Call<'_>) -> Done {
    let (key, more) = (call.args.at(1), call.args.at(2));
    let (value, until) = match call.string(key)? {
        Some(entry) => ([&*entry.value, more].concat(), Until::As(entry.expiry)),
        None => (more.to_vec(), Until::Default),
    };
    call.put_string(key, &value, until)?;
    call.out.count(value.len());
    Ok(())
}

pub fn strlen(call: &mut Call<'_>) -> Done {
    let found = call.string(call.args.at(1))?;
    call.out.count(found.map_or(0, |entry| entry.value.len()));
    Ok(())
}

/// The part of a list from one index to another, of which those below zero count from its end.
pub fn part(len: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { len.saturating_add(index) } else { index };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    match start <= end {
        true => start as usize..end as usize + 1,
        false => 0..0,
    }
}

/// The same of a string, of which an end in front of the first byte is the first byte.
pub fn part_of_text(len: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let first = i64::try_from(len).map_or(i64::MIN, |len| -len);
    part(len, start, if end < 0 { end.max(first) } else { end })
}

pub fn getrange(call: &mut Call<'_>) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let found = call.string(call.args.at(1))?;
    let value = found.map(|entry| entry.value).unwrap_or_default();
    call.out.bulk(&value[part_of_text(value.len(), start, end)]);
    Ok(())
}

pub fn setrange(call: &mut Call<'_>) -> Done {
    let (key, part) = (call.args.at(1), call.args.at(3));
    let Ok(offset) = usize::try_from(call.integer(2)?) else {
        return say("ERR offset is out of range");
    };
    let found = call.string(key)?;
    if part.is_empty() {
        call.out.count(found.map_or(0, |entry| entry.value.len()));
        return Ok(());
    }
    let end = offset.saturating_add(part.len());
    call.check_value(end)?;
    let until = found.as_ref().map_or(Until::Default, |entry| Until::As(entry.expiry));
    let mut value = found.map(|entry| entry.value.to_vec()).unwrap_or_default();
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(part);
    call.put_string(key, &value, until)?;
    call.out.count(value.len());
    Ok(())
}

pub fn incr(call: &mut Call<'_>) -> Done {
    add(call, 1)
}

pub fn decr(call: &mut Call<'_>) -> Done {
    add(call, -1)
}

pub fn incrby(call: &mut Call<'_>) -> Done {
    let by = call.integer(2)?;
    add(call, by)
}

pub fn decrby(call: &mut Call<'_>) -> Done {
    match call.integer(2)?.checked_neg() {
        Some(by) => add(call, by),
        None => say("ERR decrement would overflow"),
    }
}

fn add(call: &mut Call<'_>, by: i64) -> Done {
    let key = call.args.at(1);
    let found = call.string(key)?;
    let (old, until) = match &found {
        Some(entry) => (integer(&entry.value), Until::As(entry.expiry)),
        None => (Some(0), Until::Default),
    };
    let old = old.map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
    let new = old.checked_add(by).map_or_else(|| say(OVERFLOW), Ok)?;
    let mut text = Vec::with_capacity(20);
    put_integer(&mut text, new);
    call.put_string(key, &text, until)?;
    call.out.integer(new);
    Ok(())
}

pub fn incrbyfloat(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let found = call.string(key)?;
    let (old, until) = match &found {
        Some(entry) => (float(&entry.value), Until::As(entry.expiry)),
        None => (Some(0.0), Until::Default),
    };
    let old = old.map_or_else(|| say(NOT_A_FLOAT), Ok)?;
    let new = old + call.float(2)?;
    if !new.is_finite() {
        return say("ERR increment would produce NaN or Infinity");
    }
    let text = plain_float_text(new);
    call.put_string(key, text.as_bytes(), until)?;
    call.out.text(&text);
    Ok(())
}
