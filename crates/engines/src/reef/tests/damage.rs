//! Damaged and hostile pools: an error or the right answers, and never a panic.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Change, Cursor, Design, Engine, Error, Form, Inline, Table, WordTable, open};
use everhash_pmem::pool::Header;
use everhash_pmem::{Addr, Boot, Domain, Guarantees, Image, Lock, Media, Region, Std};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::hostile;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::settings::Immediate;
use crate::common::settings::checksum;
use crate::reef::layout::{self, BatchRecord, Ended, Epoch, Kind, Root, SegmentHead, Tail};
use crate::reef::reserve::Purpose;
use crate::reef::segments::Object;
use crate::reef::stream::Victim;
use crate::reef::{Reef, ReefSettings};

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, or if a number from the medium is
    // used before it is bounded.
    let effort = Effort { flip_every: 13, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Reef>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 500 && report.by_check_alone == 0, "{form}: {report}");
    }
}

/// Stores a value into a record of the root, and makes its checksum right.
fn forge(words: &mut [u64], index: usize, value: u64, _: u64) {
    words[index] = value;
    let database = [words[Header::DATABASE], words[Header::DATABASE + 1]];
    let seed = layout::seed(database);
    let records = [
        (layout::epoch_place(0), Epoch::CHECKSUM),
        (layout::epoch_place(1), Epoch::CHECKSUM),
        (layout::BATCH, BatchRecord::CHECKSUM),
    ];
    for (at, checksum) in records {
        let first = at.word() as usize;
        if (first..first + checksum).contains(&index) {
            words[first + checksum] = layout::sum(&words[first..first + checksum], at, seed);
        }
    }
    let (first, end) = (layout::ROOT.word() as usize, Root::CHECKSUM);
    if (first..first + end).contains(&index) {
        words[first + end] = checksum(layout::ROOT, &words[first..first + end]);
    }
}

#[test]
fn hostile_words_cost_an_error_and_no_more() {
    // Fails if a forged place, tail, count or length is used before it is bounded.
    for form in super::FORMS {
        let effort =
            hostile::Effort { images: 400, forge: Some(forge), ..hostile::Effort::default() };
        let report = hostile::judge(&Design::of::<Reef>(), form, &effort);
        println!("{form}: {}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn collecting_a_damaged_segment_is_an_error_and_keeps_it() {
    // Fails if damage, be it a length that leads out of the segment, is taken for the end of what
    // there is to collect: nobody would hear of it.
    for word in [0, 1] {
        let session = Session::<Reef>::tiny(Form::Variable, 1 << 20).unwrap();
        let table = session.table();
        (0..60u8).for_each(|key| assert!(!table.put(&[key], &[7; 60]).unwrap()));
        let (sequence, segment) = {
            let stream = table.streams[0].0.lock().unwrap();
            stream.sealed.first_key_value().map(|(number, it)| (*number, *it)).unwrap()
        };
        let at = segment.span.start.plus(SegmentHead::WORDS as u64 + word);
        let pm = session.region().access();
        // Of the lengths it is the value's: eight mebibytes more.
        pm.store(at, pm.load(at).unwrap() ^ 1 << 55).unwrap();
        let mut victim = Victim::new(0, (sequence, segment), true, 1);
        let outcome = table.collect(&mut victim, u64::MAX);
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "word {word}: {outcome:?}");
        let stream = table.streams[0].0.lock().unwrap();
        assert!(stream.sealed.get(&sequence).is_some_and(|it| !it.is_empty));
    }
}

#[test]
fn a_damaged_segment_that_is_collected_costs_no_write_and_upkeep_says_so() {
    // Fails if every later write of the stream is an error although it was done, if the segment is
    // tried again by each of them, or if nobody hears of it.
    let session = Session::<Reef>::tiny(Form::WORDS, 4 << 20).unwrap();
    let table = session.table();
    (0..200u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    let segment = {
        let stream = table.streams[0].0.lock().unwrap();
        *stream.sealed.first_key_value().unwrap().1
    };
    let pm = session.region().access();
    let at = segment.span.start.plus(SegmentHead::WORDS as u64);
    let key = (0..200).find(|key| table.shard(table.hash(&u64::to_le_bytes(*key))).1 == 0);
    pm.store(at, pm.load(at).unwrap() ^ 1 << 40).unwrap();
    // All but the damaged pair, so that its segment is the one to collect.
    for round in 2..40u64 {
        for other in (0..200).filter(|other| Some(*other) != key) {
            assert!(table.put_word(other, round).unwrap(), "{other} in round {round}");
        }
    }
    let damage = (0..100).find_map(|_| table.maintain(Duration::ZERO, 1000).err());
    let is_it =
        |error: &Error| matches!(error, Error::Corrupt { at: byte, .. } if *byte == at.byte());
    assert!(damage.as_ref().is_some_and(is_it), "{damage:?}");
    let again = table.maintain(Duration::ZERO, 1000).err();
    assert!(again.as_ref().is_some_and(is_it), "{again:?}");
    let used = table.used.load(Ordering::Relaxed);
    assert!(used < 64 << 10, "what is sound is collected: {used} bytes");
    table.clear().unwrap();
    assert!(table.maintain(Duration::ZERO, 1000).is_ok(), "nothing is damaged any more");
}

#[test]
fn either_commit_record_is_enough_to_open_a_closed_table() {
    // Fails if a close leaves one record that says all: a damaged word would cost the table.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    (0..100u64).for_each(|key| assert!(session.table().insert_word(key, !key).unwrap()));
    session.reopen().unwrap();
    assert!(session.table().remove_word(5).unwrap());
    session.close().unwrap();
    let words = session.region().media().words();
    for number in [0, 1] {
        let mut words = words.clone();
        words[layout::epoch_place(number).word() as usize + Epoch::CHECKSUM] ^= 1;
        let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
        let opened = Session::<Reef>::open(medium, Form::WORDS).unwrap();
        let table = opened.table();
        assert_eq!(table.len().unwrap(), 99);
        (0..100).for_each(|key| {
            let value = (key != 5).then_some(!key);
            assert_eq!(table.get_word(key).unwrap(), value, "without record {number}");
        });
    }
}

#[test]
fn a_check_of_an_open_table_names_damage_wherever_it_lies() {
    // Fails if a table that is open is read as one that power loss may have cut short: the end of
    // its stream would be passed over, and with it what is damaged there.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, pm) = (session.table(), session.region().access());
    for keys in [0..100u64, 100..200] {
        keys.for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
        let segments: Vec<_> = {
            let stream = table.streams[0].0.lock().unwrap();
            let open = stream.open.iter().map(|open| open.span.start);
            stream.sealed.values().map(|it| it.span.start).chain(open).collect()
        };
        for segment in segments {
            let at = segment.plus(SegmentHead::WORDS as u64);
            let word = pm.load(at).unwrap();
            pm.store(at, word ^ 1 << 40).unwrap();
            let outcome = table.check();
            let is_it =
                matches!(outcome, Err(Error::Corrupt { at: byte, .. }) if byte == at.byte());
            assert!(is_it, "{segment:?}: {outcome:?}");
            pm.store(at, word).unwrap();
        }
        assert_eq!(table.check().unwrap().items, table.len().unwrap());
        table.sync().unwrap();
    }
}

#[test]
fn an_end_of_a_segment_that_cannot_be_one_is_damage() {
    // Fails if how far a segment counts is used before it is bounded, whoever says it: a commit
    // record, or a head behind the record. Of an end inside the head nobody would hear: the pairs
    // of the segment were just gone.
    // No epoch ends by itself.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..100u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    let newest = session.table().streams[0].0.lock().unwrap().open.unwrap();
    let boot = session.opening().boot;
    let opened = |words: &[u64]| {
        let medium = Image::<Std>::of(words, 8 * words.len() as u64, 1 << 20);
        open::<Reef, _>(Region::new(medium), boot, &Inline).map(|table| table.len().unwrap())
    };
    let killed = session.region().media().words();
    session.close().unwrap();
    let closed = session.region().media().words();
    assert_eq!((opened(&killed).unwrap(), opened(&closed).unwrap()), (100, 100));
    let head = SegmentHead::WORDS as u64;
    for fill in [0, 1, head - 1, newest.span.words + 1, (1 << 34) - 1] {
        let (mut by_head, mut by_record) = (killed.clone(), closed.clone());
        let tail_at = newest.span.start.plus(SegmentHead::TAIL as u64).word() as usize;
        by_head[tail_at] = Tail { words: fill, ended: Ended::Not }.word(newest.seal);
        for place in [0, 1] {
            let tail = layout::epoch_place(place).word() as usize + Epoch::TAILS;
            assert_eq!(by_record[tail], newest.sequence);
            forge(&mut by_record, tail + 1, fill, 0);
        }
        for words in [by_head, by_record] {
            let outcome = opened(&words);
            let said = "a segment ends behind its head and inside its units";
            let is_it = matches!(&outcome, Err(Error::Corrupt { at, broken })
                if *at == newest.span.start.byte() && *broken == said);
            assert!(is_it, "{fill} words: {outcome:?}");
        }
    }
}

#[test]
fn a_lost_commit_record_of_the_last_opening_is_damage() {
    // Fails if power loss and a damaged word of the newest record let an opening go on from the
    // record before: it would pass over every write of the opening between them.
    let mut session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
    (0..10u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.reopen().unwrap();
    (10..20u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    let mut words = session.region().media().words();
    let after_power = |words: &[u64]| {
        let medium = Image::of(words, 8 * words.len() as u64, 1 << 20);
        Session::<Immediate>::open_after_power(medium, Form::WORDS)
    };
    assert_eq!(after_power(&words).unwrap().table().len().unwrap(), 20);
    let [a, b] = [0, 1].map(|number| layout::epoch_place(number).word() as usize);
    let newest = if words[a + Epoch::NUMBER] > words[b + Epoch::NUMBER] { a } else { b };
    words[newest + Epoch::PAIRS] ^= 1;
    let outcome = after_power(&words).map(drop);
    assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
}

#[test]
fn relaxed_files_open_after_power_loss_as_they_were_closed() {
    // Fails if an opening whose fences did not reach the device is expected to have made its
    // commit record durable before it began segments.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    (0..10u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.close().unwrap();
    let closed = session.region().media().words();
    for domain in [Domain::Process, Domain::Adr] {
        let medium = Image::<Std>::of(&closed, 8 * closed.len() as u64, 1 << 20);
        let guarantees = Guarantees { domain, ..medium.guarantees() };
        let session = Session::<Reef>::open(medium.with_guarantees(guarantees), Form::WORDS);
        let session = session.unwrap();
        (10..110u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
        // The system wrote back what is behind the root, and not the root.
        let mut words = session.region().media().words();
        for at in [layout::epoch_place(0), layout::epoch_place(1)] {
            let at = at.word() as usize;
            words[at..at + Epoch::WORDS].copy_from_slice(&closed[at..at + Epoch::WORDS]);
        }
        let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
        match (Session::<Reef>::open_after_power(medium, Form::WORDS), domain) {
            (Ok(session), Domain::Process) => assert_eq!(session.table().len().unwrap(), 10),
            (Err(Error::Corrupt { .. }), Domain::Adr) => {}
            (outcome, _) => panic!("{domain:?}: {:?}", outcome.map(drop)),
        }
    }
}

/// Forges segments of the first stream, which begin at every unit behind those of a table and are
/// as long as the rest of the medium, and commit records that know of them.
fn forge_segments(words: &mut [u64], first_unit: usize, unit_words: usize) {
    let seed = layout::seed([words[Header::DATABASE], words[Header::DATABASE + 1]]);
    let units = words.len() / unit_words;
    for unit in first_unit..units {
        let at = Addr::new(8 * (unit * unit_words) as u64);
        let mut plain = [0; SegmentHead::TAIL];
        plain[SegmentHead::SEQUENCE] = 1000 + unit as u64;
        plain[SegmentHead::SIZE] = (units - unit) as u64;
        plain[SegmentHead::FLOOR] = 1;
        plain[SegmentHead::GENERATION] = 1;
        let stored = layout::stored_head(plain);
        let seal = layout::sum(&stored, at, seed);
        let tail = Tail { words: ((units - unit) * unit_words) as u64, ended: Ended::Followed };
        let head = &mut words[unit * unit_words..][..SegmentHead::WORDS];
        head[..SegmentHead::TAIL].copy_from_slice(&stored);
        head[SegmentHead::TAIL] = tail.word(seal);
        head[SegmentHead::CHECKSUM] = seal;
    }
    for number in [0, 1] {
        let tail = layout::epoch_place(number).word() as usize + Epoch::TAILS;
        forge(words, tail, 1000 + units as u64, 0);
    }
}

#[test]
fn p07_forged_segments_that_overlap_are_read_no_oftener_than_the_medium_is_long() {
    // Fails if a salvage reads all that each of many heads claims: of a file of some megabytes it
    // would not live to see the end.
    let session = Session::<Reef>::tiny(Form::WORDS, 256 << 10).unwrap();
    (0..100u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.table().sync().unwrap();
    let mut words = session.region().media().words();
    let bytes = 8 * words.len() as u64;
    let unit_words = session.table().unit_bytes as usize / 8;
    let used = session.region().media().bytes() as usize / 8 / unit_words;
    words.resize((256 << 10) / 8, 0);
    assert!(bytes <= 256 << 10);
    forge_segments(&mut words, used, unit_words);
    let medium = Image::<Std>::of(&words, 8 * words.len() as u64, 8 * words.len() as u64);
    let medium = Arc::new(medium.counted());
    let region: Region<Image> = Region::new(Arc::clone(&medium));
    let mut reports = 0;
    Reef::salvage(&region, Boot::default(), &mut |_, _| {}, &mut |_| reports += 1).unwrap();
    let times = medium.traffic().words_loaded / words.len() as u64;
    println!("the medium is read {times} times, {reports} reports");
    assert!(times < 30 && reports > 100, "{times} times, {reports} reports");
    assert!(matches!(
        Reef::check(&region, Boot::default(), &mut |_, _| {}),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn a_table_whose_epochs_cannot_be_numbered_any_more_says_so_and_stays_readable() {
    // Fails if a commit record is written that no opening accepts.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    (0..10u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.close().unwrap();
    let mut words = session.region().media().words();
    for place in [0, 1] {
        let at = layout::epoch_place(place).word() as usize + Epoch::NUMBER;
        let number = layout::MOST_EPOCHS - 8 + words[at] % 8;
        assert_eq!(number % 2, place);
        forge(&mut words, at, number, 0);
    }
    let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
    let mut session = Session::<Reef>::open(medium, Form::WORDS).unwrap();
    let outcome = (10..30u64).find_map(|key| {
        assert!(session.table().insert_word(key, 1).unwrap());
        session.table().sync().err()
    });
    assert!(matches!(outcome, Some(Error::Unsupported { .. })), "{outcome:?}");
    assert_eq!(session.table().epochs.lock().unwrap().number, layout::MOST_EPOCHS);
    let len = session.table().len().unwrap();
    assert_eq!(session.table().check().unwrap().items, len);
    assert!(matches!(session.kill(), Err(Error::Unsupported { .. })), "an opening is an epoch");
}

#[test]
fn after_a_failure_of_the_medium_every_operation_says_so() {
    // Fails if something is answered or written although nothing can be promised any more.
    let session = Session::<Reef>::tiny(Form::Variable, 1 << 20).unwrap();
    let (table, mut value) = (session.table(), Vec::new());
    assert!(!table.put(b"key", b"value").unwrap());
    table.dead.store(1, Ordering::Relaxed);
    let epoch = || table.epochs.lock().unwrap().number;
    let before = epoch();
    let answers = [
        table.get(b"key", &mut value).map(drop),
        table.get(b"absent", &mut value).map(drop),
        table.contains(b"key").map(drop),
        table.get_many(&[b"key"], &mut |_, _| {}),
        table.insert(b"key", b"other").map(drop),
        table.put(b"key", b"other").map(drop),
        table.update(b"key", b"other").map(drop),
        table.remove(b"key").map(drop),
        table.modify(b"key", &mut |_| Change::Remove),
        table.put_many(&[(b"key", b"other")]).map(drop),
        table.atomic().unwrap().write_all(&[(b"key", None)]),
        table.scan(Cursor::default(), &mut |_, _| {}).map(drop),
        table.clear(),
        table.sync(),
        table.commit_epoch(),
        table.bound_pending(0),
        table.age_epoch(Duration::MAX, Duration::ZERO).map(drop),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::Poisoned)), "{number}: {answer:?}");
    }
    assert_eq!(epoch(), before);
}

#[test]
fn salvage_brings_no_older_value_back_where_the_key_of_the_newest_can_be_read() {
    // Fails if an object with a damaged value costs only itself: the value before it would come
    // back. And if power loss, which may have torn what no epoch knows, costs the pair before it.
    let settings = ReefSettings { flush_bytes: 1 << 20, streams: 1, ..ReefSettings::tiny() };
    for form in super::FORMS {
        let (medium, shape) = (Image::new(0, 256 << 10), Shape::tiny(form));
        let session = Session::<Reef>::create(medium, form, &settings).unwrap();
        let open = || session.table().streams[0].0.lock().unwrap().open.unwrap();
        let (key, values) = (shape.key(1), [1, 2].map(|value| shape.value(value)));
        assert!(session.table().insert(&key, &values[0]).unwrap());
        session.table().sync().unwrap();
        assert!(session.table().update(&key, &values[1]).unwrap());
        let last = open().span.start.plus(open().fill - 1);
        let salvaged = |boot| {
            let mut words = session.region().media().words();
            words[last.word() as usize] ^= 1;
            let bytes = 8 * words.len() as u64;
            let region = Region::<Image>::new(Image::of(&words, bytes, bytes));
            let (mut pairs, mut reports) = (Vec::new(), 0);
            let mut visit = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
            Reef::salvage(&region, boot, &mut visit, &mut |_| reports += 1).unwrap();
            (pairs, reports)
        };
        let after_power = vec![(key.clone(), values[0].clone())];
        assert_eq!(salvaged(Boot::default()), (after_power, 0), "{form}");
        session.table().sync().unwrap();
        assert_eq!(salvaged(Boot::default()), (Vec::new(), 1), "{form}");
        assert_eq!(salvaged(session.opening().boot), (Vec::new(), 1), "{form}");
    }
}

#[test]
fn salvage_of_a_killed_process_reports_a_damaged_object_and_goes_on_behind_it() {
    // Fails if damage in what no epoch has made durable counts as the end of what was written: all
    // behind it would be left out, and nobody told.
    // No epoch ends by itself.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 256 << 10);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..500u64).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    session.kill_unsynced().unwrap();
    (500..1000u64).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    let open = session.table().streams[0].0.lock().unwrap().open.unwrap();
    let mut words = session.region().media().words();
    let region_of = |words: &[u64]| {
        let bytes = 8 * words.len() as u64;
        Region::<Image>::new(Image::of(words, bytes, bytes))
    };
    let (same, other) = (session.opening().boot, Boot::default());
    let salvaged = |words: &[u64], boot| {
        let (mut pairs, mut reports) = (0, Vec::new());
        let mut report = |error| reports.push(error);
        Reef::salvage(&region_of(words), boot, &mut |_, _| pairs += 1, &mut report).unwrap();
        (pairs, reports)
    };
    let checked = |words: &[u64], boot| Reef::check(&region_of(words), boot, &mut |_, _| {});
    for boot in [same, other] {
        assert!(matches!(salvaged(&words, boot), (1000, reports) if reports.is_empty()));
    }
    assert_eq!(checked(&words, same).unwrap().items, 1000);
    // An opening takes back what is in no epoch, whatever of it is there.
    assert_eq!(checked(&words, other).unwrap().items, 500);
    let first = open.span.start.plus(SegmentHead::WORDS as u64);
    words[first.word() as usize] ^= 1 << 40;
    // Power loss might have left just this.
    assert_eq!(checked(&words, other).unwrap().items, 500);
    // A killed process does not.
    let outcome = checked(&words, same);
    assert!(matches!(outcome, Err(Error::Corrupt { at, .. }) if at == first.byte()), "{outcome:?}");
    for boot in [same, other] {
        let (pairs, reports) = salvaged(&words, boot);
        assert_eq!(pairs, 999);
        assert!(
            matches!(reports[..], [Error::Corrupt { at, .. }] if at == first.byte()),
            "{reports:?}"
        );
    }
}

#[test]
fn an_immediate_write_of_a_killed_process_is_lost_by_damage_behind_the_commit_record_alone() {
    // Fails if what an epoch made durable is looked for like what lies behind it, where the first
    // damaged object ends the log: damage there would cost pairs, and nobody would be told.
    // All objects lie in one unit.
    let settings =
        ReefSettings { durability: 1, streams: 1, segment_bytes: 64 << 10, ..ReefSettings::tiny() };
    let medium = Image::new(0, 256 << 10);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..10u64).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    session.table().commit_epoch().unwrap();
    (10..20u64).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    let newest = session.table().streams[0].0.lock().unwrap().open.unwrap();
    assert_eq!(newest.fill, SegmentHead::WORDS as u64 + 20 * 3);
    let (boot, whole) = (session.opening().boot, session.region().media().words());
    let with_damage = |number: u64| {
        let (mut words, object) = (whole.clone(), SegmentHead::WORDS as u64 + 3 * number);
        words[newest.span.start.plus(object).word() as usize] ^= 1 << 40;
        let bytes = 8 * words.len() as u64;
        let region = || Region::<Image>::new(Image::of(&words, bytes, bytes));
        let checked = Reef::check(&region(), boot, &mut |_, _| {}).map(|checked| checked.items);
        let opened = open::<Reef, _>(region(), boot, &Inline).map(|table| table.len().unwrap());
        let (mut salvaged, mut reports) = (0, 0);
        Reef::salvage(&region(), boot, &mut |_, _| salvaged += 1, &mut |_| reports += 1).unwrap();
        (checked, opened, (salvaged, reports))
    };
    let (checked, opened, salvaged) = with_damage(15);
    assert!(matches!((checked, opened), (Ok(15), Ok(15))));
    assert_eq!(salvaged, (19, 1));
    let (checked, opened, salvaged) = with_damage(5);
    assert!(matches!(checked, Err(Error::Corrupt { .. })), "{checked:?}");
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    assert_eq!(salvaged, (19, 1));
}

#[test]
fn after_power_loss_a_check_counts_what_an_opening_finds() {
    // Fails if a check counts writes behind the commit record that an opening takes back: of
    // batches all, of immediate writes those of an atomic batch and what is behind it.
    for durability in [0, 1] {
        // No epoch ends by itself.
        let settings = ReefSettings { durability, flush_bytes: 1 << 20, ..ReefSettings::tiny() };
        let medium = Image::new(0, 1 << 20);
        let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
        let table = session.table();
        let counts = |words: &[u64]| {
            let medium = || Image::of(words, 8 * words.len() as u64, 1 << 20);
            let (region, boot) = (Region::<Image>::new(medium()), Boot::default());
            let checked = Reef::check(&region, boot, &mut |_, _| {}).unwrap().items;
            let mut salvaged = 0;
            Reef::salvage(&region, boot, &mut |_, _| salvaged += 1, &mut |it| panic!("{it}"))
                .unwrap();
            let opened = Session::<Reef>::open_after_power(medium(), Form::WORDS).unwrap();
            (checked, opened.table().len().unwrap(), salvaged)
        };
        (0..10u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
        table.sync().unwrap();
        (10..30u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
        assert!(table.remove_word(0).unwrap());
        let before = session.region().media().words();
        let count = if durability == 0 { 10 } else { 29 };
        assert_eq!(counts(&before), (count, count, 29), "durability {durability}");
        let keys: Vec<[u8; 8]> = (30..40u64).map(u64::to_le_bytes).collect();
        let writes: Vec<(&[u8], Option<&[u8]>)> =
            keys.iter().map(|key| (&key[..], Some(&[1; 8][..]))).collect();
        table.atomic().unwrap().write_all(&writes).unwrap();
        (40..50u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
        // Its commit record was lost.
        let mut words = session.region().media().words();
        for at in [layout::epoch_place(0), layout::epoch_place(1)] {
            let at = at.word() as usize;
            words[at..at + Epoch::WORDS].copy_from_slice(&before[at..at + Epoch::WORDS]);
        }
        let (checked, opened, salvaged) = counts(&words);
        assert_eq!((checked, salvaged), (opened, 49), "durability {durability}");
        assert!((count..39).contains(&checked), "durability {durability}: {checked}");
    }
}

#[test]
fn after_a_failure_of_the_medium_no_word_is_answered() {
    // Fails if one of the ways to words asks less than that to byte strings.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, mut values) = (session.table(), [None; 2]);
    assert!(table.insert_word(1, 1).unwrap());
    table.dead.store(1, Ordering::Relaxed);
    let answers = [
        table.get_word(1).map(drop),
        table.get_word(2).map(drop),
        table.get_words(&[1, 1], &mut values),
        table.insert_word(2, 2).map(drop),
        table.put_word(1, 2).map(drop),
        table.update_word(1, 2).map(drop),
        table.remove_word(1).map(drop),
        table.scan_past(Cursor::default()).map(drop),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::Poisoned)), "{number}: {answer:?}");
    }
}

#[test]
fn a_leaf_is_split_by_no_damaged_key() {
    // Fails if damage passes for a key when tags need fresh bits: the pair would lie in a leaf in
    // which nobody looks for it.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, pm) = (session.table(), session.region().access());
    (0..100u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    let first = table.streams[0].0.lock().unwrap().sealed.first_key_value().unwrap().1.span.start;
    let at = first.plus(SegmentHead::WORDS as u64);
    let mut pairs = [(0, at), (0, at.plus(3))];
    table.rehash(&pm, &mut pairs).unwrap();
    let keys = [1, 4].map(|word| pm.load(at.plus(word)).unwrap().to_le_bytes());
    assert_eq!(pairs.map(|(hash, _)| hash), keys.map(|key| table.hash(&key)));
    pm.store(at.plus(4), !pm.load(at.plus(4)).unwrap()).unwrap();
    let outcome = table.rehash(&pm, &mut pairs);
    let damaged = at.plus(3).byte();
    assert!(matches!(outcome, Err(Error::Corrupt { at, .. }) if at == damaged), "{outcome:?}");
}

/// Returns a table without epochs that end by themselves, with a hundred pairs.
fn without_epochs(durability: u64) -> Session<Reef> {
    let settings = ReefSettings { durability, flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..100u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session
}

/// Returns for each full segment of a stream, in their order, where it begins, its checksum, and
/// how many pairs it has; and where the newest one begins.
fn segments_of(session: &Session<Reef>, stream: usize) -> (Vec<(Addr, u64, u64)>, Addr) {
    let stream = session.table().streams[stream].0.lock().unwrap();
    let pairs = |fill: u64| (fill - SegmentHead::WORDS as u64) / 3;
    let sealed = stream.sealed.values().map(|it| (it.span.start, it.seal, pairs(it.fill)));
    (sealed.collect(), stream.open.unwrap().span.start)
}

/// Returns words of a pool in which the segment that begins at `at` has no head.
fn without_segment(words: &[u64], at: Addr) -> Vec<u64> {
    let mut words = words.to_vec();
    words[at.word() as usize + SegmentHead::CHECKSUM] ^= 1;
    words
}

/// Returns how many pairs an opening, and a check, finds in words of a pool.
fn counts(words: &[u64], boot: Boot) -> [everhash_index::Result<u64>; 2] {
    let region = || Region::<Image>::new(Image::of(words, 8 * words.len() as u64, 1 << 20));
    let opened = open::<Reef, _>(region(), boot, &Inline).map(|table| table.len().unwrap());
    let checked = Reef::check(&region(), boot, &mut |_, _| {}).map(|checked| checked.items);
    [opened, checked]
}

fn are_damage(counts: &[everhash_index::Result<u64>]) -> bool {
    counts.iter().all(|count| matches!(count, Err(Error::Corrupt { .. })))
}

#[test]
fn a_segment_of_a_killed_process_that_is_gone_is_damage() {
    // Fails if an opening or a check goes on behind a segment that is missing, or takes the one
    // before it for the last: the pairs of a damaged head were just gone.
    for durability in [0, 1] {
        let session = without_epochs(durability);
        let (boot, whole) = (session.opening().boot, session.region().media().words());
        assert!(counts(&whole, boot).iter().all(|count| matches!(count, Ok(100))));
        let (full, newest) = segments_of(&session, 0);
        assert!(full.len() > 2);
        for at in full.iter().map(|(at, ..)| *at).chain([newest]) {
            let counts = counts(&without_segment(&whole, at), boot);
            assert!(are_damage(&counts), "durability {durability}, {at:?}: {counts:?}");
        }
    }
}

#[test]
fn after_power_loss_immediate_writes_count_before_the_first_segment_that_is_gone() {
    // Fails if those behind a gap count: what is older than they are would be missing.
    let settings = ReefSettings { durability: 1, streams: 1, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..100u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    let (full, _) = segments_of(&session, 0);
    let whole = session.region().media().words();
    assert!(full.len() > 3);
    for gone in 0..full.len() {
        let before: u64 = full[..gone].iter().map(|(.., pairs)| pairs).sum();
        let [opened, checked] = counts(&without_segment(&whole, full[gone].0), Boot::default());
        assert_eq!((opened.unwrap(), checked.unwrap()), (before, before), "segment {gone}");
    }
}

#[test]
fn what_power_loss_took_never_comes_back() {
    // Fails if segments behind the commit record are left as they are: to the process after the
    // next one they would look like its own.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..10u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.table().sync().unwrap();
    (10..100u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    let words = session.region().media().words();
    let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
    let mut session = Session::<Reef>::open_after_power(medium, Form::WORDS).unwrap();
    for round in 0..3 {
        let table = session.table();
        assert_eq!((table.len().unwrap(), table.check().unwrap().items), (10 + round, 10 + round));
        session.kill_unsynced().unwrap();
        let table = session.table();
        assert_eq!((table.len().unwrap(), table.check().unwrap().items), (10 + round, 10 + round));
        assert!(table.insert_word(50 + round, 2).unwrap());
    }
}

#[test]
fn a_full_segment_that_has_not_ended_is_damage() {
    // Fails if the end of a segment is believed that was stored before its last objects, and that
    // no crash leaves behind a commit record which knows of the next segment.
    let mut session = without_epochs(0);
    let (full, _) = segments_of(&session, 0);
    session.close().unwrap();
    let whole = session.region().media().words();
    for boot in [session.opening().boot, Boot::default()] {
        assert!(counts(&whole, boot).iter().all(|count| matches!(count, Ok(100))));
        for (at, seal, _) in &full {
            let mut words = whole.clone();
            let tail = Tail { words: SegmentHead::WORDS as u64 + 3, ended: Ended::Not };
            words[at.word() as usize + SegmentHead::TAIL] = tail.word(*seal);
            let counts = counts(&words, boot);
            assert!(are_damage(&counts), "{at:?}: {counts:?}");
        }
    }
}

#[test]
fn a_segment_of_a_closed_table_that_is_gone_is_damage() {
    // Fails if nobody counts the segments of which a commit record knows.
    let mut session = without_epochs(0);
    let (full, _) = segments_of(&session, 0);
    session.close().unwrap();
    let whole = session.region().media().words();
    for (at, ..) in full {
        let counts = counts(&without_segment(&whole, at), session.opening().boot);
        assert!(are_damage(&counts), "{at:?}: {counts:?}");
    }
}

#[test]
fn a_length_that_leads_out_of_a_segment_is_damage() {
    // Fails if an opening waits for the end of an object that is none.
    // No checkpoint stands for it.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let mut session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    (0..60u8).for_each(|key| assert!(!session.table().put(&[key], &[7; 60]).unwrap()));
    let (full, _) = segments_of(&session, 0);
    let boot = session.opening().boot;
    let killed = session.region().media().words();
    session.close().unwrap();
    for mut words in [killed, session.region().media().words()] {
        // The value has eight mebibytes more.
        words[full[1].0.word() as usize + SegmentHead::WORDS + 1] ^= 1 << 55;
        let counts = counts(&words, boot);
        assert!(are_damage(&counts), "{counts:?}");
    }
}

#[test]
fn a_head_that_no_segment_can_have_is_damage() {
    // Fails if a length, a stream or a number of a segment is used before it is bounded, or if
    // nobody looks at the last unit of the medium.
    const MOST_SEGMENTS: u64 = 1 << 52;
    let mut session = without_epochs(0);
    let (unit_words, seed) = (session.table().unit_bytes as usize / 8, session.table().seed);
    session.close().unwrap();
    let mut whole = session.region().media().words();
    whole.resize(whole.len() / unit_words * unit_words + unit_words, 0);
    let first = whole.len() - unit_words;
    let with_head = |units, stream, sequence| {
        let (mut words, mut plain) = (whole.clone(), [0; SegmentHead::TAIL]);
        plain[SegmentHead::SEQUENCE] = sequence;
        plain[SegmentHead::SIZE] = units | stream << 32;
        plain[SegmentHead::FLOOR] = 1;
        let (at, stored) = (Addr::new(8 * first as u64), layout::stored_head(plain));
        words[first..][..SegmentHead::TAIL].copy_from_slice(&stored);
        words[first + SegmentHead::CHECKSUM] = layout::sum(&stored, at, seed);
        counts(&words, session.opening().boot)
    };
    assert!(counts(&whole, session.opening().boot).iter().all(|count| matches!(count, Ok(100))));
    for (units, stream) in [(0, 0u64), (2, 0), (u64::from(u32::MAX), 0), (1, 2), (1, 1 << 31)] {
        let counts = with_head(units, stream, 1000);
        assert!(are_damage(&counts), "{units} units of stream {stream}: {counts:?}");
    }
    for sequence in [0, MOST_SEGMENTS + 1, u64::MAX] {
        let [opened, _] = with_head(1, 0, sequence);
        assert!(are_damage(&[opened]), "segment {sequence}");
    }
}

#[test]
fn a_commit_record_that_cannot_be_one_does_not_count() {
    // Fails if a number is believed that belongs to the other place, where the next record would
    // take the place of the one before; or if segments are numbered until there is no next number.
    let mut session = without_epochs(0);
    session.close().unwrap();
    let whole = session.region().media().words();
    let number_at = |place| layout::epoch_place(place).word() as usize + Epoch::NUMBER;
    let newest = [0, 1].into_iter().max_by_key(|place| whole[number_at(*place)]).unwrap();
    let number = whole[number_at(newest)];
    let opened = |words: &[u64]| {
        let medium = Image::of(words, 8 * words.len() as u64, 1 << 20);
        Session::<Reef>::open(medium, Form::WORDS)
    };
    let epoch = |session: Session<Reef>| session.table().epochs.lock().unwrap().number;
    assert_eq!(epoch(opened(&whole).unwrap()), number + 1);
    let mut words = whole.clone();
    forge(&mut words, number_at(newest), number + 1, 0);
    assert_eq!(epoch(opened(&words).unwrap()), number, "from the record before");
    let mut words = whole;
    for place in [0, 1] {
        forge(&mut words, layout::epoch_place(place).word() as usize + Epoch::TAILS, u64::MAX, 0);
    }
    let outcome = opened(&words).map(drop);
    assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
}

#[test]
fn a_forged_size_of_the_directory_takes_no_more_memory_than_the_medium() {
    // Fails if a number of buckets, or of pairs, is believed.
    let mut session = without_epochs(0);
    session.close().unwrap();
    let whole = session.region().media().words();
    let root = layout::ROOT.word() as usize;
    let pairs = [0, 1].map(|place| layout::epoch_place(place).word() as usize + Epoch::PAIRS);
    for forged in [vec![(root + Root::BUCKETS, 1 << 28)], pairs.map(|at| (at, 1 << 40)).to_vec()] {
        let mut words = whole.clone();
        forged.into_iter().for_each(|(at, value)| forge(&mut words, at, value, 0));
        let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
        let session = Session::<Reef>::open(medium, Form::WORDS).unwrap();
        assert_eq!(session.table().len().unwrap(), 100);
        let dram = session.table().stats().unwrap().dram_bytes;
        assert!(dram < 1 << 20, "{dram} bytes of memory");
    }
}

#[test]
fn a_damaged_commit_record_of_a_process_that_ended_is_no_reason_to_go_on_from_the_one_before() {
    // Fails if an opening or a check falls back although no power was lost: the record before knows
    // nothing of what came since.
    let mut session = without_epochs(0);
    session.close().unwrap();
    let whole = session.region().media().words();
    let number_at = |place| layout::epoch_place(place).word() as usize + Epoch::NUMBER;
    let newest = [0, 1].into_iter().max_by_key(|place| whole[number_at(*place)]).unwrap();
    let at = layout::epoch_place(newest).word() as usize + Epoch::SEGMENTS;
    let mut words = whole.clone();
    forge(&mut words, at, whole[at] + 1, 0);
    let counts = counts(&words, session.opening().boot);
    assert!(are_damage(&counts), "{counts:?}");
}

#[test]
fn two_segments_of_one_number_are_damage() {
    // Fails if one of them is taken for the other: its pairs were just gone.
    let session = without_epochs(0);
    let (unit_words, seed) = (session.table().unit_bytes as usize / 8, session.table().seed);
    let sequence = session.table().streams[0].0.lock().unwrap().last.sequence;
    let (boot, mut words) = (session.opening().boot, session.region().media().words());
    words.resize(words.len() / unit_words * unit_words + unit_words, 0);
    let first = words.len() - unit_words;
    let mut plain = [0; SegmentHead::TAIL];
    plain[SegmentHead::SEQUENCE] = sequence;
    plain[SegmentHead::SIZE] = 1;
    plain[SegmentHead::FLOOR] = 1;
    let (at, stored) = (Addr::new(8 * first as u64), layout::stored_head(plain));
    let seal = layout::sum(&stored, at, seed);
    words[first..][..SegmentHead::TAIL].copy_from_slice(&stored);
    let tail = Tail { words: SegmentHead::WORDS as u64, ended: Ended::Not };
    words[first + SegmentHead::TAIL] = tail.word(seal);
    assert!(
        counts(&words, boot).iter().all(|count| matches!(count, Ok(100))),
        "it has no checksum"
    );
    words[first + SegmentHead::CHECKSUM] = seal;
    let counts = counts(&words, boot);
    let said = "no two segments of a stream have one number";
    for count in counts {
        assert!(matches!(count, Err(Error::Corrupt { broken, .. }) if broken == said), "{count:?}");
    }
}

#[test]
fn a_key_in_a_stream_that_is_not_its_own_is_damage() {
    // Fails if it is looked for where its stream says: the order of two streams is not known.
    let session = without_epochs(0);
    let table = session.table();
    let key = (1000..).find(|key: &u64| table.shard(table.hash(&key.to_le_bytes())).1 == 0);
    let key = key.unwrap().to_le_bytes();
    let (pm, boot) = (session.region().access(), session.opening().boot);
    let object = Object { kind: Kind::Put, key: &key, value: &key, behind: Addr::NULL };
    table.append(&pm, 0, Purpose::Add, &object).unwrap();
    let found = counts(&session.region().media().words(), boot);
    assert!(found.iter().all(|count| matches!(count, Ok(101))), "{found:?}");
    table.append(&pm, 1, Purpose::Add, &object).unwrap();
    let found = counts(&session.region().media().words(), boot);
    assert!(are_damage(&found), "{found:?}");
}

#[test]
fn an_empty_table_believes_no_number_of_a_segment_that_there_never_is() {
    // Fails if segments are numbered on from the last number that there is.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    session.close().unwrap();
    let mut words = session.region().media().words();
    for place in [0, 1] {
        forge(&mut words, layout::epoch_place(place).word() as usize + Epoch::TAILS, u64::MAX, 0);
    }
    let [opened, _] = counts(&words, session.opening().boot);
    assert!(are_damage(&[opened]));
}

#[test]
fn a_check_counts_no_batch_that_power_loss_took() {
    // Fails if the record of a batch counts for a later opening than its own.
    let session = without_epochs(0);
    session.table().sync().unwrap();
    let keys: Vec<_> = (200..204u64).map(u64::to_le_bytes).collect();
    let writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&key[..]))).collect();
    session.table().atomic().unwrap().write_all(&writes).unwrap();
    let words = session.region().media().words();
    let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
    let session = Session::<Reef>::open_after_power(medium, Form::WORDS).unwrap();
    let found = counts(&session.region().media().words(), session.opening().boot);
    assert!(found.iter().all(|count| matches!(count, Ok(100))), "{found:?}");
    assert_eq!(session.table().check().unwrap().items, 100);
}

#[test]
fn after_power_loss_a_check_passes_over_what_is_left_of_a_segment() {
    // Fails if the room behind the last object of a full segment is taken for damage because the
    // next segment has objects: of some lengths there is always some left.
    let settings = ReefSettings { durability: 1, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let session = Session::<Reef>::create(medium, Form::DOUBLE_WORDS, &settings).unwrap();
    (0..60u8).for_each(|key| assert!(!session.table().put(&[key; 16], &[key; 16]).unwrap()));
    let found = counts(&session.region().media().words(), Boot::default());
    assert!(found.iter().all(|count| matches!(count, Ok(60))), "{found:?}");
}

#[test]
fn settings_that_no_table_has_are_damage_for_a_check_as_for_an_opening() {
    // Fails if a check looks for the ends of more streams than a commit record has room for, or for
    // segments that are longer than any medium.
    let mut session = without_epochs(0);
    session.close().unwrap();
    let whole = session.region().media().words();
    for (setting, value) in [(Root::STREAMS, 64), (Root::SEGMENT_BYTES, 1 << 41)] {
        let mut words = whole.clone();
        forge(&mut words, layout::ROOT.word() as usize + setting, value, 0);
        for count in counts(&words, session.opening().boot) {
            let at_root =
                matches!(count, Err(Error::Corrupt { at, .. }) if at == layout::ROOT.byte());
            assert!(at_root, "{setting}: {count:?}");
        }
    }
}
