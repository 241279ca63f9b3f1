//! A small engine that batches durability, right and with a planted bug: what the crash judge's
//! oracle of parts is tried on.
//!
//! Two logs, of odd and of even keys, in alternate lines. A write appends one line, which nothing
//! writes back before a sync; a line says by its last store that it counts.
#![allow(clippy::unwrap_used, reason = "tests")]

use core::time::Duration;
use std::collections::BTreeMap;

use everhash_index::{
    Capabilities, Change, Checked, Cursor, Design, Durability, Engine, Executor, Form, Result,
    Stats, Table, Upkeep, admit,
};
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::{Traced, Verb};
use everhash_pmem::pool::DATA;
use everhash_pmem::{
    Access, Addr, Boot, LINE, Lock, Media, Pool, Primitives, Region, Shutdown, Site, Span,
};
use everhash_testkit::OpenTable;

use super::rows::{BUG, Planted};

everhash_pmem::sites! {
    /// The store that makes a line count.
    LINE_COUNTS = "notes/append/line";
    /// Both logs.
    SYNC = "notes/sync/all";
    /// What recovery accepts, and what it wipes.
    ACCEPT = "notes/open/accept";
}

/// What a line says.
const PUT: u64 = 1;
const REMOVE: u64 = 2;
const CLEAR: u64 = 3;

fn line(log: usize, number: u64) -> Addr {
    DATA.plus((2 * number + log as u64) * LINE / 8)
}

/// The engine. With the bug 1 it goes on behind a line that did not arrive. With the bug 2 its
/// recovery takes the newest line away for a moment.
pub struct Notes;

impl Engine for Notes {
    const NAME: &'static str = "notes";
    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS],
        byte_strings: false,
        durability: &[Durability::Batch],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };
    const SITES: &'static [&'static [Site]] = &[ALL];
    type Settings = Planted;
    type Table<M: Media> = NoteTable<M>;

    fn tiny(_form: Form) -> Planted {
        Planted::default()
    }

    fn sized_for(_form: Form, _pairs: u64) -> Planted {
        Planted::default()
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &Planted) -> Result<()> {
        pool.access().store(BUG, settings.bug)?;
        Ok(pool.region().media().grow(line(0, 8).byte())?)
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<NoteTable<M>> {
        pool.begin_writes()?;
        let pm = pool.access();
        let passes_holes = pm.load(BUG)? == 1;
        let mut state = State::default();
        for log in 0..2 {
            replay(&pm, log, passes_holes, &mut state)?;
        }
        pm.sync(ACCEPT)?;
        if pm.load(BUG)? == 2 && pool.previous_shutdown() == Shutdown::Power {
            rewrite_newest(&pm, &state)?;
        }
        pool.recovered()?;
        Ok(NoteTable { state: Lock::new(state), pool })
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        let pm = region.access();
        let passes_holes = pm.load(BUG)? == 1;
        let mut state = State::default();
        for log in 0..2 {
            replay(&pm, log, passes_holes, &mut state)?;
        }
        let pairs = state.pairs.iter();
        pairs.for_each(|(key, value)| visit(&key.to_le_bytes(), &value.to_le_bytes()));
        let end = |log: usize| line(log, state.lengths[log]).byte() - LINE;
        let reachable_bytes = end(0).max(end(1)).max(DATA.byte());
        Ok(Checked { items: state.pairs.len() as u64, reachable_bytes })
    }
}

/// What a table knows in DRAM.
#[derive(Default)]
struct State {
    pairs: BTreeMap<u64, u64>,
    /// Lines of each log.
    lengths: [u64; 2],
}

impl State {
    fn apply(&mut self, log: usize, [kind, key, value]: [u64; 3]) {
        match kind {
            PUT => drop(self.pairs.insert(key, value)),
            REMOVE => drop(self.pairs.remove(&key)),
            _ => self.pairs.retain(|key, _| part(*key) != log),
        }
    }
}

/// Reads a log up to the first line that did not arrive, and wipes those behind it.
fn replay<M: Media>(
    pm: &Access<'_, M>,
    log: usize,
    passes_holes: bool,
    state: &mut State,
) -> Result<()> {
    let mut is_behind = false;
    for number in 0.. {
        let at = line(log, number);
        if at.byte() + LINE > pm.media().bytes() {
            return Ok(());
        }
        let mut words = [0; 3];
        pm.read_words(at, &mut words)?;
        if words[0] == 0 {
            is_behind = !passes_holes;
        } else if is_behind {
            pm.write_words(at, &[0; 3])?;
        } else {
            state.apply(log, words);
            state.lengths[log] = number + 1;
        }
    }
    Ok(())
}

/// Writes the newest line of a log anew, in two steps, of which a crash shows the first.
fn rewrite_newest<M: Media>(pm: &Access<'_, M>, state: &State) -> Result<()> {
    let Some(last) = state.lengths[0].checked_sub(1) else { return Ok(()) };
    let at = line(0, last);
    let word = pm.load(at)?;
    for word in [0, word] {
        pm.commit_word(at, word, LINE_COUNTS)?;
        pm.persist(Span::new(at, 1), ACCEPT)?;
    }
    Ok(())
}

fn part(key: u64) -> usize {
    // The keys of a workload differ in all bytes; the sum of their bits is odd for half of them.
    key.count_ones() as usize % 2
}

fn word(key: &[u8]) -> Option<u64> {
    (key.len() == 8).then(|| everhash_pmem::word_of(key))
}

/// An open table.
pub struct NoteTable<M: Media> {
    state: <M::Sync as Primitives>::Mutex<State>,
    pool: Pool<M>,
}

impl<M: Media> NoteTable<M> {
    fn append(&self, state: &mut State, log: usize, words: [u64; 3]) -> Result<()> {
        let at = line(log, state.lengths[log]);
        if at.byte() + LINE > self.pool.region().media().bytes() {
            self.pool.region().media().grow(at.byte() + 8 * LINE)?;
        }
        let pm = self.pool.access();
        pm.write_words(at.plus(1), &words[1..])?;
        pm.commit_word(at, words[0], LINE_COUNTS)?;
        state.lengths[log] += 1;
        state.apply(log, words);
        Ok(())
    }

    /// Changes a key; returns what `change` says.
    fn edit<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<u64>) -> Result<(T, Option<[u64; 3]>)>,
    ) -> Result<T> {
        let mut state = self.state.lock()?;
        let present = word(key).and_then(|key| state.pairs.get(&key).copied());
        let (answer, words) = change(present)?;
        if let (Some(words), Some(key)) = (words, word(key)) {
            self.append(&mut state, part(key), [words[0], key, words[2]])?;
        }
        Ok(answer)
    }
}

fn put(value: &[u8]) -> Option<[u64; 3]> {
    Some([PUT, 0, everhash_pmem::word_of(value)])
}

impl<M: Media> Table for NoteTable<M> {
    fn form(&self) -> Form {
        Form::WORDS
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(Form::WORDS, key, value)?;
        self.edit(key, |found| Ok((found.is_none(), put(value).filter(|_| found.is_none()))))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(Form::WORDS, key, value)?;
        self.edit(key, |found| Ok((found.is_some(), put(value))))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(Form::WORDS, key, value)?;
        self.edit(key, |found| Ok((found.is_some(), put(value).filter(|_| found.is_some()))))
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.edit(key, |found| {
            let found = found.map(u64::to_le_bytes);
            let words = match change(found.as_ref().map(|bytes| &bytes[..])) {
                Change::Keep => None,
                Change::Put(value) => {
                    admit(Form::WORDS, key, &value)?;
                    put(&value)
                }
                Change::Remove => found.map(|_| [REMOVE, 0, 0]),
            };
            Ok(((), words))
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.edit(key, |found| Ok((found, None)))?;
        value.extend(found.iter().flat_map(|word| word.to_le_bytes()));
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.edit(key, |found| Ok((found.is_some(), found.map(|_| [REMOVE, 0, 0]))))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.get(key, &mut Vec::new())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock()?.pairs.len() as u64)
    }

    fn scan(&self, _: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        let state = self.state.lock()?;
        let pairs = state.pairs.iter();
        pairs.for_each(|(key, value)| visit(&key.to_le_bytes(), &value.to_le_bytes()));
        Ok(None)
    }

    fn clear(&self) -> Result<()> {
        let mut state = self.state.lock()?;
        (0..2).try_for_each(|log| self.append(&mut state, log, [CLEAR, 0, 0]))
    }

    fn sync(&self) -> Result<()> {
        let state = self.state.lock()?;
        let lines = 2 * state.lengths[0].max(state.lengths[1]);
        Ok(self.pool.access().persist(Span::new(DATA, lines * LINE / 8), SYNC)?)
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep::default())
    }

    fn check(&self) -> Result<Checked> {
        let _state = self.state.lock()?;
        Notes::check(self.pool.region(), Boot::default(), &mut |_, _| {})
    }

    fn durability_partition(&self, key: &[u8]) -> u64 {
        word(key).map_or(0, |key| part(key) as u64)
    }

    fn stats(&self) -> Result<Stats> {
        Ok(Stats { items: self.len()?, ..Stats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()?;
        Ok(self.pool.close()?)
    }
}

#[test]
fn a_table_that_batches_is_synced_before_it_is_killed() {
    // Fails if judges that allow for no loss end a process which may still lose what it did.
    let medium = Traced::new(Model::Adr, 0, 1 << 16);
    let mut session =
        OpenTable::<Traced>::create(&Design::of::<Notes>(), medium, Form::WORDS).unwrap();
    session.table().put(&[1; 8], &[2; 8]).unwrap();
    let syncs = |session: &OpenTable<Traced>| {
        let met = session.region().media().met();
        let of_sync = met.sites().filter(|(site, verb, _)| (*site, *verb) == (SYNC, Verb::Fence));
        of_sync.map(|(.., times)| times).sum::<u64>()
    };
    session.kill_unsynced().unwrap();
    assert_eq!(syncs(&session), 0);
    session.kill().unwrap();
    assert_eq!(syncs(&session), 1);
    session.outage().unwrap();
    assert_eq!(syncs(&session), 2);
}
