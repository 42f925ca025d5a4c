//! Lists: elements at indices that ascend without gaps. Pushing, popping and replacing are one
//! write; what is inserted or taken out within moves the elements on the side with fewer of them.

use std::ops::{Bound, Range};

use lithedb::{KeyRange, Slice};

use crate::redis::call::{
    Call, Done, Failure, NO_SUCH_KEY, NOT_AN_INTEGER, SYNTAX, TOO_MUCH, Until, say,
};
use crate::redis::collection::{Collection, Kind};
use crate::redis::number::integer;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

fn list(call: &Call<'_>) -> Result<Option<Collection>, Failure> {
    call.collection(call.args.at(1), Kind::List)
}

/// Puts an element at an end. The record is not written.
fn put_at(call: &mut Call<'_>, list: &mut Collection, end: End, element: &[u8]) -> Done {
    call.check_value(element.len())?;
    let second = call.second_to_write()?;
    let place = match end {
        End::Left => {
            list.head = list.head.wrapping_sub(1);
            0
        }
        End::Right => list.count,
    };
    list.count += 1;
    call.put(second, &list.element_key(place), element, Until::Default)
}

/// Takes the element at an end of a list that has some. The record is not written.
fn take_at(call: &mut Call<'_>, list: &mut Collection, end: End) -> Result<Slice, Failure> {
    let second = call.second_to_write()?;
    let key = list.element_key(if end == End::Left { 0 } else { list.count - 1 });
    let element = call.view.value(Some(second), &key)?.unwrap_or_default();
    call.delete(second, &key)?;
    list.head = list.head.wrapping_add(i64::from(end == End::Left));
    list.count -= 1;
    Ok(element)
}

fn push(call: &mut Call<'_>, end: End, only_if_there: bool) -> Done {
    let args = call.args;
    let found = list(call)?;
    if only_if_there && found.is_none() {
        call.out.integer(0);
        return Ok(());
    }
    let mut list = found.unwrap_or_else(|| call.new_collection(Kind::List));
    for element in args.from(2).iter() {
        put_at(call, &mut list, end, element)?;
    }
    call.save(args.at(1), &list)?;
    call.out.count(list.count as usize);
    Ok(())
}

pub fn lpush(call: &mut Call<'_>) -> Done {
    push(call, End::Left, false)
}

pub fn rpush(call: &mut Call<'_>) -> Done {
    push(call, End::Right, false)
}

pub fn lpushx(call: &mut Call<'_>) -> Done {
    push(call, End::Left, true)
}

pub fn rpushx(call: &mut Call<'_>) -> Done {
    push(call, End::Right, true)
}

fn pop(call: &mut Call<'_>, end: End) -> Done {
    let key = call.args.at(1);
    let wanted = match call.args.count() {
        2 => None,
        3 => match usize::try_from(call.integer(2)?) {
            Ok(count) => Some(count),
            Err(_) => return say("ERR value is out of range, must be positive"),
        },
        _ => return say(SYNTAX),
    };
    let Some(mut list) = list(call)? else {
        match wanted {
            Some(_) => call.out.null_array(),
            None => call.out.null(),
        }
        return Ok(());
    };
    let count = wanted.unwrap_or(1).min(usize::try_from(list.count).unwrap_or(usize::MAX));
    if wanted.is_some() {
        call.out.array(count);
    }
    for _ in 0..count {
        call.step()?;
        let element = take_at(call, &mut list, end)?;
        call.out.bulk(&element);
        call.check_size()?;
    }
    if count > 0 {
        call.save(key, &list)?;
    }
    Ok(())
}

pub fn lpop(call: &mut Call<'_>) -> Done {
    pop(call, End::Left)
}

pub fn rpop(call: &mut Call<'_>) -> Done {
    pop(call, End::Right)
}

pub fn llen(call: &mut Call<'_>) -> Done {
    let list = list(call)?;
    call.out.count(list.map_or(0, |list| list.count as usize));
    Ok(())
}

fn places(list: &Collection, part: &Range<usize>) -> KeyRange {
    KeyRange {
        start: Bound::Included(list.element_key(part.start as u64)),
        end: Bound::Excluded(list.element_key(part.end as u64)),
    }
}

pub fn lrange(call: &mut Call<'_>) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let elements = match list(call)? {
        Some(list) => {
            let part = super::strings::part(list.count as usize, start, end);
            if part.is_empty() { Vec::new() } else { call.entries(places(&list, &part))? }
        }
        None => Vec::new(),
    };
    call.out.array(elements.len());
    elements.iter().for_each(|entry| call.out.bulk(&entry.value));
    Ok(())
}

/// The place of an index, of which those below zero count from the end.
fn place(list: &Collection, index: i64) -> Option<u64> {
    let count = i64::try_from(list.count).unwrap_or(i64::MAX);
    let place = if index < 0 { count.checked_add(index)? } else { index };
    u64::try_from(place).ok().filter(|place| *place < list.count)
}

pub fn lindex(call: &mut Call<'_>) -> Done {
    let index = call.integer(2)?;
    let list = list(call)?;
    let key = list.and_then(|list| Some(list.element_key(place(&list, index)?)));
    let found = match key {
        Some(key) => call.view.value(call.second(), &key)?,
        None => None,
    };
    call.out.bulk_or_null(found);
    Ok(())
}

pub fn lset(call: &mut Call<'_>) -> Done {
    let (key, element) = (call.args.at(1), call.args.at(3));
    let Some(list) = list(call)? else { return say(NO_SUCH_KEY) };
    let Some(place) = place(&list, call.integer(2)?) else {
        return say("ERR index out of range");
    };
    call.check_value(element.len())?;
    let second = call.second_to_write()?;
    call.put(second, &list.element_key(place), element, Until::Default)?;
    call.save(key, &list)?;
    call.out.ok();
    Ok(())
}

pub fn ltrim(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    if let Some(mut list) = list(call)? {
        let count = list.count as usize;
        let kept = super::strings::part(count, start, end);
        let second = call.second_to_write()?;
        for part in [0..kept.start, kept.end..count] {
            for entry in part {
                call.step()?;
                call.delete(second, &list.element_key(entry as u64))?;
            }
        }
        if kept.len() < count {
            list.head = list.head.wrapping_add(kept.start as i64);
            list.count = kept.len() as u64;
            call.save(key, &list)?;
        }
    }
    call.out.ok();
    Ok(())
}

fn end_of(call: &Call<'_>, index: usize) -> Result<End, Failure> {
    match () {
        () if call.args.is(index, "LEFT") => Ok(End::Left),
        () if call.args.is(index, "RIGHT") => Ok(End::Right),
        () => say(SYNTAX),
    }
}

pub fn lmove(call: &mut Call<'_>) -> Done {
    let (from, to) = (end_of(call, 3)?, end_of(call, 4)?);
    move_between(call, from, to)
}

pub fn rpoplpush(call: &mut Call<'_>) -> Done {
    move_between(call, End::Right, End::Left)
}

fn move_between(call: &mut Call<'_>, from: End, to: End) -> Done {
    let (source_key, target_key) = (call.args.at(1), call.args.at(2));
    let Some(mut source) = list(call)? else {
        call.out.null();
        return Ok(());
    };
    let element = if source_key == target_key {
        let element = take_at(call, &mut source, from)?;
        put_at(call, &mut source, to, &element)?;
        element
    } else {
        let mut target = call.collection_or_new(target_key, Kind::List)?;
        let element = take_at(call, &mut source, from)?;
        put_at(call, &mut target, to, &element)?;
        call.save(target_key, &target)?;
        element
    };
    call.save(source_key, &source)?;
    call.out.bulk(&element);
    Ok(())
}

/// The places of elements that are equal to this, from one end on, `limit` of them at most; `None`
/// in the place of `length` looks at all.
fn find(
    call: &mut Call<'_>,
    list: &Collection,
    element: &[u8],
    (end, limit, length): (End, usize, Option<usize>),
) -> Result<Vec<usize>, Failure> {
    let all = 0..list.count as usize;
    let mut walk = call.view.walk(call.second(), places(list, &all))?;
    let mut found = Vec::new();
    for looked in 0..all.end.min(length.unwrap_or(usize::MAX)) {
        if found.len() >= limit {
            break;
        }
        if !call.steps.take() {
            return say(TOO_MUCH);
        }
        let (next, place) = match end {
            End::Left => (walk.next(), looked),
            End::Right => (walk.next_back(), all.end - 1 - looked),
        };
        let Some(entry) = next.transpose()? else { break };
        if *entry.value == *element {
            found.push(place);
        }
    }
    Ok(found)
}

/// What is told to `LPOS`.
struct Sought {
    rank: i64,
    count: Option<usize>,
    length: Option<usize>,
}

impl Sought {
    fn of(call: &Call<'_>) -> Result<Sought, Failure> {
        let mut sought = Sought { rank: 1, count: None, length: None };
        for at in (3..call.args.count()).step_by(2) {
            let is_known = ["RANK", "COUNT", "MAXLEN"].iter().any(|word| call.args.is(at, word));
            let Some(text) = call.args.get(at + 1).filter(|_| is_known) else {
                return say(SYNTAX);
            };
            let number = integer(text).map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
            if call.args.is(at, "RANK") {
                if number == 0 {
                    return say(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    );
                }
                sought.rank = number;
                continue;
            }
            let is_count = call.args.is(at, "COUNT");
            let Ok(number) = usize::try_from(number) else {
                let word = if is_count { "COUNT" } else { "MAXLEN" };
                return say(format!("ERR {word} can't be negative"));
            };
            match is_count {
                true => sought.count = Some(number),
                false => sought.length = Some(number).filter(|length| *length > 0),
            }
        }
        Ok(sought)
    }
}

pub fn lpos(call: &mut Call<'_>) -> Done {
    let sought = Sought::of(call)?;
    let end = if sought.rank < 0 { End::Right } else { End::Left };
    let skipped = usize::try_from(sought.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let wanted = match sought.count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let limit = skipped.saturating_add(wanted);
    let found = match list(call)? {
        Some(list) => find(call, &list, call.args.at(2), (end, limit, sought.length))?,
        None => Vec::new(),
    };
    let told = &found[skipped.min(found.len())..];
    match (sought.count, told) {
        (None, []) => call.out.null(),
        (None, [first, ..]) => call.out.count(*first),
        (Some(_), told) => {
            call.out.array(told.len());
            told.iter().for_each(|place| call.out.count(*place));
        }
    }
    call.check_size()
}

pub fn linsert(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let is_behind = args.is(2, "AFTER");
    if !is_behind && !args.is(2, "BEFORE") {
        return say(SYNTAX);
    }
    let (key, element) = (args.at(1), args.at(4));
    let Some(mut list) = list(call)? else {
        call.out.integer(0);
        return Ok(());
    };
    let found = find(call, &list, args.at(3), (End::Left, 1, None))?;
    let Some(pivot) = found.first() else {
        call.out.integer(-1);
        return Ok(());
    };
    call.check_value(element.len())?;
    let second = call.second_to_write()?;
    let (count, place) = (list.count as usize, pivot + usize::from(is_behind));
    let is_left = place < count - place;
    let part = if is_left { 0..place } else { place..count };
    let moved = if part.is_empty() { Vec::new() } else { call.entries(places(&list, &part))? };
    list.head = list.head.wrapping_sub(i64::from(is_left));
    list.count += 1;
    let first = part.start + usize::from(!is_left);
    for (at, entry) in (first..).zip(&moved) {
        call.put(second, &list.element_key(at as u64), &entry.value, Until::Default)?;
    }
    call.put(second, &list.element_key(place as u64), element, Until::Default)?;
    call.save(key, &list)?;
    call.out.count(list.count as usize);
    Ok(())
}

pub fn lrem(call: &mut Call<'_>) -> Done {
    let (key, wanted) = (call.args.at(1), call.integer(2)?);
    let Some(mut list) = list(call)? else {
        call.out.integer(0);
        return Ok(());
    };
    let end = if wanted < 0 { End::Right } else { End::Left };
    let limit = match usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX) {
        0 => usize::MAX,
        limit => limit,
    };
    let mut gone = find(call, &list, call.args.at(3), (end, limit, None))?;
    gone.sort_unstable();
    if let (Some(first), Some(last)) = (gone.first(), gone.last()) {
        close_gaps(call, &mut list, &gone, *first..last + 1)?;
        call.save(key, &list)?;
    }
    call.out.count(gone.len());
    Ok(())
}

/// Takes out the elements at these places, which ascend, from the first to the last: those on the
/// side that has fewer of them move up.
fn close_gaps(
    call: &mut Call<'_>,
    list: &mut Collection,
    gone: &[usize],
    touched: Range<usize>,
) -> Done {
    let second = call.second_to_write()?;
    let (count, removed) = (list.count as usize, gone.len());
    let is_left = touched.end < count - touched.start;
    let part = if is_left { 0..touched.end } else { touched.start..count };
    let entries = call.entries(places(list, &part))?;
    let kept = part.clone().zip(&entries).filter(|(at, _)| gone.binary_search(at).is_err());
    // They keep their order, and end where the untouched ones begin, or begin where those end.
    let first = if is_left { removed } else { part.start };
    for (at, (from, entry)) in (first..).zip(kept) {
        if at != from {
            call.put(second, &list.element_key(at as u64), &entry.value, Until::Default)?;
        }
    }
    let free = if is_left { 0..removed } else { count - removed..count };
    for at in free {
        call.delete(second, &list.element_key(at as u64))?;
    }
    list.head = list.head.wrapping_add(if is_left { removed as i64 } else { 0 });
    list.count -= removed as u64;
    Ok(())
}
