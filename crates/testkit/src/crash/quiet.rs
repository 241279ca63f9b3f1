//! Panics that are expected, without their noise.

use core::cell::Cell;
use std::sync::Once;

thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });

/// Runs `body`; panics inside it print nothing, on this thread.
///
/// A mutant may make an engine panic thousands of times, and a printed backtrace takes longer than
/// a thousand crash states.
pub(super) fn quietly<R>(body: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = body();
    QUIET.set(before);
    result
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::failure::no_panic;

    /// Says that this process is the one which panics.
    const PANICS: &str = "PANICS";

    #[test]
    fn a_panic_is_quiet_where_it_is_expected_and_nowhere_else() {
        // Fails if a test that goes wrong beside or after a judge tells nobody why, or if each of
        // the panics of a mutant is printed.
        if std::env::var_os(PANICS).is_some() {
            let expected = || no_panic::<()>(|| panic!("inside"));
            assert!(quietly(expected).is_err());
            assert!(no_panic::<()>(|| panic!("outside")).is_err());
            return;
        }
        // What a test prints is seen from another process only.
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "a_panic_is_quiet_where_it_is_expected_and_nowhere_else";
        child.args(["--exact", &format!("crash::quiet::tests::{name}"), "--nocapture"]);
        let done = child.env(PANICS, "1").output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{told}");
        assert!(told.contains("outside") && !told.contains("inside"), "{told}");
    }
}
