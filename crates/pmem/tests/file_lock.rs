//! The lock of a file while other programs are started: in a binary of its own, because starting
//! them without a pause disturbs tests that count.

#![allow(clippy::unwrap_used, reason = "this is a test, also where it is not a test function")]

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use everhash_pmem::{FileMedium, FileOptions};
use support::Directory;

#[test]
fn a_closed_file_is_free_although_a_program_is_being_started() {
    // Fails if the lock lasts as long as any copy of the descriptor: a child of `fork` has one
    // until it runs its program, whatever the parent closes meanwhile.
    let directory = Directory::new();
    let options = FileOptions { capacity_bytes: 1 << 20, ..FileOptions::default() };
    FileMedium::create(directory.file(), 4096, &options).unwrap().publish().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                Command::new("/bin/true").status().unwrap();
            }
        });
        let opened = (0..2000).all(|_| FileMedium::open(directory.file(), &options).is_ok());
        stop.store(true, Ordering::Relaxed);
        assert!(opened);
    });
}
