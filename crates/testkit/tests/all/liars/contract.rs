//! Lies that the conformance judge hears: one for each question that it asks.

use everhash_index::{Design, Form, Setting};
use everhash_pmem::{Image, Site};
use everhash_testkit::conformance::judge_case;

use super::Lie::Slip;
use super::{Lie, Verb, heard};

/// Tells each lie to its case, of tables of one form; each has to be called what it is.
pub(super) fn are_heard(form: Form, lies: &[(Lie, &str, &str)]) {
    for (lie, case, says) in lies {
        let found = heard(*lie, |design| judge_case(design, form, case));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}

#[test]
fn every_answer_about_a_key_is_looked_at() {
    // Fails if a case asks an operation on keys and does not compare what it answers.
    const INSERT: &str = "insert_adds_only_what_is_absent";
    const UPDATE: &str = "update_replaces_only_what_is_present";
    const REMOVE: &str = "remove_says_whether_there_was_one";
    const MODIFY: &str = "modify_sees_and_changes_one_key";
    const MANY: &str = "many_at_once_agree_with_one_by_one";
    const BEGIN: &str = "a_table_begins_empty_and_counts";
    are_heard(
        Form::WORDS,
        &[
            (Slip(Verb::Insert, 1), INSERT, "insert of an absent key"),
            (Slip(Verb::Insert, 2), INSERT, "insert of a present key"),
            (Slip(Verb::Insert, 3), INSERT, "insert of a removed key"),
            (Slip(Verb::Put, 1), "put_adds_or_replaces", "put in round 0 said true"),
            (Slip(Verb::Update, 1), UPDATE, "update of an absent key"),
            (Slip(Verb::Update, 2), UPDATE, "update of a present key"),
            (Slip(Verb::Remove, 1), REMOVE, "remove of a present key"),
            (Slip(Verb::Remove, 2), REMOVE, "remove of an absent key"),
            (Slip(Verb::ModifyTwice, 1), MODIFY, "modify called the function 2 times"),
            (Slip(Verb::ModifyShows, 1), MODIFY, "modify showed a value that is not there"),
            (Slip(Verb::PutMany, 1), MANY, "put_many of nothing"),
            (Slip(Verb::PutMany, 2), MANY, "some twice, said that 26 were new"),
            (Slip(Verb::InsertMany, 1), MANY, "said that 11 were new"),
            (Lie::GetManyTwice, MANY, "did not answer once for each key"),
            (Lie::Form, BEGIN, "says that its form is 16/16"),
            (Slip(Verb::Remove, 1), "clear_leaves_an_empty_table", "still there to remove"),
        ],
    );
}

#[test]
fn every_answer_about_words_is_looked_at() {
    // Fails if the path without slices may answer as it likes.
    const WORDS: &str = "words_agree_with_bytes";
    are_heard(
        Form::WORDS,
        &[
            (Slip(Verb::InsertWord, 1), WORDS, "insert_word of an absent key"),
            (Slip(Verb::InsertWord, 2), WORDS, "insert_word of a present key"),
            (Slip(Verb::GetWord, 1), WORDS, "get_word and get do not agree"),
            (Slip(Verb::UpdateWord, 1), WORDS, "a present key was not found"),
            (Slip(Verb::PutWord, 1), WORDS, "a present key was not found"),
            (Slip(Verb::UpdateWord, 2), WORDS, "an absent key was found"),
            (Slip(Verb::PutWord, 2), WORDS, "an absent key was found"),
            (Slip(Verb::RemoveWord, 1), WORDS, "remove_word answers wrong"),
            (Slip(Verb::RemoveWord, 2), WORDS, "remove_word answers wrong"),
        ],
    );
}

#[test]
fn every_scan_is_compared_with_what_was_put() {
    // Fails if a scan may leave out a pair, show another value, or lead elsewhere.
    const EVERY: &str = "a_scan_visits_every_pair";
    const AGAIN: &str = "a_cursor_can_be_used_again";
    const BESIDE: &str = "a_scan_sees_what_is_there_throughout";
    are_heard(
        Form::WORDS,
        &[
            (Lie::Scan, EVERY, "a scan of 1 pairs visited 0"),
            (Lie::ScanValue, EVERY, "a scan showed another value than was put"),
            (Lie::ScanTwice, EVERY, "with two values"),
            (Lie::ScanForEver, EVERY, "the scan did not end"),
            (Slip(Verb::Scan, 30), AGAIN, "went on from cursor 0 lost a pair"),
            (Slip(Verb::Cursor, 53), AGAIN, "led to another cursor the second time"),
            (Lie::ScanValue, BESIDE, "with a wrong value"),
            (Lie::Scan, BESIDE, "which is there throughout"),
        ],
    );
}

#[test]
fn what_the_next_process_is_told_is_looked_at() {
    // Fails if a pool that was closed, dropped or opened for reading is not compared with what
    // was put into it, or if what every open takes is never missed.
    const CLOSED: &str = "a_closed_table_comes_back";
    const DROPPED: &str = "a_dropped_table_comes_back";
    const READ: &str = "reading_only_changes_nothing";
    const ROOM: &str = "room_is_used_again_from_open_to_close";
    are_heard(
        Form::WORDS,
        &[
            (Lie::LeftOutAtRest, CLOSED, "the check of the closed pool found other pairs"),
            (Lie::LeftOutAtRest, ROOM, "the check of the closed pool found other pairs"),
            (Lie::Outage, DROPPED, "an earlier failure left this part of the pool in doubt"),
            (Lie::ReadOnlyGet, READ, "reading only does not find a pair"),
            (Lie::ReadOnlyScan, READ, "reading only shows other pairs"),
            (Lie::GrowsAtOpen, ROOM, "the medium has grown from "),
            (Lie::UsedGrows, ROOM, "bytes are in use in life "),
        ],
    );
}

#[test]
fn every_figure_and_every_limit_is_looked_at() {
    // Fails if space that is lost, a figure that is wrong, or a pair that is too many for a table
    // passes.
    const KEEPS: &str = "no_operation_keeps_what_it_took";
    const FIGURES: &str = "figures_are_consistent";
    const EMPTIED: &str = "a_table_that_refused_many_writes_is_emptied";
    are_heard(
        Form::WORDS,
        &[
            (Lie::UsedGrows, KEEPS, "space is lost: "),
            (Lie::LiveGrows, KEEPS, "bytes stay alive: "),
            (Slip(Verb::Remove, 1), "a_full_medium_is_an_error_and_no_end", "does not remove"),
            (Slip(Verb::Remove, 1), EMPTIED, "remove of a present key said no"),
            (Lie::RemovedForEver, EMPTIED, " pairs that were removed "),
            (Lie::Thousand, "a_growing_table_keeps_every_pair", "the scan has no "),
            (Slip(Verb::ModifyFull, 2), "a_panic_in_modify_publishes_nothing", "another returned"),
            (Lie::DeviceBytes, FIGURES, " bytes"),
            (Lie::StatsItems, FIGURES, "41 items"),
            (Lie::OwnTwice, FIGURES, "two figures have one name"),
        ],
    );
    let counts_as_it_likes = |design: &Design<Image>| {
        let mut design = *design;
        design.capabilities.exact_len = false;
        judge_case(&design, Form::WORDS, FIGURES)
    };
    let found = heard(Lie::StatsItems, counts_as_it_likes);
    assert!(found.contains("stats and len count differently"), "{found}");
}

#[test]
fn what_has_another_length_or_too_many_bytes_is_refused_with_its_numbers() {
    // Fails if a key of another form may be there, or if a refusal may name any limit.
    const OTHER: &str = "another_form_is_refused_by_writes_and_absent_to_reads";
    const LONGER: &str = "longer_ones_come_back_or_are_refused";
    are_heard(
        Form::WORDS,
        &[
            (Lie::GetAnyLength, OTHER, "get found a key of another length"),
            (Lie::ContainsAnyLength, OTHER, "contains found a key of another length"),
            (Lie::PutAnyForm, OTHER, "put of a pair of 0/8 bytes returned Ok"),
        ],
    );
    are_heard(
        Form::Variable,
        &[
            (Lie::KeyLimit, LONGER, "a key of 65537 bytes: 65537 given, 65537 allowed"),
            (Lie::ValueLimit, LONGER, "a value of 16777217 bytes: 16777217 given"),
            (Slip(Verb::Remove, 1), "every_length_comes_back", "the empty key could not"),
        ],
    );
}

/// Sites that are one too many, and one that is another engine's.
const TWICE: &[&[Site]] = &[&[Site::new("plain/one"), Site::new("plain/one")]];
const OTHERS: &[&[Site]] = &[&[Site::new("plain/one"), Site::new("other/one")]];

#[test]
fn what_an_engine_says_of_itself_is_looked_at() {
    // Fails if a name, a site, a setting or a claim of an engine is believed.
    const NAMES: &str = "names_and_settings_are_in_order";
    const BARE: &str = "bare_forms_believe_their_caller";
    const ATOMIC: &str = "atomic_batches_do_their_writes_in_order";
    are_heard(
        Form::WORDS,
        &[
            (Lie::SettingDefault, NAMES, "the default of number is not 0"),
            (Lie::SettingChanges, NAMES, "setting number changes when it is set"),
            (Lie::SettingAbsurd, NAMES, "setting number takes 2^64 - 1"),
            (Lie::SettingUnknown, NAMES, "an unknown setting can be set"),
            (Slip(Verb::UpdateBlind, 3), BARE, "the scan has "),
            (Slip(Verb::RemoveBlind, 3), BARE, "the scan has "),
        ],
    );
    let with = |change: fn(&mut Design<Image>), case: &str| {
        heard(Lie::None, |design| {
            let mut design = *design;
            change(&mut design);
            judge_case(&design, Form::WORDS, case)
        })
    };
    let found = with(|design| design.name = "Plain", NAMES);
    assert!(found.contains("'Plain' is not one to eight"), "{found}");
    let found = with(|design| design.sites = TWICE, NAMES);
    assert!(found.contains("two sites have one name"), "{found}");
    let found = with(|design| design.sites = OTHERS, NAMES);
    assert!(found.contains("site Some(\"other/one\") does not begin"), "{found}");
    let found = with(|design| design.capabilities.bare = false, BARE);
    assert!(found.contains("bare forms are there or not"), "{found}");
    let found = with(|design| design.capabilities.atomic_batches = true, ATOMIC);
    assert!(found.contains("atomic batches are there or not"), "{found}");
    const UNNAMED: &[Setting] = &[Setting { name: "number", default: 0, meaning: "" }];
    let found = with(|design| design.settings = UNNAMED, NAMES);
    assert!(found.contains("setting number has no meaning"), "{found}");
}

#[test]
fn every_refusal_and_everything_about_nothing_is_looked_at() {
    // Fails if what is refused in one operation may be accepted in another, if a batch of nothing
    // or an empty table may answer as it likes, or if no key is asked for that was never put.
    const OTHER: &str = "another_form_is_refused_by_writes_and_absent_to_reads";
    const LONGER: &str = "longer_ones_come_back_or_are_refused";
    const KEEPS: &str = "no_operation_keeps_what_it_took";
    const FULL: &str = "a_full_medium_is_an_error_and_no_end";
    const ROOM: &str = "room_is_used_again_from_open_to_close";
    const PANIC: &str = "a_panic_in_modify_publishes_nothing";
    const REMOVALS: &str = "many_removals_agree_with_one_by_one";
    const EMPTIED: &str = "a_table_that_refused_many_writes_is_emptied";
    are_heard(
        Form::WORDS,
        &[
            (Slip(Verb::Update, 1), KEEPS, "an absent key was updated"),
            (Slip(Verb::Insert, 2), KEEPS, "a present key was inserted"),
            (Slip(Verb::Remove, 1), OTHER, "remove of a key of another length returned Ok(true)"),
            (Lie::GetManyAnyLength, OTHER, "get_many found a key of another length"),
            (Lie::PutManyAnyForm, OTHER, "put_many of a pair of 0/8 bytes returned Ok"),
            (Lie::PutAnyValue, OTHER, "put of a pair of 8/0 bytes returned Ok"),
            (Lie::LeftOutAtRest, FULL, "the check found other pairs"),
            (Lie::RemovedForEver, FULL, "an unexpected error: full: "),
            (Lie::Reached, ROOM, "bytes are reachable, and only "),
            (Lie::UsedMore, "figures_are_consistent", " used of "),
            (Lie::PanicChanges, PANIC, "a modify that panicked has changed its key"),
            (Lie::RecoveredScan, PANIC, "the scan has no "),
            (Lie::EndlessUpkeep(100), "maintenance_comes_to_an_end", "maintain has more to do"),
            (Lie::RefusalShows, "errors_carry_no_keys", "an error shows a key or a value"),
            (Lie::SettingStranger, "names_and_settings_are_in_order", "is not there has a value"),
            (Lie::ClearsAll, "two_tables_are_independent", "the scan has no "),
            (Lie::RemoveManyOfNone, REMOVALS, "remove_many removed keys of none"),
            (Lie::NoWords, "words_agree_with_bytes", "has no path for words"),
            (Lie::Key(60_003), "put_adds_or_replaces", "contains of "),
        ],
    );
    are_heard(
        Form::Variable,
        &[
            (Lie::GetAnyLength, LONGER, "a key beyond the limit is there"),
            (Lie::ContainsAnyLength, LONGER, "a key beyond the limit is there"),
            (Lie::RemovalTakesRoom, EMPTIED, "an unexpected error: full: "),
        ],
    );
    let empty = |design: &Design<Image>| {
        let mut design = *design;
        design.capabilities.exact_len = false;
        judge_case(&design, Form::WORDS, "a_table_begins_empty_and_counts")
    };
    assert!(heard(Lie::IsEmpty, empty).contains("a new table is not empty"));
}

#[test]
fn a_table_that_is_read_only_refuses_every_write() {
    // Fails if one of the writes may be accepted.
    for call in [
        "insert",
        "put",
        "update",
        "modify",
        "remove",
        "put_many",
        "insert_many",
        "remove_many",
        "clear",
    ] {
        let says = format!("reading only does not refuse `{call}`");
        let lie = Lie::ReadOnlyAccepts(call);
        are_heard(Form::WORDS, &[(lie, "reading_only_changes_nothing", &says)]);
    }
}
