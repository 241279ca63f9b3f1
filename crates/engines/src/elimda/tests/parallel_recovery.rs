//! Recovery by several threads (ElimDA 3.6): the same table, whoever does which part when.

use everhash_index::{Cursor, Executor, Form, Inline, Opening, Table, Threads, open};
use everhash_pmem::{Image, Region, Std};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::elimda::{ElimDa, ElimDaSettings};

/// Does the last job first.
struct Backwards;

impl Executor for Backwards {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).rev().for_each(job);
    }

    fn width(&self) -> usize {
        1
    }
}

/// More segments than one job reads, and four lanes.
fn settings() -> ElimDaSettings {
    ElimDaSettings {
        initial_segments: 256,
        buckets: 4,
        lanes: 4,
        segment_units: 12,
        bucket_units: 4,
        ..ElimDaSettings::tiny()
    }
}

/// Makes a pool whose process was killed, with pairs in units, in the log, and in records, some of
/// them updated and removed. Returns its words, and the number of pairs.
fn pool(form: Form) -> (Vec<u64>, u64) {
    let image = Image::<Std>::new(0, 16 << 20);
    let session = Session::<ElimDa>::create(image, form, &settings()).unwrap();
    let shape = Shape::tiny(form);
    for key in 0..6000 {
        assert!(session.table().insert(&shape.key(key), &shape.value(key.into())).unwrap());
    }
    for key in (0..6000).step_by(3) {
        assert!(session.table().update(&shape.key(key), &shape.value(7)).unwrap());
    }
    for key in (0..6000).step_by(5) {
        assert!(session.table().remove(&shape.key(key)).unwrap());
    }
    (session.region().media().words(), 4800)
}

/// What can be seen of an opened table.
#[derive(PartialEq, Debug)]
struct Opened {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    own: Vec<(&'static str, u64)>,
    lengths: [u64; 4],
    /// What recovery left on the medium.
    words: Vec<u64>,
    /// Segments when many more pairs were inserted.
    grown: u64,
}

fn segments(own: &[(&str, u64)]) -> u64 {
    own.iter().find(|(name, _)| *name == "segments").unwrap().1
}

fn opened(form: Form, words: &[u64], executor: &dyn Executor) -> Opened {
    let image = Image::<Std>::of(words, words.len() as u64 * 8, 16 << 20);
    let region = Region::new(image);
    let table = open::<ElimDa, Image>(region.clone(), Opening::default().boot, executor).unwrap();
    let words = region.media().words();
    let (mut pairs, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(cursor) = next {
        let visit = &mut |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
        next = table.scan(cursor, visit).unwrap();
    }
    let stats = table.stats().unwrap();
    let (len, items) = (table.len().unwrap(), table.check().unwrap().items);
    let lengths = [len, items, stats.used_bytes, stats.live_bytes];
    let shape = Shape::tiny(form);
    for key in 6000..9000 {
        assert!(table.insert(&shape.key(key), &shape.value(0)).unwrap());
    }
    let grown = segments(&table.stats().unwrap().own);
    Opened { pairs, own: stats.own, lengths, words, grown }
}

#[test]
fn recovery_by_several_threads_gives_the_same_table() {
    // Fails if jobs of recovery share something without a lock, if one relies on another one's
    // being done, or if they count together what each of them should count alone.
    for form in super::FORMS {
        let (words, count) = pool(form);
        let alone = opened(form, &words, &Inline);
        assert_eq!(
            (alone.pairs.len() as u64, alone.lengths[..2].to_vec()),
            (count, vec![count; 2])
        );
        assert!(segments(&alone.own) >= 256 && alone.grown > 256, "there are four jobs at least");
        assert!(opened(form, &words, &Backwards) == alone, "{form}, the last job first");
        for round in 0..3 {
            let together = opened(form, &words, &Threads::new(4));
            assert_eq!(together.lengths, alone.lengths, "{form}, round {round}");
            assert!(together == alone, "{form}, round {round}");
        }
    }
}
