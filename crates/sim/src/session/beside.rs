//! A checkpoint that is open and written to beside the database.

use std::sync::Arc;

use lithedb::{Error, OpenExisting};

use super::{Session, SharedTimeline, Trouble};
use crate::checkpoints::Beside;
use crate::clock::SimClock;
use crate::ops::Op;
use crate::setup::start_of;

/// The numbers of their openings, each beside one of the database, begin here: apart from those,
/// and below those behind a crash ([`Beside::OPENING`]), as a later opening is at a later time.
const FIRST_OPENING: u64 = 600;

impl Session {
    /// The one that is open beside the database.
    #[must_use]
    pub fn beside(&self) -> Option<&Session> {
        self.beside.as_deref()
    }

    /// Has one that is open be the one beside the database.
    pub fn put_beside(&mut self, beside: Session) {
        let (path, timeline) = (beside.setup.path.clone(), Arc::clone(&beside.timeline));
        self.timeline().beside = Some(Beside { path, timeline });
        self.beside = Some(Box::new(beside));
    }

    /// Closes the one that is open beside the database, if one is.
    ///
    /// # Errors
    /// What closing returns.
    pub fn close_beside(&self) -> Result<(), Error> {
        self.beside().map_or(Ok(()), Session::close)
    }

    /// Does something in the one beside the database; nothing, where none can be opened.
    pub(super) fn run_in_beside(&mut self, op: &Op) -> Result<(), Trouble> {
        if self.beside.is_none() {
            self.open_beside()?;
        }
        match &mut self.beside {
            Some(beside) => beside.run(op),
            None => Ok(()),
        }
    }

    /// Opens the newest checkpoint that was made. It is a database of its own from then on.
    fn open_beside(&mut self) -> Result<(), Trouble> {
        let Some((storage, opening)) = &self.opener else { return Ok(()) };
        let nth = FIRST_OPENING + opening;
        let place = self.timeline().checkpoints.iter().rposition(|checkpoint| checkpoint.is_made);
        let Some(place) = place else { return Ok(()) };
        let path = self.timeline().checkpoints[place].path.clone();
        let (setup, timeline) = (self.setup.at(&path), SharedTimeline::default());
        let clock = Arc::new(SimClock::at_millis(start_of(nth)));
        let builder = setup.builder(Arc::clone(storage), Arc::clone(&clock), nth);
        let db = builder.existing(OpenExisting::Only).open(&path)?;
        let beside = Session::adopt(&setup, db, clock, timeline)?;
        self.timeline().checkpoints.remove(place); // What it shows changes.
        self.put_beside(beside);
        Ok(())
    }
}
