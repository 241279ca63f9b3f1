//! The device side: all modules behind the interleave, and when their media works.

use super::super::random::Random;
use super::super::virtual_time::{NumberMap, picoseconds};
use super::counters::Counters;
use super::dimm::{Dimm, MediaWrite, Source};
use crate::LINE;
use crate::profile::MemoryDevice;

/// Media writes within which a second write of a unit makes its region a hot one: 64 KiB of units
/// of 256 bytes. Unit: media writes. Source: Yang et al., FAST 2020, tail latency of hot spots.
const HOT_WRITES: u64 = 256;

/// How one access comes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// When the module began to serve it. Unit: picoseconds.
    pub(super) start: u64,
    /// Whether the line was written a moment ago.
    pub(super) just_written: bool,
}

/// The modules of a device.
#[derive(Debug)]
pub(super) struct Modules {
    dimms: Vec<Dimm>,
    interleave_lines: u64,
    timed: bool,
    write_service: u64,
    read_service: u64,
    penalty: f64,
    buffer_units: u64,
    crowded_units: u64,
    crowd_writers: u64,
    overhead: f64,
    overhead_due: f64,
    stall: Stall,
    /// Media writes of each unit.
    unit_wear: Vec<u32>,
}

/// Long pauses of a module that moves a hot region elsewhere.
#[derive(Debug)]
struct Stall {
    chance: f64,
    duration: u64,
    random: Random,
    last_write: NumberMap<u64>,
}

impl Modules {
    /// Makes the modules for a device of `capacity` bytes.
    pub(super) fn new(device: &MemoryDevice, timed: bool, capacity: u64, seed: u64) -> Modules {
        let unit_lines = device.media_unit_bytes / LINE;
        let dimm = |index: u64| {
            let seed = seed ^ (index + 1).rotate_left(32);
            let (writes, reads) = (device.write_buffer_units, device.read_buffer_units);
            Dimm::new(unit_lines, writes, reads, device.read_banks, seed)
        };
        Modules {
            dimms: (0..device.dimms).map(dimm).collect(),
            interleave_lines: device.interleave_bytes / LINE,
            timed,
            write_service: picoseconds(device.media_write_ns),
            // All banks together read one unit in `media_read_ns`, so one bank takes so many times
            // as long.
            read_service: picoseconds(device.media_read_ns) * device.read_banks,
            penalty: device.mixed_penalty,
            buffer_units: device.write_buffer_units,
            crowded_units: device.crowded_buffer_units,
            crowd_writers: device.crowd_writers,
            overhead: device.media_overhead - 1.0,
            overhead_due: 0.0,
            stall: Stall {
                chance: device.stall_chance,
                duration: picoseconds(device.stall_us * 1000.0),
                random: Random::new(seed.rotate_left(16)),
                last_write: NumberMap::default(),
            },
            unit_wear: vec![0; capacity.div_ceil(device.media_unit_bytes) as usize],
        }
    }

    fn index(&self, line: u64) -> usize {
        (line / self.interleave_lines % self.dimms.len() as u64) as usize
    }

    /// Reads a line at `at`.
    pub(super) fn read(
        &mut self,
        line: u64,
        at: u64,
        horizon: u64,
        counters: &mut Counters,
    ) -> Read {
        let index = self.index(line);
        let dimm = &mut self.dimms[index];
        let just_written = dimm.was_just_written(line);
        let mut start = at;
        if dimm.read(line) == Source::Media {
            counters.demand_reads += 1;
            if self.timed {
                let writing = self.penalty > 1.0 && dimm.writes.is_busy_from(at);
                let factor = if writing { self.penalty } else { 1.0 };
                let service = (self.read_service as f64 * factor) as u64;
                start = dimm.bank(line).book(at, service, horizon);
            }
        }
        Read { start, just_written }
    }

    /// Writes a line at `at`; returns when the module took it.
    pub(super) fn write(
        &mut self,
        line: u64,
        at: u64,
        horizon: u64,
        counters: &mut Counters,
    ) -> u64 {
        let index = self.index(line);
        // A line can push out one unit and complete its own.
        let mut writes = [None; 2];
        let mut count = 0;
        self.dimms[index].write(line, |write| {
            writes[count] = Some(write);
            count += 1;
        });
        let mut start = at;
        for write in writes.into_iter().flatten() {
            start = start.max(self.media_write(index, write, at, horizon, counters));
        }
        start
    }

    fn media_write(
        &mut self,
        index: usize,
        write: MediaWrite,
        at: u64,
        horizon: u64,
        counters: &mut Counters,
    ) -> u64 {
        counters.media_writes += 1;
        counters.rmw_reads += u64::from(write.partial);
        self.overhead_due += self.overhead;
        let whole = self.overhead_due.trunc();
        self.overhead_due -= whole;
        counters.media_writes += whole as u64;
        if let Some(wear) = self.unit_wear.get_mut(write.unit as usize) {
            *wear += 1;
        }
        if !self.timed {
            return at;
        }
        let stall = self.stall(write.unit, counters.media_writes);
        let dimm = &mut self.dimms[index];
        let reading = self.penalty > 1.0 && dimm.banks.iter().any(|bank| bank.is_busy_from(at));
        let factor = if reading { self.penalty } else { 1.0 };
        let service = (self.write_service as f64 * factor) as u64 + stall;
        dimm.writes.book(at, service, horizon)
    }

    fn stall(&mut self, unit: u64, number: u64) -> u64 {
        let stall = &mut self.stall;
        if stall.chance == 0.0 {
            return 0;
        }
        let last = stall.last_write.insert(unit, number);
        let hot = last.is_some_and(|last| number - last <= HOT_WRITES);
        if hot && stall.random.happens(stall.chance) { stall.duration } else { 0 }
    }

    /// Returns whether `line` was written and is still in a write buffer.
    pub(super) fn was_just_written(&self, line: u64) -> bool {
        self.dimms[self.index(line)].was_just_written(line)
    }

    /// Sets how many threads write, which decides how well the buffers work.
    pub(super) fn set_writers(&mut self, writers: u64, counters: &mut Counters) {
        let crowded = writers > self.crowd_writers * self.dimms.len() as u64;
        let capacity = if crowded { self.crowded_units } else { self.buffer_units };
        for index in 0..self.dimms.len() {
            for write in self.dimms[index].resize_write_buffer(capacity) {
                self.media_write(index, write, 0, 0, counters);
            }
        }
    }

    /// Empties the write buffers.
    pub(super) fn drain(&mut self, at: u64, horizon: u64, counters: &mut Counters) {
        for index in 0..self.dimms.len() {
            for write in self.dimms[index].drain() {
                self.media_write(index, write, at, horizon, counters);
            }
        }
    }

    /// Returns the media writes of each unit.
    pub(super) fn unit_wear(&self) -> &[u32] {
        &self.unit_wear
    }
}
