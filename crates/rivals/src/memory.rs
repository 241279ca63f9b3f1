//! Hash indexes on persistent memory, which the paper of ElimDA compares it with: CCEH, Dash, Level
//! Hashing and clevel.
//!
//! Each grows from a small table, as in that paper. What they share: a medium whose space is handed
//! out from the front (`space.rs`), objects out of place (`objects.rs`), and the directory of the
//! two that split segments (`directory.rs`). Where a publication leaves a choice, it is made in
//! favour of the index, and its file says so.

mod cceh;
mod clevel;
mod dash;
mod directory;
mod level;
mod objects;
mod space;

pub use cceh::{Cceh, Probing};
pub use clevel::Clevel;
pub use dash::Dash;
pub use level::Level;

use space::Space;
