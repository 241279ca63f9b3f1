//! One thing that is against the rules: where, what, and what to do about it.

use core::fmt;

/// One thing that is against the rules.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Finding {
    /// Makes a finding.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}
