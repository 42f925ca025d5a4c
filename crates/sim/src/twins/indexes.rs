//! The same index of both twins: made, built anew and dropped while other things go on, and walked
//! over side by side.

use std::ops::ControlFlow;

use lithedb::{Error, IndexBuildReport, IndexIter, IndexOptions, IndexView, Keyspace};

use super::{Twins, WALK_LEN_MAX, expect_same, refused};
use crate::extractors::{EXTRACTORS, SPARSE_EXTRACTORS, keys_of};
use crate::finding::{Fault, Finding, Verdict};
use crate::readback::millis_of;
use crate::sample::shown;

/// Operations between two steps of a build at most.
const BESIDE_MAX: u64 = 30;

/// The index that both have.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwinIndex {
    extractor: &'static str,
    is_unique: bool,
    /// Part of its name: snapshots show an earlier one as it was.
    number: u64,
}

impl TwinIndex {
    fn name(self) -> String {
        format!("index {}", self.number)
    }
}

/// How far the index is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Indexing {
    /// There is none.
    Without,
    /// One of them has it perhaps, or is being given it.
    Underway(TwinIndex),
    /// Both have it.
    With(TwinIndex),
}

impl Indexing {
    /// Whether a commit may be refused for an index key that is there twice.
    pub(super) fn refuses(self) -> bool {
        matches!(self, Indexing::Underway(index) | Indexing::With(index) if index.is_unique)
    }
}

impl Twins {
    /// Gives both an index, builds it anew, or drops it.
    pub(super) fn change_index(&mut self) -> Verdict {
        match self.indexing {
            Indexing::Underway(_) => Ok(()),
            Indexing::Without => {
                let is_unique = self.random.chance(300);
                let extractors = if is_unique { &SPARSE_EXTRACTORS[..] } else { &EXTRACTORS[..] };
                let extractor = self.random.pick(extractors);
                self.index_count += 1;
                self.create_index(TwinIndex { extractor, is_unique, number: self.index_count })
            }
            Indexing::With(index) if self.random.chance(400) => {
                self.indexing = Indexing::Underway(index);
                for keyspace in [self.flex.clone(), self.lsm.clone()] {
                    let cancelled = self.random.chance(200);
                    let rebuild =
                        |go_on: GoOn<'_>| keyspace.rebuild_index_while(&index.name(), go_on);
                    self.build_beside(cancelled, rebuild)?.map_err(refused)?;
                }
                self.indexing = Indexing::With(index);
                Ok(())
            }
            Indexing::With(index) => {
                self.flex.drop_index(&index.name()).map_err(refused)?;
                self.lsm.drop_index(&index.name()).map_err(refused)?;
                self.indexing = Indexing::Without;
                Ok(())
            }
        }
    }

    fn create_index(&mut self, index: TwinIndex) -> Verdict {
        let options = IndexOptions::new();
        let options = if index.is_unique { options.unique() } else { options };
        self.indexing = Indexing::Underway(index);
        let (flex, lsm) = (self.flex.clone(), self.lsm.clone());
        let create = |keyspace: &Keyspace, go_on: GoOn<'_>| {
            keyspace.create_index_while(&index.name(), index.extractor, options, go_on)
        };
        match self.build_beside(false, |go_on| create(&flex, go_on))? {
            Err(Error::UniqueViolation { .. }) if index.is_unique => {
                self.indexing = Indexing::Without;
                return Ok(());
            }
            built => built.map_err(refused)?,
        };
        // With the one, no key is there twice, so that the other is not refused.
        self.build_beside(false, |go_on| create(&lsm, go_on))?.map_err(refused)?;
        self.indexing = Indexing::With(index);
        Ok(())
    }

    /// Builds, with some operations between the steps; ends it behind the first, if it is to be
    /// cancelled.
    fn build_beside(
        &mut self,
        is_cancelled: bool,
        build: impl FnOnce(GoOn<'_>) -> Result<IndexBuildReport, Error>,
    ) -> Verdict<Result<IndexBuildReport, Error>> {
        let mut verdict = Ok(());
        let built = build(&mut |_| {
            verdict = (0..self.random.below(BESIDE_MAX)).try_for_each(|_| self.step());
            match verdict.is_err() || is_cancelled {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        verdict.map(|()| built)
    }

    /// Reads the index of both.
    pub(super) fn read_index(&mut self) -> Verdict {
        let Indexing::With(index) = self.indexing else { return Ok(()) };
        let moment = self.moment();
        let view = |keyspace: &Keyspace| {
            let handle = keyspace.index(&index.name())?;
            match &moment {
                Some(snapshot) => handle.at(snapshot),
                None => handle.view(),
            }
        };
        let (one, other) = match (view(&self.flex), view(&self.lsm)) {
            (Ok(one), Ok(other)) => (one, other),
            // Between the one and the other.
            _ if moment.is_some() => return Ok(()),
            (one, other) => {
                let what = format!("the index of now: {one:?}, {other:?}");
                return Err(Finding::new(Fault::Wrong, what));
            }
        };
        let mut key = self.value();
        key.truncate(self.random.below(4) as usize);
        let len = self.random.below(WALK_LEN_MAX);
        let walks = |view: &IndexView, kind: u64| match kind {
            0 => view.prefix(&key),
            1 => view.range(..=key.clone()),
            _ => view.range(key.clone()..),
        };
        let kind = self.random.below(3);
        let walked = match self.random.chance(500) {
            true => compare_walks((walks(&one, kind), walks(&other, kind)), len, &index),
            false => {
                let (one, other) = (walks(&one, kind).rev(), walks(&other, kind).rev());
                compare_walks((one, other), len, &index)
            }
        };
        let place = if moment.is_some() { "as of a snapshot" } else { "as of now" };
        self.walked += walked.map_err(|finding| finding.at(place))?;
        let count = |view: &IndexView| view.count(key.clone()..).map_err(refused);
        expect_same("a count of the index", &count(&one)?, &count(&other)?)?;
        let get = |view: &IndexView| -> Verdict<Vec<_>> {
            let entries = view.get(&key).take(WALK_LEN_MAX as usize);
            entries.map(|entry| Ok(entry.map_err(refused)?.primary_key().to_vec())).collect()
        };
        expect_same("what has an index key", &get(&one)?, &get(&other)?)
    }
}

type GoOn<'a> = &'a mut dyn FnMut(&IndexBuildReport) -> ControlFlow<()>;

/// What a walk over an index gives: keys, expiry, and the value that it leads to.
trait Leads: Iterator<Item = lithedb::Result<lithedb::IndexEntry>> {}

impl Leads for IndexIter {}
impl Leads for std::iter::Rev<IndexIter> {}

/// Index key, key, value, and when it expires.
type Said = (Vec<u8>, Vec<u8>, Vec<u8>, Option<u64>);

/// How many entries they had in common. What they lead to has the index key.
fn compare_walks<I: Leads>(
    (mut one, mut other): (I, I),
    len: u64,
    index: &TwinIndex,
) -> Verdict<u64> {
    for number in 0..len {
        let said = |iter: &mut I| -> Verdict<Option<Said>> {
            let Some(entry) = iter.next().transpose().map_err(refused)? else { return Ok(None) };
            let value = entry.value().map_err(refused)?.to_vec();
            let (key, primary) = (entry.index_key().to_vec(), entry.primary_key().to_vec());
            Ok(Some((key, primary, value, entry.expires_at().map(millis_of))))
        };
        let (one, other) = (said(&mut one)?, said(&mut other)?);
        expect_same("a walk over the index", &one, &other)?;
        let Some((key, primary, value, _)) = one else { return Ok(number) };
        if !keys_of(index.extractor, &value).contains(&key) {
            let (key, primary, value) = (shown(&key), shown(&primary), shown(&value));
            let what = format!("{index:?} has {key} for {primary}, whose value is {value}");
            return Err(Finding::new(Fault::Wrong, what));
        }
    }
    Ok(len)
}
