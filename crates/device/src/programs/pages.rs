//! Programs that show how a flash device wins space back.

use everhash_pmem::media::flash::{Flash, FlashCounters, Ftl};
use everhash_pmem::media::random::Random;
use everhash_pmem::media::virtual_time::{Schedule, Step, Summary, Timing};
use everhash_pmem::profile::{FlashDevice, Victim};
use everhash_pmem::{Addr, Region, Result, Span, Std};

use super::SITE;

/// Where the writes go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heat {
    /// The share of the pages that is hot.
    pub(crate) space: f64,
    /// The share of the writes that goes there.
    pub(crate) writes: f64,
}

/// Every page is written equally often.
pub(crate) const UNIFORM: Heat = Heat { space: 0.0, writes: 0.0 };

/// Returns the device with blocks so many and so small that few of them kept free do not count.
pub(crate) fn sized(
    device: &FlashDevice,
    victim: Victim,
    spare_ratio: f64,
    streams: u64,
) -> FlashDevice {
    let (blocks, block_pages) = (2048, 128);
    FlashDevice { blocks, block_pages, victim, spare_ratio, streams, ..device.clone() }
}

/// Fills a device, overwrites it `warm` times over and returns the internal write amplification of
/// one more round. With two streams the hot pages have their own.
pub(crate) fn steady_state(device: &FlashDevice, heat: Heat, warm: u64) -> f64 {
    let (mut ftl, mut random) = (Ftl::new(device, 1), Random::new(2));
    let pages = ftl.logical_pages();
    let hot = (pages as f64 * heat.space) as u64;
    let stream = |page: u64| u8::from(device.streams > 1 && page < hot);
    for page in 0..pages {
        ftl.write(page, stream(page));
    }
    let mut before = ftl.counters();
    for round in 0..=warm {
        if round == warm {
            before = ftl.counters();
        }
        for _ in 0..pages {
            let is_hot = hot > 0 && random.happens(heat.writes);
            let page = if is_hot { random.below(hot) } else { hot + random.below(pages - hot) };
            ftl.write(page, stream(page));
        }
    }
    (ftl.counters() - before).internal_write_amplification()
}

/// Fills a small device of this kind, then updates words of random pages in place, flushing each;
/// returns what the updates came to.
pub(crate) fn updates(device: &FlashDevice) -> Result<(FlashCounters, Summary)> {
    let device = FlashDevice { blocks: 512, block_pages: 64, streams: 1, ..device.clone() };
    let bytes = device.logical_pages() * device.page_bytes;
    let region = Region::new(Flash::<Std>::new(&device, Timing::Virtual, bytes));
    let update = |page: u64| -> Result<()> {
        let pm = region.access();
        let at = Addr::new(page * device.page_bytes);
        pm.store(at, page)?;
        pm.persist(Span::new(at, 1), SITE)
    };
    (0..device.logical_pages()).try_for_each(&update)?;
    let mut random = Random::new(3);
    for _ in 0..2 * device.logical_pages() {
        update(random.below(device.logical_pages()))?;
    }
    let before = region.media().counters();
    let (mut left, mut failure) = (device.logical_pages(), None);
    let mut schedule = Schedule::new(&**region.media());
    schedule.thread(|_| {
        if left == 0 || failure.is_some() {
            return Step::Done;
        }
        left -= 1;
        failure = update(random.below(device.logical_pages())).err();
        Step::Again
    });
    let summary = schedule.run();
    failure.map_or(Ok((region.media().counters() - before, summary)), Err)
}
