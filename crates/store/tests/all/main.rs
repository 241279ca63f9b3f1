//! The store as a program embeds it: one binary for all of its tests.

mod counts;
mod crashes;
mod figures;
mod opening;
mod operations;
mod refusals;
mod rewriting;
mod sequences;
mod snapshots;
mod support;
mod tables;
mod typed;
