//! Damage at rest: truncation, flipped bits, lost, old, swapped and foreign sectors and files.
//!
//! A small database made by a real run (several keyspaces, flushed and unflushed data) is damaged
//! in one place, opened, read whole and checked. The only right outcomes: an error that names the
//! file, or exactly the data. What was never acknowledged as durable may be missing from the end.
//!
//! | file | what |
//! |---|---|
//! | `fixture` | the databases |
//! | `injury` | the kinds of damage, and lists of them |
//! | `inspect` | opening, reading and checking; what the outcome means |
//! | `repairs` | repairing what was damaged; what the new database must have |
//! | `by_kind` | a seed's databases, damaged in all ways of a kind |

mod by_kind;
mod fixture;
mod injury;
mod inspect;
mod repairs;

use std::sync::Arc;

use crate::allocation::within_reason;
use crate::ledger::Ledger;
use crate::parallel::{run_cases, survive};

pub use by_kind::{DamageKind, DamageRun};
pub use fixture::{Ending, Fixture};
pub use injury::{Injury, Thoroughness, flips, misplacements, sectors, truncations};
pub use inspect::Outcome;
pub use repairs::{RepairMistake, repaired, run_repair, run_repairs};

/// Inflicts every injury on a copy of the fixture, and notes what comes of it. `arguments` repeat
/// the campaign; the case is added to them.
pub fn run(
    fixture: &Fixture,
    injuries: &[Injury],
    threads: usize,
    ledger: &Arc<Ledger>,
    arguments: &str,
) {
    run_cases(threads, injuries.len() as u64, |number| {
        run_one(
            fixture,
            &injuries[number as usize],
            ledger,
            &format!("{arguments} --case {number}"),
        );
        true
    });
}

/// Inflicts one injury on a copy of the fixture, and notes what comes of it.
pub fn run_one(fixture: &Fixture, injury: &Injury, ledger: &Arc<Ledger>, arguments: &str) {
    let verdict = survive(|| within_reason(|| inspect::inspect(fixture, injury)));
    match verdict {
        Ok(outcome) => ledger.count(outcome.name()),
        Err(finding) => ledger.note(finding.at(&format!("{injury:?}")), || arguments.to_string()),
    }
    ledger.count("injuries");
}
