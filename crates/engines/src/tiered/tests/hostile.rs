//! Pools that somebody forged who knows the format: no panic, no hang, no memory without bound.

use core::ops::Range;
use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Design, Error, Form, Inline, Opening, Table, WordTable, open};
use everhash_pmem::{Addr, AllocationMeter, Counted, Image, LINE, Region, Std, WORD};
use everhash_testkit::hostile::{Effort, judge};
use everhash_testkit::session::Session;
use everhash_testkit::settle;

use crate::common::record;
use crate::common::settings::checksum;
use crate::tiered::layout::{
    self, BUCKET_BYTES, Head, LINE_WORDS, Line, Listed, PLACES, Place, ROOT, Root,
};
use crate::tiered::{Tiered, TieredSettings, TieredTable, check};

/// Stores a value with the checks that the engine would have stored with it.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * WORD), ROOT.word() as usize);
    if (root..root + Root::CHECKSUM).contains(&index) {
        words[index] = value;
        words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
        return;
    }
    let line = Addr::new(at.line() * LINE);
    match kind % 5 {
        0 => {
            let place = Place::new(Addr::new(value % (1 << 33) * 2 * LINE), value as u32 % 41);
            words[index] = Listed::Live(place).encode(at);
        }
        1 => words[index] = layout::seal_link(Addr::new(value % (1 << 48) * LINE), line),
        2 => {
            let states = [0, 16, 32].map(|shift| (value >> shift) as u16);
            let head = states.iter().enumerate();
            let head = head.fold(Head::EMPTY, |head, (slot, state)| head.with(slot, *state));
            words[index] = head.encode(line);
        }
        // A record word behind its hash.
        3 => {
            let tag = u64::from(record::tag_of(words[index - 1], value));
            words[index] = value & (u64::MAX >> 12) | tag << 52;
        }
        // A link to a line of the pool: round in a circle, or into another bucket.
        _ => {
            let lines = (words.len() / LINE_WORDS) as u64;
            words[index] = layout::seal_link(Addr::new(value % lines * LINE), line);
        }
    }
}

#[test]
fn p07_a_forged_pool_costs_no_panic_no_hang_and_no_memory() {
    // Fails if a number from the medium is used before it is bounded, checks or none.
    for form in super::FORMS {
        let effort = Effort { forge: Some(forge), images: 1000, ..Effort::default() };
        let report = judge(&Design::of::<Tiered>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.images > 1000 && report.opened > 100, "{form}: {report}");
    }
}

#[test]
fn p07_a_record_to_which_everything_leads_is_kept_once() {
    // Fails if a check keeps the value of a copy before it knows that its key is not in the layer
    // yet: one long record, and lines that are full of its address, would fill the memory.
    const LINES: u64 = 40;
    let settings = TieredSettings { line_slots: 3, ..TieredSettings::tiny() };
    let medium = Image::<Std>::new(0, 4 << 20);
    let mut session = Session::<Tiered>::create(medium, Form::Variable, &settings).unwrap();
    assert!(session.table().insert(b"key", &[1; 1 << 20]).unwrap());
    let region = session.region().clone();
    session.close().unwrap();
    let mut words = region.media().words();
    let at = |index: usize| Addr::new(index as u64 * WORD);
    // The only line with a pair, in whatever layer.
    let layers = (0..PLACES).map(layout::place_at).filter_map(|at| {
        match Listed::decode(words[at.word() as usize], at)? {
            Listed::Live(place) => Some(place),
            Listed::Dropped | Listed::Unused => None,
        }
    });
    let lines = layers.flat_map(|place| {
        (0..place.buckets()).flat_map(move |index| {
            let home = place.bucket(index).word() as usize;
            [(home, home), (home, home + LINE_WORDS)]
        })
    });
    let state = |line: usize| {
        let head = Head::decode(words[line + Line::HEAD], at(line)).unwrap();
        let slot = (0..3).find(|slot| head.state(*slot) != 0)?;
        let word = line + layout::slot_word(slot);
        Some((head.state(slot), [words[word], words[word + 1]]))
    };
    let (home, (state, pair)) =
        lines.filter_map(|(home, line)| Some((home, state(line)?))).next().unwrap();
    // Overflow lines behind all that is there; the second line of a bucket leads to them.
    let mut before = home + LINE_WORDS;
    for _ in 0..LINES {
        let line = words.len().next_multiple_of(LINE_WORDS);
        words[before + Line::LINK] = layout::seal_link(at(line), at(before));
        words.resize(line + LINE_WORDS, 0);
        words[line + Line::LINK] = layout::seal_link(Addr::NULL, at(line));
        let head = (0..3).fold(Head::EMPTY, |head, slot| head.with(slot, state));
        words[line + Line::HEAD] = head.encode(at(line));
        (0..3).for_each(|slot| words[line + layout::slot_word(slot)..][..2].copy_from_slice(&pair));
        before = line;
    }
    let bytes = words.len() as u64 * WORD;
    let region = Region::new(Counted::new(Image::<Std>::of(&words, bytes, bytes)));
    let (checked, peak_bytes) =
        AllocationMeter::measure(|| check::check(&region, &mut |_, _| {}).map(drop));
    assert!(matches!(checked, Err(Error::Corrupt { .. })), "{checked:?}");
    assert!(peak_bytes < 4 * bytes, "{peak_bytes} for a file of {bytes}");
    let (mut found, mut reports) = (0, 0);
    let (salvaged, peak_bytes) = AllocationMeter::measure(|| {
        check::salvage(&region, &mut |_, _| found += 1, &mut |_| reports += 1)
    });
    salvaged.unwrap();
    assert_eq!((found, reports), (1, 3 * LINES));
    // Nor may it be read for each slot.
    let loaded = region.media().traffic().words_loaded * WORD;
    assert!(loaded < 4 * bytes, "{loaded} bytes read of {bytes}");
    assert!(peak_bytes < 4 * bytes, "{peak_bytes} for a file of {bytes}");
}

#[test]
fn p07_an_open_reads_each_line_a_few_times_however_long_the_chains_are() {
    // Fails if the chain of a bucket is walked once for each slot further down.
    let settings = TieredSettings {
        top_pages: 1,
        page_bytes: BUCKET_BYTES,
        line_slots: 3,
        movement: 0,
        ..TieredSettings::tiny()
    };
    let medium = Image::<Std>::new(0, 1 << 20);
    let mut session = Session::<Tiered>::create(medium, Form::WORDS, &settings).unwrap();
    let TieredTable::Words(table) = session.table() else { panic!("the form is words") };
    let insert = |keys: Range<u64>| {
        keys.for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    };
    // Chains in the bottom layer, which becomes the top one.
    table.grow_at.store(u64::MAX, Ordering::Relaxed);
    insert(0..2000);
    table.grow_at.store(0, Ordering::Relaxed);
    let begun = (2000..4000).find(|key| {
        insert(*key..key + 1);
        table.layers.draining()
    });
    table.grow_at.store(u64::MAX, Ordering::Relaxed);
    settle(session.table(), Duration::ZERO, 1000).unwrap();
    assert_eq!((table.layers.view().first(), table.layers.draining()), (1, false));
    insert(begun.unwrap() + 1..4000);
    let lines = table.overflowed.load(Ordering::Relaxed);
    assert!(lines > 1200, "{lines}");
    let region = session.region().clone();
    session.close().unwrap();
    let words = region.media().words();
    let bytes = words.len() as u64 * WORD;
    let region = Region::new(Counted::new(Image::<Std>::of(&words, bytes, bytes)));
    let opened = open::<Tiered, _>(region.clone(), Opening::default().boot, &Inline).unwrap();
    assert_eq!(opened.len().unwrap(), 4000);
    let loaded = region.media().traffic().words_loaded;
    println!("{lines} lines, {loaded} words loaded");
    assert!(loaded < 40 * lines, "{loaded} words of {lines} lines");
}
