//! What the contract does for every engine, with the smallest one that there can be.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use everhash_index::{
    AtomicTable, Capabilities, Change, Checked, Choice, Cursor, Design, Durability, Engine, Error,
    Executor, Form, HashKind, Inline, Opening, Result, Setting, Settings, Sizing, Stats, Table,
    Upkeep, WordTable, create, open, open_read_only,
};
use everhash_pmem::pool::{Boot, Identity, Pool, ROOT, Shutdown};
use everhash_pmem::{
    Addr, Error as OfMedium, Guarantees, Image, LockPoisoned, Media, Region, Site,
};

/// An engine that keeps its pairs in DRAM, and its settings in the pool.
struct Toy;

#[derive(Clone, Debug, Default)]
struct Numbers {
    slots: u64,
    steps: u64,
}

impl Settings for Numbers {
    const ALL: &'static [Setting] = &[
        Setting { name: "slots", default: 0, meaning: "any number" },
        Setting { name: "steps", default: 0, meaning: "any number" },
    ];

    fn get(&self, name: &str) -> Option<u64> {
        match name {
            "slots" => Some(self.slots),
            "steps" => Some(self.steps),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: u64) -> Result<()> {
        match name {
            "slots" => self.slots = value,
            "steps" => self.steps = value,
            _ => return Err(Self::unknown(name)),
        }
        Ok(())
    }
}

/// Where the damage of every pool of this engine lies.
const DAMAGE: Error = Error::Corrupt { at: 4711, broken: "a toy holds something" };

/// How many slots a pool has in which nothing is damaged.
const SOUND: u64 = 2;

impl Engine for Toy {
    const NAME: &'static str = "toy";
    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS],
        byte_strings: false,
        durability: &[Durability::Batch, Durability::Immediate],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: false,
    };
    const SITES: &'static [&'static [Site]] = &[];
    type Settings = Numbers;
    type Table<M: Media> = Toys<M>;

    fn tiny(_form: Form) -> Numbers {
        Numbers { slots: 1, steps: 1 }
    }

    fn sized_for(_form: Form, items: u64) -> Numbers {
        Numbers { slots: items, steps: 0 }
    }

    fn bytes_needed(_form: Form, settings: &Numbers, guarantees: Guarantees) -> Result<u64> {
        Ok(settings.slots * 100 + settings.steps + guarantees.access_unit_bytes * 1000)
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &Numbers) -> Result<()> {
        Ok(pool.access().write_words(ROOT, &[settings.slots, settings.steps])?)
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<Toys<M>> {
        pool.recovered()?;
        Ok(Toys { pool, pairs: Mutex::default() })
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        // A pool that is too short fails as a medium does.
        region.access().load(Addr::new(8192))?;
        match region.access().load(ROOT)? {
            0 => Err(DAMAGE),
            SOUND => {
                visit(b"boot", &boot.0[1].to_le_bytes());
                Ok(Checked::default())
            }
            _ => Err(Error::Poisoned),
        }
    }
}

struct Toys<M: Media> {
    pool: Pool<M>,
    pairs: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl<M: Media> Toys<M> {
    fn with<R>(&self, act: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>) -> R) -> Result<R> {
        Ok(act(&mut *self.pairs.lock().map_err(|_| Error::Poisoned)?))
    }
}

impl<M: Media> Table for Toys<M> {
    fn form(&self) -> Form {
        Form::WORDS
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let fresh = !self.contains(key)?;
        if fresh {
            self.put(key, value)?;
        }
        Ok(fresh)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.with(|pairs| pairs.insert(key.to_vec(), value.to_vec()).is_some())
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.contains(key)? && self.put(key, value)?)
    }

    fn modify(&self, _key: &[u8], _change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        Err(Error::Poisoned)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.with(|pairs| pairs.get(key).cloned())?;
        *value = found.clone().unwrap_or_default();
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.with(|pairs| pairs.remove(key).is_some())
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.with(|pairs| pairs.contains_key(key))
    }

    fn len(&self) -> Result<u64> {
        self.with(|pairs| pairs.len() as u64)
    }

    fn scan(&self, _: Cursor, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        Ok(None)
    }

    fn clear(&self) -> Result<()> {
        self.with(BTreeMap::clear)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep::default())
    }

    fn check(&self) -> Result<Checked> {
        Err(DAMAGE)
    }

    fn stats(&self) -> Result<Stats> {
        let mut root = [0; 2];
        self.pool.access().read_words(ROOT, &mut root)?;
        let own = vec![("slots", root[0]), ("steps", root[1])];
        Ok(Stats { own, ..Stats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.pool.close()?)
    }
}

fn region() -> Region<Image> {
    Region::new(Image::new(0, 1 << 14))
}

#[test]
fn many_operations_are_single_ones_in_order() {
    // Fails if a position is another one's, or if what is counted is the other half.
    let table = create::<Toy, _>(region(), &Opening::default(), &Numbers::default(), &Inline);
    let table = table.unwrap();
    let (one, two, three) = (&b"1"[..], &b"2"[..], &b"3"[..]);
    assert!(table.is_empty().unwrap());
    assert_eq!(table.insert_many(&[(one, one), (two, two), (one, three)]).unwrap(), 2);
    assert_eq!(table.put_many(&[(one, two), (three, one), (three, two)]).unwrap(), 1);
    let mut found = Vec::new();
    let keys = [three, b"4", one];
    table.get_many(&keys, &mut |at, value| found.push((at, value.map(<[u8]>::to_vec)))).unwrap();
    assert_eq!(found, [(0, Some(two.to_vec())), (1, None), (2, Some(two.to_vec()))]);
    assert_eq!(table.remove_many(&[two, b"4", two, three]).unwrap(), 2);
    assert!(!table.is_empty().unwrap() && table.scan_past(Cursor(1)).unwrap().is_none());
}

#[test]
fn p08_a_pool_is_opened_by_its_own_engine_and_in_a_form_that_it_holds() {
    // Fails if an engine were given words of another one, keys that were spread by a hash which it
    // does not know, or pairs of a form that it has no place for.
    let own = Identity {
        engine: *b"toy\0\0\0\0\0",
        form: Form::WORDS.code(),
        hash_kind: 1,
        hash_key: [1, 2],
        database: [3, 4],
    };
    let here = Boot([1, 1]);
    let open_it = |identity: Identity| {
        let region = region();
        let pool = Pool::create(region.clone(), identity, here, |_| Ok::<(), OfMedium>(()));
        pool.unwrap().close().unwrap();
        let before = region.media().words();
        let opened = [
            open_read_only::<Toy, _>(region.clone(), &Inline).map(drop),
            open::<Toy, _>(region.clone(), here, &Inline).map(drop),
        ];
        (opened, region.media().words() == before)
    };
    assert!(matches!(open_it(own).0, [Ok(()), Ok(())]));
    for (identity, said) in [
        (Identity { engine: *b"tower\0\0\0", ..own }, "'tower'"),
        (Identity { engine: *b"toys\0\0\0\0", ..own }, "'toys'"),
        (Identity { hash_kind: 0, ..own }, "hash 0"),
        (Identity { hash_kind: 9, ..own }, "hash 9"),
        (Identity { form: Form::Variable.code(), ..own }, "variable"),
        (Identity { form: Form::DOUBLE_WORDS.code(), ..own }, "16/16"),
    ] {
        let (opened, is_unchanged) = open_it(identity);
        for error in opened.map(Result::unwrap_err) {
            let text = error.to_string();
            assert!(matches!(error, Error::Unsupported { .. }) && text.contains(said), "{text}");
        }
        assert!(is_unchanged, "{said}");
    }
    for form in [Form::Variable, Form::DOUBLE_WORDS] {
        let (region, opening) = (region(), Opening { form, ..Opening::default() });
        let made = create::<Toy, _>(region.clone(), &opening, &Numbers::default(), &Inline);
        assert!(matches!(made.map(drop), Err(Error::Unsupported { .. })));
        assert_eq!(region.media().bytes(), 0, "a refused pool is not begun");
    }
}

#[test]
fn settings_come_from_the_size_then_the_design_and_then_the_choice() {
    // Fails if a change is left out, or if an earlier one wins over a later one.
    let plain = Design::<Image>::of::<Toy>();
    let design = plain.with_settings(&[("slots", 7), ("steps", 5)]);
    let pairs = Sizing::Pairs(3);
    let values = |design: &Design<Image>, sizing, changes| {
        let choice = Choice { sizing, changes };
        let table = design.create(region(), &Opening::default(), choice, &Inline).unwrap();
        let value = |name| design.setting(Form::WORDS, choice, name).unwrap();
        let guarantees = region().media().guarantees();
        let needed = design.bytes_needed(Form::WORDS, choice, guarantees).unwrap();
        let own = table.stats().unwrap().own;
        let of_medium = guarantees.access_unit_bytes * 1000;
        assert_eq!(needed, own[0].1 * 100 + own[1].1 + of_medium);
        assert_eq!(own, [("slots", value("slots").unwrap()), ("steps", value("steps").unwrap())]);
        assert_eq!(value("other"), None);
        [own[0].1, own[1].1]
    };
    assert_eq!(values(&plain, Sizing::Usual, &[]), [0, 0]);
    assert_eq!(values(&plain, Sizing::Tiny, &[]), [1, 1]);
    assert_eq!(values(&plain, pairs, &[("steps", 2)]), [3, 2]);
    assert_eq!(values(&design, pairs, &[]), [7, 5]);
    assert_eq!(values(&design, pairs, &[("steps", 2), ("slots", 9), ("steps", 4)]), [9, 4]);
    let choice = Choice { sizing: pairs, changes: &[("speed", 1)] };
    let refused = design.create(region(), &Opening::default(), choice, &Inline).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "settings: there is no 'speed'; there are: slots, steps");
    let named = Error::Setting { name: "slots", why: "too many".to_owned() };
    assert_eq!(named.to_string(), "setting slots: too many");
    assert!(design.batches());
    assert!(!design.with_durability(&[Durability::Immediate]).batches());
}

#[test]
fn a_new_pool_is_what_its_opening_says() {
    // Fails if keys are spread by a key that everybody knows or by another function than was
    // chosen, if two databases are taken for one, or if the boot of the machine is not kept.
    let opening = Opening {
        hash: HashKind::Rapid,
        hash_key: [5, 6],
        database: [7, 8],
        boot: Boot([9, 2]),
        ..Opening::default()
    };
    let region = region();
    drop(create::<Toy, _>(region.clone(), &opening, &Numbers::default(), &Inline).unwrap());
    let Identity { hash_kind, hash_key, database, .. } = Pool::inspect(&region).unwrap();
    assert_eq!((hash_kind, hash_key, database), (HashKind::Rapid.code(), [5, 6], [7, 8]));
    let previous = |boot| Pool::status(&region, boot).unwrap().previous;
    assert_eq!(previous(opening.boot), Shutdown::Process);
    assert_eq!(previous(Boot([9, 3])), Shutdown::Power);
}

#[test]
fn a_design_passes_on_the_boot_of_the_machine() {
    // Fails if an engine takes a killed process for a loss of power, or the reverse.
    let design = Design::<Image>::of::<Toy>();
    let (region, boot) = (region(), Boot([1, 7]));
    region.media().grow(1 << 14).unwrap();
    let sound = Choice { changes: &[("slots", SOUND)], ..Choice::default() };
    drop(design.create(region.clone(), &Opening::default(), sound, &Inline).unwrap());
    assert_eq!(Pool::status(&region, boot).unwrap().previous, Shutdown::Power);
    drop(design.open(region.clone(), boot, &Inline).unwrap());
    assert_eq!(Pool::status(&region, boot).unwrap().previous, Shutdown::Process);
    let mut boots = Vec::new();
    let visit = &mut |_: &[u8], boot: &[u8]| boots.push(boot.to_vec());
    design.check(&region, boot, visit).unwrap();
    design.salvage(&region, boot, visit, &mut |error| panic!("{error}")).unwrap();
    assert_eq!(boots, [7_u64.to_le_bytes(); 2]);
}

#[test]
fn an_engine_holds_the_forms_that_it_names_and_no_other() {
    // Fails if a form is never judged, or one is that the engine does not claim.
    let fixed = Toy::CAPABILITIES;
    let all = Capabilities { byte_strings: true, ..fixed };
    assert_eq!(fixed.all_forms(), [Form::WORDS]);
    assert_eq!(all.all_forms(), [Form::WORDS, Form::Variable]);
    for (claims, held) in [(fixed, [true, false, false]), (all, [true, false, true])] {
        let forms = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];
        assert_eq!(forms.map(|form| claims.holds(form)), held);
    }
}

/// Keeps what it is told to write, and knows a value of each key below 10.
#[derive(Default)]
struct Recorder(Mutex<Vec<Write>>);

/// A key, and its value or none.
type Write = (Vec<u8>, Option<Vec<u8>>);

fn owned(key: &[u8], value: Option<&[u8]>) -> Write {
    (key.to_vec(), value.map(<[u8]>::to_vec))
}

impl AtomicTable for Recorder {
    fn write_all_and_tell(
        &self,
        writes: &[(&[u8], Option<&[u8]>)],
        changed: &mut dyn FnMut(&[u8], bool),
    ) -> Result<()> {
        for (key, value) in writes {
            changed(key, value.is_some());
            self.0.lock().map_err(|_| Error::Poisoned)?.push(owned(key, *value));
        }
        Ok(())
    }
}

impl WordTable for Recorder {
    fn insert_word(&self, _key: u64, _value: u64) -> Result<bool> {
        Err(Error::Poisoned)
    }

    fn put_word(&self, _key: u64, _value: u64) -> Result<bool> {
        Err(Error::Poisoned)
    }

    fn update_word(&self, _key: u64, _value: u64) -> Result<bool> {
        Err(Error::Poisoned)
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        Ok((key < 10).then_some(key + 100))
    }

    fn remove_word(&self, _key: u64) -> Result<bool> {
        Err(Error::Poisoned)
    }
}

#[test]
fn what_an_engine_does_not_write_itself_is_done_by_what_it_writes() {
    // Fails if a transaction would be said to be done without a write, or if a word of many is
    // another one's.
    let table = Recorder::default();
    let writes: [(&[u8], Option<&[u8]>); 2] = [(b"put", Some(b"value")), (b"removed", None)];
    table.write_all(&writes).unwrap();
    let kept = table.0.lock().unwrap().clone();
    assert_eq!(kept, writes.map(|(key, value)| owned(key, value)));
    let mut values = [Some(1); 3];
    table.get_words(&[3, 10, 5], &mut values).unwrap();
    assert_eq!(values, [Some(103), None, Some(105)]);
}

#[test]
fn a_load_factor_is_pairs_by_slots() {
    // Fails if the figure is upside down, or none where there are no slots.
    let stats = |items, slots| Stats { items, slots, ..Stats::default() };
    assert_eq!(stats(3, 12).load_factor(), 0.25);
    assert_eq!(stats(3, 0).load_factor(), 0.0);
}

#[test]
fn a_salvage_goes_past_damage_and_past_nothing_else() {
    // Fails if damage ends a salvage, or if a medium that fails counts as a damaged one.
    let salvage = |settings: &Numbers| {
        let region = region();
        region.media().grow(1 << 14).unwrap();
        let opening = Opening::default();
        drop(create::<Toy, _>(region.clone(), &opening, settings, &Inline).unwrap());
        let mut reported = Vec::new();
        let report = &mut |error: Error| reported.push(error.to_string());
        let ended = Toy::salvage(&region, Boot::default(), &mut |_, _| {}, report);
        (ended, reported)
    };
    let (ended, reported) = salvage(&Numbers::default());
    assert!(ended.is_ok() && reported.len() == 1 && reported[0].contains("byte 4711"));
    let (ended, reported) = salvage(&Numbers { slots: 1, steps: 0 });
    assert!(matches!(ended, Err(Error::Poisoned)) && reported.is_empty());
}

#[test]
fn errors_of_the_medium_keep_their_meaning() {
    // Fails if a full disk or damage is reported as a failure of the device, or the reverse.
    let of = |error: OfMedium| Error::from(error);
    let full = of(OfMedium::Full { needed: 9 });
    assert!(full.is_full() && matches!(full, Error::Full { needed: 9 }));
    assert!(Error::Limit { name: "slots", limit: 1, remedy: "wait" }.is_full());
    let outside = of(OfMedium::OutOfBounds { at: Addr::new(72), bytes: 8 });
    assert!(matches!(outside, Error::Corrupt { at: 72, .. }) && !outside.is_full());
    let corrupt = of(OfMedium::Corrupt { at: 5, broken: "it holds" });
    assert!(matches!(corrupt, Error::Corrupt { at: 5, broken: "it holds" }));
    assert!(matches!(of(OfMedium::Poisoned), Error::Poisoned));
    assert!(matches!(Error::from(LockPoisoned), Error::Poisoned));
    let what = || String::from("it");
    assert!(matches!(of(OfMedium::Unsupported { what: what() }), Error::Unsupported { .. }));
    assert!(matches!(of(OfMedium::AlreadyOpen), Error::Medium(OfMedium::AlreadyOpen)));
}
