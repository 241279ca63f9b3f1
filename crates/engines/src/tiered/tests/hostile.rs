//! Pools that somebody forged who knows the format: no panic, no hang, no memory without bound.

use everhash_index::Design;
use everhash_pmem::{Addr, LINE, WORD};
use everhash_testkit::hostile::{Effort, judge};

use crate::common::record;
use crate::common::settings::checksum;
use crate::tiered::Tiered;
use crate::tiered::layout::{self, Head, LINE_WORDS, Listed, Place, ROOT, Root};

/// Stores a value with the checks that the engine would have stored with it.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * WORD), ROOT.word() as usize);
    if (root..root + Root::CHECKSUM).contains(&index) {
        words[index] = value;
        words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
        return;
    }
    let line = Addr::new(at.line() * LINE);
    match kind % 5 {
        0 => {
            let place = Place::new(Addr::new(value % (1 << 33) * 2 * LINE), value as u32 % 41);
            words[index] = Listed::Live(place).encode(at);
        }
        1 => words[index] = layout::seal_link(Addr::new(value % (1 << 48) * LINE), line),
        2 => {
            let states = [0, 16, 32].map(|shift| (value >> shift) as u16);
            let head = states.iter().enumerate();
            let head = head.fold(Head::EMPTY, |head, (slot, state)| head.with(slot, *state));
            words[index] = head.encode(line);
        }
        // A record word behind its hash.
        3 => {
            let tag = u64::from(record::tag_of(words[index - 1], value));
            words[index] = value & (u64::MAX >> 12) | tag << 52;
        }
        // A link to a line of the pool: round in a circle, or into another bucket.
        _ => {
            let lines = (words.len() / LINE_WORDS) as u64;
            words[index] = layout::seal_link(Addr::new(value % lines * LINE), line);
        }
    }
}

#[test]
fn p07_a_forged_pool_costs_no_panic_no_hang_and_no_memory() {
    // Fails if a number from the medium is used before it is bounded, checks or none.
    for form in super::FORMS {
        let effort = Effort { forge: Some(forge), images: 1000, ..Effort::default() };
        let report = judge(&Design::of::<Tiered>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.images > 1000 && report.opened > 100, "{form}: {report}");
    }
}
