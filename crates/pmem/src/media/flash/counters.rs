//! What a flash device counts.

use core::ops::Sub;

use super::ftl::FtlCounters;

/// Counts since the device was made, or between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashCounters {
    /// The size of a page. Unit: bytes.
    pub page_bytes: u64,
    /// Bytes that the program loaded.
    pub bytes_loaded: u64,
    /// Bytes that the program stored.
    pub bytes_stored: u64,
    /// Pages that the program flushed, clean ones included.
    pub pages_flushed: u64,
    /// Fences.
    pub fences: u64,
    /// Accesses to lines of cached pages.
    pub cache_hits: u64,
    /// Accesses that had to read their page first.
    pub cache_misses: u64,
    /// Dirty pages that the cache had to make room for.
    pub dirty_evictions: u64,
    /// What happened behind the cache.
    pub ftl: FtlCounters,
}

impl Sub for FlashCounters {
    type Output = FlashCounters;

    /// Returns what came between two snapshots.
    ///
    /// # Panics
    /// If `before` is the later one.
    fn sub(self, before: FlashCounters) -> FlashCounters {
        let less = |after: u64, before: u64| {
            after.checked_sub(before).expect("the snapshots are subtracted the wrong way")
        };
        FlashCounters {
            page_bytes: self.page_bytes,
            bytes_loaded: less(self.bytes_loaded, before.bytes_loaded),
            bytes_stored: less(self.bytes_stored, before.bytes_stored),
            pages_flushed: less(self.pages_flushed, before.pages_flushed),
            fences: less(self.fences, before.fences),
            cache_hits: less(self.cache_hits, before.cache_hits),
            cache_misses: less(self.cache_misses, before.cache_misses),
            dirty_evictions: less(self.dirty_evictions, before.dirty_evictions),
            ftl: self.ftl - before.ftl,
        }
    }
}

impl FlashCounters {
    /// Returns pages written to flash for each of `operations` operations of the user: the external
    /// write amplification of Tiered Hashing.
    pub fn external_write_amplification(&self, operations: u64) -> f64 {
        self.ftl.flash_writes as f64 / operations as f64
    }

    /// Returns bytes of pages read for each byte that the program loaded.
    pub fn read_amplification(&self) -> f64 {
        (self.cache_misses * self.page_bytes) as f64 / self.bytes_loaded as f64
    }

    /// Returns every counter with its name, in a fixed order.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("bytes_loaded", self.bytes_loaded),
            ("bytes_stored", self.bytes_stored),
            ("pages_flushed", self.pages_flushed),
            ("fences", self.fences),
            ("cache_hits", self.cache_hits),
            ("cache_misses", self.cache_misses),
            ("dirty_evictions", self.dirty_evictions),
            ("host_writes", self.ftl.host_writes),
            ("flash_writes", self.ftl.flash_writes),
            ("erases", self.ftl.erases),
            ("trims", self.ftl.trims),
        ]
    }
}
