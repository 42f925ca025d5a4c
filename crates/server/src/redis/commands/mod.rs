//! The commands, a file for each kind of them.
//!
//! Those of keys and what they have work on a [`Call`](super::call::Call); those of connections in
//! `server.rs` on a session. `super::table` has them by name.

pub mod about;
pub mod acl;
pub mod bitmaps;
pub mod hashes;
pub mod keys;
pub mod lists;
pub mod scan;
pub mod server;
pub mod sets;
pub mod sorted;
pub mod sorted_ranges;
pub mod sorted_together;
pub mod strings;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use lithedb::Entry;

use super::call::{Call, Failure, View, say};
use super::collection::Collection;

/// Entries that are drawn at most.
const DRAWN_MAX: usize = 1_000_000;
/// Collections up to so many members are walked over in a transaction; larger ones too, if what was
/// drawn from a snapshot is not all there any more, or not yet.
const WALKED_MAX: u64 = 512;

/// A number below another, drawn; `None` below 0.
pub fn random(below: usize) -> Option<usize> {
    // Each has keys of its own, drawn by the system when the thread began.
    let drawn = RandomState::new().hash_one(below);
    (below > 0).then(|| ((u128::from(drawn) * below as u128) >> 64) as usize)
}

/// Members drawn from a collection: so many different ones, or, below zero, so many of which some
/// may be the same.
pub fn draw(
    call: &mut Call<'_>,
    collection: Option<&Collection>,
    count: Option<i64>,
) -> Result<Vec<Entry>, Failure> {
    let (Some(collection), Some(count)) = (collection, count) else { return Ok(Vec::new()) };
    let all = usize::try_from(collection.count).unwrap_or(usize::MAX);
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 && wanted >= all {
        return call.entries(collection.members());
    }
    if wanted > DRAWN_MAX || wanted > call.shared.limits.output_size / 8 {
        return say("ERR value is out of range");
    }
    let mut places: Vec<usize> = Vec::new();
    if count >= 0 {
        // Of the last ones each is drawn among those in front of it too: all sets are as likely.
        let mut drawn = BTreeSet::new();
        for last in all - wanted..all {
            let place = random(last + 1).unwrap_or(0);
            if !drawn.insert(place) {
                drawn.insert(last);
            }
        }
        places.extend(drawn);
    } else {
        places.extend((0..wanted).filter_map(|_| random(all)));
        places.sort_unstable();
    }
    let entries = if call.is_in_transaction() && collection.count > WALKED_MAX {
        // By number in a snapshot; the transaction says which of them are still there.
        let view = View::Snapshot(call.shared.store.db().snapshot());
        let drawn = places.len();
        let mut found = at_places(call, &view, collection, places.clone())?;
        let mut failed = Ok(());
        found.retain(|entry| match call.view.value(call.second(), &entry.key) {
            Ok(value) => value.is_some(),
            Err(error) => {
                failed = Err(error);
                false
            }
        });
        failed?;
        if found.len() < drawn {
            if collection.count > super::call::STEPS_MAX {
                return say(super::call::TOO_MUCH);
            }
            found = at_places(call, call.view, collection, places)?;
        }
        found
    } else {
        at_places(call, call.view, collection, places)?
    };
    Ok(if count < 0 { shuffled(entries) } else { entries })
}

fn shuffled(mut entries: Vec<Entry>) -> Vec<Entry> {
    for last in (1..entries.len()).rev() {
        entries.swap(last, random(last + 1).unwrap_or(0));
    }
    entries
}

/// The entries at some places, ascending.
fn at_places(
    call: &Call<'_>,
    view: &View,
    collection: &Collection,
    places: Vec<usize>,
) -> Result<Vec<Entry>, Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    let mut walk = view.walk(call.second(), collection.members())?;
    let mut next = 0;
    for place in places {
        let again = place + 1 == next;
        let entry = match entries.last().filter(|_| again) {
            Some(last) => last.clone(),
            None => match walk.nth(place - next).transpose()? {
                Some(entry) => entry,
                None => break,
            },
        };
        next = place + 1;
        bytes += entry.key.len() + entry.value.len() + 16;
        call.check_bytes(bytes)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Deletes a member; says whether it was one.
pub fn remove_member(
    call: &mut Call<'_>,
    collection: &mut Collection,
    member: &[u8],
) -> Result<bool, Failure> {
    let second = call.second_to_write()?;
    if !call.is_member(collection, member)? {
        return Ok(false);
    }
    call.delete(second, &collection.member_key(member))?;
    collection.count -= 1;
    Ok(true)
}
