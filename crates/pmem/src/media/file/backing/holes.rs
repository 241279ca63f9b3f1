//! Parts of a file without storage: made, filled, and found.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;

use super::{Backing, Call, done, perform, read_only};
use crate::sys::extents;
use crate::sys::map::pages_inside;
use crate::{Addr, LINE, Result, Span};

/// Of a file in more pieces than these it is not asked where they lie.
///
/// Unit: extents. Source: ours; 1 MiB of memory, and some 10 ms of the file system's time.
const MOST_EXTENTS: usize = 1 << 16;

/// The number of the file system in memory. Source: Linux, `uapi/linux/magic.h`.
const TMPFS: u64 = 0x0102_1994;

impl Backing {
    /// Punches a hole into the file: frees the storage behind the whole pages of `span`.
    pub(crate) fn release(&self, span: Span) {
        let inside = pages_inside(span, self.mapping.bytes());
        let Some((from, to)) = inside.filter(|_| self.plan.writable) else { return };
        self.is_whole.store(false, Ordering::Relaxed);
        // Best effort: a file system without holes keeps the storage and the words.
        let _ = perform(&*self.plan.system, Call::Punch, || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            done(rustix::fs::fallocate(&self.file.file, flags, from, to - from))
        });
    }

    /// Allocates storage for `span` again.
    pub(crate) fn reserve(&self, span: Span) -> Result<()> {
        let all = self.mapping.bytes();
        let bytes = span.end_byte().min(all).saturating_sub(span.start.byte());
        self.group.check()?;
        match (self.plan.writable, bytes) {
            (false, _) => Err(read_only()),
            (true, 0) => Ok(()),
            (true, bytes) => self.allocate(span.start.byte(), bytes).map(|()| {
                if bytes == all {
                    self.is_whole.store(true, Ordering::Relaxed);
                }
            }),
        }
    }

    /// Returns the spans that have no storage; nothing if the file system does not say, and if
    /// there are too many. A file to which nobody stores needs none.
    pub(crate) fn holes(&self) -> Option<Vec<Span>> {
        if !self.plan.writable || self.is_whole.load(Ordering::Relaxed) {
            return Some(Vec::new());
        }
        let stored = if self.is_on_tmpfs() { self.data() } else { self.extents() };
        // If it does not say, whatever the reason, the caller reserves storage for all of the file.
        gaps(&stored?, self.mapping.bytes() / LINE * LINE)
    }

    /// Returns the spans without storage if a load from there takes some.
    pub(crate) fn costly_holes(&self) -> Vec<Span> {
        let stored = if self.is_on_tmpfs() { self.data() } else { None };
        let end = self.mapping.bytes() / LINE * LINE;
        stored.and_then(|stored| gaps(&stored, end)).unwrap_or_default()
    }

    fn is_on_tmpfs(&self) -> bool {
        let system = rustix::fs::fstatfs(&self.file.file);
        system.is_ok_and(|system| system.f_type as u64 == TMPFS)
    }

    /// Returns which bytes have storage, in order.
    fn extents(&self) -> Option<Vec<Range<u64>>> {
        let mut stored = Vec::new();
        let listed = perform(&*self.plan.system, Call::Extents, || {
            stored = extents::list(self.file.file.as_fd(), MOST_EXTENTS)?;
            Ok(stored.len() as u64)
        });
        listed.is_ok().then_some(stored)
    }

    /// Returns which bytes of a file on a tmpfs hold data, in order. That file system lists no
    /// extents, but says exactly which pages there are; not those allocated and never written.
    fn data(&self) -> Option<Vec<Range<u64>>> {
        let mut stored: Vec<Range<u64>> = Vec::new();
        while stored.len() < MOST_EXTENTS {
            let behind = stored.last().map_or(0, |last| last.end);
            let Some(from) = self.find(Call::FindData, behind).ok()? else { return Some(stored) };
            stored.push(from..self.find(Call::FindHole, from).ok()??);
        }
        None
    }
}

/// Returns what lies between the bytes that are `stored`, up to byte `end`; nothing if a line is
/// stored in part.
fn gaps(stored: &[Range<u64>], end: u64) -> Option<Vec<Span>> {
    let (mut holes, mut from) = (Vec::new(), 0);
    for range in stored.iter().chain([&(end..end)]) {
        let until = range.start.min(end);
        if from < until {
            if !from.is_multiple_of(LINE) || !until.is_multiple_of(LINE) {
                return None;
            }
            holes.push(Span::of_bytes(Addr::new(from), until - from));
        }
        from = from.max(range.end);
    }
    Some(holes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_lie_between_what_is_stored() {
        // Fails if one before the first, between two, behind the last, or none at the end is lost,
        // or if a line counts as a hole of which a part is stored.
        let holes = |stored: &[(u64, u64)], end| {
            let stored: Vec<_> = stored.iter().map(|(from, to)| *from..*to).collect();
            let bytes = |span: Span| (span.start.byte(), span.end_byte());
            gaps(&stored, end).map(|holes| holes.into_iter().map(bytes).collect::<Vec<_>>())
        };
        let between = vec![(0, 64), (192, 256), (320, 448)];
        assert_eq!(holes(&[(64, 128), (128, 192), (256, 320)], 448), Some(between));
        assert_eq!(holes(&[(0, 64), (128, 1024)], 256), Some(vec![(64, 128)]));
        assert_eq!(holes(&[(0, 64), (512, 1024)], 256), Some(vec![(64, 256)]));
        assert_eq!(holes(&[], 128), Some(vec![(0, 128)]));
        assert_eq!(holes(&[(0, 100)], 128), None);
        assert_eq!(holes(&[(100, 128)], 128), None);
    }
}
