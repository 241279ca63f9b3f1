//! The fuzzer judged: what only an image of several moments shows.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::sealed::{Sealed, bug};
use everhash_index::{Design, Form};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::{fuzz, hostile};

fn sealed(changes: &'static [(&'static str, u64)]) -> Design<Image> {
    Design::of::<Sealed>().with_settings(changes)
}

const EFFORT: fuzz::Effort = fuzz::Effort { seed: 1, executions: 0..600, model: Model::Adr };

#[test]
fn what_two_sound_moments_make_together_is_tried() {
    // Fails if images are overwritten only: then every row that differs from that of its moment
    // fails its check, and no key has two rows.
    fuzz::judge(&sealed(&[]), Form::WORDS, &EFFORT).unwrap();
    let bugs: [(&'static [(&str, u64)], &str); 3] = [
        (&[("bug", bug::TWICE_PANICS)], "a key has one row"),
        (&[("bug", bug::TWICE_GROWS)], "the medium grew by"),
        (&[("bug", bug::TWICE_TURNS)], "a scan does not end"),
    ];
    for (changes, says) in bugs {
        let design = sealed(changes);
        let overwritten = hostile::Effort { images: 300, ..hostile::Effort::default() };
        hostile::judge(&design, Form::WORDS, &overwritten).unwrap();
        let found = fuzz::judge(&design, Form::WORDS, &EFFORT).unwrap_err().to_string();
        println!("{found}");
        assert!(found.contains("mixed") && found.contains(says), "{found}");
    }
}
