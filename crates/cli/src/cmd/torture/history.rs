//! What the processes write: the same for a seed, so that it need not be stored; and what a
//! database must hold then.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use everhash_store::{Form, Pair};

/// How many keys a thread has at most.
///
/// Source: ours; tables grow several times, and a comparison takes some milliseconds.
const MOST_KEYS: u64 = 20_000;

/// After how many writes a phase of a history ends; in every fourth, most writes are removals.
const PHASE: u64 = 5_000;

/// Which write of a phase drops the table of the thread. Source: ours; in the middle of it.
const DROP: u64 = PHASE / 2;

/// Of how many writes of a thread one is a batch.
const BATCH_EVERY: u64 = 16;

/// How many changes a batch has at most.
const MOST_IN_BATCH: u64 = 32;

/// Of how many keys of a thread one lies in a table of the thread's own.
const IN_TABLE_EVERY: u64 = 4;

/// How long a value is at most, whatever room there is.
pub const MOST_BYTES: u64 = 100_000;

/// The number of a thread is in the highest byte of an acknowledgement.
const THREAD_SHIFT: u32 = 56;

/// Set in an acknowledgement of a write that was refused.
const REFUSED: u64 = 1 << 55;

/// What a process says of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    Done,
    /// There was no room: nothing has changed.
    Refused,
}

/// The writes of all threads. Threads have keys of their own.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub seed: u64,
    pub form: Form,
    pub threads: u64,
    /// The length of the longest value.
    pub longest: u64,
}

/// One write.
#[derive(PartialEq, Eq, Debug)]
pub enum Write {
    Single(Change),
    /// Changes of different keys, in one call.
    Batch(Vec<Change>),
    /// Of the default table. Only with one thread: what is removed beside writes is not known.
    Clear,
    /// Of the table of a thread, by that thread.
    Drop {
        thread: u64,
    },
}

/// What a write does with one key.
#[derive(PartialEq, Eq, Debug)]
pub struct Change {
    pub key: Vec<u8>,
    /// `None`: the key is removed.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Returns what is done with single keys; nothing for a clear or a drop.
    pub fn changes(&self) -> &[Change] {
        match self {
            Write::Single(change) => std::slice::from_ref(change),
            Write::Batch(changes) => changes,
            Write::Clear | Write::Drop { .. } => &[],
        }
    }

    /// Returns whether it removes all keys of the table of that thread, or of the default table.
    fn empties(&self, owner: Option<u64>) -> bool {
        match self {
            Write::Single(_) | Write::Batch(_) => false,
            Write::Clear => owner.is_none(),
            Write::Drop { thread } => owner == Some(*thread),
        }
    }
}

impl History {
    /// Returns the write number `index` of a thread.
    pub fn write(&self, thread: u64, index: u64) -> Write {
        if self.threads == 1 && index % (4 * PHASE) == 4 * PHASE - 1 {
            return Write::Clear;
        }
        if self.form == Form::Variable && index % PHASE == DROP {
            return Write::Drop { thread };
        }
        let keys = (64 + index / 2).min(MOST_KEYS);
        let removals = if index / PHASE % 4 == 3 { 6 } else { 2 };
        let change = |random| Change {
            key: self.key(thread, mix(random) % keys),
            value: (random % 8 >= removals).then(|| self.value(random)),
        };
        let random = self.random(thread, index);
        if index % BATCH_EVERY != BATCH_EVERY - 1 {
            return Write::Single(change(random));
        }
        let mut changes: Vec<Change> = Vec::new();
        for number in 0..2 + random % (MOST_IN_BATCH - 1) {
            let next = change(mix(random ^ number));
            if changes.iter().all(|earlier| earlier.key != next.key) {
                changes.push(next);
            }
        }
        Write::Batch(changes)
    }

    fn random(&self, thread: u64, index: u64) -> u64 {
        mix(self.seed ^ mix(thread << THREAD_SHIFT | index))
    }

    fn key(&self, thread: u64, number: u64) -> Vec<u8> {
        match self.form {
            Form::Variable => {
                let filling = "k".repeat((mix(number) % 24) as usize);
                format!("{thread}-{number}-{filling}").into_bytes()
            }
            Form::Fixed { .. } => (thread << THREAD_SHIFT | number).to_le_bytes().to_vec(),
        }
    }

    /// Returns the thread in whose table a key lies; `None`: it lies in the default table.
    pub fn owner(&self, key: &[u8]) -> Option<u64> {
        if self.form != Form::Variable {
            return None;
        }
        let mut numbers = std::str::from_utf8(key).ok()?.split('-').map(str::parse::<u64>);
        let (thread, number) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (number % IN_TABLE_EVERY == IN_TABLE_EVERY - 1).then_some(thread)
    }

    /// Returns the name of the thread's table at a write. It has another one after every second
    /// drop: a table that comes back is seen long afterwards, and some are made again.
    pub fn table(&self, thread: u64, index: u64) -> String {
        let drops = (index + PHASE - DROP - 1) / PHASE;
        format!("{thread}-{}", drops / 2)
    }

    /// Returns a value that no other write has: mostly short, sometimes longer than a page, rarely
    /// longer than a log.
    fn value(&self, random: u64) -> Vec<u8> {
        if self.form != Form::Variable {
            return random.to_le_bytes().to_vec();
        }
        let length = match random >> 16 & 0x3ff {
            0 => 40_000 + (random >> 32) % (MOST_BYTES - 40_000),
            1..30 => (random >> 32) % 6_000,
            _ => (random >> 32) % 150,
        };
        let length = (8 + length).min(self.longest) as usize;
        random.to_le_bytes().iter().copied().cycle().take(length).collect()
    }
}

/// What a database must hold.
pub struct Model {
    history: History,
    /// Whether a batch is done as a whole or not at all; if not, some first part of one that did
    /// not return may have been done.
    atomic_batches: bool,
    /// How many writes of each thread returned.
    returned: Vec<u64>,
    /// Which write gave each key that is there its value: its thread and index.
    pairs: HashMap<Vec<u8>, (u64, u64)>,
    /// The write that each thread of a killed process was at: it may have happened.
    interrupted: Option<Vec<u64>>,
    /// What else a key may hold, if anything, since its last write that returned: from writes that
    /// a kill interrupted, and that were refused when the next process tried them again, and from
    /// batches that were refused after their first part.
    doubts: HashMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

impl Model {
    pub fn new(history: History, atomic_batches: bool) -> Model {
        Model {
            history,
            atomic_batches,
            returned: vec![0; history.threads as usize],
            pairs: HashMap::new(),
            interrupted: None,
            doubts: HashMap::new(),
        }
    }

    pub fn history(&self) -> History {
        self.history
    }

    /// Returns the write with which each thread goes on. It may have been done already, or in part.
    pub fn next(&self) -> &[u64] {
        &self.returned
    }

    /// Returns the name of the table in which a key must lie; `None`: the default table.
    pub fn table(&self, key: &[u8]) -> Option<String> {
        let thread = self.history.owner(key)?;
        Some(self.history.table(thread, *self.returned.get(thread as usize)?))
    }

    /// Takes note that a write returned, and how.
    pub fn acknowledge(&mut self, word: u64) -> Result<Said, String> {
        let (thread, index) = (word >> THREAD_SHIFT, word & (REFUSED - 1));
        match self.returned.get_mut(thread as usize) {
            Some(returned) if *returned == index => *returned += 1,
            _ => return Err(format!("thread {thread} said that write {index} returned")),
        }
        let write = self.history.write(thread, index);
        if word & REFUSED != 0 {
            if write.changes().iter().all(|change| change.value.is_none()) {
                return Err(format!(
                    "write {index} only removes, and was refused for want of room"
                ));
            }
            let interrupted = self.interrupted.as_ref();
            if interrupted.is_some_and(|writes| writes[thread as usize] == index)
                || matches!(write, Write::Batch(_)) && !self.atomic_batches
            {
                self.doubt(&write);
            }
            return Ok(Said::Refused);
        }
        if write.changes().is_empty() {
            let stays = |key: &Vec<u8>| !write.empties(self.history.owner(key));
            self.doubts.retain(|key, _| stays(key));
            self.pairs.retain(|key, _| stays(key));
        }
        for change in write.changes() {
            self.doubts.remove(&change.key);
            match change.value {
                Some(_) => self.pairs.insert(change.key.clone(), (thread, index)),
                None => self.pairs.remove(&change.key),
            };
        }
        Ok(Said::Done)
    }

    /// Takes note that the process was killed.
    pub fn killed(&mut self) {
        self.interrupted = Some(self.returned.clone());
    }

    /// Takes note of a write that was refused, and that may have been done all the same: by an
    /// earlier process, or in part.
    fn doubt(&mut self, write: &Write) {
        for Change { key, value } in write.changes() {
            self.doubts.entry(key.clone()).or_default().push(value.clone());
        }
    }

    /// Compares what a database holds with what it must hold. The write that each thread was at may
    /// have happened: a clear to any part, a drop as a whole, a batch as a whole or to its first
    /// part. So may a write of which a later process could only say that there was no room to do it
    /// again.
    pub fn compare(&self, pairs: impl IntoIterator<Item = Pair>) -> Result<(), String> {
        let found: HashMap<_, _> = pairs.into_iter().collect();
        let held = |key: &[u8]| found.get(key).map(Vec::as_slice);
        let under_way: Vec<_> = (0..)
            .zip(&self.returned)
            .map(|(thread, index)| self.history.write(thread, *index))
            .collect();
        let changed: HashSet<_> =
            under_way.iter().flat_map(Write::changes).map(|change| &change.key).collect();
        let owners: HashSet<_> = found.keys().map(|key| self.history.owner(key)).collect();
        let may_be_gone = |key| {
            let owner = self.history.owner(key);
            let is_emptied = under_way.iter().any(|write| write.empties(owner));
            // What is left of a table says that it was not dropped.
            is_emptied && (owner.is_none() || !owners.contains(&owner))
        };
        for key in found.keys().chain(self.pairs.keys()).filter(|key| !changed.contains(key)) {
            if held(key).is_some() || !may_be_gone(key) {
                self.is_right(key, held(key))?;
            }
        }
        for (write, index) in under_way.iter().zip(&self.returned) {
            let changes = write.changes();
            let may_end = |done: &usize| !self.atomic_batches || [0, changes.len()].contains(done);
            let has_done = |done| {
                let (first, rest) = changes.split_at(done);
                first.iter().all(|change| held(&change.key) == change.value.as_deref())
                    && rest
                        .iter()
                        .all(|change| self.is_right(&change.key, held(&change.key)).is_ok())
            };
            if !(0..=changes.len()).filter(may_end).any(has_done) {
                return Err(format!(
                    "its keys hold neither what was there before write {index}, which did not \
                     return, nor what it may have left"
                ));
            }
        }
        Ok(())
    }

    /// Looks whether a key may hold that value, or none, after the writes that returned.
    fn is_right(&self, key: &[u8], held: Option<&[u8]>) -> Result<(), String> {
        let last = self.pairs.get(key);
        let put = last.map(|(thread, index)| self.history.write(*thread, *index));
        let right = put.iter().flat_map(Write::changes).find(|change| change.key == key);
        if right.and_then(|change| change.value.as_deref()) == held {
            return Ok(());
        }
        if self.doubts.get(key).is_some_and(|all| all.iter().any(|value| value.as_deref() == held))
        {
            return Ok(());
        }
        Err(match (last, held) {
            (Some((_, index)), None) => format!("the pair of write {index} is lost"),
            (Some((_, index)), Some(_)) => format!("a key has not the value of write {index}"),
            (None, _) => "a key is there that was removed, or never put".into(),
        })
    }
}

/// Returns the pairs that a scan visited, each once: while upkeep goes on with a growth that a kill
/// interrupted, a scan may visit a pair twice. Nobody writes, so both visits show the same value.
/// There must be `count` of them, which is what the database says.
pub fn distinct(pairs: Vec<Pair>, count: u64) -> Result<HashMap<Vec<u8>, Vec<u8>>, String> {
    let mut found: HashMap<_, Vec<u8>> = HashMap::with_capacity(pairs.len());
    for (key, value) in pairs {
        match found.entry(key) {
            Entry::Vacant(place) => drop(place.insert(value)),
            Entry::Occupied(first) if *first.get() == value => {}
            Entry::Occupied(_) => return Err("a scan finds two values of a key".into()),
        }
    }
    match found.len() {
        pairs if pairs as u64 == count => Ok(found),
        pairs => Err(format!("len says {count}, and a scan finds {pairs} pairs")),
    }
}

/// Returns the word of an acknowledgement.
pub fn acknowledgement(thread: u64, index: u64, said: Said) -> u64 {
    let refused = if said == Said::Refused { REFUSED } else { 0 };
    thread << THREAD_SHIFT | refused | index
}

/// A word that looks random. Source: the finaliser of SplitMix64.
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: History =
        History { seed: 3, form: Form::Variable, threads: 1, longest: MOST_BYTES };

    /// Returns a model after `count` writes of one thread, and what a database holds then.
    fn after(count: u64) -> (Model, Vec<Pair>) {
        let mut model = Model::new(HISTORY, true);
        let mut pairs = HashMap::new();
        for index in 0..count {
            model.acknowledge(acknowledgement(0, index, Said::Done)).unwrap();
            do_write(&HISTORY.write(0, index), &mut pairs);
        }
        (model, pairs.into_iter().collect())
    }

    fn do_write(write: &Write, pairs: &mut HashMap<Vec<u8>, Vec<u8>>) {
        pairs.retain(|key, _| !write.empties(HISTORY.owner(key)));
        do_changes(write.changes(), pairs);
    }

    fn do_changes(changes: &[Change], pairs: &mut HashMap<Vec<u8>, Vec<u8>>) {
        for Change { key, value } in changes {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
    }

    /// Returns the key and the value of a write that puts one pair.
    fn put(write: Write) -> Option<Pair> {
        match write {
            Write::Single(Change { key, value }) => value.map(|value| (key, value)),
            _ => None,
        }
    }

    #[test]
    fn what_was_said_and_is_there_is_accepted() {
        // Fails if a database that lost nothing were accused.
        for count in [0, 1, 500, 19_999, 20_000, 20_500] {
            let (model, pairs) = after(count);
            assert_eq!(model.compare(pairs), Ok(()), "{count}");
        }
    }

    #[test]
    fn a_lost_a_wrong_and_a_revived_pair_are_noticed() {
        // Fails if the comparison accepts what a kill must not leave.
        let (model, pairs) = after(900);
        let (_, older) = after(700);
        assert!(model.compare(older).is_err());
        let mut lost = 0;
        for index in 0..pairs.len() {
            let mut fewer = pairs.clone();
            fewer.remove(index);
            lost += u32::from(model.compare(fewer).is_err());
            let mut wrong = pairs.clone();
            wrong[index].1.push(1);
            assert!(model.compare(wrong).is_err(), "{index}");
        }
        // One may be that of the removal which was under way.
        assert!(lost as usize >= pairs.len() - 1);
        let mut more = pairs;
        more.push((b"never".to_vec(), vec![]));
        assert!(model.compare(more).is_err());
    }

    #[test]
    fn a_pair_may_be_visited_twice_and_a_key_has_one_value() {
        // Fails if a growth beside the scan looks like a wrong count, or two values like a growth;
        // or if nobody looks whether as many pairs are there as are counted.
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let visited = vec![pair("a", "1"), pair("b", "1"), pair("a", "1")];
        assert_eq!(distinct(visited.clone(), 2).unwrap().len(), 2);
        for count in [1, 3] {
            assert!(distinct(visited.clone(), count).unwrap_err().contains("finds 2 pairs"));
        }
        assert!(distinct(vec![pair("a", "1"), pair("a", "2")], 1).is_err());
    }

    #[test]
    fn writes_return_in_their_order() {
        // Fails if a writer could leave a number out and nobody noticed.
        let (mut model, _) = after(5);
        assert!(model.acknowledge(acknowledgement(0, 6, Said::Done)).is_err());
        assert!(model.acknowledge(acknowledgement(1, 0, Said::Done)).is_err());
        assert!(model.acknowledge(acknowledgement(0, 5, Said::Done)).is_ok());
    }

    #[test]
    fn a_write_that_was_refused_has_changed_nothing() {
        // Fails if a pair for which there was no room had to be there, or could be; or if the next
        // write were not expected.
        let found = (500..).find_map(|count| {
            let (model, pairs) = after(count);
            let new = put(model.history().write(0, count))?;
            let is_new = pairs.iter().all(|pair| pair.0 != new.0);
            is_new.then_some((model, pairs, count, new))
        });
        let (mut model, mut pairs, count, new) = found.unwrap();
        let refused = acknowledgement(0, count, Said::Refused);
        assert_eq!(model.acknowledge(refused), Ok(Said::Refused));
        assert_eq!((model.next(), model.compare(pairs.clone())), (&[count + 1][..], Ok(())));
        pairs.push(new);
        assert!(model.compare(pairs).is_err());
        assert!(model.acknowledge(refused).is_err());
    }

    #[test]
    fn a_write_that_only_removes_is_never_refused() {
        // Fails if a database could refuse to be emptied, or if a batch that also puts could not be
        // refused.
        let (mut model, _) = after(15_000);
        let (mut seen, mut is_batch) = ([0; 2], [0; 2]);
        for index in 15_000..15_400 {
            let write = model.history().write(0, index);
            let removes = write.changes().iter().all(|change| change.value.is_none());
            let said = model.acknowledge(acknowledgement(0, index, Said::Refused));
            match removes {
                true => assert!(said.unwrap_err().contains("only removes"), "{index}"),
                false => assert_eq!(said, Ok(Said::Refused), "{index}"),
            }
            seen[usize::from(removes)] += 1;
            is_batch[usize::from(removes)] += u32::from(matches!(write, Write::Batch(_)));
        }
        assert!(seen.iter().chain(&is_batch).all(|count| *count > 0), "{seen:?}, {is_batch:?}");
        let (mut model, _) = after(4 * PHASE - 1);
        assert_eq!(model.history().write(0, 4 * PHASE - 1), Write::Clear);
        assert!(model.acknowledge(acknowledgement(0, 4 * PHASE - 1, Said::Refused)).is_err());
    }

    #[test]
    fn a_write_that_was_interrupted_and_then_refused_may_have_happened() {
        // Fails if a database were accused because a killed process had done a write, and the next
        // one found no room to do it again; or excused where no process was killed, or for what a
        // later write of the key has settled.
        for (at, is_batch) in [(500, false), (501, false), (511, true)] {
            let (mut model, pairs) = after(at);
            let write = model.history().write(0, at);
            assert_eq!(matches!(write, Write::Batch(_)), is_batch, "{at}");
            let mut without: HashMap<_, _> = pairs.into_iter().collect();
            let mut with = without.clone();
            do_write(&write, &mut with);
            assert!(without != with, "{at} changes nothing");
            model.killed();
            model.acknowledge(acknowledgement(0, at, Said::Refused)).unwrap();
            assert_eq!(model.compare(without.clone()), Ok(()), "{at}");
            assert_eq!(model.compare(with.clone()), Ok(()), "{at}");

            let mut index = at + 1;
            while !model.doubts.is_empty() {
                assert!(without != with, "{at}: {index} settled it");
                model.acknowledge(acknowledgement(0, index, Said::Done)).unwrap();
                do_write(&model.history().write(0, index), &mut without);
                do_write(&model.history().write(0, index), &mut with);
                index += 1;
            }
            assert!(without == with, "{at}: {index} settled nothing");
        }
    }

    #[test]
    fn an_atomic_batch_is_there_as_a_whole_or_not_at_all() {
        // Fails if half a batch of an engine that promises whole ones were accepted, whether a kill
        // interrupted it or it was refused; or if other engines were accused of a first part, or
        // excused for another part.
        for ends in ["killed", "refused"] {
            for atomic_batches in [true, false] {
                let (mut model, pairs) = after(511);
                model.atomic_batches = atomic_batches;
                let Write::Batch(changes) = model.history().write(0, 511) else { panic!() };
                assert!(changes.len() > 4, "{changes:?}");
                if ends == "refused" {
                    model.acknowledge(acknowledgement(0, 511, Said::Refused)).unwrap();
                }
                let after = |changes: &[Change]| {
                    let mut after: HashMap<_, _> = pairs.iter().cloned().collect();
                    do_changes(changes, &mut after);
                    model.compare(after).is_ok()
                };
                let whole = changes.len();
                assert!(after(&[]));
                assert_eq!(after(&changes), ends == "killed" || !atomic_batches, "{ends}");
                assert_eq!(after(&changes[..whole / 2]), !atomic_batches, "{ends}");
                // What is in doubt after a refusal is not looked at together.
                let last = ends == "refused" && !atomic_batches;
                assert_eq!(after(&changes[whole / 2..]), last, "{ends}");
            }
        }
    }

    #[test]
    fn a_value_that_nobody_wrote_is_noticed_where_a_write_is_under_way() {
        // Fails if a key that was being written when the process was killed may have any value.
        let found = (500..).find_map(|count| {
            let (model, pairs) = after(count);
            let (key, value) = put(model.history().write(0, count))?;
            let place = pairs.iter().position(|pair| pair.0 == key)?;
            Some((model, pairs, place, value))
        });
        let (model, mut pairs, place, value) = found.unwrap();
        assert_eq!(model.compare(pairs.clone()), Ok(()));
        pairs[place].1 = value;
        assert_eq!(model.compare(pairs.clone()), Ok(()));
        pairs[place].1.push(7);
        assert!(model.compare(pairs).is_err());
    }

    #[test]
    fn a_history_makes_a_table_grow_and_shrink_and_has_values_of_every_length() {
        // Fails if a promise were looked at with a small table, or with short values alone.
        let history = History { seed: 3, form: Form::Variable, threads: 2, longest: MOST_BYTES };
        let (mut keys, mut lengths) = (std::collections::HashSet::new(), Vec::new());
        let (mut changes, mut removals) = ([0; 4], [0; 4]);
        for index in 0..4 * PHASE {
            for Change { key, value } in history.write(0, index).changes() {
                changes[(index / PHASE) as usize] += 1;
                match value {
                    Some(value) => {
                        keys.insert(key.clone());
                        lengths.push(value.len());
                    }
                    None => removals[(index / PHASE) as usize] += 1,
                }
            }
        }
        assert!(keys.len() > 3000, "{}", keys.len());
        let shares: Vec<_> = (0..4).map(|phase| 100 * removals[phase] / changes[phase]).collect();
        assert!(shares[..3].iter().all(|share| (23..27).contains(share)), "{shares:?}");
        assert!((73..77).contains(&shares[3]), "{shares:?}");
        for lengths_of in [0..150, 4096..7000, 40_000..110_000] {
            assert!(lengths.iter().any(|length| lengths_of.contains(length)), "{lengths_of:?}");
        }
    }

    #[test]
    fn what_was_under_way_may_have_happened_and_nothing_else() {
        // Fails if a database were accused of a removal or a clear that a kill interrupted, or
        // excused for the loss of another pair.
        let without = |pairs: &[Pair], key: &[u8]| -> Vec<Pair> {
            pairs.iter().filter(|pair| pair.0 != key).cloned().collect()
        };
        let found = (500..).find_map(|count| {
            let (model, pairs) = after(count);
            let Write::Single(Change { key, value: None }) = model.history().write(0, count) else {
                return None;
            };
            pairs.iter().any(|pair| pair.0 == key).then_some((model, pairs, key))
        });
        let (model, pairs, key) = found.unwrap();
        assert_eq!(model.compare(pairs.clone()), Ok(()));
        assert_eq!(model.compare(without(&pairs, &key)), Ok(()));
        let other = pairs.iter().find(|pair| pair.0 != key).unwrap();
        assert!(model.compare(without(&pairs, &other.0)).is_err());
        let (model, pairs) = after(4 * PHASE - 1);
        assert_eq!(model.history().write(0, 4 * PHASE - 1), Write::Clear);
        assert_eq!(model.compare(pairs.clone()), Ok(()));
        let (in_table, mut rest): (Vec<Pair>, Vec<Pair>) =
            pairs.into_iter().partition(|pair| HISTORY.owner(&pair.0).is_some());
        assert_eq!(model.compare(in_table.clone()), Ok(()));
        rest.truncate(rest.len() / 2);
        assert!(model.compare(rest.clone()).is_err(), "the table was not cleared");
        rest.extend(in_table);
        assert_eq!(model.compare(rest.clone()), Ok(()));
        rest[0].1.push(1);
        assert!(model.compare(rest).is_err());
    }

    #[test]
    fn a_table_is_made_again_and_then_has_another_name() {
        // Fails if a table lost its name without a drop, or if none ever got the name of one that
        // was dropped, or all did.
        let mut names = vec![HISTORY.table(0, 0)];
        for index in 0..20_000 {
            if matches!(HISTORY.write(0, index), Write::Drop { .. }) {
                names.push(HISTORY.table(0, index + 1));
            }
            assert_eq!(HISTORY.table(0, index + 1), *names.last().unwrap(), "{index}");
        }
        assert_eq!(names, ["0-0", "0-0", "0-1", "0-1", "0-2"]);
    }

    #[test]
    fn a_table_whose_drop_a_kill_interrupted_is_there_as_a_whole_or_not_at_all() {
        // Fails if a database were accused of a drop, or excused for half of one, for the loss of a
        // pair of another table, or for a pair of a dropped table that came back.
        let drop = 2 * PHASE + DROP;
        for has_returned in [false, true] {
            let (mut model, pairs) = after(drop);
            assert_eq!(model.history().write(0, drop), Write::Drop { thread: 0 });
            if has_returned {
                model.acknowledge(acknowledgement(0, drop, Said::Done)).unwrap();
            }
            let (mut in_table, mut rest): (Vec<Pair>, Vec<Pair>) =
                pairs.into_iter().partition(|pair| HISTORY.owner(&pair.0).is_some());
            assert!(in_table.len() > 500 && rest.len() > 1500);
            let is_right = |part: &[Pair], rest: &[Pair]| model.compare([part, rest].concat());
            assert_eq!(is_right(&[], &rest), Ok(()));
            assert_eq!(is_right(&in_table, &rest).is_ok(), !has_returned);
            in_table.truncate(400);
            assert!(is_right(&in_table, &rest).is_err());
            rest.truncate(1000);
            assert!(is_right(&[], &rest).is_err());
        }
    }

    #[test]
    fn threads_have_keys_of_their_own_and_writes_values_of_their_own() {
        // Fails if what one thread writes could be lost behind what another does, or if an older
        // value could pass for a newer one.
        for form in [Form::Variable, Form::WORDS] {
            let history = History { seed: 3, form, threads: 2, longest: MOST_BYTES };
            let mut values = HashMap::new();
            let mut owners = HashMap::new();
            for (thread, index) in (0..2).flat_map(|thread| (0..21_000).map(move |i| (thread, i))) {
                let write = history.write(thread, index);
                assert_ne!(write, Write::Clear, "a clear beside the writes of another thread");
                for Change { key, value } in write.changes() {
                    if let Some(value) = value {
                        assert_eq!(values.insert(value.clone(), (thread, index)), None);
                    }
                    assert_eq!(*owners.entry(key.clone()).or_insert(thread), thread);
                }
            }
        }
    }
}
