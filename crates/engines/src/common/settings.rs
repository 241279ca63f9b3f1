//! The settings of an engine, each declared once: its name, default, range and meaning; and the
//! first words of a root, which keep them.

use everhash_index::{Error, Result};
use everhash_pmem::Addr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Makes the struct of an engine's settings: a line for each, `name = default, range, meaning;`.
///
/// In the order of the lines they lie in the root, behind the version.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $Settings:ident {
            $( $name:ident = $default:expr, $sound:expr, $meaning:literal; )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $Settings {
            $( #[doc = $meaning] pub $name: u64, )+
        }

        impl Default for $Settings {
            fn default() -> Self {
                $Settings { $( $name: $default, )+ }
            }
        }

        impl $Settings {
            /// How many settings there are.
            const COUNT: usize = [$( stringify!($name) ),+].len();

            fn words(&self) -> [u64; Self::COUNT] {
                [$( self.$name ),+]
            }

            fn from_words([$( $name ),+]: [u64; Self::COUNT]) -> Self {
                $Settings { $( $name ),+ }
            }

            /// Checks each setting by itself.
            ///
            /// # Errors
            /// [`Error::Setting`](everhash_index::Error::Setting).
            fn check_each(&self) -> everhash_index::Result<()> {
                let mut copy = *self;
                $( everhash_index::Settings::set(&mut copy, stringify!($name), self.$name)?; )+
                Ok(())
            }
        }

        impl everhash_index::Settings for $Settings {
            const ALL: &'static [everhash_index::Setting] = &[$(
                everhash_index::Setting {
                    name: stringify!($name),
                    default: $default,
                    meaning: $meaning,
                },
            )+];

            fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $( stringify!($name) => Some(self.$name), )+
                    _ => None,
                }
            }

            fn set(&mut self, name: &str, value: u64) -> everhash_index::Result<()> {
                match name {
                    $( stringify!($name) => {
                        let sound: fn(u64) -> bool = $sound;
                        if !sound(value) {
                            let why = format!("{value} is out of range; {}", $meaning);
                            let name = stringify!($name);
                            return Err(everhash_index::Error::Setting { name, why });
                        }
                        self.$name = value;
                    } )+
                    _ => return Err(Self::unknown(name)),
                }
                Ok(())
            }
        }
    };
}

pub(crate) use settings;

/// Versions of layouts stay below: a number beyond it is damage.
///
/// Unit: none. Source: ours; there is room for many more than there were.
const MOST_VERSION: u64 = 256;

/// Returns the checksum of the words from `root` on.
pub(crate) fn checksum(root: Addr, words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, root.byte())
}

/// Checks the words from `root` on, which begin with a version and end with the checksum of those
/// before it.
///
/// # Errors
/// [`Error::Unsupported`] if the layout of `engine` is not of `version`; [`Error::Corrupt`] if the
/// checksum does not match, and the version is none that a newer program could have written.
pub(crate) fn verify(root: Addr, words: &[u64], engine: &str, version: u64) -> Result<()> {
    let (last, words) = words.split_last().expect("a root has a version and a checksum");
    // A newer layout may have more settings, and its checksum behind them.
    let is_newer = (version + 1..MOST_VERSION).contains(&words[0]);
    if checksum(root, words) != *last && !is_newer {
        let at = root.plus(words.len() as u64).byte();
        return Err(Error::Corrupt { at, broken: "the checksum of the settings matches" });
    }
    if words[0] != version {
        return Err(other_layout(engine, words[0], version));
    }
    Ok(())
}

/// Makes the error of a layout that is not of `version`.
pub(crate) fn other_layout(engine: &str, found: u64, version: u64) -> Error {
    let advice = match found > version {
        true => "open with a newer program",
        false => "export with the program that wrote it, and import that",
    };
    let what =
        format!("layout {found} of engine {engine}, where this program has {version}; {advice}");
    Error::Unsupported { what }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::pool::ROOT;

    use super::*;
    use crate::common::check::verify_root;

    #[test]
    fn a_newer_layout_with_more_settings_is_unsupported_and_no_damage() {
        // Fails if the checksum is looked for where this version keeps it before the version is
        // looked at: a newer root has other words there. Damage to a version is damage.
        let mut newer = vec![8, 1, 2, 3, 4];
        newer.push(checksum(ROOT, &newer));
        for (version, is_unsupported) in [(7, true), (6, true), (8, false), (9, false)] {
            for refused in [
                verify(ROOT, &newer[..5], "other", version),
                verify_root(&newer[..5], "other", version),
            ] {
                let refused = refused.unwrap_err();
                assert_eq!(matches!(refused, Error::Unsupported { .. }), is_unsupported);
                assert_eq!(matches!(refused, Error::Corrupt { .. }), !is_unsupported);
                assert_eq!(refused.to_string().contains("newer"), is_unsupported, "{refused}");
            }
        }
        // Five words with their checksum, as this version has them, of an older one.
        let older = [3, 1, 2, 3, checksum(ROOT, &[3, 1, 2, 3])];
        for refused in [verify(ROOT, &older, "other", 7), verify_root(&older, "other", 7)] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
            assert!(!refused.to_string().contains("newer"), "{refused}");
        }
        newer[0] |= 1 << 40;
        assert!(matches!(verify(ROOT, &newer[..5], "other", 7), Err(Error::Corrupt { .. })));
        assert!(matches!(verify_root(&newer[..5], "other", 7), Err(Error::Corrupt { .. })));
    }
}
