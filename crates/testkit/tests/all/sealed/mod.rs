//! A small engine whose rows have checksums, right and with planted bugs: what the judges of damage
//! and of forged pools are tried on.
//!
//! A pool is an array of rows of four words, `state, key, value, check`, of a fixed number. Every
//! operation reads the medium, so that each has to look at the checks by itself.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use everhash_index::{
    Capabilities, Change, Checked, Cursor, Durability, Engine, Error, Executor, Form, Result,
    Setting, Settings, Stats, Table, Upkeep, admit,
};
use everhash_pmem::pool::{DATA, ROOT};
use everhash_pmem::{Access, Addr, Boot, Media, Pool, Region, Site, Span, word_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

everhash_pmem::sites! {
    /// A row.
    ROW = "sealed/write/row";
    /// Everything that recovery accepts.
    ACCEPT = "sealed/open/accept";
}

/// The bugs that can be planted.
pub mod bug {
    /// A get believes its row; all else checks it.
    pub const GET_BELIEVES: u64 = 1;
    /// As that, of `get_many`.
    pub const MANY_BELIEVES: u64 = 2;
    /// As that, of `contains`.
    pub const CONTAINS_BELIEVES: u64 = 3;
    /// A count believes the state of each row.
    pub const LEN_BELIEVES: u64 = 4;
    /// A scan passes over what is damaged, and all else reports it.
    pub const SCAN_PASSES_OVER: u64 = 5;
    /// The check is the parity of each bit's column: two flips in a column cancel out.
    pub const PARITY: u64 = 6;
    /// The check knows neither its place nor the order of its words.
    pub const NO_PLACE: u64 = 7;
    /// An open panics when a key has two sound rows.
    pub const TWICE_PANICS: u64 = 8;
    /// An open that meets a key in two sound rows makes room for a copy of them.
    pub const TWICE_GROWS: u64 = 9;
    /// A scan that meets a key in two sound rows goes on behind the first of them.
    pub const TWICE_TURNS: u64 = 10;
}

/// Words of a row.
const ROW_WORDS: u64 = 4;

/// Rows of a pool.
const ROWS: u64 = 96;

/// The state of a row that holds a pair.
const LIVE: u64 = 0x11fe;

fn row(index: u64) -> Addr {
    DATA.plus(index * ROW_WORDS)
}

/// The engine. Which bug it has is a setting, so that it is compiled once.
pub struct Sealed;

/// Where a pool keeps the number of its bug, three times: damage to it shall not matter.
const BUG: Addr = ROOT.plus(1);

/// The bug that a new pool has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    bug: u64,
}

impl Settings for Planted {
    const ALL: &'static [Setting] = &[Setting { name: "bug", default: 0, meaning: "its number" }];

    fn get(&self, name: &str) -> Option<u64> {
        (name == "bug").then_some(self.bug)
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        if name != "bug" {
            return Err(Self::unknown(name));
        }
        self.bug = value;
        Ok(())
    }
}

impl Engine for Sealed {
    const NAME: &'static str = "sealed";
    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS],
        byte_strings: false,
        durability: &[Durability::Immediate],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: false,
    };
    const SITES: &'static [&'static [Site]] = &[ALL];
    type Settings = Planted;
    type Table<M: Media> = SealedTable<M>;

    fn tiny(_form: Form) -> Planted {
        Planted::default()
    }

    fn sized_for(_form: Form, _pairs: u64) -> Planted {
        Planted::default()
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &Planted) -> Result<()> {
        pool.region().media().grow(row(ROWS).byte())?;
        (0..3).try_for_each(|copy| pool.access().store(BUG.plus(copy), settings.bug))?;
        Ok(())
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<SealedTable<M>> {
        pool.begin_writes()?;
        let pm = pool.access();
        let mut copies = [0; 3];
        pm.read_words(BUG, &mut copies)?;
        copies.sort_unstable();
        pm.load(row(ROWS - 1))?;
        look_for_twins(&pm, copies[1])?;
        pm.sync(ACCEPT)?;
        drop(pm);
        pool.recovered()?;
        Ok(SealedTable { bug: copies[1], pool, writer: Mutex::new(()) })
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        let pm = region.access();
        let bug = pm.load(BUG)?;
        let mut items = 0;
        for number in 0..ROWS {
            let mut words = [0; ROW_WORDS as usize];
            pm.read_words(row(number), &mut words)?;
            if let Some((key, value)) = checked(bug, number, &words)? {
                visit(&key.to_le_bytes(), &value.to_le_bytes());
                items += 1;
            }
        }
        Ok(Checked { items, reachable_bytes: row(ROWS).byte() })
    }
}

/// Looks for keys with two rows, which no process leaves behind; only bugs do something then.
fn look_for_twins<M: Media>(pm: &Access<'_, M>, bug: u64) -> Result<()> {
    let mut keys = BTreeSet::new();
    for number in 0..ROWS {
        let mut words = [0; ROW_WORDS as usize];
        pm.read_words(row(number), &mut words)?;
        let is_twin =
            matches!(checked(bug, number, &words), Ok(Some((key, _))) if !keys.insert(key));
        match bug {
            bug::TWICE_PANICS => assert!(!is_twin, "a key has one row"),
            bug::TWICE_GROWS if is_twin => pm.media().grow(row(ROWS).byte() + (512 << 10))?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the check of a row.
fn seal(bug: u64, number: u64, words: [u64; 3]) -> u64 {
    let [state, key, value] = words;
    match bug {
        bug::PARITY => state ^ key ^ value,
        bug::NO_PLACE => {
            let hash = |word: u64| xxh3_64_with_seed(&word.to_le_bytes(), 7);
            hash(state).wrapping_add(hash(key)).wrapping_add(hash(value))
        }
        _ => {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            xxh3_64_with_seed(&bytes, number)
        }
    }
}

/// Returns the pair of a row, or `None` if there is none.
fn checked(bug: u64, number: u64, words: &[u64; 4]) -> Result<Option<(u64, u64)>> {
    let [state, key, value, check] = *words;
    if words == &[0; 4] {
        return Ok(None);
    }
    let at = row(number).byte();
    if seal(bug, number, [state, key, value]) != check {
        return Err(Error::Corrupt { at, broken: "the check of a row matches" });
    }
    match state {
        0 => Ok(None),
        LIVE => Ok(Some((key, value))),
        _ => Err(Error::Corrupt { at, broken: "a row has a pair or none" }),
    }
}

/// An open table.
pub struct SealedTable<M: Media> {
    bug: u64,
    writer: Mutex<()>,
    pool: Pool<M>,
}

impl<M: Media> SealedTable<M> {
    fn words(&self, number: u64) -> Result<[u64; 4]> {
        let mut words = [0; ROW_WORDS as usize];
        self.pool.access().read_words(row(number), &mut words)?;
        Ok(words)
    }

    /// Returns the pairs with their rows; those that believe look at no check.
    fn rows(&self, believes: bool) -> impl Iterator<Item = Result<(u64, Option<(u64, u64)>)>> + '_ {
        (0..ROWS).map(move |number| {
            let words = self.words(number)?;
            let pair = match believes {
                true => (words[0] == LIVE).then_some((words[1], words[2])),
                false => checked(self.bug, number, &words)?,
            };
            Ok((number, pair))
        })
    }

    fn find(&self, key: &[u8], believes: bool) -> Result<Option<(u64, u64)>> {
        let mut found = None;
        for row in self.rows(believes) {
            if let (number, Some((there, value))) = row?
                && there.to_le_bytes() == key
            {
                found = Some((number, value));
            }
        }
        Ok(found)
    }

    fn write(&self, number: u64, words: [u64; 3]) -> Result<()> {
        let check = seal(self.bug, number, words);
        let pm = self.pool.access();
        pm.write_words(row(number), &[words[0], words[1], words[2], check])?;
        pm.persist(Span::new(row(number), ROW_WORDS), ROW)?;
        Ok(())
    }

    /// Gives a key the value that `change` returns; returns whether it had one.
    fn edit(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Result<Change>,
    ) -> Result<bool> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.find(key, false)?;
        let value = found.map(|(_, value)| value.to_le_bytes());
        match change(value.as_ref().map(|value| &value[..]))? {
            Change::Keep => {}
            Change::Remove => {
                if let Some((number, _)) = found {
                    self.write(number, [0, 0, 0])?;
                }
            }
            Change::Put(value) => {
                admit(Form::WORDS, key, &value)?;
                let free =
                    || self.rows(false).find_map(|row| row.ok().filter(|row| row.1.is_none()));
                let number = found.or_else(|| free().map(|row| (row.0, 0)));
                let (number, _) = number.ok_or(Error::Full { needed: 32 })?;
                self.write(number, [LIVE, word_of(key), word_of(&value)])?;
            }
        }
        Ok(found.is_some())
    }
}

impl<M: Media> Table for SealedTable<M> {
    fn form(&self) -> Form {
        Form::WORDS
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let put = |found: Option<&[u8]>| match found {
            Some(_) => Change::Keep,
            None => Change::Put(value.to_vec()),
        };
        Ok(!self.edit(key, |found| Ok(put(found)))?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.edit(key, |_| Ok(Change::Put(value.to_vec())))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let put = |found: Option<&[u8]>| match found {
            Some(_) => Change::Put(value.to_vec()),
            None => Change::Keep,
        };
        self.edit(key, |found| Ok(put(found)))
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.edit(key, |found| Ok(change(found))).map(drop)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.find(key, self.bug == bug::GET_BELIEVES)?;
        value.extend(found.into_iter().flat_map(|(_, value)| value.to_le_bytes()));
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.edit(key, |_| Ok(Change::Remove))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.find(key, self.bug == bug::CONTAINS_BELIEVES)?.is_some())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (position, key) in keys.iter().enumerate() {
            let value = self.find(key, self.bug == bug::MANY_BELIEVES)?;
            let value = value.map(|(_, value)| value.to_le_bytes());
            found(position, value.as_ref().map(|value| &value[..]));
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let mut count = 0;
        for row in self.rows(self.bug == bug::LEN_BELIEVES) {
            count += u64::from(row?.1.is_some());
        }
        Ok(count)
    }

    fn scan(&self, from: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        let mut rows = BTreeMap::new();
        for (place, row) in self.rows(false).enumerate().skip(from.0 as usize) {
            match row {
                Ok((_, Some((key, value)))) => {
                    visit(&key.to_le_bytes(), &value.to_le_bytes());
                    if let Some(first) = rows.insert(key, place)
                        && self.bug == bug::TWICE_TURNS
                    {
                        return Ok(Some(Cursor(first as u64)));
                    }
                }
                Err(error) if self.bug != bug::SCAN_PASSES_OVER => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    fn clear(&self) -> Result<()> {
        (0..ROWS).try_for_each(|number| self.write(number, [0, 0, 0]))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep::default())
    }

    fn check(&self) -> Result<Checked> {
        Sealed::check(self.pool.region(), Boot::default(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        Ok(Stats { items: self.len()?, ..Stats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.pool.close()?)
    }
}
