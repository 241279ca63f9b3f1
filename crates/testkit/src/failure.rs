//! A failure: how an engine broke its contract.

use core::fmt;

/// A sentence that says what an engine did, and what it should have done.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    text: String,
    /// Whether a replay does not apply to this program.
    is_stale: bool,
    /// Whether an operation found no room.
    is_full: bool,
}

impl Failure {
    /// Makes a failure.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), is_stale: false, is_full: false }
    }

    /// Makes a failure of a replay that does not apply to this program: another one has written it.
    pub fn stale(text: impl Into<String>) -> Failure {
        Failure { is_stale: true, ..Failure::new(text) }
    }

    /// Returns whether a replay does not apply to this program, so that it says nothing about the
    /// engine.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns whether an operation found no room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Puts the place where it happened before the sentence.
    pub fn at(self, place: impl fmt::Display) -> Failure {
        Failure { text: format!("{place}: {}", self.text), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// As its text: judges are called with `unwrap`, which prints this.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl core::error::Error for Failure {}

impl From<everhash_index::Error> for Failure {
    fn from(error: everhash_index::Error) -> Failure {
        let is_full = error.is_full();
        Failure { is_full, ..Failure::new(format!("an unexpected error: {error}")) }
    }
}

impl From<everhash_pmem::Error> for Failure {
    fn from(error: everhash_pmem::Error) -> Failure {
        Failure::new(format!("an unexpected error of the medium: {error}"))
    }
}

/// Returns a [`Failure`] from the calling function unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($text)+)));
        }
    };
}

pub(crate) use ensure;

/// Runs `body`; a panic in it becomes a failure.
pub(crate) fn no_panic<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Failure::new(format!("a panic: {text}")))
    })
}

/// Writes bytes for a failure: short ones in full, of long ones the length and the beginning.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    let head: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    match bytes.len() {
        0 => "(empty)".to_owned(),
        n if n <= SHOWN => head,
        n => format!("{head}.. ({n} bytes)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_thrown_and_how_long_bytes_are() {
        // Fails if a panic of an engine has no text, or if long keys fill the page.
        let thrown = |what| no_panic(|| -> Result<(), Failure> { std::panic::resume_unwind(what) });
        let told = |what| thrown(what).unwrap_err().to_string();
        assert_eq!(told(Box::new("thrown")), "a panic: thrown");
        assert_eq!(told(Box::new("owned".to_owned())), "a panic: owned");
        assert_eq!(told(Box::new(7)), "a panic: no message");
        assert_eq!([show(&[]), show(&[1, 0xab])], ["(empty)", "01ab"]);
        assert_eq!(show(&[7; 16]), "07".repeat(16));
        assert_eq!(show(&[7; 17]), format!("{}.. (17 bytes)", "07".repeat(16)));
        let full = everhash_index::Error::Full { needed: 1 };
        assert!(Failure::from(full).at("here").is_full() && !Failure::new("full").is_full());
        assert!(Failure::stale("old").at("here").is_stale());
    }
}
