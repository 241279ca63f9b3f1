//! Crashes of the pool alone: it always opens, and it says truthfully how it was left.

use core::ops::ControlFlow;

use everhash_pmem::crash::{Explorer, Limits, Log, Memory, Model, Seen};
use everhash_pmem::media::traced::{Met, Mutant, Traced};
use everhash_pmem::pool::{Boot, DATA, Pool, Shutdown, sites};
use everhash_pmem::{Error, Media, Region, Result};

use crate::support::IDENTITY;

type Medium = Traced<everhash_pmem::Std>;

const CAPACITY: u64 = 16 << 10;
const CONTENT: u64 = 42;

/// Boots of one machine, one after the other.
const BOOTS: [Boot; 3] = [Boot([7, 1]), Boot([7, 2]), Boot([7, 3])];

/// What holds of the pool at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// It is being made: it may be refused, or be there with its contents.
    Making,
    /// Its opening or closing is under way: it opens.
    Changing,
    /// It is open: it opens, and does not count as closed.
    Open,
    /// It is closed, also for a machine that has lost its power since.
    Closed,
}

/// What one process did, and what was known of the pool from which event on.
struct Life {
    log: Log,
    known: Vec<(usize, Known)>,
}

impl Life {
    fn known(&self, event: usize) -> Known {
        let before = self.known.iter().rev().find(|(from, _)| *from <= event);
        before.expect("something is known from the beginning on").1
    }
}

/// Lives on what lies on the medium: makes a pool or opens it, closes it, opens and closes again.
fn live(region: &Region<Medium>, boot: Boot, create: bool) -> Result<Life> {
    let medium = region.media();
    let mut known = vec![(0, if create { Known::Making } else { Known::Changing })];
    let mut step = 0;
    let mut reach = |state| {
        medium.returned(step);
        step += 1;
        known.push((medium.log_length(), state));
        medium.begin(step);
    };
    medium.begin(0);
    let pool = match create {
        true => Pool::create(region.clone(), IDENTITY, boot, |pool| {
            pool.region().media().grow(CAPACITY)?;
            pool.access().store(DATA, CONTENT)
        })?,
        false => Pool::open(region.clone(), boot)?,
    };
    pool.recovered()?;
    reach(Known::Open);
    reach(Known::Changing);
    pool.close()?;
    reach(Known::Closed);
    medium.exit();
    reach(Known::Changing);
    let pool = Pool::open(region.clone(), boot)?;
    pool.begin_writes()?;
    reach(Known::Open);
    reach(Known::Changing);
    pool.close()?;
    reach(Known::Closed);
    Ok(Life { log: medium.take_log(), known })
}

/// Opens what lies on the medium and closes it, without a write in between.
fn visit(region: &Region<Medium>, boot: Boot) -> Result<Life> {
    let medium = region.media();
    medium.begin(0);
    Pool::open(region.clone(), boot)?.close()?;
    medium.returned(0);
    let known = vec![(0, Known::Changing), (medium.log_length(), Known::Closed)];
    medium.exit();
    Ok(Life { log: medium.take_log(), known })
}

/// Opens what a crash of power left, in the boot after, and compares.
fn judge(region: &Region<Medium>, known: Known) -> core::result::Result<(), String> {
    let opened = Pool::open(region.clone(), BOOTS[2]);
    if known == Known::Making
        && matches!(opened, Err(Error::Unsupported { .. } | Error::Corrupt { .. }))
    {
        return Ok(());
    }
    let pool = opened.map_err(|error| format!("{known:?}: {error}"))?;
    let previous = pool.previous_shutdown();
    let content = pool.access().load(DATA).unwrap();
    let told = match known {
        Known::Making | Known::Changing => previous != Shutdown::Process,
        Known::Open => previous == Shutdown::Power,
        Known::Closed => previous == Shutdown::Clean,
    };
    if !told || content != CONTENT || *pool.identity() != IDENTITY {
        return Err(format!("{known:?}: counts as {previous:?}, with the content {content}"));
    }
    Ok(())
}

/// Judges every crash of power of a life, and every end of its process if `kills` is set.
fn explore(
    region: &Region<Medium>,
    life: &Life,
    memory: &Memory,
    kills: bool,
    states: &mut u64,
) -> core::result::Result<(), String> {
    let limits = Limits { product: 32, single: 24, pairs: 24, random: 48, ..Limits::default() };
    let mut explorer = Explorer::new(memory.clone(), life.log.events());
    let mut seen = Seen::default();
    while let Some(moment) = explorer.next_point() {
        let known = life.known(moment.event);
        let mut outcome = Ok(());
        let _ = explorer.states(&limits, &mut seen, 0, &mut |state| {
            *states += 1;
            outcome = state.on(region.media(), || judge(region, known));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        if kills && known != Known::Making {
            let memory = explorer.memory().after_process_crash();
            region.media().restart(memory.visible());
            let next = live(region, BOOTS[0], false).map_err(|error| format!("killed: {error}"))?;
            explore(region, &next, &memory, false, states)?;
            region.media().restart(memory.visible());
            let next = visit(region, BOOTS[0]).map_err(|error| format!("killed: {error}"))?;
            explore(region, &next, &memory, false, states)?;
        }
    }
    Ok(())
}

/// Judges the pool, or a mutant of it; returns the number of states and the sites met.
fn crashes(model: Model, mutant: Option<Mutant>) -> core::result::Result<(u64, Met), String> {
    let region = Region::new(Traced::new(model, 0, CAPACITY));
    region.media().set_mutant(mutant);
    let life = live(&region, BOOTS[0], true).map_err(|error| error.to_string())?;
    let mut states = 0;
    explore(&region, &life, &Memory::zero(model, 0), true, &mut states)?;
    Ok((states, region.media().met()))
}

#[test]
fn every_crash_of_a_pool_leaves_one_that_opens() {
    // Fails if a header is overwritten while the other is not durable, if contents may be younger
    // than the header that promises them, or if a crash may look like a clean close.
    for model in [Model::Adr, Model::Eadr, Model::File] {
        let (states, _) = crashes(model, None).unwrap();
        println!("{model}: {states} states");
        assert!(states > 300, "{model}: {states}; two headers differ in a few words only");
    }
}

#[test]
fn every_flush_and_every_fence_of_a_pool_is_needed() {
    // Fails if the pool persists what nobody needs, or if this judge has become blind.
    let models = [Model::Adr, Model::File];
    let mut met = Met::default();
    for model in models {
        met.merge(&crashes(model, None).unwrap().1);
    }
    let mutants = met.mutants();
    let alive: Vec<String> = mutants
        .iter()
        .filter(|mutant| models.iter().all(|model| crashes(*model, Some(**mutant)).is_ok()))
        .map(ToString::to_string)
        .collect();
    assert!(alive.is_empty(), "of {} mutants survive: {alive:?}", mutants.len());
    // What makes contents durable that wait for no fence has its own test, and so has what is
    // written again after a failed sync.
    let here: Vec<_> = met.sites().map(|(site, _, _)| site).collect();
    let missing: Vec<_> = sites::ALL.iter().filter(|site| !here.contains(site)).collect();
    assert_eq!(missing, [&sites::REWRITTEN, &sites::SETTLE]);
}
