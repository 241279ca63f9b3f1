//! Calls of the caller's code from inside a table, which may hold locks at that time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Keeps a panic of the caller's code until the table has let go of its locks. Nothing was stored
/// when it panicked, so nothing of the table is in doubt, and no lock needs to be poisoned.
#[derive(Default)]
pub(crate) struct Callback {
    panic: Option<Box<dyn Any + Send>>,
}

impl Callback {
    /// Returns what `run` returns, or `otherwise` if it panics or an earlier call has.
    pub(crate) fn call<T>(&mut self, otherwise: T, run: impl FnOnce() -> T) -> T {
        if self.panic.is_some() {
            return otherwise;
        }
        // The panic goes on in `resume`, so the caller sees what it would have seen anyway.
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(value) => value,
            Err(panic) => {
                self.panic = Some(panic);
                otherwise
            }
        }
    }

    /// Lets a panic go on that was kept.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
    }
}
