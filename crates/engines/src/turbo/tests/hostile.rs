//! Pools that somebody forged who knows the format: no panic, no hang, no memory without bound.

use everhash_index::{Design, Engine, Error, Inline, Opening, Table, create, open};
use everhash_pmem::pool::{DATA, Header, ROOT};
use everhash_pmem::{Addr, Bits, Boot, Image, Media, Region, Std};
use everhash_testkit::hostile::{self, Effort};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::common::{record, settings};
use crate::turbo::layout::{self, BUCKET_WORDS, Bucket, Descriptor, Meta, Place, Root};
use crate::turbo::{Turbo, TurboSettings, TurboTable};

/// Stores a value with the checks that the engine would have stored with it.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * 8), ROOT.word() as usize);
    let directory = words[root + Root::DIRECTORY] / 8;
    let shards = words[root + Root::SHARDS].min(1 << 10);
    let descriptors = directory..directory.saturating_add(shards * Descriptor::WORDS as u64);
    if index < root {
        words[index] = value;
    } else if index < root + Root::CHECKSUM {
        words[index] = value;
        let settings = &words[root..root + Root::CHECKSUM];
        words[root + Root::CHECKSUM] = settings::checksum(ROOT, settings);
    } else if at < DATA {
        words[root + Root::ITEMS] = value;
        words[root + Root::ITEMS_CHECK] = layout::items_check(value);
    } else if descriptors.contains(&at.word()) {
        words[index] = match (at.word() - directory) as usize % Descriptor::WORDS {
            Descriptor::VERSION => layout::encode_version(value as u8, at),
            // The place of another shard, one of a few beside, or any.
            _ if kind.is_multiple_of(3) => value,
            _ => {
                let start = Addr::new(value.wrapping_mul(Bucket::BYTES as u64) & ((1 << 48) - 1));
                Place { start, log: (kind >> 8) as u32 % 30 }.encode(at)
            }
        };
    } else {
        forge_bucket(words, index, value, kind);
    }
}

/// Overwrites a word of a bucket, and redoes the checks of the slot and of META.
fn forge_bucket(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let first = index - index % BUCKET_WORDS;
    if first + BUCKET_WORDS > words.len() || kind.is_multiple_of(4) {
        words[index] = value;
        return;
    }
    let at = Addr::new(first as u64 * 8);
    let bucket = &mut words[first..first + BUCKET_WORDS];
    let place = index % BUCKET_WORDS;
    let decoded = Meta::decode(bucket[Bucket::META], [bucket[1], bucket[2]], at);
    let mut meta = decoded.unwrap_or(Meta::first(0b111));
    match place {
        Bucket::META => meta = meta.next(value as u32 & 0x3fff, (value >> 14) as u32 & 0x3fff),
        1..4 => bucket[place] = value,
        _ => {
            bucket[place] = value;
            let slot = (place - Bucket::SLOTS) / 2;
            let pair = Bucket::SLOTS + 2 * slot;
            if kind & 16 == 0 {
                // A record word behind its hash.
                let tag = record::tag_of(bucket[pair], bucket[pair + 1]);
                bucket[pair + 1] = Bits::new(52, 12).set(bucket[pair + 1], tag.into());
            }
            let pair = [bucket[pair], bucket[pair + 1]];
            let checks = [bucket[1], bucket[2], bucket[3]];
            let tag = layout::slot_tag(checks, slot);
            let checks = layout::with_slot(checks, slot, tag, layout::check_of(pair, at, slot));
            bucket[1..4].copy_from_slice(&checks);
        }
    }
    bucket[Bucket::META] = meta.encode([bucket[1], bucket[2]], at);
}

#[test]
fn p07_a_forged_pool_costs_no_panic_no_hang_and_no_memory() {
    // Fails if a number from the medium is used before it is bounded, or if a shard grows for
    // another reason than its pairs.
    for form in super::FORMS {
        let effort = Effort { images: 600, forge: Some(forge), ..Effort::default() };
        let report = hostile::judge(&Design::of::<Turbo>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.images > 1000 && report.opened > report.images / 4, "{form}: {report}");
    }
}

#[test]
fn a_key_that_only_a_rebuilt_shard_finds_is_damage_and_no_reason_to_grow() {
    // Fails if an insert that makes room finds its key then, and goes on making room: a forged tag,
    // or another key of the hash in the header, made a shard double to its limit.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let settings = TurboSettings { shards: 1, scope: 1, ..TurboSettings::tiny() };
    let table =
        create::<Turbo, _>(region.clone(), &Opening::default(), &settings, &Inline).unwrap();
    let words = table.words().unwrap();
    (0..3u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let TurboTable::Words(inner) = &table else { panic!("8/8 has words") };
    let at = inner.directory.shards()[0].place().bucket(0);
    let pm = region.access();
    let mut head = [0; 3];
    pm.read_words(at, &mut head).unwrap();
    let meta = Meta::decode(head[0], [head[1], head[2]], at).unwrap();
    let slot = (0..3).find(|slot| pm.load(at.plus(4 + 2 * slot)).unwrap() == 1).unwrap();
    let tags = [head[1] ^ 0xff << (8 * slot), head[2]];
    pm.write_words(at, &[meta.encode(tags, at), tags[0]]).unwrap();
    assert_eq!(words.get_word(1).unwrap(), None);
    let bytes = region.media().bytes();
    assert!(matches!(words.insert_word(1, 7), Err(Error::Corrupt { .. })));
    assert!(inner.directory.shards()[0].place().log <= 2, "it doubled more than its pairs need");
    assert!(region.media().bytes() <= bytes + (1 << 12));
}

#[test]
fn pairs_of_another_shard_are_not_carried_over() {
    // Fails if a rehash takes over pairs that no search finds and no removal takes away, or keeps
    // the space of one that met them.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening::default();
    let table =
        create::<Turbo, _>(region.clone(), &opening, &TurboSettings::tiny(), &Inline).unwrap();
    let words = table.words().unwrap();
    (0..6u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    Box::new(table).close().unwrap();
    // The same buckets under another key of the hash.
    let mut header = region.media().words();
    for slot in [0, 512] {
        header[slot + Header::HASH_KEY] ^= 1;
        let bytes =
            header[slot..slot + Header::CHECKSUM].iter().flat_map(|word| word.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes.collect::<Vec<u8>>(), slot as u64 * 8);
        header[slot + Header::CHECKSUM] = checksum;
    }
    let length = header.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&header, length, 1 << 20));
    let table = open::<Turbo, _>(region, opening.boot, &Inline).unwrap();
    let words = table.words().unwrap();
    let used = table.stats().unwrap().used_bytes;
    let refused = (0..100u64).filter(|key| words.put_word(*key, 7).is_err()).count();
    assert!(refused > 50, "{refused}");
    let stats = table.stats().unwrap();
    assert_eq!((stats.growth_steps, stats.used_bytes), (0, used), "nothing is kept of a rehash");
}

#[test]
fn shards_that_are_said_to_lie_at_one_place_are_not_all_read() {
    // Fails if a salvage reads the buckets of every shard, although no medium has room for them
    // all: a file of 64 MiB would be read half a million times.
    let settings = TurboSettings { shards: 64, ..TurboSettings::tiny() };
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening::default();
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    Box::new(table).close().unwrap();
    let mut words = region.media().words();
    let directory = Addr::new(words[ROOT.word() as usize + Root::DIRECTORY]);
    // A thousand empty buckets at the end of the medium.
    let start = Addr::new((words.len() as u64 * 8).next_multiple_of(Bucket::BYTES as u64));
    let place = Place { start, log: 10 };
    words.resize(place.bucket(place.buckets()).word() as usize, 0);
    for at in (0..place.buckets()).map(|index| place.bucket(index)) {
        words[at.word() as usize + Bucket::META] = Meta::first(0).encode([0; 2], at);
    }
    for at in (0..settings.shards).map(|shard| layout::descriptor_at(directory, shard)) {
        let set = layout::set_at(at, 0);
        words[set.word() as usize] = place.encode(set);
    }
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    assert!(matches!(
        Turbo::check(&region, Boot::default(), &mut |_, _| {}),
        Err(Error::Corrupt { .. })
    ));
    let mut reports = 0;
    Turbo::salvage(&region, Boot::default(), &mut |_, _| {}, &mut |_| reports += 1).unwrap();
    assert!(reports >= settings.shards - 2, "{reports} shards were refused");
}
