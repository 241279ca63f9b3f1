//! What one shard does to its readers and writers when a write fails, panics or moves it.

use super::*;
use everhash_pmem::{Addr, Image, Region, Std};

const PLACE: Place = Place { start: Addr::new(8192), log: 2 };

#[test]
fn a_write_that_fails_keeps_readers_and_writers_out() {
    // Fails if a reader were shown what a crash may take back, or would wait for ever.
    let region = Region::new(Image::<Std>::new(4096, 4096));
    let (pm, shard) = (region.access(), Shard::<Std>::new(PLACE));
    let held = shard.hold(&pm).unwrap();
    let pending = held.pending(2, Meta::first(0).next(0, 0));
    assert!(shard.settled(1).unwrap() && !shard.settled(2).unwrap());
    pending.end();
    assert!(shard.settled(2).unwrap());
    assert!(!{
        let _all = held.pending_all();
        shard.settled(3).unwrap()
    });
    drop(held);
    assert!(matches!(shard.settled(0), Err(Error::Poisoned)));
    assert!(matches!(shard.hold(&pm).map(drop), Err(Error::Poisoned)));
}

#[test]
fn p12_a_shard_whose_holder_panicked_is_never_locked_again() {
    // Fails if a writer goes on with what a panic left half done, or waits for ever.
    let region = Region::new(Image::<Std>::new(4096, 4096));
    let shard = Shard::<Std>::new(PLACE);
    let holder = || {
        let pm = region.access();
        let _held = shard.hold(&pm).unwrap();
        panic!("as a caller's closure might");
    };
    assert!(std::thread::scope(|scope| scope.spawn(holder).join()).is_err());
    assert!(matches!(shard.hold(&region.access()).map(drop), Err(Error::Poisoned)));
}

#[test]
fn a_reader_looks_again_when_the_shard_has_moved() {
    // Fails if an answer, or an error, from where the shard lay before were believed.
    let region = Region::new(Image::<Std>::new(4096, 4096));
    let (pm, shard) = (region.access(), Shard::<Std>::new(PLACE));
    let mut looks = 0;
    let found = shard.read(|place| {
        looks += 1;
        if looks == 1 {
            shard.hold(&pm)?.moved(Place { log: 3, ..PLACE });
            return Err(Error::Full { needed: 1 });
        }
        Ok(Look::Whole(place.log))
    });
    assert_eq!((found.unwrap(), looks), (3, 2));
}
