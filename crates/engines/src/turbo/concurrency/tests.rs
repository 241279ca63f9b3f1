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

#[test]
fn writers_beside_one_another_note_their_places_in_lanes_of_their_own() {
    // Fails if a writer takes a lane in which another one is, or stores its note in another lane
    // than its own: recovery would not flush what one of them left visible and not durable.
    let region = Region::new(Image::<Std>::new(4096, 4096));
    let (pm, first) = (region.access(), Addr::new(1024));
    let lanes = Lanes::<Std>::new(first, 4);
    let notes = || {
        let mut notes = [0, 1, 2, 3].map(|lane| pm.load(first.plus(lane * 8)).unwrap());
        notes.sort_unstable();
        notes
    };
    let buckets = [2048, 2304, 2560];
    let writers = buckets.map(|bucket| lanes.bucket(&pm, Addr::new(bucket)).unwrap());
    let of_shard = lanes.shard(&pm, 5).unwrap();
    assert_eq!(notes(), [11, 2048, 2304, 2560]);
    drop((writers, of_shard));
    // A note stands until another one takes its place.
    assert_eq!(notes(), [11, 2048, 2304, 2560]);
    let _another = lanes.bucket(&pm, Addr::new(2816)).unwrap();
    assert!(notes().contains(&2816));
}
