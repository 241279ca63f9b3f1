//! What a check of an open table says of directories that lead elsewhere.

use everhash_index::{Error, Form, Table, WordTable};
use everhash_pmem::{Image, Std};
use everhash_testkit::session::Session;

use crate::walsh::layout::Directory;
use crate::walsh::{Walsh, WalshSettings};

#[test]
fn a_check_notices_a_directory_that_leads_past_a_key() {
    // Fails if the check of an open table looks at the medium only, or not at the directories that
    // a rehash has not reached: a look-up would say that a key is absent which is there.
    let settings = WalshSettings { directories: 64, ..WalshSettings::tiny() };
    let session =
        Session::<Walsh>::create(Image::<Std>::new(0, 4 << 20), Form::WORDS, &settings).unwrap();
    let table = session.table();
    let is_moving = |area: usize| table.lock(&table.areas[area]).unwrap().view.old().is_some();
    let mut keys = 0..10_000;
    while !is_moving(0) {
        assert!(table.insert_word(keys.next().unwrap(), 1).unwrap());
    }
    table.check().unwrap();
    let area = &table.areas[0];
    let view = table.lock(area).unwrap().view;
    let sides = [(view.side(), view.level()), (1 - view.side(), view.old().unwrap())];
    for (side, level) in sides {
        let slots = (0..1 << level).filter_map(|it| table.blocks.slot(&area.sides[side], it));
        let mut noticed = 0;
        for slot in slots.filter(|slot| !slot.read().behind().is_null()) {
            let directory = slot.read();
            slot.write(Directory { older: 0, ..directory });
            let checked = table.check();
            assert!(matches!(checked, Err(Error::Corrupt { .. })), "{side}: {checked:?}");
            slot.write(directory);
            noticed += 1;
        }
        println!("side {side}: {noticed} directories");
        assert!(noticed > 0, "side {side}: {noticed}");
    }
    table.check().unwrap();
}
