//! The judges judged by single lies: an engine that is right but for one answer.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod contract;
mod crashes;
mod judges;
mod pools;
mod races;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everhash_index::{
    BareTable, Capabilities, Change, Checked, Cursor, Design, Engine, Error, Executor, Form,
    Result, Setting, Settings, Stats, Table, Upkeep, WordTable,
};
use everhash_pmem::{
    Boot, Domain, Image, LINE, Media, Pool, Primitives, Region, Shutdown, Site, Std, pool,
};
use everhash_testkit::reference::{NoSettings, Reference, ReferenceTable};
use everhash_testkit::workload::Shape;
use everhash_testkit::{OpenTable, crash, damage, room};

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
    /// A put of the thread with number 1 does.
    PutOfOneThread,
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
    /// One answer of one operation is wrong: that of the call with this number.
    Slip(Verb, u32),
    /// The pairs have another form.
    Form,
    /// A key of another length is there, for whoever gets it.
    GetAnyLength,
    /// It is, for whoever asks whether it is.
    ContainsAnyLength,
    /// A pair of another form was put.
    PutAnyForm,
    /// A key may have as many bytes as one that is refused for its length.
    KeyLimit,
    /// A value may.
    ValueLimit,
    /// From a thousand pairs on a put is said to be done, and is not.
    Thousand,
    /// A get appends to what the buffer held before.
    Appends,
    /// Of many gets, the last finds nothing.
    GetManyLast,
    /// Of many gets, the first is answered twice.
    GetManyTwice,
    /// Of many gets, those that find nothing are not answered.
    GetManyLeftOut,
    /// A scan shows another value of its first pair.
    ScanValue,
    /// A scan shows its first pair again, with another value.
    ScanTwice,
    /// A scan shows a pair that is not there.
    ScanStranger,
    /// A scan goes on for ever.
    ScanForEver,
    /// Whoever gets or scans finds nothing.
    Emptied,
    /// A table that was opened for reading only has lost the pairs that are asked for.
    ReadOnlyGet,
    /// Its scans leave out their first pair.
    ReadOnlyScan,
    /// The scans of a table whose process was killed do.
    RecoveredScan,
    /// There is no upkeep after the first second.
    Late,
    /// There may be more upkeep in the first minute.
    Deadline,
    /// A close has failed.
    CloseFails,
    /// A check of the open table has failed.
    CheckFails,
    /// A check of the pool at rest leaves out its first pair.
    LeftOut,
    /// It does, once the pool was closed.
    LeftOutAtRest,
    /// It does, once the pool was opened in the last boot there is.
    LeftOutAfterPower,
    /// It does, if only the process ended.
    LeftOutWhenKilled,
    /// A check of the pool at rest fails in the boot after that which lost power.
    RefusedAfterPower,
    /// After a loss of power there is no table.
    Outage,
    /// On a medium whose fences are syncs there is no table.
    Synced,
    /// Every open takes room.
    GrowsAtOpen,
    /// With each call more is in use.
    UsedGrows,
    /// After an insert that found no room more is alive, until the next open.
    Kept,
    /// With each call more is alive.
    LiveGrows,
    /// The pool is a word longer.
    DeviceBytes,
    /// The figures count a pair more.
    StatsItems,
    /// Two figures have one name.
    OwnTwice,
    /// A setting is another number than it is by default.
    SettingDefault,
    /// A setting is another number than it was set to.
    SettingChanges,
    /// A setting takes every number.
    SettingAbsurd,
    /// A setting that there is not is set.
    SettingUnknown,
    /// Nothing is wrong; the calls of this name are counted.
    Counts(&'static str),
    /// A call of this name panics, where the process before was killed.
    Panics(&'static str),
    /// The key of this number is there, for whoever asks whether it is.
    Key(u16),
    /// A count fails, and nothing is damaged.
    LenFails,
    /// A scan shows a pair that is not there, and then meets damage.
    StrangerThenDamage,
    /// A scan meets damage, and shows a pair that is not there behind it.
    StrangerPastDamage,
    /// The scans of a table that was closed leave out their first pair.
    ClosedScan,
    /// The scans of a table whose process was killed go on for ever.
    RecoveredScanForEver,
    /// An open of a medium that was cut panics.
    CutPanics,
    /// An open of a damaged pool panics, if it ended in this way.
    DamagePanics(Shutdown),
    /// An open of a damaged pool takes four MiB of DRAM.
    DamageAllocates,
    /// An open after a loss of power panics.
    OutagePanics,
    /// An open after a killed process panics on a medium whose fences are syncs.
    SyncedPanics,
    /// A pool with pairs that ended in this way is refused on such a medium.
    SyncedPairs(Shutdown),
    /// From this number of pairs on there is always more upkeep.
    EndlessUpkeep(u64),
    /// A sync fails.
    SyncFails,
    /// A pool cannot be made.
    FormatFails,
    /// Many gets of words leave alone what they do not find.
    WordsUntouched,
    /// There is no path for words.
    NoWords,
    /// Many removals of nothing are one.
    RemoveManyOfNone,
    /// Of many gets, a key of another length is found.
    GetManyAnyLength,
    /// Many pairs of another form were put.
    PutManyAnyForm,
    /// A value of another length was put.
    PutAnyValue,
    /// A setting that there is not has a value.
    SettingStranger,
    /// A table that was opened for reading only accepts a call of this name.
    ReadOnlyAccepts(&'static str),
    /// When one table is cleared, all are.
    ClearsAll,
    /// Once a pair was removed, an insert finds no room.
    RemovedForEver,
    /// A panic of the caller leaves another value behind.
    PanicChanges,
    /// A refusal shows the key, as hexadecimal digits.
    RefusalShows,
    /// From this number of pairs on a put finds no room.
    FullAt(u64),
    /// The put with this number is said to be done, and is not.
    Forgets(u32),
    /// The put with this number finds no room, and is done.
    RefusesAndPuts(u32),
    /// The put with this number finds no room.
    Refuses(u32),
    /// Of many puts, the last is done, and the others find no room.
    PutsLast,
    /// A put of more than a thousand bytes fails.
    LongFails,
    /// A removal lets the medium grow.
    RemovalGrows,
}

/// An operation that slips once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Insert,
    Put,
    Update,
    Remove,
    Get,
    InsertMany,
    PutMany,
    /// The caller's function is called twice.
    ModifyTwice,
    /// It is shown nothing.
    ModifyShows,
    /// There is no room.
    ModifyFull,
    /// The first pair is left out.
    Scan,
    /// The next cursor is another one.
    Cursor,
    UpdateBlind,
    RemoveBlind,
    InsertWord,
    PutWord,
    UpdateWord,
    GetWord,
    RemoveWord,
}

/// The lie that is told now. One for the process: judges have threads.
static LIE: Mutex<Lie> = Mutex::new(Lie::None);

/// How often the operation was called that slips, or that grows with each call.
static CALLS: AtomicU32 = AtomicU32::new(0);

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

/// Counts a call; returns whether its answer is the wrong one.
fn slips(verb: Verb) -> bool {
    match *lock(&LIE) {
        Lie::Slip(one, number) => one == verb && count() == number,
        _ => false,
    }
}

/// Counts a call, if calls of its name are counted.
fn counts(name: &'static str) {
    if tells(Lie::Counts(name)) {
        count();
    }
}

fn count() -> u32 {
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

/// The settings of the liar.
#[derive(Clone, Copy, Debug, Default)]
struct LiarSettings {
    number: u64,
}

impl Settings for LiarSettings {
    const ALL: &'static [Setting] =
        &[Setting { name: "number", default: 0, meaning: "up to a thousand" }];

    fn get(&self, name: &str) -> Option<u64> {
        if name != "number" && tells(Lie::SettingStranger) {
            return Some(1);
        }
        (name == "number").then_some(self.number + u64::from(tells(Lie::SettingDefault)))
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        match name {
            "number" if value <= 1000 || tells(Lie::SettingAbsurd) => {
                self.number = value + u64::from(tells(Lie::SettingChanges));
            }
            "number" => return Err(Error::Setting { name: "number", why: "too large".into() }),
            _ if tells(Lie::SettingUnknown) => {}
            _ => return Err(Self::unknown(name)),
        }
        Ok(())
    }
}

/// The reference engine with a lie.
struct Liar;

/// An open table.
struct LiarTable<M: Media> {
    table: ReferenceTable<M>,
    region: Region<M>,
    /// Whether its medium ends within a line.
    is_cut: bool,
    is_read_only: bool,
    /// Whether the process before was killed.
    is_recovered: bool,
    /// Whether it closed the table.
    is_closed: bool,
}

impl<M: Media> LiarTable<M> {
    /// Notes a call.
    fn called(&self, name: &'static str) {
        counts(name);
        let panics = self.is_recovered && tells(Lie::Panics(name));
        assert!(!panics, "{name} panics");
    }

    /// Returns whether a call is accepted that only writers may make.
    fn accepts(&self, name: &'static str) -> bool {
        self.is_read_only && tells(Lie::ReadOnlyAccepts(name))
    }

    /// Puts a pair, or finds no room for it, as the lie says.
    fn put_or_not(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let full = Err(Error::Full { needed: 1 });
        let lie = *lock(&LIE);
        match lie {
            Lie::FullAt(most) if self.table.len()? >= most => full,
            Lie::Forgets(number) if count() == number => self.table.contains(key),
            Lie::Refuses(number) if count() == number => full,
            Lie::RefusesAndPuts(number) if count() == number => {
                self.table.put(key, value)?;
                full
            }
            Lie::LongFails if value.len() > 1000 => Err(Error::Poisoned),
            _ => self.table.put(key, value),
        }
    }
}

impl Engine for Liar {
    const NAME: &'static str = Reference::NAME;
    const CAPABILITIES: Capabilities = Reference::CAPABILITIES;
    const SITES: &'static [&'static [Site]] = Reference::SITES;
    type Settings = LiarSettings;
    type Table<M: Media> = LiarTable<M>;

    fn tiny(_form: Form) -> LiarSettings {
        LiarSettings::default()
    }

    fn sized_for(_form: Form, _items: u64) -> LiarSettings {
        LiarSettings::default()
    }

    fn format<M: Media>(pool: &Pool<M>, _settings: &LiarSettings) -> Result<()> {
        counts("format");
        if tells(Lie::FormatFails) {
            return Err(Error::Poisoned);
        }
        Reference::format(pool, &NoSettings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<LiarTable<M>> {
        let (previous, is_read_only) = (pool.previous_shutdown(), !pool.writable());
        let (media, is_recovered) = (pool.region().media(), previous == Shutdown::Process);
        let (bytes, domain) = (media.bytes(), media.guarantees().domain);
        counts("open");
        let is_synced = domain == Domain::Synced;
        assert!(!(tells(Lie::OutagePanics) && previous == Shutdown::Power), "power was lost");
        assert!(!(tells(Lie::SyncedPanics) && is_recovered && is_synced), "a fence is a sync");
        let is_refused =
            tells(Lie::Outage) && previous == Shutdown::Power || tells(Lie::Synced) && is_synced;
        if is_refused {
            return Err(Error::Poisoned);
        }
        if tells(Lie::Kept) {
            lock(&REFUSED).clear();
        }
        if tells(Lie::GrowsAtOpen) {
            media.grow(bytes + (64 << 10))?;
        }
        let is_cut = !bytes.is_multiple_of(LINE);
        assert!(!(tells(Lie::CutPanics) && is_cut), "the medium was cut");
        // That of a new pool is none.
        let is_closed = previous == Shutdown::Clean && bytes > pool::DATA.byte();
        let region = pool.region().clone();
        match Reference::open(pool, executor) {
            Err(Error::Corrupt { .. }) if tells(Lie::Full) => Err(Error::Full { needed: 1 }),
            Err(error @ Error::Corrupt { .. }) if tells(Lie::DamageAllocates) => {
                drop(core::hint::black_box(vec![1_u8; 4 << 20]));
                Err(error)
            }
            Err(Error::Corrupt { .. }) if tells(Lie::DamagePanics(previous)) => {
                panic!("the pool is damaged")
            }
            opened => {
                let table = opened?;
                if is_synced && tells(Lie::SyncedPairs(previous)) && table.len()? > 0 {
                    return Err(Error::Poisoned);
                }
                Ok(LiarTable { table, region, is_cut, is_read_only, is_recovered, is_closed })
            }
        }
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        counts("check at rest");
        let status = Pool::status(region, boot)?;
        let is_closed = status.previous == Shutdown::Clean;
        // Whoever looks at the pool of an open table names no boot.
        let has_lost_power = status.previous == Shutdown::Power && boot != Boot::default();
        if tells(Lie::RefusedAfterPower) && has_lost_power {
            return Err(Error::Poisoned);
        }
        let is_left_out = tells(Lie::LeftOut)
            || tells(Lie::LeftOutWhenKilled) && status.previous == Shutdown::Process
            || tells(Lie::LeftOutAtRest) && is_closed
            || tells(Lie::LeftOutAfterPower) && status.boot.0[1] == u64::MAX;
        let mut is_first = true;
        let mut checked = Reference::check(region, boot, &mut |key, value| {
            if core::mem::take(&mut is_first) {
                if is_left_out {
                    return;
                }
                if tells(Lie::VisitedTwice) {
                    visit(key, value);
                }
            }
            visit(key, value);
        })?;
        checked.items -= u64::from(is_left_out && checked.items > 0);
        let is_twice = tells(Lie::VisitedTwice) && checked.items > 0;
        checked.items += u64::from(tells(Lie::Visited) || is_twice);
        if tells(Lie::ReachedAtRest) {
            checked.reachable_bytes = 1 << 60;
        }
        if tells(Lie::ReachedHeaderAtRest) && is_closed {
            checked.reachable_bytes = pool::DATA.byte();
        }
        Ok(checked)
    }

    fn salvage<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        counts("salvage");
        Reference::salvage(region, boot, visit, report)
    }
}

impl<M: Media> Table for LiarTable<M> {
    fn form(&self) -> Form {
        if tells(Lie::Form) { Form::DOUBLE_WORDS } else { self.table.form() }
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.called("insert");
        if self.accepts("insert") {
            return Ok(true);
        }
        if tells(Lie::RemovedForEver) && CALLS.load(Ordering::Relaxed) > 0 {
            return Err(Error::Full { needed: 1 });
        }
        let inserted = self.table.insert(key, value);
        if matches!(inserted, Err(Error::Full { .. })) {
            *lock(&REFUSED) = key.to_vec();
        }
        inserted.map(|was_absent| was_absent != slips(Verb::Insert))
    }
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        if tells(Lie::Thousand) && self.table.len()? >= 1000 {
            return self.table.contains(key);
        }
        self.called("put");
        if self.accepts("put") {
            return Ok(true);
        }
        if tells(Lie::PutAnyValue) && key.len() == 8 && value.len() != 8 {
            return Ok(true);
        }
        if tells(Lie::RefusalShows) && key.len() != 8 {
            let why = key.iter().map(|byte| format!("{byte:x}")).collect();
            return Err(Error::Setting { name: "number", why });
        }
        match self.put_or_not(key, value) {
            Err(Error::WrongForm { .. }) if tells(Lie::PutAnyForm) => Ok(false),
            Err(Error::KeyTooLong { bytes, .. }) if tells(Lie::KeyLimit) => {
                Err(Error::KeyTooLong { bytes, limit: bytes })
            }
            Err(Error::ValueTooLong { bytes, .. }) if tells(Lie::ValueLimit) => {
                Err(Error::ValueTooLong { bytes, limit: bytes })
            }
            put => {
                let lies = tells(Lie::PutOfOneThread) && Std::thread() == 1;
                put.map(|was_there| was_there != (lies || tells(Lie::Put) || slips(Verb::Put)))
            }
        }
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.called("update");
        if self.accepts("update") {
            return Ok(true);
        }
        self.table.update(key, value).map(|was_there| was_there != slips(Verb::Update))
    }
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.called("modify");
        if self.accepts("modify") {
            return Ok(());
        }
        if slips(Verb::ModifyFull) {
            return Err(Error::Full { needed: 1 });
        }
        if slips(Verb::ModifyTwice) {
            return self.table.modify(key, &mut |value| {
                change(value);
                change(value)
            });
        }
        if slips(Verb::ModifyShows) {
            return self.table.modify(key, &mut |_| change(None));
        }
        if !tells(Lie::Panic) && !tells(Lie::PanicChanges) {
            return self.table.modify(key, change);
        }
        let mut value = Vec::new();
        let found = self.table.get(key, &mut value)?;
        let changed = std::panic::AssertUnwindSafe(|| change(found.then_some(&value)));
        match std::panic::catch_unwind(changed) {
            Ok(change) => self.table.modify(key, &mut |_| change.clone()),
            Err(panic) if tells(Lie::PanicChanges) => {
                self.table.put(key, &[7; 8])?;
                std::panic::resume_unwind(panic)
            }
            Err(_) => Ok(()),
        }
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.called("get");
        let before = value.clone();
        let found = self.table.get(key, value)?;
        if tells(Lie::Appends) {
            value.splice(0..0, before);
        }
        let is_lost = tells(Lie::Emptied) || tells(Lie::ReadOnlyGet) && self.is_read_only;
        let is_stranger = tells(Lie::GetAnyLength) && key.len() != 8;
        Ok((found && !is_lost || is_stranger) != slips(Verb::Get))
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.called("remove");
        if self.accepts("remove") {
            return Ok(true);
        }
        if tells(Lie::RemovedForEver) {
            count();
        }
        if tells(Lie::RemovalGrows) {
            self.region.media().grow(self.region.media().bytes() + LINE)?;
        }
        if tells(Lie::RemovalTakesRoom) {
            self.table.put(b"room", &[7; 20_000])?;
            self.table.remove(b"room")?;
        }
        self.table.remove(key).map(|was_there| was_there != slips(Verb::Remove))
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        let is_refused = tells(Lie::Refused) && *lock(&REFUSED) == key;
        let is_stranger = tells(Lie::ContainsAnyLength) && key.len() != 8;
        let shape = Shape::tiny(self.table.form());
        let is_told = matches!(*lock(&LIE), Lie::Key(number) if shape.key(number) == key);
        let is_there = self.table.contains(key)? || tells(Lie::Contains) || is_told;
        Ok(is_there || is_refused || is_stranger)
    }
    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.called("get_many");
        self.table.get_many(keys, &mut |position, value| {
            let is_lost = tells(Lie::GetMany) && position == 0
                || tells(Lie::GetManyLast) && position + 1 == keys.len();
            let value = value.filter(|_| !is_lost);
            let is_stranger = tells(Lie::GetManyAnyLength) && keys[position].len() != 8;
            let value = if is_stranger { Some(&[7; 8][..]) } else { value };
            if value.is_some() || !tells(Lie::GetManyLeftOut) {
                found(position, value);
            }
            if tells(Lie::GetManyTwice) && position == 0 {
                found(position, value);
            }
        })
    }
    fn insert_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        if self.accepts("insert_many") {
            return Ok(1);
        }
        let added = self.table.insert_many(pairs)?;
        Ok(added + u64::from(slips(Verb::InsertMany)))
    }
    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        if let (Some((key, value)), true) = (pairs.last(), tells(Lie::PutsLast)) {
            self.table.put(key, value)?;
            return Err(Error::Full { needed: 1 });
        }
        if self.accepts("put_many") {
            return Ok(0);
        }
        let put = match self.table.put_many(pairs) {
            Err(Error::WrongForm { .. }) if tells(Lie::PutManyAnyForm) => Ok(0),
            put => put,
        };
        let added = put?;
        Ok(added + u64::from(slips(Verb::PutMany)))
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        if self.accepts("remove_many") {
            return Ok(1);
        }
        let is_none = keys.is_empty() && tells(Lie::RemoveManyOfNone);
        let is_more = tells(Lie::RemoveMany) || is_none;
        self.table.remove_many(keys).map(|removed| removed + u64::from(is_more))
    }
    fn len(&self) -> Result<u64> {
        self.called("len");
        if tells(Lie::LenFails) {
            return Err(Error::Poisoned);
        }
        let is_lie = tells(Lie::Len) || self.is_cut && tells(Lie::CutLen);
        self.table.len().map(|count| count + u64::from(is_lie))
    }
    fn is_empty(&self) -> Result<bool> {
        self.called("is_empty");
        self.table.is_empty().map(|is_empty| is_empty && !tells(Lie::IsEmpty))
    }
    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        if tells(Lie::ScanForEver) || self.is_recovered && tells(Lie::RecoveredScanForEver) {
            return Ok(Some(cursor));
        }
        let damage = Err(Error::Corrupt { at: 0, broken: "a scan comes to its end" });
        if tells(Lie::StrangerThenDamage) {
            visit(&[7; 8], &[7; 8]);
            return damage;
        }
        if tells(Lie::StrangerPastDamage) {
            let Cursor(from) = cursor;
            return if from == 0 {
                damage
            } else {
                visit(&[7; 8], &[7; 8]);
                Ok(None)
            };
        }
        let mut is_left_out = tells(Lie::Scan) && cursor == Cursor::default()
            || tells(Lie::ReadOnlyScan) && self.is_read_only
            || tells(Lie::RecoveredScan) && self.is_recovered
            || tells(Lie::ClosedScan) && self.is_closed
            || slips(Verb::Scan);
        let mut is_first = true;
        let next = self.table.scan(cursor, &mut |key, value| {
            let is_cleared = tells(Lie::ClearsAll) && CALLS.load(Ordering::Relaxed) > 0;
            if core::mem::take(&mut is_left_out) || tells(Lie::Emptied) || is_cleared {
                return;
            }
            let other: Vec<u8> = value.iter().map(|byte| !byte).collect();
            let is_first = core::mem::take(&mut is_first);
            visit(key, if tells(Lie::ScanValue) && is_first { &other } else { value });
            if tells(Lie::ScanTwice) && is_first {
                visit(key, &other);
            }
        })?;
        if tells(Lie::ScanStranger) && next.is_none() {
            visit(&[7; 8], &[7; 8]);
        }
        Ok(next.map(|Cursor(next)| Cursor(next + u64::from(slips(Verb::Cursor)))))
    }
    fn scan_past(&self, _cursor: Cursor) -> Result<Option<Cursor>> {
        Ok(tells(Lie::StrangerPastDamage).then_some(Cursor(1)))
    }
    fn clear(&self) -> Result<()> {
        self.called("clear");
        if self.accepts("clear") {
            return Ok(());
        }
        if tells(Lie::ClearsAll) {
            count();
        }
        self.table.clear()
    }
    fn sync(&self) -> Result<()> {
        self.called("sync");
        if tells(Lie::SyncFails) {
            return Err(Error::Poisoned);
        }
        self.table.sync()
    }
    fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        self.called("maintain");
        if tells(Lie::Late) && now >= Duration::from_secs(1) {
            return Err(Error::Poisoned);
        }
        let lie = *lock(&LIE);
        if matches!(lie, Lie::EndlessUpkeep(from) if self.table.len()? >= from) {
            return Ok(Upkeep { deadline: None, more: true });
        }
        if tells(Lie::Deadline) && now < Duration::from_secs(60) {
            return Ok(Upkeep { deadline: Some(now), more: false });
        }
        self.table.maintain(now, budget)
    }
    fn check(&self) -> Result<Checked> {
        self.called("check");
        if tells(Lie::CheckFails) {
            return Err(Error::Poisoned);
        }
        let mut checked = self.table.check()?;
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
        self.called("stats");
        let mut stats = self.table.stats()?;
        match *lock(&LIE) {
            Lie::UsedNothing => stats.used_bytes = 0,
            Lie::UsedMore => stats.used_bytes = 1 << 60,
            Lie::UsedGrows => stats.used_bytes += u64::from(count()) << 12,
            Lie::LiveGrows => stats.live_bytes += u64::from(count()) << 12,
            Lie::Kept => stats.live_bytes += if lock(&REFUSED).is_empty() { 0 } else { 4096 },
            Lie::DeviceBytes => stats.device_bytes += 8,
            Lie::StatsItems => stats.items += 1,
            Lie::OwnTwice => stats.own = vec![("figure", 1), ("figure", 2)],
            _ => {}
        }
        Ok(stats)
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.called("close");
        if tells(Lie::CloseFails) {
            return Err(Error::Poisoned);
        }
        if tells(Lie::Closed) { Ok(()) } else { Box::new(self.table).close() }
    }
    fn words(&self) -> Option<&dyn WordTable> {
        self.table.words().filter(|_| !tells(Lie::NoWords)).map(|_| self as &dyn WordTable)
    }
    fn bare(&self) -> Option<&dyn BareTable> {
        self.table.bare().map(|_| self as &dyn BareTable)
    }
}

impl<M: Media> BareTable for LiarTable<M> {
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        BareTable::insert_blind(&self.table, key, value)
    }
    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if slips(Verb::UpdateBlind) {
            return Ok(());
        }
        BareTable::update_blind(&self.table, key, value)
    }
    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        if slips(Verb::RemoveBlind) {
            return Ok(());
        }
        BareTable::remove_blind(&self.table, key)
    }
}

impl<M: Media> WordTable for LiarTable<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::insert_word(&self.table, key, value).map(|it| it != slips(Verb::InsertWord))
    }
    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::put_word(&self.table, key, value).map(|it| it != slips(Verb::PutWord))
    }
    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        WordTable::update_word(&self.table, key, value).map(|it| it != slips(Verb::UpdateWord))
    }
    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        WordTable::get_word(&self.table, key).map(|it| it.filter(|_| !slips(Verb::GetWord)))
    }
    fn remove_word(&self, key: u64) -> Result<bool> {
        WordTable::remove_word(&self.table, key).map(|it| it != slips(Verb::RemoveWord))
    }
    fn get_words(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let before = values.to_vec();
        WordTable::get_words(&self.table, keys, values)?;
        if tells(Lie::WordsUntouched) {
            let places = values.iter_mut().zip(before);
            places.for_each(|(value, before)| *value = value.or(before));
        }
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
    CALLS.store(0, Ordering::Relaxed);
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
        (Lie::ScanValue, "the scan has "),
        (Lie::ScanStranger, ", which is absent"),
        (Lie::Appends, "get of "),
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
    contract::are_heard(
        Form::WORDS,
        &[
            (Lie::Panic, "a_panic_in_modify_publishes_nothing", "swallowed a panic"),
            (Lie::UsedNothing, "figures_are_consistent", "bytes of pairs in 0 bytes"),
            (Lie::Reached, "figures_are_consistent", "are reachable, and only "),
            (Lie::ReachedHeader, "a_check_reaches_every_pair", "in 0 that are reached"),
            (Lie::ReachedHeaderAtRest, "a_check_reaches_every_pair", "in 0 that are reached"),
            (Lie::GetMany, "many_at_once_agree_with_one_by_one", "get_many found another value"),
            (Lie::RemoveMany, "many_removals_agree_with_one_by_one", "remove_many said "),
            (Lie::GetWords, "words_agree_with_bytes", "get_words found "),
            (Lie::Refused, "a_full_medium_is_an_error_and_no_end", "met a full medium is there"),
        ],
    );
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
        (Lie::ScanValue, &flips, ": scan of "),
        (Lie::ScanForEver, &flips, "a scan does not end"),
        (Lie::RecoveredScan, &flips, ", left open: "),
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
    let found = heard(Lie::Kept, |design| judge(design, Form::WORDS, &effort));
    assert!(found.contains(" bytes more than with room count as alive "), "{found}");
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
        (Lie::LeftOutWhenKilled, "the check before opening: it has no "),
    ] {
        let found =
            heard(lie, |_| crash::judge(&Design::of::<Liar>(), Form::WORDS, &effort).map(drop));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
}
