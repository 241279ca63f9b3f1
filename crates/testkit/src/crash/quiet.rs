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
