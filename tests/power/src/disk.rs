//! A disk that loses power: the one file of a file system in user space, which the kernel uses as a
//! block device.
//!
//! Like a disk with a cache of its own it keeps what was written before the last flush, and of what
//! was written since, anything: nothing, all, the first writes, some of them, some sectors.

use std::ffi::OsStr;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use rand::Rng;
use rand::rngs::SmallRng;

/// The name of the file.
pub const NAME: &str = "disk";

/// Its number; that of the folder is 1.
const FILE: INodeNo = INodeNo(2);

/// How long the kernel may remember what it was told of the file, which never changes.
const REMEMBERED: Duration = Duration::from_secs(1000);

/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE`. Source: Linux, `linux/falloc.h`.
const ZEROES: i32 = 0x02 | 0x10;

/// Something that was written and not flushed.
#[derive(Debug)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
}

/// What the disk holds.
#[derive(Debug)]
struct Contents {
    /// What a read finds.
    now: Vec<u8>,
    /// What was flushed.
    durable: Vec<u8>,
    /// What was written since.
    pending: Vec<Write>,
    /// Power is gone: nothing that comes now stays.
    is_dead: bool,
    flushes: u64,
}

impl Contents {
    fn write(&mut self, at: usize, bytes: Vec<u8>) {
        self.now[at..at + bytes.len()].copy_from_slice(&bytes);
        if !self.is_dead {
            self.pending.push(Write { at, bytes });
        }
    }
}

/// What power loss leaves of the writes that were not flushed.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// None.
    Nothing,
    /// All.
    All,
    /// Those before some moment.
    First,
    /// Each or not, as a whole.
    Writes,
    /// Each sector or not. Unit: bytes.
    Sectors(usize),
}

impl Left {
    /// Chooses one.
    pub fn any(random: &mut SmallRng) -> Left {
        match random.random_range(0..6) {
            0 => Left::Nothing,
            1 => Left::All,
            2 => Left::First,
            3 => Left::Writes,
            // Those of old and of new disks.
            4 => Left::Sectors(512),
            _ => Left::Sectors(4096),
        }
    }
}

/// The disk; clones are of the same one.
#[derive(Clone, Debug)]
pub struct Disk {
    contents: Arc<Mutex<Contents>>,
    bytes: u64,
    /// Of so many flushes it heeds one.
    heeds: u64,
}

impl Disk {
    /// Makes a disk of zeros, which heeds one of `heeds` flushes: a sound one heeds each.
    pub fn new(bytes: u64, heeds: u64) -> Disk {
        let zeros = vec![0; bytes as usize];
        let contents = Contents {
            now: zeros.clone(),
            durable: zeros,
            pending: Vec::new(),
            is_dead: false,
            flushes: 0,
        };
        Disk { contents: Arc::new(Mutex::new(contents)), bytes, heeds }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often it was flushed.
    pub fn flushes(&self) -> u64 {
        self.contents().flushes
    }

    /// Returns what a read finds.
    pub fn image(&self) -> Vec<u8> {
        self.contents().now.clone()
    }

    /// Cuts the power; returns what is left, and how many writes were not flushed.
    pub fn cut(&self, left: Left, random: &mut SmallRng) -> (Vec<u8>, usize) {
        let mut contents = self.contents();
        contents.is_dead = true;
        let mut image = contents.durable.clone();
        let mut keep = |at: usize, bytes: &[u8]| image[at..][..bytes.len()].copy_from_slice(bytes);
        let writes = contents.pending.iter();
        match left {
            Left::Nothing => {}
            Left::All => writes.for_each(|write| keep(write.at, &write.bytes)),
            Left::First => {
                let count = random.random_range(0..=writes.len());
                writes.take(count).for_each(|write| keep(write.at, &write.bytes));
            }
            Left::Writes => {
                for write in writes.filter(|_| random.random()) {
                    keep(write.at, &write.bytes);
                }
            }
            Left::Sectors(sector) => {
                for Write { at, bytes } in writes {
                    for (number, piece) in bytes.chunks(sector).enumerate() {
                        if random.random() {
                            keep(at + number * sector, piece);
                        }
                    }
                }
            }
        }
        (image, contents.pending.len())
    }

    /// Power is back: the disk holds `image`.
    pub fn restore(&self, image: &[u8]) {
        let mut contents = self.contents();
        contents.now.copy_from_slice(image);
        contents.durable.copy_from_slice(image);
        contents.pending.clear();
        contents.is_dead = false;
    }

    fn attributes(&self, number: INodeNo) -> FileAttr {
        let is_file = number == FILE;
        FileAttr {
            ino: number,
            size: if is_file { self.bytes } else { 0 },
            blocks: self.bytes / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match parent == INodeNo::ROOT && name == NAME {
            true => reply.entry(&REMEMBERED, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&REMEMBERED, &self.attributes(number));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel keeps no copy: it would outlive a power cut.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = offset.saturating_add(size.into()).min(self.bytes);
        reply.data(&self.contents().now[offset.min(end) as usize..end as usize]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset.saturating_add(data.len() as u64) > self.bytes {
            return reply.error(Errno::ENOSPC);
        }
        self.contents().write(offset as usize, data.to_vec());
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Of a file handle; not of the disk.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut contents = self.contents();
        contents.flushes += 1;
        if !contents.is_dead && contents.flushes.is_multiple_of(self.heeds) {
            for Write { at, bytes } in take(&mut contents.pending) {
                contents.durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & ZEROES == 0 || offset.saturating_add(length) > self.bytes {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.contents().write(offset as usize, vec![0; length as usize]);
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Returns a disk whose first byte was flushed as 1, and which then became 2, as others did.
    fn disk() -> Disk {
        let disk = Disk::new(4 * 4096, 1);
        let mut contents = disk.contents();
        contents.write(0, vec![1]);
        contents.pending.clear();
        contents.durable[0] = 1;
        contents.write(0, vec![2; 2 * 4096]);
        contents.write(3 * 4096, vec![3]);
        drop(contents);
        disk
    }

    #[test]
    fn what_was_flushed_is_left_and_of_the_rest_anything() {
        // Fails if power loss took what was flushed, kept what it was told to lose, or tore what it
        // was told to keep whole.
        let mut random = SmallRng::seed_from_u64(1);
        let mut seen = [0; 2];
        for _ in 0..64 {
            let (image, pending) = disk().cut(Left::Nothing, &mut random);
            assert_eq!((image[0], image[3 * 4096], pending), (1, 0, 2));
            assert_eq!(disk().cut(Left::All, &mut random).0, disk().image());
            let (image, _) = disk().cut(Left::First, &mut random);
            assert!(image[0] == 2 || image[3 * 4096] == 0);
            let (image, _) = disk().cut(Left::Writes, &mut random);
            assert_eq!(image[1], image[2 * 4096 - 1]);
            let (image, _) = disk().cut(Left::Sectors(4096), &mut random);
            assert!(image[1..4096].iter().all(|byte| *byte == image[1]));
            seen[usize::from(image[1] == image[4096])] += 1;
        }
        assert!(seen.iter().all(|count| *count > 8), "{seen:?}");
    }

    #[test]
    fn nothing_that_comes_after_the_cut_stays() {
        // Fails if a dying process wrote to a disk without power.
        let disk = disk();
        let mut random = SmallRng::seed_from_u64(1);
        let (image, _) = disk.cut(Left::All, &mut random);
        disk.contents().write(0, vec![9]);
        assert_eq!(disk.cut(Left::All, &mut random).0, image);
        disk.restore(&image);
        assert_eq!(disk.image(), image);
    }
}
