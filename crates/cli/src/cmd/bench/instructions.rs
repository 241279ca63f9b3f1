//! `everhash bench --instructions`: how many instructions an operation takes.

use std::env::current_exe;
use std::process::Command;

use comfy_table::{CellAlignment, Table, presets};
use everhash_bench::{Candidate, Count, Plan, be_counted, count_instructions};

use super::spinner;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Counts for every candidate, each in a process of its own, and prints; more than `at_most` of
/// an operation are a failure.
pub fn run(
    plan: &Plan,
    candidates: &[Candidate],
    json: bool,
    at_most: &[(String, u64)],
) -> Outcome {
    let progress = spinner();
    let mut rows = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.holds(plan.form)) {
        progress.set_message(candidate.name);
        let mut child = child(plan, candidate)?;
        rows.push((candidate.name, count_instructions(&mut child).map_err(Failure::device)?));
    }
    progress.finish_and_clear();
    if json {
        let figures = rows.iter().map(|(name, counts)| {
            let counts = serde_json::to_value(counts).expect("figures have a JSON form");
            ((*name).to_owned(), counts)
        });
        output::print_json(&serde_json::Value::Object(figures.collect()))?;
    } else {
        print(plan, &rows)?;
    }
    keep_to(at_most, &rows)
}

/// Does what is counted: the run is a child of the one above.
pub fn be_child(plan: &Plan, candidates: &[Candidate]) -> Outcome {
    candidates.iter().try_for_each(|one| be_counted(plan, one)).map_err(Failure::device)
}

/// Returns this program with the arguments that make it do what is counted.
fn child(plan: &Plan, candidate: &Candidate) -> Outcome<Command> {
    let program = current_exe().map_err(Failure::device)?;
    let mut child = Command::new(program);
    child.args(["bench", "--counted", "--engine", candidate.name]);
    child.args(["--items", &plan.items.to_string(), "--form", &plan.form.to_string()]);
    child.args(["--hash", &plan.hash.to_string()]);
    if !plan.presized {
        child.arg("--growing");
    }
    if plan.durable_caches {
        child.arg("--durable-caches");
    }
    for (name, value) in &plan.settings {
        child.args(["--set", &format!("{name}={value}")]);
    }
    Ok(child)
}

fn print(plan: &Plan, rows: &[(&str, Vec<Count>)]) -> Outcome {
    output::print(&format!(
        "instructions of an operation, median (least to most), {} pairs of form {}, hash {}",
        plan.items, plan.form, plan.hash
    ))?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let first = rows.first().map_or(&[][..], |(_, counts)| counts);
    table.set_header(["engine"].into_iter().chain(first.iter().map(|each| each.phase.label())));
    for (name, counts) in rows {
        table.add_row([(*name).to_owned()].into_iter().chain(counts.iter().map(cell)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt().lines().try_for_each(output::print)
}

fn cell(each: &Count) -> String {
    format!("{} ({} to {})", each.median, each.least, each.most)
}

fn keep_to(at_most: &[(String, u64)], rows: &[(&str, Vec<Count>)]) -> Outcome {
    for (operation, most) in at_most {
        let mut of = rows.iter().flat_map(|(name, counts)| {
            let of = counts.iter().filter(|each| each.phase.label() == operation);
            of.map(move |each| (name, each.median))
        });
        let Some(first) = of.next() else {
            return Err(Failure::usage(format_args!("no operation '{operation}' is counted")));
        };
        if let Some((name, median)) = [first].into_iter().chain(of).find(|one| one.1 > *most) {
            let why = format!("{name}, {operation}: {median} instructions, more than {most}");
            return Err(Failure::answer(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everhash_bench::{Phase, best_write_back, candidates};

    #[test]
    fn a_child_counts_what_its_parent_was_told_to_count() {
        // Fails if an option does not get through: figures of another table were printed.
        let plan = Plan {
            items: 256,
            form: everhash_store::Form::WORDS,
            threads: vec![1],
            rounds: 1,
            hash: everhash_store::HashKind::Rapid,
            presized: false,
            settings: vec![("rotate".to_owned(), 0), ("grow_percent".to_owned(), 10)],
            write_back: best_write_back(),
            durable_caches: true,
        };
        let child = child(&plan, &candidates()[0]).unwrap();
        let arguments: Vec<_> = child.get_args().map(|one| one.to_str().unwrap()).collect();
        let expected = format!(
            "bench --counted --engine {} --items 256 --form 8/8 --hash rapid --growing \
             --durable-caches --set rotate=0 --set grow_percent=10",
            candidates()[0].name
        );
        assert_eq!(arguments.join(" "), expected);
    }

    #[test]
    fn a_limit_holds_for_every_engine_and_for_its_operation() {
        // Fails if a limit were broken by one engine unseen, or by the number that it allows; or if
        // one of an operation that is not counted were kept.
        let count = |phase, median| Count { phase, median, least: 1, most: 900 };
        let rows = [
            ("reef", vec![count(Phase::Get, 100), count(Phase::Update, 500)]),
            ("walsh", vec![count(Phase::Get, 200)]),
        ];
        let keeps = |what: &str, most| keep_to(&[(what.to_owned(), most)], &rows);
        assert!(keeps("get", 200).is_ok() && keeps("update", 500).is_ok());
        let broken = format!("{:?}", keeps("get", 199).unwrap_err());
        assert!(broken.contains("walsh, get: 200 instructions, more than 199"), "{broken}");
        let broken = format!("{:?}", keeps("get", 99).unwrap_err());
        assert!(broken.contains("reef, get: 100 instructions, more than 99"), "{broken}");
        let unknown = format!("{:?}", keeps("got", 1000).unwrap_err());
        assert!(unknown.contains("status: 2") && unknown.contains("no operation 'got'"));
        assert_eq!(cell(&rows[0].1[0]), "100 (1 to 900)");
        let both = [("get".to_owned(), 200), ("update".to_owned(), 499)];
        assert!(keep_to(&both, &rows).is_err());
    }
}
