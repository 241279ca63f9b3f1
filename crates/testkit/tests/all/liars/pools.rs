//! Lies that the judges of damaged, forged and full pools hear.

use core::sync::atomic::Ordering;

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_pmem::{Image, Shutdown, pool};
use everhash_testkit::{damage, fuzz, hostile, room};

use super::{CALLS, Lie, heard};

const WORDS: Form = Form::WORDS;

/// Flips alone.
fn flips() -> damage::Effort {
    let (flip_every, cut_every) = (11, 1 << 40);
    damage::Effort { flip_every, several: 0, images: 0, cut_every, ..damage::Effort::default() }
}

/// Listens while pools of a form are damaged.
fn damaged(lie: Lie, form: Form, effort: &damage::Effort) -> String {
    heard(lie, |design| damage::judge(design, form, effort).map(drop))
}

#[test]
fn whatever_a_damaged_pool_says_is_compared() {
    // Fails if an error that names no damage excuses something, if a wrong answer counts as one
    // of a pair without a check that is none, or if keys, parts of scans, closed pools or media
    // are left out.
    let bare = damage::Effort { bare_pairs: true, ..flips() };
    let file = damage::Effort { model: Model::File, ..flips() };
    let unclosed = damage::Effort { unclosed: 0..600, ..bare.clone() };
    for (lie, form, effort, says) in [
        (Lie::FullAt(26), WORDS, &flips(), "an error that tells of no damage"),
        (Lie::LenFails, WORDS, &flips(), "an error that tells of no damage"),
        (Lie::Key(5), Form::Variable, &bare, ": contains of "),
        (Lie::Contains, WORDS, &bare, ": contains of "),
        (Lie::Key(5), WORDS, &flips(), ": contains of "),
        (Lie::Key(30), WORDS, &flips(), ": contains of "),
        (Lie::StrangerThenDamage, WORDS, &flips(), ": scan of "),
        (Lie::StrangerPastDamage, WORDS, &flips(), ": scan of "),
        (Lie::ClosedScan, WORDS, &flips(), ", closed: "),
        (Lie::Len, WORDS, &unclosed, ", closed: bit 0 of word 0: "),
        (Lie::SyncedPanics, WORDS, &file, ", left open: "),
    ] {
        let found = damaged(lie, form, effort);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}

#[test]
fn a_damaged_pool_is_worked_on_in_every_way() {
    // Fails if pools are asked only and not written, if what an operation does to one with
    // exchanged words is passed over, or if a pool without its end may do anything.
    let seldom = damage::Effort { flip_every: 1 << 40, ..flips() };
    let exchanged = damage::Effort { unclosed: 0..1, images: 40, ..seldom.clone() };
    for call in ["put", "get", "remove", "maintain", "len", "check", "clear", "close"] {
        let found = damaged(Lie::Panics(call), WORDS, &exchanged);
        assert!(found.contains(", left open: image ") && found.contains("panics"), "{found}");
    }
    let found = damaged(Lie::RecoveredScanForEver, WORDS, &exchanged);
    assert!(found.contains(", left open: image "), "{found}");
    let found = damaged(Lie::Panics("clear"), WORDS, &seldom);
    assert!(found.contains(", left open: bit 0 of word 0: a panic: clear panics"), "{found}");
    let cut = damage::Effort { cut_every: 7, ..seldom };
    let found = damaged(Lie::CutPanics, WORDS, &cut);
    assert!(found.contains(": cut to ") && found.contains("the medium was cut"), "{found}");
}

/// Forges images of pools of words.
fn forged(lie: Lie, model: Model) -> String {
    let effort = hostile::Effort { images: 60, model, ..hostile::Effort::default() };
    heard(lie, |design| hostile::judge(design, WORDS, &effort).map(drop))
}

#[test]
fn a_forged_pool_is_opened_in_each_boot_and_on_the_medium_that_is_asked_for() {
    // Fails if an image is opened in one boot only, if the words of a violation are left out, if a
    // pool that cannot be worked on passes for a sound one, or if a scan may go on for ever or an
    // open take as much memory as it likes.
    for (lie, model, says) in [
        (Lie::Outage, Model::Adr, "a sound pool cannot be opened, worked on and closed"),
        (Lie::ScanForEver, Model::Adr, "a scan does not end"),
        (Lie::DamageAllocates, Model::Adr, " bytes were allocated; "),
        (Lie::Synced, Model::File, "an earlier failure"),
        (Lie::SyncedPanics, Model::File, "(same boot: true), words "),
        (Lie::DamagePanics(Shutdown::Process), Model::Adr, "(same boot: true), words "),
        (Lie::DamagePanics(Shutdown::Power), Model::Adr, "(same boot: false), words "),
    ] {
        let found = forged(lie, model);
        assert!(found.contains(says), "{lie:?}: {found}");
        let is_damage = matches!(lie, Lie::DamagePanics(_));
        assert!(!is_damage || found.contains("=0x"), "{lie:?}: {found}");
    }
    assert_eq!(forged(Lie::SyncedPanics, Model::Adr), "nothing");
}

#[test]
fn everything_is_called_on_a_forged_pool_and_again_after_what_was_written() {
    // Fails if an operation, an access path or an opening is left out: what it does to a forged
    // pool would not be judged.
    let effort = hostile::Effort::default();
    // To make a pool of six pairs; and to work on one, as it is and once more.
    for (call, made, worked) in [
        ("open", 1, 3),
        ("check at rest", 0, 1),
        ("salvage", 0, 1),
        ("len", 0, 4),
        ("stats", 0, 4),
        ("check", 0, 5),
        ("get", 0, 4 * 12),
        ("get_many", 0, 4),
        ("put", 6 + 2, 3 + 1),
        ("insert", 0, 3),
        ("update", 0, 3),
        ("modify", 0, 3),
        ("remove", 2, 12),
        ("maintain", 0, 1 + 10 + 1),
        ("sync", 1, 1),
        ("clear", 0, 1),
        ("close", 1, 2),
    ] {
        let mut calls = 0;
        let found = heard(Lie::Counts(call), |design| {
            let outcome = hostile::replay(design, (WORDS, 6, true), &effort, true, &[]);
            calls = CALLS.load(Ordering::Relaxed);
            outcome
        });
        assert_eq!(found, "nothing");
        assert_eq!(calls, made + 2 * worked, "{call}");
    }
}

#[test]
fn a_forged_pool_is_replayed_as_it_was_made() {
    // Fails if the words are not stored, or if the pool, the boot or the bounds are others.
    let root = pool::ROOT.word() as usize;
    let replay = |lie: Lie, closed: bool, same_boot: bool, stores: &[(usize, u64)]| {
        let effort = hostile::Effort::default();
        let pool = (WORDS, 25, closed);
        heard(lie, |design| hostile::replay(design, pool, &effort, same_boot, stores))
    };
    let damage = Lie::DamagePanics(Shutdown::Process);
    assert_eq!(replay(damage, false, true, &[(root, 99)]), "a panic: the pool is damaged");
    assert_eq!(replay(damage, false, true, &[]), "nothing");
    assert_eq!(replay(damage, false, false, &[(root, 99)]), "nothing");
    assert_eq!(replay(damage, true, true, &[(root, 99)]), "nothing");
    let closed = Lie::DamagePanics(Shutdown::Clean);
    assert_eq!(replay(closed, true, true, &[(root, 99)]), "a panic: the pool is damaged");
}

#[test]
fn a_finding_of_the_fuzzer_names_its_image() {
    // Fails if no image is cut, if all are opened in one boot or on one medium, if they come from
    // one pool, or if the words that lead to a finding are not told.
    let find = |lie: Lie, model: Model| {
        let effort = fuzz::Effort { seed: 1, executions: 0..200, model };
        heard(lie, |design| fuzz::judge(design, WORDS, &effort).map(drop))
    };
    for (lie, model, says) in [
        (Lie::CutPanics, Model::Adr, ", cut: a panic: the medium was cut"),
        (Lie::OutagePanics, Model::Adr, ": a panic: power was lost"),
        (Lie::Synced, Model::File, "as it was: an unexpected error: "),
        (Lie::SyncedPanics, Model::File, "as it was: a panic: a fence is a sync"),
        (Lie::DamagePanics(Shutdown::Process), Model::Adr, "=0x"),
    ] {
        let found = find(lie, model);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    let mut pools = 0;
    let found = heard(Lie::Counts("format"), |design| {
        let effort = fuzz::Effort { seed: 1, executions: 0..80, model: Model::Adr };
        let judged = fuzz::judge(design, WORDS, &effort).map(drop);
        pools = CALLS.load(Ordering::Relaxed);
        judged
    });
    assert_eq!((found.as_str(), pools), ("nothing", 10));
}

/// Replays operations on a medium of which some calls fail.
fn full(lie: Lie, form: Form, seed: u64, way: &str, operations: &str) -> String {
    heard(lie, |design| room::replay(design, form, seed, way, operations))
}

#[test]
fn a_write_that_finds_no_room_is_compared_with_what_it_did() {
    // Fails if a write may be forgotten, be done though it was refused, or be refused where there
    // is room; or if a batch may have left out its first pairs.
    let puts = "put:1:1 put:3:3 put:5:5 put:7:7 put:9:9 put:11:11";
    for (lie, way, operations, says) in [
        (
            Lie::Forgets(2),
            "take:9",
            puts,
            "operation 2, put:3:3: after it returned: its key has another",
        ),
        (
            Lie::RefusesAndPuts(2),
            "take:9",
            puts,
            "operation 2, put:3:3: after it was refused: its key has",
        ),
        (Lie::Refuses(2), "take:9", puts, "nothing"),
        (Lie::Refuses(5), "take:9", puts, "operation 5, put:9:9: an unexpected error: "),
        (Lie::PutsLast, "take:9", "put_many:1=1,3=3 len len", "no prefix of the batch was put"),
        (Lie::Reached, "take:9", "put:1:1 len len", "without room: 1152921504606846976 bytes are "),
        (Lie::Refused, "takes-from:0", "insert:1:1 insert:3:3 len", "without room: contains of "),
    ] {
        let found = full(lie, WORDS, 0, way, operations);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    let found = full(Lie::Refused, WORDS, 0, "take:9", "insert:1:1 insert:3:3 len");
    assert_eq!(found, "nothing", "another way refuses nothing");
    let inexact = |design: &Design<Image>| {
        let mut design = *design;
        design.capabilities.exact_len = false;
        room::replay(&design, WORDS, 0, "take:9", puts)
    };
    let found = heard(Lie::Put, inexact);
    assert!(found.contains("operation 1, put:1:1: it returned true"), "{found}");
    // Of every second seed some values are long.
    assert_eq!(full(Lie::LongFails, Form::Variable, 0, "take:9", "put:1:12 len"), "nothing");
    let found = full(Lie::LongFails, Form::Variable, 1, "take:9", "put:1:12 len");
    assert!(found.contains("operation 1, put:1:12: "), "{found}");
}

#[test]
fn a_full_table_is_read_out_three_times_and_opened_by_processes_that_remove() {
    // Fails if a table is not read while there is no room, with room again or when it was opened
    // again; or if no process begins on a full medium.
    let calls = |call: &'static str, way: &str| {
        let mut calls = 0;
        let found = heard(Lie::Counts(call), |design| {
            let puts = "put:1:1 put:3:3 put:5:5 put:7:7 get:1 get:3 get:5 get:7 get:1";
            let outcome = room::replay(design, WORDS, 0, way, puts);
            calls = CALLS.load(Ordering::Relaxed);
            outcome
        });
        assert_eq!(found, "nothing");
        calls
    };
    assert_eq!(calls("is_empty", "take:9"), 3);
    // The first open makes the table, and the last is with room again.
    assert_eq!([calls("open", "take:9"), calls("open", "growths-from:50")], [2, 2 + 4]);
}

#[test]
fn a_removal_that_finds_no_room_is_an_error() {
    // Fails if an engine may need room to remove on a full medium.
    let effort = room::Effort { seeds: 0..1, points: 4, ..room::Effort::default() };
    let said = heard(Lie::RemovalGrows, |design| room::judge(design, WORDS, &effort).map(drop));
    assert!(said.contains(": an unexpected error: full: "), "{said}");
}
