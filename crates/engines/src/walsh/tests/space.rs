//! Bytes in use against bytes alive: when a table grows, when it is written again and again, and
//! when it is idle.

use core::time::Duration;

use everhash_index::{Form, Inline, Table, Upkeep, WordTable, open_read_only};
use everhash_pmem::{Domain, Guarantees, Image, Std};
use everhash_testkit::session::Session;

use crate::walsh::{Walsh, WalshSettings};

const FILE: Guarantees =
    Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };

/// A file with default settings, the pairs in it, and a clock that is made up.
struct File {
    session: Session<Walsh>,
    /// The length of each key's value.
    lengths: Vec<usize>,
    now: Duration,
}

impl File {
    fn new(keys: usize, most_bytes: u64) -> File {
        let medium = Image::<Std>::new(0, most_bytes).with_guarantees(FILE);
        let session = Session::create(medium, Form::Variable, &WalshSettings::default()).unwrap();
        File { session, lengths: vec![0; keys], now: Duration::ZERO }
    }

    fn put(&mut self, key: usize, length: usize) {
        let name = (key as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.session.table().put(&name.to_le_bytes(), &vec![key as u8; length]).unwrap();
        self.lengths[key] = length;
    }

    /// What the thread for upkeep does every 10 ms while there are writes.
    fn tick(&mut self) -> bool {
        self.now += Duration::from_millis(10);
        self.session.table().maintain(self.now, 256).unwrap().more
    }

    /// What the thread for upkeep does when there are no more writes.
    fn idle(&mut self) {
        let mut rounds = 0;
        while self.tick() || rounds < 1000 {
            rounds += 1;
            assert!(rounds < 1_000_000, "upkeep ends");
        }
    }

    /// Returns the space in use for each byte of a live key or value.
    fn ratio(&self, when: &str) -> f64 {
        let used = self.session.table().stats().unwrap().used_bytes;
        let live: usize = self.lengths.iter().filter(|n| **n > 0).map(|length| length + 16).sum();
        let ratio = used as f64 / live as f64;
        println!("{when}: {used} bytes in use, {live} alive: {ratio:.2}");
        ratio
    }
}

fn draw(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *random >> 33
}

#[test]
fn long_values_that_are_replaced_give_their_room_back() {
    // Fails if collections are due by the number of objects alone: 300 values of a megabyte are
    // few objects, and all of them stayed, of which 290 were garbage.
    let mut file = File::new(10, 512 << 20);
    for round in 0..300 {
        file.put(round % 10, 1_000_000);
        file.tick();
    }
    assert!(file.ratio("300 puts of 10 MB") <= 5.0);
    file.idle();
    assert!(file.ratio("idle") <= 2.5);
    file.session.reopen().unwrap();
    assert!(file.ratio("closed and opened") <= 2.5);
    assert_eq!(file.session.table().check().unwrap().items, 10);
}

#[test]
fn long_values_give_their_room_back_where_each_process_is_killed() {
    // Fails if every recovery counts what was replaced as alive, so that nothing is garbage, or if
    // a rehash that begins again gets no further than the one before: 628 MB were in use for 5 MB
    // of values.
    for writes in [1, 2, 7] {
        let medium = Image::<Std>::new(0, 256 << 20).with_guarantees(FILE);
        let settings = WalshSettings { areas: 1, ..WalshSettings::default() };
        let session = Session::create(medium, Form::Variable, &settings).unwrap();
        let mut file = File { session, lengths: vec![0; 10], now: Duration::ZERO };
        for round in 0..300 {
            file.put(round % 10, 200_000);
            file.tick();
            if round % writes == 0 {
                file.session.kill_unsynced().unwrap();
            }
        }
        assert!(file.ratio("300 puts of 2 MB, killed") <= 8.0, "{writes}");
    }
}

#[test]
fn short_values_that_are_replaced_give_their_room_back() {
    // Fails if the logs of values of 100 bytes have more room for directory records than for
    // objects (1.75 bytes in use for each one alive), or if garbage stays when a table is idle.
    let mut file = File::new(100_000, 256 << 20);
    let write_all = |file: &mut File| {
        for key in 0..100_000 {
            file.put(key, 100);
            if key % 5000 == 0 {
                file.tick();
            }
        }
    };
    write_all(&mut file);
    // Link, lengths, checksum and record are 32 bytes, and the value ends with a word.
    assert!(file.ratio("loaded") <= 1.5);
    (0..5).for_each(|_| write_all(&mut file));
    assert!(file.ratio("written six times") <= 4.5);
    file.idle();
    assert!(file.ratio("idle") <= 3.0);
}

#[test]
fn values_of_mixed_lengths_take_little_more_than_their_bytes() {
    // Fails if a long object ends the log before it, however empty that is (2.5 bytes for each one
    // alive), or if mixed lengths let an area be collected again and again.
    let mut file = File::new(20_000, 512 << 20);
    let mut random = 1;
    let mut write_all = |file: &mut File| {
        for key in 0..20_000 {
            // From 16 bytes to 16 KiB, each power of two as often as the others.
            let power = 4 + draw(&mut random) % 10;
            file.put(key, (1 << power) + draw(&mut random) as usize % (1 << power));
            if key % 1000 == 0 {
                file.tick();
            }
        }
    };
    write_all(&mut file);
    assert!(file.ratio("loaded") <= 1.45);
    (0..3).for_each(|_| write_all(&mut file));
    assert!(file.ratio("written four times") <= 5.0);
    file.idle();
    assert!(file.ratio("idle") <= 2.7);
    let before = file.session.table().stats().unwrap().growth_steps;
    file.idle();
    assert_eq!(file.session.table().stats().unwrap().growth_steps, before, "nothing is left to do");
}

#[test]
fn removed_values_give_their_room_back() {
    // Fails if what removals leave behind is not worth a collection.
    let mut file = File::new(400, 256 << 20);
    (0..400).for_each(|key| file.put(key, 50_000));
    file.idle();
    let full = file.session.table().stats().unwrap().used_bytes;
    for key in 0..400 {
        let name = (key as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        assert!(file.session.table().remove(&name.to_le_bytes()).unwrap());
        file.lengths[key] = 0;
    }
    file.idle();
    let empty = file.session.table().stats().unwrap().used_bytes;
    println!("{full} bytes in use, and {empty} when all is removed");
    assert!(empty < full / 5);
}

#[test]
fn long_values_that_are_all_alive_are_no_garbage() {
    // Fails if the logs of long objects are counted twice: all of them were dead bytes then.
    let mut file = File::new(20, 64 << 20);
    (0..20).for_each(|key| file.put(key, 100_000));
    let stats = file.session.table().stats().unwrap();
    let dead = stats.dead_bytes.unwrap();
    println!("{} bytes alive, {dead} dead, {} in use", stats.live_bytes, stats.used_bytes);
    assert!(dead < stats.live_bytes / 8 && stats.live_bytes + dead <= stats.used_bytes);
}

#[test]
fn upkeep_of_a_pool_that_is_open_for_reading_only_does_nothing() {
    // Fails if upkeep goes on with what a close has interrupted, though nothing may be written: it
    // would store to a pool that others read, or fail, or be called again and again.
    let settings = WalshSettings { areas: 2, ..WalshSettings::tiny() };
    let mut session =
        Session::<Walsh>::create(Image::<Std>::new(0, 4 << 20), Form::WORDS, &settings).unwrap();
    let mut key = 0u64;
    let is_rehashing = |session: &Session<Walsh>| {
        let table = session.table();
        table.areas.iter().any(|area| table.lock(area).unwrap().rehash.is_some())
    };
    while !is_rehashing(&session) {
        assert!(session.table().insert_word(key, !key).unwrap());
        key += 1;
        assert!(key < 10_000, "nothing is rehashed");
    }
    let region = session.region().clone();
    session.close().unwrap();
    let before = region.media().words();
    let table = open_read_only::<Walsh, _>(region.clone(), &Inline).unwrap();
    for now in [0, 1, 3600].map(Duration::from_secs) {
        assert_eq!(Table::maintain(&table, now, 16).unwrap(), Upkeep::default());
    }
    assert_eq!(table.len().unwrap(), key);
    Box::new(table).close().unwrap();
    assert!(region.media().words() == before, "the pool has changed");
}

#[test]
fn a_sparse_table_opens_that_was_closed_or_killed_amid_a_collection() {
    // Fails if the two sets of directories of a collection are more than an open allows: a new
    // medium has room for the indexes of one set, and few pairs do not make it longer.
    let settings = WalshSettings { areas: 2, block_directories: 1, ..WalshSettings::default() };
    for is_closed in [true, false] {
        let medium = Image::<Std>::new(0, 4 << 20);
        let mut session = Session::<Walsh>::create(medium, Form::WORDS, &settings).unwrap();
        let is_collecting = |session: &Session<Walsh>| {
            let table = session.table();
            table.areas.iter().any(|area| table.lock(area).unwrap().view.old().is_some())
        };
        let mut round = 0u64;
        while !is_collecting(&session) {
            for key in 0..2u64 {
                session.table().put(&key.to_le_bytes(), &round.to_le_bytes()).unwrap();
            }
            round += 1;
            assert!(round < 10_000, "nothing is collected");
        }
        session.table().sync().unwrap();
        if is_closed {
            session.reopen().unwrap();
        } else {
            session.kill().unwrap();
        }
        let mut value = Vec::new();
        assert!(session.table().get(&1u64.to_le_bytes(), &mut value).unwrap());
        assert_eq!(value, (round - 1).to_le_bytes());
    }
}
