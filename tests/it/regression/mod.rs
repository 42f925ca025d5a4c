//! What the faults of other stores teach: one test each, named after what must hold.
//!
//! | lesson | test |
//! |---|---|
//! | 1, 2, 4, 13, 16, 17, 21 | `durability` |
//! | 12 | `concurrency` |
//! | 3, 20 | `corruption`, and `damage` here |
//! | 5, 15, 19, 22 | `reading` |
//! | 6, 7 | `tables`; 6 also `durability::the_newest_wins_after_a_crash_at_each_removal` |
//! | 9, 10, 11, 14, 18 | `life`; 11 also in `tables` and `concurrency` |

mod damage;
mod durability;
mod life;
mod reading;
mod tables;
