//! Reading a space in every way, and comparing it with its vector.

use lithedb::flex_space::{FlexSpace, SpaceSnapshot, Tag};

use super::model::Model;
use crate::finding::{Fault, Finding, Verdict};
use crate::random::Random;

fn wrong(what: impl Into<String>) -> Finding {
    Finding::new(Fault::Wrong, what)
}

pub(super) fn failed(error: &lithedb::Error) -> Finding {
    Finding::new(Fault::FailedOpen, error.to_string())
}

/// Everything that a space holds.
///
/// # Errors
/// Whatever reading says.
pub(super) fn read_all(space: &FlexSpace) -> lithedb::Result<Model> {
    let bytes = space.read_range(0..space.len())?;
    Ok(Model::of(&bytes, space.tags(0..space.len()).map(|(at, tag)| (at, tag.get()))))
}

/// Everything that a snapshot holds.
///
/// # Errors
/// Whatever reading says.
pub(super) fn read_snapshot(snapshot: &SpaceSnapshot) -> lithedb::Result<Model> {
    let bytes = snapshot.read_range(0..snapshot.len())?;
    Ok(Model::of(&bytes, snapshot.tags(0..snapshot.len()).map(|(at, tag)| (at, tag.get()))))
}

/// Everything that a snapshot holds is what `model` does.
pub(super) fn compare_snapshot(snapshot: &SpaceSnapshot, model: &Model) -> Verdict {
    let found = read_snapshot(snapshot).map_err(|error| failed(&error))?;
    if found == *model { Ok(()) } else { Err(wrong("a snapshot has moved")) }
}

/// Reads a random part in several ways.
pub(super) fn compare_part(space: &FlexSpace, model: &Model, random: &mut Random) -> Verdict {
    if space.len() != model.len() as u64 {
        return Err(wrong(format!("{} bytes, not {}", space.len(), model.len())));
    }
    let start = random.below(model.len() as u64 + 1) as usize;
    let len = (random.below(6000) as usize).min(model.len() - start);
    let range = start as u64..(start + len) as u64;
    let expected = model.bytes(start..start + len);
    let found = space.read_range(range.clone()).map_err(|error| failed(&error))?;
    if found != expected {
        return Err(wrong(format!("the bytes of {range:?}")));
    }
    let tags: Vec<(u64, u32)> =
        space.tags(range.clone()).map(|(at, tag)| (at, tag.get())).collect();
    if tags != model.tags(start..start + len) {
        return Err(wrong(format!("the tags of {range:?} are {tags:?}")));
    }
    let mut beyond = vec![0; len + 10];
    let count = space.read(range.start, &mut beyond).map_err(|error| failed(&error))?;
    if count != (len + 10).min(model.len() - start) {
        return Err(wrong(format!("{count} bytes read at {start}")));
    }
    walk(space, model, start, random)
}

/// Moves a handle about.
fn walk(space: &FlexSpace, model: &Model, start: usize, random: &mut Random) -> Verdict {
    let mut handle = space.handle(start as u64);
    let mut at = start as u64;
    for _ in 0..12 {
        match random.below(5) {
            0 => {
                let len = random.below(3000);
                at += handle.forward(len);
            }
            1 => {
                let len = random.below(3000);
                at -= handle.backward(len);
            }
            2 => {
                handle.next_extent();
                at = handle.offset();
            }
            3 => {
                handle.prev_extent();
                at = handle.offset();
            }
            _ => {
                let mut bytes = vec![0; random.below(900) as usize];
                let count = handle.read(&mut bytes).map_err(|error| failed(&error))?;
                let expected =
                    model.bytes(at as usize..(at as usize + bytes.len()).min(model.len()));
                if bytes[..count] != expected {
                    return Err(wrong(format!("a handle reads wrong bytes at {at}")));
                }
                at += count as u64;
            }
        }
        expect_place(&handle, model, at)?;
    }
    Ok(())
}

fn expect_place(handle: &lithedb::flex_space::Handle<'_>, model: &Model, at: u64) -> Verdict {
    let is_in_extent = match handle.extent() {
        Some(extent) => (extent.offset..extent.offset + extent.len).contains(&at),
        None => at == model.len() as u64,
    };
    let tag = model.cells(0..model.len()).get(at as usize).map_or(0, |cell| cell.tag);
    let found = handle.tag().map_or(0, Tag::get);
    if handle.offset() != at || !is_in_extent || tag != found {
        let place = handle.offset();
        return Err(wrong(format!("a handle is at {place}, tag {found}, not at {at}, tag {tag}")));
    }
    Ok(())
}

/// What a difference leaves out is the same in both.
pub(super) fn compare_difference(
    (old, old_model): (&SpaceSnapshot, &Model),
    (new, new_model): (&SpaceSnapshot, &Model),
) -> Verdict {
    let changes = old.diff(new).map_err(|error| failed(&error))?;
    let (mut a, mut b) = (0, 0);
    let ends = [(old_model.len(), new_model.len(), old_model.len(), new_model.len())];
    let ranges = changes.iter().map(|change| {
        let (old, new) = (&change.old, &change.new);
        (old.start as usize, new.start as usize, old.end as usize, new.end as usize)
    });
    for (old_start, new_start, old_end, new_end) in ranges.chain(ends) {
        if old_start < a || new_start < b {
            return Err(wrong(format!("differences do not ascend: {changes:?}")));
        }
        if old_model.cells(a..old_start) != new_model.cells(b..new_start) {
            return Err(wrong(format!("{a}..{old_start} differs, which {changes:?} does not say")));
        }
        (a, b) = (old_end, new_end);
    }
    Ok(())
}
