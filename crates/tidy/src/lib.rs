//! The style of the project as a test.
//!
//! What a program can check about the sources and the documents, this crate checks: each rule of
//! [`rules::ALL`] looks at the whole [`Project`] and returns [`Finding`]s. The tables in `docs/`
//! that repeat what the code says are printed by [`pages`] and compared.
//!
//! `cargo test -p everhash-tidy` runs everything; `UPDATE=1 cargo test -p everhash-tidy` rewrites
//! the printed tables.

mod finding;
mod markdown;
pub mod pages;
mod paths;
mod project;
pub mod rules;
mod source;
mod tree;

pub use finding::Finding;
pub use project::Project;
pub use source::{Comment, Source};
pub use tree::Tree;

/// The example in the README is compiled; `crates/everhash/tests/guide.rs` runs it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
