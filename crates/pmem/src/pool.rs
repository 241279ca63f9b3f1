//! The pool: a medium with a header that describes its content.
//!
//! The header has two slots, written alternately, each with a checksum: a crash during the write of
//! one slot leaves the other. The engine's root lies behind the first slot.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Access, Addr, Domain, Error, Lock, Media, Primitives, Region, Result, Span};

crate::ruler! {
    /// One of the two header slots, at byte 0 and byte 4096 of the medium.
    pub struct Header [512] {
        0   MAGIC     [1] "the bytes `EVERHASH`; reversed if the machine has the other byte order";
        8   VERSION   [1] "format version, 1; a program refuses every other";
        16  SEQUENCE  [1] "rises with every write; of two valid slots the higher one counts";
        24  ENGINE    [1] "name of the engine, up to eight bytes, zero padded";
        32  FORM      [1] "0 = byte strings; else key bytes << 32 | value bytes";
        40  HASH_KIND [1] "which keyed hash function spreads the keys";
        48  HASH_KEY  [2] "random key of the hash function";
        64  DATABASE  [2] "random identity of this pool";
        80  BOOT      [2] "boot of the machine under which the pool was last opened";
        96  STATE     [1] "1 = closed cleanly, 0 = open or crashed";
        104 RELAXED   [1] "1 = since it was last closed, fences did not reach the device";
        112 SPARE     [49] "zero";
        504 CHECKSUM  [1] "XXH3-64 of all words before, seeded with the slot's byte offset";
    }
}

/// Where the engine's root begins.
pub const ROOT: Addr = Addr::new(512);

/// How long the engine's root is. Unit: words.
pub const ROOT_WORDS: u64 = 448;

/// Where the space of the engine begins; everything before belongs to the pool.
pub const DATA: Addr = Addr::new(8192);

/// Where the two slots lie: in different pages, so that one bad page costs one slot.
const SLOTS: [Addr; 2] = [Addr::new(0), Addr::new(4096)];

/// How often a header can have been written: a sequence beyond it was forged, and would overflow.
///
/// Unit: writes. Source: ours; a thousand opens a second take longer than 10^8 years.
const MOST_WRITES: u64 = 1 << 62;

const MAGIC: u64 = u64::from_le_bytes(*b"EVERHASH");
const VERSION: u64 = 1;

/// The places where the pool itself persists something.
pub mod sites {
    crate::sites! {
        /// The first header of a new pool, which commits the creation.
        CREATE = "pool/create/header";
        /// The content of a new pool, before its header.
        CONTENTS = "pool/create/contents";
        /// The header that open found, before the other slot is overwritten.
        FOUND = "pool/open/found";
        /// The header of an open pool.
        OPEN = "pool/open/header";
        /// The content, before the header of a clean close, where fences do not reach the device.
        SETTLE = "pool/close/contents";
        /// The header of a clean close.
        CLOSE = "pool/close/header";
    }
}

/// The properties of a pool that never change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Name of the engine, zero padded.
    pub engine: [u8; 8],
    /// 0 for byte strings, else key bytes << 32 | value bytes.
    pub form: u64,
    /// Which keyed hash function spreads the keys.
    pub hash_kind: u64,
    /// Random key of the hash function; never shown.
    pub hash_key: [u64; 2],
    /// Random identity of the pool.
    pub database: [u64; 2],
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Identity")
            .field("engine", &self.engine_name())
            .field("form", &self.form)
            .field("hash_kind", &self.hash_kind)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns the name of the engine, or `?` if it is not text.
    pub fn engine_name(&self) -> &str {
        let end = self.engine.iter().position(|byte| *byte == 0).unwrap_or(self.engine.len());
        core::str::from_utf8(&self.engine[..end]).unwrap_or("?")
    }
}

/// The identifier of one boot of one machine, from the operating system; 0 if it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Boot(pub [u64; 2]);

/// How a pool was shut down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Closed cleanly: everything is durable.
    Clean,
    /// The process died and the machine did not: everything visible survived, flushed or not.
    Process,
    /// The machine lost power or restarted, or the cause is unknown.
    Power,
}

/// The status of a pool before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct PoolStatus {
    /// What the pool is.
    pub identity: Identity,
    /// The boot under which it was last open.
    pub boot: Boot,
    /// How it was shut down.
    pub previous: Shutdown,
    /// Whether it was open on a medium whose fences do not reach the device. After
    /// [`Shutdown::Power`] any part may then be older than any other, and recovery is unreliable.
    pub relaxed: bool,
}

impl PoolStatus {
    /// Returns whether power loss may have damaged the pool beyond what recovery repairs.
    pub fn doubtful(&self) -> bool {
        self.relaxed && self.previous == Shutdown::Power
    }
}

/// A medium with a valid header.
pub struct Pool<M: Media> {
    region: Region<M>,
    identity: Identity,
    boot: Boot,
    previous: Shutdown,
    writable: bool,
    header: <M::Sync as Primitives>::Mutex<Written>,
}

/// What this process knows of the header.
struct Written {
    /// The highest sequence number.
    sequence: u64,
    /// The header that was found, until the first write: see [`Pool::begin_writes`].
    found: Option<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    identity: Identity,
    boot: Boot,
    sequence: u64,
    clean: bool,
    relaxed: bool,
}

/// The state of the pool since it was last closed.
#[derive(Clone, Copy)]
struct State {
    boot: Boot,
    clean: bool,
    relaxed: bool,
}

impl Slot {
    fn shutdown(&self, both: bool, boot: Boot) -> Shutdown {
        match (self.clean && both, self.boot == boot && boot != Boot::default()) {
            (true, _) => Shutdown::Clean,
            (false, true) => Shutdown::Process,
            (false, false) => Shutdown::Power,
        }
    }
}

impl<M: Media> Pool<M> {
    /// Makes a pool: `fill` writes its content; only then the header commits the creation.
    ///
    /// A crash inside leaves a medium that [`Pool::open`] refuses as "not a pool".
    ///
    /// # Errors
    /// What `fill` returns; [`Error::Full`] if not even the header fits.
    pub fn create<E: From<Error>>(
        region: Region<M>,
        identity: Identity,
        boot: Boot,
        fill: impl FnOnce(&Pool<M>) -> core::result::Result<(), E>,
    ) -> core::result::Result<Pool<M>, E> {
        region.media().grow(DATA.byte())?;
        let pool = Pool {
            region,
            identity,
            boot,
            previous: Shutdown::Clean,
            writable: true,
            header: Lock::new(Written { sequence: 0, found: None }),
        };
        pool.access().write_words(Addr::NULL, &[0; (DATA.byte() / crate::WORD) as usize])?;
        fill(&pool)?;
        pool.access().sync(sites::CONTENTS)?;
        {
            let mut header = pool.header.lock().map_err(|_| Error::Poisoned)?;
            pool.write_both(&mut header, pool.open_state(), sites::CREATE)?;
        }
        Ok(pool)
    }

    /// Opens a pool for reading and writing; nothing is written yet. The engine checks what lies on
    /// it, calls [`Pool::begin_writes`] before its first write, and [`Pool::recovered`] at the end.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the medium holds no pool or one of another version or byte order;
    /// [`Error::Corrupt`] if both slots are damaged. The medium is unchanged in any case.
    pub fn open(region: Region<M>, boot: Boot) -> Result<Pool<M>> {
        Self::attach(region, boot, true)
    }

    /// Comes before the first write of a process to a pool that it opened: from here on a crash
    /// must not look like a clean close. An engine that finds damage before has changed nothing.
    /// Only the first call does anything.
    ///
    /// # Errors
    /// As [`Media::fence`].
    pub fn begin_writes(&self) -> Result<()> {
        let mut header = self.header.lock().map_err(|_| Error::Poisoned)?;
        let Some(found) = header.found.take().filter(|_| self.writable) else { return Ok(()) };
        // A process killed during its write of this header leaves it visible and not durable. If
        // the other slot were overwritten first, one power loss could destroy both.
        self.persist_slot(found.sequence, sites::FOUND)?;
        if self.previous == Shutdown::Clean {
            self.write_both(&mut header, self.open_state(), sites::OPEN)?;
        } else if self.relaxed() && !found.relaxed {
            // No fence orders the writes of this recovery. The boot stays: until recovery is
            // complete, an earlier power loss still needs repair.
            let state = State { boot: found.boot, clean: false, relaxed: true };
            self.write_both(&mut header, state, sites::OPEN)?;
        }
        Ok(())
    }

    /// Opens a pool for reading only; nothing is written.
    ///
    /// # Errors
    /// As [`Pool::open`], and [`Error::Unsupported`] if the pool was not closed cleanly.
    pub fn open_read_only(region: Region<M>) -> Result<Pool<M>> {
        let pool = Self::attach(region, Boot::default(), false)?;
        if pool.previous != Shutdown::Clean {
            let what = "reading a pool that was not closed cleanly; open it for writing once, \
                        which recovers it";
            return Err(Error::Unsupported { what: what.into() });
        }
        Ok(pool)
    }

    /// Reads the identity of a pool without opening it.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn inspect(region: &Region<M>) -> Result<Identity> {
        Ok(newest(region)?.0.identity)
    }

    /// Reads the status of a pool without opening it.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn status(region: &Region<M>, boot: Boot) -> Result<PoolStatus> {
        let (slot, both) = newest(region)?;
        let previous = slot.shutdown(both, boot);
        let (identity, boot, relaxed) = (slot.identity, slot.boot, slot.relaxed);
        Ok(PoolStatus { identity, boot, previous, relaxed })
    }

    /// Returns the region.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Begins an operation of the calling thread.
    #[inline(always)]
    pub fn access(&self) -> Access<'_, M> {
        self.region.access()
    }

    /// Returns the pool's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns whether the pool was opened for writing too.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Returns how the pool was shut down before it was opened.
    pub fn previous_shutdown(&self) -> Shutdown {
        self.previous
    }

    /// Records that recovery is complete and durable: the header names this boot from here on.
    ///
    /// # Errors
    /// As [`Media::fence`].
    pub fn recovered(&self) -> Result<()> {
        self.begin_writes()?;
        if self.previous == Shutdown::Clean || !self.writable {
            return Ok(());
        }
        let mut header = self.header.lock().map_err(|_| Error::Poisoned)?;
        self.write_both(&mut header, self.open_state(), sites::OPEN)
    }

    /// Closes the pool cleanly, durable on return. No write may follow, and no earlier write may
    /// still need a fence. Where fences do not reach the device, it first makes everything durable.
    ///
    /// # Errors
    /// As [`Media::sync`]; the pool counts as crashed then.
    pub fn close(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        if self.relaxed() {
            self.access().sync(sites::SETTLE)?;
        }
        let mut header = self.header.lock().map_err(|_| Error::Poisoned)?;
        let closed = State { boot: self.boot, clean: true, relaxed: false };
        self.write_header(&mut header, closed, sites::CLOSE)
    }

    fn attach(region: Region<M>, boot: Boot, writable: bool) -> Result<Pool<M>> {
        let (slot, both) = newest(&region)?;
        let previous = slot.shutdown(both, boot);
        let header = Lock::new(Written { sequence: slot.sequence, found: Some(slot) });
        Ok(Pool { region, identity: slot.identity, boot, previous, writable, header })
    }

    /// Returns whether fences on this medium do not reach the device.
    fn relaxed(&self) -> bool {
        matches!(self.region.media().guarantees().domain, Domain::None | Domain::Process)
    }

    fn open_state(&self) -> State {
        State { boot: self.boot, clean: false, relaxed: self.relaxed() }
    }

    /// Writes both slots: if one is damaged later, the other one must not say "clean".
    fn write_both(&self, header: &mut Written, state: State, site: crate::Site) -> Result<()> {
        self.write_header(header, state, site)?;
        self.write_header(header, state, site)
    }

    /// Writes the header into the older slot. A crash leaves the newer one.
    fn write_header(&self, header: &mut Written, state: State, site: crate::Site) -> Result<()> {
        let next = header.sequence + 1;
        let at = SLOTS[(next % 2) as usize];
        let mut words = [0; Header::WORDS];
        words[Header::MAGIC] = MAGIC;
        words[Header::VERSION] = VERSION;
        words[Header::SEQUENCE] = next;
        words[Header::ENGINE] = u64::from_le_bytes(self.identity.engine);
        words[Header::FORM] = self.identity.form;
        words[Header::HASH_KIND] = self.identity.hash_kind;
        words[Header::HASH_KEY..][..2].copy_from_slice(&self.identity.hash_key);
        words[Header::DATABASE..][..2].copy_from_slice(&self.identity.database);
        words[Header::BOOT..][..2].copy_from_slice(&state.boot.0);
        words[Header::STATE] = u64::from(state.clean);
        words[Header::RELAXED] = u64::from(state.relaxed);
        words[Header::CHECKSUM] = checksum(&words, at);
        self.access().write_words(at, &words)?;
        self.persist_slot(next, site)?;
        header.sequence = next;
        Ok(())
    }

    /// Makes the header with this sequence number durable.
    fn persist_slot(&self, sequence: u64, site: crate::Site) -> Result<()> {
        let pm = self.access();
        pm.persist(Span::new(SLOTS[(sequence % 2) as usize], Header::WORDS as u64), site)?;
        if self.relaxed() {
            // The header decides how far the rest can be trusted: it must reach the device even
            // where fences do not.
            pm.sync(site)?;
        }
        Ok(())
    }
}

impl<M: Media> core::fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool")
            .field("identity", &self.identity)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}

fn checksum(words: &[u64; Header::WORDS], at: Addr) -> u64 {
    let mut bytes = [0; Header::BYTES];
    for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes[..Header::CHECKSUM * 8], at.byte())
}

/// Returns the newest valid slot, and whether both are valid.
fn newest<M: Media>(region: &Region<M>) -> Result<(Slot, bool)> {
    let slots = SLOTS.map(|at| read_slot(region, at));
    match slots {
        [Ok(a), Ok(b)] => Ok((if a.sequence > b.sequence { a } else { b }, true)),
        [Ok(slot), Err(_)] | [Err(_), Ok(slot)] => Ok((slot, false)),
        // Report damage rather than "not a pool".
        [Err(error @ Error::Corrupt { .. }), Err(_)] | [Err(_), Err(error)] => Err(error),
    }
}

fn read_slot<M: Media>(region: &Region<M>, at: Addr) -> Result<Slot> {
    let mut words = [0; Header::WORDS];
    if region.access().read_words(at, &mut words).is_err() {
        return Err(unsupported("a file that is too short to be an everhash pool"));
    }
    if words[Header::MAGIC] == MAGIC.swap_bytes() {
        return Err(unsupported("a pool of a machine with the other byte order"));
    }
    if words[Header::MAGIC] != MAGIC {
        return Err(unsupported("a file that is not an everhash pool, or was never completed"));
    }
    if words[Header::CHECKSUM] != checksum(&words, at) {
        let at = at.byte();
        return Err(Error::Corrupt { at, broken: "the checksum of the pool's header matches" });
    }
    if words[Header::VERSION] != VERSION {
        let version = words[Header::VERSION];
        let what = format!("format version {version}; this program reads version {VERSION}");
        return Err(unsupported(&what));
    }
    if words[Header::SEQUENCE] > MOST_WRITES {
        let at = at.plus(Header::SEQUENCE as u64).byte();
        return Err(Error::Corrupt { at, broken: "the header was written at most 2^62 times" });
    }
    Ok(Slot {
        identity: Identity {
            engine: words[Header::ENGINE].to_le_bytes(),
            form: words[Header::FORM],
            hash_kind: words[Header::HASH_KIND],
            hash_key: [words[Header::HASH_KEY], words[Header::HASH_KEY + 1]],
            database: [words[Header::DATABASE], words[Header::DATABASE + 1]],
        },
        boot: Boot([words[Header::BOOT], words[Header::BOOT + 1]]),
        sequence: words[Header::SEQUENCE],
        clean: words[Header::STATE] == 1,
        relaxed: words[Header::RELAXED] != 0,
    })
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Guarantees, Image, Std};

    const IDENTITY: Identity = Identity {
        engine: *b"demo\0\0\0\0",
        form: 0,
        hash_kind: 1,
        hash_key: [1, 2],
        database: [3, 4],
    };
    const HERE: Boot = Boot([9, 9]);

    fn region() -> Region<Image> {
        Region::new(Image::<Std>::new(0, 16384))
    }

    fn create() -> Region<Image> {
        let region = region();
        Pool::create(region.clone(), IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
        region
    }

    #[test]
    fn a_pool_records_how_it_was_shut_down() {
        // Fails if a crash could look like a clean close, or the other way round.
        let region = create();
        let pool = Pool::open(region.clone(), HERE).unwrap();
        assert_eq!(pool.previous_shutdown(), Shutdown::Process);
        pool.recovered().unwrap();
        pool.close().unwrap();
        let pool = Pool::open(region.clone(), HERE).unwrap();
        assert_eq!(pool.previous_shutdown(), Shutdown::Clean);
        pool.begin_writes().unwrap();
        drop(pool);
        let pool = Pool::open(region.clone(), Boot([1, 1])).unwrap();
        assert_eq!(pool.previous_shutdown(), Shutdown::Power);
        assert_eq!(*pool.identity(), IDENTITY);
        pool.begin_writes().unwrap();
        // An interrupted recovery does not hide the power loss from the next one.
        drop(pool);
        let pool = Pool::open(region, Boot([1, 1])).unwrap();
        assert_eq!(pool.previous_shutdown(), Shutdown::Power);
    }

    #[test]
    fn a_power_failure_without_fences_is_told_apart() {
        // Fails if a pool whose fences did not reach the device were trusted after a power
        // failure, or if recovering it carefully did not end the doubt.
        let strict = || Guarantees {
            domain: Domain::Synced,
            same_line_order: false,
            access_unit_bytes: 4096,
        };
        let relaxed = || Guarantees { domain: Domain::Process, ..strict() };
        let there = Boot([7, 7]);
        let status = |region: &Region<Image>, boot| Pool::status(region, boot).unwrap();
        let begin = |region: &Region<Image>, boot| {
            Pool::open(region.clone(), boot).unwrap().begin_writes().unwrap();
        };
        let on = |words: Vec<u64>, guarantees| {
            let bytes = words.len() as u64 * crate::WORD;
            Region::new(Image::<Std>::of(&words, bytes, 16384).with_guarantees(guarantees))
        };

        let region = on(create().media().words(), strict());
        Pool::open(region.clone(), HERE).unwrap().close().unwrap();
        begin(&region, HERE);
        assert!(!status(&region, there).relaxed);
        // A recovery under relaxed fences may leave anything behind from its first write on.
        let region = on(region.media().words(), relaxed());
        begin(&region, there);
        assert!(status(&region, there).doubtful() && status(&region, Boot([8, 8])).doubtful());
        assert_eq!(status(&region, HERE).previous, Shutdown::Process);
        // A complete recovery with fences ends the doubt.
        let region = on(region.media().words(), strict());
        Pool::open(region.clone(), HERE).unwrap().recovered().unwrap();
        assert!(!status(&region, there).relaxed);
        // So does a clean close.
        let region = on(region.media().words(), relaxed());
        let pool = Pool::open(region.clone(), HERE).unwrap();
        pool.recovered().unwrap();
        assert!(status(&region, there).doubtful());
        pool.close().unwrap();
        assert!(!status(&region, there).doubtful());
    }

    #[test]
    fn closing_syncs_the_contents_first_where_fences_do_not_reach_the_device() {
        // Fails if the header could say "closed cleanly" on the device before the contents are
        // there, or if a pool pays for a sync that its fences have already done.
        let syncs = |domain| {
            let guarantees = Guarantees { domain, same_line_order: false, access_unit_bytes: 4096 };
            let image = Image::<Std>::new(0, 16384).with_guarantees(guarantees);
            let region = Region::new(crate::Counted::new(image));
            let pool = Pool::create(region, IDENTITY, HERE, |_| Ok::<(), Error>(())).unwrap();
            let before = pool.region().media().traffic().syncs;
            pool.close().unwrap();
            pool.region().media().traffic().syncs - before
        };
        // The second is the header's own.
        assert_eq!((syncs(Domain::Synced), syncs(Domain::Process)), (0, 2));
    }

    #[test]
    fn a_pool_that_was_never_completed_is_refused() {
        let region = region();
        let error = Pool::create(region.clone(), IDENTITY, HERE, |_| Err(Error::Poisoned));
        assert!(matches!(error, Err(Error::Poisoned)));
        assert!(matches!(Pool::open(region, HERE), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn every_flipped_bit_of_a_clean_header_is_noticed() {
        // Fails if one damaged slot could be taken for a clean close, or both for a pool.
        let region = create();
        let pool = Pool::open(region.clone(), HERE).unwrap();
        pool.close().unwrap();
        let pm = region.access();
        for slot in SLOTS {
            for bit in 0..Header::BYTES as u64 * 8 {
                let at = slot.plus(bit / 64);
                let word = pm.load(at).unwrap();
                pm.store(at, word ^ 1 << (bit % 64)).unwrap();
                let (slot, both) = newest(&region).unwrap();
                assert!(slot.identity == IDENTITY && !both, "bit {bit} of the slot at {at:?}");
                pm.store(at, word).unwrap();
            }
        }
    }

    #[test]
    fn foreign_files_are_refused_with_the_reason() {
        let refused = |change: &dyn Fn(&mut [u64; Header::WORDS], Addr)| {
            let region = create();
            let pm = region.access();
            for at in SLOTS {
                let mut words = [0; Header::WORDS];
                pm.read_words(at, &mut words).unwrap();
                change(&mut words, at);
                pm.write_words(at, &words).unwrap();
            }
            Pool::open(region.clone(), HERE).unwrap_err().to_string()
        };
        assert!(refused(&|words, _| words[0] = MAGIC.swap_bytes()).contains("byte order"));
        assert!(refused(&|words, _| words[0] = 1).contains("not an everhash pool"));
        assert!(refused(&|words, _| words[5] ^= 1).contains("damaged at byte"));
        let version = refused(&|words, at| {
            words[Header::VERSION] = 2;
            words[Header::CHECKSUM] = checksum(words, at);
        });
        assert!(version.contains("version 2"), "{version}");
    }

    #[test]
    fn p08_an_open_writes_nothing_before_the_engine_has_accepted_the_pool() {
        // Fails if the header said "open" before the engine has looked: a pool that it refuses
        // would be changed, and would seem to need a recovery.
        let region = create();
        let settle = |clean: bool| {
            let pool = Pool::open(region.clone(), HERE).unwrap();
            pool.recovered().unwrap();
            if clean {
                pool.close().unwrap();
            }
        };
        for (clean, boot) in [(true, HERE), (false, HERE), (false, Boot([1, 1]))] {
            settle(clean);
            let before = region.media().words();
            drop(Pool::open(region.clone(), boot).unwrap());
            assert_eq!(region.media().words(), before, "{clean} {boot:?}");
            Pool::open(region.clone(), boot).unwrap().recovered().unwrap();
            assert_ne!(region.media().words(), before, "{clean} {boot:?}");
        }
    }

    #[test]
    fn p07_a_sequence_number_that_cannot_rise_is_damage() {
        // Fails if the next write of the header overflowed.
        let region = create();
        let pm = region.access();
        for at in SLOTS {
            let mut words = [0; Header::WORDS];
            pm.read_words(at, &mut words).unwrap();
            words[Header::SEQUENCE] = u64::MAX;
            words[Header::CHECKSUM] = checksum(&words, at);
            pm.write_words(at, &words).unwrap();
        }
        let error = Pool::open(region.clone(), HERE).unwrap_err();
        assert!(matches!(error, Error::Corrupt { at: 16 | 4112, .. }), "{error}");
    }

    #[test]
    fn reading_needs_a_clean_pool() {
        let region = create();
        assert!(Pool::open_read_only(region.clone()).is_err());
        Pool::open(region.clone(), HERE).unwrap().close().unwrap();
        let before = region.media().words();
        Pool::open_read_only(region.clone()).unwrap().close().unwrap();
        assert_eq!(region.media().words(), before);
    }
}
