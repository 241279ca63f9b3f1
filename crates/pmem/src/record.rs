//! Rulers: declared layouts of the records on the medium.
//!
//! A record is measured with a ruler and never cast to: `ruler!` checks the written offsets at
//! compile time and lists them for `docs/format.md`.

/// One row of a layout table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Byte offset from the start of the record.
    pub at: usize,
    /// Length. Unit: words.
    pub words: usize,
    /// Name, as the paper has it.
    pub name: &'static str,
    /// One line of meaning.
    pub meaning: &'static str,
}

/// A layout table with its title, as `docs/format.md` prints it.
#[derive(Clone, Copy, Debug)]
pub struct Ruler {
    /// Name of the record.
    pub name: &'static str,
    /// The documentation of the record, line by line.
    pub about: &'static str,
    /// Length of the record. Unit: bytes.
    pub bytes: usize,
    /// Every field, in the order of the medium, without gaps.
    pub fields: &'static [Field],
}

/// Declares a ruler: byte offsets are written out and checked at compile time.
///
/// Each field becomes a constant that holds its *word index* in the record, to be used with
/// [`Block`](crate::Block); `RULER` is the table.
///
/// ```
/// everhash_pmem::ruler! {
///     /// A record with a head and three pairs.
///     pub struct Demo [64] {
///         0  HEAD  [1] "the word that publishes the record";
///         8  NEXT  [1] "address of the next record, 0 for none";
///         16 PAIRS [6] "three times key word, value word";
///     }
/// }
/// assert_eq!(Demo::PAIRS, 2);
/// assert_eq!(Demo::WORDS, 8);
/// assert_eq!(Demo::RULER.fields[2].at, 16);
/// assert_eq!(Demo::RULER.about.trim(), "A record with a head and three pairs.");
/// ```
#[macro_export]
macro_rules! ruler {
    ($(#[doc = $about:literal])* $vis:vis struct $name:ident [$bytes:expr] {
        $( $at:literal $field:ident [$words:expr] $meaning:literal; )*
    }) => {
        $(#[doc = $about])*
        $vis struct $name;

        #[allow(dead_code, reason = "a ruler lists every field, whether or not code reads it")]
        impl $name {
            $( #[doc = $meaning] $vis const $field: usize = $at / 8; )*
            /// Length of the record. Unit: bytes.
            $vis const BYTES: usize = $bytes;
            /// Length of the record. Unit: words.
            $vis const WORDS: usize = $bytes / 8;
            /// The table of fields.
            $vis const RULER: $crate::Ruler = $crate::Ruler {
                name: stringify!($name),
                about: concat!($( $about, "\n" ),*),
                bytes: $bytes,
                fields: &[$( $crate::Field {
                    at: $at,
                    words: $words,
                    name: stringify!($field),
                    meaning: $meaning,
                } ),*],
            };
        }

        const _: () = {
            let fields = $name::RULER.fields;
            let mut end = 0;
            let mut i = 0;
            while i < fields.len() {
                assert!(fields[i].at == end, "a field begins where the one before it ends");
                end += fields[i].words * 8;
                i += 1;
            }
            assert!(end == $name::BYTES, "the fields fill the record");
        };
    };
}

/// A bit field inside a word, with its position written out.
///
/// ```
/// use everhash_pmem::Bits;
/// const DEPTH: Bits = Bits::new(8, 6);
/// let word = DEPTH.set(0, 33);
/// assert_eq!(DEPTH.get(word), 33);
/// assert_eq!(word, 33 << 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    shift: u32,
    mask: u64,
}

impl Bits {
    /// Names `width` bits from bit `shift` on.
    ///
    /// # Panics
    /// If they do not lie inside a word, or if there are none.
    #[inline(always)]
    pub const fn new(shift: u32, width: u32) -> Bits {
        assert!(width > 0 && shift + width <= 64);
        Bits { shift, mask: u64::MAX >> (64 - width) }
    }

    /// Returns the bits of `word`.
    #[inline(always)]
    pub const fn get(self, word: u64) -> u64 {
        (word >> self.shift) & self.mask
    }

    /// Returns `word` with the bits replaced by the low bits of `value`.
    #[inline(always)]
    pub const fn set(self, word: u64, value: u64) -> u64 {
        (word & !(self.mask << self.shift)) | ((value & self.mask) << self.shift)
    }

    /// Returns how many they are.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.mask.count_ones()
    }

    /// Returns the largest value that fits.
    pub const fn max(self) -> u64 {
        self.mask
    }
}
