//! The medium on a file system that is mapped directly. `tests/dax/run.sh` boots a machine that has
//! one and runs these tests there, in two boots with a reset in between.

use std::path::PathBuf;

use everhash_pmem::media::dax::DaxMedium;
use everhash_pmem::{Addr, Domain, FileOptions, Media, Region, Site, Span};

const SITE: Site = Site::new("dax/test");

/// Words that are persisted before the reset. Unit: words. Source: ours; more than a page, and
/// beyond what the file had when it was made.
const COUNT: u64 = 4096;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run tests/dax/run.sh"))
}

fn path() -> PathBuf {
    PathBuf::from(variable("EVERHASH_DAX_DIR")).join("pairs.ehdb")
}

fn options() -> FileOptions {
    FileOptions { capacity_bytes: 1 << 30, ..FileOptions::default() }
}

fn word(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

#[test]
#[ignore = "needs a DAX file system; run tests/dax/run.sh"]
fn before_the_reset_words_are_persisted_without_a_sync() {
    // Fails if the mapping is not direct, or the domain is not what the kernel says. Growth is in
    // it, because new extents are what a mapping that is not synchronous would lose.
    let medium = DaxMedium::create(path(), 4096, &options()).unwrap();
    let expected = match variable("EVERHASH_DAX_DOMAIN").as_str() {
        "cpu_cache" => Domain::Eadr,
        _ => Domain::Adr,
    };
    assert_eq!(medium.guarantees().domain, expected);
    medium.publish().unwrap();
    let region = Region::new(medium);
    region.media().grow(COUNT * 8).unwrap();
    let pm = region.access();
    for number in 0..COUNT {
        let at = Addr::new(number * 8);
        if number % 2 == 0 {
            pm.store(at, word(number)).unwrap();
            pm.persist(Span::new(at, 1), SITE).unwrap();
        } else {
            pm.write_words_nt(at, &[word(number)], SITE).unwrap();
            pm.fence(SITE).unwrap();
        }
    }
    println!("domain {expected:?}, {COUNT} words");
    // The machine is reset next: the end of this process must not close anything either.
    std::process::exit(0);
}

#[test]
#[ignore = "needs a DAX file system; run tests/dax/run.sh"]
fn after_the_reset_every_persisted_word_is_there() {
    // Fails if an extent, the length or a word that was fenced did not survive the reset.
    let medium = DaxMedium::open(path(), &options()).unwrap();
    assert_eq!(medium.bytes(), COUNT * 8);
    let region = Region::new(medium);
    let pm = region.access();
    let lost = (0..COUNT).filter(|n| pm.load(Addr::new(n * 8)).unwrap() != word(*n)).count();
    assert_eq!(lost, 0, "of {COUNT} words");
}
