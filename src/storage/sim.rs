//! Simulated storage (to be written).
/// Simulated files.
#[derive(Debug)]
pub struct SimStorage;
/// Crash.
#[derive(Debug)]
pub struct CrashMode;
/// Faults.
#[derive(Debug)]
pub struct FaultPlan;
