//! Pools whose words all match their checks, and that no table leaves: each rule of a check, and of
//! an open, by itself.

use std::collections::BTreeSet;

use everhash_index::{Engine, Error, Form, Inline, Result, Table, open};
use everhash_pmem::{Addr, Boot, Image, LINE, Region, Std};
use everhash_testkit::session::Session;

use crate::common::hash::KeyedHash;
use crate::walsh::layout::{
    self, AREA_HASH, AreaRecord, Checkpoint, EPOCH, Info, LOG_AREA, LOG_SEQUENCE, Link, LogHead,
    RECORD_HASH, RECORD_OFFSET, ROOT, Root, Tag, Tail, WordObject, mix,
};
use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// Several logs for each area, which nothing collects.
const SETTINGS: WalshSettings = WalshSettings {
    directories: 16,
    block_directories: 4,
    log_entries: 16,
    log_bytes: 512,
    flush_bytes: 1 << 20,
    resize: 0,
    ..WalshSettings::tiny()
};

/// Objects of the newest log of the first area.
const NEWEST: u64 = 5;

/// What makes a pool lie.
type Lie = fn(&mut Forged);

/// The words of a pool of words.
#[derive(Clone)]
struct Forged {
    words: Vec<u64>,
    seed: u64,
    hasher: KeyedHash,
    boot: Boot,
}

impl Forged {
    /// Makes a pool of some pairs; it was closed, or its process was killed.
    fn of(settings: WalshSettings, is_closed: bool) -> Forged {
        let image = Image::<Std>::new(0, 1 << 20);
        let mut session = Session::<Walsh>::create(image, Form::WORDS, &settings).unwrap();
        let table = session.table();
        let mut pairs = 0u64;
        let has_enough = || {
            let state = table.lock(&table.areas[0]).unwrap();
            state.logs.len() >= 3 && state.open.is_some_and(|log| log.count == NEWEST)
        };
        while !has_enough() {
            assert!(table.insert(&pairs.to_le_bytes(), &[7; 8]).unwrap());
            pairs += 1;
        }
        table.sync().unwrap();
        let (seed, hasher, boot) = (table.seed, table.hasher, session.opening().boot);
        if is_closed {
            session.close().unwrap();
        }
        let words = session.region().media().words();
        let pool = Forged { words, seed, hasher, boot };
        assert_eq!(pool.check().unwrap(), pairs);
        pool
    }

    fn region(&self) -> Region<Image> {
        let bytes = self.words.len() as u64 * 8;
        Region::new(Image::<Std>::of(&self.words, bytes, bytes + (64 << 10)))
    }

    fn check(&self) -> Result<u64> {
        Walsh::check(&self.region(), self.boot, &mut |_, _| {}).map(|checked| checked.items)
    }

    fn open(&self) -> Result<WalshTable<Image>> {
        open::<Walsh, _>(self.region(), self.boot, &Inline)
    }

    /// Returns the keys that a salvage gives back, and the rules that it reports as broken.
    fn salvaged(&self) -> (BTreeSet<u64>, Vec<&'static str>) {
        let (mut keys, mut rules) = (BTreeSet::new(), Vec::new());
        let visit = &mut |key: &[u8], _: &[u8]| {
            assert!(keys.insert(u64::from_le_bytes(key.try_into().unwrap())), "a key twice");
        };
        let report = &mut |damage: Error| match damage {
            Error::Corrupt { broken, .. } => rules.push(broken),
            other => panic!("{other:?}"),
        };
        Walsh::salvage(&self.region(), self.boot, visit, report).unwrap();
        (keys, rules)
    }

    /// Asserts that a check names the rule that each lie breaks.
    fn check_names(&self, lies: &[(&str, Lie)]) {
        self.judge(lies, |pool| pool.check().map(drop));
    }

    /// Asserts that an open names the rule that each lie breaks.
    fn open_names(&self, lies: &[(&str, Lie)]) {
        self.judge(lies, |pool| pool.open().map(drop));
    }

    fn judge(&self, lies: &[(&str, Lie)], read: impl Fn(&Forged) -> Result<()>) {
        for (number, (rule, lie)) in lies.iter().enumerate() {
            let mut pool = self.clone();
            lie(&mut pool);
            let answer = read(&pool);
            let is_named = matches!(answer, Err(Error::Corrupt { broken, .. }) if broken == *rule);
            assert!(is_named, "lie {number}, {rule}: {answer:?}");
        }
    }

    fn get(&self, at: Addr) -> u64 {
        self.words[at.word() as usize]
    }

    fn set(&mut self, at: Addr, word: u64) {
        self.words[at.word() as usize] = word;
    }

    /// Returns a place in the record of the first area.
    fn place(&self, place: usize) -> Addr {
        Addr::new(self.words[ROOT.word() as usize + Root::AREA_TABLE]).plus(place as u64)
    }

    /// Returns where a word of that record leads.
    fn led(&self, place: usize) -> Addr {
        Tail::decode(self.get(self.place(place)), self.place(place)).unwrap().at
    }

    /// Returns the logs of the first area, newest first.
    fn logs(&self) -> Vec<Addr> {
        let (mut logs, mut next) = (Vec::new(), self.led(AreaRecord::VISIBLE_TAIL));
        while !next.is_null() {
            logs.push(next);
            let previous = self.get(next.plus(LogHead::PREVIOUS as u64));
            next = Tail::decode(previous, next).map_or(Addr::NULL, |before| before.at);
        }
        logs
    }

    /// Exchanges a word of a head of `N` words, and seals that.
    fn edit<const N: usize>(&mut self, at: Addr, word: usize, lie: impl FnOnce(u64) -> u64) {
        let place = at.word() as usize..at.word() as usize + N;
        let mut head: [u64; N] = self.words[place.clone()].try_into().unwrap();
        assert!(layout::is_sealed(&head, at, self.seed), "no head lies there");
        head[word] = lie(head[word]);
        self.words[place].copy_from_slice(&layout::seal_head(head, at, self.seed));
    }

    /// The same of the head of a log, of which the newest has number 0.
    fn edit_log(&mut self, number: usize, word: usize, lie: impl FnOnce(u64) -> u64) {
        self.edit::<{ LogHead::WORDS }>(self.logs()[number], word, lie);
    }

    /// The same of both infos.
    fn edit_infos(&mut self, word: usize, lie: u64) {
        for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
            self.edit::<{ Info::WORDS }>(self.place(place), word, |_| lie);
        }
    }

    /// Lets the newest log have room for fewer objects than it has.
    fn hold_fewer(&mut self) {
        self.edit_log(0, LogHead::SIZE, |size| size >> 32 << 32 | (NEWEST - 1));
    }

    /// Lets the newest log have room for more directory records than it is long.
    fn record_too_many(&mut self) {
        self.edit_log(0, LogHead::SIZE, |size| size | u64::from(u32::MAX));
    }

    /// Lets the newest log end where its objects begin.
    fn end_before_objects(&mut self) {
        self.edit_log(0, LogHead::SIZE, |size| {
            let entries = size & u64::from(u32::MAX);
            (layout::objects_offset(entries) * 8).div_ceil(LINE) << 32 | entries
        });
    }

    /// Lets the newest log end behind the medium.
    fn end_outside(&mut self) {
        self.edit_log(0, LogHead::SIZE, |size| size | 1 << 56);
    }

    /// Damages the directory log of the log before the newest.
    fn damage_records(&mut self) {
        let at = self.logs()[1].plus(LogHead::WORDS as u64);
        self.set(at, self.get(at) ^ 1);
    }

    /// Lets the directory record of an object of the newest log lead elsewhere.
    fn mislead(&mut self) {
        let (at, _) = self.record(1);
        self.set(at, self.get(at) ^ 1);
    }

    /// Lets the area begin before its oldest log, which leads to none.
    fn lack_oldest(&mut self) {
        let logs = self.logs();
        let oldest = logs[logs.len() - 1];
        let none = Tail::default().encode(oldest);
        self.edit::<{ LogHead::WORDS }>(oldest, LogHead::PREVIOUS, |_| none);
        self.edit_infos(Info::START, 0);
    }

    /// Makes a log one for the info behind the newest.
    fn run_ahead(&mut self, number: usize) {
        let sequence = |place| self.get(self.place(place + Info::SEQUENCE));
        let newest = sequence(AreaRecord::INFO_A).max(sequence(AreaRecord::INFO_B));
        self.edit_log(number, LogHead::OWNER, |owner| LOG_SEQUENCE.set(owner, newest + 1));
    }

    /// Lets a tail cover no object of the newest log.
    fn empty_newest(&mut self, place: usize) {
        let (at, place) = (self.led(place), self.place(place));
        self.set(place, Tail { at, count: 0 }.encode(place));
    }

    /// Returns where a record of the newest log lies, and its object.
    fn record(&self, number: u64) -> (Addr, Addr) {
        let log = self.logs()[0];
        let at = log.plus(LogHead::WORDS as u64 + number);
        (at, log.plus(RECORD_OFFSET.get(self.get(at))))
    }

    /// Exchanges the key and the link of an object of the newest log, whose checks match then.
    fn edit_object(&mut self, number: u64, lie: impl FnOnce(&Forged, u64, Link) -> (u64, Link)) {
        let (_, at) = self.record(number);
        let [key, value] =
            [WordObject::KEY, WordObject::VALUE].map(|word| self.get(at.plus(word as u64)));
        let bound = |key| mix(mix(mix(self.seed, at.byte()), key), value);
        let link = Link::decode(self.get(at), bound(key)).unwrap();
        let (key, link) = lie(self, key, link);
        let word = link.encode(bound(key));
        self.set(at, word);
        self.set(at.plus(WordObject::KEY as u64), key);
    }

    /// Exchanges what the checkpoint holds, which is one part, and seals that.
    fn save(&mut self, lie: impl FnOnce(&mut [u64; Checkpoint::WORDS], &mut Vec<u64>)) {
        let at = self.led(AreaRecord::CHECKPOINT);
        let behind = at.plus(Checkpoint::WORDS as u64);
        let place = behind.word() as usize;
        let mut head: [u64; Checkpoint::WORDS] =
            self.words[at.word() as usize..place].try_into().unwrap();
        let block_words = 1 + 2 * SETTINGS.block_directories;
        let blocks = head[Checkpoint::BLOCKS] + head[Checkpoint::OLD_BLOCKS];
        let count = (2 * head[Checkpoint::LOGS] + blocks * block_words) as usize;
        let mut saved = self.words[place..place + count].to_vec();
        lie(&mut head, &mut saved);
        let head = layout::seal_head(head, at, self.seed);
        saved.push(layout::sum(&saved, layout::part_seed(&head, behind)));
        self.words[at.word() as usize..place].copy_from_slice(&head);
        self.words[place..place + saved.len()].copy_from_slice(&saved);
    }
}

#[test]
fn a_check_names_each_rule_of_logs_that_is_broken() {
    // Fails if a check passes over a number of a log's head or of an info, or over a tail that only
    // power loss would leave.
    let pool = Forged::of(SETTINGS, false);
    let entries = |size: u64| size & u64::from(u32::MAX);
    assert!(entries(pool.get(pool.logs()[0].plus(LogHead::SIZE as u64))) > NEWEST);
    pool.check_names(&[
        ("the count of live pairs in a log's head is true", |pool| {
            pool.edit_log(1, LogHead::ITEMS, |items| items + 1);
        }),
        ("as many pairs are found as an area counts", |pool| {
            let count = pool.logs().len();
            (0..count).for_each(|log| pool.edit_log(log, LogHead::ITEMS, |items| items + 1));
        }),
        ("no log is newer than the info of its area", |pool| pool.run_ahead(0)),
        ("no log is newer than the info of its area", |pool| pool.run_ahead(1)),
        ("the checksum of a log's head matches", |pool| {
            pool.edit_log(0, LogHead::OWNER, |owner| LOG_AREA.set(owner, 1));
        }),
        ("the logs of an area have successive numbers", |pool| {
            pool.edit_log(0, LogHead::NUMBER, |number| number + 1);
        }),
        ("the logs of an area begin at the oldest", Forged::lack_oldest),
        ("a log has no more objects than it has room for", Forged::hold_fewer),
        ("a log has room for its directory log", Forged::record_too_many),
        ("the objects of a log lie inside it", Forged::end_before_objects),
        ("what is in use lies inside the medium", Forged::end_outside),
        ("the check of a tail matches", |pool| {
            let at = pool.place(AreaRecord::DURABLE_TAIL);
            pool.set(at, pool.get(at) ^ 1 << 60);
        }),
        ("an area has at most 2^32 directories", |pool| pool.edit_infos(Info::LEVEL, 33)),
        ("an area has at most 2^32 directories", |pool| pool.edit_infos(Info::OLD, 33)),
    ]);
    Forged::of(WalshSettings { epochs: 1, ..SETTINGS }, false).check_names(&[(
        "an area has at most 2^32 directories",
        |pool| {
            let epoch = layout::decode_epoch(pool.get(EPOCH)).unwrap();
            assert!(epoch > 0, "no epoch counts");
            let place = [AreaRecord::EPOCH_B, AreaRecord::EPOCH_A][(epoch % 2) as usize];
            pool.edit::<{ Info::WORDS }>(pool.place(place), Info::LEVEL, |_| 33);
        },
    )]);
}

#[test]
fn a_check_names_each_rule_of_objects_that_is_broken() {
    // Fails if a check passes over the record of an object, or over what the object says beside its
    // pair: a search would not find it, or walk into another chain. And fails if it passes over the
    // seal by which a recovery finds an object.
    Forged::of(SETTINGS, false).check_names(&[
        ("the checksum of a directory log matches", Forged::damage_records),
        ("a directory record says where its object is", Forged::mislead),
        ("a key lies in its area", |pool| {
            let areas = SETTINGS.areas;
            let is_other =
                |pool: &Forged, key: &u64| AREA_HASH.get(pool.hasher.word(*key)) & (areas - 1) == 1;
            let key = (1 << 32..).find(|key| is_other(pool, key)).unwrap();
            let (hash, (at, _)) = (pool.hasher.word(key), pool.record(NEWEST - 1));
            let offset = RECORD_OFFSET.get(pool.get(at));
            pool.set(at, RECORD_OFFSET.set(RECORD_HASH.get(hash), offset));
            pool.edit_object(NEWEST - 1, |_, _, link| (key, Link { tag: Tag::of(hash), ..link }));
        }),
        ("an object has the tag of its key", |pool| {
            pool.edit_object(1, |pool, key, link| {
                let tag = Tag::of(!pool.hasher.word(key));
                (key, Link { tag, ..link })
            });
        }),
        ("an object leads to the head of its chain before it", |pool| {
            let (_, at) = pool.record(1);
            pool.edit_object(1, |_, key, link| (key, Link { next: at, ..link }));
        }),
    ]);
    Forged::of(WalshSettings { durability: 1, ..SETTINGS }, false).check_names(&[(
        "the seal of an object matches",
        |pool| {
            let at = pool.record(1).1.plus(WordObject::WORDS as u64);
            pool.set(at, pool.get(at) ^ 1);
        },
    )]);
}

#[test]
fn a_check_names_each_rule_of_closed_pools_that_is_broken() {
    // Fails if a check passes over a word of a checkpoint that an open believes, or over half an
    // info, which a close does not leave.
    const SAYS: &str = "a checkpoint says of an area what its logs say";
    const OTHER: &str = "a closed pool keeps no checkpoint of another moment";
    Forged::of(SETTINGS, true).check_names(&[
        (SAYS, |pool| pool.save(|head, _| head[Checkpoint::ITEMS] += 1)),
        (SAYS, |pool| pool.save(|head, _| head[Checkpoint::FILL] += 1)),
        (SAYS, |pool| pool.save(|head, _| head[Checkpoint::RECORDS_SUM] += 1)),
        (OTHER, |pool| pool.save(|head, _| head[Checkpoint::SEQUENCE] += 1)),
        (OTHER, |pool| {
            let at = pool.led(AreaRecord::CHECKPOINT);
            pool.save(|head, _| {
                let tail = Tail::decode(head[Checkpoint::TAIL], at).unwrap();
                head[Checkpoint::TAIL] = Tail { count: tail.count - 1, ..tail }.encode(at);
            });
        }),
        ("what is in use lies inside the medium", |pool| {
            pool.save(|head, _| head[Checkpoint::BLOCKS] = 1 << 40);
        }),
        // The oldest log.
        (SAYS, |pool| {
            let at = pool.led(AreaRecord::CHECKPOINT);
            pool.save(|_, saved| {
                let tail = Tail::decode(saved[0], at).unwrap();
                saved[0] = Tail { count: tail.count - 1, ..tail }.encode(at);
            });
        }),
        (SAYS, |pool| pool.save(|_, saved| saved[1] += 1)),
        // All but the oldest log.
        (SAYS, |pool| {
            pool.save(|head, saved| {
                head[Checkpoint::LOGS] -= 1;
                saved.drain(..2);
            });
        }),
        // All but the last block.
        (SAYS, |pool| {
            pool.save(|head, saved| {
                head[Checkpoint::BLOCKS] -= 1;
                let block_words = 1 + 2 * SETTINGS.block_directories as usize;
                saved.truncate(saved.len() - block_words);
            });
        }),
        // The object behind the newest, of the last directory.
        (SAYS, |pool| pool.save(|_, saved| *saved.last_mut().unwrap() ^= 1)),
        ("the infos of an area are whole", |pool| {
            let at = pool.place(AreaRecord::INFO_A + Info::START);
            pool.set(at, pool.get(at) ^ 1);
        }),
        ("the infos of an area are whole", |pool| {
            let at = pool.place(AreaRecord::INFO_B + Info::START);
            pool.set(at, pool.get(at) ^ 1);
        }),
    ]);
}

#[test]
fn an_open_names_each_rule_of_logs_that_is_broken() {
    // Fails if a number of a log's head or of an info is used that no table has, or if an open
    // believes a record, a count or a length that the objects of the newest log contradict.
    const LOST: &str = "no log is newer than the info of its area";
    const OBJECTS: &str = "an area has no more live pairs than objects";
    const NUMBERED: &str = "infos and logs are numbered from 1 on";
    let pool = Forged::of(SETTINGS, false);
    pool.open_names(&[
        (LOST, |pool| pool.run_ahead(0)),
        (LOST, |pool| pool.run_ahead(1)),
        // An older log, where the newest has no objects.
        (LOST, |pool| {
            pool.run_ahead(1);
            pool.empty_newest(AreaRecord::VISIBLE_TAIL);
        }),
        ("the checksum of a log's head matches", |pool| {
            pool.edit_log(0, LogHead::OWNER, |owner| LOG_AREA.set(owner, 1));
        }),
        ("the logs of an area have successive numbers", |pool| {
            pool.edit_log(0, LogHead::NUMBER, |number| number + 1);
        }),
        ("logs are numbered from 1 on", |pool| {
            pool.edit_log(0, LogHead::NUMBER, |_| 1 << 47);
        }),
        ("the logs begin at the oldest", Forged::lack_oldest),
        (NUMBERED, |pool| pool.edit_infos(Info::START, 1 << 47)),
        (NUMBERED, |pool| pool.edit_infos(Info::END, 1 << 47)),
        ("an area has at most 2^32 directories", |pool| pool.edit_infos(Info::LEVEL, 33)),
        ("an area has at most 2^32 directories", |pool| pool.edit_infos(Info::OLD, 33)),
        ("directories are in proportion to the medium", |pool| pool.edit_infos(Info::LEVEL, 30)),
        ("a log has no more objects than it has room for", Forged::hold_fewer),
        ("a log has room for its directory log", Forged::record_too_many),
        ("a log lies inside the medium", Forged::end_outside),
        ("the objects of a log lie inside it", Forged::end_before_objects),
        ("no line is in use twice", |pool| {
            let oldest = pool.logs().len() - 1;
            pool.edit_log(oldest, LogHead::SIZE, |size| size + (1 << 32));
        }),
        ("the checksum of a directory log matches", Forged::damage_records),
        ("a directory record says where its object is", Forged::mislead),
        (OBJECTS, |pool| pool.edit_log(0, LogHead::ITEMS, |items| items + 1)),
    ]);
}

#[test]
fn an_open_after_power_loss_refuses_a_log_that_is_ahead_of_its_epoch() {
    // Fails if a log without objects may be one for the next info, as where areas have none but
    // their own: an epoch has an info for itself, which is whole.
    const LOST: &str = "no log is newer than the info of its area";
    let mut pool = Forged::of(WalshSettings { epochs: 1, ..SETTINGS }, false);
    let Boot([machine, boot]) = pool.boot;
    pool.boot = Boot([machine, boot + 5]);
    pool.open_names(&[(LOST, |pool| {
        pool.run_ahead(0);
        let epoch = layout::decode_epoch(pool.get(EPOCH)).unwrap();
        let place = pool.place([AreaRecord::EPOCH_B, AreaRecord::EPOCH_A][(epoch % 2) as usize]);
        let at = place.plus(Info::TAIL as u64);
        pool.edit::<{ Info::WORDS }>(place, Info::TAIL, |word| {
            let tail = Tail::decode(word, at).unwrap();
            Tail { count: 0, ..tail }.encode(at)
        });
    })]);
}

#[test]
fn an_open_names_each_rule_of_closed_pools_that_is_broken() {
    // Fails if one of the two infos of a closed pool need not be whole and in its place, or if the
    // head of the newest log is believed because a checkpoint vouches for its directory log.
    const WHOLE: &str = "the infos of an area are whole";
    const LOST: &str = "no log is newer than the info of its area";
    Forged::of(SETTINGS, true).open_names(&[
        (WHOLE, |pool| {
            let at = pool.place(AreaRecord::INFO_A + Info::START);
            pool.set(at, pool.get(at) ^ 1);
        }),
        (WHOLE, |pool| {
            let at = pool.place(AreaRecord::INFO_B + Info::START);
            pool.set(at, pool.get(at) ^ 1);
        }),
        (WHOLE, |pool| {
            let at = pool.place(AreaRecord::INFO_A);
            pool.edit::<{ Info::WORDS }>(at, Info::SEQUENCE, |sequence| sequence ^ 1);
        }),
        ("the checksum of a log's head matches", |pool| {
            pool.edit_log(0, LogHead::OWNER, |owner| LOG_AREA.set(owner, 1));
        }),
        ("a log has no more objects than it has room for", Forged::hold_fewer),
        // Without the checkpoint.
        (LOST, |pool| {
            let at = pool.place(AreaRecord::CHECKPOINT);
            pool.set(at, Tail::default().encode(at));
            pool.run_ahead(0);
            pool.empty_newest(AreaRecord::DURABLE_TAIL);
        }),
    ]);
}

/// Returns how many areas were loaded, and where the directories of the first one lead.
fn loaded(pool: &Forged) -> (u64, Vec<[Addr; 2]>) {
    let table = pool.open().unwrap();
    let stats = table.stats().unwrap();
    let loaded = stats.own.iter().find(|(name, _)| *name == "areas_loaded").unwrap().1;
    let (area, view) = (&table.areas[0], table.lock(&table.areas[0]).unwrap().view);
    let read = |number| table.blocks.read(&area.sides[view.side()], number);
    let directories = (0..1 << view.level()).map(read).map(|it| [it.head(), it.behind()]);
    (loaded, directories.collect())
}

#[test]
fn an_open_passes_over_each_checkpoint_that_lies() {
    // Fails if a number of a checkpoint is believed that its area contradicts, or if a part of what
    // it says stays where the rest is passed over.
    let pool = Forged::of(SETTINGS, true);
    let (all, sound) = loaded(&pool);
    assert_eq!(all, SETTINGS.areas);
    let block_words = 1 + 2 * SETTINGS.block_directories as usize;
    assert!(sound.len() == 2 * SETTINGS.block_directories as usize, "there are two blocks");
    let words = |pool: &Forged| pool.words.len() as u64;
    let lies: [&dyn Fn(&mut Forged); 11] = [
        &|pool| pool.save(|head, _| head[Checkpoint::SEQUENCE] += 1),
        &|pool| {
            let at = pool.led(AreaRecord::CHECKPOINT);
            pool.save(|head, _| {
                let tail = Tail::decode(head[Checkpoint::TAIL], at).unwrap();
                head[Checkpoint::TAIL] = Tail { count: tail.count - 1, ..tail }.encode(at);
            });
        },
        &|pool| pool.save(|head, _| head[Checkpoint::BLOCKS] = 1 << 40),
        &|pool| pool.save(|head, _| head[Checkpoint::FILL] = 0),
        &|pool| pool.save(|head, _| head[Checkpoint::FILL] = 1 << 40),
        &|pool| pool.save(|head, _| head[Checkpoint::RECORDS_SUM] += 1),
        &|pool| pool.save(|_, saved| saved[1] = 0),
        &|pool| {
            let lines = words(pool) * 8 / LINE;
            pool.save(|_, saved| saved[1] = lines);
        },
        &|pool| {
            pool.save(|head, saved| {
                head[Checkpoint::LOGS] -= 1;
                saved.drain(..2);
            });
        },
        // A block twice, and one that there is not.
        &|pool| {
            pool.save(|_, saved| {
                let last = saved.len() - block_words;
                saved[last] = saved[last - block_words];
            });
        },
        &|pool| {
            pool.save(|_, saved| {
                let last = saved.len() - block_words;
                saved[last] = 2;
            });
        },
    ];
    for (number, lie) in lies.iter().enumerate() {
        let mut pool = pool.clone();
        lie(&mut pool);
        let (loaded, directories) = loaded(&pool);
        assert_eq!(loaded, SETTINGS.areas - 1, "lie {number}");
        assert_eq!(directories, sound, "lie {number}");
    }
}

#[test]
fn a_salvage_loses_what_a_lie_is_about_and_reports_each_rule() {
    // Fails if a salvage gives back an area of which no damage explains what is wrong, an object
    // that its record or its tag contradicts, or less than all others; or if it does not report
    // each rule that is broken.
    const RECORD: &str = "a directory record says where its object is";
    let pool = Forged::of(SETTINGS, false);
    let (all, rules) = pool.salvaged();
    assert!(rules.is_empty());
    let of_area = |key: &&u64| AREA_HASH.get(pool.hasher.word(**key)) & (SETTINGS.areas - 1) == 0;
    let area = all.iter().filter(of_area).count();
    let lies: [(Lie, usize, &[&str]); 4] = [
        (
            |pool| pool.edit_log(1, LogHead::ITEMS, |items| items + 1),
            area,
            &["the count of live pairs in a log's head is true"],
        ),
        (
            |pool| {
                pool.edit_object(1, |pool, key, link| {
                    (key, Link { tag: Tag::of(!pool.hasher.word(key)), ..link })
                });
            },
            1,
            &["an object has the tag of its key"],
        ),
        (Forged::damage_records, 0, &["the checksum of a directory log matches", RECORD]),
        // With the checksum.
        (
            |pool| {
                let [newest, before] = [0, 1].map(|log| pool.logs()[log]);
                let tail = pool.get(newest.plus(LogHead::PREVIOUS as u64));
                let count = Tail::decode(tail, newest).unwrap().count as usize;
                let first = before.word() as usize + LogHead::WORDS;
                pool.words[first] ^= 1;
                let sum = layout::sum(&pool.words[first..first + count], pool.seed);
                pool.edit_log(0, LogHead::PREVIOUS_SUM, |_| sum);
            },
            1,
            &[RECORD],
        ),
    ];
    for (number, (lie, lost, expected)) in lies.iter().enumerate() {
        let mut pool = pool.clone();
        lie(&mut pool);
        let (found, rules) = pool.salvaged();
        assert!(found.is_subset(&all), "lie {number}");
        assert_eq!((all.len() - found.len(), rules.as_slice()), (*lost, *expected), "lie {number}");
    }
}
