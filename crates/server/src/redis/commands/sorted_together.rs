//! Sorted sets put together: unions, intersections, differences.

use std::collections::BTreeMap;

use lithedb::Entry;

use super::sorted::{say_pairs, score_of};
use super::sorted_ranges::store;
use crate::redis::call::{Call, Done, Failure, SYNTAX, WRONG_TYPE, say};
use crate::redis::collection::{Collection, Found, Kind, member_of};
use crate::redis::number::{integer, score};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Union,
    Inter,
    Diff,
}

/// How the scores of a member become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // As Redis: both infinities make nothing.
            Aggregate::Sum => Some(a + b).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

struct Asked {
    sources: Vec<Option<Collection>>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    has_scores: bool,
    limit: usize,
}

/// What is allowed behind the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Allowed {
    scores: bool,
    weights: bool,
    limit: bool,
}

impl Asked {
    /// Reads the number of keys, the keys, and the options, from an index on.
    fn of(call: &Call<'_>, from: usize, allowed: Allowed) -> Result<Asked, Failure> {
        let args = call.args;
        let name = String::from_utf8_lossy(args.at(0)).to_lowercase();
        let count =
            integer(args.at(from)).map_or_else(|| say(crate::redis::call::NOT_AN_INTEGER), Ok)?;
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            return match allowed.limit {
                true => say("ERR numkeys should be greater than 0"),
                false => say(format!("ERR at least 1 input key is needed for '{name}' command")),
            };
        };
        let mut at = from + 1;
        if count > args.count() - at {
            return match allowed.limit {
                true => say("ERR Number of keys can't be greater than number of args"),
                false => say(SYNTAX),
            };
        }
        let mut sources = Vec::new();
        for key in args.from(at).first(count).iter() {
            sources.push(source(call, key)?);
        }
        at += count;
        let (weights, aggregate) = (vec![1.0; count], Aggregate::Sum);
        let mut asked = Asked { sources, weights, aggregate, has_scores: false, limit: 0 };
        while at < args.count() {
            at += asked.option(call, at, allowed)?;
        }
        Ok(asked)
    }

    /// Reads an option; says of how many words it is.
    fn option(&mut self, call: &Call<'_>, at: usize, allowed: Allowed) -> Result<usize, Failure> {
        let (args, count) = (call.args, self.weights.len());
        if allowed.scores && args.is(at, "WITHSCORES") {
            self.has_scores = true;
            return Ok(1);
        }
        if allowed.weights && args.is(at, "WEIGHTS") && at + count < args.count() {
            for (index, weight) in self.weights.iter_mut().enumerate() {
                let read = score(args.at(at + 1 + index));
                *weight = read.map_or_else(|| say("ERR weight value is not a float"), Ok)?;
            }
            return Ok(1 + count);
        }
        if allowed.weights && args.is(at, "AGGREGATE") && at + 1 < args.count() {
            self.aggregate = match args.at(at + 1).to_ascii_uppercase().as_slice() {
                b"SUM" => Aggregate::Sum,
                b"MIN" => Aggregate::Min,
                b"MAX" => Aggregate::Max,
                _ => return say(SYNTAX),
            };
            return Ok(2);
        }
        if allowed.limit && args.is(at, "LIMIT") && at + 1 < args.count() {
            let limit = integer(args.at(at + 1)).and_then(|limit| usize::try_from(limit).ok());
            self.limit = limit.map_or_else(|| say("ERR LIMIT can't be negative"), Ok)?;
            return Ok(2);
        }
        say(SYNTAX)
    }
}

/// A sorted set, or a set, of which each member has the score 1.
fn source(call: &Call<'_>, key: &[u8]) -> Result<Option<Collection>, Failure> {
    match call.find(key)? {
        Found::Nothing => Ok(None),
        Found::Collection(found) if matches!(found.kind, Kind::Sorted | Kind::Set) => {
            Ok(Some(found))
        }
        Found::Text(_) | Found::Collection(_) => say(WRONG_TYPE),
    }
}

fn score_in(collection: &Collection, value: &[u8]) -> f64 {
    if collection.kind == Kind::Set { 1.0 } else { score_of(value) }
}

fn weighted(score: f64, weight: f64) -> f64 {
    Some(score * weight).filter(|score| !score.is_nan()).unwrap_or(0.0)
}

/// Members and scores, by score.
fn pairs(
    call: &mut Call<'_>,
    asked: &Asked,
    how: Together,
) -> Result<Vec<(Vec<u8>, f64)>, Failure> {
    let mut scores: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    let member = |entry: &Entry| member_of(&entry.key).to_vec();
    if how == Together::Union {
        let mut bytes = 0;
        for (source, weight) in asked.sources.iter().zip(&asked.weights) {
            let Some(source) = source else { continue };
            for entry in call.entries(source.members())? {
                bytes += entry.key.len() + 40;
                let score = weighted(score_in(source, &entry.value), *weight);
                let known = scores.entry(member(&entry)).or_insert(f64::NAN);
                *known = if known.is_nan() { score } else { asked.aggregate.of(*known, score) };
            }
            call.check_bytes(bytes)?;
        }
    } else {
        let is_inter = how == Together::Inter;
        let Some((Some(first), others)) = asked.sources.split_first() else {
            return Ok(Vec::new());
        };
        for entry in call.entries(first.members())? {
            let mut score = Some(weighted(score_in(first, &entry.value), asked.weights[0]));
            for (other, weight) in others.iter().zip(&asked.weights[1..]) {
                call.step()?;
                let value = match other {
                    Some(other) => {
                        let key = other.member_key(member_of(&entry.key));
                        let value = call.view.value(call.second(), &key)?;
                        value.map(|value| score_in(other, &value))
                    }
                    None => None,
                };
                score = match (score, value, is_inter) {
                    (Some(known), Some(found), true) => {
                        Some(asked.aggregate.of(known, weighted(found, *weight)))
                    }
                    (score, None, false) => score,
                    _ => None,
                };
            }
            if let Some(score) = score {
                scores.insert(member(&entry), score);
            }
            if asked.limit > 0 && scores.len() >= asked.limit {
                break;
            }
        }
    }
    let mut pairs: Vec<_> = scores.into_iter().collect();
    pairs.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    Ok(pairs)
}

fn tell(call: &mut Call<'_>, how: Together) -> Done {
    let weights = how != Together::Diff;
    let asked = Asked::of(call, 1, Allowed { scores: true, weights, limit: false })?;
    let found = pairs(call, &asked, how)?;
    let shown = found.iter().map(|(member, score)| (member.as_slice(), *score));
    say_pairs(call, shown, asked.has_scores);
    Ok(())
}

fn store_in(call: &mut Call<'_>, how: Together) -> Done {
    let weights = how != Together::Diff;
    let asked = Asked::of(call, 2, Allowed { scores: false, weights, limit: false })?;
    let found = pairs(call, &asked, how)?;
    store(call, call.args.at(1), &found)?;
    call.out.count(found.len());
    Ok(())
}

pub fn zunion(call: &mut Call<'_>) -> Done {
    tell(call, Together::Union)
}

pub fn zinter(call: &mut Call<'_>) -> Done {
    tell(call, Together::Inter)
}

pub fn zdiff(call: &mut Call<'_>) -> Done {
    tell(call, Together::Diff)
}

pub fn zunionstore(call: &mut Call<'_>) -> Done {
    store_in(call, Together::Union)
}

pub fn zinterstore(call: &mut Call<'_>) -> Done {
    store_in(call, Together::Inter)
}

pub fn zdiffstore(call: &mut Call<'_>) -> Done {
    store_in(call, Together::Diff)
}

pub fn zintercard(call: &mut Call<'_>) -> Done {
    let asked = Asked::of(call, 1, Allowed { scores: false, weights: false, limit: true })?;
    let found = pairs(call, &asked, Together::Inter)?;
    call.out.count(found.len());
    Ok(())
}
