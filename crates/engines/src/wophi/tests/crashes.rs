//! Every crash leaves what was there before or after the operation that it interrupts.

use core::ops::ControlFlow;

use everhash_index::{Engine, Error, Form, Inline, Opening, Table, create, open};
use everhash_pmem::crash::{Explorer, Log, Memory, Model, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Boot, Image, Region, Std};
use everhash_testkit::crash::{Effort, survives};

use crate::wophi::{Wophi, layout};

/// Some seconds for each form and model. `everhash crash` does more, and judges the mutants.
fn survive(form: Form, model: Model) {
    // Durable caches leave one state of each crash, files and the weaker order hundreds.
    let seeds = match model {
        Model::Eadr => 0..3,
        Model::Adr => 0..2,
        _ => 0..1,
    };
    let effort = Effort { model, seeds, operations: 60, ..Effort::default() };
    let counts = survives::<Wophi>(form, &effort);
    assert!(counts.states > 300, "fewer mean that crashes were not tried");
}

#[test]
fn p01_a_power_failure_is_survived_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Adr));
}

#[test]
fn p01_a_power_failure_is_survived_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Eadr));
}

#[test]
fn p01_a_power_failure_is_survived_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::File));
}

#[test]
fn p01_a_power_failure_is_survived_where_a_line_keeps_no_order() {
    // Fails as on files, and if a write-back is missing that a file's sync makes good.
    super::FORMS.into_iter().for_each(|form| survive(form, Model::Arm));
}

#[test]
fn two_crashes_in_the_beginnings_of_growths_are_survived() {
    // Fails if a growth that a crash took back leaves something that a later growth, elsewhere, is
    // confused with. As links of their own, those to the extent and to its pre-allocated buckets
    // could become durable in any order, and lead to one place from two growths.
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let region = Region::new(Image::<Std>::new(0, 64 << 10));
    let table = create::<Wophi, _>(region.clone(), &opening, &Wophi::tiny(opening.form), &Inline);
    let table = table.unwrap();
    let mut pairs = 0u64;
    while !table.stats().unwrap().own.contains(&("growing", 1)) {
        assert!(table.insert(&pairs.to_le_bytes(), &[1; 8]).unwrap());
        pairs += 1;
    }
    drop(table);
    let mut words = region.media().words();
    let grown = words[layout::extent_link(1).word() as usize];
    let link = layout::extent_link(1);
    words[link.word() as usize] = layout::encode_link(Addr::NULL, link);
    for model in Model::ALL {
        let (tried, moved, refused) = crash_in_growth(model, &words, pairs, grown);
        println!("{model}: {tried} states, {moved} growths elsewhere");
        assert!(tried > 100 && moved > 0 && refused == 0, "{model}: {tried}, {moved}, {refused}");
    }
}

/// Tries every crash of growths that begin in a pool of `pairs` pairs. Returns how many states
/// there were, how many of the growths took another place than the one that `first` leads to, and
/// how many states could not be opened.
fn crash_in_growth(model: Model, words: &[u64], pairs: u64, first: u64) -> (u32, u32, u32) {
    let (mut tried, mut moved, mut refused) = (0, 0, 0);
    let link = layout::extent_link(1).word() as usize;
    for length in [8, 40, 100, 200, 300, 500] {
        let (region, log) = grow_again(model, words, &vec![2; length]);
        moved += u32::from(region.media().visible()[link] != first);
        let mut explorer = Explorer::new(Memory::of(model, words.to_vec()), log.events());
        let mut seen = Seen::default();
        while explorer.next_point().is_some() {
            let _ = explorer.states(&Effort::default().limits, &mut seen, 0, &mut |state| {
                let items = state.on(region.media(), || {
                    let table = open::<Wophi, _>(region.clone(), boot(3), &Inline)?;
                    Ok::<_, Error>(table.check()?.items)
                });
                tried += 1;
                match items {
                    Ok(items) => assert!((pairs..=pairs + 1).contains(&items), "{items}"),
                    Err(_) => refused += 1,
                }
                ControlFlow::Continue(())
            });
        }
    }
    (tried, moved, refused)
}

/// Returns the boot of a number.
fn boot(number: u64) -> Boot {
    Boot([Opening::default().boot.0[0], number])
}

/// Opens what the first crash has left, and inserts a pair with which the table begins to grow.
fn grow_again(model: Model, words: &[u64], value: &[u8]) -> (Region<Traced>, Log) {
    let region = Region::new(Traced::<Std>::new(model, 0, 64 << 10));
    region.media().restart(words);
    let table = open::<Wophi, _>(region.clone(), boot(2), &Inline).unwrap();
    // Lies where the extents were to be, which makes these lie elsewhere.
    assert!(table.insert(b"another", value).unwrap());
    assert!(table.stats().unwrap().own.contains(&("growing", 1)));
    drop(table);
    let log = region.media().take_log();
    (region, log)
}
