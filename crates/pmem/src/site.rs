//! Sites: the name of each place in the code that persists something.
//!
//! Every flush, fence, sync and commit store names its site. Real media ignore the name. The mutant
//! judge drops one site after the other and expects another judge to fail: a surviving mutant is
//! dead code or a documented exception.

use core::fmt;

/// The name of one place in the code that persists something, for example `wophi/insert/token`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(&'static str);

impl Site {
    /// Makes a site. Names are unique in the program; their form is `engine/operation/what`.
    pub const fn new(name: &'static str) -> Site {
        Site(name)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Declares the sites of a module as constants, and `ALL`, the list of them.
///
/// ```
/// mod sites {
///     everhash_pmem::sites! {
///         /// The pair, before its token.
///         INSERT_PAIR = "demo/insert/pair";
///         /// The token that makes the pair true.
///         INSERT_TOKEN = "demo/insert/token";
///     }
/// }
/// assert_eq!(sites::ALL.len(), 2);
/// assert_eq!(sites::INSERT_TOKEN.name(), "demo/insert/token");
/// ```
#[macro_export]
macro_rules! sites {
    ($( $(#[$meta:meta])* $name:ident = $text:literal; )*) => {
        $( $(#[$meta])* pub const $name: $crate::Site = $crate::Site::new($text); )*
        /// Every site of this module.
        pub const ALL: &[$crate::Site] = &[$( $name ),*];
    };
}
