//! Measures engines beside the ceilings of the machine, in one interleaved run.
//!
//! Every round measures the ceilings and then every phase of every engine, so that a ratio
//! compares what was measured moments apart on a noisy machine. Every answer is checked against
//! the expected one: a wrong answer ends the run. The main figure is operations per second of CPU
//! time of the slowest thread, because other programs share the processors; wall time stands
//! beside it.
//!
//! [`scale`] fills one table in a file, as large as the disk lets it be, and measures what only
//! size shows. [`count_instructions`] counts what single operations take, the same on every day.

mod ceilings;
mod clock;
mod instructions;
mod keys;
mod medium;
mod phases;
mod process;
mod report;
mod run;
mod scale;

pub use ceilings::Ceiling;
pub use instructions::{Count, be_counted, count_instructions};
pub use medium::best_write_back;
pub use phases::Phase;
pub use report::{Latency, Report, Row, Spread};
pub use run::{Candidate, Plan, candidates, run};
pub use scale::{ReadKind, Reads, ScalePlan, ScaleReport, Tail, reread, scale};
