//! The judges of an index: what every engine promises, checked without knowing any engine.
//!
//! | judge | asks | finds |
//! |---|---|---|
//! | [`model`] | does every operation answer like a map? | wrong answers, also after restarts |
//! | [`conformance`] | does every sentence of the contract hold? | lengths, scans, full media, panics |
//! | [`crash`] | is every image that a crash may leave a legal state? | missing flushes, torn commits |
//! | [`damage`] | are flipped bits and lost ends told of? | unchecked words, trusted numbers |
//! | [`hostile`] | is every number that was forged bounded? | panics, endless loops, growth |
//! | [`race`] | does some order explain every answer of several threads? | races, early reads |
//!
//! An engine comes before them with three lines each. Forms are judged one by one; what an engine
//! says in its capabilities that it cannot do is left out. Here [`reference`](mod@reference), the
//! template of an engine, stands where yours would:
//!
//! ```no_run
//! use everhash_index::Form;
//! use everhash_testkit::reference::Reference as YourEngine;
//! use everhash_testkit::{conformance, crash, damage, hostile, model, race};
//!
//! let report = model::judge::<YourEngine>(Form::WORDS, &model::Effort::default()).unwrap();
//! assert!(report.operations == 40_000 && report.restarts > 100);
//!
//! let report = conformance::judge::<YourEngine>(Form::WORDS).unwrap();
//! assert!(report.held.contains(&"a_full_medium_is_an_error_and_no_end"));
//!
//! let report = crash::judge::<YourEngine>(Form::WORDS, &crash::Effort::default()).unwrap();
//! assert!(report.counts.states > 10_000); // fewer means that nothing was enumerated
//!
//! let report = damage::judge::<YourEngine>(Form::WORDS, &damage::Effort::default()).unwrap();
//! assert!(report.noticed > 1000 && report.by_check_alone == 0);
//!
//! let report = hostile::judge::<YourEngine>(Form::WORDS, &hostile::Effort::default()).unwrap();
//! assert!(report.opened > 100);
//!
//! let report = race::judge::<YourEngine>(Form::WORDS, &race::Effort::default()).unwrap();
//! assert!(report.schedules == 3600 && report.states > 1000);
//! ```
//!
//! A violation is made as short as possible and printed with a line that replays it. That the
//! judges see what they should is tested in turn: forty bugs planted in a small engine
//! (`tests/planted`), published bugs of other systems re-created (`tests/historic`), a thousand
//! spoiled histories, and a trivially correct engine that must never be accused.

mod complaint;
pub mod conformance;
pub mod crash;
pub mod damage;
pub mod hostile;
pub mod measured;
pub mod model;
pub mod primitives;
pub mod race;
pub mod random;
pub mod reference;
pub mod session;
pub mod shrink;
pub mod workload;

pub use complaint::Complaint;
