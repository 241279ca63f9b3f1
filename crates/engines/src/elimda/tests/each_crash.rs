//! What crashes at every point of a log leave, opened.

use core::ops::ControlFlow;

use everhash_index::Form;
use everhash_pmem::Image;
use everhash_pmem::crash::{Explorer, Limits, Log, Memory, Model, Seen};
use everhash_testkit::session::Session;

use crate::elimda::ElimDa;

/// Shows `judge` the tables that crashes leave of a pool which held `before` when the log began.
pub fn after_each_crash(
    model: Model,
    form: Form,
    before: Vec<u64>,
    log: &Log,
    judge: impl Fn(&Session<ElimDa>),
) {
    // Some images of each crash: what these hold is much the same.
    let limits = Limits { product: 8, single: 8, pairs: 2, random: 2, ..Limits::default() };
    let mut explorer = Explorer::new(Memory::of(model, before), log.events());
    let mut seen = Seen::default();
    while explorer.next_point().is_some() {
        let flow = explorer.states(&limits, &mut seen, 0, &mut |state| {
            let bytes = state.words().len() as u64 * 8;
            let image = Image::of(state.words(), bytes, bytes + (64 << 10));
            let image = image.with_guarantees(model.guarantees());
            judge(&Session::<ElimDa>::open_after_power(image, form).unwrap());
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    let states = explorer.count().states;
    println!("{form}, {model}: {states} states");
    assert!(states > 100, "{states}");
}
