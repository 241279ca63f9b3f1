//! How much may be lost, and what a write costs: counted, not timed.

use core::time::Duration;
use std::sync::Arc;

use everhash_index::{Engine, Form, Inline, Opening, Table, create, open};
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Boot, Domain, Guarantees, Image, Region, Std, Traffic};

use crate::walsh::layout::{AreaRecord, ROOT, Root, area_record};
use crate::walsh::{Walsh, WalshSettings, WalshTable};

const MEMORY: Guarantees =
    Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 };
const FILE: Guarantees =
    Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };

/// Bytes of the object of a pair of words.
const PAIR_BYTES: u64 = 24;

/// A few areas, and logs that hold as many objects as usual.
const SETTINGS: WalshSettings = WalshSettings {
    areas: 8,
    directories: 512,
    block_directories: 32,
    log_entries: 256,
    log_bytes: 6144,
    threshold: 4,
    durability: 0,
    flush_interval_ms: 5000,
    flush_bytes: 8 * 6144,
    epochs: 0,
    resize: 2,
};

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// A table on a medium that remembers what is durable.
struct Mortal {
    region: Region<Traced>,
    table: WalshTable<Traced>,
    memory: Memory,
}

impl Mortal {
    fn new(model: Model, settings: &WalshSettings) -> Mortal {
        let region = Region::new(Traced::<Std>::new(model, 0, 8 << 20));
        let opening = Opening::default();
        let table = create::<Walsh, _>(region.clone(), &opening, settings, &Inline).unwrap();
        Mortal { region, table, memory: Memory::zero(model, 0) }
    }

    fn insert(&self, numbers: core::ops::Range<u64>) {
        for number in numbers {
            assert!(self.table.insert(&key(number), &number.to_le_bytes()).unwrap());
        }
    }

    /// Returns how many pairs are left if the power fails now and no cache line was written back
    /// by chance: a check says so before the pool is opened.
    fn survivors(&mut self) -> u64 {
        self.note();
        let region = self.image(self.memory.durable());
        let checked = at_rest(&region);
        let table = open::<Walsh, _>(region, Boot([1, 2]), &Inline).unwrap();
        let items = table.len().unwrap();
        assert_eq!(checked, AtRest { checked: items, salvaged: items, reports: 0 });
        items
    }

    /// Takes over what happened on the medium.
    fn note(&mut self) {
        for event in self.region.media().take_log().events() {
            self.memory.apply(event);
        }
    }

    /// Returns a medium with some words.
    fn image(&self, words: &[u64]) -> Region<Image> {
        let bytes = words.len() as u64 * 8;
        let guarantees = self.memory.model().guarantees();
        Region::new(Image::<Std>::of(words, bytes, bytes).with_guarantees(guarantees))
    }
}

/// What is said of a pool that nobody has opened since its end.
#[derive(PartialEq, Eq, Debug)]
struct AtRest {
    checked: u64,
    salvaged: u64,
    reports: u64,
}

fn at_rest(region: &Region<Image>) -> AtRest {
    let (mut visited, mut salvaged, mut reports) = (0, 0, 0);
    let checked = Walsh::check(region, Boot::default(), &mut |_, _| visited += 1).unwrap().items;
    assert_eq!(visited, checked);
    Walsh::salvage(region, Boot::default(), &mut |_, _| salvaged += 1, &mut |_| reports += 1)
        .unwrap();
    AtRest { checked, salvaged, reports }
}

#[test]
fn what_power_loss_leaves_is_sound_before_it_is_opened() {
    // Fails if a check, or a salvage, of a pool that lost power reads what was visible of it, or
    // passes over writes that are found by their seals: `survivors` compares with an open.
    for model in [Model::Adr, Model::File] {
        for durability in [0, 1] {
            let mut mortal = Mortal::new(model, &WalshSettings { durability, ..SETTINGS });
            for number in 0..600 {
                mortal.insert(number..number + 1);
                if number % 60 == 0 {
                    let least = if durability == 1 { number + 1 } else { 0 };
                    assert!(mortal.survivors() >= least, "{model}, durability {durability}");
                }
            }
            mortal.table.sync().unwrap();
            assert_eq!(mortal.survivors(), 600, "{model}, durability {durability}");
        }
    }
}

#[test]
fn a_check_takes_the_newest_state_that_is_whole() {
    // Fails if a check after a killed process goes back to the last sync, or if one after power
    // loss reads what newer records lead to: they may reach a file before the objects do.
    for is_cleared in [false, true] {
        let mut mortal = Mortal::new(Model::File, &SETTINGS);
        mortal.insert(0..100);
        mortal.table.sync().unwrap();
        match is_cleared {
            true => mortal.table.clear().unwrap(),
            false => mortal.insert(100..400),
        }
        mortal.note();
        let visible = if is_cleared { 0 } else { 400 };
        let expected = AtRest { checked: visible, salvaged: visible, reports: 0 };
        assert_eq!(at_rest(&mortal.image(mortal.memory.visible())), expected);
        let mut words = mortal.memory.durable().to_vec();
        words.resize(mortal.memory.visible().len(), 0);
        let table = Addr::new(words[ROOT.word() as usize + Root::AREA_TABLE]);
        let tails = (0..SETTINGS.areas).map(|area| area_record(table, area).word() as usize);
        for tail in tails.map(|record| record + AreaRecord::VISIBLE_TAIL) {
            words[tail] = mortal.memory.visible()[tail];
        }
        let torn = at_rest(&mortal.image(&words));
        assert_eq!((torn.checked, torn.salvaged), (100, 100), "cleared: {is_cleared}");
        assert_eq!(torn.reports > 0, !is_cleared, "what was stored last is not whole");
        let table = open::<Walsh, _>(mortal.image(&words), Boot([1, 2]), &Inline).unwrap();
        assert_eq!(table.len().unwrap(), 100);
    }
}

#[test]
fn a_visible_tail_that_reached_the_device_by_chance_is_no_damage() {
    // Fails if a salvage demands the words of which the tail speaks, and which no write flushes:
    // the pairs are found by their seals. Of what seals do not find, the tail must tell.
    let mut mortal = Mortal::new(Model::Adr, &WalshSettings { durability: 1, ..SETTINGS });
    mortal.insert(0..3);
    mortal.note();
    let mut words = mortal.memory.durable().to_vec();
    words.resize(mortal.memory.visible().len(), 0);
    let table = Addr::new(words[ROOT.word() as usize + Root::AREA_TABLE]);
    let tails = (0..SETTINGS.areas).map(|area| area_record(table, area).word() as usize);
    let before = words.clone();
    for tail in tails.map(|record| record + AreaRecord::VISIBLE_TAIL) {
        words[tail] = mortal.memory.visible()[tail];
    }
    assert_ne!(words, before, "no tail was flushed");
    let expected = AtRest { checked: 3, salvaged: 3, reports: 0 };
    assert_eq!(at_rest(&mortal.image(&words)), expected);
    let object = words.iter().position(|word| *word == u64::from_le_bytes(key(1))).unwrap();
    words[object] ^= 1;
    let (mut salvaged, mut reports) = (0, 0);
    let region = mortal.image(&words);
    Walsh::salvage(&region, Boot::default(), &mut |_, _| salvaged += 1, &mut |_| reports += 1)
        .unwrap();
    assert!(salvaged < 3 && reports > 0, "{salvaged} pairs, {reports} reports");
}

#[test]
fn no_more_is_lost_than_was_allowed() {
    // Fails if anything but the newest bytes waits for a flush, on memory or on a file.
    for model in [Model::Adr, Model::File] {
        for flush_bytes in [8 * 6144, 8 * 1024, 1024] {
            let settings = WalshSettings { flush_bytes, ..SETTINGS };
            let mut mortal = Mortal::new(model, &settings);
            let mut most = 0;
            for number in 0..4000 {
                mortal.insert(number..number + 1);
                if number % 97 == 0 {
                    most = most.max(number + 1 - mortal.survivors());
                }
            }
            println!("{model}: of {flush_bytes} bytes that may be lost, {}", most * PAIR_BYTES);
            assert!(most * PAIR_BYTES <= flush_bytes + PAIR_BYTES, "{model}: {most} pairs");
            assert!(most > 0, "{model}: every write was flushed, which is no batch");
        }
    }
}

#[test]
fn nothing_older_than_the_interval_is_lost() {
    // Fails if a write that upkeep has seen waits longer than the interval; the clock is made up.
    for model in [Model::Adr, Model::File] {
        let mut mortal = Mortal::new(model, &SETTINGS);
        let maintain = |mortal: &Mortal, ms| {
            mortal.table.maintain(Duration::from_millis(ms), 1).unwrap().deadline
        };
        assert_eq!(maintain(&mortal, 0), None, "there is nothing to wait for");
        mortal.insert(0..20);
        let deadline = maintain(&mortal, 10_000).unwrap();
        assert!(deadline <= Duration::from_millis(12_500), "half an interval later");
        assert!(mortal.survivors() < 20);
        maintain(&mortal, deadline.as_millis() as u64);
        assert_eq!(mortal.survivors(), 20, "{model}");
        assert_eq!(maintain(&mortal, 20_000), None, "all is durable");
    }
}

#[test]
fn a_sync_holds_in_the_middle_of_a_rehash() {
    // Fails if what a rehash has moved, or not yet moved, is not covered by a sync.
    for model in [Model::Adr, Model::File] {
        let settings = WalshSettings { areas: 1, directories: 64, log_entries: 16, ..SETTINGS };
        let mut mortal = Mortal::new(model, &settings);
        mortal.insert(0..100);
        let mut halfway = 0;
        for round in 0..400u64 {
            // Garbage, which upkeep collects a step at a time.
            for number in 0..3 {
                mortal.table.update(&key(round % 33 * 3 + number), &round.to_le_bytes()).unwrap();
            }
            mortal.table.maintain(Duration::ZERO, 1).unwrap();
            mortal.table.sync().unwrap();
            halfway += u64::from(mortal.table.areas[0].view.latest().old().is_some());
            assert_eq!(mortal.survivors(), 100, "{model}");
        }
        println!("{model}: {halfway} syncs inside a rehash");
        assert!(halfway > 0, "{model}: no sync came while an area was rehashed");
    }
}

/// A table on a medium that counts.
struct Counting {
    media: Arc<Image>,
    table: WalshTable<Image>,
}

impl Counting {
    fn new(settings: &WalshSettings, guarantees: Guarantees) -> Counting {
        let image = Image::<Std>::new(0, 64 << 20).with_guarantees(guarantees);
        let media = Arc::new(image.counted());
        let region = Region::new(Arc::clone(&media));
        let table = create::<Walsh, _>(region, &Opening::default(), settings, &Inline).unwrap();
        Counting { media, table }
    }

    /// Returns how many syncs `work` waits for.
    fn syncs(&self, work: impl FnOnce(&WalshTable<Image>)) -> u64 {
        let before = self.media.traffic();
        work(&self.table);
        let traffic = self.media.traffic() - before;
        assert_eq!(traffic.fences, 0, "a fence means nothing here");
        traffic.syncs
    }
}

/// Lines flushed and fences, per write of `count` new pairs.
fn cost(settings: &WalshSettings, guarantees: Guarantees, count: u64) -> (f64, f64, u64) {
    let Counting { media, table } = Counting::new(settings, guarantees);
    let before = media.traffic();
    for number in 0..count {
        assert!(table.insert(&key(number), &[7; 8]).unwrap());
    }
    table.sync().unwrap();
    let Traffic { lines_flushed, fences, .. } = media.traffic() - before;
    let stats = table.stats().unwrap();
    let per = |figure: u64| figure as f64 / count as f64;
    (per(lines_flushed), per(fences), stats.growth_steps)
}

#[test]
fn a_flush_of_an_old_log_writes_only_what_is_new() {
    // Fails if a log that is flushed because of its age is closed, or written anew: 12 KiB for each
    // area in five seconds. A new object is in two lines at most, its record and its tail in one
    // each, and now and then a log begins.
    let counting = Counting::new(&SETTINGS, MEMORY);
    let mut now = Duration::ZERO;
    let before = counting.media.traffic();
    for number in 0..400 {
        assert!(counting.table.insert(&key(number), &[7; 8]).unwrap());
        if number % 4 == 3 {
            for _ in 0..2 {
                counting.table.maintain(now, 8).unwrap();
                now += Duration::from_secs(5);
            }
        }
    }
    let lines = (counting.media.traffic() - before).lines_flushed as f64 / 400.0;
    println!("{lines:.2} lines a write, four writes between two flushes");
    assert!(lines <= 4.5, "{lines}");
}

#[test]
fn an_insert_costs_the_bytes_that_are_promised() {
    // Fails if a flush writes what it need not, or if growth moves pairs too often.
    let sized = WalshSettings { areas: 64, flush_bytes: 3 << 20, ..WalshSettings::sized_for(1) };
    let presized = WalshSettings { directories: 1 << 17, ..sized };
    let growing = WalshSettings { directories: 1 << 12, ..sized };
    let immediate = WalshSettings { durability: 1, ..presized };
    for (name, settings, most_bytes, most_fences) in [
        ("batch, presized", presized, 36.0, 0.05),
        ("batch, growing", growing, 110.0, 0.15),
        ("immediate, presized", immediate, 80.0, 1.05),
    ] {
        let (lines, fences, rehashes) = cost(&settings, MEMORY, 200_000);
        let bytes = lines * 64.0;
        println!("{name}: {bytes:.1} bytes, {fences:.3} fences an insert, {rehashes} rehashes");
        assert!(bytes <= most_bytes && fences <= most_fences, "{name}: {bytes} {fences}");
    }
}

/// Inserts `count` pairs and updates each of them three times, with upkeep in between.
fn work_hard(table: &WalshTable<Image>, count: u64) {
    for round in 0..4 {
        for number in 0..count {
            table.put(&key(number), &[round; 8]).unwrap();
            if number % 100 == 0 {
                table.maintain(Duration::ZERO, 8).unwrap();
            }
        }
    }
}

#[test]
fn a_file_is_synced_once_for_all_areas_and_no_more_often_than_bytes_demand() {
    // Fails if an area syncs for itself, if a rehash syncs, or if nothing ever does.
    let flush_bytes = 256 << 10;
    let settings = WalshSettings { flush_bytes, ..SETTINGS };
    let counting = Counting::new(&settings, FILE);
    let syncs = counting.syncs(|table| work_hard(table, 10_000));
    let stats = counting.table.stats().unwrap();
    assert!(stats.growth_steps > 20, "{} rehashes: the work is too light", stats.growth_steps);
    // An object and its record are 32 bytes; a rehash moves each pair a few times, and heads of
    // logs and infos are a little more. An epoch, which is two syncs, ends at half the bytes, or,
    // when upkeep comes by, at a quarter.
    let bytes = 40_000 * (PAIR_BYTES + 8);
    let (fewest, most) = (2 * bytes / (flush_bytes / 2), 2 * 3 * bytes / (flush_bytes / 4));
    println!("{syncs} syncs, {} rehashes; from {fewest} to {most}", stats.growth_steps);
    assert!((fewest..=most).contains(&syncs), "{syncs} syncs");
    counting.table.sync().unwrap();
    assert_eq!(counting.syncs(|table| table.sync().unwrap()), 0, "there is nothing to sync");
    assert_eq!(counting.syncs(|table| assert!(table.put(&key(1), &[9; 8]).unwrap())), 0);
    assert_eq!(counting.syncs(|table| table.sync().unwrap()), 2, "the cut, and its word");
}

#[test]
fn what_a_rehash_moves_forces_no_epoch() {
    // Fails if moved pairs count as writes that a power loss takes back: the logs that they come
    // from are there until an epoch covers their new places. They were half of all epochs.
    let flush_bytes = 64 << 10;
    let counting = Counting::new(&WalshSettings { flush_bytes, ..SETTINGS }, FILE);
    let syncs = counting.syncs(|table| {
        (0..60_000).for_each(|number| assert!(table.insert(&key(number), &[1; 8]).unwrap()));
    });
    let rehashes = counting.table.stats().unwrap().growth_steps;
    // An object and its record are 32 bytes, and an epoch is two syncs.
    let epochs_of_writes = 60_000 * (PAIR_BYTES + 8) / (flush_bytes / 2);
    println!("{} epochs, {epochs_of_writes} of writes alone, {rehashes} rehashes", syncs / 2);
    assert!(rehashes >= 24, "{rehashes} rehashes: too little was moved");
    assert!(syncs / 2 <= epochs_of_writes + epochs_of_writes / 4, "{} epochs", syncs / 2);
}

#[test]
fn a_relaxed_file_is_synced_when_the_caller_says_so_and_does_not_swell() {
    // Fails if batches are made durable that nobody wants durable, or if logs that wait for an
    // epoch, which does not come, are never used again.
    let relaxed = Guarantees { domain: Domain::Process, ..FILE };
    let counting = Counting::new(&WalshSettings { flush_bytes: 64 << 10, ..SETTINGS }, relaxed);
    let syncs = counting.syncs(|table| {
        work_hard(table, 1000);
        work_hard(table, 1000);
        let before = table.stats().unwrap().used_bytes;
        (0..20).for_each(|_| work_hard(table, 1000));
        let after = table.stats().unwrap().used_bytes;
        println!("{before} bytes in use, then {after}");
        assert!(after < 3 * before, "{before} bytes became {after}");
        table.maintain(Duration::from_secs(3600), 100).unwrap();
    });
    assert_eq!(syncs, 0);
    assert_eq!(counting.syncs(|table| table.sync().unwrap()), 2);
}

#[test]
fn variable_forms_are_batched_too() {
    // Fails if long objects, which have logs of their own, wait longer than their bytes allow.
    let region = Region::new(Traced::<Std>::new(Model::Adr, 0, 8 << 20));
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let table = create::<Walsh, _>(region.clone(), &opening, &SETTINGS, &Inline).unwrap();
    let mut mortal = Mortal { region, table, memory: Memory::zero(Model::Adr, 0) };
    for number in 0..20u64 {
        assert!(mortal.table.insert(&key(number), &vec![3; 40_000]).unwrap());
        assert_eq!(mortal.survivors(), number + 1, "more than its share: durable at once");
    }
}
