//! What a judge holds against an engine.

use core::fmt;

/// A sentence that says what an engine did and what it should have done.
#[derive(Clone, PartialEq, Eq)]
pub struct Complaint(String);

impl Complaint {
    /// Makes a complaint.
    pub fn new(text: impl Into<String>) -> Complaint {
        Complaint(text.into())
    }

    /// Puts the place where it happened before the sentence.
    pub fn at(self, place: impl fmt::Display) -> Complaint {
        Complaint(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// As its text: judges are called with `unwrap`, which prints this.
impl fmt::Debug for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Complaint {}

impl From<everhash_index::Error> for Complaint {
    fn from(error: everhash_index::Error) -> Complaint {
        Complaint(format!("an unexpected error: {error}"))
    }
}

impl From<everhash_pmem::Error> for Complaint {
    fn from(error: everhash_pmem::Error) -> Complaint {
        Complaint(format!("an unexpected error of the medium: {error}"))
    }
}

/// Returns a [`Complaint`] from the calling function unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Complaint::new(format!($($text)+)));
        }
    };
}

pub(crate) use ensure;

/// Runs `body`; a panic in it becomes a complaint.
pub(crate) fn no_panic<T>(body: impl FnOnce() -> Result<T, Complaint>) -> Result<T, Complaint> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Complaint::new(format!("a panic: {text}")))
    })
}

/// Writes bytes for a complaint: short ones in full, of long ones the length and the beginning.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    let head: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    match bytes.len() {
        0 => "(empty)".to_owned(),
        n if n <= SHOWN => head,
        n => format!("{head}.. ({n} bytes)"),
    }
}
