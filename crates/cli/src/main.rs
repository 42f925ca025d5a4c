//! The command line program of LitheDB.

fn main() {}
