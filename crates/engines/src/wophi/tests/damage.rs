//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::{Design, Form};
use everhash_pmem::pool::{DATA, ROOT};
use everhash_pmem::{Addr, Bits, LINE};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::hostile;

use crate::common::{record, settings};
use crate::wophi::Wophi;
use crate::wophi::layout::{self, Kind, Root, Token};

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, other than a key or a value of a
    // fixed form, or if a number from the medium is used before it is bounded.
    let effort = Effort { bare_pairs: true, flip_every: 3, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Wophi>(), form, &effort).unwrap();
        println!("{form}: {report}");
        // A bit of a value is never noticed, and few of a key are in so small a table.
        let pair_bits = if form == Form::DOUBLE_WORDS { 256 } else { 128 };
        let most = if form == Form::Variable { 0 } else { 2 * 24 * pair_bits };
        assert!(report.in_bare_pairs <= most && report.noticed > 2000, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}

/// Stores a value as settings, link, token word, record word or plain word, with its check.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * 8), ROOT.word() as usize);
    let link = || layout::encode_link(Addr::new((value & ((1 << 48) - 1)) * LINE), at);
    if at >= DATA {
        words[index] = match kind % 8 {
            0 | 1 => Token::from_contents(value).encode(at, Kind::Main),
            2 | 3 => Token::from_contents(value).encode(at, Kind::Chained),
            4 | 5 => link(),
            6 => {
                let tag = Bits::new(52, 12);
                let word = tag.set(value, 0);
                tag.set(word, record::tag_of(words[index - 1], word).into())
            }
            _ => value,
        };
    } else if index < root + Root::CHECKSUM {
        words[index] = value;
        let settings = &words[root..root + Root::CHECKSUM];
        words[root + Root::CHECKSUM] = settings::checksum(ROOT, settings);
    } else {
        words[index] = if kind.is_multiple_of(8) { value } else { link() };
    }
}

#[test]
fn p07_a_forged_image_is_an_error_or_a_table_and_never_a_panic() {
    // Fails if a count, level, length, address or token from the medium is used before it is
    // bounded, the token of a slot that a bucket of this form does not have among them.
    let effort = hostile::Effort { images: 600, forge: Some(forge), ..hostile::Effort::default() };
    for form in super::FORMS {
        let report = hostile::judge(&Design::of::<Wophi>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.opened > report.images / 20, "{form}: {report}");
    }
}
