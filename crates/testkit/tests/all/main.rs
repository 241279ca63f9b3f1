//! The judges before their own judges: one binary, so that the judges are linked once.
//!
//! Loom and shuttle bring their own atomics, and each model runs inside one test: the tests of both
//! stand beside those on real threads.

mod crash;
mod damage;
mod false_alarms;
mod fuzz;
mod group_sync;
mod historic;
mod liars;
mod loom_group_sync;
mod loom_reuse;
mod loom_sequence;
mod mutants;
mod notes;
mod planted;
mod primitives;
mod rows;
mod sealed;
mod shuttle_protocols;

/// Counts what each thread allocates: a judge bounds what a forged pool takes.
#[global_allocator]
static METER: everhash_pmem::AllocationMeter = everhash_pmem::AllocationMeter;
