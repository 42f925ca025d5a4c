//! Sets.

use std::collections::BTreeSet;

use lithedb::Entry;

use crate::redis::call::{Call, Done, Failure, SYNTAX, Until, say};
use crate::redis::collection::{Collection, Kind, member_of};

fn set(call: &Call<'_>) -> Result<Option<Collection>, Failure> {
    call.collection(call.args.at(1), Kind::Set)
}

fn add(call: &mut Call<'_>, set: &mut Collection, member: &[u8]) -> Result<bool, Failure> {
    let second = call.second_to_write()?;
    if call.is_member(set, member)? {
        return Ok(false);
    }
    call.put(second, &set.member_key(member), b"", Until::Default)?;
    set.count += 1;
    Ok(true)
}

pub fn sadd(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let mut set = call.collection_or_new(args.at(1), Kind::Set)?;
    let mut count = 0;
    for member in args.from(2).iter() {
        count += usize::from(add(call, &mut set, member)?);
    }
    if count > 0 {
        call.save(args.at(1), &set)?;
    }
    call.out.count(count);
    Ok(())
}

pub fn srem(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let mut count = 0;
    if let Some(mut set) = set(call)? {
        for member in args.from(2).iter() {
            count += usize::from(super::remove_member(call, &mut set, member)?);
        }
        if count > 0 {
            call.save(args.at(1), &set)?;
        }
    }
    call.out.count(count);
    Ok(())
}

pub fn smembers(call: &mut Call<'_>) -> Done {
    let members = match set(call)? {
        Some(set) => call.entries(set.members())?,
        None => Vec::new(),
    };
    call.out.set(members.len());
    members.iter().for_each(|entry| call.out.bulk(member_of(&entry.key)));
    Ok(())
}

pub fn sismember(call: &mut Call<'_>) -> Done {
    let set = set(call)?;
    let is_member = set.map_or(Ok(false), |set| call.is_member(&set, call.args.at(2)))?;
    call.out.done(is_member);
    Ok(())
}

pub fn smismember(call: &mut Call<'_>) -> Done {
    let set = set(call)?;
    call.out.array(call.args.count() - 2);
    for member in call.args.from(2).iter() {
        let is_member = set.as_ref().map_or(Ok(false), |set| call.is_member(set, member))?;
        call.out.done(is_member);
    }
    Ok(())
}

pub fn scard(call: &mut Call<'_>) -> Done {
    let set = set(call)?;
    call.out.count(set.map_or(0, |set| set.count as usize));
    Ok(())
}

pub fn smove(call: &mut Call<'_>) -> Done {
    let (from, to, member) = (call.args.at(1), call.args.at(2), call.args.at(3));
    let Some(mut source) = call.collection(from, Kind::Set)? else {
        call.out.integer(0);
        return Ok(());
    };
    let target = call.collection(to, Kind::Set)?;
    if from == to {
        let is_member = call.is_member(&source, member)?;
        call.out.done(is_member);
        return Ok(());
    }
    let is_moved = super::remove_member(call, &mut source, member)?;
    if is_moved {
        call.save(from, &source)?;
        let mut target = target.unwrap_or_else(|| call.new_collection(Kind::Set));
        if add(call, &mut target, member)? {
            call.save(to, &target)?;
        }
    }
    call.out.done(is_moved);
    Ok(())
}

pub fn spop(call: &mut Call<'_>) -> Done {
    let key = call.args.at(1);
    let count = match call.args.count() {
        2 => None,
        3 => match usize::try_from(call.integer(2)?) {
            Ok(count) => Some(count),
            Err(_) => return say("ERR value is out of range, must be positive"),
        },
        _ => return say(SYNTAX),
    };
    let found = set(call)?;
    let wanted = i64::try_from(count.unwrap_or(1)).unwrap_or(i64::MAX);
    let drawn = super::draw(call, found.as_ref(), Some(wanted))?;
    if let Some(mut set) = found.filter(|_| !drawn.is_empty()) {
        for entry in &drawn {
            super::remove_member(call, &mut set, member_of(&entry.key))?;
        }
        call.save(key, &set)?;
    }
    say_drawn(call, &drawn, count.is_none(), Shape::Set);
    Ok(())
}

pub fn srandmember(call: &mut Call<'_>) -> Done {
    let found = set(call)?;
    let count = match call.args.count() {
        2 => None,
        3 => Some(call.integer(2)?),
        _ => return say(SYNTAX),
    };
    let drawn = super::draw(call, found.as_ref(), Some(count.unwrap_or(1)))?;
    say_drawn(call, &drawn, count.is_none(), Shape::Array);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Set,
    Array,
}

fn say_drawn(call: &mut Call<'_>, drawn: &[Entry], is_one: bool, shape: Shape) {
    if is_one {
        return call.out.bulk_or_null(drawn.first().map(|entry| member_of(&entry.key)));
    }
    match shape {
        Shape::Set => call.out.set(drawn.len()),
        Shape::Array => call.out.array(drawn.len()),
    }
    drawn.iter().for_each(|entry| call.out.bulk(member_of(&entry.key)));
}

/// How sets are put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Inter,
    Union,
    Diff,
}

/// The members of sets put together: at most `limit` for an intersection.
fn together(
    call: &mut Call<'_>,
    keys: crate::redis::frame::Args<'_>,
    how: Together,
    limit: usize,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut sets = Vec::new();
    for key in keys.iter() {
        sets.push(call.collection(key, Kind::Set)?);
    }
    let member = |entry: &Entry| member_of(&entry.key).to_vec();
    match how {
        Together::Union => {
            let mut members = BTreeSet::new();
            let mut bytes = 0;
            for set in sets.into_iter().flatten() {
                for entry in call.entries(set.members())? {
                    bytes += entry.key.len() + 16;
                    members.insert(member(&entry));
                }
                call.check_bytes(bytes)?;
            }
            Ok(members.into_iter().collect())
        }
        Together::Inter | Together::Diff => {
            let is_inter = how == Together::Inter;
            if is_inter && sets.iter().any(Option::is_none) {
                return Ok(Vec::new());
            }
            let mut sets: Vec<Collection> = match (is_inter, sets.first()) {
                (false, None | Some(None)) => return Ok(Vec::new()),
                _ => sets.into_iter().flatten().collect(),
            };
            if is_inter {
                sets.sort_by_key(|set| set.count);
            }
            let Some((first, others)) = sets.split_first() else { return Ok(Vec::new()) };
            let mut members = Vec::new();
            for entry in call.entries(first.members())? {
                if members.len() >= limit {
                    break;
                }
                let mut is_in = true;
                for other in others {
                    call.step()?;
                    if call.is_member(other, member_of(&entry.key))? != is_inter {
                        is_in = false;
                        break;
                    }
                }
                if is_in {
                    members.push(member(&entry));
                }
            }
            Ok(members)
        }
    }
}

fn tell(call: &mut Call<'_>, how: Together) -> Done {
    let members = together(call, call.args.from(1), how, usize::MAX)?;
    call.out.set(members.len());
    members.iter().for_each(|member| call.out.bulk(member));
    Ok(())
}

fn store(call: &mut Call<'_>, how: Together) -> Done {
    let to = call.args.at(1);
    let members = together(call, call.args.from(2), how, usize::MAX)?;
    if !call.is_free(to)? {
        call.remove(to)?;
    }
    if !members.is_empty() {
        let second = call.second_to_write()?;
        let mut set = call.new_collection(Kind::Set);
        set.count = members.len() as u64;
        for member in &members {
            call.put(second, &set.member_key(member), b"", Until::Default)?;
        }
        call.save(to, &set)?;
    }
    call.out.count(members.len());
    Ok(())
}

pub fn sinter(call: &mut Call<'_>) -> Done {
    tell(call, Together::Inter)
}

pub fn sunion(call: &mut Call<'_>) -> Done {
    tell(call, Together::Union)
}

pub fn sdiff(call: &mut Call<'_>) -> Done {
    tell(call, Together::Diff)
}

pub fn sinterstore(call: &mut Call<'_>) -> Done {
    store(call, Together::Inter)
}

pub fn sunionstore(call: &mut Call<'_>) -> Done {
    store(call, Together::Union)
}

pub fn sdiffstore(call: &mut Call<'_>) -> Done {
    store(call, Together::Diff)
}

pub fn sintercard(call: &mut Call<'_>) -> Done {
    let count = call.args.get(1).and_then(crate::redis::number::integer);
    let Some(count) = count.and_then(|count| usize::try_from(count).ok()).filter(|&n| n > 0) else {
        return say("ERR numkeys should be greater than 0");
    };
    if count > call.args.count() - 2 {
        return say("ERR Number of keys can't be greater than number of args");
    }
    let limit = match call.args.count() - 2 - count {
        0 => 0,
        2 if call.args.is(2 + count, "LIMIT") => match usize::try_from(call.integer(3 + count)?) {
            Ok(limit) => limit,
            Err(_) => return say("ERR LIMIT can't be negative"),
        },
        _ => return say(SYNTAX),
    };
    let limit = if limit == 0 { usize::MAX } else { limit };
    let members = together(call, call.args.from(2).first(count), Together::Inter, limit)?;
    call.out.count(members.len());
    Ok(())
}
