//! The planted bugs: what is wrong, where it was published, and who must find it.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use everhash_index::Form;
use everhash_pmem::crash::Model as CrashModel;

/// A judge, with what it needs to find a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judge {
    /// The model judge.
    Model(Form),
    /// The named case of the conformance judge.
    Conformance(&'static str),
    /// The judge of full media; the named cases of the conformance judge hold.
    Full,
    /// The race judge.
    Race(Form),
    /// The race judge, with programs that begin where the table is about to grow.
    RaceEdge,
    /// The race judge, with crashes of every schedule.
    RaceCrash,
    /// The crash judge, on workloads that come back to few keys.
    Crash(CrashModel),
    /// The crash judge, on workloads that let the table grow.
    Growing,
    /// The race judge, by what the process after a close finds.
    RaceClose,
    /// The crash judge, with more crashes of what follows a crash.
    Nested,
    /// The crash judge; one crash does not show it.
    TwoCrashes,
}

macro_rules! bugs {
    ($( $name:ident $source:literal, $judge:expr; )*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Bug {
            /// There is none.
            None,
            $( #[doc = $source] $name, )*
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Bug] = &[$( Bug::$name ),*];

            /// Returns what it is, with where it was published, and the judge.
            pub fn about(self) -> (&'static str, Judge) {
                match self {
                    Bug::None => panic!("there is no bug"),
                    $( Bug::$name => ($source, $judge), )*
                }
            }
        }
    };
}

const ADR: Judge = Judge::Crash(CrashModel::Adr);
const FILE: Judge = Judge::Crash(CrashModel::File);
const WORDS: Judge = Judge::Model(Form::WORDS);

bugs! {
    MissingFlush "a pair is not flushed before its bit (P-CLHT, WOART)", ADR;
    MissingFence "flushed and not fenced before the bit (P-HOT 36)", ADR;
    FirstLineOnly "only the first line of the bucket is flushed (TurboHash)", ADR;
    FirstLineOfSlot "a slot across two lines is flushed as one (FAST&FAIR 3)", ADR;
    CommitFirst "the bit is stored before the pair (Level hashing 7)", ADR;
    SameLineOrder "the order within a line is relied on where there is none", FILE;
    TornRoot "address and size are two words (P-ART 26, HSE 471)", Judge::Growing;
    RootBeforeTable "the root names buckets before they are durable (CCEH 24)", Judge::Growing;
    RootNotDurable "inserts into buckets that no durable root names (SEPH 2)", Judge::Growing;
    DuplicateAfterMove "two bits by two stores, and nobody resolves it (Level 19)", ADR;
    RecoverySkipped "the journal is never looked at (hashmap_atomic 5220)", ADR;
    JournalClearedFirst "recovery forgets what it has not yet done (PMFS 1)", Judge::Nested;
    NotRepersisted "recovery serves what is visible and not durable", Judge::Nested;
    StaleJournal "an old journal is taken for a new one (XFDetector)", ADR;
    StaleCount "the count of the last clean close is trusted after a crash", WORDS;
    TagAfterBit "the tag is stored after the bit (P-ART 27)", ADR;
    ScrubbedTooEarly "old buckets are wiped before the new root is durable", Judge::Growing;
    GivenTooEarly "old buckets are given back before the new root is fenced", Judge::Growing;
    LostRemove "a removal returns before it is durable (FAST&FAIR 4)", ADR;
    LostUpdate "an update returns before it is durable", ADR;
    LockOnMedium "a lock lies on the medium, and nobody frees it (RECIPE 19)", ADR;
    ClearNotDurable "clear returns before it is durable", ADR;
    EarlyRead "a reader returns what is not yet durable (SEPH 3)", Judge::RaceCrash;
    EarlyExists "insert finds a key that is not yet durable (SEPH 1)", Judge::RaceCrash;
    TornRead "a reader does not look again", Judge::Race(Form::DOUBLE_WORDS);
    ParityOnly "a reader looks at the last bit of the sequence only",
        Judge::Race(Form::DOUBLE_WORDS);
    ModifyUnlocked "modify reads before it locks", Judge::Race(Form::WORDS);
    ClearBesideGrowth "clear looks for the buckets before it locks", Judge::RaceEdge;
    ScanBesideGrowth "a scan looks for the buckets before it begins", Judge::RaceEdge;
    BatchBesideGrowth "a batch of gets looks for the buckets once", Judge::Race(Form::WORDS);
    GrowthOfTwo "a writer looks for the buckets before it locks", Judge::Race(Form::WORDS);
    CountOutsideLock "the count for a close is kept beside the lock", Judge::RaceClose;
    CleanBeforeCount "a pool is closed before its count is durable", ADR;
    JournalApart "half a journal from before a crash completes the next one", Judge::TwoCrashes;
    LostHole "an open takes everything below the buckets for used",
        Judge::Conformance("room_is_used_again_from_open_to_close");
    Deadlock "two locks are taken in two orders", Judge::Race(Form::WORDS);
    ScanByIndex "a cursor is a bucket's number, which growth changes",
        Judge::Conformance("a_scan_sees_what_is_there_throughout");
    Leak "what an update took is not given back (P-BwTree 28)",
        Judge::Conformance("space_is_used_again");
    LeakOfRecovered "as that, and only by a process that has recovered",
        Judge::Conformance("space_is_used_again");
    DoubleHandOut "recovery does not claim the buckets (P-CLHT 24)", Judge::Growing;
    BlindPut "a put does not look for the key (WOPHI, Algorithm 1)", WORDS;
    HalfKey "only the first word of a key is compared", Judge::Model(Form::DOUBLE_WORDS);
    TagOnly "only the tag of a key is compared", WORDS;
    CountDrifts "removing what is absent is counted", WORDS;
    InsertReplaces "insert replaces the value of a present key", WORDS;
    FullLosesPair "a put that finds no room has removed the pair",
        Judge::Conformance("a_full_medium_is_an_error_and_no_end");
    FullBatchSucceeds "a batch that finds no room stops and reports success", Judge::Full;
    FullModifySucceeds "modify that finds no room reports success", Judge::Full;
    FullForEver "a growth that was refused is never tried again", Judge::Full;
    FullLeaks "what growth took before it found no room stays taken", Judge::Full;
    FullClearStops "clear takes room, and without it reports success", Judge::Full;
    FullClearChanges "clear takes room, and has changed a pair when there is none", Judge::Full;
    PanicPublishes "modify removes the pair before it asks",
        Judge::Conformance("a_panic_in_modify_publishes_nothing");
    ErrorShowsKey "an error names the key", Judge::Conformance("errors_carry_no_keys");
    ReadOnlyWrites "opening for reading writes",
        Judge::Conformance("reading_only_changes_nothing");
    ReadOnlyInserts "a table that was opened for reading takes pairs",
        Judge::Conformance("reading_only_changes_nothing");
    ReadOnlyClears "a table that was opened for reading is cleared",
        Judge::Conformance("reading_only_changes_nothing");
    EndlessUpkeep "maintain always wants more",
        Judge::Conformance("maintenance_comes_to_an_end");
}

/// The bug that tables opened from now on have. One for the process: judges have threads.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// One bug at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Keeps a bug planted.
pub struct Planted(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Planted {
    /// Plants a bug, when no other is.
    pub fn new(bug: Bug) -> Planted {
        let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        PLANTED.store(bug as u8, Ordering::SeqCst);
        Planted(guard)
    }

    /// Returns the bug that is planted now.
    pub fn now() -> Bug {
        let number = PLANTED.load(Ordering::SeqCst);
        Bug::ALL.iter().copied().find(|bug| *bug as u8 == number).unwrap_or(Bug::None)
    }
}
