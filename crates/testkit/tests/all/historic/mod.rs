//! Historic bugs: published crash bugs of other systems, re-created in a few lines each.
//!
//! Each case runs a protocol on a traced medium, once as it was and once as it should have been;
//! the explorer must find a state that contradicts the case's promise in the first and none in the
//! second. Those of the list that fit into an engine are planted in `tests/all/planted`:
//!
//! | published | re-created as |
//! |---|---|
//! | Level hashing, token order (Witcher 7) | `planted` `CommitFirst` |
//! | Level hashing, two tokens (Witcher 19) | `planted` `DuplicateAfterMove` |
//! | Level hashing, expand (Witcher 17) | [`level_expand`] |
//! | CCEH, split before its contents (Witcher 24) | `planted` `RootBeforeTable` |
//! | CCEH, sentinel (Witcher 25) | [`cceh_sentinel`] |
//! | CCEH, doubling visible before durable (SEPH 2) | `planted` `RootNotDurable` |
//! | CCEH, read of a value not durable (SEPH 3) | `planted` `EarlyRead` |
//! | CCEH, uniqueness from what is not durable (SEPH 1) | `planted` `EarlyExists` |
//! | P-CLHT, flush of the wrong address (Witcher 30) | [`clht_wrong_address`] |
//! | P-CLHT, lock on the medium (RECIPE 19) | `planted` `LockOnMedium` |
//! | P-CLHT, memory handed out twice (RECIPE 24) | `planted` `DoubleHandOut` |
//! | FAST&FAIR, flush condition (Witcher 3) | `planted` `FirstLineOfSlot` |
//! | FAST&FAIR, delete on a half-shifted node (Witcher 4) | [`fast_fair_shift`] |
//! | FAST&FAIR, split without its root (Witcher 5) | [`fast_fair_split`] |
//! | P-ART, counter beside the entries (Witcher 27) | [`art_counter`] |
//! | P-HOT, missing fence at the root (Witcher 36) | `planted` `MissingFence` |
//! | P-HOT, pointer flushed for pointee (Witcher 38) | [`hot_pointee`] |
//! | memcached-pmem, linked before its id (issue 4) | [`memcached_link`] |
//! | hashmap_atomic, recovery not called (pmdk 5220) | `planted` `RecoverySkipped` |
//! | NOVA, tail of an unaligned copy (Vinter) | [`nova_tail`] |
//! | PMFS, recovery that forgets too early (Chipmunk) | `planted` `JournalClearedFirst` |
//! | HSE, header and checksum (issue 471) | [`hse_header`] |
//! | LMDB, meta page before its data (WRITEMAP) | [`lmdb_meta`] |
//! | TurboHash, first line only | `planted` `FirstLineOnly` |

mod files;
mod nodes;
mod stage;
mod tables;

use files::{hse_header, lmdb_meta, nova_tail};
use nodes::{art_counter, fast_fair_shift, fast_fair_split, hot_pointee};
use stage::Case;
use tables::{cceh_sentinel, clht_wrong_address, level_expand, memcached_link};

#[test]
fn every_historic_bug_is_found_and_its_cure_accepted() {
    // Fails if the explorer misses a state that cost others their data, or makes one up.
    let cases: [fn() -> Case; 11] = [
        level_expand,
        cceh_sentinel,
        clht_wrong_address,
        fast_fair_shift,
        fast_fair_split,
        art_counter,
        hot_pointee,
        memcached_link,
        nova_tail,
        hse_header,
        lmdb_meta,
    ];
    for case in cases {
        let case = case();
        let found = case.explore(true).expect_err(case.name);
        println!("{}: {found}", case.name);
        let states = case.explore(false).expect(case.name);
        assert!(states >= 3, "{}: {states} states are no exploration", case.name);
    }
}
