//! A table on the emulated device, and what its operations cost there.

pub mod zipf;

use everhash_engines::elimda::{ElimDa, ElimDaSettings, ElimDaTable};
use everhash_index::{Form, Inline, Opening, Table, WordTable, create};
use everhash_pmem::media::emulated::{Emulated, Timing};
use everhash_pmem::profile::{MemoryDevice, Profile};
use everhash_pmem::{Region, Std};
use everhash_rivals::memory::{Cceh, Clevel, Dash, Level, Probing};
use everhash_rivals::{Inserted, Rival};

/// Pairs of a run, the cache beside them, and the collecting logs in it: a 64th of the 20 million,
/// 36 MiB and 8,192 of the paper. What fits into the cache there fits here, and nothing else.
pub const ITEMS: u64 = 312_500;
pub const CACHE_BYTES: u64 = 9 << 16;
pub const LOGS: u64 = 128;

/// Buckets of the lower of two levels in an empty table: as the 60,000 pairs of 4.1, a 64th.
const BOTTOM: u64 = 64;

/// What is measured.
#[derive(Clone, Debug)]
pub enum Kind {
    ElimDa(ElimDaSettings),
    /// With the inserts of the paper, which do not look for the key.
    Blind(ElimDaSettings),
    Cceh,
    /// In the port that the paper ran.
    CcehPmdk,
    Dash,
    Level,
    Clevel,
    /// One of the four that asks for all lines of a search at once.
    Ahead(&'static Kind),
}

/// The four of the paper.
pub const RIVALS: [Kind; 4] = [Kind::Cceh, Kind::Dash, Kind::Level, Kind::Clevel];

/// The same, with their reads ahead.
pub const AHEAD: [Kind; 4] = [
    Kind::Ahead(&Kind::Cceh),
    Kind::Ahead(&Kind::Dash),
    Kind::Ahead(&Kind::Level),
    Kind::Ahead(&Kind::Clevel),
];

impl Kind {
    pub fn name(&self) -> String {
        let name = match self {
            Kind::Ahead(kind) => return format!("{}, reads ahead", kind.name()),
            Kind::Blind(_) => "ElimDA, blind inserts",
            Kind::ElimDa(settings) if settings.collecting_logs == 0 => "ElimDA, no collecting logs",
            Kind::ElimDa(_) => "ElimDA",
            Kind::Cceh => "CCEH",
            Kind::CcehPmdk => "CCEH, PMDK port",
            Kind::Dash => "Dash",
            Kind::Level => "Level",
            Kind::Clevel => "clevel",
        };
        name.into()
    }
}

/// Those of ElimDA's own figures: the paper's share of collecting logs.
pub fn settings(parts: u64) -> ElimDaSettings {
    let (collecting_logs, cached_log_kib) = (LOGS / parts, 256 / parts);
    ElimDaSettings { collecting_logs, cached_log_kib, ..ElimDaSettings::default() }
}

/// ElimDA as it is, and without collecting logs.
pub fn elimda(parts: u64) -> [Kind; 2] {
    let all = settings(parts);
    [all, ElimDaSettings { collecting_logs: 0, ..all }].map(Kind::ElimDa)
}

/// The paper's device with the cache that goes with so many pairs; `parts` of the usual number.
pub fn device(name: &str, parts: u64) -> MemoryDevice {
    let profile = Profile::named(name).unwrap();
    MemoryDevice { cache_bytes: CACHE_BYTES / parts, ..profile.memory().unwrap().clone() }
}

enum Subject {
    Words(Box<dyn WordTable>),
    Bytes(Box<dyn Table>),
    Rival(Box<dyn Rival>),
}

/// A table and its device.
pub struct Bed {
    region: Region<Emulated<Std>>,
    subject: Subject,
    value_bytes: u64,
    is_blind: bool,
}

/// What one operation comes to.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Bytes that the media wrote.
    pub written: f64,
    /// Bytes that the media read because a line was asked for.
    pub read: f64,
    /// Lines of the device that were not in the cache.
    pub misses: f64,
    pub fences: f64,
    /// Emulated time, without what the processor computes. Unit: nanoseconds.
    pub ns: f64,
    /// The time that 99 of 100 do not exceed.
    pub p99_ns: f64,
}

/// Makes an empty table of words whose reads are ahead.
fn ahead(kind: &Kind, at: Region<Emulated<Std>>) -> Box<dyn Rival> {
    match kind {
        Kind::Cceh => Box::new(Cceh::format(at, Probing::Published).unwrap().reading_ahead()),
        Kind::Dash => Box::new(Dash::format(at, 1).unwrap().reading_ahead()),
        Kind::Level => Box::new(Level::format(at, BOTTOM).unwrap().reading_ahead()),
        Kind::Clevel => Box::new(Clevel::format(at, BOTTOM, 1).unwrap().reading_ahead()),
        _ => panic!("one of the four"),
    }
}

impl Bed {
    /// Makes an empty table with values of `value_bytes` bytes.
    pub fn new(kind: &Kind, device: &MemoryDevice, value_bytes: u64) -> Bed {
        let region = Region::new(Emulated::<Std>::new(device, Timing::Virtual, 0, 128 << 20));
        let (at, words) = (region.clone(), value_bytes / 8);
        let rival: Box<dyn Rival> = match kind {
            Kind::ElimDa(settings) | Kind::Blind(settings) => {
                let form = if words == 1 { Form::WORDS } else { Form::Variable };
                let opening = Opening { form, ..Opening::default() };
                let table = create::<ElimDa, _>(at, &opening, settings, &Inline).unwrap();
                let is_blind = matches!(kind, Kind::Blind(_));
                let subject = match table {
                    ElimDaTable::Words(table) if !is_blind => Subject::Words(Box::new(table)),
                    table => Subject::Bytes(Box::new(table)),
                };
                return Bed { region, subject, value_bytes, is_blind };
            }
            Kind::Ahead(kind) => ahead(kind, at),
            Kind::Cceh => Box::new(Cceh::format(at, Probing::Published).unwrap()),
            Kind::CcehPmdk => Box::new(Cceh::format(at, Probing::Pmdk).unwrap()),
            Kind::Dash => Box::new(Dash::format(at, words).unwrap()),
            Kind::Level => Box::new(Level::format(at, BOTTOM).unwrap()),
            Kind::Clevel => Box::new(Clevel::format(at, BOTTOM, words).unwrap()),
        };
        Bed { region, subject: Subject::Rival(rival), value_bytes, is_blind: false }
    }

    fn value(&self, number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(self.value_bytes as usize / 8)
    }

    /// Returns false if the key is there; a blind insert does not say so.
    pub fn insert(&mut self, key: u64) -> bool {
        let value = self.value(!key);
        match &mut self.subject {
            Subject::Bytes(table) if self.is_blind => {
                let bare = table.bare().expect("ElimDA has blind inserts");
                bare.insert_blind(&key.to_le_bytes(), &value).unwrap();
                true
            }
            Subject::Words(table) => table.insert_word(key, !key).unwrap(),
            Subject::Bytes(table) => table.insert(&key.to_le_bytes(), &value).unwrap(),
            Subject::Rival(table) => match table.insert(key, !key).unwrap() {
                Inserted::New => true,
                Inserted::Present => false,
                Inserted::Full => panic!("the table does not grow any more"),
            },
        }
    }

    /// Returns whether the key is there.
    pub fn get(&self, key: u64) -> bool {
        match &self.subject {
            Subject::Words(table) => table.get_word(key).unwrap().is_some(),
            Subject::Bytes(table) => table.get(&key.to_le_bytes(), &mut Vec::new()).unwrap(),
            Subject::Rival(table) => table.get(key).unwrap().is_some(),
        }
    }

    pub fn update(&mut self, key: u64, number: u64) -> bool {
        let value = self.value(number);
        match &mut self.subject {
            Subject::Words(table) => table.update_word(key, number).unwrap(),
            Subject::Bytes(table) => table.update(&key.to_le_bytes(), &value).unwrap(),
            Subject::Rival(table) => table.update(key, number).unwrap(),
        }
    }

    pub fn remove(&mut self, key: u64) -> bool {
        match &mut self.subject {
            Subject::Words(table) => table.remove_word(key).unwrap(),
            Subject::Bytes(table) => table.remove(&key.to_le_bytes()).unwrap(),
            Subject::Rival(table) => table.remove(key).unwrap(),
        }
    }

    /// Measures an operation with each of some keys.
    pub fn phase(
        &mut self,
        keys: impl Iterator<Item = u64>,
        mut act: impl FnMut(&mut Bed, u64),
    ) -> Phase {
        let now = |bed: &Bed| bed.region.media().elapsed_ps();
        self.region.media().drain();
        let (before, mut times) = (self.region.media().counters(), Vec::new());
        for key in keys {
            let begun = now(self);
            act(self, key);
            times.push(now(self) - begun);
        }
        self.region.media().drain();
        let counters = self.region.media().counters() - before;
        let count = times.len() as f64;
        let ns = times.iter().sum::<u64>() as f64 / count / 1000.0;
        times.sort_unstable();
        Phase {
            written: counters.media_bytes_written() as f64 / count,
            read: counters.media_bytes_read() as f64 / count,
            misses: (counters.load_misses + counters.store_misses) as f64 / count,
            fences: counters.fences as f64 / count,
            ns,
            p99_ns: times[times.len() * 99 / 100] as f64 / 1000.0,
        }
    }
}
