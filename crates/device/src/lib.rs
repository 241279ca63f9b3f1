//! Emulated devices against published measurements.
//!
//! [`probe`] runs small programs on a [`Profile`], puts what they measure beside what was published
//! about the device, and says for each value whether it is within its tolerance. The result is
//! [a table](Table), a few [figures](Figure), and [a page](page) that needs nothing else beside it.
//!
//! ```no_run
//! use everhash_pmem::profile::Profile;
//!
//! let probe = everhash_device::probe(&Profile::named("walsh")?)?;
//! println!("{}", probe.table.text());
//! assert!(probe.table.holds());
//! # Ok::<(), everhash_pmem::Error>(())
//! ```

mod figure;
mod page;
mod plot;
mod probe;
mod programs;
mod published;
mod table;

pub use figure::{Figure, Mark, Scale, Series};
pub use page::{page, write_report};
pub use plot::svg;
pub use probe::{Probe, WAITING, probe};
pub use table::{Row, Table, Tolerance};

#[doc(no_inline)]
pub use everhash_pmem::profile::Profile;
