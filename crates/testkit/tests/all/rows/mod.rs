//! A small engine that writes in place, right and with planted bugs: what the crash judge is
//! tried on.
//!
//! A pool is an array of rows of three words, `token, key, value`, which doubles when it is full.
//! A row with a token is a pair. Rows may straddle two cache lines.

use core::time::Duration;
use std::collections::BTreeMap;

use everhash_index::{
    Capabilities, Change, Checked, Cursor, Durability, Engine, Error, Executor, Form, Result,
    Setting, Settings, Stats, Table, Upkeep, admit,
};
use everhash_pmem::pool::{DATA, ROOT, Shutdown};
use everhash_pmem::{Access, Addr, Block, Boot, Lock, Media, Pool, Primitives, Region, Site, Span};

everhash_pmem::sites! {
    /// Key and value, before the token.
    PAIR = "rows/insert/pair";
    /// The token that makes a pair true.
    TOKEN = "rows/insert/token";
    /// A value that is replaced.
    VALUE = "rows/update/value";
    /// The token that is taken away.
    REMOVE = "rows/remove/token";
    /// The number of rows after growth.
    GROW = "rows/grow/count";
    /// Everything that recovery accepts.
    ACCEPT = "rows/open/accept";
}

/// The bugs that can be planted; each stands for bugs that were published.
pub mod bug {
    /// The token is stored before its pair, in one line and under one fence.
    pub const TOKEN_FIRST: u64 = 1;
    /// The pair is not written back.
    pub const NO_FLUSH: u64 = 2;
    /// Nothing waits for the write-back of an insert.
    pub const NO_FENCE: u64 = 3;
    /// Of a row over two lines, the first is written back.
    pub const FIRST_LINE: u64 = 4;
    /// An order inside a line is relied on where there is none.
    pub const LINE_ORDER: u64 = 5;
    /// Recovery serves what is visible and does not persist it.
    pub const TRUSTING_RECOVERY: u64 = 6;
    /// An update takes the pair away and adds it again.
    pub const UPDATE_IN_TWO: u64 = 7;
    /// Rows beyond the old number are used before the new number is durable.
    pub const EARLY_ROWS: u64 = 8;
    /// A removed row keeps its key, and recovery takes a row with a key for a pair.
    pub const RESURRECTION: u64 = 9;
    /// Recovery moves the pairs together, and forgets where it was when it is cut off.
    pub const MOVING_RECOVERY: u64 = 10;
    /// A pool exists before its number of rows is durable.
    pub const HASTY_FORMAT: u64 = 11;
    /// A removal is not written back.
    pub const NO_FLUSH_REMOVE: u64 = 12;
    /// Recovery repairs what an open after a clean close refuses, and does not persist the repair.
    pub const QUIET_REPAIR: u64 = 13;
    /// Free rows are counted as if their number were a power of two, which the usual one is.
    pub const MASKED_ROWS: u64 = 14;
    /// Growth adds half of the rows, which is none of one row.
    pub const HALF_GROWTH: u64 = 15;
}

/// Words of a row.
const ROW: u64 = 3;

/// Rows of a new pool.
const FIRST_ROWS: u64 = 8;

/// The largest number of rows that is believed.
const MOST_ROWS: u64 = 1 << 20;

fn row(index: u64) -> Addr {
    DATA.plus(index * ROW)
}

/// The engine. Which bug it has is a setting, so that it is compiled once.
pub struct Rows;

/// Where a pool keeps the number of its bug.
pub const BUG: Addr = ROOT.plus(1);

/// The bug that a new pool has, and its rows.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub bug: u64,
    pub rows: u64,
}

impl Default for Planted {
    fn default() -> Planted {
        Planted { bug: 0, rows: FIRST_ROWS }
    }
}

impl Settings for Planted {
    const ALL: &'static [Setting] = &[
        Setting { name: "bug", default: 0, meaning: "its number" },
        Setting { name: "rows", default: FIRST_ROWS, meaning: "of a new pool" },
    ];

    fn get(&self, name: &str) -> Option<u64> {
        match name {
            "bug" => Some(self.bug),
            "rows" => Some(self.rows),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        match name {
            "bug" => self.bug = value,
            "rows" => self.rows = value,
            _ => return Err(Self::unknown(name)),
        }
        Ok(())
    }
}

impl Engine for Rows {
    const NAME: &'static str = "rows";
    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS],
        byte_strings: false,
        durability: &[Durability::Immediate],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };
    const SITES: &'static [&'static [Site]] = &[ALL];
    type Settings = Planted;
    type Table<M: Media> = RowTable<M>;

    fn tiny(_form: Form) -> Planted {
        Planted::default()
    }

    fn sized_for(_form: Form, _pairs: u64) -> Planted {
        Planted::default()
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &Planted) -> Result<()> {
        pool.region().media().grow(row(settings.rows).byte())?;
        // Durable by the sync of the pool, before its header says that it exists.
        pool.access().store(BUG, settings.bug)?;
        if settings.bug != bug::HASTY_FORMAT {
            pool.access().store(ROOT, settings.rows)?;
        }
        Ok(())
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<RowTable<M>> {
        pool.begin_writes()?;
        let pm = pool.access();
        let planted = pm.load(BUG)?;
        let mut count = pm.load(ROOT)?;
        if planted == bug::HASTY_FORMAT && pool.previous_shutdown() == Shutdown::Clean && count == 0
        {
            count = FIRST_ROWS;
            pm.store(ROOT, count)?;
            pm.persist(Span::new(ROOT, 1), ACCEPT)?;
        }
        let mut index = Index { rows: count, ..Index::default() };
        if count == 0 || count > MOST_ROWS {
            return Err(Error::Corrupt { at: ROOT.byte(), broken: "there is a number of rows" });
        }
        for number in 0..count {
            let pair = pm.block::<3>(row(number))?;
            let live = pair.load(0) == 1 || (planted == bug::RESURRECTION && pair.load(1) != 0);
            let taken = live && index.of_key.insert(pair.load(1), number).is_some();
            if taken {
                return Err(Error::Corrupt { at: row(number).byte(), broken: "keys differ" });
            }
            if !live {
                let is_masked = planted == bug::MASKED_ROWS;
                index.free.push(if is_masked { number & (count - 1) } else { number });
            }
        }
        if planted == bug::MOVING_RECOVERY {
            move_together(&pm, &mut index)?;
        }
        if planted != bug::TRUSTING_RECOVERY {
            pm.persist(Span::new(ROOT, 1), ACCEPT)?;
            pm.persist(Span::new(DATA, count * ROW), ACCEPT)?;
        }
        if planted == bug::QUIET_REPAIR {
            let was_closed = pool.previous_shutdown() == Shutdown::Clean;
            repair_free_rows(&pm, &index, was_closed)?;
        }
        pool.recovered()?;
        drop(pm);
        Ok(RowTable { bug: planted, index: Lock::new(index), pool })
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        let pm = region.access();
        let mut checked = Checked::default();
        for number in 0..pm.load(ROOT)?.min(MOST_ROWS) {
            let pair = pm.block::<3>(row(number))?;
            if pair.load(0) == 1 {
                visit(&pair.load(1).to_le_bytes(), &pair.load(2).to_le_bytes());
                checked.items += 1;
            }
        }
        checked.reachable_bytes = row(pm.load(ROOT)?).byte();
        Ok(checked)
    }
}

/// Takes the keys out of free rows, which only a crash leaves there.
fn repair_free_rows<M: Media>(pm: &Access<'_, M>, index: &Index, was_closed: bool) -> Result<()> {
    for number in &index.free {
        let key = row(*number).plus(1);
        if pm.load(key)? != 0 && was_closed {
            return Err(Error::Corrupt { at: key.byte(), broken: "free rows have no key" });
        }
        pm.store(key, 0)?;
    }
    Ok(())
}

/// Fills the first free row with the last pair, until there is no gap. Each move is durable, but
/// the old row is cleared before the new one is written.
fn move_together<M: Media>(pm: &Access<'_, M>, index: &mut Index) -> Result<()> {
    index.free.sort_unstable_by(|a, b| b.cmp(a));
    while let Some(to) = index.free.last().copied() {
        let last = index.of_key.iter().max_by_key(|(_, row)| **row);
        let Some((key, from)) = last.map(|(key, row)| (*key, *row)).filter(|it| it.1 > to) else {
            break;
        };
        let value = pm.load(row(from).plus(2))?;
        pm.commit_word(row(from), 0, ACCEPT)?;
        pm.persist(Span::new(row(from), ROW), ACCEPT)?;
        pm.write_words(row(to), &[1, key, value])?;
        pm.persist(Span::new(row(to), ROW), ACCEPT)?;
        index.free.pop();
        index.free.insert(0, from);
        index.of_key.insert(key, to);
    }
    Ok(())
}

/// What a table knows in DRAM.
#[derive(Default)]
struct Index {
    of_key: BTreeMap<u64, u64>,
    free: Vec<u64>,
    rows: u64,
}

/// An open table.
pub struct RowTable<M: Media> {
    bug: u64,
    index: <M::Sync as Primitives>::Mutex<Index>,
    pool: Pool<M>,
}

impl<M: Media> RowTable<M> {
    fn insert_row(&self, index: &mut Index, key: u64, value: u64) -> Result<()> {
        let number = match index.free.pop() {
            Some(number) => number,
            None => self.grow(index)?,
        };
        let pm = self.pool.access();
        let (at, span) = (row(number), Span::new(row(number), ROW));
        let one_line = span.lines().count() == 1;
        let ordered = self.pool.region().media().guarantees().same_line_order;
        if self.bug == bug::TOKEN_FIRST && one_line {
            pm.commit_word(at, 1, TOKEN)?;
        }
        pm.write_words(at.plus(1), &[key, value])?;
        if !one_line || !(ordered || self.bug == bug::LINE_ORDER) {
            pm.flush(
                if self.bug == bug::FIRST_LINE { Span::new(at.plus(1), 1) } else { span },
                PAIR,
            );
            pm.fence(PAIR)?;
        }
        pm.commit_word(at, 1, TOKEN)?;
        if self.bug != bug::NO_FLUSH {
            pm.flush(if one_line { span } else { Span::new(at, 1) }, TOKEN);
        }
        if self.bug != bug::NO_FENCE {
            pm.fence(TOKEN)?;
        }
        index.of_key.insert(key, number);
        Ok(())
    }

    fn grow(&self, index: &mut Index) -> Result<u64> {
        let old = index.rows;
        let new = if self.bug == bug::HALF_GROWTH { old + old / 2 } else { 2 * old };
        self.pool.region().media().grow(row(new).byte())?;
        let pm = self.pool.access();
        pm.commit_word(ROOT, new, GROW)?;
        if self.bug != bug::EARLY_ROWS {
            // The insert that needed the room fences it.
            pm.flush(Span::new(ROOT, 1), GROW);
        }
        index.rows = new;
        index.free.extend((old + 1..new).rev());
        Ok(old)
    }

    fn remove_row(&self, index: &mut Index, key: u64) -> Result<bool> {
        let Some(number) = index.of_key.remove(&key) else { return Ok(false) };
        let pm = self.pool.access();
        pm.commit_word(row(number), 0, REMOVE)?;
        if self.bug != bug::NO_FLUSH_REMOVE {
            pm.persist(Span::new(row(number), 1), REMOVE)?;
        }
        if self.bug == bug::QUIET_REPAIR {
            pm.store(row(number).plus(1), 0)?;
            pm.persist(Span::new(row(number).plus(1), 1), REMOVE)?;
        }
        index.free.push(number);
        Ok(true)
    }

    fn set(&self, index: &mut Index, key: u64, value: u64) -> Result<bool> {
        let Some(number) = index.of_key.get(&key).copied() else {
            self.insert_row(index, key, value)?;
            return Ok(false);
        };
        if self.bug == bug::UPDATE_IN_TWO {
            self.remove_row(index, key)?;
            self.insert_row(index, key, value)?;
            return Ok(true);
        }
        let pm = self.pool.access();
        pm.commit_word(row(number).plus(2), value, VALUE)?;
        pm.persist(Span::new(row(number).plus(2), 1), VALUE)?;
        Ok(true)
    }

    fn value(&self, number: u64) -> Result<u64> {
        Ok(self.pool.access().load(row(number).plus(2))?)
    }

    fn pair(&self, key: &[u8], value: &[u8]) -> Result<(u64, u64)> {
        admit(Form::WORDS, key, value)?;
        Ok((everhash_pmem::word_of(key), everhash_pmem::word_of(value)))
    }
}

fn word(key: &[u8]) -> Option<u64> {
    (key.len() == 8).then(|| everhash_pmem::word_of(key))
}

impl<M: Media> Table for RowTable<M> {
    fn form(&self) -> Form {
        Form::WORDS
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (key, value) = self.pair(key, value)?;
        let mut index = self.index.lock()?;
        let absent = !index.of_key.contains_key(&key);
        if absent {
            self.insert_row(&mut index, key, value)?;
        }
        Ok(absent)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (key, value) = self.pair(key, value)?;
        self.set(&mut *self.index.lock()?, key, value)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (key, value) = self.pair(key, value)?;
        let mut index = self.index.lock()?;
        Ok(index.of_key.contains_key(&key) && self.set(&mut index, key, value)?)
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        let mut index = self.index.lock()?;
        let word = word(key);
        let number = word.and_then(|word| index.of_key.get(&word).copied());
        let present = number.map(|number| self.value(number)).transpose()?.map(u64::to_le_bytes);
        match (change(present.as_ref().map(|bytes| &bytes[..])), word) {
            (Change::Put(value), _) => {
                let (key, value) = self.pair(key, &value)?;
                self.set(&mut index, key, value)?;
            }
            (Change::Remove, Some(word)) => {
                self.remove_row(&mut index, word)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let index = self.index.lock()?;
        let number = word(key).and_then(|word| index.of_key.get(&word));
        if let Some(number) = number {
            value.extend(self.value(*number)?.to_le_bytes());
        }
        Ok(number.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        let mut index = self.index.lock()?;
        word(key).map_or(Ok(false), |word| self.remove_row(&mut index, word))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.get(key, &mut Vec::new())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.index.lock()?.of_key.len() as u64)
    }

    fn scan(&self, _: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        for (key, number) in &self.index.lock()?.of_key {
            visit(&key.to_le_bytes(), &self.value(*number)?.to_le_bytes());
        }
        Ok(None)
    }

    fn clear(&self) -> Result<()> {
        let mut index = self.index.lock()?;
        let keys: Vec<u64> = index.of_key.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.remove_row(&mut index, key).map(drop))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep::default())
    }

    fn check(&self) -> Result<Checked> {
        let _index = self.index.lock()?;
        Rows::check(self.pool.region(), Boot::default(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        Ok(Stats { items: self.len()?, ..Stats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.pool.close()?)
    }
}
