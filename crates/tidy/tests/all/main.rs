//! The rules before planted violations, the pages before planted contents, and the project before
//! both: one binary.

mod pages;
mod planted;
mod tidy;
