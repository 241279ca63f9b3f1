//! Conformance: every sentence of the contract as a named case.
//!
//! [`judge`] runs all cases that apply to a form and to what the engine says it can do, each on
//! fresh tables with the engine's tiny settings. What the contract leaves open (an answer to the
//! removal of a key that cannot be there, say) is accepted in every way it may turn out.

mod answers;
mod endings;
mod lengths;
mod limits;
mod promises;
mod scans;

use core::fmt;

use everhash_index::{Design, Form, Table};
use everhash_pmem::Image;

use crate::failure::no_panic;
use crate::model::Pairs;
use crate::workload::Shape;
use crate::{Failure, OpenTable};

/// One case: a sentence of the contract.
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    needs: Needs,
    run: fn(&Design<Image>, Form) -> Result<(), Failure>,
}

/// What a form must have for a case to apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    FixedLengths,
    AnyLength,
    Words,
}

impl Needs {
    fn met_by(self, form: Form) -> bool {
        match self {
            Needs::Nothing => true,
            Needs::FixedLengths => form != Form::Variable,
            Needs::AnyLength => form == Form::Variable,
            Needs::Words => form == Form::WORDS,
        }
    }
}

/// What was judged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Cases that hold.
    pub held: Vec<&'static str>,
    /// Cases that do not concern this form.
    pub left_out: Vec<&'static str>,
}

/// The cases that do not hold.
#[derive(Clone)]
pub struct Violations {
    /// Name of the engine.
    pub engine: &'static str,
    /// The form of the pairs.
    pub form: Form,
    /// Case and failure.
    pub broken: Vec<(&'static str, Failure)>,
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {}, form {}: {} cases", self.engine, self.form, self.broken.len())?;
        self.broken.iter().try_for_each(|(case, failure)| write!(f, "\n  {case}: {failure}"))
    }
}

// As its text: judges are called with `unwrap`, which prints this.
impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl core::error::Error for Violations {}

/// Runs every case that applies.
///
/// # Errors
/// All cases that do not hold.
pub fn judge(design: &Design<Image>, form: Form) -> Result<Report, Violations> {
    let mut report = Report::default();
    let mut broken = Vec::new();
    for case in CASES {
        if !case.needs.met_by(form) {
            report.left_out.push(case.name);
            continue;
        }
        match no_panic(|| (case.run)(design, form)) {
            Ok(()) => report.held.push(case.name),
            Err(failure) => broken.push((case.name, failure)),
        }
    }
    if broken.is_empty() {
        return Ok(report);
    }
    Err(Violations { engine: design.name, form, broken })
}

/// Judges an engine by one case, if the form meets its needs.
///
/// # Errors
/// What does not hold.
///
/// # Panics
/// If there is no case `name`.
pub fn judge_case(design: &Design<Image>, form: Form, name: &str) -> Result<(), Failure> {
    let case = CASES.iter().find(|case| case.name == name).expect("a case of that name");
    match case.needs.met_by(form) {
        true => no_panic(|| (case.run)(design, form)),
        false => Ok(()),
    }
}

/// Makes the list of cases, each named by its function.
macro_rules! cases {
    ($( $needs:ident: $($module:ident::$name:ident),+ $(,)?; )+) => {
        /// Every case there is.
        pub const CASES: &[Case] = &[$($( Case {
            name: stringify!($name),
            needs: Needs::$needs,
            run: $module::$name,
        } ),+),+];
    };
}

cases! {
    Nothing:
        answers::insert_adds_only_what_is_absent,
        answers::put_adds_or_replaces,
        answers::update_replaces_only_what_is_present,
        answers::remove_says_whether_there_was_one,
        answers::modify_sees_and_changes_one_key,
        answers::many_at_once_agree_with_one_by_one,
        answers::many_removals_agree_with_one_by_one,
        answers::a_table_begins_empty_and_counts,
        answers::bare_forms_believe_their_caller,
        answers::atomic_batches_do_their_writes_in_order,
        scans::a_scan_visits_every_pair,
        scans::a_cursor_can_be_used_again,
        scans::a_scan_sees_what_is_there_throughout,
        endings::clear_leaves_an_empty_table,
        endings::a_closed_table_comes_back,
        endings::a_dropped_table_comes_back,
        endings::reading_only_changes_nothing,
        endings::two_tables_are_independent,
        limits::a_growing_table_keeps_every_pair,
        limits::space_is_used_again,
        limits::no_operation_keeps_what_it_took,
        endings::room_is_used_again_from_open_to_close,
        limits::a_full_medium_is_an_error_and_no_end,
        limits::a_table_that_refused_many_writes_is_emptied,
        promises::maintenance_comes_to_an_end,
        promises::a_panic_in_modify_publishes_nothing,
        promises::errors_carry_no_keys,
        promises::figures_are_consistent,
        promises::a_check_reaches_every_pair,
        promises::names_and_settings_are_in_order;
    FixedLengths:
        lengths::another_form_is_refused_by_writes_and_absent_to_reads;
    AnyLength:
        lengths::every_length_comes_back,
        lengths::the_longest_pairs_come_back,
        lengths::longer_ones_come_back_or_are_refused,
        lengths::a_value_may_look_like_anything;
    Words:
        answers::words_agree_with_bytes;
}

/// To what length the media of most cases can grow. Unit: bytes.
///
/// Source: ours; an engine's tiny settings fit into 64 KiB, and the rest is room to grow.
const CAPACITY_BYTES: u64 = 2 << 20;

/// Makes a table with room to grow.
fn roomy(design: &Design<Image>, form: Form) -> Result<OpenTable, Failure> {
    Ok(OpenTable::tiny(design, form, CAPACITY_BYTES)?)
}

/// Puts the pairs of these numbers: key `n` with value `n + offset`; returns them.
fn load(
    table: &dyn Table,
    shape: &Shape,
    numbers: core::ops::Range<u16>,
    offset: u32,
) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::new();
    for number in numbers {
        let (key, value) = (shape.key(number), shape.value(u32::from(number) + offset));
        table.put(&key, &value)?;
        pairs.insert(key, value);
    }
    Ok(pairs)
}

/// Compares a whole table with what it should hold; every key is asked for, and some others.
fn holds(session: &OpenTable, shape: &Shape, pairs: &Pairs) -> Result<(), Failure> {
    let others = (60_000..60_010).map(|number| shape.key(number));
    let keys: Vec<Vec<u8>> = pairs.keys().cloned().chain(others).collect();
    session.read_out(pairs, &keys)
}

/// As [`holds`], and again after the table was closed, or else after its process has ended.
fn holds_on(
    session: &mut OpenTable,
    shape: &Shape,
    pairs: &Pairs,
    is_closed: bool,
) -> Result<(), Failure> {
    holds(session, shape, pairs)?;
    match is_closed {
        true => session.reopen()?,
        false => session.kill()?,
    }
    holds(session, shape, pairs)
}
