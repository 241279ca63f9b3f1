//! The number of live pairs: after a clear, a rehash, and every way to stop.

use core::time::Duration;

use everhash_index::{Form, Table};
use everhash_testkit::session::Session;

use crate::walsh::{Walsh, WalshSettings};

/// One area, and more directories than a rehash moves in one step.
const SETTINGS: WalshSettings =
    WalshSettings { areas: 1, directories: 256, ..WalshSettings::tiny() };

fn word(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

#[test]
fn a_rehash_after_a_clear_counts_only_what_came_since() {
    // Fails if the info that begins a rehash forgets that its oldest log was begun for a clear: the
    // head of that log still counts what was cleared. So it was until real threads stopped in the
    // middle of such a rehash.
    let mut session: Session<Walsh> = Session::create(
        everhash_pmem::Image::<everhash_pmem::Std>::new(0, 1 << 20),
        Form::WORDS,
        &SETTINGS,
    )
    .unwrap();
    for number in 0..100 {
        assert!(session.table().insert(&word(number), &[1; 8]).unwrap());
    }
    session.table().clear().unwrap();
    // Garbage, for which upkeep begins a rehash.
    for _ in 0..30 {
        session.table().put(&word(7), &[2; 8]).unwrap();
    }
    session.table().maintain(Duration::ZERO, 1).unwrap();
    let halfway = |session: &Session<Walsh>| {
        let found = session.table().check().unwrap();
        assert_eq!((found.items, session.table().len().unwrap()), (1, 1));
        session.table().areas[0].view.latest().old().is_some()
    };
    assert!(halfway(&session), "the rehash ended in one step");
    session.reopen().unwrap();
    assert!(halfway(&session), "closed and opened");
    session.kill().unwrap();
    assert!(halfway(&session), "killed");
    session.outage().unwrap();
    assert!(halfway(&session), "without power");
    while session.table().maintain(Duration::ZERO, 1).unwrap().more {}
    assert!(!halfway(&session), "the rehash goes on");
}
