//! A system that does some work in between: what happens beside a long step of the engine.

use std::io;
use std::sync::Mutex;

use everhash_pmem::media::file::system::{Call, System};

type Work = Box<dyn FnMut() + Send>;

/// A system that does some work before each call of a kind.
pub struct Busy {
    before: Call,
    work: Mutex<Option<Work>>,
}

impl Busy {
    /// Makes one that has no work yet.
    pub fn before(call: Call) -> Busy {
        Busy { before: call, work: Mutex::new(None) }
    }

    /// Gives it work to do from now on.
    pub fn begin(&self, work: impl FnMut() + Send + 'static) {
        *self.work.lock().unwrap() = Some(Box::new(work));
    }

    /// Takes the work away.
    pub fn end(&self) {
        *self.work.lock().unwrap() = None;
    }
}

impl core::fmt::Debug for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "work before each {:?}", self.before)
    }
}

impl System for Busy {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        // The work itself makes such calls, too.
        if call == self.before
            && let Ok(mut work) = self.work.try_lock()
            && let Some(work) = &mut *work
        {
            work();
        }
        run()
    }
}
