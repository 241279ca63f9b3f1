//! The medium under the tables of a run.

use everhash_index::{Engine, Form, Inline, Opening, Result, Settings, Table};
use everhash_pmem::{Addr, Dram, DramOptions, Hints, Media, Region, Span, WORD, WriteBack};

use crate::Plan;

/// Makes an open, empty table on memory whose pages are all present.
///
/// A page that is touched for the first time costs microseconds: with faults inside the timed
/// part, a run would measure the kernel.
pub(crate) fn make<E: Engine>(plan: &Plan) -> Result<Box<dyn Table>> {
    let options =
        DramOptions { write_back: plan.write_back, huge_pages: true, ..DramOptions::default() };
    let medium = Dram::with_options(bytes(plan), options)?;
    medium.touch(Span::new(Addr::NULL, medium.bytes() / WORD));
    let sized = plan.presized.then_some(plan.items);
    let settings = settings_of::<E>(plan.form, sized, &plan.settings)?;
    let opening = Opening { form: plan.form, hash: plan.hash, ..Opening::default() };
    let table = everhash_index::create::<E, _>(Region::new(medium), &opening, &settings, &Inline)?;
    Ok(Box::new(table))
}

/// Returns the settings of a table for `sized` pairs, or the usual ones, with what is changed of
/// them.
pub(crate) fn settings_of<E: Engine>(
    form: Form,
    sized: Option<u64>,
    changes: &[(String, u64)],
) -> Result<E::Settings> {
    let mut settings = sized.map_or_else(E::Settings::default, |items| E::sized_for(form, items));
    changes.iter().try_for_each(|(name, value)| settings.set(name, *value))?;
    Ok(settings)
}

/// Returns how much memory is touched ahead: what the largest layout takes, growth included.
fn bytes(plan: &Plan) -> u64 {
    (plan.items * 128).max(64 << 20)
}

/// Returns the flush instruction that this processor has, `clwb` first.
pub fn best_write_back() -> WriteBack {
    [WriteBack::Clwb, WriteBack::Clflushopt, WriteBack::Clflush]
        .into_iter()
        .find(|kind| {
            let options =
                DramOptions { write_back: *kind, capacity_bytes: 4096, huge_pages: false };
            Dram::with_options(0, options).is_ok()
        })
        .unwrap_or(WriteBack::None)
}
