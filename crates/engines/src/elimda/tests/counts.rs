//! What operations ask of the medium (ElimDA 4.2, Exp#6, Exp#7, Exp#9).

use everhash_index::{Form, Inline, Opening, Table, WordTable, create};
use everhash_pmem::{Image, Region, Std};
use everhash_testkit::measured::{Cost, FILE, MEMORY, Measured};

use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

fn pair(form: Form, i: u64) -> (Vec<u8>, Vec<u8>) {
    let bytes = i.to_le_bytes().to_vec();
    match form {
        Form::DOUBLE_WORDS => (bytes.repeat(2), bytes.repeat(2)),
        _ => (bytes.clone(), bytes),
    }
}

fn insert(measured: &Measured<ElimDa>, range: core::ops::Range<u64>) -> Cost {
    measured.cost(range, |i| {
        let (key, value) = pair(measured.form, i);
        assert!(measured.table.insert(&key, &value).unwrap());
    })
}

#[test]
fn an_insert_into_the_log_is_one_flush_and_one_fence() {
    // Fails if a pair and the state of its line are made durable one after the other where a line
    // keeps the order of its stores, or together where it does not.
    let settings = ElimDaSettings::default();
    for (guarantees, words, bytes) in [(MEMORY, 1.0, 2.0), (FILE, 2.0, 3.0)] {
        for (form, fences) in
            [(Form::WORDS, words), (Form::DOUBLE_WORDS, words), (Form::Variable, bytes)]
        {
            let measured = Measured::<ElimDa>::new(form, &settings, guarantees).unwrap();
            let cost = insert(&measured, 0..1);
            assert_eq!((cost.lines, cost.fences), (fences, fences), "{form}");
        }
    }
}

#[test]
fn updates_and_removes_cost_what_they_must() {
    // Fails if an update writes more than its value, or a remove more than one word: in the log and
    // in units alike.
    for (form, update) in [(Form::WORDS, 1.0), (Form::Variable, 2.0)] {
        let measured = Measured::<ElimDa>::new(form, &ElimDaSettings::default(), MEMORY).unwrap();
        insert(&measured, 0..20_000);
        let updated = measured.cost(0..20_000, |i| {
            let (key, value) = pair(form, i);
            assert!(measured.table.update(&key, &value).unwrap());
        });
        let removed = measured.cost(0..20_000, |i| {
            assert!(measured.table.remove(&pair(form, i).0).unwrap());
        });
        assert_eq!((updated.lines, updated.fences), (update, update), "{form}");
        assert_eq!((removed.lines, removed.fences), (1.0, 1.0), "{form}");
    }
}

#[test]
fn reads_flush_nothing() {
    // Fails if a reader helps a writer, or notes anything on the medium.
    let measured =
        Measured::<ElimDa>::new(Form::WORDS, &ElimDaSettings::default(), MEMORY).unwrap();
    insert(&measured, 0..5000);
    let cost = measured.cost(0..10_000, |i| {
        measured.table.get(&i.to_le_bytes(), &mut Vec::new()).unwrap();
    });
    assert_eq!((cost.lines, cost.fences, cost.commits), (0.0, 0.0, 0.0));
}

#[test]
fn a_growing_table_keeps_its_load_its_dram_and_its_log_in_bounds() {
    // Fails if splits come early, if the log grows without bound, or if an item takes more of DRAM
    // or of the device than the figures of the design: on average between two doublings, and when
    // all segments have just been split.
    println!("items: load, DRAM and device bytes an item, lines and fences an insert, log slots");
    let settings = ElimDaSettings { initial_segments: 1, ..ElimDaSettings::default() };
    let measured = Measured::<ElimDa>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let (mut loads, mut doubling, mut count) = (Vec::new(), Vec::new(), 0);
    while count < 400_000 {
        let more = 20_000;
        let cost = insert(&measured, count..count + more);
        count += more;
        let stats = measured.table.stats().unwrap();
        let own = |name| stats.own.iter().find(|(own, _)| *own == name).unwrap().1;
        let per = |bytes: u64| bytes as f64 / count as f64;
        loads.push(stats.load_factor());
        assert!(per(stats.dram_bytes) < 8.5, "{stats:?}");
        if (160_000..320_000).contains(&count) {
            doubling.push((per(stats.dram_bytes), per(stats.used_bytes)));
        }
        println!(
            "{count:>8}: {:.3} {:.2} {:.2} {:.3} {:.3} {}",
            stats.load_factor(),
            per(stats.dram_bytes),
            per(stats.used_bytes),
            cost.lines,
            cost.fences,
            own("log_slots")
        );
        let most = 2 * own("dram_slots") + 64 * 16 * 189;
        assert!(own("log_slots") < most, "{stats:?}");
    }
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    println!("mean load {mean:.3}");
    assert!(mean > 0.65, "{mean}");
    let (dram, device) = doubling.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let [dram, device] = [dram, device].map(|sum| sum / doubling.len() as f64);
    println!("between two doublings, an item: {dram:.2} of DRAM, {device:.2} of the device");
    assert!(dram < 6.0 && device < 30.0, "{dram} {device}");
    assert_eq!(measured.table.check().unwrap().items, count);
}

#[test]
#[ignore = "inserts 20 million pairs: about a minute in the release profile, and 2 GB of memory"]
fn the_load_factor_while_twenty_million_pairs_are_inserted() {
    // Fails if fewer than 65 % of all slots are filled on average (ElimDA, Fig. 15: 68.9 %).
    const PAIRS: u64 = 20_000_000;
    const EVERY: u64 = 50_000;
    let region = Region::new(Image::<Std>::new(0, 3 << 29));
    let settings = ElimDaSettings { initial_segments: 1, ..ElimDaSettings::default() };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let table = create::<ElimDa, _>(region, &opening, &settings, &Inline).unwrap();
    let ElimDaTable::Words(table) = &table else { panic!("the form has words") };
    let mut loads = Vec::new();
    for key in 0..PAIRS {
        assert!(table.insert_word(key, key).unwrap());
        if (key + 1).is_multiple_of(EVERY) {
            loads.push(table.stats().unwrap().load_factor());
        }
    }
    // Without the first million, in which a few segments decide.
    let settled = &loads[(1_000_000 / EVERY) as usize..];
    let mean = |loads: &[f64]| loads.iter().sum::<f64>() / loads.len() as f64;
    let (least, most) = settled
        .iter()
        .fold((1.0, 0.0), |(least, most): (f64, f64), load| (least.min(*load), most.max(*load)));
    println!("mean {:.3}, after the first million {:.3}", mean(&loads), mean(settled));
    println!("from {least:.3} to {most:.3}, {:.3} at the end", loads[loads.len() - 1]);
    assert!(mean(&loads) >= 0.65);
    assert_eq!(table.len(), PAIRS);
}
