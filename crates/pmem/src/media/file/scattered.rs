//! Whether scattered reads wait for the device. Found out by samples: asking the system costs a
//! call, which a read of what is in memory must not pay for.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Span;
use crate::sys::map::Mapping;

/// Of 2^5 announcements one is a sample, while all that was sampled was in memory.
///
/// Unit: bits. Source: ours; a call of the system takes one microsecond, a value of 16 KiB three.
const SAMPLED_BITS: u32 = 5;

/// For so many announcements behind one that was not in memory, the system is told of each.
///
/// Source: ours; where one read in twenty waits, most are told. When all is in memory again, they
/// cost a millisecond in all.
const TOLD: u64 = 64;

/// Spreads places, so that those at regular distances are sampled as often as others.
///
/// Source: ours; 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is known of scattered reads.
#[derive(Debug, Default)]
pub(super) struct Scattered {
    /// For how many more announcements the system is told.
    left: AtomicU64,
}

impl Scattered {
    /// Announces reads of these spans, as [`Hints::will_read_each`](crate::Hints::will_read_each).
    #[inline(always)]
    pub(super) fn announce(&self, mapping: &Mapping, spans: impl Iterator<Item = Span> + Clone) {
        let Some(first) = spans.clone().next() else { return };
        let left = self.left.load(Ordering::Relaxed);
        let is_sample = first.start.word().wrapping_mul(SPREAD) >> (u64::BITS - SAMPLED_BITS) == 0;
        if left > 0 || is_sample {
            self.tell(mapping, (first, left), spans);
        }
    }

    /// Looks whether the first one is in memory, and tells the system of all if this or another one
    /// lately was not.
    #[cold]
    #[inline(never)]
    fn tell(
        &self,
        mapping: &Mapping,
        (first, left): (Span, u64),
        spans: impl Iterator<Item = Span>,
    ) {
        let is_there = mapping.is_resident(first.start.byte(), first.end_byte());
        let left = if is_there { left.saturating_sub(1) } else { TOLD };
        // Threads may overwrite one another's: it is told of a few more or less.
        self.left.store(left, Ordering::Relaxed);
        if left > 0 {
            spans.for_each(|span| mapping.read_ahead(span));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use rustix::fs::{Advice, fadvise};

    use crate::{Addr, FileMedium, FileOptions, Hints, Span};

    use super::*;

    const PAGE: u64 = 4096;
    const PAGES: u64 = 1 << 10;

    /// Returns a medium none of whose pages is in memory, and removes its file; `None` if the file
    /// system has no other place for them.
    fn cold(name: &str) -> Option<FileMedium> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let options = FileOptions::default();
        let medium = FileMedium::create(&path, PAGES * PAGE, &options).unwrap();
        medium.publish().unwrap();
        drop(medium);
        std::fs::write(&path, vec![1; (PAGES * PAGE) as usize]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let medium = FileMedium::open(&path, &options).unwrap();
        std::fs::remove_file(&path).unwrap();
        let is_cold = (1..PAGES).all(|page| !is_there(&medium, page));
        if !is_cold {
            println!("pages of {} cannot leave memory", path.display());
        }
        is_cold.then_some(medium)
    }

    fn is_there(medium: &FileMedium, page: u64) -> bool {
        medium.backing.mapping.is_resident(page * PAGE, (page + 1) * PAGE)
    }

    fn span(page: u64) -> Span {
        Span::new(Addr::new(page * PAGE + 64), 24)
    }

    fn left(medium: &FileMedium) -> u64 {
        medium.scattered.left.load(Ordering::Relaxed)
    }

    #[test]
    fn what_waits_for_the_device_is_read_together() {
        // Fails if pages that are not in memory are read one by one, when they are wanted; or if
        // the system is asked for each announcement although all is in memory.
        let Some(medium) = cold("scattered") else { return };
        let announce = |pages: &[u64]| {
            medium.will_read_each(pages.iter().map(|page| span(*page)));
        };
        announce(&[]);
        let (samples, others): (Vec<_>, Vec<_>) = (1..PAGES).partition(|page| {
            announce(&[*page]);
            let is_sample = left(&medium) > 0;
            medium.scattered.left.store(0, Ordering::Relaxed);
            is_sample
        });
        assert!((10..100).contains(&samples.len()), "{} samples", samples.len());
        assert!(others.iter().all(|page| !is_there(&medium, *page)));
        medium.scattered.left.store(1, Ordering::Relaxed);
        // The last one lies behind the file's end.
        let pages: Vec<u64> = others.iter().copied().chain([2 * PAGES]).collect();
        announce(&pages);
        assert_eq!(left(&medium), TOLD, "the first one was not in memory");
        let began = Instant::now();
        while !others.iter().chain(&samples).all(|page| is_there(&medium, *page)) {
            assert!(began.elapsed() < Duration::from_secs(20), "they are not read");
            std::thread::sleep(Duration::from_millis(1));
        }
        for number in (0..TOLD).rev() {
            announce(&pages);
            assert_eq!(left(&medium), number);
        }
        announce(&samples);
        assert_eq!(left(&medium), 0);
    }
}
