//! Atomics and locks that a scheduler controls: the very code that serves users runs under them.
//!
//! [`Shuttle`] tries random interleavings of large programs, one atomic step at a time, and knows
//! no weak memory. [`Loom`] tries every interleaving of tiny ones and every value that a weakly
//! ordered load may return. What they find differs, so the small protocols are checked by both.

mod loom;
mod loom_medium;
mod rehearsed;
mod shuttle;

pub use loom::{Loom, LoomMutex, LoomWord};
pub use loom_medium::{ACQUIRE, LoomBlock, LoomMedium, NO_FENCE, RELEASE, Without, read_beside};
pub use rehearsed::{RehearsedWord, read_beside_rehearsed};
pub use shuttle::{Shuttle, ShuttleMutex, ShuttleWord};
