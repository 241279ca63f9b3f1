//! The header of a pool: two slots, written alternately, each with a checksum. A crash during the
//! write of one slot leaves the other.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Boot, DATA, Identity, Shutdown};
use crate::{Addr, Error, Media, Region, Result, Span};

crate::ruler! {
    /// One of the two header slots, at byte 0 and byte 4096 of the medium.
    pub struct Header [512] {
        0   MAGIC     [1] "the bytes `EVERHASH`; reversed if the machine has the other byte order";
        8   VERSION   [1] "format version, 1; a program refuses every other";
        16  SEQUENCE  [1] "rises, by 3 with an opening; of two valid slots the higher one counts";
        24  ENGINE    [1] "name of the engine, up to eight bytes, zero padded";
        32  FORM      [1] "0 = byte strings; else key bytes << 32 | value bytes";
        40  HASH_KIND [1] "hash of the keys: 1 = SipHash-1-3, 2 = XXH3-64, 3 = rapidhash V3";
        48  HASH_KEY  [2] "random key of the hash function";
        64  DATABASE  [2] "random identity of this pool";
        80  BOOT      [2] "boot of the machine under which the pool was last opened";
        96  STATE     [1] "1 = closed cleanly, 0 = open or crashed";
        104 RELAXED   [1] "1 = since it was last closed, fences did not reach the device";
        112 SPARE     [49] "zero";
        504 CHECKSUM  [1] "XXH3-64 of all words before, seeded with the slot's byte offset";
    }
}

crate::ruler! {
    /// What follows the second header slot, at byte 4608 of the medium. The note is there from a
    /// failed sync until everything was written again.
    pub struct Unsynced [3584] {
        0   FAILED    [1] "the note of a failed sync: XXH3-64 of `DATABASE`, seeded with 4608";
        8   SPARE     [447] "zero";
    }
}

/// Where a failed sync leaves its note.
pub(super) const UNSYNCED: Addr = Addr::new(4608);

/// Returns the note of a failed sync. It names the pool: a damaged word is no note.
pub(super) fn unsynced(identity: &Identity) -> u64 {
    let mut bytes = [0; 16];
    for (target, word) in bytes.chunks_exact_mut(8).zip(&identity.database) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, UNSYNCED.byte())
}

/// Where the two slots lie: in different pages, so that one bad page costs one slot.
pub(super) const SLOTS: [Addr; 2] = [Addr::new(0), Addr::new(4096)];

/// How often a header can have been written: a sequence beyond it was forged, and would overflow.
///
/// Unit: writes. Source: ours; a thousand opens a second take longer than 10^8 years.
const MOST_WRITES: u64 = 1 << 62;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"EVERHASH");
const VERSION: u64 = 1;

/// What a slot says.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) identity: Identity,
    /// How many times the header was written before, this time included.
    pub(super) sequence: u64,
    pub(super) state: State,
}

/// The state of the pool since it was last closed.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) boot: Boot,
    pub(super) clean: bool,
    pub(super) relaxed: bool,
}

impl State {
    /// Returns how the pool was shut down, seen from the boot `now`. `both` tells whether both
    /// slots are valid: the damaged one may have said that the pool is open.
    pub(super) fn shutdown(&self, both: bool, now: Boot) -> Shutdown {
        match (self.clean && both, self.boot == now && now != Boot::default()) {
            (true, _) => Shutdown::Clean,
            (false, true) => Shutdown::Process,
            (false, false) => Shutdown::Power,
        }
    }
}

impl Slot {
    /// Returns the words of the slot, and where they belong.
    pub(super) fn encode(&self) -> (Addr, [u64; Header::WORDS]) {
        let at = place(self.sequence).start;
        let mut words = [0; Header::WORDS];
        words[Header::MAGIC] = MAGIC;
        words[Header::VERSION] = VERSION;
        words[Header::SEQUENCE] = self.sequence;
        words[Header::ENGINE] = u64::from_le_bytes(self.identity.engine);
        words[Header::FORM] = self.identity.form;
        words[Header::HASH_KIND] = self.identity.hash_kind;
        words[Header::HASH_KEY..][..2].copy_from_slice(&self.identity.hash_key);
        words[Header::DATABASE..][..2].copy_from_slice(&self.identity.database);
        words[Header::BOOT..][..2].copy_from_slice(&self.state.boot.0);
        words[Header::STATE] = u64::from(self.state.clean);
        words[Header::RELAXED] = u64::from(self.state.relaxed);
        words[Header::CHECKSUM] = checksum(&words, at);
        (at, words)
    }

    /// Reads the slot at `at`.
    fn read<M: Media>(region: &Region<M>, at: Addr) -> Result<Slot> {
        let mut words = [0; Header::WORDS];
        if region.access().read_words(at, &mut words).is_err() {
            let what = format!(
                "a file that is too short to be an everhash pool, which has {} bytes or more; \
                 check the name, or restore a backup if it was cut",
                DATA.byte()
            );
            return Err(unsupported(&what));
        }
        if words[Header::MAGIC] == MAGIC.swap_bytes() {
            return Err(unsupported(
                "a pool of a machine with the other byte order; export it there, and import that",
            ));
        }
        if words[Header::MAGIC] != MAGIC {
            return Err(unsupported(
                "a file that is not an everhash pool, or was never completed; check the name",
            ));
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
            sequence: words[Header::SEQUENCE],
            state: State {
                boot: Boot([words[Header::BOOT], words[Header::BOOT + 1]]),
                clean: words[Header::STATE] == 1,
                relaxed: words[Header::RELAXED] != 0,
            },
        })
    }
}

/// Returns whether the first words of a medium, up to [`DATA`], are those of a pool or of one that
/// was being made: each slot holds a header, or zeros.
pub(crate) fn is_begun(words: &[[u8; 8]]) -> bool {
    SLOTS.iter().all(|at| {
        let slot = words.get(at.word() as usize..).and_then(|rest| rest.first_chunk());
        slot.is_some_and(|slot: &[[u8; 8]; Header::WORDS]| {
            let words = slot.map(u64::from_le_bytes);
            let is_header =
                words[Header::MAGIC] == MAGIC && words[Header::CHECKSUM] == checksum(&words, *at);
            is_header || words == [0; Header::WORDS]
        })
    })
}

/// Returns where the header with this sequence number lies.
pub(super) fn place(sequence: u64) -> Span {
    Span::new(SLOTS[(sequence % 2) as usize], Header::WORDS as u64)
}

/// Returns the newest valid slot, and whether both are valid.
pub(super) fn newest<M: Media>(region: &Region<M>) -> Result<(Slot, bool)> {
    match SLOTS.map(|at| Slot::read(region, at)) {
        [Ok(a), Ok(b)] => Ok((if a.sequence > b.sequence { a } else { b }, true)),
        [Ok(slot), Err(_)] | [Err(_), Ok(slot)] => Ok((slot, false)),
        // Report damage rather than "not a pool".
        [Err(error @ Error::Corrupt { .. }), Err(_)] | [Err(_), Err(error)] => Err(error),
    }
}

pub(super) fn checksum(words: &[u64; Header::WORDS], at: Addr) -> u64 {
    let mut bytes = [0; Header::BYTES];
    for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes[..Header::CHECKSUM * 8], at.byte())
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { what: what.into() }
}
