//! Engines on the emulated flash device of Tiered Hashing: what the device writes and reads for
//! them, and what each mechanism of Tiered Hashing is worth there (4.2, 4.4, 4.5 of its paper).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(feature = "flash")]
use everhash_engines::designs;
use everhash_engines::tiered::Tiered;
use everhash_index::{Choice, Design, Form, Inline, Opening, Result, Sizing, Stats, Table};
use everhash_pmem::media::flash::{Flash, FlashCounters};
use everhash_pmem::media::virtual_time::Timing;
use everhash_pmem::profile::{FlashDevice, Profile};
use everhash_pmem::{Region, Std};
use everhash_testkit::random::Random;

/// Settings that differ from the usual ones.
type Changes = &'static [(&'static str, u64)];

/// Tiered Hashing with 128 slots a page, as in the paper, and no growth: 6,144 pages of layers.
const TWO_TIERS: Changes = &[
    ("line_slots", 2),
    ("layers", 2),
    ("ratio_log", 1),
    ("fingerprints", 0),
    ("top_pages", 2048),
    ("grow_percent", 100),
];

/// As [`TWO_TIERS`], with 7,168 pages of three layers.
const THREE_TIERS: Changes = &[
    ("line_slots", 2),
    ("layers", 3),
    ("ratio_log", 1),
    ("fingerprints", 0),
    ("top_pages", 1024),
    ("grow_percent", 100),
];

/// As [`TWO_TIERS`], with 7,680 pages of four layers.
const FOUR_TIERS: Changes = &[
    ("line_slots", 2),
    ("layers", 4),
    ("ratio_log", 1),
    ("fingerprints", 0),
    ("top_pages", 512),
    ("grow_percent", 100),
];

/// Fingerprints in DRAM of all layers but the bottom one.
const UPPER: Changes = &[("fingerprints", 2)];

/// A part of a run.
struct Phase {
    operations: u64,
    counters: FlashCounters,
    /// Mean time of an operation in virtual time. Unit: microseconds.
    microseconds: f64,
}

impl Phase {
    /// Pages written to flash per page that the device was asked to write.
    fn internal(&self) -> f64 {
        self.counters.ftl.internal_write_amplification()
    }

    /// Pages written to flash per operation.
    fn external(&self) -> f64 {
        self.counters.external_write_amplification(self.operations)
    }

    /// Pages read from flash per operation.
    fn reads(&self) -> f64 {
        self.counters.cache_misses as f64 / self.operations as f64
    }
}

/// Pages of a block: fewer than those of the paper, so that a small device has enough of them.
const BLOCK_PAGES: u64 = 16;

/// Returns the device of Table 2 with so many logical pages, and a stream for each layer.
fn device(logical_pages: u64, spare_ratio: f64, streams: u64) -> FlashDevice {
    let profile = Profile::named("tiered").unwrap();
    let usual = profile.flash().unwrap();
    let spare = (logical_pages as f64 * spare_ratio / BLOCK_PAGES as f64).ceil() as u64;
    // Blocks that are open or kept free: nothing at the scale of the paper, and much at this one.
    let kept = usual.low_water_blocks + 2 * streams;
    let blocks = logical_pages.div_ceil(BLOCK_PAGES) + spare + kept;
    let spare_ratio = (blocks * BLOCK_PAGES) as f64 / logical_pages as f64 - 1.0;
    FlashDevice { blocks, block_pages: BLOCK_PAGES, streams, spare_ratio, ..usual.clone() }
}

/// A table on its device.
struct Bed {
    region: Region<Flash<Std>>,
    table: Box<dyn Table>,
    slots: u64,
}

impl Bed {
    fn new(design: &Design<Flash<Std>>, choice: Choice<'_>, device: &FlashDevice) -> Result<Bed> {
        let opening = Opening { form: Form::WORDS, ..Opening::default() };
        let region = Region::new(Flash::<Std>::new(device, Timing::Virtual, 1 << 20));
        let table = design.create(region.clone(), &opening, choice, &Inline)?;
        let slots = table.stats()?.slots;
        Ok(Bed { region, table, slots })
    }

    /// Tiered Hashing, and a device of which its layers take nine tenths: overflow lines take some
    /// more, together about 95 % as in the paper.
    fn tiered(changes: &[&[(&str, u64)]], spare_ratio: f64) -> Bed {
        let design = Design::of::<Tiered>();
        let choice = Choice { sizing: Sizing::Usual, changes: &changes.concat() };
        let setting = |name| design.setting(Form::WORDS, choice, name).unwrap().unwrap();
        let layers = setting("layers");
        let pages = (0..layers).map(|layer| setting("top_pages") << layer).sum::<u64>();
        let streams = layers;
        Bed::new(&design, choice, &device(pages * 10 / 9, spare_ratio, streams)).unwrap()
    }

    fn phase(&self, operations: u64, mut act: impl FnMut(u64)) -> Phase {
        let (before, begun) = (self.region.media().counters(), self.region.media().elapsed_ps());
        (0..operations).for_each(&mut act);
        let picoseconds = self.region.media().elapsed_ps() - begun;
        let counters = self.region.media().counters() - before;
        Phase { operations, counters, microseconds: picoseconds as f64 * 1e-6 / operations as f64 }
    }

    fn insert(&self, keys: core::ops::Range<u64>) -> Phase {
        self.phase(keys.end - keys.start, |index| {
            let key = (keys.start + index).to_le_bytes();
            assert!(self.table.insert(&key, &key).unwrap());
        })
    }

    fn update(&self, operations: u64, mut key: impl FnMut() -> u64) -> Phase {
        self.phase(operations, |value| {
            assert!(self.table.update(&key().to_le_bytes(), &value.to_le_bytes()).unwrap());
        })
    }

    fn search(&self, operations: u64, mut key: impl FnMut() -> u64) -> Phase {
        let mut value = Vec::new();
        self.phase(operations, |_| {
            assert!(self.table.get(&key().to_le_bytes(), &mut value).unwrap());
        })
    }

    /// Inserts up to a load, looks up as many keys at random, and updates half as many.
    fn run(&self, percent: u64) -> [Phase; 3] {
        let items = self.slots * percent / 100;
        let mut random = Random::new(7);
        let insert = self.insert(0..items);
        let search = self.search(items, || random.below(items));
        [insert, search, self.update(items / 2, || random.below(items))]
    }
}

fn print(name: &str, [insert, search, update]: &[Phase; 3]) {
    println!(
        "{name:40} inserts {:.2} internal, {:.2} external, {:.0} us; updates {:.2}, {:.2}, {:.0} \
         us; searches {:.2} pages, {:.0} us",
        insert.internal(),
        insert.external(),
        insert.microseconds,
        update.internal(),
        update.external(),
        update.microseconds,
        search.reads(),
        search.microseconds
    );
}

#[test]
fn one_flush_saves_what_the_device_writes_and_searches_read_few_pages() {
    // Fails if a moved pair costs a page of its own, if sources share a flush without the policy,
    // or if a search reads more pages than its key has buckets above the place where it lies.
    let usual = Bed::tiered(&[TWO_TIERS], 0.25).run(50);
    let apart = Bed::tiered(&[TWO_TIERS, &[("one_flush", 0)]], 0.25).run(50);
    print("2 tiers", &usual);
    print("no one-flush policy", &apart);
    assert!(apart[0].external() > 1.9 * usual[0].external());
    assert!(apart[2].external() > 1.25 * usual[2].external());
    assert!(usual[1].reads() <= 2.5);
}

#[test]
fn with_its_upper_layers_in_dram_a_write_is_a_page_and_a_search_little_more() {
    // Fails if a search reads a page of an upper layer in vain, if a move writes the page of its
    // source, or if more layers cost more of either.
    for tiers in [TWO_TIERS, THREE_TIERS] {
        let [insert, search, update] = Bed::tiered(&[tiers, UPPER], 0.25).run(50);
        let asked = |phase: &Phase| phase.counters.ftl.host_writes as f64 / phase.operations as f64;
        println!("{:.3}, {:.3}, {:.3}", asked(&insert), asked(&update), search.reads());
        assert!(asked(&insert) < 1.01 && asked(&update) < 1.01);
        assert!(search.reads() < 1.3);
    }
}

#[test]
fn a_table_that_is_made_on_flash_is_steep() {
    // Fails if the usual settings do not suit the device, or if more is written with them than with
    // those of memory.
    let written = |changes: Changes, streams: u64| {
        let choice = Choice { sizing: Sizing::Pairs(80_000), changes };
        let device = device(2048, 0.25, streams);
        let bed = Bed::new(&Design::of::<Tiered>(), choice, &device).unwrap();
        let mut random = Random::new(7);
        let insert = bed.insert(0..80_000);
        let update = bed.update(40_000, || random.below(80_000));
        let hottest = bed.region.media().streams()[0].valid;
        (bed.table.stats().unwrap(), hottest, insert.external(), update.external())
    };
    let (usual, _, insert, update) = written(&[], 3);
    let (flat, _, flat_insert, flat_update) =
        written(&[("layers", 2), ("ratio_log", 1), ("fingerprints", 0)], 3);
    println!("{insert:.2}, {update:.2}; flat {flat_insert:.2}, {flat_update:.2}");
    let layers = |stats: &Stats| stats.own.iter().find(|own| own.0 == "layers").unwrap().1;
    assert_eq!((layers(&usual), layers(&flat)), (3, 2));
    assert!(usual.dram_bytes > flat.dram_bytes);
    assert!(insert < flat_insert && update < flat_update);
    // With two streams the lower two layers share one.
    let (_, hottest, ..) = written(&[], 2);
    println!("{hottest} pages beside those of the top layer");
    assert!(hottest < 100);
}

/// Returns how many pages each stream was asked to write.
fn asked(bed: &Bed) -> Vec<u64> {
    bed.region.media().streams().iter().map(|stream| stream.host_writes).collect()
}

fn own(bed: &Bed, name: &str) -> u64 {
    let stats = bed.table.stats().unwrap();
    stats.own.iter().find(|own| own.0 == name).unwrap().1
}

#[test]
fn a_stream_belongs_to_a_rank_after_growth_as_before() {
    // Fails if the medium is not told of the streams when a table is opened, when a layer is added,
    // or when the top one is dropped: with two layers each write is one page, of stream 0 if it
    // goes to the top layer and of stream 1 if it goes below. And if a new layer is written more
    // than once, or to the stream of what lay there before.
    const GROWING: Changes = &[
        ("line_slots", 2),
        ("layers", 2),
        ("ratio_log", 1),
        ("fingerprints", 1),
        ("top_pages", 8),
        ("grow_percent", 60),
    ];
    let choice = Choice { sizing: Sizing::Usual, changes: GROWING };
    let bed = Bed::new(&Design::of::<Tiered>(), choice, &device(1024, 0.25, 3)).unwrap();
    let maintain = |budget| bed.table.maintain(core::time::Duration::ZERO, budget).unwrap().more;
    let since = |begun: &[u64]| -> Vec<u64> {
        asked(&bed).iter().zip(begun).map(|(now, old)| now - old).collect()
    };
    let mut key = 0;
    for growth in 0..2 {
        // Pages of the layers were written when these were made.
        let begun = asked(&bed);
        let writes = || [own(&bed, "top_writes"), own(&bed, "lower_writes")];
        let counted = writes();
        let most = own(&bed, "buckets") * 4 * 57 / 100;
        while key < most {
            bed.insert(key..key + 1);
            key += 1;
        }
        let now = writes();
        let expected = [now[0] - counted[0], now[1] - counted[1], 0];
        let pages = since(&begun);
        println!("growth {growth}: {pages:?} pages, at {most} pairs");
        assert_eq!((pages, own(&bed, "overflowed")), (expected.to_vec(), 0));
        assert!(expected[0] > 100 && expected[1] > 20);
        let mut begun = asked(&bed);
        while own(&bed, "layers") == 2 {
            begun = asked(&bed);
            bed.insert(key..key + 1);
            key += 1;
        }
        // The new layer, and beside it the insert, its place and what a write drains, if it does.
        let layer = 8 << (growth + 2);
        let pages = since(&begun);
        assert!(pages[0] + pages[1] < 8 && (layer..layer + 8).contains(&pages[2]), "{pages:?}");
        let begun = asked(&bed);
        // A page of the layer that is drained, and what was in it.
        for _ in 0..8 {
            assert!(maintain(1) || own(&bed, "layers") == 2);
        }
        let pages = since(&begun);
        assert!(pages.iter().all(|pages| *pages > 0), "{pages:?} while the top layer is drained");
        while maintain(1000) {}
        assert_eq!(own(&bed, "layers"), 2);
    }
}

#[test]
#[ignore = "measures: the command stands in CONTRIBUTING.md"]
fn flash_figures() {
    // Fails if streams, movement or the policy of one flush are worth nothing on the device.
    for spare in [0.25, 0.0175] {
        let mut all = Vec::new();
        let variants: [(&str, &[Changes]); 11] = [
            ("2 tiers", &[TWO_TIERS]),
            ("no one-flush policy", &[TWO_TIERS, &[("one_flush", 0)]]),
            ("no movement", &[TWO_TIERS, &[("movement", 0)]]),
            ("one stream", &[TWO_TIERS, &[("streams", 0)]]),
            ("no shadow reading", &[TWO_TIERS, &[("shadow_reading", 0)]]),
            ("fingerprints in DRAM", &[TWO_TIERS, &[("fingerprints", 1)]]),
            ("of the upper layer", &[TWO_TIERS, UPPER]),
            ("3 tiers", &[THREE_TIERS]),
            ("4 tiers", &[FOUR_TIERS]),
            ("3 tiers, upper layers", &[THREE_TIERS, UPPER]),
            ("4 tiers, upper layers", &[FOUR_TIERS, UPPER]),
        ];
        for (name, changes) in variants {
            let phases = Bed::tiered(changes, spare).run(80);
            print(&format!("spare {spare}, {name}"), &phases);
            all.push(phases);
        }
        let inserts: Vec<_> = all.iter().map(|phases| phases[0].external()).collect();
        let usual = inserts[0];
        assert!(inserts[1..4].iter().all(|without| *without > 1.1 * usual), "{inserts:?}");
        let [insert, search, update] = &all[0];
        // Fewer pages with fingerprints, and less time with shadow reading, at least 5 %.
        assert!(search.reads() <= 2.5 && all[5][1].reads() <= 1.1 && all[6][1].reads() <= 1.3);
        assert!(search.microseconds <= 0.95 * all[4][1].microseconds);
        if spare == 0.25 {
            assert!(insert.internal() <= 1.3 && update.internal() <= 1.7);
        }
    }
}

#[test]
#[ignore = "measures: the command stands in CONTRIBUTING.md"]
fn shadow_reading_at_three_loads() {
    // Fails if a search that takes the shadow of a pair is not faster than one that goes on to the
    // pair itself (Table 4), by 5 % at a load of 80 %.
    for percent in [50, 80, 95] {
        let [with, without] = [1, 0].map(|reading| {
            let bed = Bed::tiered(&[TWO_TIERS, &[("shadow_reading", reading)]], 0.25);
            let items = bed.slots * percent / 100;
            bed.insert(0..items);
            let mut random = Random::new(7);
            bed.search(items, || random.below(items))
        });
        let less = 1.0 - with.microseconds / without.microseconds;
        println!(
            "load {percent} %: {:.2} pages, {:.0} us with shadow reading; {:.2}, {:.0} without: \
             {:.1} % less time",
            with.reads(),
            with.microseconds,
            without.reads(),
            without.microseconds,
            100.0 * less
        );
        assert!(less > 0.0 && (percent != 80 || less >= 0.05), "{less}");
    }
}

/// Keys by their rank, of which the first are wanted most.
struct Zipf(Vec<f64>);

impl Zipf {
    /// Source: YCSB, "zipfian".
    const SKEW: f64 = 0.99;

    fn new(items: u64) -> Zipf {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64 + 1.0).powf(-Zipf::SKEW);
            sum
        };
        Zipf((0..items).map(weight).collect())
    }

    fn next(&self, random: &mut Random) -> u64 {
        let total = self.0.last().unwrap();
        let wanted = random.below(1 << 53) as f64 / (1u64 << 53) as f64 * total;
        self.0.partition_point(|sum| *sum <= wanted) as u64
    }
}

/// Does a mix of YCSB on keys that are there: so many reads in a hundred, and updates, which read
/// first if `reads_first`.
fn mixed(bed: &Bed, items: u64, reads: u64, reads_first: bool, zipf: &Zipf) -> Phase {
    let (mut random, mut found) = (Random::new(11), Vec::new());
    bed.phase(items / 2, |value| {
        let key = zipf.next(&mut random).to_le_bytes();
        let is_read = random.below(100) < reads;
        if is_read || reads_first {
            assert!(bed.table.get(&key, &mut found).unwrap());
        }
        if !is_read {
            assert!(bed.table.update(&key, &value.to_le_bytes()).unwrap());
        }
    })
}

/// Does mix D of YCSB: 95 reads in a hundred, mostly of the newest keys, and inserts.
fn latest(bed: &Bed, items: u64, zipf: &Zipf) -> Phase {
    let (mut random, mut found, mut newest) = (Random::new(11), Vec::new(), items);
    bed.phase(items / 2, |value| {
        if random.below(100) < 95 {
            let key = (newest - 1 - zipf.next(&mut random)).to_le_bytes();
            assert!(bed.table.get(&key, &mut found).unwrap());
        } else {
            assert!(bed.table.insert(&newest.to_le_bytes(), &value.to_le_bytes()).unwrap());
            newest += 1;
        }
    })
}

#[test]
#[ignore = "measures: the command stands in CONTRIBUTING.md"]
fn ycsb_on_flash() {
    // Fails if streams save nothing where a few keys are written most (Fig. 12).
    for spare in [0.25, 0.0175] {
        for tiers in [TWO_TIERS, THREE_TIERS] {
            let mut written = Vec::new();
            for streams in [1, 0] {
                let bed = Bed::tiered(&[tiers, &[("streams", streams)]], spare);
                let items = bed.slots * 8 / 10;
                bed.insert(0..items);
                let zipf = Zipf::new(items);
                for (name, reads, reads_first) in [
                    ("A", 50, false),
                    ("B", 95, false),
                    ("C", 100, false),
                    ("F", 50, true),
                    ("D", 95, false),
                ] {
                    let phase = match name {
                        "D" => latest(&bed, items, &zipf),
                        _ => mixed(&bed, items, reads, reads_first, &zipf),
                    };
                    println!(
                        "spare {spare}, {} tiers, streams {streams}, {name}: {:.2} internal, {:.2} \
                         external, {:.2} pages read, {:.0} us",
                        if tiers == TWO_TIERS { 2 } else { 3 },
                        phase.internal(),
                        phase.external(),
                        phase.reads(),
                        phase.microseconds
                    );
                    written.push(phase.external());
                }
            }
            // A, B, F and D; C writes nothing.
            let without = |mix: usize| written[5 + mix] / written[mix];
            assert!([0, 1, 3, 4].iter().all(|mix| without(*mix) > 1.1), "{written:?}");
        }
    }
}

/// Pairs of a run that compares engines.
#[cfg(feature = "flash")]
const RIVALS_ITEMS: u64 = 400_000;

#[test]
#[cfg(feature = "flash")]
#[ignore = "measures: the command stands in CONTRIBUTING.md"]
fn rivals_on_flash() {
    // Fails if an engine does not work on flash. Each is made for the same pairs, without growing,
    // and its device is as large as it needs: its pool takes 95 %, as in the paper.
    for spare in [0.25, 0.0175] {
        for design in designs::<Flash<Std>>() {
            // Where writes are collected, each is made durable by itself.
            let has_batches = design.settings.iter().any(|setting| setting.name == "durability");
            let changes: Changes = if has_batches { &[("durability", 1)] } else { &[] };
            let choice = Choice { sizing: Sizing::Pairs(RIVALS_ITEMS), changes };
            // One for each layer of a steep table.
            let streams = if design.name == "tiered" { 3 } else { 2 };
            let most = device(64 << 10, 0.25, streams);
            let run = |device: &FlashDevice| {
                let bed = Bed::new(&design, choice, device).unwrap();
                let mut random = Random::new(7);
                let insert = bed.insert(0..RIVALS_ITEMS);
                let search = bed.search(RIVALS_ITEMS, || random.below(RIVALS_ITEMS));
                let update = bed.update(RIVALS_ITEMS / 2, || random.below(RIVALS_ITEMS));
                (bed.table.stats().unwrap().device_bytes, [insert, search, update])
            };
            let (bytes, _) = run(&most);
            let pages = (bytes as f64 / 4096.0 / 0.95).ceil() as u64;
            let (_, phases) = run(&device(pages, spare, streams));
            print(&format!("spare {spare}, {}, {} MiB", design.name, bytes >> 20), &phases);
        }
    }
}
