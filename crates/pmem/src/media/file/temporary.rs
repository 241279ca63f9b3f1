//! A new file under a temporary name beside its target, until it is published or removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::backing::{done, missing, not_a_file};
use super::system::{Call, System, perform};
use crate::pool::{DATA, is_begun};
use crate::{Error, Origin, Result};

/// The longest stem that fits into a temporary name.
///
/// Unit: bytes. Source: Linux, `NAME_MAX`, less two dots, `.new`, and two numbers of 32 bits with a
/// hyphen.
const LONGEST_STEM: usize = 255 - 2 - 4 - 21;

/// A file that has only a temporary name; dropping this removes it.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) directory: OwnedFd,
    name: OsString,
    target: OsString,
    system: Arc<dyn System>,
    pub(super) remove: bool,
    origin: Origin,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // In a child of `fork` the file is the parent's.
        if self.remove && self.origin.is_here() {
            // Best effort: a file under a temporary name stays behind.
            let _ = perform(&*self.system, Call::Remove, || {
                done(rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()))
            });
        }
    }
}

impl Temporary {
    /// Gives the file its name, unless another file has that name.
    pub(super) fn rename(&self) -> io::Result<u64> {
        let directory = &self.directory;
        let rename = rustix::fs::renameat_with(
            directory,
            &self.name,
            directory,
            &self.target,
            RenameFlags::NOREPLACE,
        );
        match rename {
            // Not every file system knows a rename that does not replace; all have links, and a
            // link never replaces.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let none = AtFlags::empty();
                rustix::fs::linkat(directory, &self.name, directory, &self.target, none)?;
                done(rustix::fs::unlinkat(directory, &self.name, none))
            }
            result => done(result),
        }
    }
}

/// Creates an empty file under an unused name, in the directory of `path`.
pub(super) fn create(
    path: &Path,
    mode: u32,
    system: &Arc<dyn System>,
) -> Result<(File, Temporary)> {
    let doing = |doing| move |source| Error::System { doing, source };
    let target = path.file_name().filter(|name| ends_with(path, name));
    let target = target.ok_or_else(|| not_a_file(path))?.to_owned();
    let mut opened = None;
    perform(&**system, Call::OpenDirectory, || {
        opened = Some(open_directory_of(path)?);
        Ok(0)
    })
    .map_err(doing("open the directory of the new file"))?;
    let directory = opened.ok_or_else(missing)?;
    let exists = perform(&**system, Call::Exists, || {
        match rustix::fs::statat(&directory, &target, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(1),
            Err(Errno::NOENT) => Ok(0),
            Err(error) => Err(error.into()),
        }
    });
    if exists.map_err(doing("look for a file of that name"))? != 0 {
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(Error::System { doing: "create the file", source });
    }
    let stem = stem(&target);
    remove_left_over(&directory, &stem);
    let mut created = None;
    perform(&**system, Call::Create, || {
        created = Some(create_unused(&directory, &stem, Mode::from_raw_mode(mode))?);
        Ok(0)
    })
    .map_err(doing("create the file"))?;
    let (file, name) = created.ok_or_else(missing)?;
    let system = Arc::clone(system);
    Ok((file, Temporary { directory, name, target, system, remove: true, origin: Origin::here() }))
}

/// Opens the directory in which the last name of a path stands.
pub(super) fn open_directory_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())
}

/// Returns whether a path ends with its last name. `name/` and `name/.` mean a directory: a file of
/// that name could be made, and not be opened by the same path.
fn ends_with(path: &Path, name: &OsStr) -> bool {
    path.as_os_str().as_bytes().ends_with(name.as_bytes())
}

/// Returns what the temporary names of `target` begin with: its name, or, if that is too long, the
/// beginning of it and a hash of all of it.
fn stem(target: &OsStr) -> OsString {
    let name = target.as_bytes();
    if name.len() <= LONGEST_STEM {
        return target.to_owned();
    }
    let hash = format!("~{:016x}", xxh3_64(name));
    let mut cut = LONGEST_STEM - hash.len();
    // Some file systems refuse a name that is cut within a character.
    while cut > 0 && name[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    let mut stem = OsStr::from_bytes(&name[..cut]).to_owned();
    stem.push(hash);
    stem
}

/// Removes new files for the same target that killed processes have left. Their names begin with a
/// dot, so that nobody would see what fills the disk. Best effort. What only has such a name, and
/// does not begin as a pool does, is somebody else's.
fn remove_left_over(directory: &OwnedFd, stem: &OsStr) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_temporary(name, stem) {
            // What cannot be removed stays, and costs room only.
            let _ = remove_if_left(directory, name);
        }
    }
}

/// Removes the new file `name` if its process has ended.
fn remove_if_left(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Some(file) = open_left(directory, Path::new(name))? else { return Ok(()) };
    // Under the lock nobody else removes it, and the name can mean no other file unless somebody
    // did before.
    if file.try_lock().is_ok() && rustix::fs::fstat(&file)?.st_nlink == 1 && begins_pool(&file)? {
        rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Opens a file that a process may have left: none without a length, and nothing that is no file.
///
/// A new file is locked before it gets a length. So the lock of one that has a length is never
/// taken from under the process that makes it, and is free only if that process has ended.
pub(super) fn open_left(directory: impl AsFd, name: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let found = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok(Some(file).filter(|_| is_file && found.st_size > 0))
}

/// Returns whether a file begins as one that was being made: in the place of each header of a pool
/// lies a header, or nothing but zeros, as until the pool is complete.
pub(super) fn begins_pool(file: &File) -> io::Result<bool> {
    let mut begin = Vec::new();
    file.take(DATA.byte()).read_to_end(&mut begin)?;
    begin.resize(DATA.byte() as usize, 0);
    Ok(is_begun(begin.as_chunks().0))
}

/// Returns whether `name` is `.STEM.PID-COUNT.new`.
fn is_temporary(name: &OsStr, stem: &OsStr) -> bool {
    let name = name.as_bytes().strip_prefix(b".");
    let name = name.and_then(|name| name.strip_prefix(stem.as_bytes())?.strip_prefix(b"."));
    let Some(numbers) = name.and_then(|name| name.strip_suffix(b".new")) else { return false };
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = numbers.splitn(2, |byte| *byte == b'-');
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number)
}

/// Creates `.STEM.PID-COUNT.new`, with the first unused count.
fn create_unused(directory: &OwnedFd, stem: &OsStr, mode: Mode) -> io::Result<(File, OsString)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..1000 {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut name = OsString::from(".");
        name.push(stem);
        name.push(format!(".{}-{count}.new", std::process::id()));
        match rustix::fs::openat(directory, &name, flags, mode) {
            Ok(file) => return Ok((File::from(file), name)),
            // An earlier process with this number left its file behind.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::super::system::Os;
    use super::*;

    #[test]
    fn a_long_name_is_cut_as_late_as_its_characters_allow() {
        // Fails if a name is too long, is cut within a character, or loses more than it must.
        let kept = LONGEST_STEM - 17;
        for before in 0..3 {
            let name = format!("{}{}", "a".repeat(before), "\u{e9}".repeat(120));
            let stem = stem(OsStr::new(&name)).into_string().unwrap();
            let (beginning, hash) = stem.split_once('~').unwrap();
            assert!(name.starts_with(beginning) && hash.len() == 16, "{stem}");
            assert_eq!(beginning.len(), kept - (kept - before) % 2, "{stem}");
        }
    }

    #[test]
    fn a_child_that_drops_its_copy_leaves_the_file_to_its_parent() {
        // Fails if a child of `fork` removed the new file that its parent is about to publish.
        let path = std::env::temp_dir().join(format!("everhash-forked-{}", std::process::id()));
        let system: Arc<dyn System> = Arc::new(Os);
        let (_, mut new) = create(&path, 0o600, &system).unwrap();
        let name = path.with_file_name(&new.name);
        new.origin = Origin::of_process(std::process::id() + 1);
        drop(new);
        assert!(name.exists());
        let (_, mut new) = create(&path, 0o600, &system).unwrap();
        std::fs::remove_file(name).unwrap();
        let name = path.with_file_name(&new.name);
        assert!(new.origin.is_here() && name.exists());
        new.origin = Origin::of_process(std::process::id());
        drop(new);
        assert!(!name.exists());
    }
}
