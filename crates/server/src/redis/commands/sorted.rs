//! Sorted sets: members and scores.

use lithedb::{Entry, KeyRange};

use crate::redis::call::{
    Call, Done, Failure, NOT_A_FLOAT, NOT_AN_INTEGER, SYNTAX, TOO_MUCH, Until, say, wrong_arity,
};
use crate::redis::collection::{Collection, Kind, member_of, score_and_member};
use crate::redis::number::{self, from_ordered, integer, ordered};
use crate::redis::reply::Version;

pub fn sorted(call: &Call<'_>) -> Result<Option<Collection>, Failure> {
    call.collection(call.args.at(1), Kind::Sorted)
}

/// The score of a member.
pub fn score(call: &Call<'_>, sorted: &Collection, member: &[u8]) -> Result<Option<f64>, Failure> {
    let value = call.view.value(call.second(), &sorted.member_key(member))?;
    Ok(value.as_deref().map(score_of))
}

/// The score that a member's value is.
pub fn score_of(value: &[u8]) -> f64 {
    value.try_into().map_or(0.0, from_ordered)
}

/// Sets the score of a member that had another, or none.
pub fn put_score(
    call: &mut Call<'_>,
    sorted: &mut Collection,
    member: &[u8],
    (old, new): (Option<f64>, f64),
) -> Done {
    let second = call.second_to_write()?;
    match old {
        Some(old) => call.delete(second, &sorted.score_key(old, member))?,
        None => sorted.count += 1,
    }
    call.put(second, &sorted.member_key(member), &ordered(new), Until::Default)?;
    call.put(second, &sorted.score_key(new, member), b"", Until::Default)
}

/// Deletes a member; says whether it was one.
pub fn remove(
    call: &mut Call<'_>,
    sorted: &mut Collection,
    member: &[u8],
) -> Result<bool, Failure> {
    let Some(score) = score(call, sorted, member)? else { return Ok(false) };
    let second = call.second_to_write()?;
    call.delete(second, &sorted.member_key(member))?;
    call.delete(second, &sorted.score_key(score, member))?;
    sorted.count -= 1;
    Ok(true)
}

#[derive(Debug, Default)]
struct AddOptions {
    if_absent: bool,
    if_there: bool,
    if_greater: bool,
    if_less: bool,
    counts_changed: bool,
    increments: bool,
}

impl AddOptions {
    /// The options, and where pairs of scores and members begin.
    fn of(call: &Call<'_>) -> Result<(AddOptions, usize), Failure> {
        let mut found = AddOptions::default();
        let mut at = 2;
        while let Some(word) = call.args.get(at) {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => found.if_absent = true,
                b"XX" => found.if_there = true,
                b"GT" => found.if_greater = true,
                b"LT" => found.if_less = true,
                b"CH" => found.counts_changed = true,
                b"INCR" => found.increments = true,
                _ => break,
            }
            at += 1;
        }
        let count = call.args.count() - at;
        if count == 0 || count % 2 == 1 {
            return say(SYNTAX);
        }
        if found.if_absent && found.if_there {
            return say("ERR XX and NX options at the same time are not compatible");
        }
        let bounds = usize::from(found.if_greater) + usize::from(found.if_less);
        if bounds == 2 || bounds == 1 && found.if_absent {
            return say("ERR GT, LT, and/or NX options at the same time are not compatible");
        }
        if found.increments && count > 2 {
            return say("ERR INCR option supports a single increment-element pair");
        }
        Ok((found, at))
    }

    /// The score that a member comes to have; `None` if it stays as it is.
    fn new_score(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let Some(old) = old else { return Ok((!self.if_there).then_some(given)) };
        if self.if_absent {
            return Ok(None);
        }
        let new = if self.increments { old + given } else { given };
        if new.is_nan() {
            return say("ERR resulting score is not a number (NaN)");
        }
        let is_kept = self.if_greater && new <= old || self.if_less && new >= old;
        Ok((!is_kept).then_some(new))
    }
}

pub fn zadd(call: &mut Call<'_>) -> Done {
    let (options, from) = AddOptions::of(call)?;
    let args = call.args;
    let mut pairs = Vec::new();
    for at in (from..args.count()).step_by(2) {
        let score = number::score(args.at(at)).map_or_else(|| say(NOT_A_FLOAT), Ok)?;
        pairs.push((score, args.at(at + 1)));
    }
    let mut sorted = call.collection_or_new(args.at(1), Kind::Sorted)?;
    let (mut added, mut changed, mut told) = (0, 0, None);
    for (given, member) in pairs {
        let old = score(call, &sorted, member)?;
        let new = options.new_score(old, given)?;
        told = new;
        let Some(new) = new else { continue };
        match old {
            None => added += 1,
            Some(old) if old != new => changed += 1,
            Some(_) => continue,
        }
        put_score(call, &mut sorted, member, (old, new))?;
    }
    if added + changed > 0 {
        call.save(args.at(1), &sorted)?;
    }
    match (options.increments, told) {
        (true, Some(score)) => call.out.double(score),
        (true, None) => call.out.null(),
        (false, _) if options.counts_changed => call.out.integer(added + changed),
        (false, _) => call.out.integer(added),
    }
    Ok(())
}

pub fn zincrby(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let by = number::score(args.at(2)).map_or_else(|| say(NOT_A_FLOAT), Ok)?;
    let mut sorted = call.collection_or_new(args.at(1), Kind::Sorted)?;
    let old = score(call, &sorted, args.at(3))?;
    let new = old.unwrap_or(0.0) + by;
    if new.is_nan() {
        return say("ERR resulting score is not a number (NaN)");
    }
    if old != Some(new) {
        put_score(call, &mut sorted, args.at(3), (old, new))?;
        call.save(args.at(1), &sorted)?;
    }
    call.out.double(new);
    Ok(())
}

pub fn zrem(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let mut count = 0;
    if let Some(mut sorted) = sorted(call)? {
        for member in args.from(2).iter() {
            count += usize::from(remove(call, &mut sorted, member)?);
        }
        if count > 0 {
            call.save(args.at(1), &sorted)?;
        }
    }
    call.out.count(count);
    Ok(())
}

pub fn zscore(call: &mut Call<'_>) -> Done {
    let sorted = sorted(call)?;
    let found = sorted.map_or(Ok(None), |sorted| score(call, &sorted, call.args.at(2)))?;
    say_score(call, found);
    Ok(())
}

fn say_score(call: &mut Call<'_>, score: Option<f64>) {
    match score {
        Some(score) => call.out.double(score),
        None => call.out.null(),
    }
}

pub fn zmscore(call: &mut Call<'_>) -> Done {
    let sorted = sorted(call)?;
    call.out.array(call.args.count() - 2);
    for member in call.args.from(2).iter() {
        let found = sorted.as_ref().map_or(Ok(None), |sorted| score(call, sorted, member))?;
        say_score(call, found);
    }
    Ok(())
}

pub fn zcard(call: &mut Call<'_>) -> Done {
    let sorted = sorted(call)?;
    call.out.count(sorted.map_or(0, |sorted| sorted.count as usize));
    Ok(())
}

pub fn zrank(call: &mut Call<'_>) -> Done {
    rank(call, false)
}

pub fn zrevrank(call: &mut Call<'_>) -> Done {
    rank(call, true)
}

fn rank(call: &mut Call<'_>, is_from_end: bool) -> Done {
    let member = call.args.at(2);
    let with_score = match call.args.count() {
        3 => false,
        4 if call.args.is(3, "withscore") => true,
        4 => return say(SYNTAX),
        _ => return wrong_arity(if is_from_end { "zrevrank" } else { "zrank" }),
    };
    let found = match sorted(call)? {
        Some(sorted) => score(call, &sorted, member)?.map(|score| (sorted, score)),
        None => None,
    };
    let Some((sorted, score)) = found else {
        match with_score {
            true => call.out.null_array(),
            false => call.out.null(),
        }
        return Ok(());
    };
    let own = sorted.score_key(score, member);
    let mut range = sorted.scores();
    match is_from_end {
        true => range.start = std::ops::Bound::Excluded(own),
        false => range.end = std::ops::Bound::Excluded(own),
    }
    let rank = call.view.count(call.second(), range)?;
    if with_score {
        call.out.array(2);
    }
    call.out.count(rank as usize);
    if with_score {
        call.out.double(score);
    }
    Ok(())
}

pub fn zpopmin(call: &mut Call<'_>) -> Done {
    pop(call, false)
}

pub fn zpopmax(call: &mut Call<'_>) -> Done {
    pop(call, true)
}

fn pop(call: &mut Call<'_>, is_from_end: bool) -> Done {
    let key = call.args.at(1);
    let wanted = match call.args.count() {
        2 => 1,
        3 => match usize::try_from(call.integer(2)?) {
            Ok(count) => count,
            Err(_) => return say("ERR value is out of range, must be positive"),
        },
        _ => return say(SYNTAX),
    };
    let popped = match sorted(call)?.filter(|_| wanted > 0) {
        Some(sorted) => take_ends(call, (key, sorted), wanted, is_from_end)?,
        None => Vec::new(),
    };
    let is_nested = call.out.version == Version::Three && call.args.count() == 3;
    call.out.array(popped.len() * if is_nested { 1 } else { 2 });
    say_popped(call, &popped, is_nested);
    Ok(())
}

fn say_popped(call: &mut Call<'_>, popped: &[Entry], is_nested: bool) {
    for entry in popped {
        let (score, member) = score_and_member(&entry.key);
        if is_nested {
            call.out.array(2);
        }
        call.out.bulk(member);
        call.out.double(score);
    }
}

/// Of the first sorted set that is there, the lowest or the highest.
pub fn zmpop(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let count = integer(args.at(1)).and_then(|count| usize::try_from(count).ok());
    let Some(key_count) = count.filter(|count| *count > 0) else {
        return say("ERR numkeys should be greater than 0");
    };
    let end_at = key_count.saturating_add(2);
    let is_from_end = args.is(end_at, "MAX");
    if !is_from_end && !args.is(end_at, "MIN") {
        return say(SYNTAX);
    }
    let wanted = match args.count() - end_at {
        1 => 1,
        3 if args.is(end_at + 1, "COUNT") => {
            let count = integer(args.at(end_at + 2)).and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            count.map_or_else(|| say("ERR count should be greater than 0"), Ok)?
        }
        _ => return say(SYNTAX),
    };
    for key in args.from(2).first(key_count).iter() {
        let Some(sorted) = call.collection(key, Kind::Sorted)? else { continue };
        let popped = take_ends(call, (key, sorted), wanted, is_from_end)?;
        call.out.array(2);
        call.out.bulk(key);
        call.out.array(popped.len());
        say_popped(call, &popped, true);
        return Ok(());
    }
    call.out.null_array();
    Ok(())
}

/// Takes so many out of a sorted set.
fn take_ends(
    call: &mut Call<'_>,
    (key, mut sorted): (&[u8], Collection),
    wanted: usize,
    is_from_end: bool,
) -> Result<Vec<Entry>, Failure> {
    let popped = ends(call, &sorted, wanted, is_from_end)?;
    for entry in &popped {
        let (_, member) = score_and_member(&entry.key);
        remove(call, &mut sorted, member)?;
    }
    call.save(key, &sorted)?;
    Ok(popped)
}

fn ends(
    call: &mut Call<'_>,
    sorted: &Collection,
    count: usize,
    is_from_end: bool,
) -> Result<Vec<Entry>, Failure> {
    let (second, range): (_, KeyRange) = (call.second(), sorted.scores());
    let mut walk = call.view.walk(second, range)?;
    let mut found = Vec::new();
    let mut bytes = 0;
    while found.len() < count {
        if !call.steps.take() {
            return say(TOO_MUCH);
        }
        let next = if is_from_end { walk.next_back() } else { walk.next() };
        let Some(entry) = next.transpose()? else { break };
        bytes += entry.key.len() + 40;
        if bytes > call.shared.limits.output_size {
            return say("ERR the reply is larger than replies may be");
        }
        found.push(entry);
    }
    Ok(found)
}

pub fn zrandmember(call: &mut Call<'_>) -> Done {
    let found = sorted(call)?;
    let has_scores = match call.args.count() {
        2 | 3 => false,
        4 if call.args.is(3, "WITHSCORES") => true,
        _ => return say(SYNTAX),
    };
    if call.args.count() == 2 {
        let drawn = super::draw(call, found.as_ref(), Some(1))?;
        call.out.bulk_or_null(drawn.first().map(|entry| member_of(&entry.key)));
        return Ok(());
    }
    let count = call.args.get(2).and_then(integer);
    let count = count.map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
    let drawn = super::draw(call, found.as_ref(), Some(count))?;
    let pairs = drawn.iter().map(|entry| (member_of(&entry.key), score_of(&entry.value)));
    say_pairs(call, pairs, has_scores);
    Ok(())
}

/// Tells members, with their scores if they are asked for.
pub fn say_pairs<'m>(
    call: &mut Call<'_>,
    pairs: impl ExactSizeIterator<Item = (&'m [u8], f64)>,
    has_scores: bool,
) {
    let is_nested = has_scores && call.out.version == Version::Three;
    call.out.array(pairs.len() * if has_scores && !is_nested { 2 } else { 1 });
    for (member, score) in pairs {
        if is_nested {
            call.out.array(2);
        }
        call.out.bulk(member);
        if has_scores {
            call.out.double(score);
        }
    }
}
