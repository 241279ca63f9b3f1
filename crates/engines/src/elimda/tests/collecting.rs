//! The cache layer: what its logs cost, who may meet in them, and pools that move between machines
//! with durable caches and others.

use core::ops::ControlFlow;

use everhash_index::{Design, Form, Table, WordTable};
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen, What};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Boot, Domain, Guarantees, Image};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::session::Session;
use everhash_testkit::{model, race};

use super::each_crash::after_each_crash;
use crate::elimda::collectors::Logs;
use crate::elimda::layout::{
    CollectingLog, Control, Ended, Geometry, Kind, LOGS_LINK, Root, open_link,
};
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

#[test]
fn it_is_a_map_with_durable_caches() {
    // Fails if a key is missed or doubled between a collecting log and the layers below.
    for form in super::FORMS {
        let effort = model::Effort { medium: Model::Eadr, ..model::Effort::default() };
        let report = model::judge(&Design::of::<ElimDa>(), form, &effort);
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn threads_do_not_disturb_one_another_with_durable_caches() {
    // Fails if a key that moves from layer to layer is missed, inserted twice, or changed in a
    // place that it has left; and if an answer is taken back by a crash.
    for form in super::FORMS {
        let effort = race::Effort { seeds: 0..20, model: Model::Eadr, ..race::Effort::default() };
        let report = race::judge(&race::Subject::of::<ElimDa>(), form, &effort);
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn real_threads_do_not_disturb_one_another_with_durable_caches() {
    // Fails as above, in the orders of the processor.
    for form in super::FORMS {
        let stress = race::Stress { model: Model::Eadr, ..race::Stress::default() };
        let report = race::stress(&Design::of::<ElimDa>(), form, &stress);
        println!("{form}: {:?}", report.unwrap_or_else(|complaint| panic!("{complaint}")));
    }
}

#[test]
fn an_insert_into_a_collecting_log_flushes_nothing() {
    // Fails if the path for volatile caches is taken, or if a log is flushed before it is full.
    let eadr = Model::Eadr.guarantees();
    let measured = Measured::<ElimDa>::new(Form::WORDS, &ElimDaSettings::default(), eadr).unwrap();
    let insert = |key: u64| {
        let key = key.to_le_bytes();
        assert!(measured.table.insert(&key, &key).unwrap());
        assert!(!measured.table.insert(&key, &[0; 8]).unwrap());
    };
    let cost = measured.cost(0..1000, insert);
    assert_eq!((cost.lines, cost.fences, cost.commits), (0.0, 0.0, 2.0));
    assert_eq!(measured.table.check().unwrap().items, 1000);
}

#[test]
fn collecting_logs_are_used_only_where_caches_are_durable() {
    // Fails if inserts rely on durable caches that the medium does not claim.
    for model in Model::ALL {
        let guarantees = model.guarantees();
        let settings = ElimDaSettings::tiny();
        let measured = Measured::<ElimDa>::new(Form::WORDS, &settings, guarantees).unwrap();
        let stats = measured.table.stats().unwrap();
        let logs = stats.own.iter().find(|(own, _)| *own == "collecting_logs").unwrap().1;
        assert_eq!(logs > 0, model == Model::Eadr, "{model}");
    }
    // A store survives the end of a process by itself: that is as durable as caches.
    let process = Guarantees { domain: Domain::Process, ..Model::File.guarantees() };
    let measured = Measured::<ElimDa>::new(Form::WORDS, &ElimDaSettings::tiny(), process).unwrap();
    let cost = measured.cost(0..3, |key| {
        assert!(measured.table.insert(&key.to_le_bytes(), &[0; 8]).unwrap());
    });
    assert_eq!((cost.lines, cost.fences), (0.0, 0.0));
    let none = ElimDaSettings { collecting_logs: 0, ..ElimDaSettings::default() };
    let eadr = Model::Eadr.guarantees();
    let measured = Measured::<ElimDa>::new(Form::WORDS, &none, eadr).unwrap();
    let cost = measured.cost(0..100, |key| {
        assert!(measured.table.insert(&key.to_le_bytes(), &[0; 8]).unwrap());
    });
    assert_eq!(cost.fences, 1.0);
}

fn image_of(words: &[u64], model: Model) -> Image {
    let bytes = words.len() as u64 * 8;
    Image::of(words, bytes, 1 << 20).with_guarantees(model.guarantees())
}

fn pair(form: Form, key: u64) -> Vec<u8> {
    let bytes = key.to_le_bytes().to_vec();
    if form == Form::DOUBLE_WORDS { bytes.repeat(2) } else { bytes }
}

#[test]
fn a_pool_moves_between_machines_with_durable_caches_and_others() {
    // Fails if an open without durable caches forgets what the collecting logs hold, leaves them
    // behind, or counts a pair twice; and if logs cannot be made for a pool that has none.
    for form in super::FORMS {
        let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
        let session = Session::<ElimDa>::create(eadr, form, &ElimDaSettings::tiny()).unwrap();
        for key in 0..50 {
            assert!(session.table().insert(&pair(form, key), &pair(form, key)).unwrap());
        }
        assert!(session.table().remove(&pair(form, 49)).unwrap());
        let mut words = session.region().media().words();
        let logged = session.table().check().unwrap().items;
        assert_eq!(logged, 49);
        for model in [Model::Adr, Model::Eadr, Model::File] {
            let session = Session::<ElimDa>::open(image_of(&words, model), form).unwrap();
            let link = session.region().access().load(LOGS_LINK).unwrap();
            assert_eq!(link != 0, model == Model::Eadr, "{form}, {model}");
            assert_eq!(session.table().len().unwrap(), 49, "{form}, {model}");
            assert_eq!(session.table().check().unwrap().items, 49, "{form}, {model}");
            for key in 0..49 {
                let mut value = Vec::new();
                assert!(session.table().get(&pair(form, key), &mut value).unwrap(), "{key}");
                assert_eq!(value, pair(form, key));
            }
            words = session.region().media().words();
        }
    }
}

/// What a process leaves whose stores outlive it: pairs in collecting logs, and some below.
fn killed(form: Form, settings: &ElimDaSettings, keys: u64) -> Vec<u64> {
    let process = Guarantees { domain: Domain::Process, ..Model::File.guarantees() };
    let image = Image::new(0, 4 << 20).with_guarantees(process);
    let session = Session::<ElimDa>::create(image, form, settings).unwrap();
    for key in 0..keys {
        assert!(session.table().insert(&pair(form, key), &pair(form, key)).unwrap());
        // New values, in all layers.
        let changed = key / 2;
        if key % 5 == 0 {
            assert!(session.table().update(&pair(form, changed), &pair(form, !changed)).unwrap());
        }
    }
    session.region().media().words()
}

#[test]
fn an_open_that_leaves_the_collecting_logs_waits_for_the_device_a_few_times() {
    // Fails if items leave them one by one: an open takes minutes then.
    let settings = ElimDaSettings { collecting_logs: 256, ..ElimDaSettings::default() };
    for form in super::FORMS {
        let words = killed(form, &settings, 2000);
        let medium = Traced::new(Model::File, 0, 4 << 20);
        medium.restart(&words);
        let session = Session::<ElimDa, Traced>::open(medium, form).unwrap();
        let waits = session.region().media().take_log();
        let waits = waits.events().iter().filter(|it| matches!(it.what, What::Fence | What::Sync));
        let waits = waits.count();
        println!("{form}: {waits}");
        assert_eq!(session.region().access().load(LOGS_LINK).unwrap(), 0, "{form}");
        assert_eq!(session.table().check().unwrap().items, 2000, "{form}");
        assert!(waits < 24, "{form}: {waits}");
    }
}

#[test]
fn a_crash_while_the_collecting_logs_are_left_takes_nothing_away() {
    // Fails if the copies in the logs go before those in the device table are durable, if a unit
    // counts before its items do, or if an item comes back with its old value.
    let settings = ElimDaSettings { collecting_logs: 16, ..ElimDaSettings::tiny() };
    for (form, model) in super::FORMS.into_iter().zip([Model::File, Model::File, Model::Adr]) {
        const KEYS: u64 = 60;
        let words = killed(form, &settings, KEYS);
        let medium = Traced::new(model, 0, 1 << 20);
        medium.restart(&words);
        let session = Session::<ElimDa, Traced>::open(medium, form).unwrap();
        let log = session.region().media().take_log();
        assert!(session.table().stats().unwrap().growth_steps > 0, "no segment was full");
        after_each_crash(model, form, words, &log, |after| {
            assert_eq!(after.table().len().unwrap(), KEYS, "{form}");
            assert_eq!(after.table().check().unwrap().items, KEYS, "{form}");
            for key in 0..KEYS {
                let is_changed = (0..KEYS).any(|at| at % 5 == 0 && at / 2 == key);
                let wanted = pair(form, if is_changed { !key } else { key });
                let mut value = Vec::new();
                assert!(after.table().get(&pair(form, key), &mut value).unwrap(), "{key}");
                assert_eq!(value, wanted, "{form}, {key}");
            }
        });
    }
}

#[test]
fn a_pool_with_collecting_logs_can_be_read_without_being_written() {
    // Fails if a reader that may not repair misses what the logs hold.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    for key in 0..10u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    let words = session.region().media().words();
    let mut items = 0;
    let image = everhash_pmem::Region::new(image_of(&words, Model::Adr));
    let checked =
        <ElimDa as everhash_index::Engine>::check(&image, Boot::default(), &mut |_, _| items += 1);
    assert_eq!((checked.unwrap().items, items), (10, 10));
    assert_eq!(image.media().words(), words);
}

/// The logs of a tiny pool: where they lie, and how many there are.
fn logs_of(words: &[u64]) -> (Addr, Geometry) {
    let link = LOGS_LINK.word() as usize;
    let area = open_link(words[link], LOGS_LINK, Kind::Logs).unwrap();
    let root = everhash_pmem::pool::ROOT.word() as usize;
    (area, Geometry::of_root(&words[root..root + Root::WORDS], Form::WORDS).unwrap())
}

#[test]
fn an_item_that_a_crash_left_in_two_layers_is_there_once() {
    // Fails if recovery, or the judge of pools at rest, counts the copy in the collecting log, too:
    // a removal would then take one of them away, and the other would come back.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    for key in 0..40u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    let mut words = session.region().media().words();
    let (area, geometry) = logs_of(&words);
    let mut doubled = 0;
    for log in 0..geometry.all_logs() {
        let at = geometry.collecting_log(area, log);
        let first = at.word() as usize;
        let control = Control::open(words[first + CollectingLog::CONTROL], at).unwrap();
        if control.generation > 0 && control.written == 0 {
            // As it was before it was emptied, with nothing in it that is known to have moved.
            let full = Control {
                reserved: geometry.unit_slots,
                written: (1 << geometry.unit_slots) - 1,
                sealed: true,
                generation: control.generation - 1,
            };
            words[first + CollectingLog::CONTROL] = full.seal(at);
            words[first + CollectingLog::ENDED] =
                Ended { slots: 0, generation: full.generation }.seal(at);
            doubled += 1;
        }
    }
    assert!(doubled > 0, "no log was emptied");
    let session = Session::<ElimDa>::open(image_of(&words, Model::Eadr), Form::WORDS).unwrap();
    assert_eq!(session.table().len().unwrap(), 40);
    assert_eq!(session.table().check().unwrap().items, 40);
    for key in 0..40u64 {
        assert!(session.table().remove(&key.to_le_bytes()).unwrap(), "{key}");
    }
    let words = session.region().media().words();
    for model in [Model::Eadr, Model::Adr] {
        let session = Session::<ElimDa>::open(image_of(&words, model), Form::WORDS).unwrap();
        assert_eq!(session.table().len().unwrap(), 0, "{model}");
    }
}

#[test]
fn a_slot_that_was_handed_out_and_not_written_holds_up_nobody_after_a_crash() {
    // Fails if recovery leaves the slot to a thread that is gone: the next insert waits for ever.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    let mut words = session.region().media().words();
    let (area, geometry) = logs_of(&words);
    for log in 0..geometry.all_logs() {
        let at = geometry.collecting_log(area, log);
        let control = Control { reserved: 2, written: 0, sealed: false, generation: 0 };
        words[at.word() as usize + CollectingLog::CONTROL] = control.seal(at);
    }
    let session = Session::<ElimDa>::open(image_of(&words, Model::Eadr), Form::WORDS).unwrap();
    for key in 0..40u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    assert_eq!(session.table().check().unwrap().items, 40);
}

#[test]
fn a_change_that_panics_holds_up_no_insert() {
    // Fails if the slot that was handed out for it is never written.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    let table = session.table();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.modify(&7u64.to_le_bytes(), &mut |_| panic!("on purpose"))
    }));
    assert!(panicked.is_err());
    let (mut added, mut poisoned) = (0, 0);
    for key in 100..140u64 {
        match table.insert(&key.to_le_bytes(), &[1; 8]) {
            Ok(true) => added += 1,
            _ => poisoned += 1,
        }
    }
    assert!(added > 0, "{poisoned} inserts were refused");
}

#[test]
fn memory_without_durable_caches_costs_one_fence_as_before() {
    // Fails if the settings of the cache layer change the path for volatile caches.
    let measured =
        Measured::<ElimDa>::new(Form::WORDS, &ElimDaSettings::default(), MEMORY).unwrap();
    let cost = measured.cost(0..1, |key| {
        assert!(measured.table.insert(&key.to_le_bytes(), &[0; 8]).unwrap());
    });
    assert_eq!((cost.lines, cost.fences), (1.0, 1.0));
}

#[test]
fn the_first_of_two_blind_inserts_stays_the_first_when_others_are_removed() {
    // Fails if a removal from a D-bucket brings the second pair of a key before its first one.
    let measured =
        Measured::<ElimDa>::new(Form::WORDS, &ElimDaSettings::tiny(), Model::Adr.guarantees());
    let measured = measured.unwrap();
    let bare = measured.table.bare().unwrap();
    for round in 0..40u64 {
        let [other, key] = [2 * round, 2 * round + 1].map(u64::to_le_bytes);
        bare.insert_blind(&other, &[0; 8]).unwrap();
        bare.insert_blind(&key, &[1; 8]).unwrap();
        bare.insert_blind(&key, &[2; 8]).unwrap();
        assert!(measured.table.remove(&other).unwrap());
        for before in 0..=round {
            let mut value = Vec::new();
            assert!(measured.table.get(&(2 * before + 1).to_le_bytes(), &mut value).unwrap());
            assert_eq!(value, [1; 8], "{before} in round {round}");
        }
    }
}

#[test]
fn the_paper_s_insert_looks_at_no_other_layer_and_the_first_one_wins() {
    // Fails if a blind insert is lost, is not counted, or hides what was there before it.
    for model in [Model::Adr, Model::Eadr] {
        let guarantees = model.guarantees();
        let settings = ElimDaSettings::tiny();
        let measured = Measured::<ElimDa>::new(Form::WORDS, &settings, guarantees).unwrap();
        let bare = measured.table.bare().unwrap();
        for key in 0..200u64 {
            bare.insert_blind(&key.to_le_bytes(), &[1; 8]).unwrap();
        }
        assert_eq!(measured.table.check().unwrap().items, 200);
        for key in 0..200u64 {
            bare.insert_blind(&key.to_le_bytes(), &[2; 8]).unwrap();
            let mut value = Vec::new();
            assert!(measured.table.get(&key.to_le_bytes(), &mut value).unwrap());
            assert_eq!(value, [1; 8], "{key}, {model}");
        }
        // A split drops those that it moves.
        assert!((201..=400).contains(&measured.table.len().unwrap()));
        assert!(measured.table.check().is_err(), "the judge misses a key that is there twice");
    }
}

#[test]
fn a_clear_meets_each_item_of_a_log_once_that_changes_its_collector() {
    // Fails if a log that a clear has read for one collector, and that serves the next one by now,
    // gives its items to both: they would be counted twice, and their records given back twice.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let collectors = table.collectors.as_ref().unwrap();
    let of_second = |key: &u64| table.geometry.collector_of(table.hasher.word(*key)) == 1;
    let key = (0..100).find(of_second).unwrap();
    assert!(table.insert_word(key, 1).unwrap());
    let [first, second] = [0, 1].map(|collector| collectors.logs(collector));
    // As a thread sees it that loads the logs of one collector early, and those of the next late.
    collectors.set_logs(0, Logs { in_flight: Some(second.current), ..first });
    let pm = session.region().access();
    let writer = table.lock(&pm, table.hasher.word(key)).unwrap();
    assert_eq!(table.collected_of(&pm, &writer).unwrap().len(), 1);
}

#[test]
fn an_unwritten_slot_holds_nothing_old_whatever_the_order_of_stores() {
    // Fails if recovery, on a medium that keeps no order, says that a slot is written which was
    // handed out only, and its end is lost in a power failure: what was in the log before it was
    // emptied is there again.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let session = Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    let insert = |key: u64| assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    (0..60).for_each(insert);
    (0..60u64).for_each(|key| assert!(session.table().remove(&key.to_le_bytes()).unwrap()));
    (100..104).for_each(insert);
    let mut words = session.region().media().words();
    let (area, geometry) = logs_of(&words);
    let mut pending = 0;
    for log in 0..geometry.all_logs() {
        let at = geometry.collecting_log(area, log);
        let first = at.word() as usize;
        let mut control = Control::open(words[first + CollectingLog::CONTROL], at).unwrap();
        if control.generation > 0 && (1..geometry.unit_slots).contains(&control.reserved) {
            control.reserved += 1;
            words[first + CollectingLog::CONTROL] = control.seal(at);
            pending += 1;
        }
    }
    assert!(pending > 0, "no log was used again");
    let open = |words: &[u64]| {
        let medium = Traced::new(Model::File, 0, 1 << 20);
        medium.restart(words);
        Session::<ElimDa, Traced>::open(medium, Form::WORDS)
    };
    let log = open(&words).unwrap().region().media().take_log();
    let mut explorer = Explorer::new(Memory::of(Model::File, words.clone()), log.events());
    let mut seen = Seen::default();
    while explorer.next_point().is_some() {
        let flow = explorer.states(&Limits::default(), &mut seen, 0, &mut |state| {
            let found = open(state.words()).and_then(|after| after.table().len());
            assert!(matches!(found, Ok(4)), "{found:?}");
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    assert!(explorer.count().states > 5, "{:?}", explorer.count());
}

#[test]
fn an_open_hands_the_spare_logs_out_again() {
    // Fails if empty logs are forgotten: full ones would be flushed in their place, and inserts
    // would wait for that.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let settings = ElimDaSettings { collecting_logs: 32, ..ElimDaSettings::tiny() };
    let mut session = Session::<ElimDa>::create(eadr, Form::WORDS, &settings).unwrap();
    let words = session.table().words().unwrap();
    (0..100).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    session.kill().unwrap();
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let collectors = table.collectors.as_ref().unwrap();
    let spares = core::iter::from_fn(|| collectors.take_spare().unwrap());
    assert_eq!(spares.count(), 4);
}

#[test]
fn the_first_of_two_blind_inserts_in_logs_stays_the_first() {
    // Fails if the log that was filled later is searched first, or if the second pair of a key
    // comes before its first one when both leave the logs.
    let create = || {
        let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
        Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap()
    };
    let blind = |session: &Session<ElimDa>, value: u64| {
        let bare = session.table().bare().unwrap();
        bare.insert_blind(&7u64.to_le_bytes(), &value.to_le_bytes()).unwrap();
    };
    let get = |session: &Session<ElimDa>| session.table().words().unwrap().get_word(7).unwrap();
    let session = create();
    blind(&session, 1);
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let collectors = table.collectors.as_ref().unwrap();
    let collector = table.geometry.collector_of(table.hasher.word(7));
    let first = collectors.logs(collector);
    let spare = collectors.take_spare().unwrap().unwrap();
    let swapped = Logs { current: spare, in_flight: Some(first.current), closed: false };
    collectors.set_logs(collector, swapped);
    blind(&session, 2);
    assert_eq!(get(&session), Some(1));
    let session = create();
    blind(&session, 1);
    blind(&session, 2);
    let words = session.region().media().words();
    let moved = Session::<ElimDa>::open(image_of(&words, Model::Adr), Form::WORDS).unwrap();
    assert_eq!(moved.region().access().load(LOGS_LINK).unwrap(), 0);
    assert_eq!((moved.table().len().unwrap(), get(&moved)), (2, Some(1)));
}

#[test]
fn a_close_empties_the_collecting_logs() {
    // Fails if pairs stay there though there is room below: an open where caches are not durable
    // would have to move them.
    let eadr = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let mut session =
        Session::<ElimDa>::create(eadr, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    for key in 0..10u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    let region = session.region().clone();
    session.close().unwrap();
    let words = region.media().words();
    let (area, geometry) = logs_of(&words);
    for log in 0..geometry.all_logs() {
        let at = geometry.collecting_log(area, log);
        let word = |offset| words[at.word() as usize + offset];
        let control = Control::open(word(CollectingLog::CONTROL), at).unwrap();
        let ended = Ended::open(word(CollectingLog::ENDED), at).unwrap();
        assert_eq!(control.written & !ended.of(control.generation), 0, "log {log}");
    }
}
