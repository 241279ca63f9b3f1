//! Every byte in use belongs to a log or waits for the end of an epoch, and what areas count of
//! their logs is what there is: whatever is done, and however full the medium is.

use core::time::Duration;

use everhash_index::{Change, Error, Form, Result, Table};
use everhash_pmem::{Domain, Guarantees, Image, Lock, Std, pool};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::walsh::layout;
use crate::walsh::{Walsh, WalshSettings, WalshTable};

const MEMORY: Guarantees =
    Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 };
const FILE: Guarantees =
    Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };

/// Demands that the room in use is that of what there is, and that areas count their logs right.
fn is_accounted_for(table: &WalshTable<Image>, when: &str) {
    let mut logs_bytes = 0;
    for area in &table.areas {
        let state = area.state.lock().unwrap();
        let logs = state.logs.iter().map(|log| (log.span.bytes(), log.count));
        let open = state.open.map(|log| (log.span.bytes(), log.count));
        let (mut bytes, mut count) = (0, 0);
        for (of_log, objects) in logs.chain(open) {
            (bytes, count) = (bytes + of_log, count + objects);
        }
        let counted = state.log_bytes + state.long_bytes;
        assert_eq!((counted, state.stored), (bytes, count), "{when}: area {}", area.number);
        logs_bytes += bytes;
    }
    let retired: u64 = table.reserve.lock().unwrap().retired.iter().map(|it| it.bytes()).sum();
    let areas = layout::area_table(pool::DATA, table.areas.len() as u64).bytes();
    let used = table.space.usage().unwrap().used_bytes;
    assert_eq!(used, areas + logs_bytes + retired, "{when}");
}

/// Does something at random; says what.
fn act(session: &mut Session<Walsh>, random: &mut Random, step: u64) -> (&'static str, Result<()>) {
    let form = Table::form(session.table());
    let shape = Shape { longest_value: 300, ..Shape::tiny(form) };
    let (key, value) = (shape.key(random.below(150) as u16), shape.value(step as u32));
    // Now and then longer than a log.
    let is_long = form == Form::Variable && random.once_in(40);
    let value = if is_long { vec![step as u8; 4000] } else { value };
    let table = session.table();
    match random.below(200) {
        0 => ("clear", table.clear()),
        1..5 => ("sync", table.sync()),
        5..20 => ("upkeep", table.maintain(Duration::from_secs(step), 8).map(drop)),
        20..24 => ("reopen", session.reopen()),
        24..28 => ("kill", session.kill_unsynced()),
        28 => ("outage", session.outage()),
        30..70 => ("remove", table.remove(&key).map(drop)),
        70..90 => ("modify", table.modify(&key, &mut |_| Change::Put(value.clone()))),
        _ => ("put", table.put(&key, &value).map(drop)),
    }
}

#[test]
fn every_byte_in_use_is_accounted_for() {
    // Fails if a log is lost that was refused because of the reserve, that a rehash or a clear
    // ended, or that was taken before a flush failed; or if an area counts one twice or never.
    let mut refused = 0;
    for (form, guarantees) in super::FORMS.into_iter().flat_map(|it| [(it, MEMORY), (it, FILE)]) {
        for capacity in [40 << 10, 1 << 20] {
            let image = Image::<Std>::new(0, capacity).with_guarantees(guarantees);
            let mut session =
                Session::<Walsh>::create(image, form, &WalshSettings::tiny()).unwrap();
            let mut random = Random::new(capacity);
            for step in 0..2500 {
                let (what, outcome) = act(&mut session, &mut random, step);
                match outcome {
                    Ok(()) => {}
                    Err(Error::Full { .. }) => refused += 1,
                    Err(error) => panic!("{what}: {error}"),
                }
                let when = format!("{form}, {capacity} bytes: {what}, step {step}");
                is_accounted_for(session.table(), &when);
            }
            session.table().check().unwrap();
        }
    }
    assert!(refused > 100, "{refused}: the media were never full");
}

#[test]
fn bytes_of_live_objects_go_with_the_pairs() {
    // Fails if what a new version or a removal leaves behind counts as alive: room for it would be
    // kept back, until a table with a few pairs is full.
    for form in super::FORMS {
        let shape = Shape::tiny(form);
        let settings = WalshSettings { resize: 0, ..WalshSettings::tiny() };
        let session = Session::<Walsh>::create(Image::new(0, 1 << 20), form, &settings).unwrap();
        let table = session.table();
        let alive = || -> u64 {
            table.areas.iter().map(|area| area.state.lock().unwrap().item_bytes).sum()
        };
        for round in 0..10 {
            for key in 0..40 {
                assert!(!table.put(&shape.key(key), &shape.value(1)).unwrap());
            }
            let all = alive();
            (0..40).for_each(|key| assert!(table.put(&shape.key(key), &shape.value(1)).unwrap()));
            assert_eq!(alive(), all, "{form}, round {round}");
            (0..40).for_each(|key| assert!(table.remove(&shape.key(key)).unwrap()));
            assert_eq!(alive(), 0, "{form}, round {round}");
        }
    }
}

#[test]
fn an_area_counts_the_same_bytes_after_a_killed_process() {
    // Fails if a recovery counts the length of what was replaced or removed: an empty table kept
    // room back for it, the more the more often its process was killed, and refused every pair.
    for (form, guarantees) in super::FORMS.into_iter().flat_map(|it| [(it, MEMORY), (it, FILE)]) {
        for durability in [0, 1] {
            let shape = Shape { longest_value: 300, ..Shape::tiny(form) };
            let settings = WalshSettings { durability, ..WalshSettings::tiny() };
            let image = Image::<Std>::new(0, 1 << 20).with_guarantees(guarantees);
            let mut session = Session::<Walsh>::create(image, form, &settings).unwrap();
            let mut random = Random::new(durability);
            // Of what the newest log replaced, a rehash may have dropped the logs.
            let most_more = settings.log_bytes.max(300 + 64);
            let counted = |session: &Session<Walsh>| -> Vec<(u64, u64)> {
                let areas = session.table().areas.iter();
                let states = areas.map(|area| area.state.lock().unwrap());
                states.map(|state| (state.items, state.item_bytes)).collect()
            };
            for step in 0..1500u32 {
                let key = shape.key(random.below(60) as u16);
                match random.once_in(3) {
                    true => drop(session.table().remove(&key).unwrap()),
                    false => drop(session.table().put(&key, &shape.value(step)).unwrap()),
                }
                if random.once_in(20) {
                    let before = counted(&session);
                    session.kill_unsynced().unwrap();
                    for (now, before) in counted(&session).into_iter().zip(before) {
                        let range = before.1..=before.1 + most_more;
                        let case =
                            format!("{form}, {durability}, step {step}: {now:?}, {before:?}");
                        assert!(now.0 == before.0 && range.contains(&now.1), "{case}");
                        assert!(form == Form::Variable || now == before, "{case}");
                    }
                }
            }
            for key in 0..60 {
                session.table().remove(&shape.key(key)).unwrap();
                session.kill_unsynced().unwrap();
            }
            assert_eq!(counted(&session), [(0, 0), (0, 0)], "{form}, {durability}");
        }
    }
}
