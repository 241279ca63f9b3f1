//! Every crash leaves what was there before or after the operation that it interrupts.

use everhash_index::{Capabilities, Checked, Engine, Executor, Form, Result};
use everhash_pmem::crash::Model;
use everhash_pmem::{Media, Pool, Region, Site};
use everhash_testkit::crash::{Effort, judge, mutants};

use crate::turbo::{Turbo, TurboSettings, TurboTable};

/// TurboHash whose tiny table has a lane: writers note where they write, and recovery from the
/// end of a process makes that durable instead of everything.
struct WithLanes;

impl Engine for WithLanes {
    const NAME: &'static str = Turbo::NAME;
    const CAPABILITIES: Capabilities = Turbo::CAPABILITIES;
    const SITES: &'static [&'static [Site]] = Turbo::SITES;
    type Settings = TurboSettings;
    type Table<M: Media> = TurboTable<M>;

    fn tiny(form: Form) -> TurboSettings {
        TurboSettings { lanes: 1, ..Turbo::tiny(form) }
    }

    fn sized_for(form: Form, items: u64) -> TurboSettings {
        Turbo::sized_for(form, items)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &TurboSettings) -> Result<()> {
        Turbo::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<TurboTable<M>> {
        Turbo::open(pool, executor)
    }

    fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
        Turbo::check(region, visit)
    }
}

fn survives<E: Engine>(form: Form, effort: &Effort) {
    let report = judge::<E>(form, effort).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{form}, {}: {report}", effort.model);
    println!("  never met: {:?}", report.never_met::<E>());
    let counts = report.counts;
    assert!(counts.states + counts.nested > 10_000, "fewer mean that crashes were not tried");
}

#[test]
fn p01_a_power_failure_is_survived_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    super::FORMS.into_iter().for_each(|form| survives::<Turbo>(form, &Effort::default()));
}

#[test]
fn p01_a_power_failure_is_survived_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    let effort = Effort::default().under(Model::Eadr);
    super::FORMS.into_iter().for_each(|form| survives::<Turbo>(form, &effort));
}

#[test]
fn p01_a_power_failure_is_survived_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    let effort = Effort::default().under(Model::File);
    super::FORMS.into_iter().for_each(|form| survives::<Turbo>(form, &effort));
}

#[test]
fn p01_the_end_of_a_process_and_then_a_power_failure_are_survived() {
    // Fails if the lanes do not name every bucket that was visible and not durable when the process
    // ended: the next power failure takes back what was read since.
    let effort = Effort { killed_one_in: 1, seeds: 0..12, ..Effort::default() };
    super::FORMS.into_iter().for_each(|form| survives::<WithLanes>(form, &effort));
}

#[test]
fn every_flush_and_every_fence_is_needed() {
    // Fails if a persist site can be left out without a judge noticing: it is dead code then, or
    // one of the exceptions, which have their reasons.
    let exceptions = include_str!("../exceptions.toml");
    let killed = Effort { killed_one_in: 1, seeds: 0..12, ..Effort::default() };
    let efforts = [Effort::default(), Effort::default().under(Model::File), killed];
    let (mut survivors, mut count) = (Vec::new(), 0);
    for form in [Form::WORDS, Form::Variable] {
        let fates = mutants::<WithLanes>(form, &efforts);
        for fate in fates.unwrap_or_else(|violation| panic!("{violation}")) {
            if !fate.mutant.site.name().starts_with("turbo/") {
                continue;
            }
            count += 1;
            println!("{form}: {fate}");
            if fate.death.is_none() {
                survivors.push(fate.mutant.to_string());
            }
        }
    }
    println!("{count} mutants, survivors: {survivors:#?}");
    let excused = |name: &String| exceptions.contains(&format!("\"{name}\""));
    assert!(survivors.iter().all(excused), "not excused");
}
