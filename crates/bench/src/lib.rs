//! Benchmark workloads (to be written).
