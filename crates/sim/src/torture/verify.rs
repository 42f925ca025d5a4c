//! Opening behind a strike in this process, and looking at everything.

use std::io::ErrorKind;
use std::sync::Arc;

use lithedb::storage::{OsStorage, Storage};
use lithedb::{Access, Builder, Db, Error, HealthState};

use super::child::patiently;
use super::database::Database;
use crate::checkpoints::{Use, expect_backups_whole};
use crate::clock::SimClock;
use crate::finding::{Fault, Finding, Verdict};
use crate::indexed::expect_building_goes_on;
use crate::parallel::survive;
use crate::readback::{Detail, expect_check_ok, expect_pasts, read_all};
use crate::session::expect_key;
use crate::setup::start_of;
use crate::timeline::Found;

/// So many openings in a thousand are preceded by one that only reads.
const READ_FIRST_PER_MILLE: u64 = 150;
/// So many go on to build indexes that were being built.
const BUILT_ON_PER_MILLE: u64 = 300;
/// So many checkpoints in a thousand are written to when they were looked at.
const WRITTEN_TO_PER_MILLE: u64 = 400;

impl Database<'_> {
    /// Opens it, judges what is there, and looks at everything else; a new history begins.
    pub(super) fn verify(&mut self) -> Verdict {
        survive(|| self.look_at_all()).map_err(|finding| finding.at("what the parent found"))?;
        self.ledger.count("openings of the parent that were judged and checked");
        Ok(())
    }

    fn look_at_all(&mut self) -> Verdict {
        let read_first = match self.random.chance(READ_FIRST_PER_MILLE) {
            true => self.read_only()?,
            false => None,
        };
        let path = self.setup.path.clone();
        let opened = patiently(|| self.builder().open(&path));
        let db = opened.map_err(|error| failed("open", &error))?;
        let mut found = read_all(&db, Detail::Rows).map_err(|error| failed("read", &error))?;
        let moment = self.judge(&found)?;
        if let Some(seen) = read_first {
            expect_as_read_first(&seen, &found)?;
        }
        expect_check_ok(&db)?;
        let storage: Arc<dyn Storage> = Arc::new(OsStorage::new());
        expect_key(&self.setup, &storage, &self.timeline)?;
        expect_pasts(&db, &self.timeline, moment.commit, &mut self.random)?;
        self.look_at_checkpoints(&storage)?;
        expect_backups_whole(&storage, &self.setup.path)?;
        if self.random.chance(BUILT_ON_PER_MILLE) {
            let built = expect_building_goes_on(&db)?;
            self.ledger.count_many("indexes built on", built);
            found = read_all(&db, Detail::Rows).map_err(|error| failed("read", &error))?;
        }
        expect_healthy(&db)?;
        if self.random.chance(500) {
            db.close().map_err(|error| failed("close", &error))?;
        }
        drop(db);
        self.settle(found);
        self.older.clear(); // What is left of them is swept away.
        let key = self.setup.key_on(&storage);
        self.timeline.keys = key.map(|number| vec![number]);
        Ok(())
    }

    /// For another opening.
    fn builder(&mut self) -> Builder {
        self.nth += 1;
        let clock = Arc::new(SimClock::at_millis(start_of(self.nth)));
        self.setup.builder(Arc::new(OsStorage::new()), clock, self.nth)
    }

    /// What an opening that only reads shows; none where nothing was created yet.
    fn read_only(&mut self) -> Verdict<Option<Found>> {
        let path = self.setup.path.clone();
        let opened = patiently(|| self.builder().access(Access::ReadOnly).open(&path));
        let db = match opened {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened.map_err(|error| failed("open to read", &error))?,
        };
        let found = read_all(&db, Detail::Rows).map_err(|error| failed("read", &error))?;
        self.judge(&found).map_err(|finding| finding.at("opened to read"))?;
        expect_check_ok(&db)?;
        db.close().map_err(|error| failed("close what was opened to read", &error))?;
        self.ledger.count("openings of the parent that only read");
        Ok(Some(found))
    }

    /// Each once, beside the database that is open.
    fn look_at_checkpoints(&mut self, storage: &Arc<dyn Storage>) -> Verdict {
        for checkpoint in self.older.iter().chain(&self.timeline.checkpoints) {
            let is_used = self.random.chance(WRITTEN_TO_PER_MILLE);
            let how = if is_used { Use::WrittenTo } else { Use::Read };
            let place = (&self.setup, storage);
            let random = &mut self.random;
            self.ledger.count(
                match checkpoint.expect_ok(place, &self.timeline, (how, random))? {
                    true => "checkpoints that were opened",
                    false => "checkpoints that were interrupted and are not there",
                },
            );
        }
        Ok(())
    }
}

/// Nothing has failed in the background. That there is no room is no problem of the database.
fn expect_healthy(db: &Db) -> Verdict {
    let health = db.health();
    match health.state {
        HealthState::ReadOnly { .. } | HealthState::Failing => {
            let what = format!("it is {}: {:?}", health.state, health.failures);
            Err(Finding::new(Fault::Refused, what))
        }
        _ => Ok(()),
    }
}

/// Both show the same moment; but the second is later, and more may have expired.
fn expect_as_read_first(seen: &Found, found: &Found) -> Verdict {
    let mut is_same = seen.catalog == found.catalog && seen.indexes == found.indexes;
    for (id, rows) in &seen.rows {
        let there = rows.iter().filter(|(_, row)| row.is_there(found.now));
        is_same &= found.rows.get(id).is_some_and(|found| there.eq(found.iter()));
    }
    match is_same {
        true => Ok(()),
        false => {
            let what = "an opening that only read showed another moment";
            Err(Finding::new(Fault::Wrong, what))
        }
    }
}

fn failed(action: &str, error: &Error) -> Finding {
    Finding::new(Fault::FailedOpen, format!("{action}: {error}"))
}
