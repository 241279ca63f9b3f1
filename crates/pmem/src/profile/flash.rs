//! The numbers of a flash device behind memory-mapped pages.

use super::value::{choice, parameters};
use crate::{Error, LINE};

/// How many pages a device has at most.
///
/// Unit: pages. Source: ours; a TiB in pages of 4 KiB, of which the map takes 2 GiB of memory.
const MOST_PAGES: u64 = 1 << 28;

choice! {
    /// Which block garbage collection empties.
    Victim {
        /// The one with the fewest valid pages.
        Greedy = "greedy",
        /// The best of age times gain over cost; old blocks are worth more than young ones.
        CostBenefit = "cost-benefit",
        /// The one that was filled first.
        Fifo = "fifo",
        /// Any.
        Random = "random",
    }
}

parameters! {
    /// A flash device with a page map, streams and a cache of pages in front.
    FlashDevice {
        /// The unit in which flash is read and written.
        page_bytes: u64, "B", 512, 65536;
        /// Pages in a block, the unit in which flash is erased.
        block_pages: u64, "pages", 4, 65536;
        /// Blocks on the device, spare ones included.
        blocks: u64, "blocks", 8, 16777216;
        /// Spare space as a share of the logical space.
        spare_ratio: f64, "ratio", 0.001, 10;
        /// Which block garbage collection empties.
        victim: Victim, "", 0, 0;
        /// Free blocks at which garbage collection begins, beside one for each stream in use.
        low_water_blocks: u64, "blocks", 1, 1024;
        /// The streams that the device keeps apart.
        streams: u64, "streams", 1, 64;
        /// The pages in the cache, as a share of all pages; the victim is the least recently used.
        cache_ratio: f64, "ratio", 0.000001, 1;
        /// The time of reading a page from flash.
        page_read_us: f64, "us", 0, 1000000;
        /// The time of writing a page to flash.
        page_write_us: f64, "us", 0, 1000000;
        /// The time of erasing a block.
        erase_us: f64, "us", 0, 1000000;
        /// The time of reading a line of a cached page.
        line_read_us: f64, "us", 0, 1000000;
        /// The time of writing a line of a cached page.
        line_write_us: f64, "us", 0, 1000000;
        /// The time that an operation spends computing.
        operation_ns: f64, "ns", 0, 1000000;
        /// The time of one line of DRAM, read at random.
        dram_random_ns: f64, "ns", 0, 10000;
    }
}

impl FlashDevice {
    /// Returns the number of pages that a program sees.
    pub fn logical_pages(&self) -> u64 {
        ((self.blocks * self.block_pages) as f64 / (1.0 + self.spare_ratio)) as u64
    }

    /// Returns the number of pages in the cache, at least one.
    pub fn cache_pages(&self) -> u64 {
        (((self.blocks * self.block_pages) as f64 * self.cache_ratio) as u64).max(1)
    }

    /// Returns the device with `1 / scale` of the blocks, or as many as its streams need; the cache
    /// shrinks with it.
    pub fn scaled(&self, scale: f64) -> FlashDevice {
        let blocks = ((self.blocks as f64 / scale) as u64).max(8);
        let mut scaled = FlashDevice { blocks, ..self.clone() };
        while scaled.spare_blocks() <= scaled.most_open_blocks() && scaled.blocks < self.blocks {
            scaled.blocks += 1;
        }
        scaled
    }

    /// Returns the number of blocks behind what a program sees.
    pub(crate) fn spare_blocks(&self) -> u64 {
        (self.blocks * self.block_pages - self.logical_pages()) / self.block_pages
    }

    /// Returns how many blocks can be open or kept free. More must be spare, or garbage collection
    /// finds nothing to win.
    pub(crate) fn most_open_blocks(&self) -> u64 {
        2 * self.streams + self.low_water_blocks
    }

    /// Returns the device if one can be made of these numbers.
    pub(super) fn checked(self) -> crate::Result<FlashDevice> {
        let wrong = |what| Err(Error::Profile { what });
        if !self.page_bytes.is_multiple_of(LINE) {
            return wrong(format!("page_bytes must be a multiple of {LINE}, the bytes of a line"));
        }
        let pages = self.blocks * self.block_pages;
        if pages > MOST_PAGES {
            return wrong(format!(
                "{} blocks of {} pages are {pages} pages, and at most {MOST_PAGES} can be \
                 emulated; write fewer blocks or block_pages",
                self.blocks, self.block_pages
            ));
        }
        let (spare, open) = (self.spare_blocks(), self.most_open_blocks());
        if spare <= open {
            return wrong(format!(
                "{spare} spare blocks are too few for {} streams and low_water_blocks = {}: more \
                 than {open} are needed; write a larger spare_ratio, more blocks or fewer streams",
                self.streams, self.low_water_blocks
            ));
        }
        Ok(self)
    }
}
