//! The substrate from outside: one binary for all tests that need no process of their own.

#![allow(clippy::unwrap_used, reason = "this is a test, also where it is not a test function")]

mod common;
mod crash;
mod failed_syncs;
mod file;
mod file_faults;
mod litmus;
mod pool_crashes;
#[path = "../support/mod.rs"]
mod support;
