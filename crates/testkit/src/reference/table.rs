//! The open table: every operation reads the whole table, and a write replaces it.

use core::time::Duration;
use std::collections::BTreeMap;

use everhash_index::{
    BareTable, Change, Checked, Cursor, Error, Form, Result, Stats, Table, Upkeep, WordTable, admit,
};
use everhash_pmem::{Addr, LINE, Lock, Media, Pool, Primitives, Shutdown, Space, Span, pool};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{Head, KEY_BYTES, ROOT, Root, VALUE_BYTES, checksum, root_word, table_of};
use super::{check, sites};

/// How many pairs one call of `scan` visits, and a few more if hashes are equal.
///
/// Source: ours; small, so that the cursor is used.
const SCAN_PAIRS: usize = 8;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An open table of the reference engine.
pub struct ReferenceTable<M: Media> {
    pool: Pool<M>,
    form: Form,
    space: Space<M>,
    /// Held by every operation, readers too: a commit is seen only when it is durable.
    state: <M::Sync as Primitives>::Mutex<State>,
}

struct State {
    /// The table that the root names; of no words if there is none.
    home: Span,
    /// A fence failed: nobody knows what the root says on the device.
    failed: bool,
}

impl<M: Media> ReferenceTable<M> {
    /// Recovers: what the root names is the table, and all else is free.
    pub(super) fn open(pool: Pool<M>) -> Result<Self> {
        let form = Form::from_code(pool.identity().form);
        let pm = pool.access();
        let root = pm.load(ROOT.plus(Root::TABLE as u64))?;
        let broken = "the root's check matches its address";
        let table = table_of(root).ok_or(Error::Corrupt { at: ROOT.byte(), broken })?;
        let home = match table.is_null() {
            true => Span::new(Addr::NULL, 0),
            false => verified(&pool, table)?,
        };
        let space = Space::new(pool.region().clone(), pool::DATA);
        if home.words > 0 {
            space.claim(home)?;
        }
        if pool.previous_shutdown() != Shutdown::Clean {
            // What is visible after a killed process need not be durable: it must be, before the
            // first reader relies on it.
            pm.sync(sites::RECOVERED)?;
        }
        drop(pm);
        pool.recovered()?;
        let state = Lock::new(State { home, failed: false });
        Ok(ReferenceTable { pool, form, space, state })
    }

    fn lock(&self) -> Result<<<M::Sync as Primitives>::Mutex<State> as Lock<State>>::Guard<'_>> {
        let state = self.state.lock()?;
        if state.failed { Err(Error::Poisoned) } else { Ok(state) }
    }

    /// Returns the pairs, as they lie on the medium.
    fn read(&self, home: Span) -> Result<Vec<u8>> {
        let mut pairs = Vec::new();
        if home.words > 0 {
            let pm = self.pool.access();
            let bytes = pm.load(home.start.plus(Head::LENGTH as u64))?;
            pm.read_bytes(home.start.plus(Head::WORDS as u64), bytes, &mut pairs)?;
        }
        Ok(pairs)
    }

    fn find(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let state = self.lock()?;
        let pairs = self.read(state.home)?;
        let value = Walk { rest: &pairs }.find(|(candidate, _)| *candidate == key);
        if let Some((_, value)) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    /// Lets `edit` change the pairs; if it says that it has, replaces the table.
    ///
    /// A crash leaves the table before or the one after: the new one is durable before the root
    /// names it, and the old one stays as it is until the root is durable.
    fn write<T>(&self, edit: impl FnOnce(&mut Pairs) -> (T, bool)) -> Result<T> {
        self.pool.check_writable()?;
        let mut state = self.lock()?;
        let bytes = self.read(state.home)?;
        let mut pairs: Pairs =
            Walk { rest: &bytes }.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let (answer, changed) = edit(&mut pairs);
        if !changed {
            return Ok(answer);
        }
        let encoded = encode(&pairs);
        let taken = self.space.take(Head::BYTES as u64 + encoded.len() as u64, LINE)?;
        let outcome = self.replace(taken.span, &encoded, pairs.len() as u64);
        if let Err(error) = outcome {
            state.failed = true;
            return Err(error);
        }
        let before = core::mem::replace(&mut state.home, taken.span);
        if before.words > 0 {
            self.space.give(before);
        }
        Ok(answer)
    }

    fn replace(&self, home: Span, pairs: &[u8], count: u64) -> Result<()> {
        let pm = self.pool.access();
        let bytes = pairs.len() as u64;
        let mut head = [0; Head::WORDS];
        head[Head::CHECKSUM] = checksum(home.start, bytes, count, pairs);
        head[Head::LENGTH] = bytes;
        head[Head::COUNT] = count;
        pm.write_words(home.start, &head)?;
        pm.write_bytes(home.start.plus(Head::WORDS as u64), pairs)?;
        pm.persist(home, sites::TABLE)?;
        let root = ROOT.plus(Root::TABLE as u64);
        pm.commit_word(root, root_word(home.start), sites::ROOT)?;
        pm.persist(Span::new(root, 1), sites::ROOT)?;
        Ok(())
    }

    /// Returns whether the key has the form of the pool; the value is not looked at.
    fn may_hold(&self, key: &[u8]) -> bool {
        match self.form {
            Form::Fixed { key_bytes, .. } => key.len() == key_bytes as usize,
            Form::Variable => true,
        }
    }
}

impl<M: Media> Table for ReferenceTable<M> {
    fn form(&self) -> Form {
        self.form
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(|pairs| {
            let absent = !pairs.contains_key(key);
            if absent {
                pairs.insert(key.to_vec(), value.to_vec());
            }
            (absent, absent)
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(|pairs| {
            let before = pairs.insert(key.to_vec(), value.to_vec());
            (before.is_some(), before.as_deref() != Some(value))
        })
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        admit(self.form, key, value)?;
        self.write(|pairs| match pairs.get_mut(key) {
            Some(place) => {
                *place = value.to_vec();
                (true, true)
            }
            None => (false, false),
        })
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.write(|pairs| match change(pairs.get(key).map(Vec::as_slice)) {
            Change::Keep => (Ok(()), false),
            Change::Put(value) => match admit(self.form, key, &value) {
                Ok(()) => {
                    pairs.insert(key.to_vec(), value);
                    (Ok(()), true)
                }
                Err(error) => (Err(error), false),
            },
            Change::Remove => (Ok(()), pairs.remove(key).is_some()),
        })
        .flatten()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.may_hold(key) && self.find(key, &mut |found| value.extend_from_slice(found))?)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.write(|pairs| {
            let present = pairs.remove(key).is_some();
            (present, present)
        })
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.may_hold(key) && self.find(key, &mut |_| {})?)
    }

    fn len(&self) -> Result<u64> {
        let state = self.lock()?;
        match state.home.words {
            0 => Ok(0),
            _ => Ok(self.pool.access().load(state.home.start.plus(Head::COUNT as u64))?),
        }
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        let state = self.lock()?;
        let pairs = self.read(state.home)?;
        drop(state);
        // In the order of a hash, which no write changes: a position would move under writes.
        let mut waiting: Vec<_> = Walk { rest: &pairs }
            .map(|(key, value)| (xxh3_64(key), key, value))
            .filter(|(hash, ..)| *hash >= cursor.0)
            .collect();
        waiting.sort_unstable();
        let border = waiting.get(SCAN_PAIRS).map(|(hash, ..)| *hash);
        let next = border.filter(|border| *border > waiting[0].0);
        for (_, key, value) in
            waiting.iter().take_while(|(hash, ..)| next.is_none_or(|n| *hash < n))
        {
            visit(key, value);
        }
        Ok(next.map(Cursor))
    }

    fn clear(&self) -> Result<()> {
        self.write(|pairs| {
            let changed = !pairs.is_empty();
            pairs.clear();
            ((), changed)
        })
    }

    fn sync(&self) -> Result<()> {
        drop(self.lock()?);
        Ok(())
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep::default())
    }

    fn check(&self) -> Result<Checked> {
        let _state = self.lock()?;
        check::check(self.pool.region(), &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let usage = self.space.usage()?;
        Ok(Stats {
            items: self.len()?,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + usage.used_bytes,
            growth_steps: usage.growth_steps,
            ..Stats::default()
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.lock()?);
        Ok(self.pool.close()?)
    }

    fn words(&self) -> Option<&dyn WordTable> {
        (self.form == Form::WORDS).then_some(self)
    }

    fn bare(&self) -> Option<&dyn BareTable> {
        Some(self)
    }
}

/// There is no paper; what the strict forms do beside looking is nothing to leave out.
impl<M: Media> BareTable for ReferenceTable<M> {
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key, value).map(drop)
    }

    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value).map(drop)
    }

    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        self.remove(key).map(drop)
    }
}

impl<M: Media> WordTable for ReferenceTable<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        self.insert(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        self.put(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        self.update(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        let mut word = None;
        self.find(&key.to_le_bytes(), &mut |value| word = Some(everhash_pmem::word_of(value)))?;
        Ok(word)
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.remove(&key.to_le_bytes())
    }
}

/// Reads the table at `table` once, as a judge would; returns its span.
fn verified<M: Media>(pool: &Pool<M>, table: Addr) -> Result<Span> {
    let pm = pool.access();
    let mut head = [0; Head::WORDS];
    pm.read_words(table, &mut head)?;
    let mut pairs = Vec::new();
    pm.read_bytes(table.plus(Head::WORDS as u64), head[Head::LENGTH], &mut pairs)?;
    if checksum(table, head[Head::LENGTH], head[Head::COUNT], &pairs) != head[Head::CHECKSUM] {
        let broken = "the checksum of the table matches";
        return Err(Error::Corrupt { at: table.byte(), broken });
    }
    let bytes = (Head::BYTES as u64 + head[Head::LENGTH]).next_multiple_of(LINE);
    Ok(Span::of_bytes(table, bytes))
}

fn encode(pairs: &Pairs) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in pairs {
        let lengths = KEY_BYTES.set(0, key.len() as u64);
        let lengths = VALUE_BYTES.set(lengths, value.len() as u64);
        bytes.extend_from_slice(&lengths.to_le_bytes());
        for part in [key, value] {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
    }
    bytes
}

/// Walks over encoded pairs. Ends where they are damaged: `open` has verified their checksum.
struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (lengths, rest) = self.rest.split_first_chunk::<8>()?;
        let lengths = u64::from_le_bytes(*lengths);
        let (key_bytes, value_bytes) =
            (KEY_BYTES.get(lengths) as usize, VALUE_BYTES.get(lengths) as usize);
        let (key, rest) = rest.split_at_checked(key_bytes.next_multiple_of(8))?;
        let (value, rest) = rest.split_at_checked(value_bytes.next_multiple_of(8))?;
        self.rest = rest;
        Some((&key[..key_bytes], &value[..value_bytes]))
    }
}
