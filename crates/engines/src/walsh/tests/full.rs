//! Media without room: removing and clearing work on any of them, and then there is room again.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Change, Design, Error, Form, Result, Table};
use everhash_pmem::{Addr, Domain, Guarantees, Image, Lock, Std};
use everhash_testkit::model::{Pairs, check_pool, scan_all};
use everhash_testkit::room;
use everhash_testkit::session::Session;

use super::refusing::Refusing;
use crate::walsh::reserve::Purpose;
use crate::walsh::{Walsh, WalshSettings};

pub(super) const FILE: Guarantees =
    Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };

const MEMORY: Guarantees =
    Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 };

/// How long the pairs are.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    Words,
    /// Shorter than the log, and of all lengths.
    Short,
    /// One in four is longer than an ordinary log.
    Mixed,
}

impl Lengths {
    fn form(self) -> Form {
        match self {
            Lengths::Words => Form::WORDS,
            _ => Form::Variable,
        }
    }

    fn key(self, number: u64) -> Vec<u8> {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
        match self {
            Lengths::Words => word,
            _ => word.repeat(1 + number as usize % 3),
        }
    }

    fn value(self, number: u64) -> Vec<u8> {
        let mixed = number.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        match self {
            Lengths::Words => mixed.to_le_bytes().to_vec(),
            Lengths::Mixed if mixed.is_multiple_of(4) => {
                vec![number as u8; 6200 + mixed as usize % 3000]
            }
            _ => vec![number as u8; mixed as usize % 120],
        }
    }
}

/// A table that is filled until it says that it is full.
struct Filled {
    session: Session<Walsh>,
    lengths: Lengths,
    pairs: Pairs,
}

impl Filled {
    fn new(lengths: Lengths, settings: &WalshSettings, medium: (u64, Guarantees)) -> Filled {
        let image = Image::<Std>::new(0, medium.0).with_guarantees(medium.1);
        let session = Session::create(image, lengths.form(), settings).unwrap();
        Filled { session, lengths, pairs: Pairs::new() }
    }

    /// Puts pairs until one finds no room, by `many` at a time; returns how many were put.
    fn fill(&mut self, first: u64, many: u64) -> u64 {
        let table = self.session.table();
        for number in (first..).step_by(many as usize) {
            let numbers: Vec<u64> = (number..number + many).collect();
            let keys: Vec<_> = numbers.iter().map(|number| self.lengths.key(*number)).collect();
            let values: Vec<_> = numbers.iter().map(|number| self.lengths.value(*number)).collect();
            let pairs: Vec<(&[u8], &[u8])> =
                keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
            let outcome = match pairs[..] {
                [(key, value)] => table.put(key, value).map(u64::from),
                _ => table.put_many(&pairs),
            };
            // Of a batch that found no room, the first pairs are written.
            let mut is_written = true;
            for (key, value) in pairs {
                is_written &= outcome.is_ok() || table.contains(key).unwrap();
                if is_written {
                    self.pairs.insert(key.to_vec(), value.to_vec());
                }
                assert_eq!(table.contains(key).unwrap(), is_written);
            }
            match outcome {
                Ok(_) => {}
                Err(Error::Full { .. }) => return number - first,
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("a medium ends")
    }

    fn remove_all(&mut self) {
        for (key, _) in core::mem::take(&mut self.pairs) {
            let removed = self.session.table().remove(&key);
            let own = self.session.table().stats().unwrap().own;
            assert!(removed.as_ref().is_ok_and(|was_there| *was_there), "{removed:?}: {own:?}");
        }
    }

    fn holds(&self) {
        assert!(scan_all(self.session.table()).unwrap() == self.pairs, "other pairs");
        assert_eq!(self.session.table().len().unwrap(), self.pairs.len() as u64);
        check_pool(&Design::of::<Walsh>(), self.session.region()).unwrap();
    }
}

/// Media and settings: from two areas of some logs to many areas.
fn each(mut visit: impl FnMut(Lengths, &WalshSettings, (u64, Guarantees))) {
    let usual = WalshSettings { directories: 1 << 9, ..WalshSettings::default() };
    let one = WalshSettings { areas: 1, ..usual };
    let some = WalshSettings { areas: 16, ..usual };
    let many = WalshSettings { areas: 64, ..usual };
    let tiny = WalshSettings::tiny();
    for lengths in [Lengths::Words, Lengths::Short, Lengths::Mixed] {
        for guarantees in [MEMORY, FILE] {
            for (settings, kilobytes) in
                [(&tiny, 64), (&one, 256), (&some, 600), (&some, 1500), (&many, 3000)]
            {
                // Of long pairs a few must fit.
                let times = if matches!(lengths, Lengths::Mixed) { 4 } else { 1 };
                visit(lengths, settings, ((times * kilobytes) << 10, guarantees));
            }
        }
    }
}

#[test]
fn every_pair_of_a_full_table_can_be_removed_and_then_there_is_room() {
    // Fails if a removal is refused, or if the room of what was removed is not found again: filled
    // one by one and by many, removed at once, after upkeep, and after a close.
    let mut case = 0;
    each(|lengths, settings, medium| {
        case += 1;
        let mut filled = Filled::new(lengths, settings, medium);
        let count = filled.fill(0, [1, 100][case % 2]);
        match case % 3 {
            0 => {
                filled.session.table().maintain(Duration::from_secs(100), 1000).unwrap();
                filled.session.table().sync().unwrap();
            }
            1 => filled.session.reopen().unwrap(),
            _ => {}
        }
        println!("{lengths:?}, {} areas, {} bytes: {count} pairs", settings.areas, medium.0);
        filled.holds();
        filled.remove_all();
        filled.holds();
        let again = filled.fill(0, 1);
        // Of long pairs some more or fewer find a hole that is long enough.
        let part = if matches!(lengths, Lengths::Mixed) { 5 } else { 8 };
        let own = filled.session.table().stats().unwrap().own;
        assert!(again * 10 >= count * part, "{count} pairs, then {again}: {own:?}");
        filled.holds();
        filled.session.reopen().unwrap();
        filled.holds();
    });
}

#[test]
fn a_full_table_of_many_areas_is_emptied_in_any_order() {
    // Fails if a collection on a full medium takes more than it moves, or if a removal takes more
    // than the smallest log of what the next collection needs: after some thousand removals no area
    // could be collected.
    for (megabytes, guarantees) in [(6, FILE), (8, FILE), (4, MEMORY)] {
        for form in [Form::WORDS, Form::Variable] {
            let medium = Image::<Std>::new(0, megabytes << 20).with_guarantees(guarantees);
            let session =
                Session::<Walsh>::create(medium, form, &WalshSettings::default()).unwrap();
            let (table, key) = (session.table(), |number| Lengths::Words.key(number));
            let value = |number: u64| match form {
                Form::WORDS => vec![1; 8],
                _ => vec![1; 50 + number as usize % 101],
            };
            let is_put = |number: &u64| table.put(&key(*number), &value(*number)).is_ok();
            let mut numbers: Vec<u64> = (0..).take_while(is_put).collect();
            let mut random = 1;
            let all = numbers.len();
            for place in 0..all {
                numbers.swap(place, draw(&mut random, all as u64) as usize);
            }
            for (count, number) in numbers.iter().enumerate() {
                let removed = table.remove(&key(*number));
                let when = || format!("{megabytes} MiB, {form}, after {count} of {all}");
                assert!(removed.as_ref().is_ok_and(|it| *it), "{removed:?}: {}", when());
            }
            assert_eq!(table.check().unwrap().items, 0);
        }
    }
}

#[test]
fn a_table_that_refused_many_short_pairs_is_emptied() {
    // Fails if the garbage of one smallest log in each area is not enough for a collection, or if
    // one begins only where there is several times the room that it takes: removals from other
    // areas use up the reserve meanwhile, and then none is possible ever again.
    for (megabytes, guarantees, length) in [(24, FILE, 0), (6, MEMORY, 24)] {
        let medium = Image::<Std>::new(0, megabytes << 20).with_guarantees(guarantees);
        let settings = WalshSettings::default();
        let session = Session::<Walsh>::create(medium, Form::Variable, &settings).unwrap();
        let (table, value) = (session.table(), vec![7; length]);
        let (mut numbers, mut refused) = (Vec::new(), 0);
        let mut number = 0u64;
        while refused < 1000 {
            match table.put(&number.to_le_bytes(), &value) {
                Ok(_) => {
                    numbers.push(number);
                    refused = 0;
                }
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            number += 1;
        }
        for number in &numbers {
            let removed = table.remove(&number.to_le_bytes());
            let when = || format!("{megabytes} MiB, {length} bytes, {number}");
            assert!(removed.as_ref().is_ok_and(|it| *it), "{removed:?}: {}", when());
        }
        assert_eq!(table.check().unwrap().items, 0);
    }
}

#[test]
fn removing_works_where_each_pair_of_logs_counts() {
    // Fails if a removal is refused on a medium of a few logs: workloads that the judge has found.
    let one: &[(&str, u64)] =
        &[("durability", 1), ("areas", 1), ("directories", 1), ("block_directories", 1)];
    let short: &[(&str, u64)] = &[("durability", 1), ("log_entries", 20), ("log_bytes", 1024)];
    let cases = [
        (one, Form::DOUBLE_WORDS, 110),
        // With a blind removal: what is alive is counted anew where there is no room.
        (one, Form::DOUBLE_WORDS, 100),
        (short, Form::WORDS, 103),
        (short, Form::DOUBLE_WORDS, 100),
    ];
    for (settings, form, seed) in cases {
        let design = Design::of::<Walsh>().with_settings(settings);
        let usual = room::Effort::default();
        let effort = room::Effort { seeds: seed..seed + 1, operations: 200, ..usual };
        room::judge(&design, form, &effort).unwrap();
    }
}

#[test]
fn blind_removals_from_a_full_table_leave_room_for_others() {
    // Fails if an area that was written blindly counts all its objects as alive where there is no
    // room, or if a blind removal of nothing takes room.
    each(|lengths, settings, medium| {
        let mut filled = Filled::new(lengths, settings, medium);
        let count = filled.fill(0, 1);
        let case = |number| format!("{lengths:?}, {} areas, {medium:?}, {number}", settings.areas);
        for number in 0..count {
            let bare = filled.session.table().bare().unwrap();
            let key = lengths.key(number);
            // Now and then one that is not there.
            for key in
                [&lengths.key(number + count), &key].into_iter().skip(usize::from(number % 3 > 0))
            {
                let removed = bare.remove_blind(key);
                assert!(removed.is_ok(), "{removed:?}: {}", case(number));
            }
            assert!(!filled.session.table().contains(&key).unwrap(), "{}", case(number));
            filled.pairs.remove(&key);
            match number * 8 % count.next_multiple_of(8) {
                0 if (number * 8 / count).is_multiple_of(2) => filled.session.reopen().unwrap(),
                0 => filled.session.kill_unsynced().unwrap(),
                _ => {}
            }
            if number == count / 2 {
                assert!(scan_all(filled.session.table()).unwrap() == filled.pairs);
                filled.remove_all();
                break;
            }
        }
        filled.fill(0, 1);
        assert!(scan_all(filled.session.table()).unwrap() == filled.pairs);
        check_pool(&Design::of::<Walsh>(), filled.session.region()).unwrap();
    });
}

#[test]
fn a_collection_of_a_full_table_that_is_interrupted_goes_on() {
    // Fails if what an area needs to be collected counts what has been moved already: after a kill
    // amid a collection its new logs have the room of the reserve, and no removal gets any.
    let one = WalshSettings { areas: 1, directories: 1 << 9, ..WalshSettings::default() };
    let few = WalshSettings { areas: 1, directories: 1 << 6, ..WalshSettings::tiny() };
    for (settings, kilobytes) in [(one, 512), (few, 64)] {
        for (lengths, durability) in
            [Lengths::Words, Lengths::Short].into_iter().flat_map(|it| [(it, 0), (it, 1)])
        {
            for part in [0, 1, 4, 7] {
                let settings = WalshSettings { durability, ..settings };
                let mut filled = Filled::new(lengths, &settings, (kilobytes << 10, MEMORY));
                filled.fill(0, 1);
                {
                    let table = filled.session.table();
                    let (_one, pm) = (table.rescue.lock().unwrap(), table.pool.access());
                    let mut state = table.areas[0].state.lock().unwrap();
                    let state = &mut *state;
                    assert!(table.end_to_collect(&pm, &table.areas[0], state).unwrap());
                    if !table.begin_to_collect(&pm, &table.areas[0], state, false).unwrap() {
                        continue;
                    }
                    let count = part << state.view.old().unwrap() >> 3;
                    let moves = Purpose::Collect;
                    assert!(table.step(&pm, &table.areas[0], state, moves, count).unwrap());
                }
                filled.session.kill_unsynced().unwrap();
                filled.remove_all();
                filled.holds();
            }
        }
    }
}

#[test]
fn a_full_table_of_garbage_goes_on() {
    // Fails if replacing the same pairs again and again wedges a medium that has room for them, or
    // if removals are refused then.
    each(|lengths, settings, medium| {
        let mut filled = Filled::new(lengths, settings, medium);
        let count = filled.fill(0, 1) / 3;
        for number in count..3 * count {
            let key = lengths.key(number);
            let removed = filled.session.table().remove(&key);
            let case = || format!("{lengths:?}, {} areas, {medium:?}, {number}", settings.areas);
            assert!(removed.as_ref().is_ok_and(|was_there| *was_there), "{removed:?}: {}", case());
            filled.pairs.remove(&key);
        }
        for number in 0..6 * count {
            let (key, value) = (lengths.key(number % count), lengths.value(number * 7));
            let put = filled.session.table().put(&key, &value);
            let case = format!("{lengths:?}, {} areas, {medium:?}, {number}", settings.areas);
            match put {
                Ok(_) => drop(filled.pairs.insert(key, value)),
                // Long pairs may find no hole that is long enough.
                Err(Error::Full { .. }) if matches!(lengths, Lengths::Mixed) => {}
                Err(error) => panic!("{case} of {count}: {error}"),
            }
        }
        filled.holds();
        filled.remove_all();
        filled.holds();
    });
}

#[test]
fn a_full_table_can_be_cleared_and_then_there_is_room() {
    // Fails if clearing needs room, if a crash behind it brings pairs back, or if the room does not
    // come back.
    each(|lengths, settings, medium| {
        let mut filled = Filled::new(lengths, settings, medium);
        let count = filled.fill(0, 1);
        filled.session.table().clear().unwrap();
        filled.pairs.clear();
        filled.holds();
        filled.session.kill_unsynced().unwrap();
        filled.holds();
        let again = filled.fill(0, 1);
        assert!(again * 10 > count * 8, "{count} pairs, then {again}");
        filled.session.table().clear().unwrap();
        filled.pairs.clear();
        filled.session.reopen().unwrap();
        filled.holds();
    });
}

#[test]
fn a_cleared_area_that_a_crash_meets_before_its_tail_is_empty() {
    // Fails if the info of a clearing and the tail must change together.
    use crate::walsh::layout::{AreaRecord, ROOT, Root, area_record};
    use everhash_pmem::Region;
    let settings = WalshSettings { areas: 1, directories: 1, ..WalshSettings::tiny() };
    let image = Image::<Std>::new(0, 1 << 20);
    let mut session = Session::<Walsh>::create(image, Form::WORDS, &settings).unwrap();
    for number in 0..5u64 {
        session.table().put(&number.to_le_bytes(), &[1; 8]).unwrap();
    }
    session.table().sync().unwrap();
    let before = session.region().media().words();
    session.table().clear().unwrap();
    let mut words = session.region().media().words();
    let table = Addr::new(words[ROOT.word() as usize + Root::AREA_TABLE]);
    for place in [AreaRecord::DURABLE_TAIL, AreaRecord::VISIBLE_TAIL] {
        let index = area_record(table, 0).plus(place as u64).word() as usize;
        assert_ne!(words[index], before[index]);
        words[index] = before[index];
    }
    for boot in [session.opening().boot, everhash_pmem::Boot([1, 99])] {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(&words, bytes, 1 << 20));
        let table = everhash_index::open::<Walsh, _>(region.clone(), boot, &everhash_index::Inline)
            .unwrap();
        assert_eq!(table.len().unwrap(), 0);
        assert!(!table.put(&[3; 8], &[4; 8]).unwrap());
        Box::new(table).close().unwrap();
        assert_eq!(check_pool(&Design::of::<Walsh>(), &region).unwrap().len(), 1);
    }
    session.close().unwrap();
}

/// A number below `below`.
fn draw(random: &mut u64, below: u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 33) % below
}

/// Does one random operation; what it says must be what happened.
fn operate(table: &impl Table, lengths: Lengths, pairs: &mut Pairs, random: &mut u64) -> bool {
    let key = lengths.key(draw(random, 90));
    let value = lengths.value(draw(random, 1 << 20));
    let was_there = pairs.contains_key(&key);
    let outcome: Result<()> = match draw(random, 8) {
        0 | 1 => table.remove(&key).map(|removed| {
            assert_eq!(removed, was_there);
            pairs.remove(&key);
        }),
        2 => {
            let outcome = table.modify(&key, &mut |_| Change::Put(value.clone()));
            outcome.map(|()| drop(pairs.insert(key.clone(), value.clone())))
        }
        3 => {
            let keys: Vec<_> = (0..20).map(|_| lengths.key(draw(random, 90))).collect();
            let batch: Vec<(&[u8], &[u8])> =
                keys.iter().map(|key| (key.as_slice(), value.as_slice())).collect();
            let outcome = table.put_many(&batch);
            let mut found = Vec::new();
            let written = match outcome {
                Ok(_) => batch.len(),
                // Those before the one that found no room; equal pairs tell nothing.
                Err(_) => batch
                    .iter()
                    .take_while(|(key, value)| {
                        table.get(key, &mut found).unwrap() && found == **value
                    })
                    .count(),
            };
            let before = pairs.len() as u64;
            for (key, value) in &batch[..written] {
                pairs.insert(key.to_vec(), value.to_vec());
            }
            outcome.map(|added| assert_eq!(added, pairs.len() as u64 - before))
        }
        4 => table.maintain(Duration::ZERO, 2).map(drop),
        _ => table.put(&key, &value).map(|replaced| {
            assert_eq!(replaced, was_there);
            pairs.insert(key, value);
        }),
    };
    match outcome {
        Ok(()) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_medium_that_refuses_to_grow_at_any_moment_loses_nothing() {
    // Fails if something is reported that did not happen, or lost, or not done again when there is
    // room: half a rehash that is forgotten, a log shorter than its object, a batch that stops.
    let mut refused = 0;
    for lengths in [Lengths::Words, Lengths::Short, Lengths::Mixed] {
        for (guarantees, call) in
            [MEMORY, FILE].into_iter().flat_map(|kind| (2..40).map(move |call| (kind, call)))
        {
            let medium = Arc::new(Refusing::new(guarantees, [call, u64::MAX]));
            let form = lengths.form();
            let settings = WalshSettings::tiny();
            let mut session: Session<Walsh, Refusing> =
                Session::create(Arc::clone(&medium), form, &settings).unwrap();
            let (mut pairs, mut random) = (Pairs::new(), call);
            let mut since = 0;
            for step in 0..500 {
                let is_done = operate(session.table(), lengths, &mut pairs, &mut random);
                refused += u32::from(!is_done);
                since += u32::from(!is_done || since > 0);
                if since == 60 {
                    // From now on there is room.
                    medium.refused[1].store(0, Ordering::Relaxed);
                }
                assert!(is_done || since < 61, "refused although there is room");
                if step % 100 == 50 {
                    session.kill_unsynced().unwrap();
                }
                if step % 50 == 49 {
                    assert!(scan_all(session.table()).unwrap() == pairs, "{lengths:?} {call}");
                }
            }
            assert!(scan_all(session.table()).unwrap() == pairs, "{lengths:?} {call}");
            session.close().unwrap();
            assert!(check_pool(&Design::of::<Walsh>(), session.region()).unwrap() == pairs);
        }
    }
    println!("{refused} operations found no room");
    assert!(refused > 1000);
}

#[test]
fn an_insert_is_not_done_again_because_a_sync_found_no_room() {
    // Fails if want of room behind the write counts as want of room for it: the insert is repeated
    // then, and says that the key was there.
    for form in [Form::WORDS, Form::Variable] {
        let medium = Arc::new(Refusing::new(FILE, [u64::MAX, u64::MAX]));
        let settings = WalshSettings::tiny();
        let session: Session<Walsh, Refusing> =
            Session::create(Arc::clone(&medium), form, &settings).unwrap();
        medium.refuses_sync.store(true, Ordering::Relaxed);
        let outcome = (0..1000u64).find_map(|number| {
            let outcome = session.table().insert(&number.to_le_bytes(), &[1; 8]);
            (!matches!(outcome, Ok(true))).then_some(outcome)
        });
        assert!(matches!(outcome, Some(Err(Error::Poisoned))), "{form}: {outcome:?}");
    }
}

#[test]
fn each_removal_from_a_full_table_survives_the_end_of_the_process() {
    // Fails if an area that is collected to remove a pair keeps it in a log, or forgets another.
    for (lengths, guarantees) in
        [Lengths::Words, Lengths::Short].into_iter().flat_map(|l| [(l, MEMORY), (l, FILE)])
    {
        let mut filled = Filled::new(lengths, &WalshSettings::tiny(), (32 << 10, guarantees));
        filled.fill(0, 1);
        for key in filled.pairs.keys().cloned().collect::<Vec<_>>() {
            assert!(filled.session.table().remove(&key).unwrap());
            assert!(!filled.session.table().remove(&key).unwrap());
            filled.pairs.remove(&key);
            filled.session.kill_unsynced().unwrap();
            filled.holds();
        }
    }
}
