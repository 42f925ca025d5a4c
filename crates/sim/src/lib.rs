//! Simulation of LitheDB: the harnesses behind the integration tests and the program
//! `lithe-sim`, which runs them for as long as one likes.
//!
//! | module | what |
//! |---|---|
//! | `random`, `sample`, `ops`, `diet`, `setup` | what a run does, from a seed |
//! | `operator`, `extractors`, `indexed` | what is registered, and what indexes must show |
//! | `session`, `timeline`, `readback` | running it, its history, and the prefix oracle |
//! | `histories` | what keyspaces that keep versions tell, held against itself |
//! | `checkpoints` | what the checkpoints of a run must show |
//! | `crash` | power cuts and kills at every mutation of a run, and during recovery |
//! | `damage` | bytes at rest that rot, vanish or return |
//! | `faults` | calls of the storage that fail; full disks |
//! | `isolation` | transactions of several threads, with every read judged |
//! | `model` | everything that can be read, against `BTreeMap`s |
//! | `replay` | the same seed does the same, call by call |
//! | `space` | flexible spaces: all of this for them |
//! | `seeded` | bugs that are built in, and who finds each; only with `--cfg seeded_bugs` |
//! | `twins` | the same operations on two structures |
//! | `torture` | real processes are killed, real file systems cut off: `lithe torture` |
//! | `campaign` | runs of all of these by seed, one after the other |
//! | `ledger`, `journal` | counting, and writing down what was counted and found |
//! | `shrink`, `parallel`, `allocation` | cutting down, running on several threads, limits |
//!
//! Without the feature `campaigns` there is only what `torture` needs, which `lithe` has in it.

#[cfg(feature = "campaigns")]
pub mod allocation;
#[cfg(feature = "campaigns")]
pub mod campaign;
pub mod checkpoints;
pub mod clock;
#[cfg(feature = "campaigns")]
pub mod corpus;
#[cfg(feature = "campaigns")]
pub mod crash;
#[cfg(feature = "campaigns")]
pub mod damage;
pub mod diet;
pub mod digest;
pub mod extractors;
#[cfg(feature = "campaigns")]
pub mod faults;
pub mod finding;
mod histories;
pub mod indexed;
#[cfg(feature = "campaigns")]
pub mod isolation;
pub mod journal;
pub mod ledger;
#[cfg(feature = "campaigns")]
pub mod model;
pub mod operator;
pub mod ops;
pub mod parallel;
pub mod random;
pub mod readback;
#[cfg(feature = "campaigns")]
pub mod replay;
pub mod sample;
#[cfg(all(feature = "campaigns", seeded_bugs))]
pub mod seeded;
pub mod session;
pub mod setup;
#[cfg(feature = "campaigns")]
pub mod shrink;
#[cfg(feature = "campaigns")]
pub mod space;
pub mod timeline;
pub mod torture;
#[cfg(feature = "campaigns")]
pub mod twins;
#[cfg(feature = "campaigns")]
pub mod watched;
