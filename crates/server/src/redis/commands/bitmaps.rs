//! Strings as rows of bits.

use std::ops::Range;

use super::strings::part_of_text;
use crate::redis::call::{Call, Done, Failure, SYNTAX, Until, say};
use crate::redis::number::integer;

const BIT_OFFSET_MAX: i64 = (1 << 32) - 1;

fn bit_offset(call: &Call<'_>) -> Result<usize, Failure> {
    let offset = call.args.get(2).and_then(integer);
    let offset = offset.filter(|offset| (0..=BIT_OFFSET_MAX).contains(offset));
    offset.map_or_else(
        || say("ERR bit offset is not an integer or out of range"),
        |offset| Ok(offset as usize),
    )
}

pub fn setbit(call: &mut Call<'_>) -> Done {
    let (key, offset) = (call.args.at(1), bit_offset(call)?);
    let bit = match call.args.at(3) {
        b"0" => 0,
        b"1" => 1,
        _ => return say("ERR bit is not an integer or out of range"),
    };
    let (at, mask) = (offset / 8, 0x80_u8 >> (offset % 8));
    call.check_value(at + 1)?;
    let found = call.string(key)?;
    let until = found.as_ref().map_or(Until::Default, |entry| Until::As(entry.expiry));
    let mut value = found.map(|entry| entry.value.to_vec()).unwrap_or_default();
    value.resize(value.len().max(at + 1), 0);
    let old = value[at] & mask != 0;
    value[at] = if bit == 1 { value[at] | mask } else { value[at] & !mask };
    call.put_string(key, &value, until)?;
    call.out.done(old);
    Ok(())
}

pub fn getbit(call: &mut Call<'_>) -> Done {
    let offset = bit_offset(call)?;
    let found = call.string(call.args.at(1))?;
    let byte = found.and_then(|entry| entry.value.get(offset / 8).copied()).unwrap_or(0);
    call.out.done(byte & (0x80 >> (offset % 8)) != 0);
    Ok(())
}

pub fn bitcount(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let is_by_bit = args.is(4, "BIT");
    let is_known = args.count() != 3 && args.count() <= 5;
    if !is_known || args.count() == 5 && !is_by_bit && !args.is(4, "BYTE") {
        return say(SYNTAX);
    }
    let bounds = match args.count() {
        2 => None,
        _ => Some((call.integer(2)?, call.integer(3)?)),
    };
    let value = call.string(args.at(1))?.map(|entry| entry.value).unwrap_or_default();
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>();
    let count = match bounds {
        None => ones(&value),
        Some((start, end)) if !is_by_bit => ones(&value[part_of_text(value.len(), start, end)]),
        Some((start, end)) => {
            let bits = part_of_text(value.len() * 8, start, end);
            let is_one = |bit: &usize| value[bit / 8] & (0x80 >> (bit % 8)) != 0;
            let one_by_one = |bits: std::ops::Range<usize>| bits.filter(is_one).count() as i64;
            let whole = bits.start.div_ceil(8)..bits.end / 8;
            match whole.is_empty() {
                true => one_by_one(bits),
                false => {
                    one_by_one(bits.start..whole.start * 8)
                        + ones(&value[whole.clone()])
                        + one_by_one(whole.end * 8..bits.end)
                }
            }
        }
    };
    call.out.integer(count);
    Ok(())
}

/// The first bit of a kind, in a part that is said by bytes or by bits.
pub fn bitpos(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let wanted = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return say("ERR The bit argument must be 1 or 0."),
    };
    let Some(found) = call.string(args.at(1))? else {
        call.out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let value = &found.value;
    let is_by_bit = args.is(5, "BIT");
    if args.count() > 6 || args.count() == 6 && !is_by_bit && !args.is(5, "BYTE") {
        return say(SYNTAX);
    }
    let start = if args.count() > 3 { call.integer(3)? } else { 0 };
    let end = if args.count() > 4 { Some(call.integer(4)?) } else { None };
    let unit = if is_by_bit { 1 } else { 8 };
    let all = value.len() * 8;
    let Some((first, last)) = bounds(all / unit, start, end.unwrap_or(-1)) else {
        call.out.integer(-1);
        return Ok(());
    };
    let position = match first_bit(value, wanted, first * unit..(last + 1) * unit) {
        Some(position) => position as i64,
        // As if there were zeros behind the end, unless that was said.
        None if !wanted && end.is_none() => all as i64,
        None => -1,
    };
    call.out.integer(position);
    Ok(())
}

/// First and last of a part, counted from the end below zero; `None` if there is nothing in it.
fn bounds(len: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let place = |place: i64| if place < 0 { len.saturating_add(place).max(0) } else { place };
    let (start, end) = (place(start), place(end).min(len - 1));
    (start <= end).then_some((start as usize, end as usize))
}

fn first_bit(value: &[u8], wanted: bool, bits: Range<usize>) -> Option<usize> {
    let is_it = |bit: &usize| (value[bit / 8] & (0x80 >> (bit % 8)) != 0) == wanted;
    let whole = bits.start.div_ceil(8)..bits.end / 8;
    if whole.is_empty() {
        return bits.into_iter().find(is_it);
    }
    let without = if wanted { 0 } else { u8::MAX };
    let in_front = (bits.start..whole.start * 8).find(is_it);
    in_front
        .or_else(|| {
            let byte = value[whole.clone()].iter().position(|byte| *byte != without)?;
            let byte = whole.start + byte;
            (byte * 8..byte * 8 + 8).find(is_it)
        })
        .or_else(|| (whole.end * 8..bits.end).find(is_it))
}

/// Strings put together bit by bit: those that are shorter have zeros behind their end.
pub fn bitop(call: &mut Call<'_>) -> Done {
    let (args, to) = (call.args, call.args.at(2));
    let combine: fn(u8, u8) -> u8 = match args.at(1).to_ascii_uppercase().as_slice() {
        b"AND" => |one, other| one & other,
        b"OR" => |one, other| one | other,
        b"XOR" => |one, other| one ^ other,
        b"NOT" if args.count() != 4 => {
            return say("ERR BITOP NOT must be called with a single source key.");
        }
        b"NOT" => |one, _| !one,
        _ => return say(SYNTAX),
    };
    let is_not = args.is(1, "NOT");
    let mut made: Option<Vec<u8>> = None;
    for key in args.from(3).iter() {
        let value = call.string(key)?.map(|entry| entry.value).unwrap_or_default();
        made = Some(match made {
            None if is_not => value.iter().map(|byte| combine(*byte, 0)).collect(),
            None => value.to_vec(),
            Some(mut made) => {
                made.resize(made.len().max(value.len()), 0);
                let others = value.iter().copied().chain(std::iter::repeat(0));
                made.iter_mut().zip(others).for_each(|(one, other)| *one = combine(*one, other));
                made
            }
        });
    }
    let made = made.unwrap_or_default();
    if made.is_empty() {
        call.remove(to)?;
    } else {
        let there = call.find(to)?;
        call.make_way(to, &there)?;
        call.put_string(to, &made, Until::Default)?;
    }
    call.out.count(made.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_is_found_as_one_by_one() {
        let values: [&[u8]; 5] =
            [b"", b"\x00\x00\x00", b"\xff\xff\xff", b"\xff\xf0\x00", b"\x00\x01"];
        for value in values {
            let all = value.len() * 8;
            for start in 0..=all {
                for end in start..=all {
                    for wanted in [false, true] {
                        let is_it =
                            |bit: &usize| (value[bit / 8] & (0x80 >> (bit % 8)) != 0) == wanted;
                        let expected = (start..end).find(is_it);
                        assert_eq!(first_bit(value, wanted, start..end), expected, "{value:?}");
                    }
                }
            }
        }
    }
}
