//! Forged databases and lines as a command.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn figures_of_forged_databases_are_there_for_people_and_for_programs() {
    // Fails if a person gets what is meant for a program, or the other way round; or if nothing is
    // forged or read.
    let place = Place::new();
    let few = ["fuzz", "--engine", "wophi", "--form", "8/8", "--executions", "20"];
    let told = String::from_utf8(place.ok(&few)).unwrap();
    assert!(told.starts_with("wophi: 0 findings; 20 executions, "), "{told}");
    let figures = place.json(&few);
    assert_eq!((&figures["findings"], &figures["executions"]), (&0.into(), &20.into()));
    for some in ["mixed", "opened", "lines"] {
        assert!(figures[some].as_u64() > Some(0), "{some}: {figures}");
    }
}
