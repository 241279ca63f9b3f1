//! The numbers of a byte-addressable device and of the processor in front of it.

use super::value::{choice, parameters};
use crate::{Domain, Error, Guarantees, LINE};

choice! {
    /// The instruction behind [`Media::flush`](crate::Media::flush).
    Flushing {
        /// `clwb`; what it does to the cached line depends on the processor, see [`Clwb`].
        Clwb = "clwb",
        /// `clflushopt`: writes back and invalidates.
        Clflushopt = "clflushopt",
        /// `clflush`: as `clflushopt`, and each waits for the one before it.
        Clflush = "clflush",
    }
}

choice! {
    /// What `clwb` does to the cached line.
    Clwb {
        /// The line is gone, as after `clflushopt` (Cascade Lake).
        Invalidates = "invalidates",
        /// The line stays, clean (Ice Lake).
        Keeps = "keeps",
    }
}

choice! {
    /// What survives power loss.
    Survives {
        /// Nothing: plain memory.
        None = "none",
        /// What has left the caches.
        Adr = "adr",
        /// Everything visible.
        Eadr = "eadr",
    }
}

choice! {
    /// How time passes on the device.
    Model {
        /// Buffers, media servers and read banks in front of the media.
        Buffered = "buffered",
        /// A fixed cost per missing read and per flush, and no device behind it. Ranks designs
        /// differently from a real device; for comparison with papers that emulated so.
        Flat = "flat",
    }
}

parameters! {
    /// Byte-addressable memory behind a processor cache.
    MemoryDevice {
        /// The unit in which the media is read and written.
        media_unit_bytes: u64, "B", 64, 4096;
        /// The size of the last-level cache.
        cache_bytes: u64, "B", 4096, 4294967296u64;
        /// The number of lines in a set of that cache; the victim is random.
        cache_ways: u64, "ways", 1, 64;
        /// The lines of a thread's own small cache, which only shortens time.
        near_lines: u64, "lines", 1, 65536;
        /// The flush instruction that the program uses.
        flush: Flushing, "", 0, 0;
        /// What `clwb` does to the cached line.
        clwb: Clwb, "", 0, 0;
        /// What survives power loss.
        survives: Survives, "", 0, 0;
        /// How time passes.
        model: Model, "", 0, 0;
        /// The number of modules among which addresses are dealt out.
        dimms: u64, "modules", 1, 64;
        /// The length of an address range that lies in one module.
        interleave_bytes: u64, "B", 64, 1099511627776u64;
        /// The entries of a module's write-combining buffer; the victim is random.
        write_buffer_units: u64, "entries", 1, 1048576;
        /// The same with more than `crowd_writers` writers for each module.
        crowded_buffer_units: u64, "entries", 1, 1048576;
        /// How many writers a module stands before its buffer works worse.
        crowd_writers: u64, "threads", 0, 1048576;
        /// The entries of a module's read buffer; first in, first out, each line served once.
        read_buffer_units: u64, "entries", 1, 1048576;
        /// Media writes per counted one: the device's own metadata.
        media_overhead: f64, "ratio", 1, 4;
        /// The time of an access to a line in the thread's own small cache.
        near_hit_ns: f64, "ns", 0, 10000;
        /// The time of an access to a line in the last-level cache.
        cache_hit_ns: f64, "ns", 0, 10000;
        /// The time that an operation spends computing.
        operation_ns: f64, "ns", 0, 1000000;
        /// The time of one line of DRAM, read at random.
        dram_random_ns: f64, "ns", 0, 10000;
        /// The time of a missing load that follows the line before it.
        read_sequential_ns: f64, "ns", 0, 1000000;
        /// The time of any other missing load.
        read_random_ns: f64, "ns", 0, 1000000;
        /// The time until a missing store owns its line; hidden until a flush or fence needs it.
        ownership_ns: f64, "ns", 0, 1000000;
        /// The misses that a thread can have under way.
        outstanding_misses: u64, "lines", 1, 64;
        /// The time of flush and fence of a line that is owned.
        flush_ns: f64, "ns", 0, 1000000;
        /// The time of a store past the caches with its fence.
        stream_store_ns: f64, "ns", 0, 1000000;
        /// The time of reading a line that was just written, while it is in the write buffer.
        reread_written_ns: f64, "ns", 0, 1000000;
        /// The time of flushing a line again that the flush before left in the cache.
        reflush_kept_ns: f64, "ns", 0, 1000000;
        /// How long a module is busy with one media write.
        media_write_ns: f64, "ns", 0, 1000000;
        /// How long a module is busy with one media read, all banks working.
        media_read_ns: f64, "ns", 0, 1000000;
        /// The reads that a module works on at once.
        read_banks: u64, "banks", 1, 64;
        /// The factor on media times while reads and writes meet in a module.
        mixed_penalty: f64, "ratio", 1, 16;
        /// The chance that a media write in a hot region of at most 64 KiB stalls its module.
        stall_chance: f64, "ratio", 0, 1;
        /// How long such a stall lasts.
        stall_us: f64, "us", 0, 1000000;
        /// The cost of a missing load in the flat model.
        flat_read_ns: f64, "ns", 0, 1000000;
        /// The cost of a flushed line in the flat model.
        flat_write_ns: f64, "ns", 0, 1000000;
    }
}

impl MemoryDevice {
    /// Returns what the device promises to the programs on it.
    pub fn guarantees(&self) -> Guarantees {
        let domain = match self.survives {
            Survives::None => Domain::None,
            Survives::Adr => Domain::Adr,
            Survives::Eadr => Domain::Eadr,
        };
        Guarantees { domain, same_line_order: true, access_unit_bytes: self.media_unit_bytes }
    }

    /// Returns the device for a run with `1 / scale` of the items.
    ///
    /// Only the cache shrinks: its size against the table's decides what reaches the device, while
    /// buffers, units and modules act on single accesses.
    pub fn scaled(&self, scale: f64) -> MemoryDevice {
        let least = self.cache_ways * LINE;
        let bytes = ((self.cache_bytes as f64 / scale) as u64).max(least);
        MemoryDevice { cache_bytes: bytes, ..self.clone() }
    }

    /// Returns the device if one can be made of these numbers.
    pub(super) fn checked(self) -> crate::Result<MemoryDevice> {
        let wrong = |what| Err(Error::Profile { what });
        let unit = self.media_unit_bytes;
        if !unit.is_multiple_of(LINE) {
            let what = "media_unit_bytes must be a multiple of";
            return wrong(format!("{what} {LINE}, the bytes of a line"));
        }
        if !self.interleave_bytes.is_multiple_of(unit) {
            let what = "interleave_bytes must be a multiple of media_unit_bytes";
            return wrong(format!("{what}, which is {unit}: a unit lies in one module"));
        }
        Ok(self)
    }

    /// Returns whether a flush leaves the line in the cache.
    pub fn flush_keeps_line(&self) -> bool {
        self.flush == Flushing::Clwb && self.clwb == Clwb::Keeps
    }
}
