//! The program, run as a user runs it: one binary for all of its tests.

mod bad_input;
mod commands;
mod crash;
mod device;
mod figures;
mod full_disk;
#[cfg(feature = "judges")]
mod fuzz;
mod help;
mod killed;
mod messages;
#[cfg(feature = "judges")]
mod race;
mod refusals;
mod round_trip;
mod support;
mod torture;
