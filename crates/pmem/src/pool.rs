//! The pool: a medium with a header that describes its content.
//!
//! The engine's root lies behind the first slot of the header.

mod header;
#[cfg(test)]
mod tests;

use crate::{Access, Addr, Domain, Error, Lock, Media, Primitives, Region, Result, Span};

pub(crate) use header::is_begun;
pub use header::{Header, Unsynced};
use header::{Slot, State, UNSYNCED, newest, place, unsynced};

/// Where the engine's root begins.
pub const ROOT: Addr = Addr::new(512);

/// How long the engine's root is. Unit: words.
pub const ROOT_WORDS: u64 = 448;

/// Where the space of the engine begins; everything before belongs to the pool.
pub const DATA: Addr = Addr::new(8192);

/// The places where the pool itself persists something.
pub mod sites {
    crate::sites! {
        /// The first header of a new pool, which commits the creation.
        CREATE = "pool/create/header";
        /// The content of a new pool, before its header.
        CONTENTS = "pool/create/contents";
        /// Everything, written again because an earlier sync had failed.
        REWRITTEN = "pool/open/rewritten";
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
    /// Whether the opening took storage for holes that it does not know.
    has_filled: bool,
    header: <M::Sync as Primitives>::Mutex<Written>,
}

/// What this process knows of the header.
struct Written {
    /// The highest sequence number that a write of the header may have had.
    sequence: u64,
    /// The header that was found, until the first write: see [`Pool::begin_writes`].
    found: Option<Slot>,
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
            has_filled: false,
            header: Lock::new(Written { sequence: 0, found: None }),
        };
        pool.access().write_words(Addr::NULL, &[0; (DATA.byte() / crate::WORD) as usize])?;
        fill(&pool)?;
        pool.access().sync(sites::CONTENTS)?;
        {
            let mut header = pool.header.lock().map_err(|_| Error::Poisoned)?;
            pool.write_both(&mut header, pool.open_state(), sites::CREATE)?;
        }
        pool.note_failed_syncs();
        Ok(pool)
    }

    /// Opens a pool for reading and writing; nothing is written yet. The engine checks what lies on
    /// it, calls [`Pool::begin_writes`] before its first write, and [`Pool::recovered`] at the end.
    /// A file may have holes, in which a store could meet a full disk. [`Space`](crate::Space)
    /// allocates storage for those in use, and for what is free once it is taken. Where the medium
    /// cannot tell where they are, there is storage for all of it from here on, if there is any.
    ///
    /// If a sync of this pool has failed before, everything is written again with the content that
    /// it has, and synced: the page cache may show what the device does not hold, and a sync alone
    /// would not write it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the medium holds no pool or one of another version or byte order;
    /// [`Error::Corrupt`] if both slots are damaged; [`Error::Full`] if there is no storage for its
    /// header. The words of the medium are unchanged in any case.
    pub fn open(region: Region<M>, boot: Boot) -> Result<Pool<M>> {
        let mut pool = Self::attach(region, boot, true)?;
        pool.reserve_holes()?;
        let media = pool.region.media();
        pool.note_failed_syncs();
        if is_unsynced(&pool.region, &pool.identity)? {
            media.rewrite()?;
            let pm = pool.access();
            pm.sync(sites::REWRITTEN)?;
            // A crash may bring the note back: then all of it is written once more.
            pm.store(UNSYNCED, 0)?;
        }
        Ok(pool)
    }

    /// Ensures that there is storage for the header, and for what nobody knows to be a hole.
    fn reserve_holes(&mut self) -> Result<()> {
        let media = self.region.media();
        media.reserve(Span::of_bytes(Addr::NULL, DATA.byte()))?;
        self.has_filled = media.holes().is_none();
        if self.has_filled {
            match media.reserve(Span::of_bytes(Addr::NULL, media.bytes())) {
                Err(Error::Full { .. }) => {}
                reserved => reserved?,
            }
        }
        Ok(())
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
        } else if self.relaxed() && !found.state.relaxed {
            // No fence orders the writes of this recovery. The boot stays: until recovery is
            // complete, an earlier power loss still needs repair.
            let state = State { boot: found.state.boot, clean: false, relaxed: true };
            self.write_both(&mut header, state, sites::OPEN)?;
        }
        Ok(())
    }

    /// Opens a pool for reading only; nothing is written.
    ///
    /// # Errors
    /// As [`Pool::open`], and [`Error::Unsupported`] if the pool was not closed cleanly, or if the
    /// device may lack a part of what is read.
    pub fn open_read_only(region: Region<M>) -> Result<Pool<M>> {
        let pool = Self::attach(region, Boot::default(), false)?;
        if pool.previous != Shutdown::Clean || is_unsynced(&pool.region, &pool.identity)? {
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

    /// Reads the status of a pool without opening it. If its last sync failed, it does not count as
    /// closed cleanly, even if its header says so: the device may hold an older header.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn status(region: &Region<M>, boot: Boot) -> Result<PoolStatus> {
        let (slot, both) = newest(region)?;
        let previous = match slot.state.shutdown(both, boot) {
            Shutdown::Clean if is_unsynced(region, &slot.identity)? => Shutdown::Process,
            previous => previous,
        };
        let State { boot, relaxed, .. } = slot.state;
        Ok(PoolStatus { identity: slot.identity, boot, previous, relaxed })
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

    /// Returns the error of a write to a pool that was opened for reading only. Its medium may
    /// take stores all the same, and its header says that it was closed cleanly.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    #[inline(always)]
    pub fn check_writable(&self) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        let what = "writing to a pool that was opened for reading only; open it for writing";
        Err(Error::Unsupported { what: what.into() })
    }

    /// Returns whether the opening took storage for all holes, since the medium could not tell
    /// where they are.
    pub fn has_filled_holes(&self) -> bool {
        self.has_filled
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
    /// Without a write before, it makes the header that was found durable first, as
    /// [`Pool::begin_writes`] does.
    ///
    /// # Errors
    /// As [`Media::sync`]; the pool counts as crashed then.
    pub fn close(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        self.begin_writes()?;
        if self.relaxed() {
            self.access().sync(sites::SETTLE)?;
        }
        let mut header = self.header.lock().map_err(|_| Error::Poisoned)?;
        let closed = State { boot: self.boot, clean: true, relaxed: false };
        self.write_header(&mut header, closed, sites::CLOSE)
    }

    fn attach(region: Region<M>, boot: Boot, writable: bool) -> Result<Pool<M>> {
        let (slot, both) = newest(&region)?;
        let previous = slot.state.shutdown(both, boot);
        // Power loss may have torn the header after this one. If the next write had that one's
        // number, and were torn too, words of both could make it whole. The slots still alternate.
        let header = Lock::new(Written { sequence: slot.sequence + 2, found: Some(slot) });
        let identity = slot.identity;
        Ok(Pool { region, identity, boot, previous, writable, has_filled: false, header })
    }

    /// Has the medium leave a note if a sync fails.
    fn note_failed_syncs(&self) {
        self.region.media().note_failed_syncs(UNSYNCED, unsynced(&self.identity));
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
        let slot = Slot { identity: self.identity, sequence: header.sequence + 1, state };
        let (at, words) = slot.encode();
        self.access().write_words(at, &words)?;
        self.persist_slot(slot.sequence, site)?;
        header.sequence = slot.sequence;
        Ok(())
    }

    /// Makes the header with this sequence number durable.
    fn persist_slot(&self, sequence: u64, site: crate::Site) -> Result<()> {
        let pm = self.access();
        pm.persist(place(sequence), site)?;
        if self.relaxed() {
            // The header decides how far the rest can be trusted: it must reach the device even
            // where fences do not.
            pm.sync(site)?;
        }
        Ok(())
    }
}

/// Returns whether a sync of the pool failed, and not everything was written again since.
fn is_unsynced<M: Media>(region: &Region<M>, identity: &Identity) -> Result<bool> {
    Ok(region.access().load(UNSYNCED)? == unsynced(identity))
}

impl<M: Media> core::fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool")
            .field("identity", &self.identity)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}
