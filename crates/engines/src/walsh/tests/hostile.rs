//! Pools whose checksums match and whose numbers lie: an error or answers, and never more room or
//! memory than the medium explains.

use core::time::Duration;

use everhash_index::{Design, Engine, Error, Form, Inline, Result, Table};
use everhash_pmem::pool::Header;
use everhash_pmem::{Addr, Boot, Image, LINE, Media, Region, Std, WORD};
use everhash_testkit::hostile::{Effort, judge};
use everhash_testkit::session::Session;

use super::settings::Immediate;
use crate::common::settings::checksum;
use crate::walsh::layout::{
    self, AreaRecord, Checkpoint, Info, LogHead, ROOT, Root, Tail, area_record,
};
use crate::walsh::{Walsh, WalshSettings};

/// Numbers that are too large for everything.
const HUGE: [u64; 6] = [1 << 24, 1 << 40, 1 << 47, 1 << 56, u64::MAX - 7, u64::MAX];

/// By how much a pool may grow while it is asked for everything, and what it may take of the
/// memory. Unit: bytes.
const MOST_GROWTH: u64 = 64 << 10;
const MOST_DRAM: u64 = 256 << 10;

/// A small pool.
struct Victim {
    words: Vec<u64>,
    seed: u64,
    boot: Boot,
}

impl Victim {
    /// Makes a pool of some pairs; it was closed, or its process ended.
    fn new<E>(pairs: u64, is_closed: bool) -> Victim
    where
        E: Engine<Table<Image> = crate::walsh::WalshTable<Image>>,
    {
        let mut session = Session::<E>::tiny(Form::WORDS, 1 << 20).unwrap();
        for number in 0..pairs {
            session.table().put(&number.to_le_bytes(), &[1; 8]).unwrap();
        }
        session.table().sync().unwrap();
        let seed = session.table().seed;
        let Boot([machine, boot]) = session.opening().boot;
        if is_closed {
            session.close().unwrap();
        }
        let words = session.region().media().words();
        Victim { words, seed, boot: Boot([machine, boot + u64::from(is_closed)]) }
    }

    fn record(&self, area: u64) -> Addr {
        let table = self.words[ROOT.word() as usize + Root::AREA_TABLE];
        area_record(Addr::new(table), area)
    }

    /// Returns where a log, or a checkpoint, lies that a word of an area's record leads to.
    fn led(&self, area: u64, place: usize) -> Addr {
        let place = self.record(area).plus(place as u64);
        Tail::decode(self.words[place.word() as usize], place).unwrap().at
    }

    /// Returns the pool with one word of a head exchanged, and the head's checksum true.
    fn lying<const N: usize>(&self, at: Addr, word: usize, lie: u64) -> Vec<u64> {
        let mut words = self.words.clone();
        let place = at.word() as usize..at.word() as usize + N;
        let mut head: [u64; N] = words[place.clone()].try_into().unwrap();
        assert!(layout::is_sealed(&head, at, self.seed), "no head lies there");
        head[word] = lie;
        words[place].copy_from_slice(&layout::seal_head(head, at, self.seed));
        words
    }

    /// Returns the pool with one word of both infos of an area exchanged.
    fn lying_infos(&self, area: u64, word: usize, lie: u64) -> Vec<u64> {
        let mut liar = Victim { words: self.words.clone(), ..*self };
        for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
            let at = self.record(area).plus(place as u64);
            // The place of an info follows from its number.
            let parity = u64::from(place == AreaRecord::INFO_A);
            let lie = if word == Info::SEQUENCE { lie & !1 | parity } else { lie };
            liar.words = liar.lying::<{ Info::WORDS }>(at, word, lie);
        }
        liar.words
    }

    /// Asks a pool for everything; says how the open ended.
    fn ask(&self, words: &[u64], boot: Boot) -> Result<()> {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(words, bytes, bytes + (64 << 20)));
        let _ = Walsh::check(&region, Boot::default(), &mut |_, _| {});
        let table = everhash_index::open::<Walsh, _>(region.clone(), boot, &Inline)?;
        for number in 0..100u64 {
            let key = number.to_le_bytes();
            let _ = table.put(&key, &[2; 8]);
            let _ = table.get(&key, &mut Vec::new());
            let _ = table.remove(&(number / 2).to_le_bytes());
            let _ = table.maintain(Duration::ZERO, 2);
        }
        let dram = table.stats().map_or(0, |stats| stats.dram_bytes);
        let _ = table.sync();
        let _ = Box::new(table).close();
        let grown = region.media().bytes() - bytes;
        assert!(grown <= MOST_GROWTH, "it grew by {grown} bytes");
        assert!(dram <= MOST_DRAM, "{dram} bytes of memory");
        Ok(())
    }
}

fn is_refused(answer: &Result<()>) -> bool {
    matches!(answer, Err(Error::Corrupt { .. }))
}

#[test]
fn p07_counts_of_a_log_that_lie_take_no_room() {
    // Fails if the room that live pairs are said to need is kept back, however much that is.
    let mut refused = 0;
    for is_closed in [true, false] {
        let victim = Victim::new::<Walsh>(40, is_closed);
        for (area, word, lie) in [0, 1].into_iter().flat_map(|area| {
            [LogHead::ITEMS, LogHead::ITEM_BYTES]
                .into_iter()
                .flat_map(move |word| HUGE.map(|lie| (area, word, lie)))
        }) {
            let place = if is_closed { AreaRecord::DURABLE_TAIL } else { AreaRecord::VISIBLE_TAIL };
            let mut words = victim.lying::<{ LogHead::WORDS }>(victim.led(area, place), word, lie);
            let place = victim.record(area).plus(AreaRecord::CHECKPOINT as u64);
            // Without the checkpoint, which counts itself.
            words[place.word() as usize] = Tail::default().encode(place);
            refused += u32::from(is_refused(&victim.ask(&words, victim.boot)));
        }
    }
    println!("{refused} refused");
}

#[test]
fn p07_numbers_of_a_log_that_lie_are_refused() {
    // Fails if a log reaches beyond the medium and room in memory is taken for what lies there, or
    // if the number behind the highest is used.
    for (is_closed, other_boot) in [(true, 0), (false, 0), (false, 5)] {
        let victim = Victim::new::<Immediate>(40, is_closed);
        let Boot([machine, boot]) = victim.boot;
        let boot = Boot([machine, boot + other_boot]);
        let at = victim.led(
            0,
            if other_boot == 0 { AreaRecord::VISIBLE_TAIL } else { AreaRecord::DURABLE_TAIL },
        );
        let size = victim.words[at.word() as usize + LogHead::SIZE];
        for lines in [1 << 12, 1 << 24, u64::from(u32::MAX)] {
            let lie = lines << 32 | size & u64::from(u32::MAX);
            let words = victim.lying::<{ LogHead::WORDS }>(at, LogHead::SIZE, lie);
            assert!(is_refused(&victim.ask(&words, boot)), "{lines} lines");
        }
        let words = victim.lying::<{ LogHead::WORDS }>(at, LogHead::SIZE, size | 0xffff_ffff);
        assert!(is_refused(&victim.ask(&words, boot)), "entries");
        let words = victim.lying::<{ LogHead::WORDS }>(at, LogHead::NUMBER, u64::MAX);
        assert!(is_refused(&victim.ask(&words, boot)), "number");
    }
}

#[test]
fn p07_logs_that_are_said_to_overlap_are_not_all_read() {
    // Fails if a salvage reads logs beyond what the medium has room for: each of them may be said
    // to be as long as that, and a small pool would be read without end.
    let mut victim = Victim::new::<Walsh>(60, false);
    let salvaged = |victim: &Victim| {
        let bytes = victim.words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(&victim.words, bytes, bytes));
        let (mut pairs, mut reports) = (0, 0);
        Walsh::salvage(&region, Boot::default(), &mut |_, _| pairs += 1, &mut |_| reports += 1)
            .unwrap();
        (pairs, reports)
    };
    assert_eq!(salvaged(&victim), (60, 0));
    let bytes = victim.words.len() as u64 * 8;
    let record = victim.record(0).word() as usize;
    let start = |info: usize| victim.words[record + info + Info::START];
    let start = start(AreaRecord::INFO_A).max(start(AreaRecord::INFO_B));
    let (mut at, mut logs, mut number) = (victim.led(0, AreaRecord::VISIBLE_TAIL), 0, u64::MAX);
    while number != start {
        let head = at.word() as usize;
        number = victim.words[head + LogHead::NUMBER];
        let [size, previous] =
            [LogHead::SIZE, LogHead::PREVIOUS].map(|word| victim.words[head + word]);
        let lie = ((bytes - at.byte()) / LINE) << 32 | size & u64::from(u32::MAX);
        victim.words = victim.lying::<{ LogHead::WORDS }>(at, LogHead::SIZE, lie);
        at = Tail::decode(previous, at).map_or(Addr::NULL, |before| before.at);
        logs += 1;
    }
    assert!(logs >= 4, "{logs} logs are too few to be longer than the budget");
    let (pairs, reports) = salvaged(&victim);
    assert!(pairs < 60 && reports == 1, "{pairs} pairs, {reports} reports");
}

#[test]
fn p07_infos_that_lie_take_no_memory() {
    // Fails if a level takes memory for directories that no medium of this length has, or if the
    // number behind the highest is used: with pairs in the area, and without.
    for (pairs, is_closed) in [(40, true), (40, false), (0, true), (0, false)] {
        let victim = Victim::new::<Walsh>(pairs, is_closed);
        for level in [24, 32, 33, 64, u64::MAX] {
            let words = victim.lying_infos(0, Info::LEVEL, level);
            assert!(is_refused(&victim.ask(&words, victim.boot)), "level {level}");
        }
        for lie in HUGE {
            for word in [Info::START, Info::END, Info::OLD, Info::FLAGS, Info::SEQUENCE] {
                let words = victim.lying_infos(0, word, lie);
                let answer = victim.ask(&words, victim.boot);
                let is_number = matches!(word, Info::START | Info::END | Info::SEQUENCE);
                assert!(is_refused(&answer) || !is_number || lie < 1 << 47, "{word}: {lie}");
            }
        }
        // Directories that are set aside.
        let liar = Victim { words: victim.lying_infos(0, Info::END, 1), ..victim };
        let words = liar.lying_infos(0, Info::OLD, 28);
        assert!(is_refused(&liar.ask(&words, liar.boot)));
    }
}

#[test]
fn p07_checkpoints_that_lie_are_passed_over_or_harmless() {
    // Fails if a number of a checkpoint is used as it is.
    let victim = Victim::new::<Walsh>(200, true);
    for area in [0, 1] {
        let at = victim.led(area, AreaRecord::CHECKPOINT);
        assert!(!at.is_null());
        for word in Checkpoint::SEQUENCE..Checkpoint::SPARE {
            for lie in HUGE {
                let words = victim.lying::<{ Checkpoint::WORDS }>(at, word, lie);
                let _ = victim.ask(&words, victim.boot);
            }
        }
    }
}

#[test]
fn p07_an_epoch_behind_the_last_is_refused() {
    // Fails if the epoch behind the highest, which is none, is written.
    let victim = Victim::new::<super::settings::Epochal>(40, false);
    let mut words = victim.words.clone();
    words[layout::EPOCH.word() as usize] = layout::encode_epoch((1 << 48) - 1);
    assert!(is_refused(&victim.ask(&words, victim.boot)));
}

#[test]
fn p07_logs_that_are_longer_than_the_medium_are_refused() {
    // Fails if a forged length of logs is taken, and kept free, however short the pool is.
    let mut victim = Victim::new::<Walsh>(20, true);
    let root = ROOT.word() as usize;
    victim.words[root + Root::LOG_ENTRIES] = layout::MOST_ENTRIES;
    victim.words[root + Root::LOG_BYTES] = layout::MOST_LOG_BYTES;
    victim.words[root + Root::CHECKSUM] = checksum(ROOT, &victim.words[root..][..Root::CHECKSUM]);
    assert!(is_refused(&victim.ask(&victim.words, victim.boot)));
}

#[test]
fn a_table_made_for_many_pairs_opens_whatever_its_length() {
    // Fails if the bound of directories by the length of the medium refuses a table that is nearly
    // empty, as it was formatted.
    for items in [1000, 1 << 20, 1 << 27] {
        let settings = WalshSettings { areas: 64, ..WalshSettings::sized_for(items) };
        let image = Image::<Std>::new(0, 64 << 20);
        let mut session = Session::<Walsh>::create(image, Form::WORDS, &settings).unwrap();
        session.reopen().unwrap();
        assert!(!session.table().put(&[1; 8], &[2; 8]).unwrap());
        session.kill_unsynced().unwrap();
        assert_eq!(session.table().len().unwrap(), 1);
        session.close().unwrap();
    }
}

/// Stores a word with the checks over it: the word of a tail, or a word of a head of one line or of
/// two; in the root, a setting.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let database = [words[Header::DATABASE], words[Header::DATABASE + 1]];
    let (seed, place) = (layout::seed(database), Addr::NULL.plus(index as u64));
    let root = ROOT.word() as usize;
    if (root..root + Root::CHECKSUM).contains(&index) {
        words[index] = value;
        let settings = &words[root..root + Root::CHECKSUM];
        words[root + Root::CHECKSUM] = checksum(ROOT, settings);
        return;
    }
    if place == layout::EPOCH {
        words[index] = layout::encode_epoch(value);
        return;
    }
    let in_line = LINE / WORD;
    let line = index as u64 / in_line * in_line;
    let at = match kind % 4 {
        0 | 1 => Addr::NULL.plus(line),
        2 => Addr::NULL.plus(line.saturating_sub(in_line)),
        _ => {
            words[index] =
                Tail { at: Addr::new(value % (1 << 40) * LINE), count: kind >> 52 }.encode(place);
            return;
        }
    };
    words[index] = value;
    seal::<{ Info::WORDS }>(words, at, seed, kind % 4 < 2);
    seal::<{ Checkpoint::WORDS }>(words, at, seed, kind % 4 == 2);
}

/// Seals the head of `N` words at an address, if that is what lies there.
fn seal<const N: usize>(words: &mut [u64], at: Addr, seed: u64, is_there: bool) {
    let place = at.word() as usize..at.word() as usize + N;
    if let (true, Some(head)) = (is_there, words.get_mut(place)) {
        let sealed = layout::seal_head::<N>(head.try_into().expect("N words"), at, seed);
        head.copy_from_slice(&sealed);
    }
}

#[test]
fn p07_forged_pools_do_no_harm() {
    // Fails by a panic, or if a call on a forged pool needs more time, memory or room than a sound
    // one explains.
    for form in super::FORMS {
        let effort = Effort { forge: Some(forge), images: 400, seconds: 60.0, ..Effort::default() };
        let report =
            judge(&Design::of::<Walsh>(), form, &effort).unwrap_or_else(|told| panic!("{told}"));
        println!("{form}: {report}");
        assert!(report.images > 100 && report.opened > 30, "{form}: {report}");
    }
    let effort = Effort { forge: Some(forge), seconds: 10.0, ..Effort::default() };
    judge(&Design::of::<Immediate>(), Form::WORDS, &effort)
        .unwrap_or_else(|told| panic!("immediate: {told}"));
}
