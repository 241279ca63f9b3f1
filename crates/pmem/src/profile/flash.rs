//! The numbers of a flash device behind memory-mapped pages.

use super::value::{choice, parameters};

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

    /// Returns the device with `1 / scale` of the blocks; the cache shrinks with it.
    pub fn scaled(&self, scale: f64) -> FlashDevice {
        let blocks = ((self.blocks as f64 / scale) as u64).max(8);
        FlashDevice { blocks, ..self.clone() }
    }
}
