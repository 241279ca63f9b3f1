//! What a check demands of a pool: forged ones, each with one thing wrong and every checksum right.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::{Error, Form, Inline, Opening, Result, Table, open};
use everhash_pmem::{Access, Addr, Image, LINE, Region, Std, WORD};
use everhash_testkit::measured::{MEMORY, Measured};

use super::copies::{Spot, copies, room};
use super::growth::{draining, of_words};
use super::mechanisms::{of_the_paper, two_layers};
use super::slots::filled;
use crate::common::settings::checksum;
use crate::tiered::in_cacheline_crash_consistency::valid;
use crate::tiered::layout::{
    self, DELETED, Head, Line, Listed, NON_WRITABLE, Place, ROOT, Root, is_second, is_shadow,
    is_valid,
};
use crate::tiered::{Tiered, TieredSettings, check};

/// Returns which invariant is broken, if one is.
fn broken<T>(outcome: Result<T>) -> Option<&'static str> {
    match outcome {
        Err(Error::Corrupt { broken, .. }) => Some(broken),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Returns what a check says of a pool, and what an open says of a copy of it.
fn judged(region: &Region<Image>) -> [Option<&'static str>; 2] {
    let words = region.media().words();
    let bytes = words.len() as u64 * WORD;
    let copy = Region::new(Image::<Std>::of(&words, bytes, bytes));
    let opened = open::<Tiered, _>(copy, Opening::default().boot, &Inline);
    [broken(check::check(region, &mut |_, _| {})), broken(opened)]
}

/// Returns how many pairs a salvage finds, and how often it reports damage.
fn salvaged(region: &Region<Image>) -> [u64; 2] {
    let (mut found, mut reports) = (0, 0);
    check::salvage(region, &mut |_, _| found += 1, &mut |_| reports += 1).unwrap();
    [found, reports]
}

/// Returns the line whose slot has its last word at `at`, and the slot.
fn slot_of(at: Addr) -> (Addr, usize) {
    let line = Addr::new(at.line() * LINE);
    (line, (at.word() - line.word()) as usize / 2)
}

/// Gives the slot with the last word at `at` a state, with the check that goes with it.
fn set_state(pm: &Access<'_, Image>, at: Addr, state: u16) {
    let (line, slot) = slot_of(at);
    let word = line.plus(Line::HEAD as u64);
    let head = Head::decode(pm.load(word).unwrap(), line).unwrap();
    pm.store(word, head.with(slot, state).encode(line)).unwrap();
}

/// Writes a slot, and returns what is said of the pool; then the slot is as it was.
fn judged_with(
    region: &Region<Image>,
    before: &Spot,
    words: [u64; 2],
    state: u16,
) -> [Option<&'static str>; 2] {
    let pm = region.access();
    let write = |words: [u64; 2], state| {
        pm.store(Addr::new(before.at.byte() - WORD), words[0]).unwrap();
        pm.store(before.at, words[1]).unwrap();
        set_state(&pm, before.at, state);
    };
    write(words, state);
    let said = judged(region);
    write(before.words, before.state);
    assert_eq!(judged(region), [None, None]);
    said
}

#[test]
fn a_shadow_that_does_not_equal_the_next_copy_is_reported() {
    // Fails if a check passes over a shadow that a write may overwrite, though what it holds is
    // nowhere else: the pair would be gone, or an older one, or a deletion, would come back.
    const BROKEN: Option<&str> = Some("a shadow equals the next copy of its key");
    for layers in [2, 3] {
        let (measured, count) = filled(Form::WORDS, TieredSettings { layers, ..of_the_paper() });
        let region = Region::<Image>::new(Arc::clone(&measured.media));
        let (pm, table) = (region.access(), of_words(&measured));
        let all = (0..count).map(|key| copies(table, table.hasher.word(key)));
        let moved = all.into_iter().find(|copies| {
            let is_moved = copies.len() as u64 == layers;
            is_moved && copies[..copies.len() - 1].iter().all(|copy| is_shadow(copy.state))
        });
        let copies = moved.expect("a pair has moved to the bottom");
        let (above, below) = (copies[copies.len() - 2], copies[copies.len() - 1]);
        let check = || broken(check::check(&region, &mut |_, _| {}));
        let forge = |copy: &Spot, state: u16, word: u64, expected: Option<&str>, found| {
            pm.store(copy.at, word).unwrap();
            set_state(&pm, copy.at, state);
            assert_eq!(check(), expected, "{layers}: {copy:?} is {state:#x}");
            assert_eq!(salvaged(&region), [found, u64::from(expected.is_some())]);
        };
        let restore = |copy: &Spot| forge(copy, copy.state, copy.words[1], None, count);
        forge(&below, below.state, !below.words[1], BROKEN, count);
        restore(&below);
        forge(&below, below.state | DELETED, below.words[1], BROKEN, count);
        restore(&below);
        let is_top = layers == 2;
        forge(&above, above.state | DELETED, above.words[1], BROKEN, count - u64::from(is_top));
        restore(&above);
        forge(&below, 0, below.words[1], BROKEN, count);
        restore(&below);
    }
}

#[test]
fn a_pair_in_the_wrong_place_is_reported() {
    // Fails if a check, or an open where that must know, accepts a pair that a search would never
    // find, or that it finds twice.
    let (measured, count) = filled(Form::WORDS, of_the_paper());
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let table = of_words(&measured);
    let open_slot = |rank, hash, second| room(table, rank, (hash, second)).0.first().copied();
    // A check reads one page of the top layer, and what is below it, after the other.
    let is_together = |hash: &u64| {
        let [one, two] = layout::positions(*hash).map(|position| layout::bucket_of(position, 3));
        one == two
    };
    let (hash, copy) = (0..count)
        .map(|key| table.hasher.word(key))
        .filter(is_together)
        .find_map(|hash| match copies(table, hash)[..] {
            [copy] if copy.rank == 0 && is_valid(copy.state) => {
                let second = is_second(copy.state);
                let rooms = [(0, second), (1, !second)].map(|at| open_slot(at.0, hash, at.1));
                rooms.iter().all(Option::is_some).then_some((hash, copy))
            }
            _ => None,
        })
        .expect("a pair has room around it");
    let (second, words) = (is_second(copy.state), copy.words);
    let twin = open_slot(0, hash, second).unwrap();
    let other = open_slot(1, hash, !second).unwrap();
    // The leading bits name the bucket.
    let elsewhere = (1..64).find_map(|bits| open_slot(0, hash ^ bits << 58, false)).unwrap();
    let said = judged_with(&region, &twin, words, copy.state);
    assert_eq!(said[0], Some("a key is in a layer once"));
    let said = judged_with(&region, &other, words, valid(hash, !second, false));
    assert_eq!(said[0], Some("the copies of a key lie in one column"));
    let said = judged_with(&region, &elsewhere, words, valid(hash, false, false));
    assert_eq!(said, [Some("a key lies in the bucket it hashes to"); 2]);
    let said = judged_with(&region, &copy, words, copy.state ^ 0x10);
    assert_eq!(said, [Some("a fingerprint is that of its key"); 2]);
    // Flags that no write leaves: of a slot that is not used, and of one that cannot be read.
    let unused =
        Spot { at: layout::slot_at(slot_of(copy.at).0, 2), state: 0, words: [0; 2], ..copy };
    for (spot, state) in [(unused, copy.state), (twin, NON_WRITABLE)] {
        let said = judged_with(&region, &spot, words, state);
        assert_eq!(said[0], Some("the flags of a line match their check"));
        assert_eq!(said[1], Some("the flags of a line are those of a write"));
    }
}

#[test]
fn a_list_of_layers_that_no_table_has_is_reported() {
    // Fails if a check, or an open, accepts layers with a gap between them, too many or too few of
    // them, or one of another length than its own.
    let (measured, _) = draining(TieredSettings { top_pages: 16, ..two_layers() });
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let pm = region.access();
    let live = |index: usize| of_words(&measured).layers.view().place(index);
    let shorter = |index, log| Listed::Live(Place::new(live(index).start(), log));
    let (unused, dropped) = (Listed::Unused, Listed::Dropped);
    const GAP: &str = "layers follow one another";
    const NUMBER: &str = "there are as many layers as settings say";
    const LENGTH: &str = "each layer is larger than the one above";
    let forged = [
        (vec![(0, unused)], [GAP; 2]),
        (vec![(1, dropped)], ["the top layer is dropped first", GAP]),
        (vec![(1, unused), (2, unused)], [NUMBER; 2]),
        (vec![(0, dropped), (1, dropped)], [NUMBER; 2]),
        (vec![(2, shorter(2, live(1).log()))], [LENGTH, GAP]),
        (vec![(0, shorter(0, 0))], [LENGTH, GAP]),
    ];
    assert_eq!(judged(&region), [None, None]);
    for (changes, expected) in forged {
        for (index, listed) in &changes {
            let at = layout::place_at(*index);
            pm.store(at, listed.encode(at)).unwrap();
        }
        assert_eq!(judged(&region), expected.map(Some), "{changes:?}");
        for index in 0..3 {
            let at = layout::place_at(index);
            pm.store(at, Listed::Live(live(index)).encode(at)).unwrap();
        }
    }
}

#[test]
fn settings_out_of_range_are_reported() {
    // Fails if a check computes with a number that no table has.
    let (measured, _) = filled(Form::WORDS, of_the_paper());
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let (pm, mut root) = (region.access(), [0; Root::CHECKSUM + 1]);
    pm.read_words(ROOT, &mut root).unwrap();
    let forged = [(Root::LAYERS, [1, 5]), (Root::LINE_SLOTS, [0, 4]), (Root::TOP_PAGES, [0, 3])];
    for (field, values) in forged {
        for value in values {
            let mut forged = root;
            forged[field] = value;
            forged[Root::CHECKSUM] = checksum(ROOT, &forged[..Root::CHECKSUM]);
            pm.write_words(ROOT, &forged).unwrap();
            let said = broken(check::check(&region, &mut |_, _| {}));
            assert_eq!(said, Some("the settings of a table are in range"), "{field}: {value}");
        }
    }
}

/// Makes a table with long chains of overflow lines and without moves; returns it and the number of
/// its keys, which are 0, 1, ...
fn chained() -> (Measured<Tiered>, u64) {
    let settings = TieredSettings { movement: 0, top_pages: 2, ..two_layers() };
    let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
    of_words(&measured).grow_at.store(u64::MAX, Ordering::Relaxed);
    let count = settings.slots() * 3 / 2;
    (0..count).for_each(|key| assert!(measured.words().insert_word(key, key).unwrap()));
    (measured, count)
}

/// Returns the second line of each bucket of the bottom layer, its head, and where its link leads.
fn bottom(measured: &Measured<Tiered>) -> Vec<(Addr, Head, Option<Addr>)> {
    let (view, pm) = (of_words(measured).layers.view(), of_words(measured).pool.access());
    let place = view.bottom();
    let lines = (0..place.buckets()).map(|index| {
        let at = place.bucket(index).plus(LINE / WORD);
        let line = crate::tiered::bucket::Line::of(&pm, at).unwrap();
        (at, line.head, line.next().unwrap())
    });
    lines.collect()
}

#[test]
fn an_overflow_line_belongs_to_one_bucket() {
    // Fails if a check accepts two links to one line: a write to the one bucket changes the other.
    let (measured, _) = chained();
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let lines: Vec<_> = bottom(&measured).into_iter().filter(|line| line.2.is_some()).collect();
    let (from, to) = (lines[1].0, lines[0].2.unwrap());
    let word = from.plus(Line::LINK as u64);
    region.access().store(word, layout::seal_link(to, from)).unwrap();
    let said = judged(&region);
    assert_eq!(said[0], Some("one link leads to an overflow line"));
    assert!(said[1].is_some());
}

#[test]
fn damaged_flags_cost_a_salvage_one_line_and_a_damaged_link_what_is_behind_it() {
    // Fails if a salvage gives up the overflow lines behind a line whose flags alone are damaged,
    // or if a read of one of the pairs that are lost is a miss.
    let (measured, count) = chained();
    let region = Region::<Image>::new(Arc::clone(&measured.media));
    let pm = region.access();
    let (line, head, next) = bottom(&measured).into_iter().find(|line| line.2.is_some()).unwrap();
    let found = |word: usize| {
        let at = line.plus(word as u64);
        let before = pm.load(at).unwrap();
        pm.store(at, before ^ 1).unwrap();
        let (found, said) = (salvaged(&region), judged(&region));
        let reads = (0..count).map(|key| measured.words().get_word(key));
        let lost = reads.filter(|read| match read {
            Ok(value) => value.is_none(),
            Err(error) => !matches!(error, Error::Corrupt { .. }),
        });
        assert_eq!(lost.count(), 0, "a pair that was there is absent");
        pm.store(at, before).unwrap();
        (found, said)
    };
    let pairs = |head: Head| head.valid().count() as u64;
    let (flags, said) = found(Line::HEAD);
    assert_eq!(flags, [count - pairs(head), 1]);
    assert!(said.iter().all(Option::is_some), "{said:?}");
    let mut behind = 0;
    let mut at = next;
    while let Some(line) = at {
        let line = crate::tiered::bucket::Line::of(&pm, line).unwrap();
        behind += pairs(line.head);
        at = line.next().unwrap();
    }
    let (link, said) = found(Line::LINK);
    assert_eq!((link, said), ([count - behind, 1], [Some("a link matches its check"); 2]));
}

#[test]
fn a_read_that_meets_a_damaged_key_is_no_miss() {
    // Fails if a slot with the fingerprint of a key, which holds another one that has not, is
    // passed over, or a slot that damaged flags hide: the pair that was there would be absent.
    for fingerprints in 0..=2 {
        let (measured, count) =
            filled(Form::WORDS, TieredSettings { fingerprints, ..of_the_paper() });
        let (table, words) = (of_words(&measured), measured.words());
        let pm = table.pool.access();
        let mut met = 0;
        for key in 0..count {
            let [copy] = copies(table, table.hasher.word(key))[..] else { continue };
            let at = Addr::new(copy.at.byte() - WORD);
            pm.store(at, key ^ 1 << 40).unwrap();
            let outcomes = [
                words.get_word(key).map(drop),
                words.get_words(&[key], &mut [None]),
                measured.table.get(&key.to_le_bytes(), &mut Vec::new()).map(drop),
                words.put_word(key, 1).map(drop),
            ];
            for outcome in outcomes {
                assert_eq!(broken(outcome), Some("a fingerprint is that of its key"), "{key}");
            }
            pm.store(at, key).unwrap();
            if fingerprints == 0 {
                let (line, slot) = slot_of(copy.at);
                let head = line.plus(Line::HEAD as u64);
                let word = pm.load(head).unwrap();
                pm.store(head, word ^ u64::from(layout::READABLE) << (16 * slot)).unwrap();
                let said = broken(words.get_word(key));
                assert_eq!(said, Some("the flags of a line match their check"), "{key}");
                pm.store(head, word).unwrap();
            }
            met += 1;
        }
        assert!(met > 100, "{met}");
        assert_eq!(measured.table.check().unwrap().items, count);
    }
}
