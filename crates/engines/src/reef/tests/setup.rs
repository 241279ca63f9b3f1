//! Settings: which are refused, and which are raised.

use everhash_index::{Engine, Error, Form};
use everhash_pmem::{Image, Media};
use everhash_testkit::session::Session;

use crate::common::settings::checksum;
use crate::reef::layout::{self, Root};
use crate::reef::{Reef, ReefSettings};

#[test]
fn more_buckets_than_a_shard_can_have_are_refused() {
    // Fails if a table is made that cannot be opened, or if its length is told all the same.
    let settings = ReefSettings { shards: 2, buckets: 1 << 32, ..ReefSettings::tiny() };
    let made = Session::<Reef>::create(Image::new(0, 1 << 20), Form::WORDS, &settings);
    assert!(matches!(made.map(drop), Err(Error::Setting { name: "shards", .. })));
    let guarantees = Image::<everhash_pmem::Std>::new(0, 1 << 20).guarantees();
    let needed = Reef::bytes_needed(Form::WORDS, &settings, guarantees);
    assert!(matches!(needed, Err(Error::Setting { name: "shards", .. })), "{needed:?}");
}

#[test]
fn fewer_shards_than_streams_and_fewer_buckets_than_shards_are_raised() {
    // Fails if who asks for many streams has to know what else that takes.
    let settings = ReefSettings { streams: 8, shards: 1, buckets: 1, ..ReefSettings::tiny() };
    let session = Session::<Reef>::create(Image::new(0, 1 << 20), Form::WORDS, &settings).unwrap();
    let made = session.table().settings;
    assert_eq!((made.streams, made.shards, made.buckets), (8, 8, 8));
}

#[test]
fn settings_that_no_table_has_are_damage() {
    // Fails if what they say together is believed when a table is opened: a stream without a shard,
    // a shard without a bucket.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    session.close().unwrap();
    let whole = session.region().media().words();
    let (root, end) = (layout::ROOT.word() as usize, Root::CHECKSUM);
    let forged =
        [(Root::STREAMS, 4), (Root::SHARDS, 8), (Root::BUCKETS, 1 << 40), (Root::FLUSH_BYTES, 0)];
    for (index, value) in forged {
        let mut words = whole.clone();
        words[root + index] = value;
        words[root + end] = checksum(layout::ROOT, &words[root..root + end]);
        let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
        let outcome = Session::<Reef>::open(medium, Form::WORDS).map(drop);
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{index}, {value}: {outcome:?}");
    }
}

#[test]
fn a_directory_is_made_for_as_many_pairs_as_are_expected() {
    // Fails if a table that is to be large begins small, or a small one in need of gigabytes.
    let buckets = |items| ReefSettings::sized_for(items).buckets;
    assert_eq!(buckets(0), ReefSettings::default().buckets);
    // Of eight slots each, five sevenths and a little more.
    assert_eq!(buckets(10_000_000), 1 << 21);
    assert_eq!(buckets(u64::MAX), 1 << 40);
}
