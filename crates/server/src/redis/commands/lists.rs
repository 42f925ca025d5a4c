//! Lists: elements at indices that ascend; only ends are pushed and popped, and elements replaced.

use std::ops::Bound;

use lithedb::KeyRange;

use crate::redis::call::{Call, Done, Failure, NO_SUCH_KEY, SYNTAX, Until, say};
use crate::redis::collection::{Collection, Kind};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

fn list(call: &Call<'_>) -> Result<Option<Collection>, Failure> {
    call.collection(call.args.at(1), Kind::List)
}

fn push(call: &mut Call<'_>, end: End, only_if_there: bool) -> Done {
    let args = call.args;
    let found = list(call)?;
    if only_if_there && found.is_none() {
        call.out.integer(0);
        return Ok(());
    }
    let mut list = found.unwrap_or_else(|| call.new_collection(Kind::List));
    let second = call.second_to_write()?;
    for element in args.from(2).iter() {
        call.check_value(element.len())?;
        let place = match end {
            End::Left => {
                list.head = list.head.wrapping_sub(1);
                0
            }
            End::Right => list.count,
        };
        list.count += 1;
        call.put(second, &list.element_key(place), element, Until::Default)?;
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
    let second = call.second_to_write()?;
    for _ in 0..count {
        call.step()?;
        let place = if end == End::Left { 0 } else { list.count - 1 };
        let element = list.element_key(place);
        let value = call.view.value(Some(second), &element)?;
        call.out.bulk(&value.unwrap_or_default());
        call.check_size()?;
        call.delete(second, &element)?;
        list.head = list.head.wrapping_add(i64::from(end == End::Left));
        list.count -= 1;
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

fn places(list: &Collection, part: &std::ops::Range<usize>) -> KeyRange {
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
