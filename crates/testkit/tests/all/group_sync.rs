//! Group commit of file media, in every schedule that two threads can take.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use everhash_pmem::media::file::group::GroupSync;
use everhash_pmem::{AtomicWord, Primitives};
use everhash_testkit::primitives::Loom;

type Word = <Loom as Primitives>::AtomicU64;

/// A file of one word for each thread, and what the device holds of it.
struct Model {
    group: GroupSync<Loom>,
    words: [Word; 2],
    device: [Word; 2],
}

/// Stores a word and waits until it is durable.
fn persist(model: &Model, thread: usize) {
    model.words[thread].store(1, Relaxed);
    let ticket = model.group.ticket();
    let sync = || {
        for (word, copy) in model.words.iter().zip(&model.device) {
            copy.store(word.load(Relaxed), Relaxed);
        }
        Ok(())
    };
    model.group.wait(ticket, sync).unwrap();
    assert_eq!(model.device[thread].load(Relaxed), 1, "a fence returned before its store was out");
}

#[test]
fn a_fence_never_returns_before_its_store_is_on_the_device() {
    // Fails if a sync is believed that began before the store, or if one of the two full fences is
    // missing: then a thread can miss the number of a sync which in turn misses its store.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Arc::new(Model {
            group: GroupSync::default(),
            words: [Word::new(0), Word::new(0)],
            device: [Word::new(0), Word::new(0)],
        });
        let other = Arc::clone(&model);
        let thread = loom::thread::spawn(move || persist(&other, 1));
        persist(&model, 0);
        thread.join().unwrap();
    });
}
