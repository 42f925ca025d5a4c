//! Jobs: when background work is due and when writers have to wait. Pure functions of plain
//! structs; the database runs what they decide.

mod cleaning;
mod merge_threads;
mod pacer;
mod pressure;

pub use cleaning::{Aim, GarbageFigures, RoundPace, ValueFileFigures, files_to_clean};
pub use merge_threads::{MergeThreads, MergeTurn, MergedSlice};
pub use pacer::{FlushRate, Pacer, RateLimit};
pub use pressure::{
    Pressure, RANGE_COUNT_MAX, SealReason, Stall, can_give_way, can_wait, seal_due, stall,
};
