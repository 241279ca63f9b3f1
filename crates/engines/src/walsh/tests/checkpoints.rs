//! What a close saves: loaded it is what the logs say, of another moment or damaged it is passed
//! over, and without room for it nothing is lost.

use everhash_index::{Design, Engine, Form, Inline, Opening, Table, Threads, WordTable, create};
use everhash_pmem::{Addr, Boot, Image, Lock, Media, Region, Span, Std, pool::DATA};
use everhash_testkit::model::{Pairs, check_pool, scan_all};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::settings::{Epochal, Immediate};
use crate::walsh::layout::{AreaRecord, Checkpoint, PART_WORDS, Tail, area_record};
use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// The directories of an area.
type Area = Vec<u64>;

type ImageSession = Session<Walsh, Image>;

/// A table of `E` on an image of a closed pool.
fn open<E: Engine<Table<Image> = WalshTable<Image>>>(words: &[u64]) -> WalshTable<Image> {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes + (1 << 20)));
    everhash_index::open::<E, _>(region, Boot([1, 77]), &Inline).unwrap()
}

/// Returns how many areas were loaded and not rebuilt.
fn loaded<M: Media>(table: &WalshTable<M>) -> u64 {
    let stats = table.stats().unwrap();
    stats.own.iter().find(|(name, _)| *name == "areas_loaded").unwrap().1
}

/// Returns everything that an open knows: chains, logs and counts of each area. But for what is in
/// the chains behind their heads: records do not say which objects were passed over.
fn knowledge(table: &WalshTable<Image>) -> Vec<(String, [Area; 2])> {
    let areas = table.areas.iter().map(|area| {
        let state = area.state.lock().unwrap();
        let levels = [Some(state.view.level()), state.view.old()];
        let sides = [state.view.side(), 1 - state.view.side()];
        let directories = [0, 1].map(|which| {
            let count = levels[which].map_or(0, |level| 1u64 << level);
            let read = |number| table.blocks.read(&area.sides[sides[which]], number);
            (0..count).map(read).map(|found| found.head().byte()).collect()
        });
        let logs: Vec<_> = state.logs.iter().collect();
        let counts = (state.items, state.stored, state.sequence, state.info);
        (format!("{logs:?} {:?} {counts:?} {:?}", state.open, state.rehash), directories)
    });
    areas.collect()
}

fn log_spans(table: &WalshTable<Image>) -> Vec<Span> {
    let of_area = |area: &crate::walsh::state::Area<Image>| {
        let state = area.state.lock().unwrap();
        let newest = state.open.iter().map(|log| log.span);
        state.logs.iter().map(|log| log.span).chain(newest).collect::<Vec<_>>()
    };
    table.areas.iter().flat_map(of_area).collect()
}

fn place(number: u64) -> Addr {
    area_record(DATA, number).plus(AreaRecord::CHECKPOINT as u64)
}

/// The words of a pool without its checkpoints.
fn without(words: &[u64]) -> Vec<u64> {
    let mut words = words.to_vec();
    for place in [0, 1].map(place) {
        words[place.word() as usize] = Tail::default().encode(place);
    }
    words
}

/// Works, closes every few operations, and shows each closed pool with what it holds.
fn each_closed_pool<E>(form: Form, mut visit: impl FnMut(&[u64], &Pairs))
where
    E: Engine<Table<Image> = WalshTable<Image>>,
{
    let (shape, mut pairs) = (Shape::tiny(form), Pairs::new());
    let mut session = Session::<E>::tiny(form, 1 << 20).unwrap();
    for step in 0..240u16 {
        let key = shape.key(step * 7 % 61);
        if step % 5 == 4 {
            session.table().remove(&key).unwrap();
            pairs.remove(&key);
        } else {
            let value = shape.value(step.into());
            session.table().put(&key, &value).unwrap();
            pairs.insert(key, value);
        }
        if step % 11 == 0 {
            session.table().maintain(core::time::Duration::ZERO, 1).unwrap();
        }
        if step % 13 == 0 {
            session.close().unwrap();
            visit(&session.region().media().words(), &pairs);
            let medium = session.region().media().clone();
            session = Session::open(medium, form).unwrap();
        }
    }
}

fn loads_what_logs_say<E: Engine<Table<Image> = WalshTable<Image>>>(form: Form) -> usize {
    let (mut rehashes, mut closed, mut all) = (0, 0, 0);
    each_closed_pool::<E>(form, |words, pairs| {
        let (fast, slow) = (open::<E>(words), open::<E>(&without(words)));
        let areas = fast.areas.iter();
        let used = areas.filter(|area| area.state.lock().unwrap().open.is_some()).count();
        assert_eq!(loaded(&slow), 0);
        closed += loaded(&fast);
        all += used as u64;
        assert_eq!(knowledge(&fast), knowledge(&slow), "{form}");
        assert_eq!(&scan_all(&fast).unwrap(), pairs);
        fast.check().unwrap();
        rehashes += fast.areas.iter().filter(|area| area.view.latest().old().is_some()).count();
    });
    println!("{form}: {closed} of {all} areas loaded, {rehashes} inside a rehash");
    // Of one object a record is shorter than a block.
    assert!(closed + 4 > all, "{closed} of {all}");
    rehashes
}

#[test]
fn a_loaded_table_knows_what_a_rebuilt_one_knows() {
    // Fails if a directory, a filter, a log or a count is saved or loaded wrong, or if nothing is
    // loaded at all: then all judges would judge the logs twice.
    let rehashes: usize = super::FORMS.into_iter().map(loads_what_logs_say::<Walsh>).sum();
    assert!(rehashes > 0, "no area was closed while it was being rehashed");
    loads_what_logs_say::<Epochal>(Form::WORDS);
    loads_what_logs_say::<Immediate>(Form::WORDS);
}

#[test]
fn a_damaged_checkpoint_is_noticed_and_the_logs_are_used() {
    // Fails if a flipped bit in a checkpoint, or in the word that leads to it, is believed,
    // makes the pool unreadable, or is passed by when the pool is checked.
    let mut noticed = 0;
    each_closed_pool::<Walsh>(Form::WORDS, |whole, pairs| {
        let mut words = whole.to_vec();
        let tails =
            [0, 1].map(|area| Tail::decode(words[place(area).word() as usize], place(area)));
        let mut places: Vec<u64> = [0, 1].map(|area| place(area).word()).to_vec();
        for tail in tails.into_iter().flatten().filter(|tail| !tail.at.is_null()) {
            // The head, and the words behind it up to the first checksum.
            places.extend((0..24).map(|word| tail.at.word() + word));
        }
        for index in places {
            words[index as usize] ^= 1 << (index * 5 % 64);
            let table = open::<Walsh>(&words);
            assert_eq!(&scan_all(&table).unwrap(), pairs);
            let is_used = loaded(&open::<Walsh>(whole)) == loaded(&table);
            let bytes = words.len() as u64 * 8;
            let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
            let checked = check_pool(&Design::of::<Walsh>(), &region);
            assert!(is_used || checked.is_err(), "word {index}");
            noticed += u32::from(!is_used);
            words[index as usize] = whole[index as usize];
        }
    });
    println!("{noticed} flips noticed");
    assert!(noticed > 500);
}

#[test]
fn a_checkpoint_of_another_moment_is_passed_over() {
    // Fails if a checkpoint is believed because it is whole: here every later pool is given the
    // words that lead to an earlier one, and all space that this had.
    let mut before: Option<Vec<u64>> = None;
    let mut stale = 0;
    each_closed_pool::<Walsh>(Form::WORDS, |words, pairs| {
        if let Some(before) = &before {
            let mut later = words.to_vec();
            let spans = log_spans(&open::<Walsh>(words));
            for place in [0, 1].map(place) {
                let index = place.word() as usize;
                let at = Tail::decode(before[index], place).unwrap().at;
                let words = (before.len() as u64).saturating_sub(at.word()).min(256);
                let old = Span::new(at, words);
                // Its logs must stay.
                if at.is_null() || spans.iter().any(|span| span.overlaps(old)) {
                    continue;
                }
                let range = at.word() as usize..(at.word() + words) as usize;
                later.resize(later.len().max(range.end), 0);
                later[range.clone()].copy_from_slice(&before[range]);
                later[index] = before[index];
                stale += 1;
            }
            let table = open::<Walsh>(&later);
            assert_eq!(&scan_all(&table).unwrap(), pairs);
        }
        before = Some(words.to_vec());
    });
    assert!(stale > 5, "{stale}");
}

#[test]
fn only_what_changed_is_saved_again() {
    // Fails if opening and closing a table rewrites what it saved, or keeps what is not true any
    // more.
    let settings = WalshSettings { areas: 16, directories: 64, ..WalshSettings::tiny() };
    let medium = Image::<Std>::new(0, 1 << 20).counted();
    let mut session: ImageSession = Session::create(medium, Form::WORDS, &settings).unwrap();
    for number in 0..200u64 {
        session.table().put(&number.to_le_bytes(), &[1; 8]).unwrap();
    }
    let mut stored = |act: &mut dyn FnMut(&mut ImageSession)| {
        let before = session.region().media().traffic();
        act(&mut session);
        let traffic = session.region().media().traffic() - before;
        assert_eq!(loaded(session.table()), 16);
        traffic.words_stored
    };
    // The pool's own headers are in all of them.
    let all = stored(&mut |session| session.reopen().unwrap());
    let none = stored(&mut |session| session.reopen().unwrap());
    let one = stored(&mut |session| {
        let table = session.table();
        let has_room = |key: &u64| {
            let state = table.area(table.hasher.word(*key)).state.lock().unwrap();
            state.open.is_some_and(|log| log.count < log.entries)
        };
        let key = (0..200u64).find(has_room).unwrap();
        assert!(table.put(&key.to_le_bytes(), &[2; 8]).unwrap());
        session.reopen().unwrap();
    });
    println!("words stored: {all}, then {none}, and {one} with a write");
    assert!(none < one && one - none < (all - none) / 8);
}

#[test]
fn without_room_nothing_is_saved_and_nothing_is_lost() {
    // Fails if a close on a full medium fails, or leaves a word that leads to an old checkpoint.
    let shape = Shape::tiny(Form::WORDS);
    let mut without_room = 0;
    for capacity in (16 << 10..40 << 10).step_by(1 << 10) {
        let mut session: Session<Walsh> = Session::tiny(Form::WORDS, capacity).unwrap();
        let mut pairs = Pairs::new();
        for round in 0..4u16 {
            let more = (0..1000u16).map(|number| round * 1000 + number);
            for number in more {
                let (key, value) = (shape.key(number), shape.value(number.into()));
                if session.table().put(&key, &value).is_err() {
                    break;
                }
                pairs.insert(key, value);
            }
            session.close().unwrap();
            check_pool(&Design::of::<Walsh>(), session.region()).unwrap();
            let medium = session.region().media().clone();
            session = Session::open(medium, Form::WORDS).unwrap();
            without_room += u32::from(loaded(session.table()) < 2);
            assert_eq!(scan_all(session.table()).unwrap(), pairs);
            for key in pairs.keys().take(3).cloned().collect::<Vec<_>>() {
                if session.table().remove(&key).is_ok() {
                    pairs.remove(&key);
                }
            }
        }
    }
    println!("{without_room} pools had no room");
    assert!(without_room > 3);
}

#[test]
fn a_table_made_for_more_pairs_does_not_swell_when_it_is_closed() {
    // Fails if directories are saved of which hardly one has a chain.
    let settings = WalshSettings { areas: 1, directories: 1 << 16, ..WalshSettings::default() };
    let medium = Image::<Std>::new(0, 16 << 20);
    let mut session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
    for number in 0..2000u64 {
        session.table().put(&number.to_le_bytes(), &[1; 8]).unwrap();
    }
    let before = session.region().media().words().len();
    session.reopen().unwrap();
    assert_eq!(loaded(session.table()), 0);
    assert_eq!(session.region().media().words().len(), before);
}

#[test]
fn a_checkpoint_of_several_parts_is_loaded_and_checked() {
    // Fails if the writer, the open or a check looks for the second part in another place than the
    // others do, or if a check ends with the first one.
    let settings = WalshSettings { areas: 1, directories: 4096, ..WalshSettings::default() };
    let medium = Image::<Std>::new(0, 16 << 20);
    let mut session: Session<Walsh> = Session::create(medium, Form::WORDS, &settings).unwrap();
    (0..16_000).for_each(|key| assert!(session.table().insert_word(key, !key).unwrap()));
    session.reopen().unwrap();
    assert_eq!(loaded(session.table()), 1);
    session.close().unwrap();
    let mut words = session.region().media().words();
    let check = |words: &[u64]| {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(words, bytes, bytes));
        Walsh::check(&region, Boot::default(), &mut |_, _| {}).map(|checked| checked.items)
    };
    assert_eq!(check(&words).unwrap(), 16_000);
    let (at, place) = (place(0).word() as usize, place(0));
    let head = Tail::decode(words[at], place).unwrap().at.word();
    // A word of the second part.
    words[(head + Checkpoint::WORDS as u64 + PART_WORDS + 100) as usize] ^= 1;
    assert!(check(&words).is_err());
    assert_eq!(loaded(&open::<Walsh>(&words)), 0);
}

#[test]
fn an_open_takes_as_much_memory_as_the_writes_did() {
    // Fails if blocks that a thread took together and did not need are lost or counted twice, or if
    // directories are taken that hold nothing: by one thread and by three, of few pairs and of
    // many, rebuilt and loaded.
    for items in [2000u64, 40_000] {
        let settings =
            WalshSettings { areas: 64, directories: 64 * 16 * 32, ..WalshSettings::default() };
        let region = Region::new(Image::<Std>::new(16 << 20, 16 << 20));
        let opening = Opening::default();
        let mut table = create::<Walsh, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        (0..items).for_each(|key| assert!(table.insert_word(key, !key).unwrap()));
        table.sync().unwrap();
        let blocks = |table: &WalshTable<Image>| -> usize {
            let count = |area: &crate::walsh::state::Area<Image>| {
                let state = area.state.lock().unwrap();
                table.blocks.of_side(&area.sides[state.view.side()], state.view.level()).count()
            };
            table.areas.iter().map(count).sum()
        };
        let before = (blocks(&table), table.blocks.dram_bytes().unwrap());
        for (boot, width) in [1, 3, 1, 3].into_iter().enumerate() {
            // The first two find a crash.
            if boot >= 2 {
                Box::new(table).close().unwrap();
            } else {
                drop(table);
            }
            let next = Boot([1, boot as u64 + 2]);
            let executor = Threads::new(width);
            table = everhash_index::open::<Walsh, _>(region.clone(), next, &executor).unwrap();
            let after = (blocks(&table), table.blocks.dram_bytes().unwrap());
            println!("{items} pairs, {width} threads: {before:?} blocks and bytes, then {after:?}");
            assert_eq!(after.0, before.0);
            assert!(after.1 <= before.1 / 4 * 5);
            // With few pairs, the records are shorter than what a close could save.
            let is_loaded = boot >= 2 && items > 2000;
            assert_eq!(loaded(&table), if is_loaded { 64 } else { 0 });
        }
    }
}
