//! One module: its write-combining buffer, its read buffer, and the times at which its media works.

use super::super::random::{Random, mix, spread};
use super::super::virtual_time::{NumberMap, Server};

/// Where a line was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The write buffer: the line was written and its unit is not on the media yet.
    WriteBuffer,
    /// The read buffer, which serves each line of a unit once.
    ReadBuffer,
    /// The media.
    Media,
}

/// A unit that went to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaWrite {
    pub(super) unit: u64,
    /// Whether the rest of the unit had to be read first.
    pub(super) partial: bool,
}

/// An entry of the write buffer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    unit: u64,
    /// Lines that are not on the media yet.
    dirty: u64,
    /// Lines that were written since the unit came into the buffer.
    written: u64,
}

/// Combines lines into units before they are written.
///
/// A unit is written as soon as all its lines are there, and its entry stays: so a unit that is
/// written over and over is written to the media each time. The victim is random. Both are fits to
/// the write ratios of Yang et al. (FAST 2020): the oldest entry as victim gives a cliff where they
/// show a slope, and absorbing whole units gives ratios below one.
#[derive(Debug)]
struct WriteBuffer {
    entries: Vec<Pending>,
    places: NumberMap<u32>,
    capacity: usize,
}

impl WriteBuffer {
    fn new(capacity: u64) -> WriteBuffer {
        WriteBuffer {
            entries: Vec::new(),
            places: NumberMap::default(),
            capacity: capacity as usize,
        }
    }

    fn find(&self, unit: u64) -> Option<&Pending> {
        self.places.get(&unit).map(|place| &self.entries[*place as usize])
    }

    /// Writes one line, the `mask` of which is a bit in its unit of `full` lines. Returns the
    /// victim that made room, if it was dirty, and whether the unit itself is complete.
    fn write(
        &mut self,
        unit: u64,
        mask: u64,
        full: u64,
        random: &mut Random,
    ) -> (Option<MediaWrite>, bool) {
        let mut victim = None;
        let place = match self.places.get(&unit) {
            Some(place) => *place as usize,
            None => {
                if self.entries.len() >= self.capacity {
                    victim = self.evict(random);
                }
                self.places.insert(unit, self.entries.len() as u32);
                self.entries.push(Pending { unit, dirty: 0, written: 0 });
                self.entries.len() - 1
            }
        };
        let entry = &mut self.entries[place];
        entry.dirty |= mask;
        entry.written |= mask;
        let complete = entry.dirty == full;
        if complete {
            entry.dirty = 0;
        }
        (victim, complete)
    }

    fn evict(&mut self, random: &mut Random) -> Option<MediaWrite> {
        let place = random.below(self.entries.len() as u64) as usize;
        let victim = self.entries.swap_remove(place);
        self.places.remove(&victim.unit);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.unit, place as u32);
        }
        // An entry is never dirty in all its lines: it would have been written at once.
        (victim.dirty != 0).then_some(MediaWrite { unit: victim.unit, partial: true })
    }
}

/// Keeps units that were read, in the order in which they came.
#[derive(Debug)]
struct ReadBuffer {
    /// The units, as a ring; `u64::MAX` where there is none.
    units: Vec<u64>,
    /// The lines of each that were not served yet.
    left: Vec<u64>,
    places: NumberMap<u32>,
    next: usize,
}

impl ReadBuffer {
    fn new(capacity: u64) -> ReadBuffer {
        ReadBuffer {
            units: vec![u64::MAX; capacity as usize],
            left: vec![0; capacity as usize],
            places: NumberMap::default(),
            next: 0,
        }
    }

    /// Takes one line out of the buffer, if it is there.
    fn take(&mut self, unit: u64, mask: u64) -> bool {
        let Some(place) = self.places.get(&unit) else { return false };
        let left = &mut self.left[*place as usize];
        let served = *left & mask != 0;
        *left &= !mask;
        served
    }

    /// Puts a unit in, without the line that was asked for.
    fn fill(&mut self, unit: u64, left: u64) {
        if let Some(place) = self.places.get(&unit) {
            self.left[*place as usize] = left;
            return;
        }
        let place = self.next;
        self.next = (place + 1) % self.units.len();
        self.places.remove(&self.units[place]);
        self.units[place] = unit;
        self.left[place] = left;
        self.places.insert(unit, place as u32);
    }

    fn forget(&mut self, unit: u64) {
        if let Some(place) = self.places.get(&unit) {
            self.left[*place as usize] = 0;
        }
    }
}

/// One module.
#[derive(Debug)]
pub(super) struct Dimm {
    write_buffer: WriteBuffer,
    read_buffer: ReadBuffer,
    unit_lines: u64,
    random: Random,
    /// When the media is busy with writes.
    pub(super) writes: Server,
    /// When each bank is busy with reads.
    pub(super) banks: Vec<Server>,
}

impl Dimm {
    /// Makes a module whose units have `unit_lines` lines, at most 64.
    pub(super) fn new(unit_lines: u64, writes: u64, reads: u64, banks: u64, seed: u64) -> Dimm {
        Dimm {
            write_buffer: WriteBuffer::new(writes),
            read_buffer: ReadBuffer::new(reads),
            unit_lines,
            random: Random::new(seed),
            writes: Server::default(),
            banks: vec![Server::default(); banks as usize],
        }
    }

    fn unit(&self, line: u64) -> (u64, u64) {
        (line / self.unit_lines, 1 << (line % self.unit_lines))
    }

    fn full(&self) -> u64 {
        u64::MAX >> (64 - self.unit_lines)
    }

    /// Takes a line from the processor; `media` is told of each unit that goes to the media.
    pub(super) fn write(&mut self, line: u64, mut media: impl FnMut(MediaWrite)) {
        let (unit, mask) = self.unit(line);
        let full = self.full();
        let (victim, complete) = self.write_buffer.write(unit, mask, full, &mut self.random);
        self.read_buffer.forget(unit);
        if let Some(victim) = victim {
            media(victim);
        }
        if complete {
            media(MediaWrite { unit, partial: false });
        }
    }

    /// Gives a line to the processor.
    pub(super) fn read(&mut self, line: u64) -> Source {
        let (unit, mask) = self.unit(line);
        if self.write_buffer.find(unit).is_some_and(|entry| entry.dirty & mask != 0) {
            return Source::WriteBuffer;
        }
        if self.read_buffer.take(unit, mask) {
            return Source::ReadBuffer;
        }
        let left = self.full() & !mask;
        self.read_buffer.fill(unit, left);
        Source::Media
    }

    /// Returns whether `line` was written and its unit is still in the write buffer.
    pub(super) fn was_just_written(&self, line: u64) -> bool {
        let (unit, mask) = self.unit(line);
        self.write_buffer.find(unit).is_some_and(|entry| entry.written & mask != 0)
    }

    /// Returns the bank in which a line lies.
    pub(super) fn bank(&mut self, line: u64) -> &mut Server {
        let bank = spread(mix(line / self.unit_lines), self.banks.len() as u64);
        &mut self.banks[bank as usize]
    }

    /// Changes the capacity of the write buffer; what no longer fits goes to the media.
    pub(super) fn resize_write_buffer(&mut self, capacity: u64) -> Vec<MediaWrite> {
        self.write_buffer.capacity = capacity as usize;
        let surplus = self.write_buffer.entries.len().saturating_sub(capacity as usize);
        (0..surplus).filter_map(|_| self.write_buffer.evict(&mut self.random)).collect()
    }

    /// Empties the write buffer.
    pub(super) fn drain(&mut self) -> Vec<MediaWrite> {
        let capacity = self.write_buffer.capacity as u64;
        let drained = self.resize_write_buffer(0);
        self.write_buffer.capacity = capacity as usize;
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimm() -> Dimm {
        Dimm::new(4, 60, 64, 8, 1)
    }

    fn write(dimm: &mut Dimm, line: u64) -> Vec<MediaWrite> {
        let mut writes = Vec::new();
        dimm.write(line, |write| writes.push(write));
        writes
    }

    #[test]
    fn a_unit_goes_to_the_media_when_its_last_line_is_there() {
        // Fails if lines of a unit were written one by one, or a full unit were held back.
        let mut dimm = dimm();
        for round in 0..3 {
            for line in 0..3 {
                assert_eq!(write(&mut dimm, line), [], "round {round}");
            }
            assert_eq!(write(&mut dimm, 3), [MediaWrite { unit: 0, partial: false }]);
        }
        assert_eq!(dimm.drain(), []);
    }

    #[test]
    fn the_buffer_writes_a_victim_in_part_when_it_is_full() {
        // Fails if the buffer grew, or dropped a line.
        let mut dimm = dimm();
        for unit in 0..60 {
            assert_eq!(write(&mut dimm, unit * 4), []);
        }
        let writes = write(&mut dimm, 240);
        assert_eq!(writes.len(), 1);
        assert!(writes[0].partial && writes[0].unit < 60);
        assert_eq!(dimm.drain().len(), 60);
        assert_eq!(dimm.drain(), []);
    }

    #[test]
    fn the_read_buffer_serves_each_line_once() {
        // Fails if reading a line again hit: PMWatch's guide puts the ceiling at three of four.
        let mut dimm = dimm();
        let sources: Vec<_> = [0, 1, 2, 3, 0, 0].map(|line| dimm.read(line)).into();
        use Source::{Media, ReadBuffer};
        assert_eq!(sources, [Media, ReadBuffer, ReadBuffer, ReadBuffer, Media, Media]);
    }

    #[test]
    fn the_read_buffer_forgets_the_oldest_unit_and_a_written_one() {
        // Fails if a buffered copy outlived its place or its truth.
        let mut dimm = dimm();
        for unit in 0..65 {
            dimm.read(unit * 4);
        }
        assert_eq!(dimm.read(1), Source::Media);
        assert_eq!(dimm.read(2 * 4 + 1), Source::ReadBuffer);
        write(&mut dimm, 3 * 4);
        assert_eq!(dimm.read(3 * 4 + 1), Source::Media);
        assert_eq!(dimm.read(3 * 4), Source::WriteBuffer);
    }
}
