//! Prints how many distinct crash states a core explores in a second, with a trivial judge.
//!
//! Run it with `cargo run --release -p everhash-pmem --example crash_rate`.

use core::ops::ControlFlow;
use std::time::Instant;

use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Random, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Region, Result, Site, Span, Std};

const SITE: Site = Site::new("example/store");

fn main() -> Result<()> {
    println!("{:>8} {:>5} {:>9} {:>10} {:>12}", "image", "model", "points", "states", "states/s");
    for model in [Model::Adr, Model::Eadr, Model::File] {
        for kibibytes in [16, 64] {
            explore(model, kibibytes << 10)?;
        }
    }
    Ok(())
}

/// Fills records of 2 to 9 words at random places, each persisted with one fence after two flushes.
fn explore(model: Model, bytes: u64) -> Result<()> {
    let medium = Traced::<Std>::new(model, bytes, bytes);
    let region = Region::new(medium);
    let mut random = Random::new(1);
    for operation in 0..20_000 {
        region.media().begin(operation);
        let pm = region.access();
        for _ in 0..2 {
            let words = 2 + random.below(4);
            let at = Addr::NULL.plus(random.below(bytes / 8 - words));
            for word in 0..words {
                pm.store(at.plus(word), random.next())?;
            }
            pm.flush(Span::new(at, words), SITE);
        }
        pm.fence(SITE)?;
        region.media().returned(operation);
    }
    let log = region.media().take_log();
    let begun = Instant::now();
    let mut explorer = Explorer::new(Memory::zero(model, bytes), log.events());
    let (mut seen, mut sum) = (Seen::default(), 0);
    while explorer.next_point().is_some() {
        let _ = explorer.states(&Limits::default(), &mut seen, 0, &mut |state| {
            // Trivial, but it looks at the image, so that patching cannot be left out.
            sum ^= state.words()[state.moment().event % state.words().len()];
            ControlFlow::Continue(())
        });
    }
    let count = *explorer.count();
    let rate = count.states as f64 / begun.elapsed().as_secs_f64();
    let image = format!("{} KiB", bytes >> 10);
    println!("{image:>8} {model:>5} {:>9} {:>10} {rate:>12.0}", count.points, count.states);
    // Keeps the judge's work from being optimised away.
    std::hint::black_box(sum);
    Ok(())
}
