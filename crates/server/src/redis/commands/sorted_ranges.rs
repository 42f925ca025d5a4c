//! Ranges of sorted sets: by rank, by score, by member.

use std::ops::Bound;

use lithedb::KeyRange;

use super::sorted::{put_score, remove, say_pairs, score_of, sorted};
use crate::redis::call::{Call, Done, Failure, NOT_AN_INTEGER, SYNTAX, say};
use crate::redis::collection::{Collection, Kind, member_of, score_and_member};
use crate::redis::frame::Args;
use crate::redis::number::{float, integer};

/// What a range is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A range that was asked for.
#[derive(Debug)]
struct Asked<'a> {
    by: By,
    is_reversed: bool,
    first: &'a [u8],
    last: &'a [u8],
    limit: Option<(i64, i64)>,
    has_scores: bool,
}

/// A member and its score.
type Pair = (Vec<u8>, f64);

fn score_bound(text: &[u8]) -> Result<Bound<f64>, Failure> {
    let (is_open, number) = match text.strip_prefix(b"(") {
        Some(number) => (true, number),
        None => (false, text),
    };
    match float(number) {
        Some(score) if is_open => Ok(Bound::Excluded(score)),
        Some(score) => Ok(Bound::Included(score)),
        None => say("ERR min or max is not a float"),
    }
}

fn member_bound(text: &[u8]) -> Result<Bound<&[u8]>, Failure> {
    match text {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', member @ ..] => Ok(Bound::Included(member)),
        [b'(', member @ ..] => Ok(Bound::Excluded(member)),
        _ => say("ERR min or max not valid string range item"),
    }
}

/// The keys of a range by score: all members of a score lie together.
fn score_range(sorted: &Collection, low: &[u8], high: &[u8]) -> Result<KeyRange, Failure> {
    let above = |score: f64| {
        let key = sorted.score_key(score, &[]);
        lithedb::base::prefix_successor(&key).unwrap_or(key)
    };
    let start = match score_bound(low)? {
        Bound::Included(score) => sorted.score_key(score, &[]),
        Bound::Excluded(score) => above(score),
        Bound::Unbounded => return say(SYNTAX),
    };
    let end = match score_bound(high)? {
        Bound::Included(score) => above(score),
        Bound::Excluded(score) => sorted.score_key(score, &[]),
        Bound::Unbounded => return say(SYNTAX),
    };
    Ok(KeyRange { start: Bound::Included(start), end: Bound::Excluded(end) })
}

fn member_range(sorted: &Collection, low: &[u8], high: &[u8]) -> Result<KeyRange, Failure> {
    let all = sorted.members();
    let nothing = KeyRange::from_half_open(b"m", Some(b"m"));
    let bound = |bound: Bound<&[u8]>| match bound {
        Bound::Included(member) => Bound::Included(sorted.member_key(member)),
        Bound::Excluded(member) => Bound::Excluded(sorted.member_key(member)),
        Bound::Unbounded => Bound::Unbounded,
    };
    let (start, end) = (bound(member_bound(low)?), bound(member_bound(high)?));
    if low == b"+" || high == b"-" {
        return Ok(nothing);
    }
    let start = if start == Bound::Unbounded { all.start } else { start };
    let end = if end == Bound::Unbounded { all.end } else { end };
    Ok(KeyRange { start, end })
}

/// The keys that are asked for, before limits; none by rank.
fn key_range(sorted: &Collection, asked: &Asked<'_>) -> Result<KeyRange, Failure> {
    let (low, high) = match asked.is_reversed {
        true => (asked.last, asked.first),
        false => (asked.first, asked.last),
    };
    match asked.by {
        By::Rank => Ok(sorted.scores()),
        By::Score => score_range(sorted, low, high),
        By::Member => member_range(sorted, low, high),
    }
}

/// Checks the bounds, though there is nothing to look them up in.
fn check(asked: &Asked<'_>) -> Result<(i64, i64), Failure> {
    match asked.by {
        By::Rank => {
            let rank = |text| integer(text).map_or_else(|| say(NOT_AN_INTEGER), Ok);
            Ok((rank(asked.first)?, rank(asked.last)?))
        }
        By::Score => {
            score_bound(asked.first)?;
            score_bound(asked.last)?;
            Ok((0, 0))
        }
        By::Member => {
            member_bound(asked.first)?;
            member_bound(asked.last)?;
            Ok((0, 0))
        }
    }
}

/// Members and scores of what is asked for.
fn pairs(
    call: &mut Call<'_>,
    sorted: Option<&Collection>,
    asked: &Asked<'_>,
) -> Result<Vec<Pair>, Failure> {
    let (first, last) = check(asked)?;
    let Some(sorted) = sorted else { return Ok(Vec::new()) };
    let (skipped, wanted) = match (asked.by, asked.limit) {
        (By::Rank, _) => {
            let count = usize::try_from(sorted.count).unwrap_or(usize::MAX);
            let part = super::strings::part(count, first, last);
            (part.start, part.len())
        }
        (_, None) => (0, usize::MAX),
        (_, Some((offset, count))) => match usize::try_from(offset) {
            Ok(offset) => (offset, usize::try_from(count).unwrap_or(usize::MAX)),
            Err(_) => return Ok(Vec::new()),
        },
    };
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let range = key_range(sorted, asked)?;
    let second = call.second();
    let mut walk = call.view.walk(second, range)?;
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut skipped = skipped;
    while found.len() < wanted {
        let next = match asked.is_reversed {
            true => walk.next_back(),
            false => walk.nth(std::mem::take(&mut skipped)),
        };
        let Some(entry) = next.transpose()? else { break };
        if !call.steps.take() || bytes > call.shared.limits.output_size {
            return say("ERR the range is too large for one reply");
        }
        if skipped > 0 {
            skipped -= 1;
            continue;
        }
        let (score, member) = match asked.by {
            By::Member => (score_of(&entry.value), member_of(&entry.key)),
            By::Rank | By::Score => score_and_member(&entry.key),
        };
        bytes += member.len() + 40;
        found.push((member.to_vec(), score));
    }
    Ok(found)
}

/// Reads what stands behind the bounds.
fn options<'a>(args: Args<'a>, from: usize, asked: &mut Asked<'a>) -> Done {
    let mut at = from;
    while at < args.count() {
        match () {
            () if args.is(at, "WITHSCORES") => asked.has_scores = true,
            () if args.is(at, "BYSCORE") => asked.by = By::Score,
            () if args.is(at, "BYLEX") => asked.by = By::Member,
            () if args.is(at, "REV") => asked.is_reversed = true,
            () if args.is(at, "LIMIT") && at + 2 < args.count() => {
                let number = |at| integer(args.at(at)).map_or_else(|| say(NOT_AN_INTEGER), Ok);
                asked.limit = Some((number(at + 1)?, number(at + 2)?));
                at += 2;
            }
            () => return say(SYNTAX),
        }
        at += 1;
    }
    Ok(())
}

fn tell(call: &mut Call<'_>, by: By, is_reversed: bool, has_words: bool) -> Done {
    let args = call.args;
    let (first, last) = (args.at(2), args.at(3));
    let mut asked = Asked { by, is_reversed, first, last, limit: None, has_scores: false };
    options(args, 4, &mut asked)?;
    if !has_words && (asked.by != by || asked.is_reversed != is_reversed) {
        return say(SYNTAX);
    }
    if asked.limit.is_some() && asked.by == By::Rank {
        return say(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        );
    }
    if asked.has_scores && asked.by == By::Member {
        return say("ERR syntax error, WITHSCORES not supported in combination with BYLEX");
    }
    check(&asked)?;
    let sorted = sorted(call)?;
    let found = pairs(call, sorted.as_ref(), &asked)?;
    let shown = found.iter().map(|(member, score)| (member.as_slice(), *score));
    say_pairs(call, shown, asked.has_scores);
    Ok(())
}

pub fn zrange(call: &mut Call<'_>) -> Done {
    tell(call, By::Rank, false, true)
}

pub fn zrevrange(call: &mut Call<'_>) -> Done {
    tell(call, By::Rank, true, false)
}

pub fn zrangebyscore(call: &mut Call<'_>) -> Done {
    tell(call, By::Score, false, false)
}

pub fn zrevrangebyscore(call: &mut Call<'_>) -> Done {
    tell(call, By::Score, true, false)
}

pub fn zrangebylex(call: &mut Call<'_>) -> Done {
    tell(call, By::Member, false, false)
}

pub fn zrevrangebylex(call: &mut Call<'_>) -> Done {
    tell(call, By::Member, true, false)
}

pub fn zrangestore(call: &mut Call<'_>) -> Done {
    let args = call.args;
    let (to, from) = (args.at(1), args.at(2));
    let (first, last) = (args.at(3), args.at(4));
    let (by, is_reversed) = (By::Rank, false);
    let mut asked = Asked { by, is_reversed, first, last, limit: None, has_scores: false };
    options(args, 5, &mut asked)?;
    if asked.has_scores || asked.limit.is_some() && asked.by == By::Rank {
        return say(SYNTAX);
    }
    check(&asked)?;
    let source = call.collection(from, Kind::Sorted)?;
    let found = pairs(call, source.as_ref(), &asked)?;
    store(call, to, &found)?;
    call.out.count(found.len());
    Ok(())
}

/// Puts a sorted set in the place of whatever a key has.
pub fn store(call: &mut Call<'_>, to: &[u8], pairs: &[Pair]) -> Done {
    if !call.is_free(to)? {
        call.remove(to)?;
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let mut sorted = call.new_collection(Kind::Sorted);
    for (member, score) in pairs {
        put_score(call, &mut sorted, member, (None, *score))?;
    }
    call.save(to, &sorted)
}

fn count(call: &mut Call<'_>, by: By) -> Done {
    let (first, last) = (call.args.at(2), call.args.at(3));
    let asked = Asked { by, is_reversed: false, first, last, limit: None, has_scores: false };
    check(&asked)?;
    let count = match sorted(call)? {
        Some(sorted) => {
            let range = key_range(&sorted, &asked)?;
            call.view.count(call.second(), range)?
        }
        None => 0,
    };
    call.out.count(count as usize);
    Ok(())
}

pub fn zcount(call: &mut Call<'_>) -> Done {
    count(call, By::Score)
}

pub fn zlexcount(call: &mut Call<'_>) -> Done {
    count(call, By::Member)
}

fn remove_range(call: &mut Call<'_>, by: By) -> Done {
    let args = call.args;
    let (first, last) = (args.at(2), args.at(3));
    let asked = Asked { by, is_reversed: false, first, last, limit: None, has_scores: false };
    check(&asked)?;
    let found = sorted(call)?;
    let pairs = pairs(call, found.as_ref(), &asked)?;
    if let Some(mut sorted) = found.filter(|_| !pairs.is_empty()) {
        for (member, _) in &pairs {
            remove(call, &mut sorted, member)?;
        }
        call.save(args.at(1), &sorted)?;
    }
    call.out.count(pairs.len());
    Ok(())
}

pub fn zremrangebyrank(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Rank)
}

pub fn zremrangebyscore(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Score)
}

pub fn zremrangebylex(call: &mut Call<'_>) -> Done {
    remove_range(call, By::Member)
}

/// A range by score is such by bytes too.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::number::ordered;
    use lithedb::Expiry;

    #[test]
    fn ranges_by_score_hold_the_members_of_their_scores() {
        let sorted =
            Collection { kind: Kind::Sorted, id: 7, count: 0, head: 0, expiry: Expiry::Never };
        let holds = |low: &str, high: &str, score: f64| {
            let range = score_range(&sorted, low.as_bytes(), high.as_bytes()).unwrap();
            range.contains(&sorted.score_key(score, b"member"))
        };
        assert!(holds("-inf", "+inf", 0.0) && holds("-inf", "+inf", f64::INFINITY));
        assert!(holds("1", "2", 1.0) && holds("1", "2", 2.0) && holds("-1", "0", -0.0));
        assert!(!holds("(1", "2", 1.0) && !holds("1", "(2", 2.0) && !holds("1", "2", 2.5));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }
}
