//! Opening: what was written comes back, whatever its length, and on any number of threads.

use core::time::Duration;
use std::collections::BTreeMap;

use everhash_index::{Form, Table, Threads, WordTable};
use everhash_pmem::{Boot, Image};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;

use crate::reef::{Reef, ReefSettings, ReefTable};

/// Opens what is on the medium of a session on three threads, and gives it to `look`.
fn on_threads(session: &Session<Reef>, boot: Boot, look: impl FnOnce(&ReefTable<Image>)) {
    let words = session.region().media().words();
    let bytes = 8 * words.len() as u64;
    let region = everhash_pmem::Region::new(Image::of(&words, bytes, 2 * bytes));
    look(&everhash_index::open::<Reef, _>(region, boot, &Threads::new(3)).unwrap());
}

/// Puts and removes byte strings of all lengths, and looks for them after a kill and an outage.
fn lengths(durability: u64) {
    let settings = ReefSettings { durability, segment_bytes: 256 << 10, ..ReefSettings::default() };
    let medium = Image::new(0, 64 << 20);
    let mut session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    let (mut random, mut pairs) = (Random::new(5), BTreeMap::new());
    for step in 0..4_000u64 {
        let key = random.below(1_000).to_le_bytes()[..1 + random.below(3) as usize].to_vec();
        if random.once_in(8) {
            assert_eq!(session.table().remove(&key).unwrap(), pairs.remove(&key).is_some());
            continue;
        }
        // Most are short; some are longer than all that is read at once, one than a segment.
        let most = 1 << random.below(16);
        let bytes = if step == 2_000 { 1 << 20 } else { random.below(most) };
        let value = vec![step as u8; bytes as usize];
        session.table().put(&key, &value).unwrap();
        pairs.insert(key, value);
    }
    let holds = |table: &ReefTable<Image>| {
        assert_eq!(table.len().unwrap(), pairs.len() as u64);
        for (key, value) in &pairs {
            let mut found = Vec::new();
            assert!(table.get(key, &mut found).unwrap() && found == *value, "{key:?}");
        }
    };
    let boot = session.opening().boot;
    on_threads(&session, boot, holds);
    session.table().sync().unwrap();
    session.outage().unwrap();
    holds(session.table());
}

#[test]
fn objects_of_all_lengths_come_back() {
    // Fails if an object is lost, or takes another one's key, where one piece of a segment that is
    // read ends and the next one begins, or if it is longer than a piece.
    [0, 1].into_iter().for_each(lengths);
}

#[test]
fn a_checkpoint_is_loaded_on_any_number_of_threads() {
    // Fails if a thread loads a shard of another one's, or leaves one out.
    let medium = Image::new(0, 16 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &ReefSettings::default()).unwrap();
    const KEYS: u64 = 50_000;
    (0..KEYS).for_each(|key| assert!(session.table().insert_word(key, !key).unwrap()));
    let ends = session.table().ends(&[]).unwrap();
    let bytes = session.table().checkpoint_bytes().unwrap();
    session.table().replace_checkpoint(bytes, ends).unwrap();
    let boot = session.opening().boot;
    on_threads(&session, boot, |table| {
        assert!(table.epochs.lock().unwrap().checkpoint.is_some());
        assert_eq!(table.len().unwrap(), KEYS);
        (0..KEYS).for_each(|key| assert_eq!(table.get_word(key).unwrap(), Some(!key)));
        table.check().unwrap();
    });
}

#[test]
fn keys_that_a_larger_table_took_are_no_reason_not_to_open() {
    // Fails if an opening refuses keys whose hashes begin alike because its directory has fewer
    // leaves than that of the table which accepted them.
    const MANY: u64 = 20_000;
    let settings = ReefSettings {
        streams: 1,
        shards: 1,
        buckets: 1,
        segment_bytes: 64 << 10,
        // No checkpoint is written.
        flush_bytes: 32 << 20,
        ..ReefSettings::tiny()
    };
    let medium = Image::new(0, 16 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    (0..MANY).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    let is_alike = |key: &u64| table.hash(&key.to_le_bytes()) & 0xfff == 5;
    let alike: Vec<u64> = (MANY..).filter(is_alike).take(40).collect();
    alike.iter().for_each(|key| assert!(table.insert_word(*key, 2).unwrap()));
    (0..MANY).for_each(|key| assert!(table.remove_word(key).unwrap()));
    for round in 0..100 {
        table.maintain(Duration::from_secs(10 * round), 1 << 20).unwrap();
        table.sync().unwrap();
    }
    session.reopen().unwrap();
    let table = session.table();
    assert!(table.epochs.lock().unwrap().checkpoint.is_none());
    assert_eq!(table.len().unwrap(), alike.len() as u64);
    alike.iter().for_each(|key| assert_eq!(table.get_word(*key).unwrap(), Some(2)));
    let dram = table.stats().unwrap().dram_bytes;
    assert!(dram < 8 << 20, "{dram} bytes of memory");
    // Nor to read the log instead of a checkpoint.
    let (bytes, ends) = (table.checkpoint_bytes().unwrap(), table.ends(&[]).unwrap());
    table.replace_checkpoint(bytes, ends).unwrap();
    session.kill_unsynced().unwrap();
    assert!(session.table().epochs.lock().unwrap().checkpoint.is_some());
    assert_eq!(session.table().len().unwrap(), alike.len() as u64);
}
