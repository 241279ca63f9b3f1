//! Threads under many schedules as a command.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn figures_of_schedules_are_there_for_people_and_for_programs() {
    // Fails if a person gets what is meant for a program, or the other way round; or if no schedule
    // is run or crashed.
    let place = Place::new();
    let few = ["race", "--engine", "wophi", "--form", "8/8", "--schedules", "200"];
    let told = String::from_utf8(place.ok(&few)).unwrap();
    assert!(told.starts_with("wophi, adr: 0 violations; "), "{told}");
    let figures = place.json(&few);
    assert_eq!(figures["violations"], 0, "{figures}");
    assert!(figures["schedules"].as_u64() >= Some(200), "{figures}");
    for some in ["programs", "crashed_schedules", "states"] {
        assert!(figures[some].as_u64() > Some(0), "{some}: {figures}");
    }
}
