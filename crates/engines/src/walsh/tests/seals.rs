//! Every write durable by one fence: what it costs, and what recovery finds behind the tail.

use std::sync::Arc;

use everhash_index::{Engine, Form, Inline, Opening, Table, create};
use everhash_pmem::{Boot, Domain, Guarantees, Image, Region, Std, Traffic};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::settings::Immediate;
use crate::walsh::layout::{AreaRecord, Tail};
use crate::walsh::{Walsh, WalshSettings, WalshTable};

const SETTINGS: WalshSettings = WalshSettings {
    areas: 4,
    directories: 1 << 12,
    block_directories: 32,
    log_entries: 256,
    log_bytes: 6144,
    durability: 1,
    ..WalshSettings::tiny()
};

fn traffic(domain: Domain, form: Form, work: &dyn Fn(&WalshTable<Image>)) -> Traffic {
    let guarantees = Guarantees { domain, same_line_order: false, access_unit_bytes: 256 };
    let image = Image::<Std>::new(0, 16 << 20).with_guarantees(guarantees);
    let media = Arc::new(image.counted());
    let region = Region::new(Arc::clone(&media));
    let opening = Opening { form, ..Opening::default() };
    let table = create::<Walsh, _>(region, &opening, &SETTINGS, &Inline).unwrap();
    work(&table);
    let before = media.traffic();
    work(&table);
    media.traffic() - before
}

/// Writes of each kind, and how often a log is begun for them at most.
const WRITES: u16 = 500;
const LOGS: u64 = 3 * WRITES as u64 * 3 / 100;

fn write(table: &WalshTable<Image>, shape: &Shape) {
    for number in 0..WRITES {
        let key = shape.key(number);
        assert!(table.insert(&key, &shape.value(1)).unwrap());
        assert!(table.update(&key, &shape.value(2)).unwrap());
        assert!(table.remove(&key).unwrap());
    }
}

#[test]
fn an_immediate_write_waits_for_the_device_once() {
    // Fails if an insert, an update or a remove of any form has a second fence, or flushes more
    // than the lines of its object; on a file, if it waits for a second sync.
    for form in super::FORMS {
        let shape = Shape::tiny(form);
        let writes = 3 * u64::from(WRITES);
        let memory = traffic(Domain::Adr, form, &|table| write(table, &shape));
        let lines = memory.lines_flushed as f64 / writes as f64;
        println!("{form}: {} fences and {lines:.2} lines for {writes} writes", memory.fences);
        // Four fences are for a log of some dozen objects.
        assert!((writes..writes + 4 * LOGS).contains(&memory.fences));
        let most = if form == Form::WORDS { 1.4 } else { 2.4 };
        assert!(lines < most, "{form}: {lines}");
        let file = traffic(Domain::Synced, form, &|table| write(table, &shape));
        assert!((writes..writes + 4 * LOGS).contains(&file.fences), "{file:?}");
        assert_eq!(file.syncs, 0);
    }
}

#[test]
fn objects_behind_the_tail_are_found_after_a_power_failure() {
    // Fails if recovery believes the tail alone, or takes an object of another life of the log:
    // every log comes again and again here, with objects at the same places.
    let shape = Shape::tiny(Form::WORDS);
    let mut session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
    for number in 0..600u16 {
        let key = shape.key(number % 23);
        session.table().put(&key, &shape.value(number.into())).unwrap();
        if number % 5 == 0 {
            // Without a sync, in another boot: the visible tail says nothing.
            let medium = session.region().media().clone();
            session = Session::open_after_power(medium, Form::WORDS).unwrap();
        }
        let mut value = Vec::new();
        assert!(session.table().get(&key, &mut value).unwrap());
        assert_eq!(value, shape.value(number.into()));
        assert_eq!(session.table().len().unwrap(), u64::from(number.min(22)) + 1);
    }
    session.table().check().unwrap();
}

#[test]
fn a_write_that_a_killed_process_did_not_show_stays_away_after_power_loss() {
    // Fails if recovery leaves a whole object behind the visible tail: it was not shown, and the
    // recovery after power loss would find it by its seal, after a clean close too.
    let shape = Shape::tiny(Form::WORDS);
    let (key, mut value) = (shape.key(1), Vec::new());
    for is_closed in [false, true] {
        let mut session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
        let (table, region) = (session.table(), session.region().clone());
        table.put(&key, &shape.value(1)).unwrap();
        let record = table.area(table.hasher.bytes(&key)).record;
        let place = record.plus(AreaRecord::VISIBLE_TAIL as u64);
        let before = region.access().load(place).unwrap();
        table.put(&key, &shape.value(2)).unwrap();
        let [old, new] = [before, region.access().load(place).unwrap()]
            .map(|word| Tail::decode(word, place).unwrap());
        assert_eq!((old.at, old.count + 1), (new.at, new.count));
        // As if the process had been killed before the last store of the put.
        region.access().store(place, before).unwrap();
        session.kill_unsynced().unwrap();
        assert!(session.table().get(&key, &mut value).unwrap());
        assert_eq!(value, shape.value(1));
        if is_closed {
            session.reopen().unwrap();
        }
        drop(session);
        let medium = region.media().clone();
        let session = Session::<Immediate>::open_after_power(medium, Form::WORDS).unwrap();
        assert!(session.table().get(&key, &mut value).unwrap());
        assert_eq!(value, shape.value(1), "closed between: {is_closed}");
    }
}

#[test]
fn salvage_reports_a_damaged_object_behind_the_durable_tail() {
    // Fails if damage passes for the end of a log, and what follows is lost without a word.
    let shape = Shape::tiny(Form::WORDS);
    let mut session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
    for number in 0..3 {
        session.table().put(&shape.key(1), &shape.value(number)).unwrap();
    }
    let table = session.table();
    let area = table.area(table.hasher.bytes(&shape.key(1)));
    let open = table.lock(area).unwrap().open.unwrap();
    session.kill_unsynced().unwrap();
    session.table().put(&shape.key(1), &shape.value(3)).unwrap();
    let region = session.region().clone();
    drop(session);
    let salvaged = || {
        let mut reports = 0;
        Walsh::salvage(&region, Boot::default(), &mut |_, _| {}, &mut |_| reports += 1).unwrap();
        reports
    };
    assert_eq!(salvaged(), 0);
    let newest = open.span.start.plus(open.fill + 1);
    let word = region.access().load(newest).unwrap();
    region.access().store(newest, word ^ 1).unwrap();
    assert_eq!(salvaged(), 1);
}

#[test]
fn an_opening_stores_nothing_where_nothing_was_written() {
    // Fails if the unused ends of logs are filled with zeros. In a sparse copy of a file they are
    // holes, and a store into one on a full disk is the end of the process.
    let media = Arc::new(Image::<Std>::new(0, 16 << 20).counted());
    let created = Session::<Walsh, Image>::create(Arc::clone(&media), Form::WORDS, &SETTINGS);
    let (mut session, shape) = (created.unwrap(), Shape::tiny(Form::WORDS));
    (0..2000)
        .for_each(|key| assert!(session.table().insert(&shape.key(key), &shape.value(1)).unwrap()));
    let before = media.traffic();
    session.kill_unsynced().unwrap();
    let stored = (media.traffic() - before).words_stored;
    println!("{stored} words are stored");
    // Four areas, each with a log that is half full on average.
    assert!(stored < SETTINGS.log_bytes / 8 / 2, "{stored} words");
    assert_eq!(session.table().len().unwrap(), 2000);
}
