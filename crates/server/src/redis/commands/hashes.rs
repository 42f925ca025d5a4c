//! Hashes.

use lithedb::{Entry, Slice};

use crate::redis::call::{
    Call, Done, Failure, NOT_AN_INTEGER, OVERFLOW, SYNTAX, Until, say, wrong_arity,
};
use crate::redis::collection::{Collection, Kind, member_of};
use crate::redis::number::{float, integer, plain_float_text, put_integer};

fn hash(call: &Call<'_>) -> Result<Option<Collection>, Failure> {
    call.collection(call.args.at(1), Kind::Hash)
}

/// The value of a field.
fn field(
    call: &Call<'_>,
    hash: Option<&Collection>,
    field: &[u8],
) -> Result<Option<Slice>, Failure> {
    let Some(hash) = hash else { return Ok(None) };
    Ok(call.view.value(call.second(), &hash.member_key(field))?)
}

/// Sets a field; says whether it is new.
fn put_field(
    call: &mut Call<'_>,
    hash: &mut Collection,
    field: &[u8],
    value: &[u8],
) -> Result<bool, Failure> {
    call.check_value(value.len())?;
    let second = call.second_to_write()?;
    let is_new = !call.is_member(hash, field)?;
    hash.count += u64::from(is_new);
    call.put(second, &hash.member_key(field), value, Until::Default)?;
    Ok(is_new)
}

pub fn hset(call: &mut Call<'_>) -> Done {
    let new = put_fields(call, "hset")?;
    call.out.count(new);
    Ok(())
}

pub fn hmset(call: &mut Call<'_>) -> Done {
    put_fields(call, "hmset")?;
    call.out.ok();
    Ok(())
}

fn put_fields(call: &mut Call<'_>, command: &str) -> Result<usize, Failure> {
    let args = call.args;
    if args.count() % 2 == 1 {
        return wrong_arity(command);
    }
    let mut hash = call.collection_or_new(args.at(1), Kind::Hash)?;
    let mut new = 0;
    for at in (2..args.count()).step_by(2) {
        new += usize::from(put_field(call, &mut hash, args.at(at), args.at(at + 1))?);
    }
    call.save(args.at(1), &hash)?;
    Ok(new)
}

pub fn hsetnx(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let mut hash = call.collection_or_new(args.at(1), Kind::Hash)?;
    let is_absent = !call.is_member(&hash, args.at(2))?;
    if is_absent {
        put_field(call, &mut hash, args.at(2), args.at(3))?;
        call.save(args.at(1), &hash)?;
    }
    call.out.done(is_absent);
    Ok(())
}

pub fn hget(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    let found = field(call, hash.as_ref(), call.args.at(2))?;
    call.out.bulk_or_null(found);
    Ok(())
}

pub fn hmget(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    call.out.array(call.args.count() - 2);
    for name in call.args.from(2).iter() {
        let found = field(call, hash.as_ref(), name)?;
        call.out.bulk_or_null(found);
        call.check_size()?;
    }
    Ok(())
}

fn fields(call: &mut Call<'_>) -> Result<Vec<Entry>, Failure> {
    match hash(call)? {
        Some(hash) => call.entries(hash.members()),
        None => Ok(Vec::new()),
    }
}

pub fn hgetall(call: &mut Call<'_>) -> Done {
    let fields = fields(call)?;
    call.out.map(fields.len());
    for entry in &fields {
        call.out.bulk(member_of(&entry.key));
        call.out.bulk(&entry.value);
    }
    Ok(())
}

pub fn hkeys(call: &mut Call<'_>) -> Done {
    let fields = fields(call)?;
    call.out.array(fields.len());
    fields.iter().for_each(|entry| call.out.bulk(member_of(&entry.key)));
    Ok(())
}

pub fn hvals(call: &mut Call<'_>) -> Done {
    let fields = fields(call)?;
    call.out.array(fields.len());
    fields.iter().for_each(|entry| call.out.bulk(&entry.value));
    Ok(())
}

pub fn hdel(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let mut count = 0;
    if let Some(mut hash) = hash(call)? {
        for name in args.from(2).iter() {
            count += usize::from(super::remove_member(call, &mut hash, name)?);
        }
        if count > 0 {
            call.save(args.at(1), &hash)?;
        }
    }
    call.out.count(count);
    Ok(())
}

pub fn hlen(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    call.out.count(hash.map_or(0, |hash| hash.count as usize));
    Ok(())
}

pub fn hexists(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    let found = field(call, hash.as_ref(), call.args.at(2))?;
    call.out.done(found.is_some());
    Ok(())
}

pub fn hstrlen(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    let found = field(call, hash.as_ref(), call.args.at(2))?;
    call.out.count(found.map_or(0, |value| value.len()));
    Ok(())
}

pub fn hincrby(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let by = call.integer(3)?;
    let mut hash = call.collection_or_new(args.at(1), Kind::Hash)?;
    let old = field(call, Some(&hash), args.at(2))?;
    let old = old.map_or(Some(0), |value| integer(&value));
    let old = old.map_or_else(|| say("ERR hash value is not an integer"), Ok)?;
    let new = old.checked_add(by).map_or_else(|| say(OVERFLOW), Ok)?;
    let mut text = Vec::new();
    put_integer(&mut text, new);
    put_field(call, &mut hash, args.at(2), &text)?;
    call.save(args.at(1), &hash)?;
    call.out.integer(new);
    Ok(())
}

pub fn hincrbyfloat(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let by = call.float(3)?;
    let mut hash = call.collection_or_new(args.at(1), Kind::Hash)?;
    let old = field(call, Some(&hash), args.at(2))?;
    let old = old.map_or(Some(0.0), |value| float(&value));
    let old = old.map_or_else(|| say("ERR hash value is not a float"), Ok)?;
    let new = old + by;
    if !new.is_finite() {
        return say("ERR increment would produce NaN or Infinity");
    }
    let text = plain_float_text(new);
    put_field(call, &mut hash, args.at(2), text.as_bytes())?;
    call.save(args.at(1), &hash)?;
    call.out.text(&text);
    Ok(())
}

pub fn hrandfield(call: &mut Call<'_>) -> Done {
    let hash = hash(call)?;
    let has_values = match call.args.count() {
        2 | 3 => false,
        4 if call.args.is(3, "WITHVALUES") => true,
        _ => return say(SYNTAX),
    };
    if call.args.count() == 2 {
        let drawn = super::draw(call, hash.as_ref(), Some(1))?;
        call.out.bulk_or_null(drawn.first().map(|entry| member_of(&entry.key)));
        return Ok(());
    }
    let count = call.args.get(2).and_then(integer);
    let count = count.map_or_else(|| say(NOT_AN_INTEGER), Ok)?;
    let drawn = super::draw(call, hash.as_ref(), Some(count))?;
    let is_three = call.out.version == crate::redis::reply::Version::Three;
    let is_flat = has_values && !is_three;
    call.out.array(drawn.len() * if is_flat { 2 } else { 1 });
    for entry in &drawn {
        if has_values && is_three {
            call.out.array(2);
        }
        call.out.bulk(member_of(&entry.key));
        if has_values {
            call.out.bulk(&entry.value);
        }
    }
    Ok(())
}
