//! The crash explorer: from the log of a run to the images that a crash may leave.
//!
//! A [`Traced`](crate::media::traced::Traced) medium writes a [`Log`]. An [`Explorer`] replays it
//! over a [`Memory`], which tracks visible, durable and pending stores. It stops at every crash
//! point and passes each distinct image to a judge as a [`State`]. The rules are in
//! `docs/persistence-model.md`; the litmus programs of this crate check the explorer against them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
//! use everhash_pmem::media::traced::Traced;
//! use everhash_pmem::{Addr, Region, Std};
//!
//! let region = Region::new(Traced::<Std>::new(Model::Adr, 4096, 4096));
//! let pm = region.access();
//! pm.store(Addr::new(64), 1)?; // the pair
//! pm.store(Addr::new(128), 1)?; // its token, in another line, without a fence in between
//!
//! let log = region.media().take_log();
//! let mut explorer = Explorer::new(Memory::zero(Model::Adr, 4096), log.events());
//! let mut images = Vec::new();
//! while explorer.next_point().is_some() {
//!     let _ = explorer.states(&Limits::default(), &mut Seen::default(), 0, &mut |state| {
//!         images.push((state.words()[8], state.words()[16]));
//!         ControlFlow::Continue(())
//!     });
//! }
//! images.sort();
//! assert_eq!(images, [(0, 0), (0, 1), (1, 0), (1, 1)]); // a token without its pair
//! # Ok::<(), everhash_pmem::Error>(())
//! ```

mod debt;
mod explorer;
mod log;
mod memory;
mod mix;
mod model;
mod name;
mod seen;
mod state;
mod units;
mod walk;

pub use debt::{Debt, debts};
pub use explorer::{Explorer, Moment};
pub use log::{Event, FREED, How, Log, What};
pub use memory::{Memory, Place};
pub use mix::Random;
pub use model::Model;
pub use name::{BadName, Name, NoSuchState};
pub use seen::Seen;
pub use state::State;
pub(crate) use units::Units;
pub use walk::{Count, Limits};
