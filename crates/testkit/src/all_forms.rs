//! The judges as the tests of an engine call them: over every form that it holds, with the usual
//! effort. Each prints what was done.
//!
//! # Panics
//! All of them, with the violation.

use core::fmt::{Debug, Display};

use everhash_index::{Design, Form};
use everhash_pmem::Image;

#[cfg(feature = "race")]
use crate::race;
use crate::{conformance, model, room};

/// Every operation is answered as by a sorted map.
pub fn model(design: &Design<Image>) {
    each(design, |form| model::judge(design, form, &model::Effort::default()));
}

/// Every promise of the contract is kept.
pub fn conformance(design: &Design<Image>) {
    each(design, |form| conformance::judge(design, form));
}

/// No schedule of a few threads gives an answer that no order of the operations explains, or, where
/// writes are durable when they return, one that a crash takes back. `everhash race` does more.
#[cfg(feature = "race")]
pub fn schedules(subject: &race::Subject) {
    each(&subject.plain, |form| {
        let effort = race::Effort { seeds: 0..20, ..race::Effort::default() };
        let report = race::judge(subject, form, &effort)?;
        assert_eq!(report.undecided, 0, "{form}: histories with too many orders");
        Ok::<_, Box<race::Violation>>(report)
    });
}

/// Real threads give no such answer either.
#[cfg(feature = "race")]
pub fn threads(design: &Design<Image>) {
    each(design, |form| {
        let report = race::stress(design, form, &race::Stress::default())?;
        assert_eq!(report.undecided, 0, "{form}: histories with too many orders");
        Ok::<_, crate::Failure>(report)
    });
}

/// A medium that is full at any moment loses nothing and wedges nothing.
pub fn room(design: &Design<Image>, effort: &room::Effort) {
    each(design, |form| {
        let report = room::judge(design, form, effort)?;
        assert!(report.runs > 30 && report.refused > 100, "{form}: hardly anything: {report}");
        Ok::<_, Box<room::Violation>>(report)
    });
}

fn each<R: Debug, V: Display>(design: &Design<Image>, judge: impl FnMut(Form) -> Result<R, V>) {
    let mut judge = judge;
    for form in design.capabilities.all_forms() {
        let report = judge(form).unwrap_or_else(|violation| panic!("{form}: {violation}"));
        println!("{form}: {report:?}");
    }
}
