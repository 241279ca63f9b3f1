//! The pool that is damaged, and what it holds.

use core::time::Duration;

use everhash_index::{Design, Form, Inline, Opening, Result, Table};
use everhash_pmem::{Boot, Guarantees, Image, Region};

use super::ways::{self, Told};
use super::{Effort, Judged};
use crate::model::Pairs;
use crate::workload::Shape;
use crate::{Failure, OpenTable};

/// To what length a pool can grow beyond the one that was damaged. Unit: bytes.
const MORE_BYTES: u64 = 256 << 10;

/// The pool that is damaged, and what it holds.
pub(super) struct Victim {
    pub design: Design<Image>,
    pub shape: Shape,
    pub words: Vec<u64>,
    pub pairs: Pairs,
    pub numbers: u16,
    pub closed: bool,
    guarantees: Guarantees,
}

impl Victim {
    pub fn new(
        design: &Design<Image>,
        form: Form,
        effort: &Effort,
        closed: bool,
    ) -> Judged<Victim> {
        let shape = Shape::tiny(form);
        let guarantees = effort.model.guarantees();
        let medium = Image::new(0, MORE_BYTES).with_guarantees(guarantees);
        let mut session = OpenTable::create(design, medium, form)?;
        let mut pairs = Pairs::new();
        let mut put = |number: u16, value: u32| -> Result<()> {
            let (key, value) = (shape.key(number), shape.value(value));
            session.table().put(&key, &value)?;
            pairs.insert(key, value);
            Ok(())
        };
        (0..effort.pairs).try_for_each(|number| put(number, number.into()))?;
        (0..effort.pairs)
            .step_by(3)
            .try_for_each(|number| put(number, 1000 + u32::from(number)))?;
        for number in (0..effort.pairs).step_by(5) {
            session.table().remove(&shape.key(number))?;
            pairs.remove(&shape.key(number));
        }
        session.table().sync()?;
        if closed {
            session.close()?;
        }
        let words = session.region().media().words();
        let numbers = effort.pairs;
        Ok(Victim { design: *design, shape, words, pairs, numbers, closed, guarantees })
    }

    /// Opens a damaged pool: a closed one in another boot, one that was left in the same.
    pub fn open(&self, words: &[u64]) -> Result<(Region<Image>, Box<dyn Table>)> {
        let bytes = words.len() as u64 * 8;
        let image = Image::of(words, bytes, bytes + MORE_BYTES).with_guarantees(self.guarantees);
        let region = Region::new(image);
        let table = self.design.open(region.clone(), self.boot(), &Inline)?;
        Ok((region, table))
    }

    /// Returns whether the check of the whole pool finds nothing.
    pub fn is_sound(&self, words: &[u64]) -> bool {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::of(words, bytes, bytes).with_guarantees(self.guarantees));
        self.design.check(&region, self.boot(), &mut |_, _| {}).is_ok()
    }

    fn boot(&self) -> Boot {
        let Boot([machine, boot]) = Opening::default().boot;
        Boot([machine, boot + u64::from(self.closed)])
    }

    /// Asks a damaged pool in every way there is, each apart from the others. The keys are asked
    /// for from number `first` on, so that each has its turn before an error.
    pub fn ask(&self, words: &[u64], first: usize) -> Judged<Told> {
        let mut told = Told::default();
        let mut open = None;
        for way in ways::ALL {
            let table = match open.take() {
                Some(table) => table,
                None => match self.open(words) {
                    Ok((_, table)) => table,
                    Err(error) => {
                        told.note(&error);
                        return Ok(told);
                    }
                },
            };
            let errors = told.errors;
            way(self, &*table, first, &mut told)?;
            // After an error the next way begins anew: what it would answer here may be an echo.
            open = (told.errors == errors).then_some(table);
        }
        Ok(told)
    }

    /// Adds pairs to a pool that seems sound: the damage may lie where no read looks.
    pub fn add(&self, words: &[u64]) -> Result<Judged<()>> {
        let (_, table) = self.open(words)?;
        for number in self.numbers..2 * self.numbers {
            table.put(&self.shape.key(number), &self.shape.value(number.into()))?;
        }
        let (items, expected) =
            (table.check()?.items, self.pairs.len() as u64 + u64::from(self.numbers));
        if items != expected {
            let what = format!("after {} more puts there are {items} pairs", self.numbers);
            return Ok(Err(Failure::new(format!("{what}, not {expected}"))));
        }
        Ok(Ok(()))
    }

    /// Calls every operation on a pool with arbitrary contents; accepts any answer and any error.
    /// Returns whether it could be opened and closed.
    pub fn ask_everything(&self, words: &[u64]) -> Judged<bool> {
        let Ok((_, table)) = self.open(words) else { return Ok(false) };
        ways::scan(self, &*table, 0, &mut Told::default())?;
        for number in 0..2 * self.numbers {
            let key = self.shape.key(number);
            let _ = table.get(&key, &mut Vec::new());
            let _ = table.put(&key, &self.shape.value(number.into()));
            let _ = table.remove(&self.shape.key(number / 2));
        }
        let _ = table.maintain(Duration::ZERO, 100);
        let _ = table.len();
        let _ = table.check();
        let _ = table.clear();
        Ok(table.close().is_ok())
    }
}
