//! What the tests of the explorer share: a puppet for threads, and runs on a traced medium.

use core::cell::Cell;
use core::ops::ControlFlow;
use std::collections::BTreeSet;

use everhash_pmem::crash::{Explorer, Limits, Memory, Seen};
use everhash_pmem::{Primitives, Std};

/// Primitives whose thread is named by the test: programs of several threads in a fixed order.
pub struct Puppet;

thread_local!(static THREAD: Cell<u32> = const { Cell::new(1) });

/// Says which thread acts from now on.
pub fn act_as(thread: u32) {
    THREAD.set(thread);
}

impl Primitives for Puppet {
    type AtomicU64 = <Std as Primitives>::AtomicU64;
    type Mutex<T: Send> = <Std as Primitives>::Mutex<T>;

    fn fence(order: core::sync::atomic::Ordering) {
        Std::fence(order);
    }

    fn pause(attempt: u32) {
        Std::pause(attempt);
    }

    fn thread() -> u32 {
        THREAD.get()
    }
}

/// Returns every state at the present point of `explorer`, complete.
#[allow(dead_code, reason = "not every test file uses it")]
pub fn states_here(explorer: &mut Explorer<'_>) -> BTreeSet<Vec<u64>> {
    let mut states = BTreeSet::new();
    let limits = Limits { product: u64::MAX, ..Limits::default() };
    let flow = explorer.states(&limits, &mut Seen::default(), 0, &mut |state| {
        assert!(states.insert(state.words().to_vec()), "a state was judged twice");
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    states
}

/// Goes to the end of the log, whether or not it is a crash point.
#[allow(dead_code, reason = "not every test file uses it")]
pub fn at_end<'l>(memory: Memory, log: &'l everhash_pmem::crash::Log) -> Explorer<'l> {
    let mut explorer = Explorer::new(memory, log.events());
    while explorer.next_point().is_some() {}
    explorer
}
