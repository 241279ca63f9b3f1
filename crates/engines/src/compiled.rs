//! The engines on the media that several crates share, compiled here and nowhere else.
//!
//! A crate that asks [`designs`] for a medium compiles every engine for it, and its unit tests do
//! so once more. That takes a minute for each medium, so the shared ones are made here.
//! The tests of this crate compile the engines for media of their own and leave these out.

use everhash_index::Design;
#[cfg(feature = "memory")]
use everhash_pmem::Dram;
use everhash_pmem::FileMedium;
#[cfg(feature = "traced")]
use everhash_pmem::media::traced::Traced;

use crate::{ENGINES, designs};

/// Every engine on mapped files, in the order of [`ENGINES`].
pub static ON_FILES: [Design<FileMedium>; ENGINES.len()] = designs();

/// Every engine on volatile memory, in the order of [`ENGINES`].
#[cfg(feature = "memory")]
pub static IN_MEMORY: [Design<Dram>; ENGINES.len()] = designs();

/// Every engine on the medium that remembers what was done to it, for the judges of crashes, in
/// the order of [`ENGINES`].
#[cfg(feature = "traced")]
pub static TRACED: [Design<Traced>; ENGINES.len()] = designs();
