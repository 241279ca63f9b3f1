//! The paper's figures on the emulated flash device: write amplification, and what each mechanism
//! is worth (Tiered Hashing 4.2, 4.4, 4.5).

use everhash_index::{Form, Inline, Opening, Table, create};
use everhash_pmem::media::flash::{Flash, FlashCounters};
use everhash_pmem::media::virtual_time::Timing;
use everhash_pmem::profile::{FlashDevice, Profile};
use everhash_pmem::{Region, Std};
use everhash_testkit::random::Random;

use crate::tiered::{Tiered, TieredSettings};

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
        self.counters.ftl.flash_writes as f64 / self.counters.ftl.host_writes as f64
    }

    /// Pages read from flash per operation.
    fn reads(&self) -> f64 {
        self.counters.cache_misses as f64 / self.operations as f64
    }

    /// Pages written to flash per operation.
    fn external(&self) -> f64 {
        self.counters.external_write_amplification(self.operations)
    }
}

/// Pages that the device offers: the layers take 6,144 of them, and overflow lines some, together
/// about 95 %, as in the paper.
const LOGICAL_PAGES: f64 = 6800.0;

/// The device of Table 2, much smaller, with blocks of 16 pages so that it has enough of them.
fn device(spare_ratio: f64) -> FlashDevice {
    let profile = Profile::named("tiered").unwrap();
    let blocks = (LOGICAL_PAGES * (1.0 + spare_ratio) / 16.0).ceil() as u64;
    let usual = profile.flash().unwrap().clone();
    FlashDevice { blocks, block_pages: 16, streams: 2, spare_ratio, ..usual }
}

/// A table of 6,144 pages of 128 slots.
fn settings() -> TieredSettings {
    TieredSettings {
        line_slots: 2,
        top_pages: 2048,
        grow_percent: 100,
        ..TieredSettings::default()
    }
}

/// Inserts up to a load, looks up as many keys at random, and updates half as many.
fn run(device: &FlashDevice, settings: &TieredSettings, percent: u64) -> [Phase; 3] {
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let region = Region::new(Flash::<Std>::new(device, Timing::Virtual, 1 << 20));
    let table = create::<Tiered, _>(region.clone(), &opening, settings, &Inline).unwrap();
    let words = table.words().unwrap();
    let items = settings.slots() * percent / 100;
    let phase = |operations: u64, act: &mut dyn FnMut(u64)| {
        let (before, begun) = (region.media().counters(), region.media().elapsed_ps());
        (0..operations).for_each(act);
        let picoseconds = region.media().elapsed_ps() - begun;
        let counters = region.media().counters() - before;
        Phase { operations, counters, microseconds: picoseconds as f64 * 1e-6 / operations as f64 }
    };
    let insert = phase(items, &mut |key| assert!(words.insert_word(key, key).unwrap()));
    let mut random = Random::new(7);
    let search = phase(items, &mut |_| {
        assert!(words.get_word(random.below(items)).unwrap().is_some());
    });
    let update = phase(items / 2, &mut |value| {
        assert!(words.update_word(random.below(items), value).unwrap());
    });
    [insert, search, update]
}

fn print(name: &str, [insert, search, update]: &[Phase; 3]) {
    println!(
        "{name}: {:?}\n  inserts {:.2} internal, {:.2} external, {:.0} us; \
         updates {:.2}, {:.2}, {:.0} us; \
         searches {:.2} pages, {:.0} us",
        insert.counters,
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
#[ignore = "half a minute; prints the table of the report"]
fn flash_figures() {
    // Fails if streams, movement or the policy of one flush are worth nothing on the device.
    let usual = settings();
    for spare in [0.25, 0.0175] {
        let device = device(spare);
        for (name, settings) in [
            ("2 tiers", usual),
            ("no one-flush policy", TieredSettings { one_flush: 0, ..usual }),
            ("no movement", TieredSettings { movement: 0, ..usual }),
            ("one stream", TieredSettings { streams: 0, ..usual }),
            ("no shadow reading", TieredSettings { shadow_reading: 0, ..usual }),
        ] {
            print(&format!("spare {spare}, {name}"), &run(&device, &settings, 80));
        }
    }
}

#[test]
fn one_flush_saves_what_the_device_writes_and_searches_read_few_pages() {
    // Fails if a moved pair costs a page of its own, or if a search reads more pages than its key
    // has buckets above the place where it lies.
    let device = device(0.25);
    let usual = run(&device, &settings(), 50);
    let apart = run(&device, &TieredSettings { one_flush: 0, ..settings() }, 50);
    print("2 tiers", &usual);
    print("no one-flush policy", &apart);
    assert!(apart[2].external() > 1.25 * usual[2].external());
    assert!(usual[1].reads() <= 2.5);
}
