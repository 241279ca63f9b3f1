//! Races: many schedules of a few threads, every answer explained, every crash survived.
//!
//! [`judge`] runs short programs of two to four threads under the shuttle scheduler, which decides
//! at every access to the medium and at every lock which thread runs next. The history of each key
//! must be linearizable, and must stay so after a crash at every moment of the schedule: a value
//! that a reader returned survives. [`stress`] runs real threads for longer.

mod bursts;
mod crash;
mod edges;
mod history;
mod judge;
mod linear;
mod program;
mod schedule;
mod stress;
#[cfg(test)]
mod tests;
mod tracker;

pub use history::{Answer, Call, Event};
pub use judge::{Effort, Report, Subject, Violation, judge, replay};
pub use linear::{Verdict, linearize};
pub use program::{BadProgram, Program};
pub use stress::{Stress, StressReport, stress};
