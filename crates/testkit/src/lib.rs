//! The judges of an index: what every engine promises, checked without knowing any engine.
//!
//! | judge | asks | finds |
//! |---|---|---|
//! | [`model`] | does every operation answer like a map? | wrong answers, also after restarts |
//! | [`conformance`] | does every sentence of the contract hold? | lengths, scans, full media, panics |
//! | [`crash`] | are the images that a crash may leave legal states? | missing flushes, torn commits |
//! | [`damage`] | are flipped bits and lost ends reported? | unchecked words, trusted numbers |
//! | [`room`] | does a medium without room cost nothing but the write? | lost batches, lost space |
//! | [`hostile`] | is every number that was forged bounded? | panics, endless loops, growth |
//! | [`fuzz`] | the same of pools mixed from several moments, as many as there is time | stale words |
//! | [`race`] | does some order explain every answer of several threads? | races, early reads |
//!
//! An engine comes before them with three lines each. Forms are judged one by one; what an engine
//! says in its capabilities that it cannot do is left out. Here [`reference`](mod@reference), the
//! template of an engine, stands where yours would:
//!
//! ```no_run
//! use everhash_index::{Design, Form};
//! use everhash_testkit::reference::Reference as YourEngine;
//! use everhash_testkit::{conformance, crash, damage, hostile, model, race, room};
//!
//! let on_memory = Design::of::<YourEngine>();
//! let report = model::judge(&on_memory, Form::WORDS, &model::Effort::default()).unwrap();
//! assert!(report.operations == 40_000 && report.restarts > 100);
//!
//! let report = conformance::judge(&on_memory, Form::WORDS).unwrap();
//! assert!(report.held.contains(&"a_full_medium_is_an_error_and_no_end"));
//!
//! let traced = Design::of::<YourEngine>();
//! let report = crash::judge(&traced, Form::WORDS, &crash::Effort::default()).unwrap();
//! assert!(report.counts.states > 10_000); // fewer means that nothing was enumerated
//!
//! let report = damage::judge(&on_memory, Form::WORDS, &damage::Effort::default()).unwrap();
//! assert!(report.noticed > 1000 && report.by_check_alone == 0);
//!
//! let report = room::judge(&on_memory, Form::WORDS, &room::Effort::default()).unwrap();
//! assert!(report.runs > 50 && report.refused > 50);
//!
//! let report = hostile::judge(&on_memory, Form::WORDS, &hostile::Effort::default()).unwrap();
//! assert!(report.opened > 100);
//!
//! let threads = race::Subject::of::<YourEngine>();
//! let report = race::judge(&threads, Form::WORDS, &race::Effort::default()).unwrap();
//! assert!(report.schedules == 3600 && report.states > 1000);
//! ```
//!
//! The judges minimise a violation and print it with a line that replays it. That the judges see
//! what they should is tested in turn: more than fifty bugs planted in a small engine
//! (`tests/all/planted`), published bugs of other systems re-created (`tests/all/historic`), a
//! thousand spoiled histories, and a trivially correct engine that must never be accused.

pub mod all_forms;
pub mod conformance;
pub mod crash;
pub mod damage;
mod failure;
pub mod fuzz;
pub mod hostile;
pub mod measured;
pub mod model;
mod open_table;
#[cfg(feature = "race")]
pub mod primitives;
#[cfg(feature = "race")]
pub mod race;
pub mod random;
pub mod reference;
pub mod room;
pub mod session;
mod settle;
pub mod shrink;
pub mod variants;
pub mod workload;

pub use failure::Failure;
pub use open_table::OpenTable;
pub use settle::settle;
