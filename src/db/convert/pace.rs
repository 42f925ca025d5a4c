//! What others bring beside a conversion, held to what it copies, so that it comes to its end.
//!
//! It goes through the keys in rounds: once through all of them, and then through those that
//! ingests have changed in the round before, behind the place that it had come to. Within a round,
//! a memtable brings no more than it has to what is left to be copied, and twice that is copied
//! before the next one; an ingest no more than its entries, and four times that is copied before
//! the next one. So for each byte that is copied three quarters of one come at most, and each round
//! ends. Ingests go on beside the first rounds, [`ROUNDS_BESIDE_INGESTS`], and wait beside the next
//! one: it leaves nothing, and is the last.
//!
//! For that nobody else flushes while somebody is at the conversion (O6). Who has it done may be
//! asked between two slices whether it is to go on, and may do there, or wait for, what others do:
//! so meanwhile they are not held, and what they bring counts as well.

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::db::convert::ConversionJob;
use crate::db::core::Core;
use crate::db::state::Runtime;

/// So many bytes are copied for each byte of a memtable that is flushed in between. More than one,
/// so that it comes to its end also if all that is written is still to be copied; and with
/// [`COPIED_PER_INGESTED`], 1/2 + 1/4 < 1.
const COPIED_PER_FLUSHED: u64 = 2;
/// .. and of an ingest.
const COPIED_PER_INGESTED: u64 = 4;
/// Rounds that ingests may go on beside: the first one, and two more.
pub(super) const ROUNDS_BESIDE_INGESTS: u32 = 3;

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub entries: u64,
    /// Of keys and values.
    pub bytes: u64,
    /// Of values in value files.
    pub value_bytes: u64,
}

/// Bytes that are to be copied before more is let in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debts {
    /// .. by flushes,
    flushes: u64,
    /// .. and by ingests, whose large values count.
    ingests: u64,
}

impl Debts {
    pub(super) fn add_flushed(&mut self, bytes: u64) {
        let owed = bytes.saturating_mul(COPIED_PER_FLUSHED);
        self.flushes = self.flushes.saturating_add(owed);
    }

    pub(super) fn add_ingested(&mut self, bytes: u64) {
        let owed = bytes.saturating_mul(COPIED_PER_INGESTED);
        self.ingests = self.ingests.saturating_add(owed);
    }

    pub(super) fn pay(&mut self, copied: Counts) {
        self.flushes = self.flushes.saturating_sub(copied.bytes);
        let with_values = copied.bytes.saturating_add(copied.value_bytes);
        self.ingests = self.ingests.saturating_sub(with_values);
    }

    pub(super) fn allow_flush(&self) -> bool {
        self.flushes == 0
    }

    pub(super) fn allow_ingest(&self) -> bool {
        self.ingests == 0
    }
}

/// Whether somebody is at a conversion: at a slice of it, or about to be.
#[derive(Debug, Default)]
pub(super) struct AtWork(AtomicBool);

impl AtWork {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn pause(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl ConversionJob {
    /// Whether memtables are flushed by who is at it, and by nobody else (O6).
    pub(in crate::db) fn flushes_itself(&self) -> bool {
        self.at_work.is_so()
    }

    /// Whether ingests wait.
    pub(in crate::db) fn holds_ingests(&self) -> bool {
        self.at_work.is_so() && !self.allows_ingest()
    }
}

impl Core {
    /// O6: waits a moment for who is at a conversion of the keyspace, and flushes its memtables, if
    /// somebody is. Whether somebody is. They go on until then, or fail: the caller holds nothing
    /// that the turn to flush is not taken under.
    pub(in crate::db) fn leaves_flush_to_conversion(&self, runtime: &Runtime) -> bool {
        let seen = self.flush_count();
        let is_left = runtime.conversion().is_some_and(|job| job.flushes_itself());
        if is_left {
            self.wait_for_flush(seen);
        }
        is_left
    }

    /// Waits until a conversion of the keyspace, if there is one, lets an ingest in, or is over.
    pub(in crate::db) fn wait_to_ingest(&self, runtime: &Runtime) -> crate::base::Result<()> {
        loop {
            let seen = self.flush_count();
            if !runtime.conversion().is_some_and(|job| job.holds_ingests()) {
                return Ok(());
            }
            self.check_writable()?;
            self.wait_for_flush(seen);
        }
    }
}
