//! Atomics and locks that a scheduler controls: the very code that serves users runs under them.
//!
//! [`Shuttle`] tries random interleavings of large programs, one atomic step at a time, and knows
//! no weak memory. [`Loom`] tries every interleaving of tiny ones and every value that a weakly
//! ordered load may return. What they find differs, so the small protocols are checked by both.

mod loom;
mod loom_medium;
mod rehearsed;
mod shuttle;

pub use loom::{Loom, LoomMutex, LoomWord, without_fences};
pub use loom_medium::{LoomBlock, LoomMedium, read_beside};
pub use rehearsed::{RehearsedWord, read_beside_rehearsed};
pub use shuttle::{Shuttle, ShuttleMutex, ShuttleWord};
