//! The times of a profile, in the unit of the clocks.

use super::super::virtual_time::{Timing, picoseconds};
use crate::profile::{MemoryDevice, Model};

/// The profile's times. Unit: picoseconds, all zero in counting runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) near_hit: u64,
    pub(super) cache_hit: u64,
    pub(super) dram_line: u64,
    pub(super) read_sequential: u64,
    pub(super) read_random: u64,
    pub(super) ownership: u64,
    pub(super) flush: u64,
    pub(super) stream_store: u64,
    pub(super) reread: u64,
    pub(super) reflush: u64,
    /// What each flushed line costs in the flat model.
    pub(super) flat_flush: u64,
    pub(super) operation: u64,
}

impl Times {
    pub(super) fn new(device: &MemoryDevice, timing: Timing) -> Times {
        let dram_line = picoseconds(device.dram_random_ns);
        let operation = picoseconds(device.operation_ns);
        match (timing, device.model) {
            (Timing::Counting, _) => Times::default(),
            (Timing::Virtual, Model::Flat) => Times {
                read_sequential: picoseconds(device.flat_read_ns),
                read_random: picoseconds(device.flat_read_ns),
                flat_flush: picoseconds(device.flat_write_ns),
                dram_line,
                operation,
                ..Times::default()
            },
            (Timing::Virtual, Model::Buffered) => Times {
                near_hit: picoseconds(device.near_hit_ns),
                cache_hit: picoseconds(device.cache_hit_ns),
                dram_line,
                read_sequential: picoseconds(device.read_sequential_ns),
                read_random: picoseconds(device.read_random_ns),
                ownership: picoseconds(device.ownership_ns),
                flush: picoseconds(device.flush_ns),
                stream_store: picoseconds(device.stream_store_ns),
                reread: picoseconds(device.reread_written_ns),
                reflush: picoseconds(device.reflush_kept_ns),
                flat_flush: 0,
                operation,
            },
        }
    }
}
