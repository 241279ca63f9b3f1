//! Where a file has storage (`FS_IOC_FIEMAP`), for which there is no safe wrapper.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Updater, ioctl, opcode};

/// Extents that one call lists.
///
/// Source: ours; 14 KiB on the stack.
const LISTED: usize = 256;

/// The flag of the last extent of a file. Source: Linux, `uapi/linux/fiemap.h`.
const LAST: u32 = 1;

/// `struct fiemap` of the kernel, with room for extents.
#[repr(C)]
struct Request {
    from: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; LISTED],
}

/// `struct fiemap_extent` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Extent {
    at: u64,
    on_device: u64,
    bytes: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// The request's number counts the length of `struct fiemap` without its extents: four words.
const FIEMAP: rustix::ioctl::Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);

/// Returns which bytes of `file` have storage, in order, also what was allocated and never written.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the file system does not say, and if there are more than
/// `most` extents; those of the kernel.
pub(crate) fn list(file: BorrowedFd<'_>, most: usize) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        let extents = [Extent::default(); LISTED];
        let room = LISTED as u32;
        let mut request = Request {
            from,
            bytes: u64::MAX - from,
            flags: 0,
            mapped: 0,
            room,
            reserved: 0,
            extents,
        };
        // SAFETY: the number is that of a call which reads and writes one `struct fiemap` with
        // room for as many extents as `room` says; so long is the request, and it is borrowed for
        // the call alone.
        unsafe { ioctl(file, Updater::<FIEMAP, Request>::new(&mut request))? };
        let extents = &request.extents[..LISTED.min(request.mapped as usize)];
        for extent in extents {
            let end = extent.at.checked_add(extent.bytes);
            // Ends: each call begins behind the extents of the one before.
            let end = end.filter(|end| *end > extent.at && extent.at >= from && found.len() < most);
            let end = end.ok_or(io::ErrorKind::Unsupported)?;
            found.push(extent.at..end);
            from = end;
        }
        if extents.last().is_none_or(|last| last.flags & LAST != 0) {
            return Ok(found);
        }
    }
}
