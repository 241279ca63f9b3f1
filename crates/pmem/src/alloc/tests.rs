//! The space against a plain bitmap, under threads, and on a full device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::{Dram, DramOptions, Image, Std};

const FROM: u64 = 192;

fn space(bytes: u64, capacity: u64) -> Space<Image<Std>> {
    Space::fresh(Region::new(Image::new(bytes, capacity)), Addr::new(FROM))
}

fn line(index: u64, lines: u64) -> Span {
    Span::of_bytes(Addr::new(index * LINE), lines * LINE)
}

#[derive(Clone, Debug)]
enum Step {
    Take { bytes: u64, align: u64 },
    Give { which: usize },
    GivePart { which: usize },
    Claim { start: u64, lines: u64 },
    Reserve { bytes: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..700, 0u32..11)
            .prop_map(|(bytes, shift)| Step::Take { bytes, align: 1 << shift }),
        3 => any::<usize>().prop_map(|which| Step::Give { which }),
        1 => any::<usize>().prop_map(|which| Step::GivePart { which }),
        1 => (0u64..200, 1u64..6).prop_map(|(start, lines)| Step::Claim { start, lines }),
        1 => (1u64..2000).prop_map(|bytes| Step::Reserve { bytes }),
    ]
}

/// The judge: a line is in use or not, and was used ever or not.
struct Bitmap {
    used: Vec<bool>,
    ever: Vec<bool>,
    held: Vec<Span>,
}

impl Bitmap {
    fn range(span: Span) -> core::ops::Range<usize> {
        span.start.line() as usize..(span.end_byte() / LINE) as usize
    }

    fn all_free(&self, span: Span) -> bool {
        Self::range(span).all(|line| !self.used[line])
    }

    fn hold(&mut self, span: Span) {
        self.used[Self::range(span)].fill(true);
        self.ever[Self::range(span)].fill(true);
        self.held.push(span);
    }

    fn drop_span(&mut self, span: Span) {
        self.used[Self::range(span)].fill(false);
    }

    /// Whether `lines` free lines lie in one piece within the first `end` lines, aligned.
    fn fits(&self, end: usize, lines: u64, align: u64) -> bool {
        let align = (align / LINE).max(1) as usize;
        (0..end.saturating_sub(lines as usize - 1)).step_by(align).any(|at| {
            at >= (FROM / LINE) as usize && !self.used[at..at + lines as usize].contains(&true)
        })
    }

    fn apply(&mut self, space: &Space<Image<Std>>, capacity: u64, step: &Step) {
        match *step {
            Step::Take { bytes, align } => match space.take(bytes, align) {
                Ok(Allocation { span, zero }) => {
                    assert_eq!(span.bytes(), bytes.next_multiple_of(LINE));
                    assert_eq!(span.start.byte() % align.max(LINE), 0);
                    assert!(self.all_free(span), "handed out twice: {span:?}");
                    let never = Self::range(span).all(|line| !self.ever[line]);
                    assert!(!zero || never, "{span:?} is not known to be zero");
                    self.hold(span);
                }
                Err(error) => {
                    assert!(matches!(error, Error::Full { needed } if needed == bytes), "{error}");
                    let lines = bytes.div_ceil(LINE);
                    assert!(!self.fits((capacity / LINE) as usize, lines, align), "not full");
                }
            },
            Step::Give { which } if !self.held.is_empty() => {
                let span = self.held.swap_remove(which % self.held.len());
                space.give(span);
                self.drop_span(span);
            }
            Step::GivePart { which } if !self.held.is_empty() => {
                let whole = self.held.len();
                let span = &mut self.held[which % whole];
                if span.words > LINE / WORD {
                    let part = Span::new(span.start, LINE / WORD);
                    *span = Span::new(span.start.plus(LINE / WORD), span.words - LINE / WORD);
                    space.give(part);
                    self.drop_span(part);
                }
            }
            Step::Claim { start, lines } => {
                let span = line(start, lines);
                let inside = start * LINE >= FROM
                    && span.end_byte() <= space.region().media().bytes() / LINE * LINE;
                let sound = inside && self.all_free(span);
                assert_eq!(space.claim(span).is_ok(), sound, "{span:?}");
                if sound {
                    self.hold(span);
                }
            }
            Step::Reserve { bytes } => {
                let fits = self.fits((capacity / LINE) as usize, bytes.div_ceil(LINE), LINE);
                assert_eq!(space.reserve_ahead(bytes).is_ok(), fits);
            }
            Step::Give { .. } | Step::GivePart { .. } => {}
        }
        let used = self.used.iter().filter(|used| **used).count() as u64 * LINE;
        let usage = space.usage().unwrap();
        assert_eq!(usage.used_bytes, used);
        let lines = space.region().media().bytes() / LINE;
        assert_eq!(usage.used_bytes + usage.free_bytes, lines * LINE - FROM);
    }
}

proptest! {
    #[test]
    fn a_space_does_what_a_bitmap_does(steps in prop::collection::vec(step(), 1..120)) {
        // Fails if a line is handed out twice, a fit is missed, a claim that clashes is accepted, a
        // used line passes as zero, or a refused take changes anything.
        let capacity = 12_000;
        let space = space(1000, capacity);
        let lines = 256;
        let mut model =
            Bitmap { used: vec![false; lines], ever: vec![false; lines], held: Vec::new() };
        for step in &steps {
            model.apply(&space, capacity / LINE * LINE, step);
        }
    }
}

#[test]
fn a_reopened_space_is_free_but_for_its_claims_and_nothing_is_zero() {
    // Fails if old contents pass as zero, or if what was not claimed leaks.
    let region = Region::new(Image::<Std>::new(1024, 2048));
    let space = Space::new(region, Addr::new(FROM));
    space.claim(line(4, 2)).unwrap();
    assert_eq!(space.usage().unwrap().used_bytes, 128);
    let mut taken = Vec::new();
    for _ in 0..11 {
        let one = space.take(64, 64).unwrap();
        assert!(!one.zero && !one.span.overlaps(line(4, 2)));
        taken.push(one.span);
    }
    assert_eq!(space.usage().unwrap().growth_steps, 0);
    // What the medium grows from now on was never written.
    assert!(space.take(64, 64).unwrap().zero);
    assert_eq!(space.usage().unwrap().growth_steps, 1);
}

#[test]
fn a_line_that_the_end_of_the_medium_cut_is_not_zero_after_growth() {
    // Fails if all of a grown line counts as zero, although its beginning was there before.
    for words in 1..8u64 {
        let bytes = 1024 + words * WORD;
        let old = vec![7; (bytes / WORD) as usize];
        let region = Region::new(Image::<Std>::of(&old, bytes, 2048));
        let space = Space::new(region.clone(), Addr::new(FROM));
        space.claim(Span::of_bytes(Addr::new(FROM), 1024 - FROM)).unwrap();
        let cut = space.take(LINE, LINE).unwrap();
        assert_eq!((cut.span, cut.zero), (line(16, 1), false), "{words} words");
        assert_eq!(region.access().load(cut.span.start).unwrap(), 7);
        assert!(space.take(LINE, LINE).unwrap().zero);
    }
}

#[test]
fn holes_are_free_room_and_never_cover_what_is_in_use() {
    // Fails if a line in use becomes a hole, if a hole is no room, or if a line is counted twice.
    let space = space(64 * LINE, 64 * LINE);
    let all = space.usage().unwrap().free_bytes;
    // A page of the device has four lines, and all of it goes or none.
    let take = |lines| space.take(lines * LINE, 4 * LINE).unwrap().span;
    let [first, second, third] = [12; 3].map(take);
    space.give(second);
    let released = |least, most| {
        let bytes = space.release(least * LINE, most * LINE).unwrap();
        (bytes / LINE, space.usage().unwrap().hole_bytes / LINE)
    };
    // The longest run is at the end, and the one between the others is too short.
    assert_eq!([released(13, 64), released(13, 64)], [(24, 24), (0, 24)]);
    let parts = [released(1, 7), released(1, 1), released(1, 64), released(1, 64)];
    assert_eq!(parts, [(4, 28), (4, 32), (4, 36), (0, 36)]);
    // Of a run with a hole in its middle, both sides are left.
    let again = space.take(6 * LINE, LINE).unwrap().span;
    assert!(again.overlaps(second) && space.usage().unwrap().hole_bytes == 30 * LINE);
    space.give(again);
    assert_eq!(space.usage().unwrap().free_bytes, all - 24 * LINE);
    assert_eq!([released(1, 64), released(1, 64)], [(4, 34), (0, 34)]);
    assert!(space.has_room(0, all - 24 * LINE, |bytes| bytes).unwrap());
    assert_eq!(space.usage().unwrap().hole_bytes, 0);
    space.give(first);
    space.give(third);
    assert_eq!(space.usage().unwrap().free_bytes, all);
}

#[test]
fn what_only_touches_a_run_does_not_overlap_it() {
    // Fails if a hole beside what is to be used counts as one in it.
    let mut holes = FreeMap::default();
    holes.insert(4, 4);
    let overlaps = |(start, lines)| holes.overlaps(start, lines);
    assert_eq!([(0, 4), (8, 1), (8, 100)].map(overlaps), [false; 3]);
    assert_eq!([(0, 5), (3, 2), (4, 1), (5, 2), (7, 1), (7, 100)].map(overlaps), [true; 6]);
}

#[test]
fn room_that_is_asked_for_takes_back_as_much_storage_as_it_needs() {
    // Fails if a question for a byte takes all storage back that was given to the device, or if one
    // for more finds less room than there is.
    const MIB: u64 = 1 << 20;
    let space = space(16 * MIB, 16 * MIB);
    let used: Vec<_> = (0..15).map(|_| space.take(MIB, 4 * LINE).unwrap().span).collect();
    used.iter().step_by(2).for_each(|span| space.give(*span));
    let room = |run, wanted| space.has_room(run, wanted, |bytes| bytes).unwrap();
    let holes = || space.usage().unwrap().hole_bytes;
    while space.release(LINE, MIB).unwrap() > 0 {}
    let all = holes();
    // The lines before the first page of the device stay.
    assert!(space.usage().unwrap().free_bytes - all < 4 * LINE);
    assert!(room(0, 1) && holes() >= all - MIB / 2, "{}", holes());
    // There is storage for it by now.
    let left = holes();
    assert!(room(0, 1) && holes() == left);
    assert!(room(MIB, MIB) && holes() >= all - 5 * MIB, "{}", holes());
    assert!(room(0, all) && holes() == 0);
    assert!(!room(4 * LINE, all) && !room(3 * MIB, 0));
}

#[test]
fn a_claim_that_no_space_could_have_handed_out_is_damage() {
    // Fails if a hostile pointer is claimed, or panics.
    let space = space(1024, 1024);
    space.claim(line(5, 2)).unwrap();
    let bad = [
        Span::new(Addr::new(8), 8),
        Span::new(Addr::new(256), 7),
        Span::new(Addr::new(256), 0),
        Span::new(Addr::new(256), u64::MAX),
        Span::new(Addr::new(256), u64::MAX / 64 * 8),
        Span::new(Addr::new(u64::MAX / LINE * LINE), 8),
        line(2, 1),
        line(15, 2),
        line(6, 1),
        line(4, 2),
        line(4, 5),
    ];
    for span in bad {
        let at = span.start.byte();
        let found = space.claim(span);
        assert!(
            matches!(found, Err(Error::Corrupt { at: a, .. }) if a == at),
            "{span:?}: {found:?}"
        );
    }
    assert_eq!(space.usage().unwrap().used_bytes, 128);
}

#[test]
fn the_medium_grows_by_a_quarter_and_by_less_when_the_device_fills() {
    // Fails if every take grows the medium, or if the last free byte cannot be had.
    let space = space(4096, 8192);
    let mut spans = Vec::new();
    while let Ok(taken) = space.take(64, 64) {
        spans.push(taken.span);
    }
    assert_eq!(spans.len() as u64, (8192 - FROM) / LINE);
    let before = space.usage().unwrap();
    assert!(before.growth_steps <= 5, "{before:?}");
    assert!(matches!(space.take(4000, 64), Err(Error::Full { needed: 4000 })));
    assert!(matches!(space.take(u64::MAX, 1 << 63), Err(Error::Full { needed: u64::MAX })));
    assert!(matches!(space.reserve_ahead(65), Err(Error::Full { needed: 65 })));
    assert_eq!(space.usage().unwrap(), before);
    space.give(spans[7]);
    assert_eq!(space.take(1, 1).unwrap(), Allocation { span: spans[7], zero: false });
}

#[test]
fn space_ahead_is_one_piece_and_is_grown_once() {
    // Fails if two short runs pass for a long one, or if reserving again grows again.
    let space = space(1024, 1 << 20);
    let taken = space.take(512, 64).unwrap();
    space.reserve_ahead(4096).unwrap();
    let usage = space.usage().unwrap();
    space.reserve_ahead(4096).unwrap();
    assert_eq!(space.usage().unwrap(), usage);
    space.take(4096, 64).unwrap();
    assert_eq!(space.usage().unwrap().growth_steps, usage.growth_steps);
    space.give(taken.span);
}

#[test]
fn room_is_what_can_be_taken_together() {
    // Fails if a hole is counted twice, if the medium grows although there are holes, or if it does
    // not grow by what holes lack.
    let space = space(FROM + 20 * LINE, FROM + 30 * LINE);
    let spans: Vec<_> = (0..20).map(|_| space.take(LINE, LINE).unwrap().span).collect();
    // Three holes: of three lines, two, and one.
    [0, 1, 2, 5, 6, 9].into_iter().for_each(|index| space.give(spans[index]));
    let has_room = |run, lines, count| {
        let holds = |bytes: u64| bytes / (lines * LINE) * lines * LINE;
        space.has_room(run * LINE, count * lines * LINE, holds).unwrap()
    };
    assert!(has_room(3, 2, 1) && has_room(0, 1, 6) && has_room(0, 2, 2) && has_room(0, 1, 0));
    assert_eq!(space.usage().unwrap().growth_steps, 0);
    assert_eq!(space.longest_free_bytes().unwrap(), 3 * LINE);
    assert!(has_room(0, 2, 3));
    assert_eq!(space.usage().unwrap().growth_steps, 1);
    assert!(has_room(10, 1, 6) && has_room(10, 2, 2), "what is missing is added");
    assert!(!has_room(10, 1, 7) && !has_room(11, 1, 0) && !has_room(10, 2, 3));
    space.take(10 * LINE, LINE).unwrap();
    assert!(has_room(3, 1, 3) && !has_room(4, 1, 0));
}

#[test]
#[should_panic(expected = "a span is given once")]
fn a_span_given_twice_is_a_bug_of_ours() {
    // Fails if a double give is taken for a free of something else.
    let space = space(4096, 4096);
    let taken = space.take(128, 64).unwrap();
    space.give(taken.span);
    space.give(taken.span);
}

#[test]
fn what_lies_outside_is_never_free() {
    // Fails if a wrong give adds lines that the space does not have: the next owner would overwrite
    // the pool's own words, or get an error of the medium.
    let space = space(1024, 1024);
    let taken = space.take(1024 - FROM, 64).unwrap();
    for outside in [line(0, 3), line(2, 1), line(16, 1), Span::new(line(5, 1).start, 0)] {
        let give = std::panic::AssertUnwindSafe(|| space.give(outside));
        assert!(std::panic::catch_unwind(give).is_err(), "{outside:?}");
    }
    assert_eq!(space.usage().unwrap().free_bytes, 0);
    space.give(taken.span);
}

#[test]
fn the_first_of_several_lengths_that_fits_is_taken() {
    // Fails if a shorter one is taken although the first fits, if the medium grows while one does,
    // or by another step than it was told, or if a medium that refuses is not asked.
    let space = space(FROM + 10 * LINE, 1 << 16);
    let first = |lengths: &[u64]| {
        let lengths: Vec<_> = lengths.iter().map(|lines| lines * LINE).collect();
        space.take_first(&lengths, LINE, 40 * LINE).map(|taken| taken.span.bytes() / LINE)
    };
    assert_eq!(first(&[6, 3]).unwrap(), 6);
    assert_eq!(first(&[6, 3]).unwrap(), 3);
    assert_eq!(space.usage().unwrap().growth_steps, 0);
    assert_eq!(first(&[6, 3]).unwrap(), 6);
    let media = space.region().media();
    assert_eq!(media.bytes(), FROM + (10 + 40) * LINE);
    media.refusals().takes.plan(0, 1);
    assert!(matches!(first(&[6, 3]), Err(Error::Full { needed }) if needed == 6 * LINE));
    assert_eq!(first(&[6, 3]).unwrap(), 6);
}

#[test]
fn a_bug_of_one_caller_does_not_poison_the_space() {
    // Fails if the assertion is raised while the lock is held.
    let space = Arc::new(space(4096, 4096));
    let shared = Arc::clone(&space);
    assert!(std::thread::spawn(move || shared.give(line(10, 1))).join().is_err());
    assert!(space.take(64, 64).is_ok());
}

#[test]
fn threads_never_share_a_line() {
    // Fails if two threads are handed the same line: each writes its name and reads it back.
    let space = Arc::new(space(4096, 1 << 20));
    let workers: Vec<_> = (1..=4u64)
        .map(|name| {
            let space = Arc::clone(&space);
            std::thread::spawn(move || {
                let pm = space.region().access();
                let mut held: Vec<Span> = Vec::new();
                for round in 0..20_000u64 {
                    let dice = round.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ name) >> 33;
                    if held.len() < 40 && dice % 8 < 5 {
                        let span = space.take(1 + dice % 500, 64).unwrap().span;
                        for word in 0..span.words {
                            pm.store(span.start.plus(word), name).unwrap();
                        }
                        held.push(span);
                    } else if !held.is_empty() {
                        let span = held.swap_remove(dice as usize % held.len());
                        for word in 0..span.words {
                            assert_eq!(pm.load(span.start.plus(word)).unwrap(), name);
                        }
                        space.give(span);
                    }
                }
                held.into_iter().for_each(|span| space.give(span));
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(space.usage().unwrap().used_bytes, 0);
}

#[test]
fn a_million_takes_are_fast() {
    // Fails if a take walks the free runs: with 100,000 holes that would take minutes.
    let space = space(4096, 256 << 20);
    let count = 1_000_000u32;
    let start = Instant::now();
    let mut spans: Vec<_> = (0..count).map(|_| space.take(64, 64).unwrap().span).collect();
    let taken = start.elapsed();
    println!("1 M takes of a line: {:?} each", taken / count);
    // Holes of one and of two lines, so that the fit has something to choose.
    let holes: Vec<_> = spans.iter().copied().filter(|span| span.start.line() % 5 < 2).collect();
    spans.retain(|span| span.start.line() % 5 >= 2);
    holes.iter().for_each(|span| space.give(*span));
    let start = Instant::now();
    for _ in 0..100_000 {
        space.take(128, 64).unwrap();
        space.take(128, 128).unwrap();
    }
    println!("200 k takes among 200 k holes: {:?} each", start.elapsed() / 200_000);
    assert!(start.elapsed().as_secs() < 30);
}

#[test]
fn what_threads_hold_is_never_given_back_to_the_device() {
    // Fails if the storage behind a run is given back while another thread takes it: what that
    // thread stored would be zero.
    let options = DramOptions { capacity_bytes: 1 << 20, ..DramOptions::default() };
    let region = Region::new(Dram::with_options(1 << 20, options).unwrap());
    let space = Arc::new(Space::fresh(region, Addr::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let workers = (1..=3u64).map(|name| {
        let (space, is_over) = (Arc::clone(&space), Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !is_over.load(Relaxed) {
                let span = space.take(8 << 10, 4 << 10).unwrap().span;
                let pm = space.region().access();
                (0..span.words).for_each(|word| pm.store(span.start.plus(word), name).unwrap());
                let mut words = vec![0; span.words as usize];
                pm.read_words(span.start, &mut words).unwrap();
                assert!(words.iter().all(|word| *word == name));
                space.give(span);
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let (mut released, begun) = (0, Instant::now());
    while released < 8 << 20 && begun.elapsed().as_secs() < 20 {
        released += space.release(4 << 10, 16 << 10).unwrap();
    }
    is_over.store(true, Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    // On a machine that is busy with other things it may be less than was asked for.
    assert!(released > 0, "{released}");
}

#[test]
fn a_large_medium_grows_by_a_limited_step() {
    // Fails if a file of a tebibyte took a quarter of that for one more line.
    let options = DramOptions { capacity_bytes: 4 << 30, ..DramOptions::default() };
    let region = Region::new(Dram::with_options(2 << 30, options).unwrap());
    let space = Space::new(region.clone(), Addr::NULL);
    space.claim(Span::of_bytes(Addr::NULL, 2 << 30)).unwrap();
    space.take(LINE, LINE).unwrap();
    assert_eq!(region.media().bytes(), (2 << 30) + LARGEST_STEP_BYTES);
}

#[test]
fn the_last_run_that_fits_is_found_before_the_medium_grows() {
    // Fails if only the first of many runs of about the right length are looked at.
    let space = space(128 * LINE, 256 * LINE);
    let lines: Vec<Span> = (3..128).map(|_| space.take(LINE, LINE).unwrap().span).collect();
    let give = |number: usize| space.give(lines[number - 3]);
    // Twenty runs of two lines, of which none begins at a multiple of four, and then one that does.
    (1..=20).for_each(|run| [1, 2].into_iter().for_each(|place| give(4 * run + place)));
    [100, 101].into_iter().for_each(give);
    assert_eq!(space.take(2 * LINE, 4 * LINE).unwrap().span, line(100, 2));
    assert_eq!(space.usage().unwrap().growth_steps, 0);
}

#[test]
fn what_is_given_is_said_to_be_free_and_nothing_else() {
    // Fails if the crash judges do not learn that a span, a record or a page may have another owner
    // from now on: a link to it that a crash brings back would lead to sound words.
    use crate::crash::{FREED, Model};
    use crate::media::traced::Traced;
    use crate::{Class, Heap};
    let region = Region::new(Traced::<Std>::new(Model::Adr, 1 << 14, 1 << 14));
    let space = Arc::new(Space::fresh(region.clone(), Addr::new(FROM)));
    let words = |at: Addr, count| {
        let mut words = vec![0; count];
        region.access().read_words(at, &mut words).unwrap();
        words
    };
    let (span, other) = (space.take(128, 64).unwrap().span, space.take(64, 64).unwrap().span);
    region.access().write_words(span.start, &[5; 24]).unwrap();
    space.give(span);
    assert_eq!(words(span.start, 16), [FREED; 16]);
    assert_eq!(words(other.start, 8), [5; 8]);
    let heap = Heap::new(Arc::clone(&space), 1024);
    let class = Class::of(24).unwrap();
    let records = [0, 1, 2].map(|_| heap.take(class).unwrap());
    region.access().write_words(records[0], &[6; 9]).unwrap();
    heap.give(records[1], class);
    assert_eq!(words(records[0], 9), [6, 6, 6, FREED, FREED, FREED, 6, 6, 6]);
    heap.give(records[0], class);
    heap.give(records[2], class);
    assert_eq!(words(records[0], 128), [FREED; 128]);
}

#[test]
fn the_shortest_run_that_fits_is_taken() {
    // Fails if a long run is cut while a shorter one fits: what needs a long one then makes the
    // medium grow.
    let space = space(64 * LINE, 64 * LINE);
    let take = |lines: u64| space.take(lines * LINE, LINE).unwrap().span;
    let spans = [20, 1, 3, 1, 9, 1, 5, 1].map(take);
    spans.into_iter().step_by(2).for_each(|span| space.give(span));
    let fitting = [(3, 2), (4, 6), (8, 4), (2, 0)];
    for (lines, which) in fitting {
        assert_eq!(take(lines).start, spans[which].start, "{lines} lines");
    }
}
