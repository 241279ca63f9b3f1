//! Group commit under loom: a fence that returns stands on a sync that saw the thread's stores.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};

use everhash_pmem::media::file::group::GroupSync;
use everhash_pmem::{AtomicWord, Error};
use everhash_testkit::primitives::{Loom, LoomWord, without_fences};

/// A file of two words, and what of it the last sync brought to the device.
struct File {
    group: GroupSync<Loom>,
    words: [LoomWord; 2],
    device: [LoomWord; 2],
}

impl File {
    fn new() -> Self {
        let words = || [LoomWord::new(0), LoomWord::new(0)];
        File { group: GroupSync::default(), words: words(), device: words() }
    }

    /// Stores, flushes and fences, as an engine does; returns whether it may promise anything.
    fn commit(&self, index: usize, sync: impl FnOnce(&Self) -> io::Result<()>) -> bool {
        self.words[index].store(1, Relaxed);
        let ticket = self.group.ticket();
        match self.group.wait(ticket, || sync(self)) {
            Ok(()) => {
                assert_eq!(self.device[index].load(Relaxed), 1, "promised, but not durable");
                true
            }
            Err(Error::Poisoned | Error::System { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    }

    fn sync(&self) -> io::Result<()> {
        for (word, device) in self.words.iter().zip(&self.device) {
            device.store(word.load(Relaxed), Relaxed);
        }
        Ok(())
    }
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(body);
}

/// Two threads commit; returns by how many syncs.
fn two_commits() -> BTreeSet<u64> {
    let counts = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&counts);
    model(move || {
        let file = Arc::new(File::new());
        let other = Arc::clone(&file);
        let other = loom::thread::spawn(move || other.commit(1, File::sync));
        assert!(file.commit(0, File::sync));
        assert!(other.join().unwrap());
        all.lock().unwrap().insert(file.group.begun());
    });
    counts.lock().unwrap().clone()
}

#[test]
fn a_fence_returns_only_after_a_sync_that_saw_its_stores() {
    // Fails if a thread believes in a sync that began before its flush; and if no sync was ever
    // shared, or none ever needed twice, for then nothing was tested.
    assert_eq!(two_commits(), BTreeSet::from([1, 2]));
}

#[test]
fn a_failed_sync_lets_nobody_promise_what_it_lost() {
    // Fails if a waiter takes a failed sync for its own success, or tries it again, or hangs.
    model(|| {
        let file = Arc::new(File::new());
        let other = Arc::clone(&file);
        let fail = |_: &File| Err(io::Error::other("the device is gone"));
        let other = loom::thread::spawn(move || other.commit(1, fail));
        file.commit(0, File::sync);
        if !other.join().unwrap() {
            assert!(file.group.check().is_err(), "a failed sync was forgotten");
        }
    });
}

#[test]
fn group_commit_without_fences_is_caught() {
    // Fails if the model is too small to show what the fences are for.
    assert!(without_fences(|order| order == SeqCst, two_commits).is_err());
}
