//! The judges judged by single lies: an engine that is right but for one answer.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everhash_index::{
    BareTable, Capabilities, Change, Checked, Cursor, Design, Engine, Error, Executor, Form,
    Result, Stats, Table, Upkeep, WordTable,
};
use everhash_pmem::{Boot, Image, LINE, Media, Pool, Region, Shutdown, Site, pool};
use everhash_testkit::reference::{NoSettings, Reference, ReferenceTable};
use everhash_testkit::workload::Shape;
use everhash_testkit::{OpenTable, conformance, crash, damage, room};

/// What is not true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    None,
    /// Every key is there.
    Contains,
    /// Nothing is empty.
    IsEmpty,
    /// There is a pair more.
    Len,
    /// There is one, where the medium was cut.
    CutLen,
    /// A scan leaves out its first pair.
    Scan,
    /// A check of the open table counts a pair more.
    Items,
    /// It reaches more than there is.
    Reached,
    /// It reaches the header, and no pair.
    ReachedHeader,
    /// A check of the pool at rest does, once it was closed.
    ReachedHeaderAtRest,
    /// A check of the pool at rest visits its first pair again.
    VisitedTwice,
    /// It counts a pair more than it visits.
    Visited,
    /// It reaches more than the medium has.
    ReachedAtRest,
    /// A put says the opposite.
    Put,
    /// Of many gets, the first finds nothing.
    GetMany,
    /// Of many gets of words, the first finds nothing.
    GetWords,
    /// Many removals are one more.
    RemoveMany,
    /// A removal needs no room.
    RemovalTakesRoom,
    /// A panic of the caller ends in success.
    Panic,
    /// A pair that found no room is there.
    Refused,
    /// Nothing is in use, and nothing is reached.
    UsedNothing,
    /// More is in use than there is.
    UsedMore,
    /// A damaged pool is full.
    Full,
    /// A closed pool was closed.
    Closed,
}

/// The lie that is told now. One for the process: judges have threads.
static LIE: Mutex<Lie> = Mutex::new(Lie::None);

/// The key that found no room last.
static REFUSED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// One lie at a time.
static ONE: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tells(lie: Lie) -> bool {
    *lock(&LIE) == lie
}

/// The reference engine with a lie.
struct Liar;

/// An open table, and whether its medium ends within a line.
struct LiarTable<M: Media>(ReferenceTable<M>, bool);

impl Engine for Liar {
    const NAME: &'static str = Reference::NAME;
    const CAPABILITIES: Capabilities = Reference::CAPABILITIES;
    const SITES: &'static [&'static [Site]] = Reference::SITES;
    type Settings = NoSettings;
    type Table<M: Media> = LiarTable<M>;

    fn tiny(form: Form) -> NoSettings {
        Reference::tiny(form)
    }

    fn sized_for(form: Form, items: u64) -> NoSettings {
        Reference::sized_for(form, items)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &NoSettings) -> Result<()> {
        Reference::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<LiarTable<M>> {
        let is_cut = !pool.region().media().bytes().is_multiple_of(LINE);
        match Reference::open(pool, executor) {
            Err(Error::Corrupt { .. }) if tells(Lie::Full) => Err(Error::Full { needed: 1 }),
            opened => Ok(LiarTable(opened?, is_cut)),
        }
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        let mut is_first = true;
        let mut checked = Reference::check(region, boot, &mut |key, value| {
            if core::mem::take(&mut is_first) && tells(Lie::VisitedTwice) {
                visit(key, value);
            }
            visit(key, value);
        })?;
        let is_twice = tells(Lie::VisitedTwice) && checked.items > 0;
        checked.items += u64::from(tells(Lie::Visited) || is_twice);
        if tells(Lie::ReachedAtRest) {
            checked.reachable_bytes = 1 << 60;
        }
        let is_closed = Pool::status(region, boot)?.previous == Shutdown::Clean;
        if tells(Lie::ReachedHeaderAtRest) && is_closed {
            checked.reachable_bytes = pool::DATA.byte();
        }
        Ok(checked)
    }
}

impl<M: Media> Table for LiarTable<M> {
    fn form(&self) -> Form {
        self.0.form()
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let inserted = self.0.insert(key, value);
        if matches!(inserted, Err(Error::Full { .. })) {
            *lock(&REFUSED) = key.to_vec();
        }
        inserted
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.put(key, value).map(|was_there| was_there != tells(Lie::Put))
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.0.update(key, value)
    }
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        if !tells(Lie::Panic) {
            return self.0.modify(key, change);
        }
        let mut value = Vec::new();
        let found = self.0.get(key, &mut value)?;
        let changed = std::panic::AssertUnwindSafe(|| change(found.then_some(&value)));
        match std::panic::catch_unwind(changed) {
            Ok(change) => self.0.modify(key, &mut |_| change.clone()),
            Err(_) => Ok(()),
        }
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, value)
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        if tells(Lie::RemovalTakesRoom) {
            self.0.put(b"room", &[7; 20_000])?;
            self.0.remove(b"room")?;
        }
        self.0.remove(key)
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        let is_refused = tells(Lie::Refused) && *lock(&REFUSED) == key;
        Ok(self.0.contains(key)? || tells(Lie::Contains) || is_refused)
    }
    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.0.get_many(keys, &mut |position, value| {
            found(position, value.filter(|_| position > 0 || !tells(Lie::GetMany)));
        })
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.0.remove_many(keys).map(|removed| removed + u64::from(tells(Lie::RemoveMany)))
    }
    fn len(&self) -> Result<u64> {
        let is_lie = tells(Lie::Len) || self.1 && tells(Lie::CutLen);
        self.0.len().map(|count| count + u64::from(is_lie))
    }
    fn is_empty(&self) -> Result<bool> {
        self.0.is_empty().map(|is_empty| is_empty && !tells(Lie::IsEmpty))
    }
    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        let mut is_left_out = tells(Lie::Scan) && cursor == Cursor::default();
        self.0.scan(cursor, &mut |key, value| {
            if !core::mem::take(&mut is_left_out) {
                visit(key, value);
            }
        })
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        self.0.maintain(now, budget)
    }
    fn check(&self) -> Result<Checked> {
        let mut checked = self.0.check()?;
        checked.items += u64::from(tells(Lie::Items));
        match *lock(&LIE) {
            Lie::UsedNothing => checked.reachable_bytes = 0,
            Lie::Reached => checked.reachable_bytes = 1 << 60,
            Lie::ReachedHeader => checked.reachable_bytes = pool::DATA.byte(),
            _ => {}
        }
        Ok(checked)
    }
    fn stats(&self) -> Result<Stats> {
        let mut stats = self.0.stats()?;
        match *lock(&LIE) {
            Lie::UsedNothing => stats.used_bytes = 0,
            Lie::UsedMore => stats.used_bytes = 1 << 60,
            _ => {}
        }
        Ok(stats)
    }
    fn close(self: Box<Self>) -> Result<()> {
        if tells(Lie::Closed) { Ok(()) } else { Box::new(self.0).close() }
    }
    fn words(&self) -> Option<&dyn WordTable> {
        self.0.words().map(|_| self as &dyn WordTable)
    }
    fn bare(&self) -> Option<&dyn BareTable> {
        self.0.bare()
    }
}

impl<M: Media> WordTable for LiarTable<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::insert_word(&self.0, key, value)
    }
    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::put_word(&self.0, key, value)
    }
    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::update_word(&self.0, key, value)
    }
    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        WordTable::get_word(&self.0, key)
    }
    fn remove_word(&self, key: u64) -> Result<bool> {
        WordTable::remove_word(&self.0, key)
    }
    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        WordTable::get_words(&self.0, keys, values)?;
        if let (Some(first), true) = (values.first_mut(), tells(Lie::GetWords)) {
            *first = None;
        }
        Ok(())
    }
}

/// Tells a lie while `hear` listens; returns what it complains about.
fn heard<E: core::fmt::Display>(
    lie: Lie,
    hear: impl FnOnce(&Design<Image>) -> core::result::Result<(), E>,
) -> String {
    let _one = lock(&ONE);
    *lock(&LIE) = lie;
    let found = hear(&Design::of::<Liar>());
    *lock(&LIE) = Lie::None;
    let found = found.map_or_else(|found| found.to_string(), |()| "nothing".to_owned());
    println!("{lie:?}: {found}");
    found
}

fn read_out(design: &Design<Image>) -> core::result::Result<(), everhash_testkit::Failure> {
    let shape = Shape::tiny(Form::WORDS);
    let table = OpenTable::tiny(design, Form::WORDS, 1 << 20)?;
    table.read_out(&[].into(), &[])?;
    let pairs = (0..8u16).map(|number| (shape.key(number), shape.value(number.into())));
    let pairs: std::collections::BTreeMap<_, _> = pairs.collect();
    for (key, value) in &pairs {
        table.table().insert(key, value)?;
    }
    let keys: Vec<_> = (0..12).map(|number| shape.key(number)).collect();
    table.read_out(&pairs, &keys)
}

#[test]
fn a_read_out_hears_every_lie() {
    // Fails if one way to ask is not compared with what there should be: all others are right.
    assert_eq!(heard(Lie::None, read_out), "nothing");
    for (lie, says) in [
        (Lie::Contains, "contains of "),
        (Lie::IsEmpty, "is_empty is wrong for 0 pairs"),
        (Lie::Len, "len returned "),
        (Lie::Scan, "the scan has no "),
        (Lie::Items, "check counted 1 pairs; there are 0"),
        (Lie::VisitedTwice, "the check of the pool visited "),
        (Lie::Visited, "check counted 1 pairs and visited 0"),
        (Lie::ReachedAtRest, "check reached "),
    ] {
        let found = heard(lie, read_out);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}

#[test]
fn the_contract_is_heard_in_every_point() {
    // Fails if a case asks for something and does not look at the answer.
    for (lie, case, says) in [
        (Lie::Panic, "a_panic_in_modify_publishes_nothing", "swallowed a panic"),
        (Lie::UsedNothing, "figures_are_consistent", "bytes of pairs in 0 bytes"),
        (Lie::Reached, "figures_are_consistent", "are reachable, and only "),
        (Lie::ReachedHeader, "a_check_reaches_every_pair", "in 0 that are reached"),
        (Lie::ReachedHeaderAtRest, "a_check_reaches_every_pair", "in 0 that are reached"),
        (Lie::GetMany, "many_at_once_agree_with_one_by_one", "get_many found another value"),
        (Lie::RemoveMany, "many_removals_agree_with_one_by_one", "remove_many said "),
        (Lie::GetWords, "words_agree_with_bytes", "get_words found "),
        (Lie::Refused, "a_full_medium_is_an_error_and_no_end", "met a full medium is there"),
    ] {
        let judge = |design: &_| conformance::judge_case(design, Form::WORDS, case);
        let found = heard(lie, judge);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}

#[test]
fn damage_that_is_taken_for_something_else_is_heard() {
    // Fails if whoever damages a pool accepted answers that are no error and not right.
    let flips = damage::Effort { flip_every: 11, several: 0, images: 0, ..Default::default() };
    let bare = damage::Effort { bare_pairs: true, ..flips.clone() };
    let cuts = damage::Effort { flip_every: 1 << 40, cut_every: 7, ..flips.clone() };
    for (lie, effort, says) in [
        (Lie::CutLen, &cuts, ": cut to "),
        (Lie::Len, &bare, ": bit 0 of word 0: len returned "),
        (Lie::Full, &flips, "an error that tells of no damage"),
        (Lie::Items, &flips, " more puts there are "),
    ] {
        let hear = |design: &_| damage::judge(design, Form::WORDS, effort).map(drop);
        let found = heard(lie, hear);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}

#[test]
fn what_needs_room_or_has_more_than_there_is_is_heard() {
    // Fails if an engine could refuse a removal for want of room, or use more than the medium has.
    let effort = room::Effort { seeds: 0..1, points: 4, ..room::Effort::default() };
    let judge = |design: &_, form, effort| room::judge(design, form, effort).map(drop);
    let found = heard(Lie::UsedMore, |design| judge(design, Form::WORDS, &effort));
    assert!(found.contains(" bytes are in use of "), "{found}");
    let lie = Lie::RemovalTakesRoom;
    let found = heard(lie, |design| judge(design, Form::Variable, &effort));
    assert!(found.contains("remove") && found.contains("full: "), "{found}");
}

#[test]
fn what_a_process_after_a_crash_is_told_is_heard() {
    // Fails if only the pairs that are left are looked at, and not what is said of them.
    let (seeds, shorten_executions) = (0..2, 1);
    let effort =
        crash::Effort { seeds, operations: 8, shorten_executions, ..crash::Effort::default() };
    for (lie, says) in [
        (Lie::Closed, "the pool was closed, and counts as "),
        (Lie::Put, "; it should return "),
        (Lie::Contains, "after opening"),
    ] {
        let found =
            heard(lie, |_| crash::judge(&Design::of::<Liar>(), Form::WORDS, &effort).map(drop));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}
