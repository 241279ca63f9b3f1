//! What the operations on keys answer.

use everhash_index::{Change, Design, Form};
use everhash_pmem::Image;

use super::{holds, holds_on, load, roomy};
use crate::Failure;
use crate::failure::ensure;
use crate::model::Pairs;
use crate::workload::Shape;

pub(super) fn insert_adds_only_what_is_absent(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let (key, first, second) = (shape.key(3), shape.value(3), shape.value(4));
    ensure!(table.insert(&key, &first)?, "insert of an absent key said that it was present");
    ensure!(!table.insert(&key, &second)?, "insert of a present key said that it was absent");
    holds(&session, &shape, &Pairs::from([(key.clone(), first)]))?;
    table.remove(&key)?;
    ensure!(table.insert(&key, &second)?, "insert of a removed key said that it was present");
    holds(&session, &shape, &Pairs::from([(key, second)]))
}

pub(super) fn put_adds_or_replaces(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let mut pairs = Pairs::new();
    for round in 0..5 {
        for number in 0..20 {
            let (key, value) = (shape.key(number), shape.value(u32::from(number) * 7 + round));
            let before = table.put(&key, &value)?;
            ensure!(before == (round > 0), "put in round {round} said {before}");
            pairs.insert(key, value);
        }
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn update_replaces_only_what_is_present(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let (key, value) = (shape.key(3), shape.value(5));
    ensure!(!table.update(&key, &value)?, "update of an absent key said that it was present");
    holds(&session, &shape, &Pairs::new())?;
    table.insert(&key, &shape.value(4))?;
    ensure!(table.update(&key, &value)?, "update of a present key said that it was absent");
    holds(&session, &shape, &Pairs::from([(key, value)]))
}

pub(super) fn many_removals_agree_with_one_by_one(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let mut pairs = Pairs::new();
    for number in 0..150 {
        let (key, value) = (shape.key(number), shape.value(u32::from(number)));
        table.put(&key, &value)?;
        pairs.insert(key, value);
    }
    // More than fit into one part of a batch: present, absent, twice, and of no possible length.
    let mut keys: Vec<Vec<u8>> = (0..400).step_by(3).map(|number| shape.key(number)).collect();
    keys.push(keys[0].clone());
    keys.insert(7, vec![7; everhash_index::MAX_KEY_BYTES + 1]);
    let there = keys.iter().filter(|key| pairs.remove(*key).is_some()).count() as u64;
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let removed = table.remove_many(&keys)?;
    ensure!(removed == there, "remove_many said {removed} of {there} keys");
    ensure!(table.remove_many(&[])? == 0, "remove_many removed keys of none");
    holds(&session, &shape, &pairs)
}

pub(super) fn remove_says_whether_there_was_one(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let mut pairs = load(table, &shape, 0..30, 0)?;
    for number in (0..30).rev() {
        let key = shape.key(number);
        ensure!(table.remove(&key)?, "remove of a present key said that it was absent");
        ensure!(!table.remove(&key)?, "remove of an absent key said that it was present");
        pairs.remove(&key);
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn modify_sees_and_changes_one_key(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let mut pairs = load(table, &shape, 0..8, 0)?;
    // Present and absent in turn, each with each change.
    for (number, change) in [
        (2, Change::Keep),
        (40, Change::Keep),
        (3, Change::Put(shape.value(90))),
        (41, Change::Put(shape.value(91))),
        (4, Change::Remove),
        (42, Change::Remove),
    ] {
        let key = shape.key(number);
        let mut seen = Vec::new();
        table.modify(&key, &mut |value| {
            seen.push(value.map(<[u8]>::to_vec));
            change.clone()
        })?;
        ensure!(seen.len() == 1, "modify called the function {} times", seen.len());
        ensure!(seen[0].as_ref() == pairs.get(&key), "modify showed a value that is not there");
        match change {
            Change::Keep => {}
            Change::Put(value) => {
                pairs.insert(key, value);
            }
            Change::Remove => {
                pairs.remove(&key);
            }
        }
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn many_at_once_agree_with_one_by_one(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    ensure!(table.put_many(&[])? == 0, "put_many of nothing added something");
    table.get_many(&[], &mut |_, _| panic!("get_many of nothing found something"))?;
    // The second half repeats keys of the first: the later value wins, and counts as replaced.
    let list: Vec<_> =
        (0..40u16).map(|n| (shape.key(n % 25), shape.value(u32::from(n) + 100))).collect();
    let slices: Vec<(&[u8], &[u8])> = list.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    let added = table.put_many(&slices)?;
    ensure!(added == 25, "put_many of 25 keys, some twice, said that {added} were new");
    let pairs: Pairs = list.iter().cloned().collect();
    holds(&session, &shape, &pairs)?;
    // Of keys that are there nothing changes; of those that come twice the first value stays.
    let more: Vec<_> =
        (0..40u16).map(|n| (shape.key(20 + n % 15), shape.value(n.into()))).collect();
    let slices: Vec<(&[u8], &[u8])> = more.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    let added = table.insert_many(&slices)?;
    ensure!(added == 10, "insert_many of ten new keys said that {added} were new");
    let mut pairs = pairs;
    for (key, value) in more {
        pairs.entry(key).or_insert(value);
    }
    holds(&session, &shape, &pairs)?;
    // Absent keys, and the same key several times.
    let keys: Vec<Vec<u8>> = (0..60u16).map(|n| shape.key(n * 7 % 30)).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut answers = vec![0; keys.len()];
    let mut wrong = None;
    table.get_many(&slices, &mut |position, value| {
        answers[position] += 1;
        if value != pairs.get(&keys[position]).map(Vec::as_slice) {
            wrong = Some(position);
        }
    })?;
    ensure!(answers.iter().all(|count| *count == 1), "get_many did not answer once for each key");
    ensure!(wrong.is_none(), "get_many found another value than get, at position {wrong:?}");
    Ok(())
}

pub(super) fn a_table_begins_empty_and_counts(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    ensure!(table.form() == form, "the table says that its form is {}", table.form());
    holds(&session, &shape, &Pairs::new())?;
    ensure!(table.is_empty()? && table.len()? == 0, "a new table is not empty");
    let pairs = load(table, &shape, 0..50, 0)?;
    holds(&session, &shape, &pairs)?;
    ensure!(!design.capabilities.exact_len || table.len()? == 50, "len is {}", table.len()?);
    Ok(())
}

pub(super) fn words_agree_with_bytes(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let Some(words) = table.words() else {
        return Err(Failure::new("a table of form 8/8 has no path for words"));
    };
    let numbers = [0, 1, u64::MAX, 1 << 63, 0x0102_0304_0506_0708];
    let mut pairs = Pairs::new();
    for (number, value) in numbers.into_iter().zip([u64::MAX, 0, 5, 6, 0x1122_3344_5566_7788]) {
        ensure!(words.insert_word(number, value)?, "insert_word of an absent key said no");
        ensure!(!words.insert_word(number, 1)?, "insert_word of a present key said yes");
        pairs.insert(number.to_le_bytes().to_vec(), value.to_le_bytes().to_vec());
        holds(&session, &shape, &pairs)?;
        ensure!(words.get_word(number)? == Some(value), "get_word and get do not agree");
    }
    ensure!(words.update_word(1, 77)? && words.put_word(0, 78)?, "a present key was not found");
    ensure!(!words.update_word(9, 1)? && !words.put_word(10, 79)?, "an absent key was found");
    ensure!(words.remove_word(u64::MAX)? && !words.remove_word(9)?, "remove_word answers wrong");
    let mut values = [Some(3); 5];
    words.get_words(&[0, 1, u64::MAX, 10, 9], &mut values)?;
    ensure!(values == [Some(78), Some(77), None, Some(79), None], "get_words found {values:?}");
    for (number, value) in [(0, Some(78)), (1, Some(77)), (10, Some(79)), (u64::MAX, None)] {
        let key = u64::to_le_bytes(number).to_vec();
        match value {
            Some(value) => pairs.insert(key, u64::to_le_bytes(value).to_vec()),
            None => pairs.remove(&key),
        };
    }
    holds(&session, &shape, &pairs)
}

pub(super) fn bare_forms_believe_their_caller(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let has = design.capabilities.bare;
    ensure!(session.table().bare().is_some() == has, "bare forms are there or not, as claimed");
    let mut pairs = Pairs::new();
    // Each key comes and goes some times: there is always something to replace or to remove.
    for round in 0..6u32 {
        let Some(bare) = session.table().bare() else { return Ok(()) };
        for number in 0..60 {
            let (key, value) = (shape.key(number), shape.value(u32::from(number) + round));
            match (pairs.contains_key(&key), (u32::from(number) + round) % 3) {
                (true, 0) => {
                    bare.remove_blind(&key)?;
                    pairs.remove(&key);
                    continue;
                }
                (true, _) => bare.update_blind(&key, &value)?,
                (false, _) => bare.insert_blind(&key, &value)?,
            }
            pairs.insert(key, value);
        }
        holds_on(&mut session, &shape, &pairs, round % 2 == 0)?;
    }
    Ok(())
}

pub(super) fn atomic_batches_do_their_writes_in_order(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let has = design.capabilities.atomic_batches;
    ensure!(
        session.table().atomic().is_some() == has,
        "atomic batches are there or not, as claimed"
    );
    let mut pairs = Pairs::new();
    for round in 0..6u32 {
        let Some(atomic) = session.table().atomic() else { return Ok(()) };
        // Some keys twice: the later write of one counts.
        let numbers = (0..40u16).map(|number| (number * 7 + round as u16) % 30);
        let batch: Vec<_> = numbers
            .zip(round..)
            .map(|(number, each)| {
                (shape.key(number), (each % 3 != 0).then(|| shape.value(each * 100 + round)))
            })
            .collect();
        let writes: Vec<_> =
            batch.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        atomic.write_all(&writes)?;
        for (key, value) in batch {
            match value {
                Some(value) => pairs.insert(key, value),
                None => pairs.remove(&key),
            };
        }
        holds_on(&mut session, &shape, &pairs, round % 2 == 0)?;
    }
    Ok(())
}
