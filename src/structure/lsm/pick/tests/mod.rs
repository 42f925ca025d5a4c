//! Tests of the choice of compactions: tables of cases, and a model in which versions are flushed
//! to, compacted and read.

mod cases;
mod experiments;
mod figures;
mod model;
mod random;
