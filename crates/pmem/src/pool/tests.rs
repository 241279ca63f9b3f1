//! How a pool says what it is, how it was left, and what is wrong with it.

use super::header::{MAGIC, SLOTS, checksum};
use super::*;
use crate::{Guarantees, Image, Std};

const IDENTITY: Identity = Identity {
    engine: *b"demo\0\0\0\0",
    form: 0,
    hash_kind: 1,
    hash_key: [1, 2],
    database: [3, 4],
};
const HERE: Boot = Boot([9, 9]);

fn region() -> Region<Image> {
    Region::new(Image::<Std>::new(0, 16384))
}

fn create() -> Region<Image> {
    let region = region();
    Pool::create(region.clone(), IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
    region
}

#[test]
fn a_pool_records_how_it_was_shut_down() {
    // Fails if a crash could look like a clean close, or the other way round.
    let region = create();
    let pool = Pool::open(region.clone(), HERE).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Process);
    pool.recovered().unwrap();
    pool.close().unwrap();
    assert_eq!(Pool::status(&region, Boot([1, 1])).unwrap().boot, HERE);
    let pool = Pool::open(region.clone(), HERE).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Clean);
    pool.begin_writes().unwrap();
    drop(pool);
    let pool = Pool::open(region.clone(), Boot([1, 1])).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Power);
    assert_eq!(*pool.identity(), IDENTITY);
    pool.begin_writes().unwrap();
    // An interrupted recovery does not hide the power loss from the next one.
    drop(pool);
    let pool = Pool::open(region, Boot([1, 1])).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Power);
}

#[test]
fn a_power_failure_without_fences_is_told_apart() {
    // Fails if a pool whose fences did not reach the device were trusted after a power
    // failure, or if recovering it carefully did not end the doubt.
    let strict =
        || Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };
    let relaxed = || Guarantees { domain: Domain::Process, ..strict() };
    let there = Boot([7, 7]);
    let status = |region: &Region<Image>, boot| Pool::status(region, boot).unwrap();
    let begin = |region: &Region<Image>, boot| {
        Pool::open(region.clone(), boot).unwrap().begin_writes().unwrap();
    };
    let on = |words: Vec<u64>, guarantees| {
        let bytes = words.len() as u64 * crate::WORD;
        Region::new(Image::<Std>::of(&words, bytes, 16384).with_guarantees(guarantees))
    };

    let region = on(create().media().words(), strict());
    Pool::open(region.clone(), HERE).unwrap().close().unwrap();
    begin(&region, HERE);
    let found = status(&region, there);
    assert!(found.previous == Shutdown::Power && !found.relaxed && !found.doubtful());
    // A recovery under relaxed fences may leave anything behind from its first write on.
    let region = on(region.media().words(), relaxed());
    begin(&region, there);
    assert!(status(&region, there).doubtful() && status(&region, Boot([8, 8])).doubtful());
    assert_eq!(status(&region, HERE).previous, Shutdown::Process);
    // A complete recovery with fences ends the doubt.
    let region = on(region.media().words(), strict());
    Pool::open(region.clone(), HERE).unwrap().recovered().unwrap();
    assert!(!status(&region, there).relaxed);
    // So does a clean close.
    let region = on(region.media().words(), relaxed());
    let pool = Pool::open(region.clone(), HERE).unwrap();
    pool.recovered().unwrap();
    assert!(status(&region, there).doubtful());
    pool.close().unwrap();
    let found = status(&region, there);
    assert!(!found.doubtful() && !found.relaxed);
}

#[test]
fn closing_syncs_the_contents_first_where_fences_do_not_reach_the_device() {
    // Fails if the header could say "closed cleanly" on the device before the contents are
    // there, or if a pool pays for a sync that its fences have already done.
    let syncs = |domain| {
        let guarantees = Guarantees { domain, same_line_order: false, access_unit_bytes: 4096 };
        let image = Image::<Std>::new(0, 16384).with_guarantees(guarantees);
        let region = Region::new(crate::Counted::new(image));
        let pool = Pool::create(region, IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
        let before = pool.region().media().traffic().syncs;
        pool.close().unwrap();
        pool.region().media().traffic().syncs - before
    };
    // The second is the header's own.
    assert_eq!([Domain::Process, Domain::None].map(syncs), [2, 2]);
    assert_eq!([Domain::Synced, Domain::Adr, Domain::Eadr].map(syncs), [0, 0, 0]);
}

#[test]
fn a_pool_that_was_never_completed_is_refused() {
    // Fails if a pool whose engine never said that it is complete were opened.
    let region = region();
    let error = Pool::create(region.clone(), IDENTITY, HERE, |_| Err(Error::Poisoned));
    assert!(matches!(error, Err(Error::Poisoned)));
    assert!(matches!(Pool::open(region, HERE), Err(Error::Unsupported { .. })));
}

#[test]
fn every_flipped_bit_of_a_clean_header_is_noticed() {
    // Fails if one damaged slot could be taken for a clean close, or both for a pool.
    let region = create();
    let pool = Pool::open(region.clone(), HERE).unwrap();
    pool.close().unwrap();
    let pm = region.access();
    for slot in SLOTS {
        for bit in 0..Header::BYTES as u64 * 8 {
            let at = slot.plus(bit / 64);
            let word = pm.load(at).unwrap();
            pm.store(at, word ^ 1 << (bit % 64)).unwrap();
            let (slot, both) = newest(&region).unwrap();
            assert!(slot.identity == IDENTITY && !both, "bit {bit} of the slot at {at:?}");
            pm.store(at, word).unwrap();
        }
    }
}

#[test]
fn foreign_files_are_refused_with_the_reason() {
    // Fails if a file of another kind were taken for a pool, or its message did not say why not.
    let refused = |change: &dyn Fn(&mut [u64; Header::WORDS], Addr)| {
        let region = create();
        let pm = region.access();
        for at in SLOTS {
            let mut words = [0; Header::WORDS];
            pm.read_words(at, &mut words).unwrap();
            change(&mut words, at);
            pm.write_words(at, &words).unwrap();
        }
        Pool::open(region.clone(), HERE).unwrap_err().to_string()
    };
    assert!(refused(&|words, _| words[0] = MAGIC.swap_bytes()).contains("byte order"));
    assert!(refused(&|words, _| words[0] = 1).contains("not an everhash pool"));
    assert!(refused(&|words, _| words[5] ^= 1).contains("damaged at byte"));
    for number in [0, 2] {
        let version = refused(&|words, at| {
            words[Header::VERSION] = number;
            words[Header::CHECKSUM] = checksum(words, at);
        });
        assert!(version.contains(&format!("version {number};")), "{version}");
    }
    // Damage of one header says more than a place in which none lies.
    for damaged in SLOTS {
        let other = |words: &mut [u64; Header::WORDS], at| match at == damaged {
            true => words[5] ^= 1,
            false => words[0] = 0,
        };
        assert!(refused(&other).contains("damaged at byte"), "{damaged:?}");
    }
}

#[test]
fn a_state_that_no_program_writes_is_no_clean_close() {
    // Fails if a pool is trusted because of a word that means nothing.
    let region = create();
    Pool::open(region.clone(), HERE).unwrap().close().unwrap();
    let pm = region.access();
    for (at, state) in SLOTS.into_iter().flat_map(|at| [(at, 2), (at, u64::MAX)]) {
        let mut words = [0; Header::WORDS];
        pm.read_words(at, &mut words).unwrap();
        if words[Header::STATE] != 0 {
            words[Header::STATE] = state;
            words[Header::CHECKSUM] = checksum(&words, at);
            pm.write_words(at, &words).unwrap();
            assert_eq!(Pool::status(&region, HERE).unwrap().previous, Shutdown::Process);
        }
    }
    assert_eq!(Pool::status(&region, HERE).unwrap().previous, Shutdown::Process);
}

#[test]
fn an_identity_comes_back_whole_from_a_medium_of_any_length() {
    // Fails if a part of it is stored as another, or as a constant, or if a short medium is not
    // made longer first.
    let identity = Identity {
        engine: *b"turbohas",
        form: 8 << 32 | 16,
        hash_kind: 3,
        hash_key: [5, 6],
        database: [7, 8],
    };
    for bytes in [0, 512, 4096, 16384] {
        let region = Region::new(Image::<Std>::new(bytes, 16384));
        Pool::create(region.clone(), identity, HERE, |_| Ok::<(), Error>(())).unwrap();
        assert_eq!(Pool::inspect(&region).unwrap(), identity);
        assert_eq!(*Pool::open(region, HERE).unwrap().identity(), identity);
    }
}

#[test]
fn the_name_of_an_engine_has_up_to_eight_bytes() {
    // Fails if a name of eight bytes, which no zero ends, is lost, or if padding is shown.
    let name = |engine: &[u8; 8]| Identity { engine: *engine, ..IDENTITY }.engine_name().to_owned();
    let names = [b"demo\0\0\0\0", b"turbohas", b"\0\0\0\0\0\0\0\0", b"\xff\0\0\0\0\0\0\0"];
    assert_eq!(names.map(name), ["demo", "turbohas", "", "?"]);
}

#[test]
fn p08_an_open_writes_nothing_before_the_engine_has_accepted_the_pool() {
    // Fails if the header said "open" before the engine has looked: a pool that it refuses
    // would be changed, and would seem to need a recovery.
    let region = create();
    let settle = |clean: bool| {
        let pool = Pool::open(region.clone(), HERE).unwrap();
        pool.recovered().unwrap();
        if clean {
            pool.close().unwrap();
        }
    };
    for (clean, boot) in [(true, HERE), (false, HERE), (false, Boot([1, 1]))] {
        settle(clean);
        let before = region.media().words();
        drop(Pool::open(region.clone(), boot).unwrap());
        assert_eq!(region.media().words(), before, "{clean} {boot:?}");
        Pool::open(region.clone(), boot).unwrap().recovered().unwrap();
        assert_ne!(region.media().words(), before, "{clean} {boot:?}");
    }
}

#[test]
fn p07_a_sequence_number_that_cannot_rise_is_damage() {
    // Fails if the next write of the header overflowed.
    let region = create();
    let pm = region.access();
    for at in SLOTS {
        let mut words = [0; Header::WORDS];
        pm.read_words(at, &mut words).unwrap();
        words[Header::SEQUENCE] = u64::MAX;
        words[Header::CHECKSUM] = checksum(&words, at);
        pm.write_words(at, &words).unwrap();
    }
    let error = Pool::open(region.clone(), HERE).unwrap_err();
    assert!(matches!(error, Error::Corrupt { at: 16 | 4112, .. }), "{error}");
}

#[test]
fn words_of_two_headers_make_none() {
    // Fails if a process writes its first header under the number that a header torn by power loss
    // has: once that number is durable, the torn one is whole, and what it says counts.
    let region = create();
    let close = || {
        let pool = Pool::open(region.clone(), HERE).unwrap();
        pool.recovered().unwrap();
        let open = region.media().words();
        pool.close().unwrap();
        open
    };
    close();
    // Of the next close, all words but the number are durable.
    let open = close();
    let number = SLOTS.map(|at| at.plus(Header::SEQUENCE as u64));
    let changed = number
        .into_iter()
        .find(|at| region.access().load(*at).unwrap() != open[at.word() as usize]);
    let number = changed.expect("a close writes a header");
    let pm = region.access();
    pm.store(number, open[number.word() as usize]).unwrap();
    let torn = region.media().words();
    let there = Boot([1, 1]);
    let pool = Pool::open(region.clone(), there).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Power);
    pool.recovered().unwrap();
    // Of the header that it has written, the number alone.
    let next = region.media().words()[number.word() as usize];
    for (word, old) in (0..).step_by(8).zip(&torn[..DATA.word() as usize]) {
        pm.store(Addr::new(word), *old).unwrap();
    }
    pm.store(number, next).unwrap();
    assert_eq!(Pool::status(&region, Boot([2, 2])).unwrap().previous, Shutdown::Power);
}

#[test]
fn reading_needs_a_clean_pool() {
    // Fails if a reader saw a pool that recovery has to change first.
    let region = create();
    assert!(Pool::open_read_only(region.clone()).is_err());
    Pool::open(region.clone(), HERE).unwrap().close().unwrap();
    let before = region.media().words();
    let pool = Pool::open_read_only(region.clone()).unwrap();
    pool.begin_writes().unwrap();
    pool.recovered().unwrap();
    pool.close().unwrap();
    assert_eq!(region.media().words(), before);
}

#[test]
fn where_no_boot_has_a_name_every_end_may_be_power_loss() {
    // Fails if two boots without a name were taken for one.
    let region = region();
    let filled = Pool::create(region.clone(), IDENTITY, Boot::default(), |_| Ok::<(), Error>(()));
    drop(filled.unwrap());
    let pool = Pool::open(region.clone(), Boot::default()).unwrap();
    assert_eq!(pool.previous_shutdown(), Shutdown::Power);
    let status = Pool::status(&region, Boot::default()).unwrap();
    assert_eq!(status.previous, Shutdown::Power);
    pool.recovered().unwrap();
    pool.close().unwrap();
    let status = Pool::status(&region, Boot::default()).unwrap();
    assert_eq!(status.previous, Shutdown::Clean);
}

#[test]
fn a_pool_keeps_nothing_of_what_lay_there_before() {
    // Fails if the root of an older pool on the same memory were taken for that of the new one.
    let region = Region::new(Image::<Std>::of(&vec![u64::MAX; 2048], 16384, 16384));
    Pool::create(region.clone(), IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
    let headers = [0..header::Header::BYTES as u64, 4096..4096 + header::Header::BYTES as u64];
    for at in (0..DATA.byte()).step_by(8).filter(|at| !headers.iter().any(|it| it.contains(at))) {
        assert_eq!(region.access().load(Addr::new(at)).unwrap(), 0, "byte {at}");
    }
}

/// Returns what the status of the pool is while one of its headers, or the other one, is damaged.
fn with_damage(region: &Region<Image>, boot: Boot) -> [PoolStatus; 2] {
    let pm = region.access();
    SLOTS.map(|slot| {
        let word = pm.load(slot.plus(30)).unwrap();
        pm.store(slot.plus(30), !word).unwrap();
        let status = Pool::status(region, boot).unwrap();
        pm.store(slot.plus(30), word).unwrap();
        status
    })
}

#[test]
fn whichever_header_is_damaged_the_other_one_says_enough() {
    // Fails if only one of them says that the pool is open, or that fences do not reach the device:
    // damage of that one would hide it. Or if a clean one counts although the damaged one may have
    // said something newer.
    let there = Boot([7, 7]);
    let relaxed =
        Guarantees { domain: Domain::Process, same_line_order: false, access_unit_bytes: 4096 };
    let image = Image::<Std>::new(0, 16384).with_guarantees(relaxed);
    let region = Region::new(image);
    let pool = Pool::create(region.clone(), IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
    assert!(with_damage(&region, there).iter().all(PoolStatus::doubtful), "created");
    pool.close().unwrap();
    assert_eq!(Pool::status(&region, there).unwrap().previous, Shutdown::Clean);
    assert!(with_damage(&region, there).iter().all(|it| it.previous != Shutdown::Clean));
    let pool = Pool::open(region.clone(), HERE).unwrap();
    pool.begin_writes().unwrap();
    assert!(with_damage(&region, there).iter().all(PoolStatus::doubtful), "begun");
    // The boot of a recovery that has ended, as well.
    drop(pool);
    Pool::open(region.clone(), there).unwrap().recovered().unwrap();
    let found = with_damage(&region, there).map(|status| (status.boot, status.previous));
    assert_eq!(found, [(there, Shutdown::Process); 2]);
}

#[test]
fn a_header_in_the_place_of_the_other_one_is_damage() {
    // Fails if a header that a disk wrote to the wrong place counts there: an old one could take
    // the place of the newest.
    let region = create();
    Pool::open(region.clone(), HERE).unwrap().close().unwrap();
    let pm = region.access();
    for (from, to) in [(0, 1), (1, 0)] {
        let mut kept = [[0; Header::WORDS]; 2];
        [from, to].iter().zip(&mut kept).for_each(|(slot, words)| {
            pm.read_words(SLOTS[*slot], words).unwrap();
        });
        pm.write_words(SLOTS[to], &kept[0]).unwrap();
        assert!(!newest(&region).unwrap().1, "{from} in the place of {to}");
        pm.write_words(SLOTS[to], &kept[1]).unwrap();
    }
    assert!(newest(&region).unwrap().1);
}
