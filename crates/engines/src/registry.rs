//! The registry: one row for each engine, which everything that serves, measures, judges or
//! documents engines reads.

use everhash_index::{Capabilities, Design, Engine};
use everhash_pmem::{Media, Ruler};

/// An engine, whatever the medium.
#[derive(Clone, Copy)]
pub struct About {
    /// Its name, which lies in every pool, and that of its folder.
    pub name: &'static str,
    /// Its name as its paper writes it.
    pub title: &'static str,
    /// Its idea in one sentence.
    pub idea: &'static str,
    /// What it promises.
    pub capabilities: Capabilities,
    /// Every record that it lays out on a medium.
    pub rulers: &'static [&'static Ruler],
    /// Its file of mutants that may survive: lines `"mutant" = "reason"`.
    pub exceptions: &'static str,
    /// Settings of its tiny tables with which it is judged, too.
    pub variants: &'static [&'static [(&'static str, u64)]],
    /// How far its crashes are explored whenever a change is checked.
    pub exploration: Exploration,
}

/// How far the crashes of an engine are explored when there is a minute for each model.
///
/// `everhash crash --brief` takes it, and so does `.ci/run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exploration {
    /// Whether only the pairs of words are explored.
    pub words_only: bool,
    /// How many distinct states are checked at least, for every form.
    pub states: u64,
    /// How many operations a workload has.
    pub operations: u16,
    /// How many crashes follow each other at most.
    pub depth: u8,
    /// How many operations a workload has whose every state is crashed once more.
    pub twice: u16,
}

impl Exploration {
    /// Many short crashes, for engines whose crash points have few states.
    const USUAL: Exploration =
        Exploration { words_only: false, states: 10_000, operations: 100, depth: 2, twice: 8 };

    /// Eight short workloads of every form with one crash each, for engines whose states take long
    /// to check.
    const BROAD: Exploration =
        Exploration { words_only: false, states: 1, operations: 40, depth: 1, twice: 4 };

    /// The same where a recovery does much, each step of which is crashed once more.
    const STEPS: Exploration = Exploration { twice: 2, ..Self::BROAD };

    /// Short workloads, eight and as many again as it takes, for engines some of whose crash points
    /// have hundreds of states.
    const SHORT: Exploration =
        Exploration { words_only: true, states: 15_000, operations: 40, depth: 1, twice: 1 };
}

macro_rules! engines {
    ($( $module:ident::$engine:ident $title:literal $exploration:ident, $idea:literal; )+) => {
        /// Every engine; the first is the default of new databases.
        pub static ENGINES: &[About] = &[$( About {
            name: <crate::$module::$engine as Engine>::NAME,
            title: $title,
            idea: $idea,
            capabilities: <crate::$module::$engine as Engine>::CAPABILITIES,
            rulers: crate::$module::layout::RULERS,
            exceptions: include_str!(concat!(stringify!($module), "/exceptions.toml")),
            variants: <crate::$module::$engine as Engine>::Settings::VARIANTS,
            exploration: Exploration::$exploration,
        } ),+];

        /// Returns every engine on one medium, in the order of [`ENGINES`].
        ///
        /// This is where engines are compiled for a medium: in the crate that calls it.
        pub const fn designs<M: Media>() -> [Design<M>; ENGINES.len()] {
            [$( Design::of::<crate::$module::$engine>() ),+]
        }
    };
}

engines! {
    reef::Reef "Reef" STEPS,
        "append-only segments under a directory of tagged places; one sync for all streams";
    walsh::Walsh "WALSH" SHORT,
        "chains in logs, their heads in DRAM; writes are collected and made durable together";
    turbo::Turbo "TurboHash" SHORT,
        "sharded linear probing in buckets of 256 bytes; recovery in O(1)";
    wophi::Wophi "WOPHI" USUAL,
        "chained buckets, pre-allocated; log-free commits of eight bytes";
    elimda::ElimDa "ElimDA" BROAD,
        "a backup log, a table in DRAM and one of its shape on the device, relocated in units";
    tiered::Tiered "Tiered Hashing" BROAD,
        "a pyramid of layers; writes that reach a lower layer take pairs along with their flush";
}

#[cfg(test)]
mod tests {
    use everhash_index::{Choice, Error, Form, Inline, Opening, Sizing};
    use everhash_pmem::{Image, Media, Region, Std, pool::ROOT};

    use super::designs;
    use crate::common::settings::checksum;

    #[test]
    fn a_table_says_how_long_its_medium_must_be() {
        // Fails if an engine says more, so that a table is refused for which there is room, or
        // less, so that a file is begun that cannot be made.
        for design in designs::<Image>() {
            let sizes = [Sizing::Tiny, Sizing::Usual, Sizing::Pairs(1000)];
            for (form, sizing) in sizes.iter().flat_map(|sizing| {
                design.capabilities.all_forms().into_iter().map(move |form| (form, *sizing))
            }) {
                let choice = Choice { sizing, ..Choice::default() };
                let guarantees = Image::<Std>::new(0, 64).guarantees();
                let needed = design.bytes_needed(form, choice, guarantees).unwrap();
                let made = |bytes| {
                    let opening = Opening { form, ..Opening::default() };
                    let region = Region::new(Image::<Std>::new(0, bytes));
                    design.create(region, &opening, choice, &Inline).map(drop)
                };
                let (name, refused) = (design.name, made(needed - 8));
                made(needed).unwrap_or_else(|error| panic!("{name}, {form}, {sizing:?}: {error}"));
                assert!(matches!(refused, Err(Error::Full { .. })), "{name}, {form}, {sizing:?}");
            }
        }
    }

    #[test]
    fn p08_a_pool_of_another_layout_is_unsupported_to_open_to_check_and_to_salvage() {
        // Fails if an engine reads a pool of an older or newer program by its own layout, or calls
        // it damaged: its owner would repair what needs another program only.
        for design in designs::<Image>() {
            let region = Region::new(Image::<Std>::new(0, 8 << 20));
            let opening = Opening { form: Form::WORDS, ..Opening::default() };
            let choice = Choice { sizing: Sizing::Tiny, ..Choice::default() };
            let table = design.create(region.clone(), &opening, choice, &Inline).unwrap();
            table.insert(&[1; 8], &[2; 8]).unwrap();
            table.close().unwrap();
            let (pm, mut root) = (region.access(), [0; 64]);
            pm.read_words(ROOT, &mut root).unwrap();
            let is_sum = |place: &usize| checksum(ROOT, &root[..*place]) == root[*place];
            let (sum_at, version) = ((1..64).find(is_sum).unwrap(), root[0]);
            for version in [version - 1, version + 1] {
                root[0] = version;
                root[sum_at] = checksum(ROOT, &root[..sum_at]);
                pm.write_words(ROOT, &root[..=sum_at]).unwrap();
                let outcomes = [
                    design.open(region.clone(), opening.boot, &Inline).map(drop),
                    design.open_read_only(region.clone(), &Inline).map(drop),
                    design.check(&region, opening.boot, &mut |_, _| {}).map(drop),
                    design.salvage(&region, opening.boot, &mut |_, _| {}, &mut |_| {}),
                ];
                for outcome in outcomes {
                    let said = format!("layout {version}");
                    let is_refused = matches!(&outcome,
                        Err(Error::Unsupported { what }) if what.contains(&said));
                    assert!(is_refused, "{}, {said}: {outcome:?}", design.name);
                }
            }
        }
    }
}
