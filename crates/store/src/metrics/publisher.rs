//! A file with the figures of an open database, written anew again and again by a thread.

use core::time::Duration;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::Metrics;
use crate::core::Core;
use crate::{Error, Info, Result};

/// The thread that writes the file.
#[derive(Debug)]
pub(crate) struct Publisher {
    thread: JoinHandle<()>,
    stop: Arc<Stop>,
}

/// The shortest pause between two writings of the file.
///
/// Source: ours; nobody reads figures more often, and the thread must not fill a processor.
const PAUSE: Duration = Duration::from_millis(10);

/// Tells the thread to end.
#[derive(Debug, Default)]
struct Stop {
    stopping: Mutex<bool>,
    changed: Condvar,
}

impl Publisher {
    /// Writes the file `path` for the first time, and starts the thread that writes it every
    /// `every`. What cannot be written later is written the next time.
    pub(crate) fn start(
        core: &Arc<Core>,
        info: Info,
        path: &Path,
        every: Duration,
    ) -> Result<Publisher> {
        let failed = |error| Error::of_system(path, "writing its figures", error);
        let written = [path, &beside(path)].map(own_name);
        if own_name(core.path()).is_some_and(|own| written.contains(&Some(own))) {
            let what = "the database itself cannot be the file for its figures";
            return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
        }
        let every = every.max(PAUSE);
        write(path, &Metrics::of(core, &info).to_string()).map_err(failed)?;
        let (core, path, stop) = (Arc::clone(core), path.to_owned(), Arc::<Stop>::default());
        let thread_stop = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("everhash-metrics".into());
        let failed = |error| Error::of_system(core.path(), "starting a thread", error);
        let shared = Arc::clone(&core);
        let thread = builder.spawn(move || publish(&shared, &info, &path, every, &thread_stop));
        Ok(Publisher { thread: thread.map_err(failed)?, stop })
    }

    /// Writes the file for the last time, and waits for the end of the thread.
    pub(crate) fn stop(self) {
        *self.stop.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        // A panic there concerns nobody: the figures are no part of the database.
        let _ = self.thread.join();
    }
}

fn publish(core: &Core, info: &Info, path: &Path, every: Duration, stop: &Stop) {
    let mut stopping = stop.stopping.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopping {
        let wait = stop.changed.wait_timeout_while(stopping, every, |stopping| !*stopping);
        stopping = wait.unwrap_or_else(PoisonError::into_inner).0;
        let metrics = Metrics::of(core, info);
        let text = if *stopping { metrics.text_of_closed() } else { metrics.to_string() };
        // The next time, perhaps.
        let _ = write(path, &text);
    }
}

/// Returns the name of a file that need not be there yet, links followed.
fn own_name(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().or_else(|| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = std::fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?;
        Some(parent.join(path.file_name()?))
    })
}

/// Writes a file that a reader sees old or new, and never in part.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let new = beside(path);
    // What was left there, which may be a link that leads elsewhere, is not written to.
    let _ = std::fs::remove_file(&new);
    let file = std::fs::File::create_new(&new);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    let placed = written.and_then(|()| std::fs::rename(&new, path));
    if placed.is_err() {
        // Nothing to say beside the first error.
        let _ = std::fs::remove_file(&new);
    }
    placed
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}
