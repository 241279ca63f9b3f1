//! Pools whose words all match their checks, and that no table leaves: each rule by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use everhash_index::{Cursor, Engine, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::{Addr, Boot, Image, LINE, Region, Std};

use super::upkeep::{figure, insert_until_it_grows};
use crate::common::settings;
use crate::wophi::layout::{
    self, DoubleBucket, Kind, MOST_BUCKETS, NEXT, ROOT, Root, Token, WordBucket, successor,
};
use crate::wophi::{Wophi, WophiSettings, WophiTable};

/// Main buckets of extent 0.
const BUCKETS: u64 = 64;

fn make(form: Form) -> (Region<Image>, WophiTable<Image>) {
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let settings = WophiSettings { initial_buckets: BUCKETS, stripes: 8, ..WophiSettings::tiny() };
    let opening = Opening { form, ..Opening::default() };
    let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    (region, table)
}

/// The words of a pool.
#[derive(Clone)]
struct Forged {
    words: Vec<u64>,
    bucket_words: u64,
}

impl Forged {
    fn of(region: &Region<Image>, form: Form) -> Forged {
        let double = form == Form::DOUBLE_WORDS;
        let bucket_words = if double { DoubleBucket::WORDS } else { WordBucket::WORDS } as u64;
        Forged { words: region.media().words(), bucket_words }
    }

    fn region(&self) -> Region<Image> {
        let bytes = self.words.len() as u64 * 8;
        Region::new(Image::<Std>::of(&self.words, bytes, 1 << 20))
    }

    fn get(&self, at: Addr) -> u64 {
        self.words[at.word() as usize]
    }

    fn set(&mut self, at: Addr, word: u64) {
        self.words[at.word() as usize] = word;
    }

    /// Returns where main bucket `index` of an extent lies.
    fn main(&self, extent: usize, index: u64) -> Addr {
        let link = layout::extent_link(extent);
        let first = layout::decode_link(self.get(link), link).unwrap();
        first.plus(index * self.bucket_words)
    }

    fn token(&self, at: Addr, kind: Kind) -> Token {
        Token::decode(self.get(at), at, kind, 4).unwrap()
    }

    fn set_token(&mut self, at: Addr, kind: Kind, token: Token) {
        self.set(at, token.encode(at, kind));
    }

    fn link(&mut self, at: Addr, target: Addr) {
        let next = at.plus(NEXT as u64);
        self.set(next, layout::encode_link(target, next));
    }

    fn behind(&self, at: Addr) -> Addr {
        let next = at.plus(NEXT as u64);
        layout::decode_link(self.get(next), next).unwrap()
    }

    /// Returns the first main buckets of extent 0 with another one behind, and their indexes.
    fn chains(&self) -> Vec<(u64, Addr)> {
        let all = (0..BUCKETS).map(|index| (index, self.main(0, index)));
        all.filter(|(_, at)| self.behind(*at) != Addr::NULL).collect()
    }

    fn set_root(&mut self, index: usize, value: u64) {
        let root = ROOT.word() as usize;
        self.words[root + index] = value;
        let checksum = settings::checksum(ROOT, &self.words[root..root + Root::CHECKSUM]);
        self.words[root + Root::CHECKSUM] = checksum;
    }

    fn open(&self) -> Result<WophiTable<Image>> {
        open::<Wophi, _>(self.region(), Opening::default().boot, &Inline)
    }

    fn check(&self) -> Result<u64> {
        Wophi::check(&self.region(), Boot::default(), &mut |_, _| {}).map(|checked| checked.items)
    }

    /// Returns the rule that a check names, of a pool that an open refuses, too.
    fn refused(&self) -> &'static str {
        let opened = self.open().map(drop);
        assert!(opened.is_err(), "it was opened: {:?}", self.check());
        match self.check() {
            Err(Error::Corrupt { broken, .. }) => broken,
            checked => panic!("{checked:?}"),
        }
    }
}

/// A pool of words in which bucket 0 was split and the last one was not, and its pairs.
fn growing() -> (Forged, u64) {
    let (region, table) = make(Form::WORDS);
    let count = insert_until_it_grows(&table);
    table.maintain(Duration::ZERO, 8).unwrap();
    assert_eq!(figure(&table, "growing"), 1);
    drop(table);
    let pool = Forged::of(&region, Form::WORDS);
    assert_eq!([0, BUCKETS - 1].map(|it| pool.token(pool.main(0, it), Kind::Main).home()), [1, 0]);
    assert_eq!(pool.check().unwrap(), count);
    (pool, count)
}

#[test]
fn a_check_and_an_open_refuse_halves_and_chains_that_no_growth_leaves() {
    // Fails if the depth of a bucket, the owner of a chain or the place of a pair is not looked at:
    // pairs would be searched for where they are not.
    let (pool, _) = growing();
    let last = pool.main(0, BUCKETS - 1);
    let mut forged = pool.clone();
    forged.set_token(last, Kind::Main, pool.token(last, Kind::Main).with_home(2));
    assert_eq!(forged.refused(), "a bucket was split as often as the others");

    let mut forged = pool.clone();
    let upper = pool.main(1, 0);
    forged.set_token(upper, Kind::Main, pool.token(upper, Kind::Main).with_home(0));
    assert_eq!(forged.refused(), "both halves of a split have one depth");

    let (index, main) = *pool.chains().last().expect("a chain has two buckets");
    let chained = pool.behind(main);
    let mut forged = pool.clone();
    let token = pool.token(chained, Kind::Chained);
    forged.set_token(chained, Kind::Chained, token.with_home((index + 1) % BUCKETS));
    assert_eq!(forged.refused(), "a chained bucket belongs to its chain");

    let mut forged = pool.clone();
    forged.link(chained, chained);
    assert_eq!(forged.refused(), "one link leads to a chained bucket");

    // A pair of an upper half, in its lower main bucket: the store that split that removed it.
    let halves = |index| [pool.main(0, index), pool.main(1, index)];
    let has_moved = |[lower, upper]: &[Addr; 2]| {
        let [lower, upper] =
            [*lower, *upper].map(|at| Token::decode(pool.get(at), at, Kind::Main, 3));
        lower.is_some_and(|it| it.home() == 1 && it.count() < 3)
            && upper.is_some_and(|it| it.count() > 0)
    };
    let [lower, upper] = (0..BUCKETS).map(halves).find(has_moved).expect("a pair has moved");
    let from = pool.token(upper, Kind::Main).live_slots().next().unwrap();
    let token = pool.token(lower, Kind::Main);
    let to = (0..3).find(|slot| token.slot(*slot) == 0).unwrap();
    let slot = |at: Addr, slot: usize| at.plus((WordBucket::SLOTS + 2 * slot) as u64);
    let mut forged = pool.clone();
    (0..2).for_each(|word| {
        let pair = pool.get(slot(upper, from).plus(word));
        forged.set(slot(lower, to).plus(word), pair);
    });
    forged.set_token(lower, Kind::Main, token.with_slot(to, 1));
    assert_eq!(forged.refused(), "a key lies in the bucket it hashes to");
}

#[test]
fn a_check_and_an_open_refuse_roots_that_no_table_has() {
    // Fails if a number of the root is used that matches its checksum and is out of its range, or
    // if the extents have a gap, or lie beyond the end.
    let (region, table) = make(Form::WORDS);
    (0..50).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
    drop(table);
    let pool = Forged::of(&region, Form::WORDS);
    for (setting, value) in [
        (Root::INITIAL_BUCKETS, 48),
        (Root::INITIAL_BUCKETS, 0),
        (Root::INITIAL_BUCKETS, MOST_BUCKETS * 2),
        (Root::PAB_DIVISOR, 0),
    ] {
        let mut forged = pool.clone();
        forged.set_root(setting, value);
        assert_eq!(forged.refused(), "the settings of a table are in range", "{setting}: {value}");
    }
    let first = pool.main(0, 0);
    let link = |extent, target| {
        let mut forged = pool.clone();
        let link = layout::extent_link(extent);
        forged.set(link, layout::encode_link(target, link));
        forged.refused()
    };
    assert_eq!(link(2, first), "extents follow one another");
    let end = Addr::new(pool.words.len() as u64 * 8);
    assert_eq!(link(0, Addr::new(end.byte() - LINE)), "the extents lie inside the pool");
}

#[test]
fn a_check_and_an_open_refuse_a_chained_bucket_between_two_of_an_array() {
    // Fails if a link leads into the middle of two buckets: each would overwrite the other.
    let (region, table) = make(Form::DOUBLE_WORDS);
    drop(table);
    let mut pool = Forged::of(&region, Form::DOUBLE_WORDS);
    let between = pool.main(0, BUCKETS).plus(LINE / 8);
    pool.set_token(between, Kind::Chained, Token::empty(0));
    pool.link(between, Addr::NULL);
    pool.link(pool.main(0, 0), between);
    assert_eq!(pool.refused(), "a chained bucket is one of its array");
}

/// Stores a pair of double words in a slot of a bucket that holds others of the same hash only.
fn put_double(pool: &mut Forged, at: Addr, slot: usize, hash: u64, pair: [u64; 2]) {
    let first = if slot == 0 { DoubleBucket::SLOT_0 } else { 4 * slot + 4 } as u64;
    for (word, value) in [pair[0], pair[0], pair[1], pair[1]].into_iter().enumerate() {
        pool.set(at.plus(first + word as u64), value);
    }
    if slot > 0 {
        let (word, shift) = layout::print_place(slot);
        let at_word = at.plus(word as u64);
        let others = pool.get(at_word) & !(u64::from(u32::MAX) << shift);
        pool.set(at_word, others | layout::encode_print(hash, at, slot) << shift);
    }
}

#[test]
fn of_two_equal_keys_the_successor_is_the_newer_one() {
    // Fails if recovery, or a check, takes the older value of an update that a crash interrupted
    // for the newer one, in whatever order they lie and whatever their tokens are; or if more than
    // two, which no update leaves, pass.
    let key = 5u64.to_le_bytes().repeat(2);
    let (region, table) = make(Form::DOUBLE_WORDS);
    let WophiTable::DoubleWords(inner) = &table else { panic!("16/16 has double words") };
    let hash = inner.hasher.bytes(&key);
    drop(table);
    let pool = Forged::of(&region, Form::DOUBLE_WORDS);
    let (index, behind) = (hash % BUCKETS, pool.main(0, BUCKETS));
    let main = pool.main(0, index);
    for (old, in_main) in (1..4).flat_map(|old| [(old, true), (old, false)]) {
        let mut forged = pool.clone();
        forged.link(main, behind);
        forged.link(behind, Addr::NULL);
        let (token_main, token_behind) =
            if in_main { (old, successor(old)) } else { (successor(old), old) };
        put_double(&mut forged, main, 1, hash, [5, u64::from(!in_main)]);
        put_double(&mut forged, behind, 2, hash, [5, u64::from(in_main)]);
        forged.set_token(main, Kind::Main, Token::empty(0).with_slot(1, token_main));
        let token = Token::empty(index).with_slot(2, token_behind);
        forged.set_token(behind, Kind::Chained, token);
        let mut values = Vec::new();
        let visit = &mut |_: &[u8], value: &[u8]| values.push(value.to_vec());
        Wophi::check(&forged.region(), Boot::default(), visit).unwrap();
        let table = forged.open().unwrap();
        let mut value = Vec::new();
        assert!(table.get(&key, &mut value).unwrap());
        assert_eq!((&value, values), (&1u64.to_le_bytes().repeat(2), vec![value.clone()]));
        assert_eq!(table.len().unwrap(), 1, "{old}, {in_main}");
        // A third one, of the next token.
        put_double(&mut forged, main, 3, hash, [5, 9]);
        let third =
            Token::empty(0).with_slot(1, token_main).with_slot(3, successor(successor(old)));
        forged.set_token(main, Kind::Main, third);
        let checked = forged.check();
        let is_it = matches!(checked, Err(Error::Corrupt { broken, .. })
            if broken == "a key is there once");
        assert!(is_it, "{checked:?}");
    }
    let mut forged = pool.clone();
    put_double(&mut forged, main, 1, hash ^ 1 << 50, [5, 1]);
    forged.set_token(main, Kind::Main, Token::empty(0).with_slot(1, 1));
    let checked = forged.check();
    let is_it = matches!(checked, Err(Error::Corrupt { broken, .. })
        if broken == "a fingerprint is that of its key");
    assert!(is_it, "{checked:?}");
}

#[test]
fn an_open_notices_a_record_that_two_slots_lead_to_and_a_check_a_key_twice() {
    // Fails if the second claim of a record is passed over: it would be freed with the first of the
    // two pairs. Or if a check passes over a key of words that is there twice.
    for form in [Form::Variable, Form::WORDS] {
        let (region, table) = make(form);
        assert!(table.insert(b"an eight", b"of eight").unwrap());
        drop(table);
        let mut pool = Forged::of(&region, form);
        let holds_it = |at: &Addr| pool.token(*at, Kind::Main).count() == 1;
        let at = (0..BUCKETS).map(|index| pool.main(0, index)).find(holds_it).unwrap();
        let token = pool.token(at, Kind::Main);
        let from = token.live_slots().next().unwrap();
        let to = (from + 1) % 3;
        let slot = |slot: usize| at.plus((WordBucket::SLOTS + 2 * slot) as u64);
        (0..2).for_each(|word| pool.set(slot(to).plus(word), pool.get(slot(from).plus(word))));
        pool.set_token(at, Kind::Main, token.with_slot(to, 2));
        let checked = pool.check();
        assert!(matches!(checked, Err(Error::Corrupt { .. })), "{form}: {checked:?}");
        assert_eq!(pool.open().is_err(), form == Form::Variable, "{form}");
    }
}

#[test]
fn a_bucket_of_an_open_table_that_was_split_at_no_time_is_damage() {
    // Fails if a search believes a depth that no growth has given: it would look into another
    // bucket, and tell that its key is absent.
    let (region, table) = make(Form::WORDS);
    let words = table.words().unwrap();
    let count = insert_until_it_grows(&table);
    table.maintain(Duration::ZERO, 8).unwrap();
    let pool = Forged::of(&region, Form::WORDS);
    let pm = region.access();
    let wrong = |at: Addr, home: u64| {
        let before = pm.load(at).unwrap();
        let token = Token::decode(before, at, Kind::Main, 3).unwrap();
        pm.store(at, token.with_home(home).encode(at, Kind::Main)).unwrap();
        let met = (0..count).filter(|key| match words.get_word(*key) {
            Ok(found) => {
                assert_eq!(found, Some(*key));
                false
            }
            Err(error) => matches!(error, Error::Corrupt { .. }),
        });
        let met = met.count();
        pm.store(at, before).unwrap();
        met
    };
    let last = pool.main(0, BUCKETS - 1);
    let met: Vec<_> = [2, 3, 40].map(|home| wrong(last, home)).to_vec();
    assert!(met[0] > 0 && met.iter().all(|it| *it == met[0]), "{met:?}");
    let uppers: usize = (0..4).map(|index| wrong(pool.main(1, index), 0)).sum();
    assert!(uppers > 0);
    while table.maintain(Duration::ZERO, 64).unwrap().more {}
    assert_eq!(figure(&table, "growing"), 0);
    assert!(wrong(last, 2) > 0, "no growth is under way");
}

#[test]
fn a_clean_close_leaves_nothing_to_repair_and_a_salvage_saves_the_rest() {
    // Fails if an open that a clean close came before repairs what no crash has left; or if a pair
    // that is missing in an upper half costs a salvage all others of it.
    let (region, table) = make(Form::WORDS);
    let count = insert_until_it_grows(&table);
    table.maintain(Duration::ZERO, 8).unwrap();
    Box::new(table).close().unwrap();
    let pool = Forged::of(&region, Form::WORDS);
    let upper = (0..4).map(|index| (index, pool.main(1, index)));
    let decode = |at: Addr| Token::decode(pool.get(at), at, Kind::Main, 3);
    let (index, upper) = upper
        .filter(|(index, _)| pool.token(pool.main(0, *index), Kind::Main).home() == 1)
        .find(|(_, at)| decode(*at).is_some_and(|token| token.count() > 1))
        .expect("two pairs have moved to one bucket");
    let token = decode(upper).unwrap();
    let slot = token.live_slots().next().unwrap();
    let pair = [0, 1].map(|it| pool.get(upper.plus((WordBucket::SLOTS + 2 * slot + it) as u64)));
    // A bucket at the end of the medium, and of the chain of the lower half.
    let mut forged = pool.clone();
    let at = Addr::new(forged.words.len() as u64 * 8);
    let mut last = pool.main(0, index);
    while pool.behind(last) != Addr::NULL {
        last = pool.behind(last);
    }
    forged.words.extend([0, 0, pair[0], pair[1], 0, 0, 0, 0]);
    forged.link(last, at);
    forged.link(at, Addr::NULL);
    forged.set_token(at, Kind::Chained, Token::empty(index).with_slot(0, 1));
    let opened = forged.open().map(drop);
    let is_it = matches!(opened, Err(Error::Corrupt { broken, .. })
        if broken == "a clean close leaves nothing to repair");
    assert!(is_it, "{opened:?}");
    assert_eq!(forged.check().unwrap(), count);
    forged.set_token(upper, Kind::Main, token.with_slot(slot, 0));
    assert_eq!(forged.refused(), "what moved is in the upper half");
    let saved = |pool: &Forged| {
        let mut keys = BTreeSet::new();
        let visit = &mut |key: &[u8], _: &[u8]| assert!(keys.insert(key.to_vec()));
        Wophi::salvage(&pool.region(), Boot::default(), visit, &mut |_| {}).unwrap();
        keys.len() as u64
    };
    assert_eq!(saved(&forged), count - 1);
    // Where the lower half cannot be read, the upper one can.
    let mut damaged = pool.clone();
    let lower = damaged.main(0, index);
    damaged.words[lower.word() as usize] ^= 1 << 20;
    let without_lower = saved(&damaged);
    let mut both = damaged.clone();
    both.words[upper.word() as usize] ^= 1 << 20;
    assert!(saved(&both) + 1 < without_lower);
}

#[test]
fn a_scan_past_a_damaged_chain_passes_over_no_other_one() {
    // Fails if the chain behind a damaged one is not visited.
    let (region, table) = make(Form::WORDS);
    let words = table.words().unwrap();
    (0..100).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let pool = Forged::of(&region, Form::WORDS);
    let (pm, at) = (region.access(), pool.main(0, 20));
    pm.store(at, pool.get(at) ^ 1 << 20).unwrap();
    let sound = (0..100).filter(|key| words.get_word(*key).is_ok()).count();
    let (mut visited, mut failures, mut next) = (0, 0, Some(Cursor::default()));
    while let Some(cursor) = next {
        next = match table.scan(cursor, &mut |_, _| visited += 1) {
            Err(Error::Corrupt { .. }) => {
                failures += 1;
                table.scan_past(cursor).unwrap()
            }
            next => {
                assert!(next.as_ref().is_ok_and(|next| *next != Some(cursor)), "it stands still");
                next.unwrap()
            }
        };
    }
    assert_eq!((visited, failures), (sound, 1));
}
