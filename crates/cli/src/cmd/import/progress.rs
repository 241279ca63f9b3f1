//! How far an import is: a bar on a terminal, and nothing elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

/// How far an import is.
pub struct Progress {
    bar: ProgressBar,
    stored: AtomicU64,
}

impl Progress {
    /// Begins; `bytes` is the length of the input, if it is known.
    pub fn start(bytes: Option<u64>) -> Progress {
        // The bar hides itself where standard error is no terminal.
        let (bar, template) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{percent:>3}% {wide_bar} {msg}, {bytes_per_sec}, {eta} left",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}, {bytes_per_sec}, {elapsed}"),
        };
        let style = ProgressStyle::with_template(template).expect("the templates are constant");
        Progress { bar: bar.with_style(style), stored: AtomicU64::new(0) }
    }

    /// Notes that so many more records are stored.
    pub fn stored(&self, records: u64) {
        self.stored.fetch_add(records, Ordering::Relaxed);
    }

    /// Shows that the input was read up to `position`.
    pub fn read(&self, position: u64) {
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{} records", self.stored.load(Ordering::Relaxed)));
            self.bar.set_position(position);
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
