//! The explorer on larger runs: counts, tiers, lazy search, names, mutants, nested crashes.

use core::ops::ControlFlow;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{at_end, states_here};
use everhash_pmem::crash::{
    Event, Explorer, FREED, How, Limits, Log, Memory, Model, Name, Random, Seen, State, What, debts,
};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::pool::{Boot, Identity, Pool};
use everhash_pmem::{
    Access, Addr, Block, Holes, LINE, Media, Region, Result, Simulation, Site, Span,
};

const BYTES: u64 = 4096;
const PAIR: Site = Site::new("test/pair");
const TOKEN: Site = Site::new("test/token");

type Medium = Traced<everhash_pmem::Std>;

fn region(model: Model) -> Region<Medium> {
    Region::new(Traced::new(model, BYTES, 2 * BYTES))
}

/// A table of eight slots: a slot is a line with a key, a value and a token, written in one line
/// in this order, or with the token before the value.
struct Slots {
    token_first: bool,
}

impl Slots {
    fn put(&self, pm: &Access<'_, Medium>, slot: u64, value: u64) -> Result<()> {
        let at = Addr::new(slot * LINE);
        pm.store(at, value)?;
        if self.token_first {
            pm.commit_word(at.plus(2), value, TOKEN)?;
            pm.store(at.plus(1), value)?;
        } else {
            pm.store(at.plus(1), value)?;
            pm.commit_word(at.plus(2), value, TOKEN)?;
        }
        pm.persist(Span::new(at, 3), PAIR)
    }

    fn run(&self, region: &Region<Medium>, seed: u64, operations: u32) -> Result<()> {
        let mut random = Random::new(seed);
        for operation in 0..operations {
            region.media().begin(operation);
            self.put(&region.access(), random.below(8), 1 + random.below(100))?;
            region.media().returned(operation);
        }
        Ok(())
    }

    /// A token that is set says that the other two words are there.
    fn is_sound(words: &[u64]) -> bool {
        (0..8).all(|slot| {
            let slot = &words[slot * 8..slot * 8 + 3];
            slot[2] == 0 || (slot[0] != 0 && slot[1] != 0)
        })
    }
}

fn explore(
    model: Model,
    log: &Log,
    limits: &Limits,
    mut judge: impl FnMut(&State<'_>) -> ControlFlow<()>,
) -> (Seen, bool) {
    let mut explorer = Explorer::new(Memory::zero(model, BYTES), log.events());
    let mut seen = Seen::default();
    while explorer.next_point().is_some() {
        if explorer.states(limits, &mut seen, 0, &mut judge).is_break() {
            return (seen, true);
        }
    }
    (seen, false)
}

fn is_caught(slots: &Slots, model: Model, limits: &Limits) -> bool {
    let region = region(model);
    slots.run(&region, 7, 40).unwrap();
    let log = region.media().take_log();
    let sound = |state: &State<'_>| match Slots::is_sound(state.words()) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    explore(model, &log, limits, sound).1
}

#[test]
fn a_token_before_its_value_needs_prefixes_to_be_caught() {
    // Fails if the explorer loses the order inside a line, or if a weaker explorer suddenly sees
    // what it cannot see by its rules: then the rules have changed their meaning.
    let bug = Slots { token_first: true };
    let whole_lines = Limits { whole_places: true, ..Limits::default() };
    assert!(is_caught(&bug, Model::Adr, &Limits::default()));
    assert!(!is_caught(&bug, Model::Adr, &Limits::NONE_AND_ALL));
    assert!(!is_caught(&bug, Model::Adr, &whole_lines));
    assert!(is_caught(&bug, Model::Eadr, &Limits::NONE_AND_ALL), "every store is a point");
}

#[test]
fn the_right_order_is_right_where_lines_keep_it_and_nowhere_else() {
    // Fails by a false alarm, or if files were granted the order of cache lines.
    let right = Slots { token_first: false };
    assert!(!is_caught(&right, Model::Adr, &Limits::default()));
    assert!(!is_caught(&right, Model::Eadr, &Limits::default()));
    assert!(is_caught(&right, Model::File, &Limits::default()));
    assert!(!is_caught(&right, Model::Arm, &Limits::default()), "its token is a release store");
}

#[test]
fn equal_seeds_give_equal_logs_and_counts() {
    // Fails if a hash map, an address or a thread's real number leaks into the log or the walk.
    let run = |seed| {
        let region = region(Model::File);
        Slots { token_first: false }.run(&region, seed, 60).unwrap();
        let log = region.media().take_log();
        let limits = Limits { product: 3, pairs: 5, random: 7, ..Limits::default() };
        let mut names = Vec::new();
        let (seen, _) = explore(Model::File, &log, &limits, |state| {
            names.push(state.name());
            ControlFlow::Continue(())
        });
        (log.digest(), seen.count(), names)
    };
    let here = run(3);
    let there = std::thread::spawn(move || run(3)).join().unwrap();
    assert_eq!(here, there);
    assert_ne!(here.0, run(4).0);
    // A constant, so that another machine or profile that differs is noticed.
    assert_eq!((here.0, here.1), (DIGEST, STATES));
}

const DIGEST: u64 = 12_003_951_070_514_058_654;
const STATES: u64 = 474;

#[test]
fn points_without_anything_new_are_passed_over() {
    // Fails if a fence after nothing costs states, or if a return is no point.
    let region = region(Model::Adr);
    let pm = region.access();
    pm.store(Addr::new(64), 1).unwrap();
    pm.fence(PAIR).unwrap();
    pm.fence(PAIR).unwrap();
    region.media().begin(5);
    pm.fence(PAIR).unwrap();
    region.media().returned(5);
    let log = region.media().take_log();
    let mut explorer = Explorer::new(Memory::zero(Model::Adr, BYTES), log.events());
    let first = explorer.next_point().unwrap().clone();
    assert_eq!((first.event, first.site, first.returned), (1, Some(PAIR), 0));
    let second = explorer.next_point().unwrap().clone();
    assert_eq!((second.event, second.site, second.returned), (6, None, 1));
    assert_eq!((first.in_flight, second.in_flight), (vec![], vec![]));
    assert_eq!(explorer.next_point(), None);
    assert_eq!(explorer.count().points, 2);
}

#[test]
fn a_crash_may_come_just_before_whatever_takes_states_away() {
    // Fails if the explorer passes over the last moment at which a store may be lost or kept.
    const HERE: Span = Span::new(Addr::new(128), 8);
    let steps: [fn(&Region<Medium>); 7] = [
        |region| region.access().fence(PAIR).unwrap(),
        |region| region.access().sync(PAIR).unwrap(),
        |region| region.media().grow(2 * BYTES).unwrap(),
        |region| region.media().release(HERE),
        |region| region.media().freed(HERE),
        |region| region.access().mark(PAIR),
        |region| region.media().exit(),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let region = region(Model::Adr);
        region.access().store(Addr::new(128), 1).unwrap();
        step(&region);
        let log = region.media().take_log();
        assert_eq!(log.events().len(), 2, "step {number}");
        let mut explorer = Explorer::new(Memory::zero(Model::Adr, BYTES), log.events());
        let point = explorer.next_point().map(|point| (point.event, point.site));
        let site = [0, 1, 5].contains(&number).then_some(PAIR);
        assert_eq!(point, Some((1, site)), "step {number}");
        assert_eq!(states_here(&mut explorer).len(), 2, "step {number}");
    }
}

#[test]
fn the_end_of_a_process_is_a_point_though_nothing_is_new() {
    // Fails if a pool that was closed, and whose process then ended, is not judged as closed.
    let region = region(Model::Adr);
    let pm = region.access();
    pm.store(Addr::new(64), 1).unwrap();
    pm.persist(Span::new(Addr::new(64), 1), PAIR).unwrap();
    region.media().exit();
    let log = region.media().take_log();
    let mut explorer = Explorer::new(Memory::zero(Model::Adr, BYTES), log.events());
    let points = core::iter::from_fn(|| explorer.next_point().map(|point| point.event));
    assert_eq!(points.collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn every_second_span_that_is_released_or_renewed_is_zero() {
    // Fails if an engine would meet only one of what a release, or a preparation, may leave.
    let region = region(Model::Adr);
    let span = |line: u64| Span::new(Addr::new(line * LINE), 8);
    let left = |line: u64, act: &dyn Fn(&Medium)| {
        region.access().store(Addr::new(line * LINE), 5).unwrap();
        act(region.media());
        region.access().load(Addr::new(line * LINE)).unwrap()
    };
    let released = [1, 2, 3].map(|line| left(line, &|medium| medium.release(span(line))));
    let renewed = [4, 5, 6].map(|line| left(line, &|medium| medium.renew(span(line))));
    assert_eq!((released, renewed), ([0, 5, 0], [5, 0, 5]));
}

#[test]
fn a_line_of_a_killed_process_can_be_lost_up_to_the_store_that_evicts_it() {
    // Fails if the explorer passes over the moment before: the next process has stored, and the
    // line is as the killed one found it.
    let region = region(Model::Adr);
    region.access().store(Addr::new(64), 1).unwrap();
    let log = region.media().take_log();
    let zero = Memory::zero(Model::Adr, BYTES);
    let memory = at_end(zero, &log).memory().after_process_crash();
    region.media().restart(memory.visible());
    let pm = region.access();
    pm.store(Addr::new(128), 2).unwrap();
    pm.write_words_nt(Addr::new(72), &[3], PAIR).unwrap();
    let log = region.media().take_log();
    let mut explorer = Explorer::new(memory, log.events());
    let mut states = BTreeSet::new();
    while explorer.next_point().is_some() {
        let here = states_here(&mut explorer);
        states.extend(here.iter().map(|words| [words[8], words[9], words[16]]));
    }
    let expected = [[0, 0, 0], [0, 0, 2], [1, 0, 0], [1, 0, 2], [1, 3, 0], [1, 3, 2]];
    assert_eq!(states, BTreeSet::from(expected));
}

#[test]
fn a_store_past_the_caches_that_no_fence_completes_is_no_fault_of_the_next_one() {
    // Fails if a mutant counts as noticed because the explorer stops at a later store to its line.
    let region = region(Model::Adr);
    let change = Change::UnfencedStore;
    region.media().set_mutant(Some(Mutant { site: PAIR, change }));
    let pm = region.access();
    pm.write_words_nt(Addr::new(64), &[1], PAIR).unwrap();
    pm.fence(PAIR).unwrap();
    let log = region.media().take_log();
    let mut explorer = at_end(Memory::zero(Model::Adr, BYTES), &log);
    assert_eq!(states_here(&mut explorer).len(), 2, "the fence completes it not");
    pm.store(Addr::new(72), 2).unwrap();
    let memory = explorer.memory().clone();
    let log = region.media().take_log();
    assert_eq!(states_here(&mut at_end(memory, &log)).len(), 2, "it is there, and the next one");
}

#[test]
fn a_content_counts_once_for_each_number_of_returned_operations() {
    // Fails if attempts are counted, or if a state that was right before an operation returned
    // passes for right after it.
    let region = region(Model::Adr);
    let pm = region.access();
    for operation in 0..3 {
        region.media().begin(operation);
        pm.store(Addr::new(64), 9).unwrap();
        region.media().returned(operation);
    }
    let log = region.media().take_log();
    let (seen, _) = explore(Model::Adr, &log, &Limits::default(), |_| ControlFlow::Continue(()));
    assert_eq!(seen.count(), 6, "two contents, after 1, 2 and 3 operations");
}

/// Stores to many lines without a fence, so that a point has far too many states.
fn scattered(model: Model, lines: u64) -> Log {
    let region = region(model);
    let pm = region.access();
    for line in 0..lines {
        pm.store(Addr::new(line * LINE), 1 + line).unwrap();
        pm.store(Addr::new(line * LINE + 8), 100 + line).unwrap();
    }
    region.media().take_log()
}

#[test]
fn tiers_stay_inside_the_product() {
    // Fails if a tier makes an image that the rules forbid, or makes none.
    for model in [Model::Adr, Model::File] {
        let log = scattered(model, 4);
        let all = states_here(&mut at_end(Memory::zero(model, BYTES), &log));
        assert_eq!(all.len(), if model == Model::Adr { 81 } else { 256 });
        for (product, pairs, single) in [(80, 1000, 1000), (80, 5, 1000), (0, 0, 3), (0, 0, 0)] {
            let limits = Limits { product, pairs, single, random: 30, ..Limits::default() };
            let mut explorer = at_end(Memory::zero(model, BYTES), &log);
            let mut some = BTreeSet::new();
            let _ = explorer.states(&limits, &mut Seen::default(), 0, &mut |state| {
                assert!(all.contains(state.words()) && !state.is_lazy());
                assert!(some.insert(state.words().to_vec()));
                ControlFlow::Continue(())
            });
            assert!(some.len() >= 20 && some.len() < all.len(), "{} states", some.len());
            assert_eq!(explorer.memory().durable(), vec![0; 512], "the image is unpatched");
            assert_eq!((explorer.count().complete, explorer.count().sampled), (0, 1));
        }
    }
}

#[test]
fn a_state_counts_once_for_each_length() {
    // Fails if what was right before a growth passes for right after it.
    let region = region(Model::Adr);
    region.access().store(Addr::new(64), 1).unwrap();
    region.media().grow(2 * BYTES).unwrap();
    let log = region.media().take_log();
    let (seen, _) = explore(Model::Adr, &log, &Limits::default(), |_| ControlFlow::Continue(()));
    assert_eq!(seen.count(), 4);
}

#[test]
fn a_point_with_more_choices_is_searched_as_well() {
    // Fails if a point counts as judged because the durable words are those of an earlier one.
    let region = region(Model::Adr);
    for line in 0..3 {
        region.access().store(Addr::new(line * LINE), 1).unwrap();
        region.access().mark(PAIR);
    }
    let log = region.media().take_log();
    let limits = Limits { product: 0, ..Limits::default() };
    let (seen, _) = explore(Model::Adr, &log, &limits, |_| ControlFlow::Continue(()));
    // A random state may be found as well: the three lines have eight in all.
    assert!(seen.count() >= 7, "none, each one, and each pair: {}", seen.count());
}

#[test]
fn all_stores_may_leave_what_was_there_before() {
    // Fails if the image that keeps every store is another one where a word has its old value.
    let region = region(Model::Adr);
    for (at, value) in [(0, 1), (0, 0), (64, 5)] {
        region.access().store(Addr::new(at), value).unwrap();
    }
    let log = region.media().take_log();
    let limits = Limits { whole_places: false, ..Limits::NONE_AND_ALL };
    let mut states = BTreeSet::new();
    explore(Model::Adr, &log, &limits, |state| {
        states.insert((state.words()[0], state.words()[8]));
        ControlFlow::Continue(())
    });
    assert_eq!(states, BTreeSet::from([(0, 0), (0, 5)]));
}

#[test]
fn a_lazy_search_ends_when_its_judge_says_so_and_sorts_its_names() {
    // Fails if a campaign goes on behind its first finding, or if the name of that depends on the
    // order in which its judge looks at words.
    let log = scattered(Model::Adr, 60);
    let region = region(Model::Adr);
    let limits = Limits { product: 1, lazy: 1000, ..Limits::default() };
    let mut explorer = at_end(Memory::zero(Model::Adr, BYTES), &log);
    let (mut runs, mut found) = (0, None);
    let flow = explorer.states(&limits, &mut Seen::default(), 0, &mut |state| {
        let load = |at| region.access().load(Addr::new(at)).unwrap();
        let words = state.on(region.media(), || [128, 64, 0].map(load));
        runs += 1;
        if words.contains(&0) {
            return ControlFlow::Continue(());
        }
        found = Some((runs, state.name().to_string()));
        ControlFlow::Break(())
    });
    assert!(flow.is_break());
    assert_eq!(found, Some((runs, "120:l0.1,l1.1,l2.1".to_string())));
}

#[test]
fn what_a_judge_overwrites_needs_no_choice_and_stays() {
    // Fails if the content that a crash left comes back over what recovery has stored, released or
    // freed.
    let log = scattered(Model::File, 60);
    let region = region(Model::File);
    let limits = Limits { product: 1, lazy: 1000, ..Limits::default() };
    let mut explorer = at_end(Memory::zero(Model::File, BYTES), &log);
    let mut runs = 0;
    let flow = explorer.states(&limits, &mut Seen::default(), 0, &mut |state| {
        let words = state.on(region.media(), || {
            let pm = region.access();
            pm.store(Addr::new(0), 77).unwrap();
            region.media().freed(Span::new(Addr::new(64), 8));
            region.media().release(Span::new(Addr::new(128), 8));
            [0, 64, 72, 128, 136].map(|at| pm.load(Addr::new(at)).unwrap())
        });
        assert_eq!(words, [77, FREED, FREED, 0, 0]);
        runs += 1;
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    assert!(runs <= 2, "{runs}");
}

#[test]
fn another_seed_tries_other_states() {
    // Fails if a second campaign judges the random states of the first once more.
    let log = scattered(Model::Adr, 60);
    let tried = |seed| {
        let limits = Limits { single: 0, pairs: 0, random: 5, seed, ..Limits::default() };
        let mut tried = BTreeSet::new();
        explore(Model::Adr, &log, &limits, |state| {
            tried.insert(state.words().to_vec());
            ControlFlow::Continue(())
        });
        tried
    };
    assert_eq!(tried(1).len(), 2 + 5);
    assert_eq!(tried(1).intersection(&tried(2)).count(), 2, "none and all");
}

#[test]
fn a_line_with_very_many_stores_has_a_bounded_number_of_contents_on_arm() {
    // Fails if a crash point takes all memory, or panics: sixteen unordered stores to eight words
    // have 3^8 contents, and more than 64 stores have no set of their own in a word of bits.
    for (stores, most) in [(16, 513), (64, 513), (65, 66), (100, 101)] {
        let region = region(Model::Arm);
        for store in 0..stores {
            region.access().store(Addr::new(store % 8 * 8), 1 + store).unwrap();
        }
        let log = region.media().take_log();
        let mut end = at_end(Memory::zero(Model::Arm, BYTES), &log);
        let all = end.memory().visible().to_vec();
        let states = states_here(&mut end);
        assert!((stores as usize..=most).contains(&states.len()), "{stores}: {}", states.len());
        assert!(states.contains(&vec![0; 512]) && states.contains(&all), "{stores}");
    }
}

#[test]
fn every_place_and_every_sector_deviates_from_none_and_from_all() {
    // Fails if tier 1 leaves one out: of a file, each word or sector alone, and all but that.
    let (lines, sector_lines) = (60, 8);
    let log = scattered(Model::File, lines);
    let limits = Limits { product: 0, single: u64::MAX, pairs: 0, random: 0, ..Limits::default() };
    let mut found = BTreeSet::new();
    explore(Model::File, &log, &limits, |state| {
        found.insert(state.words().to_vec());
        ControlFlow::Continue(())
    });
    let at_end = at_end(Memory::zero(Model::File, BYTES), &log);
    let all = at_end.memory().visible();
    let image = |is_kept: &dyn Fn(usize) -> bool| {
        let word = |word: usize| if is_kept(word) { all[word] } else { 0 };
        (0..all.len()).map(word).collect::<Vec<_>>()
    };
    let mut expected = BTreeSet::from([image(&|_| false), image(&|_| true)]);
    let sectors = (0..lines.div_ceil(sector_lines)).map(|it| it * 64..(it + 1) * 64);
    let words = (0..lines).flat_map(|it| [it * 8..it * 8 + 1, it * 8 + 1..it * 8 + 2]);
    for place in sectors.chain(words) {
        let is_in = |word: usize| place.contains(&(word as u64));
        expected.extend([image(&is_in), image(&|word| !is_in(word))]);
    }
    assert_eq!((found.len(), expected.len()), (2 + 2 * (8 + 120), 2 + 2 * (8 + 120)));
    assert_eq!(found, expected);
}

#[test]
fn a_state_counts_once_for_each_context() {
    // Fails if what was judged after one history passes as judged after another.
    let log = scattered(Model::Adr, 2);
    let mut seen = Seen::default();
    for (salt, count) in [(0, 9), (0, 9), (7, 18), (8, 27), (7, 27)] {
        let mut explorer = at_end(Memory::zero(Model::Adr, BYTES), &log);
        let go_on = &mut |_: &State<'_>| ControlFlow::Continue(());
        assert!(explorer.states(&Limits::default(), &mut seen, salt, go_on).is_continue());
        assert_eq!(seen.count(), count, "salt {salt}");
    }
}

#[test]
fn every_pair_of_lines_is_tried() {
    // Fails if tier 2 leaves a pair out: 60 lines, of which a crash keeps exactly two.
    let log = scattered(Model::Adr, 60);
    let limits = Limits { pairs: u64::MAX, random: 0, ..Limits::default() };
    let mut pairs = BTreeSet::new();
    explore(Model::Adr, &log, &limits, |state| {
        let kept: Vec<usize> = (0..60).filter(|line| state.words()[line * 8 + 1] != 0).collect();
        pairs.extend(<[usize; 2]>::try_from(kept));
        ControlFlow::Continue(())
    });
    assert_eq!(pairs.len(), 60 * 59 / 2);
}

#[test]
fn of_too_many_pairs_of_lines_some_are_tried() {
    // Fails if tier 2 tries none where it cannot try all, if lines stay kept from one pair to the
    // next, or if a line of a pair has always all its stores, or never.
    let log = scattered(Model::Adr, 60);
    let limits = Limits { single: 0, pairs: 200, random: 0, ..Limits::default() };
    let mut tried = BTreeMap::<usize, u32>::new();
    let (mut torn, mut whole) = (0, 0);
    explore(Model::Adr, &log, &limits, |state| {
        let lines = || state.words().chunks(8).filter(|line| line[0] != 0);
        *tried.entry(lines().count()).or_default() += 1;
        if lines().count() == 2 {
            whole += lines().filter(|line| line[1] != 0).count();
            torn += lines().filter(|line| line[1] == 0).count();
        }
        ControlFlow::Continue(())
    });
    assert!(tried.keys().all(|lines| [0, 1, 2, 60].contains(lines)), "{tried:?}");
    assert!(tried[&2] > 150 && torn > 100 && whole > 100, "{tried:?}, {torn}, {whole}");
}

#[test]
fn an_operation_is_in_flight_until_it_returns_itself() {
    // Fails if the return of one thread ends the operation of another: a crash would be held to it.
    let event = |thread, what| Event { thread, access: 0, site: None, what };
    let store = |word, value| What::Store { word, value, how: How::Plain };
    let log = [
        event(0, What::Begin { operation: 1 }),
        event(1, What::Begin { operation: 2 }),
        event(1, store(8, 1)),
        event(0, What::Return { operation: 1 }),
        event(1, What::Fence),
        event(1, What::Return { operation: 2 }),
    ];
    let mut explorer = Explorer::new(Memory::zero(Model::Adr, BYTES), &log);
    let mut moments = Vec::new();
    while let Some(moment) = explorer.next_point() {
        moments.push((moment.event, moment.returned, moment.in_flight.clone()));
    }
    assert_eq!(moments, [(4, 1, vec![2]), (6, 2, vec![])]);
}

#[test]
fn a_lazy_search_sees_everything_that_can_be_seen_and_nothing_twice() {
    // Fails if a branch is lost, if a line that nobody touches multiplies the work, or if what a
    // judge sees is no possible image. The judge reads line 0, and line 1 if line 0 says so.
    let log = scattered(Model::Adr, 60);
    let region = region(Model::Adr);
    let limits = Limits { product: 1, lazy: 1000, ..Limits::default() };
    let mut visits = Vec::new();
    let mut explorer = at_end(Memory::zero(Model::Adr, BYTES), &log);
    let flow = explorer.states(&limits, &mut Seen::default(), 0, &mut |state| {
        let seen = state.on(region.media(), || {
            let pm = region.access();
            let first = [0, 8].map(|at| pm.load(Addr::new(at)).unwrap());
            let second = (first[1] == 100).then(|| pm.load(Addr::new(72)).unwrap());
            (first, second)
        });
        let rebuilt =
            Explorer::rebuild(Memory::zero(Model::Adr, BYTES), log.events(), &state.name());
        let rebuilt = rebuilt.unwrap();
        assert_eq!(rebuilt.durable()[..2], seen.0);
        assert_eq!(rebuilt.durable()[9], seen.1.unwrap_or(0));
        assert!(rebuilt.durable() == state.image() && state.is_lazy());
        visits.push(seen);
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    visits.sort_unstable();
    let expected = [
        ([0, 0], None),
        ([1, 0], None),
        ([1, 100], Some(0)),
        ([1, 100], Some(0)),
        ([1, 100], Some(101)),
    ];
    assert_eq!(visits, expected, "line 1 has three contents, of which two look alike");
    assert_eq!((explorer.count().complete, explorer.count().sampled), (1, 0));
    assert_eq!(explorer.count().states, 5);
}

#[test]
fn a_lazy_search_agrees_with_full_enumeration_on_random_runs() {
    // Fails if lazy states differ from the states of the product in any run: the judge reads a
    // chain of words, each of which says where to read next.
    for seed in 0..40 {
        let model = [Model::Adr, Model::File, Model::Arm][seed as usize % 3];
        let region = region(model);
        let pm = region.access();
        let mut random = Random::new(seed);
        for _ in 0..9 {
            let at = Addr::new(random.below(4) * LINE).plus(random.below(2));
            pm.store(at, random.below(8)).unwrap();
            if random.below(4) == 0 {
                pm.persist(Span::new(at, 1), PAIR).unwrap();
            }
        }
        let chain = |load: &dyn Fn(u64) -> u64| {
            let mut next = 0;
            let mut chain = Vec::new();
            for _ in 0..6 {
                next = load(next % 4 * 8 + next / 4 % 2);
                chain.push(next);
            }
            chain
        };
        let log = region.media().take_log();
        let memory = Memory::zero(model, BYTES);
        let all = states_here(&mut at_end(memory.clone(), &log));
        let expected: BTreeSet<_> =
            all.iter().map(|words| chain(&|word| words[word as usize])).collect();
        let limits = Limits { product: 0, lazy: u64::MAX, ..Limits::default() };
        let mut found = BTreeSet::new();
        let _ = at_end(memory, &log).states(&limits, &mut Seen::default(), 0, &mut |state| {
            let load = |word| region.access().load(Addr::NULL.plus(word)).unwrap();
            found.insert(state.on(region.media(), || chain(&load)));
            ControlFlow::Continue(())
        });
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_memory_says_what_may_still_be_lost() {
    // Fails if a judge takes words for durable that are not, or the name of a model for another.
    let region = region(Model::Adr);
    let pm = region.access();
    pm.store(Addr::new(64), 1).unwrap();
    let log = region.media().take_log();
    let memory = at_end(Memory::zero(Model::Adr, BYTES), &log).memory().clone();
    assert!(!memory.is_settled() && memory.is_pending(8) && !memory.is_pending(9));
    pm.persist(Span::new(Addr::new(64), 1), PAIR).unwrap();
    let log = region.media().take_log();
    let memory = at_end(memory, &log).memory().clone();
    assert!(memory.is_settled() && !memory.is_pending(8));
    assert!(Model::ALL.iter().all(|model| Model::from_name(model.name()) == Some(*model)));
    assert_eq!(["", "ad", "adr ", "ADR"].map(Model::from_name), [None; 4]);
}

#[test]
fn every_state_is_found_again_by_its_name() {
    // Fails if a name is ambiguous, or if its text loses something.
    for model in Model::ALL {
        let region = region(model);
        Slots { token_first: true }.run(&region, 5, 12).unwrap();
        region.media().grow(2 * BYTES).unwrap();
        region.access().write_words_nt(Addr::new(BYTES), &[1, 2], PAIR).unwrap();
        let log = region.media().take_log();
        let (mut names, mut states) = (BTreeSet::new(), 0);
        explore(model, &log, &Limits::default(), |state| {
            let name: Name = state.name().to_string().parse().unwrap();
            let rebuilt = Explorer::rebuild(Memory::zero(model, BYTES), log.events(), &name);
            assert_eq!(rebuilt.unwrap().durable(), state.words());
            names.insert(name);
            states += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(names.len(), states);
    }
}

#[test]
fn a_killed_process_is_found_again_by_its_name() {
    // Fails if a kill is replayed as power loss, or as if the process went on: its end empties the
    // buffers of stores past the caches.
    let region = region(Model::Adr);
    region.access().write_words_nt(Addr::new(64), &[1], PAIR).unwrap();
    region.access().store(Addr::new(128), 2).unwrap();
    let log = region.media().take_log();
    let name: Name = "2:killed".parse().unwrap();
    assert_eq!((name.event(), name.to_string()), (2, "2:killed".to_string()));
    let zero = Memory::zero(Model::Adr, BYTES);
    let rebuilt = Explorer::rebuild(zero, log.events(), &name).unwrap();
    assert_eq!([8, 16].map(|word| rebuilt.durable()[word]), [1, 0]);
    assert_eq!([8, 16].map(|word| rebuilt.visible()[word]), [1, 2]);
}

#[test]
fn names_that_do_not_fit_are_refused() {
    // Fails if a replay of the wrong run quietly shows some other state.
    let log = scattered(Model::Adr, 2);
    for text in ["99:", "2:l0.9", "2:l7.1", "2:w0.1"] {
        let name = text.parse().unwrap();
        let found = Explorer::rebuild(Memory::zero(Model::Adr, BYTES), log.events(), &name);
        assert!(found.is_err(), "{text}");
    }
    for text in ["", ":", "x:", "2:l0", "2:.1", "2:l.1", "2:lx.1", "2:é1.1", "2:l0.1;l1.1"] {
        assert!(text.parse::<Name>().is_err(), "{text}");
    }
}

#[test]
fn every_mutant_of_a_run_changes_its_states_as_it_should() {
    // Fails if a mutant is not applied, is applied at another site, or is not listed.
    let at = Addr::new(56);
    let run = |mutant: Option<Mutant>| {
        let region = region(Model::Adr);
        region.media().set_mutant(mutant);
        let pm = region.access();
        region.media().begin(0);
        pm.write_words(at, &[1, 2]).unwrap();
        pm.persist(Span::new(at, 2), PAIR).unwrap();
        pm.write_words_nt(Addr::new(256), &[3], Site::new("test/log")).unwrap();
        pm.fence(Site::new("test/log")).unwrap();
        pm.store(Addr::new(512), 4).unwrap();
        pm.commit_word(Addr::new(520), 5, TOKEN).unwrap();
        region.media().returned(0);
        let met = region.media().met();
        let log = region.media().take_log();
        let words = [7, 8, 32, 64, 65];
        let states = states_here(&mut at_end(Memory::zero(Model::Adr, BYTES), &log));
        let digits = states.iter().map(|state| words.map(|word| state[word].to_string()).concat());
        (met, digits.collect::<Vec<_>>().join(" "))
    };
    let (met, faithful) = run(None);
    assert_eq!(faithful, "12300 12340 12345");
    let listed: Vec<String> = met.mutants().iter().map(Mutant::to_string).collect();
    let expected = [
        ("test/log:drop-fence", "12000 12040 12045 12300 12340 12345"),
        ("test/log:unfenced-store", "12000 12040 12045 12300 12340 12345"),
        // The flush stays pending, and the next fence of the thread completes it.
        ("test/pair:all-but-last-line", "10300 10340 10345 12300 12340 12345"),
        ("test/pair:drop-fence", "12300 12340 12345"),
        (
            "test/pair:drop-flush",
            "00300 00340 00345 02300 02340 02345 10300 10340 10345 12300 12340 12345",
        ),
        ("test/pair:first-line-only", "10300 10340 10345 12300 12340 12345"),
        ("test/token:drop-commit", "12300 12340"),
        ("test/token:swap-commit", "12300 12305 12345"),
    ];
    let mut sorted: Vec<_> = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected.map(|(name, _)| name));
    for (name, states) in expected {
        let mutant = met.mutants().into_iter().find(|mutant| mutant.to_string() == name);
        assert_eq!(run(mutant).1, states, "{name}");
        let change = name.rsplit(':').next().unwrap();
        assert_eq!(change.parse::<Change>().unwrap().name(), change);
    }
}

#[test]
fn the_verbs_of_several_runs_add_up() {
    // Fails if a mutant is lost that only one of the runs allows, or a count is.
    let run = |acts: &dyn Fn(&Access<'_, Medium>)| {
        let region = region(Model::Adr);
        acts(&region.access());
        region.media().met()
    };
    let short = run(&|pm| {
        pm.flush(Span::new(Addr::NULL, 1), PAIR);
        pm.commit_word(Addr::NULL, 1, TOKEN).unwrap();
    });
    let long = run(&|pm| {
        pm.store(Addr::new(8), 2).unwrap();
        pm.flush(Span::new(Addr::NULL, 9), PAIR);
        pm.commit_word(Addr::NULL, 1, TOKEN).unwrap();
        pm.fence(PAIR).unwrap();
    });
    assert_eq!((short.mutants().len(), long.mutants().len()), (2, 6));
    for (first, second) in [(&short, &long), (&long, &short)] {
        let mut both = first.clone();
        both.merge(second);
        assert_eq!(both.mutants(), long.mutants());
        let counts: Vec<_> = both.sites().map(|(_, _, times)| times).collect();
        assert_eq!(counts, [2, 1, 2]);
    }
}

#[test]
fn with_durable_caches_only_what_reaches_the_device_is_left_out() {
    // Fails if a mutant is tried that no crash can notice, or if one is not that it can.
    let region = region(Model::Eadr);
    let (pm, log) = (region.access(), Site::new("test/log"));
    pm.store(Addr::NULL, 1).unwrap();
    pm.commit_word(Addr::new(8), 2, TOKEN).unwrap();
    pm.persist(Span::new(Addr::NULL, 9), PAIR).unwrap();
    pm.sync(PAIR).unwrap();
    pm.write_words_nt(Addr::new(256), &[3], log).unwrap();
    pm.fence(log).unwrap();
    let mutants = region.media().met().mutants_with_durable_caches();
    let names: Vec<_> = mutants.iter().map(Mutant::to_string).collect();
    let fence_and_store = ["test/log:drop-fence", "test/log:unfenced-store"];
    assert_eq!(names[..2], fence_and_store);
    assert_eq!(names[2..], ["test/token:drop-commit", "test/token:swap-commit"]);
}

#[test]
fn a_commit_follows_only_a_store_of_its_own_operation_and_log() {
    // Fails if a commit is swapped with a store that another operation made, which would be no
    // mistake of this one, or with an event of a log that was taken.
    let commit = |before: &dyn Fn(&Medium)| {
        let region = region(Model::Adr);
        region.media().set_mutant(Some(Mutant { site: TOKEN, change: Change::SwapCommit }));
        region.access().store(Addr::new(64), 1).unwrap();
        before(region.media());
        region.access().commit_word(Addr::NULL, 2, TOKEN).unwrap();
        (region.media().met().mutants().len(), region.media().first_change())
    };
    assert_eq!(commit(&|_| ()), (2, Some(0)), "both events are in another order");
    assert_eq!(commit(&|medium| medium.begin(1)), (1, None));
    assert_eq!(commit(&|medium| medium.returned(1)), (1, None));
    assert_eq!(commit(&|medium| drop(medium.take_log())), (1, None));
}

#[test]
fn a_log_holds_what_happened_and_nothing_else() {
    // Fails if a flush names lines that the medium does not have, if a growth to the present length
    // costs a crash point, if a medium that keeps freed words overwrites them, or if two logs of
    // different threads have one digest.
    let keeping = Region::new(Medium::new(Model::Adr, BYTES, BYTES).keep_freed(true));
    let pm = keeping.access();
    pm.flush(Span::new(Addr::new(BYTES - 128), 1 << 20), PAIR);
    keeping.media().grow(BYTES).unwrap();
    pm.store(Addr::NULL, 5).unwrap();
    keeping.media().freed(Span::new(Addr::NULL, 8));
    assert_eq!(pm.load(Addr::NULL).unwrap(), 5);
    assert_eq!(keeping.media().log_length(), 2);
    let log = keeping.media().take_log();
    assert_eq!((log.events().len(), log.events()[0].what), (2, What::Flush { line: 62, count: 2 }));
    let mut other = log.events().to_vec();
    other[1].thread += 1;
    assert_ne!(Log::new(other).digest(), log.digest());
}

#[test]
fn a_run_that_does_not_end_is_ended() {
    // Fails (by hanging) if a mutant that drops the store a loop waits for stops the judge.
    let region = region(Model::Adr);
    region.media().limit_steps(1000);
    let pm = region.access();
    let loads = || while pm.load(Addr::new(64)).unwrap() == 0 {};
    let line = pm.block::<8>(Addr::new(64)).unwrap();
    let exchanges = || while line.compare_exchange(0, 1, 2, PAIR).is_err() {};
    for waiting in [&loads as &dyn Fn(), &exchanges] {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(waiting)).is_err());
        region.media().restart(&[0; 9]);
        assert_eq!(pm.load(Addr::new(0)).unwrap(), 0);
    }
}

#[test]
fn a_restart_leaves_nothing_of_the_run_before() {
    // Fails if the medium is as long as before, or if a word that lies behind the new content is
    // there again once the medium has grown.
    let region = region(Model::Adr);
    let (pm, bytes) = (region.access(), region.media().bytes());
    pm.store(Addr::new(128), 5).unwrap();
    region.media().restart(&[1; 8]);
    assert_eq!(region.media().bytes(), 64);
    assert!(pm.load(Addr::new(128)).is_err());
    region.media().grow(bytes).unwrap();
    assert_eq!([0, 128].map(|at| pm.load(Addr::new(at)).unwrap()), [1, 0]);
}

#[test]
fn a_run_after_a_restart_is_like_the_first() {
    // Fails if a replay differs from the run that it repeats: in the numbers of its accesses, in
    // which of the released spans become zero, or by what was logged before it.
    let region = region(Model::File);
    let run = || {
        region.access().store(Addr::new(64), 5).unwrap();
        region.access().flush(Span::new(Addr::new(64), 1), PAIR);
        region.media().release(Span::new(Addr::new(64), 8));
        region.media().take_log()
    };
    region.media().set_mutant(Some(Mutant { site: PAIR, change: Change::DropFlush }));
    let first = run();
    assert_eq!(region.media().first_change(), Some(1));
    // Nobody takes the log of this.
    region.access().store(Addr::new(128), 6).unwrap();
    region.media().restart(&[0; 512]);
    assert_eq!((region.media().first_change(), run()), (None, first));
}

/// Adds up two counters; recovery repairs the second from the first, and itself needs two steps.
fn recover(pm: &Access<'_, Medium>) -> Result<()> {
    let first = pm.load(Addr::new(0))?;
    pm.store(Addr::new(64), first)?;
    pm.persist(Span::new(Addr::new(64), 1), PAIR)?;
    pm.store(Addr::new(128), first)?;
    pm.persist(Span::new(Addr::new(128), 1), PAIR)
}

#[test]
fn crashes_nest_to_any_depth() {
    // Fails if what recovery stored is not on the same queues, or if states get lost on the way:
    // the states of three nested power losses, and of a killed process before one, by hand.
    let region = region(Model::Adr);
    region.access().store(Addr::new(0), 1).unwrap();
    let log = region.media().take_log();
    let watched = |words: &[u64]| [words[0], words[8], words[16]];
    let mut found = vec![BTreeSet::new(); 4];
    nest(&region, Memory::zero(Model::Adr, BYTES), &log, 0, &mut |depth, state| {
        found[depth].insert(watched(state));
    });
    assert_eq!(found[0], BTreeSet::from([[0, 0, 0], [1, 0, 0]]));
    assert_eq!(found[1], BTreeSet::from([[1, 0, 0], [1, 1, 0], [1, 1, 1]]));
    assert_eq!(found[2], BTreeSet::from([[1, 0, 0], [1, 1, 0], [1, 1, 1]]));

    // Killed first: word 0 is visible and not durable, and recovery does not persist it.
    let killed = at_end(Memory::zero(Model::Adr, BYTES), &log).memory().after_process_crash();
    region.media().restart(killed.visible());
    recover(&region.access()).unwrap();
    let log = region.media().take_log();
    let last = states_here(&mut at_end(killed, &log));
    let last: BTreeSet<_> = last.iter().map(|state| watched(state)).collect();
    assert_eq!(last, BTreeSet::from([[0, 1, 1], [1, 1, 1]]), "shown once, and lost");
}

fn nest(
    region: &Region<Medium>,
    memory: Memory,
    log: &Log,
    depth: usize,
    found: &mut dyn FnMut(usize, &[u64]),
) {
    let mut explorer = Explorer::new(memory, log.events());
    let mut images = Vec::new();
    while explorer.next_point().is_some() {
        let _ = explorer.states(&Limits::default(), &mut Seen::default(), 0, &mut |state| {
            images.push(state.words().to_vec());
            ControlFlow::Continue(())
        });
    }
    for image in images {
        found(depth, &image);
        if depth < 2 {
            region.media().restart(&image);
            recover(&region.access()).unwrap();
            let log = region.media().take_log();
            nest(region, Memory::of(Model::Adr, image), &log, depth + 1, found);
        }
    }
}

#[test]
fn what_an_operation_used_and_did_not_make_durable_is_its_debt() {
    // Fails if a value that another thread has not persisted can decide a result unnoticed.
    let medium = Traced::<crate::common::Puppet>::new(Model::Adr, BYTES, BYTES).with_loads();
    let region = Region::new(medium);
    let put = |thread, operation, persist| {
        crate::common::act_as(thread);
        let pm = region.access();
        region.media().begin(operation);
        pm.store(Addr::new(64), u64::from(operation)).unwrap();
        if persist {
            pm.persist(Span::new(Addr::new(64), 1), PAIR).unwrap();
            region.media().returned(operation);
        }
    };
    let get = |thread, operation| {
        crate::common::act_as(thread);
        region.media().begin(operation);
        region.access().load(Addr::new(64)).unwrap();
        region.media().returned(operation);
    };
    put(1, 1, true);
    get(2, 2);
    put(1, 3, false);
    get(2, 4);
    // An exchange that fails has looked at the word as well.
    region.media().begin(6);
    let line = region.access();
    line.block::<1>(Addr::new(64)).unwrap().compare_exchange(0, 9, 9, PAIR).unwrap_err();
    region.media().returned(6);
    // What an operation used that did not return is no debt of the next one.
    crate::common::act_as(1);
    region.media().begin(5);
    region.access().load(Addr::new(128)).unwrap();
    region.media().returned(5);
    let log = region.media().take_log();
    let found = debts(Memory::zero(Model::Adr, BYTES), log.events());
    let debts = found.iter().map(|debt| (debt.operation, debt.word, debt.stored));
    assert_eq!(debts.collect::<Vec<_>>(), [(4, 8, false), (6, 8, false)]);
    assert!(matches!(log.events()[found[0].event].what, What::Return { operation: 4 }));
}

#[test]
fn a_pool_survives_the_end_of_a_process_and_then_a_power_failure() {
    // Fails if a header that is visible and not durable is all that remains while the other one
    // is overwritten: a process that is killed while it writes one header leaves just that.
    let identity = Identity {
        engine: *b"test\0\0\0\0",
        form: 0,
        hash_kind: 1,
        hash_key: [1, 2],
        database: [3, 4],
    };
    let boot = Boot([1, 1]);
    let use_it = |region: &Region<Medium>| {
        let pool = Pool::open(region.clone(), boot).unwrap();
        pool.recovered().unwrap();
        pool.close().unwrap();
    };
    for model in [Model::Adr, Model::File] {
        let region = Region::new(Medium::new(model, 0, 4 * BYTES));
        let fill = |_: &Pool<Medium>| Ok::<(), everhash_pmem::Error>(());
        region.media().begin(0);
        drop(Pool::create(region.clone(), identity, boot, fill).unwrap());
        region.media().returned(0);
        use_it(&region);
        use_it(&region);
        let log = region.media().take_log();
        let mut first = Explorer::new(Memory::zero(model, 0), log.events());
        let mut judged = 0;
        while let Some(moment) = first.next_point() {
            if moment.returned == 0 {
                continue;
            }
            let killed = first.memory().after_process_crash();
            region.media().restart(killed.visible());
            use_it(&region);
            let log = region.media().take_log();
            let mut second = Explorer::new(killed, log.events());
            let mut seen = Seen::default();
            while second.next_point().is_some() {
                let _ = second.states(&Limits::default(), &mut seen, 0, &mut |state| {
                    region.media().restart(state.words());
                    Pool::inspect(&region).unwrap();
                    ControlFlow::Continue(())
                });
            }
            judged += second.count().states;
        }
        assert!(judged > 100, "{judged} states under {model}");
    }
}
