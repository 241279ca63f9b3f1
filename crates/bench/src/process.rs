//! What the system says of this process and of a file: page faults, memory, storage.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use everhash_index::{Error, Result};
use rustix::fs::{Advice, fadvise};

/// Page faults of the process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The page was in memory.
    pub minor: u64,
    /// The page came from the device.
    pub major: u64,
}

/// Returns the page faults of the process so far; zero where the system does not say.
pub(crate) fn faults() -> Faults {
    faults_of(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

fn faults_of(text: &str) -> Faults {
    // Source: Linux, proc_pid_stat(5): behind the name, in brackets, fields 3 and on; 10 and 12.
    let fields: Vec<_> =
        text.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3).and_then(|word| word.parse().ok());
    Faults { minor: field(10).unwrap_or(0), major: field(12).unwrap_or(0) }
}

/// Returns the bytes that the process has given the system to be written to storage, by whole
/// pages; zero where the system does not say. What a file system writes for itself is not in it.
pub(crate) fn written_bytes() -> u64 {
    written_of(&std::fs::read_to_string("/proc/self/io").unwrap_or_default())
}

fn written_of(text: &str) -> u64 {
    // Source: Linux, proc_pid_io(5); a page counts when it is stored to and was not waiting yet.
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Returns the memory of the process that is no file's; zero where the system does not say.
pub(crate) fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Source: Linux, proc_pid_status(5). Unit: KiB.
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Returns the storage that a file takes; zero if there is none. Unit: bytes.
pub(crate) fn stored_bytes(path: &Path) -> u64 {
    // Source: stat(2): blocks of 512 bytes, whatever the file system's are.
    path.metadata().map_or(0, |found| found.blocks() * 512)
}

/// Asks the system to forget the pages that it has of a file: what is mapped, it keeps.
pub(crate) fn forget_pages(path: &Path) -> Result<()> {
    let forget = || -> std::io::Result<()> {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    forget().map_err(|error| Error::Unsupported {
        what: format!("forgetting the pages of {}: {error}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_is_asked() {
        // Fails if a field is read from the wrong place: then a run would print zeros.
        let before = faults().minor;
        let pages = std::hint::black_box(vec![1u8; 64 << 20]);
        // Not more than before: other tests of the process give memory back meanwhile.
        assert!(faults().minor > before && anonymous_bytes() > 32 << 20);
        drop(pages);
        let file = tempfile::NamedTempFile::new().expect("a place for a file");
        std::fs::write(file.path(), vec![1; 1 << 20]).expect("room for a file");
        forget_pages(file.path()).expect("a file that was just written");
        assert!((1 << 20..4 << 20).contains(&stored_bytes(file.path())));
    }

    #[test]
    fn each_figure_has_its_own_place_in_what_the_system_says() {
        // Fails if a figure were the one beside it: both look plausible, and one that waits for a
        // device is rare.
        let fields: Vec<_> = (3..=52).map(|number| number.to_string()).collect();
        let Faults { minor, major } = faults_of(&format!("1 (a) b) {}\n", fields.join(" ")));
        assert_eq!((minor, major), (10, 12));
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                  cancelled_write_bytes: 7\n";
        assert_eq!(written_of(io), 6);
    }
}
