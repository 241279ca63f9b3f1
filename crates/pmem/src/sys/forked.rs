//! Children of `fork`, for tests and examples of what a forked child may do.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How often it is looked again whether this thread is alone: one that was joined is listed for a
/// moment longer. Source: ours; a second in all.
const LOOKS: u32 = 1000;

/// A child of `fork`; see [`in_forked_child`]. It stays a zombie until it is waited for.
#[derive(Debug)]
#[must_use = "a child is waited for"]
pub struct ForkedChild {
    id: libc::pid_t,
}

/// Forks this process, and ends the child with what `run` returns there: nothing else of the
/// program runs in it, no destructors and no rest of the caller. The parent goes on without calling
/// `run`.
///
/// The process must have one thread: then the child has all of what its parent has, and may do
/// everything. A panic of `run` ends the child with 101.
///
/// # Errors
/// Those of the system, and one if there are other threads.
pub fn in_forked_child(run: impl FnOnce() -> u8) -> io::Result<ForkedChild> {
    let mut looks = 0;
    while std::fs::read_dir("/proc/self/task")?.count() > 1 {
        looks += 1;
        if looks > LOOKS {
            return Err(io::Error::other("a process that is forked here has one thread"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: this is the only thread, and only it could start another one: so no lock is held in
    // the child by a thread that it does not have, and whatever was allowed here is allowed there.
    let id = unsafe { libc::fork() };
    if id == 0 {
        let code = catch_unwind(AssertUnwindSafe(run)).unwrap_or(101);
        // SAFETY: ends the child at once, without running what belongs to its parent.
        unsafe { libc::_exit(code.into()) }
    }
    if id < 0 { Err(io::Error::last_os_error()) } else { Ok(ForkedChild { id }) }
}

impl ForkedChild {
    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// Those of the system.
    pub fn kill(&self) -> io::Result<()> {
        // SAFETY: the number is that of our child, which cannot be given to another process before
        // it is waited for.
        let killed = unsafe { libc::kill(self.id, libc::SIGKILL) };
        if killed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for its end; returns its exit status, `None` if a signal ended it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(self) -> io::Result<Option<u8>> {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer, and the child is our own.
        while unsafe { libc::waitpid(self.id, &mut status, 0) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        Ok(code.map(|code| code as u8))
    }
}

/// Lets a write to a pipe that nobody reads end this process, as programs do that are not written
/// in Rust. For tests that no such write is made.
pub fn end_at_broken_pipes() {
    // SAFETY: the default action of a signal runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // Fails if the child could wait for a lock that a thread holds which it does not have.
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(in_forked_child(|| 0).is_err());
        drop(stop);
        assert!(other.join().is_ok());
    }
}
