//! Hot keys: what is written again and again stays near.

use everhash_index::{Form, Table, WordTable};
use everhash_pmem::{Image, Std};
use everhash_testkit::session::Session;

use crate::walsh::directory::directory_of;
use crate::walsh::{Walsh, WalshSettings};

#[test]
fn keys_that_are_written_in_turn_lengthen_their_chain_up_to_a_bound() {
    // Fails if the chain of one key grows with its updates, or if that of two keys, of which
    // neither is passed over, grows beyond the garbage at which the area is collected; and if a
    // third key of the chain cannot be read meanwhile.
    let settings =
        WalshSettings { areas: 1, directories: 1 << 8, threshold: 4, ..WalshSettings::default() };
    let image = Image::<Std>::new(0, 8 << 20);
    let session: Session<Walsh> = Session::create(image, Form::WORDS, &settings).unwrap();
    let table = session.table();
    let directory = |key: u64| directory_of(table.hasher.word(key), 8);
    let keys: Vec<u64> = (0..).filter(|key| directory(*key) == directory(0)).take(3).collect();
    table.put_word(keys[2], 7).unwrap();
    let longest = |count: usize| {
        let mut longest = 0;
        for step in 0..20_000u64 {
            table.put_word(keys[step as usize % count], step).unwrap();
            if step % 64 == 0 {
                let area = &table.areas[0];
                let state = table.lock(area).unwrap();
                let number = directory_of(table.hasher.word(keys[0]), state.view.level());
                let head = table.blocks.read(&area.sides[state.view.side()], number).head();
                let mut length = 0u64;
                table.walk(&table.pool.access(), head, &mut |_, _, _| length += 1).unwrap();
                longest = length.max(longest);
                drop(state);
                assert_eq!(table.get_word(keys[2]).unwrap(), Some(7));
            }
        }
        longest
    };
    let of_one = longest(1);
    // A rehash may put another key before it, once.
    assert!(of_one <= 4, "{of_one}");
    let of_two = longest(2);
    println!("{of_two} objects in the chain of two keys");
    assert!(of_two <= 2 * 4 * 256 + 512, "{of_two}");
    assert_eq!(table.len().unwrap(), 3);
}
