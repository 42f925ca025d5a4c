//! Finding several keys at once: what of the runs they need is read at once, too.

use std::ops::Range;
use std::ptr;

use super::interval::{Interval, Run};
use super::load::Loader;
use super::store::{FlexVersion, no_first_interval};
use crate::base::sync::Arc;
use crate::base::{Result, hash_key};
use crate::block::Guide;
use crate::structure::{Found, Want};

/// So many bytes are announced before they are read, or a little more.
const AHEAD_MAX: u64 = 4 << 20;
/// A key of a run that is read by a guide costs about what so many bytes cost of one that is read
/// whole.
const WHOLE_BYTES_PER_KEY: usize = 4 << 10;

/// Keys of one interval.
struct Group<'v, 'k> {
    interval: &'v Interval,
    keys: &'k [&'k [u8]],
}

/// A part of a run that is going to be read.
struct Ahead<'v> {
    run: &'v Run,
    range: Range<u64>,
}

impl FlexVersion {
    /// As [`crate::structure::Version::find_many`].
    pub(super) fn find_ascending(
        &self,
        keys: &[&[u8]],
        mut found: &mut [Option<Found>],
    ) -> Result<()> {
        let groups = self.grouped(keys)?;
        let mut announced = 0;
        for (position, group) in groups.iter().enumerate() {
            if position >= announced {
                announced += self.loader.announce(&groups[position..]);
            }
            let (these, rest) = found.split_at_mut(group.keys.len());
            self.loader.find_group(group, these)?;
            found = rest;
        }
        Ok(())
    }

    fn grouped<'k>(&self, keys: &'k [&'k [u8]]) -> Result<Vec<Group<'_, 'k>>> {
        let mut intervals = Vec::with_capacity(keys.len());
        for key in keys {
            intervals.push(self.tree.get_key(key).ok_or_else(no_first_interval)?);
        }
        let (mut groups, mut rest) = (Vec::with_capacity(keys.len()), keys);
        for together in intervals.chunk_by(|a, b| Arc::ptr_eq(a, b)) {
            let (keys, behind) = rest.split_at(together.len());
            groups.push(Group { interval: together[0], keys });
            rest = behind;
        }
        Ok(groups)
    }
}

impl Loader {
    fn find_group(&self, group: &Group<'_, '_>, found: &mut [Option<Found>]) -> Result<()> {
        let Group { interval, keys } = group;
        if let Some(run) = interval.only_base()
            && !run.is_in_memory()
            && self.is_read_whole(run, keys)
            && let Ok(block) = self.read_for_several(run)
        {
            for (key, found) in keys.iter().zip(found) {
                *found = Found::copied_from(&block, key);
            }
            return Ok(());
        }
        for (key, found) in keys.iter().zip(found) {
            *found = self.find(interval, key, Want::Value)?;
        }
        Ok(())
    }

    /// Whether a run that is not in memory is better read once for all these keys, if there are
    /// several.
    fn is_read_whole(&self, run: &Run, keys: &[&[u8]]) -> bool {
        let is_mapped = self.glance_at_guide(run, Guide::has_map).unwrap_or(false);
        let by_guide = if is_mapped { run.len as usize / WHOLE_BYTES_PER_KEY } else { 0 };
        let least = (by_guide + 1).max(2);
        // Counted only where they can be enough.
        let mut admitted = keys.iter().filter(|key| self.guide_admits(run, hash_key(key)));
        keys.len() >= least && admitted.nth(least - 1).is_some()
    }

    /// Has the system begin to read what the first of these groups need, up to so many bytes: a
    /// disk reads much at once in a fraction of the time that it takes for one after the other. For
    /// how many that is.
    fn announce(&self, groups: &[Group<'_, '_>]) -> usize {
        let (mut ahead, mut bytes, mut count) = (Vec::new(), 0, 0);
        for group in groups {
            if bytes >= AHEAD_MAX {
                break;
            }
            let first = ahead.len();
            self.note_reads(group, &mut ahead);
            bytes += ahead[first..].iter().map(|it| it.range.end - it.range.start).sum::<u64>();
            count += 1;
        }
        if ahead.len() > 1 {
            for Ahead { run, range } in ahead {
                // It is a hint: who reads the file is told what is wrong with it.
                if let Ok(file) = run.segment.file() {
                    file.begin_read(range.start, range.end - range.start);
                }
            }
        }
        count
    }

    /// What finding keys of an interval may read, as far as guides know.
    fn note_reads<'v>(&self, group: &Group<'v, '_>, ahead: &mut Vec<Ahead<'v>>) {
        let Group { interval, keys } = group;
        if interval.slot_if_used().is_some_and(|slot| slot.is_filled()) {
            return;
        }
        let is_alone = interval.only_base().is_some();
        for run in interval.runs().filter(|run| !run.is_in_memory()) {
            if is_alone && self.is_read_whole(run, keys) {
                ahead.push(Ahead { run, range: run.range() });
                continue;
            }
            for range in keys.iter().filter_map(|key| self.read_of(run, hash_key(key))) {
                let is_same = |last: &Ahead<'_>| ptr::eq(last.run, run) && last.range == range;
                if !ahead.last().is_some_and(is_same) {
                    ahead.push(Ahead { run, range });
                }
            }
        }
    }

    /// What finding the key with this hash in a run that is not in memory reads first, as far as
    /// its guide knows.
    fn read_of(&self, run: &Run, hash: u64) -> Option<Range<u64>> {
        let by_guide = |guide: &Guide| {
            if guide.has_map() {
                let pages = guide.first_pages(hash)?;
                return Some(run.offset + pages.start as u64..run.offset + pages.end as u64);
            }
            guide.may_contain(hash).then(|| run.range())
        };
        self.glance_at_guide(run, by_guide).unwrap_or_else(|| Some(run.range()))
    }
}
