//! A table on a medium that counts: what operations ask of it.

use core::ops::Range;
use std::sync::Arc;

use everhash_index::{Engine, Form, Inline, Opening, Result, Table, WordTable, create};
use everhash_pmem::{Domain, Guarantees, Image, Region, Traffic};

/// Persistent memory as most papers have it: flushed lines last, and a line keeps the order of its
/// stores.
pub const MEMORY: Guarantees =
    Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 };

/// An ordinary file: fences are syncs, and nothing has an order inside a page.
pub const FILE: Guarantees =
    Guarantees { domain: Domain::Synced, same_line_order: false, access_unit_bytes: 4096 };

/// How far the medium can grow. Unit: bytes.
const CAPACITY_BYTES: u64 = 96 << 20;

/// A new table of an engine, and the medium that counts for it.
pub struct Measured<E: Engine> {
    /// The medium.
    pub media: Arc<Image>,
    /// The table.
    pub table: E::Table<Image>,
    /// The form of its pairs.
    pub form: Form,
}

/// What an operation asked of the medium, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Lines that were flushed.
    pub lines: f64,
    /// Fences.
    pub fences: f64,
    /// Commit stores.
    pub commits: f64,
}

impl<E: Engine> Measured<E> {
    /// Makes an empty table on a medium that claims `guarantees`.
    ///
    /// # Errors
    /// Those of [`create`].
    pub fn new(form: Form, settings: &E::Settings, guarantees: Guarantees) -> Result<Self> {
        let image = Image::new(0, CAPACITY_BYTES).with_guarantees(guarantees).counted();
        let media = Arc::new(image);
        let opening = Opening { form, ..Opening::default() };
        let table = create::<E, _>(Region::new(Arc::clone(&media)), &opening, settings, &Inline)?;
        Ok(Measured { media, table, form })
    }

    /// Returns the table of words.
    ///
    /// # Panics
    /// If the pairs have another form.
    pub fn words(&self) -> &dyn WordTable {
        self.table.words().expect("a table of this form has words")
    }

    /// Returns what `act` asked of the medium.
    pub fn traffic(&self, act: impl FnOnce()) -> Traffic {
        let before = self.media.traffic();
        act();
        self.media.traffic() - before
    }

    /// Does something with each number of `range`, and returns what one cost.
    pub fn cost(&self, range: Range<u64>, act: impl FnMut(u64)) -> Cost {
        let count = range.end.saturating_sub(range.start) as f64;
        let traffic = self.traffic(|| range.for_each(act));
        let per = |what: u64| what as f64 / count;
        Cost {
            lines: per(traffic.lines_flushed),
            fences: per(traffic.fences),
            commits: per(traffic.commit_stores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{NoSettings, Reference};

    #[test]
    fn a_cost_is_what_one_operation_asks() {
        // Fails if figures of papers are compared with a sum, or with figures of another kind.
        let measured = Measured::<Reference>::new(Form::WORDS, &NoSettings, MEMORY).unwrap();
        let put = |key| assert!(!measured.words().put_word(key, key).unwrap());
        // The head and one pair are two lines of a table; a root is one more.
        assert_eq!(measured.cost(0..1, put), Cost { lines: 3.0, fences: 2.0, commits: 1.0 });
        let Cost { lines, fences, commits } = measured.cost(1..5, put);
        assert!(lines > 3.0 && fences == 2.0 && commits == 1.0, "{lines}");
    }
}
