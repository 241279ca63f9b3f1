//! Each rule of the format broken alone, in a pool that is sound otherwise: with all checks right,
//! it is named by the judge of pools at rest and by the open.

use everhash_index::{Error, Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, Image, Lock, Region, Std};
use everhash_testkit::session::Session;

use crate::common::settings::checksum;
use crate::common::slot_codec::Words;
use crate::elimda::layout::{
    self, CollectingLog, Control, Ended, Kind, LineState, LogLine, LogSlot, MOST_LAP, ROOT, Root,
    UnitHead, UnitState,
};
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable, check};

/// A generation that no log of these pools has come to.
const GENERATION: u64 = 1 << 20;

/// What somebody changes in the words of a medium, on which this table lies.
type Forge = fn(&Inner<Image, Words>, &mut [u64]);

/// A pool whose process was killed, with pairs in all layers. It has more than one extent.
fn pool() -> Session<ElimDa> {
    let medium = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let words = session.table().words().unwrap();
    (0..150).for_each(|key| assert!(words.insert_word(key, 1).unwrap()));
    session
}

/// Returns what the judge and the open say of a pool.
fn answers(words: &[u64]) -> [Option<Error>; 2] {
    let bytes = words.len() as u64 * 8;
    let image =
        || Image::<Std>::of(words, bytes, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let checked = check::check(&Region::new(image()), &mut |_, _| {});
    let opened = Session::<ElimDa>::open_after_power(image(), Form::WORDS);
    [checked.map(drop).err(), opened.map(drop).err()]
}

/// Changes sound pools, each in one way; demands that the judge, the open, or both refuse each.
fn refused(by: [bool; 2], forgeries: &[(&str, Forge)]) {
    for (name, forge) in forgeries {
        let session = pool();
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        let mut words = session.region().media().words();
        assert!(answers(&words).iter().all(Option::is_none));
        forge(table, &mut words);
        for (answer, is_demanded) in answers(&words).iter().zip(by) {
            let is_refused = matches!(answer, Some(Error::Corrupt { .. }));
            assert!(is_refused || !is_demanded, "{name}: {answer:?}");
        }
    }
}

fn set(words: &mut [u64], at: Addr, word: u64) {
    words[at.word() as usize] = word;
}

/// The first unit of a table: a hash of its bucket, and where the unit lies.
fn unit(table: &Inner<Image, Words>) -> (u64, Addr) {
    let geometry = table.geometry;
    let has_units = |hash: &u64| table.locate(*hash).bucket.units() > 0;
    let hash = (0..4).flat_map(|part| [part << 62, part << 62 | 1]).find(has_units).unwrap();
    let at = table.locate(hash);
    (hash, geometry.unit_at(at.segment.at(), at.bucket.entry(0).unit))
}

/// Stores the state of the first unit of a table.
fn set_unit(table: &Inner<Image, Words>, words: &mut [u64], change: fn(&mut UnitState)) {
    let (_, at) = unit(table);
    let mut state = UnitState::open(words[at.word() as usize], at).unwrap();
    change(&mut state);
    set(words, at, state.seal(at));
}

/// Stores a key in the first slot of that unit, for which `is_wanted` is true of its hash and of
/// one of the bucket.
fn set_unit_key(
    table: &Inner<Image, Words>,
    words: &mut [u64],
    is_wanted: fn(&Inner<Image, Words>, u64, u64) -> bool,
) {
    let (hash, at) = unit(table);
    let key = (1000..).find(|key| is_wanted(table, table.hasher.word(*key), hash)).unwrap();
    set(words, table.geometry.unit_item(at, 0), key);
    set_unit(table, words, |state| state.live |= 1);
}

/// The open block of lane 0, which is not the first one, and its number.
fn open_block(table: &Inner<Image, Words>) -> (Addr, u64) {
    let lane = table.lanes[0].lock().unwrap();
    (lane.blocks.back().unwrap().at, lane.last_number())
}

/// Writes the open block of lane 0 anew, with so many keys of which `is_wanted` is true.
fn set_log_keys(
    table: &Inner<Image, Words>,
    words: &mut [u64],
    count: usize,
    is_wanted: fn(&Inner<Image, Words>, u64) -> bool,
) {
    let (geometry, (block, number)) = (table.geometry, open_block(table));
    let keys = (1000..).filter(|key| is_wanted(table, table.hasher.word(*key)));
    let mut keys = keys.take(count);
    for line in 1..geometry.block_lines {
        let slots = geometry.slots_of_line(line);
        let at = LogSlot { line, slot: 0 }.line_at(block);
        let (mut checks, mut live) = (0, 0);
        for place in (0..slots).map(|slot| LogSlot { line, slot }) {
            let Some(key) = keys.next() else { break };
            let item_at = place.item_at(block, 2);
            set(words, item_at, key);
            live |= 1 << place.slot;
            checks = place.with_check(checks, layout::key_check(&[key, 0, 0, 0], 1, item_at));
        }
        set(words, at.plus(LogLine::CHECKS as u64), checks);
        set(words, at, LineState { number, live }.seal(at));
    }
}

/// Where the first collecting log of a collector lies.
fn log(table: &Inner<Image, Words>, collector: u64) -> Addr {
    let collectors = table.collectors.as_ref().unwrap();
    collectors.at(collectors.logs(collector).current)
}

/// Fills a collecting log with keys, which are these.
fn set_log(words: &mut [u64], at: Addr, keys: [u64; 2]) {
    for (slot, key) in (0..).zip(keys) {
        set(words, at.plus((CollectingLog::ITEMS + 2 * slot) as u64), key);
    }
    let control = Control { reserved: 2, written: 3, sealed: false, generation: GENERATION };
    set(words, at, control.seal(at));
    set(
        words,
        at.plus(CollectingLog::ENDED as u64),
        Ended { slots: 0, generation: GENERATION }.seal(at),
    );
}

/// Returns an absent key of a collector.
fn collected_key(table: &Inner<Image, Words>, collector: u64, skip: usize) -> u64 {
    let own = |key: &u64| table.geometry.collector_of(table.hasher.word(*key)) == collector;
    (1000..).filter(own).nth(skip).unwrap()
}

#[test]
fn p07_each_rule_of_segments_is_looked_at() {
    // Fails if a lap, a slot of the segment table or the order of extents is taken as it is.
    refused(
        [true, true],
        &[
            ("a lap beyond the last one", |table, words| {
                let at = table.geometry.lap_at(table.locate(0).segment.at());
                set(words, at, layout::seal(MOST_LAP + 1, at, Kind::Lap));
            }),
            ("no segment of the last hashes", |table, words| {
                let slot = table.table.slot_of(u64::MAX);
                let (extent, index) = layout::extent_of(4, slot);
                let at = table.segment_table.lock().unwrap().extents[extent].plus(index);
                set(words, at, 0);
            }),
            ("a link that is not the next one", |table, words| {
                let extents = table.segment_table.lock().unwrap().extents.len();
                assert!(extents > 1);
                let [last, behind] = [extents - 1, extents].map(layout::extent_link);
                let area = layout::open_link(words[last.word() as usize], last, Kind::Extent);
                set(words, behind, layout::seal(area.unwrap().byte(), behind, Kind::Extent));
                set(words, last, 0);
            }),
        ],
    );
}

#[test]
fn p07_each_rule_of_units_is_looked_at() {
    // Fails if the state of a unit is taken as it is, or if a key is accepted where no search looks
    // for it.
    refused(
        [true, true],
        &[
            ("lap 0", |table, words| set_unit(table, words, |state| state.lap = 0)),
            ("a bucket too many", |table, words| {
                set_unit(table, words, |state| state.bucket = 200);
            }),
            ("a slot too many", |table, words| set_unit(table, words, |state| state.live |= 8)),
            ("a key of another segment", |table, words| {
                set_unit_key(table, words, |table, key, hash| {
                    let is_same = table.geometry.bucket_of(key) == table.geometry.bucket_of(hash);
                    is_same && key >> 62 != hash >> 62
                });
            }),
            ("a key of another bucket", |table, words| {
                set_unit_key(table, words, |table, key, hash| {
                    let is_same = table.geometry.bucket_of(key) == table.geometry.bucket_of(hash);
                    !is_same && table.locate(hash).segment.prefix().covers(key)
                });
            }),
        ],
    );
    refused(
        [false, true],
        &[("more units of a bucket than it may have", |table, words| {
            let segment = table.locate(0).segment;
            for unit in 0..table.geometry.segment_units {
                let at = table.geometry.unit_at(segment.at(), unit);
                set(words, at, UnitState { live: 0, bucket: 0, lap: segment.lap() }.seal(at));
                let mark = at.plus(UnitHead::WATERMARK as u64);
                set(words, mark, layout::seal(0, mark, Kind::Watermark));
            }
        })],
    );
}

#[test]
fn p07_each_rule_of_the_backup_log_is_looked_at() {
    // Fails if blocks may be left out of a lane, if a line of a later block is taken for an empty
    // one, or if a D-bucket gets items that are not its own, or more than it has room for.
    refused(
        [true, true],
        &[
            ("a block is left out", |table, words| {
                let (at, number) = open_block(table);
                assert!(table.lanes[0].lock().unwrap().blocks.len() > 1);
                set(words, at, layout::seal(number + 1, at, Kind::Number));
            }),
            ("a lane without a block", |_, words| {
                let link = layout::first_link(0);
                set(words, link, layout::seal(0, link, Kind::First));
            }),
            ("a line of a later block", |table, words| {
                let (block, number) = open_block(table);
                let at = LogSlot { line: 1, slot: 0 }.line_at(block);
                set(words, at, LineState { number: number + 1, live: 0 }.seal(at));
            }),
            ("a key of another lane", |table, words| {
                set_log_keys(table, words, 1, |table, key| table.geometry.bucket_of(key) == 1);
            }),
        ],
    );
    refused(
        [false, true],
        &[("more items than a D-bucket holds", |table, words| {
            set_log_keys(table, words, 7, |table, key| {
                table.geometry.bucket_of(key) == 0 && table.locate(0).segment.prefix().covers(key)
            });
        })],
    );
}

#[test]
fn p07_each_rule_of_collecting_logs_is_looked_at() {
    // Fails if a slot counts that is behind the log, if an item counts where no search looks for
    // it, or if one log of a collector is dropped in silence.
    refused(
        [true, true],
        &[
            ("more slots than there are", |table, words| {
                let (at, reserved) = (log(table, 0), table.geometry.unit_slots + 1);
                let control =
                    Control { reserved, written: 0, sealed: false, generation: GENERATION };
                set(words, at, control.seal(at));
            }),
            ("a slot that was written and not handed out", |table, words| {
                let at = log(table, 0);
                let control =
                    Control { reserved: 1, written: 2, sealed: false, generation: GENERATION };
                set(words, at, control.seal(at));
            }),
            ("keys of two collectors", |table, words| {
                let keys = [0, 1].map(|collector| collected_key(table, collector, 0));
                set_log(words, log(table, 0), keys);
            }),
            ("logs that there are not", |_, words| {
                let root = ROOT.word() as usize;
                words[root + Root::COLLECTING_LOGS] = 0;
                words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
            }),
        ],
    );
    refused(
        [true, false],
        &[("ends of a generation to come", |table, words| {
            let at = log(table, 0).plus(CollectingLog::ENDED as u64);
            set(words, at, Ended { slots: 0, generation: GENERATION }.seal(log(table, 0)));
        })],
    );
    refused(
        [false, true],
        &[("two current logs of a collector", |table, words| {
            for collector in [0, 1] {
                let keys = [0, 1].map(|key| collected_key(table, 0, 2 * collector + key));
                set_log(words, log(table, collector as u64), keys);
            }
        })],
    );
}
