//! Rooms: which files an engine's folder holds, and which of them may import which.

use std::collections::{BTreeMap, BTreeSet};

use crate::markdown::{Document, spans};
use crate::{Finding, Project, Source, paths};

/// Where the engines lie.
pub const ENGINES: &str = "crates/engines/src/";

/// The rooms that every engine has, in reading order, without `mod.rs` and the mechanisms.
const FIXED: [&str; 10] = [
    "layout",
    "setup",
    "concurrency",
    "state",
    "resize",
    "ops",
    "recovery",
    "table",
    "check",
    "tests",
];

/// The room that delegates every call on an open table. It may import all others.
const TABLE: &str = "table";

/// Most lines of code in a `mod.rs`: it delegates. Documentation does not count.
const FACE_LINES: usize = 150;

/// One engine's folder.
pub struct Engine<'a> {
    /// Name of the folder.
    pub name: &'a str,
    /// Every file in it.
    pub sources: Vec<&'a Source>,
    /// Its documentation, from `mod.rs`.
    pub about: Document,
}

impl<'a> Engine<'a> {
    /// Returns its `mod.rs`.
    pub fn face(&self) -> Option<&'a Source> {
        let path = format!("{ENGINES}{}/mod.rs", self.name);
        self.sources.iter().copied().find(|source| source.path == path)
    }

    /// Returns the room that a file belongs to: `ops/insert.rs` belongs to `ops`.
    pub(super) fn room(&self, source: &'a Source) -> &'a str {
        let rest = &source.path[ENGINES.len() + self.name.len() + 1..];
        let first = rest.split('/').next().unwrap_or(rest);
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Returns the files that the section table names, with the line of each.
    fn named(&self) -> Vec<(usize, String)> {
        let mut named = Vec::new();
        for (table, column) in self.about.tables_with("File") {
            for row in &table.rows {
                let cell = row.cells.get(column).map_or("", String::as_str);
                named.extend(spans(cell).map(|file| (row.line, file.to_string())));
            }
        }
        named
    }
}

/// Returns every engine, by the folders that have a `mod.rs`.
pub fn engines(project: &Project) -> Vec<Engine<'_>> {
    let mut folders: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in &project.sources {
        let Some(rest) = source.path.strip_prefix(ENGINES) else { continue };
        if let Some((folder, _)) = rest.split_once('/') {
            folders.entry(folder).or_default().push(source);
        }
    }
    folders.remove("common");
    folders.into_iter().map(|(name, sources)| engine(name, sources)).collect()
}

fn engine<'a>(name: &'a str, sources: Vec<&'a Source>) -> Engine<'a> {
    let mut engine = Engine { name, sources, about: Document::default() };
    engine.about = engine.face().map(|face| Document::parse(&about(face))).unwrap_or_default();
    engine
}

/// Returns the text of a file's `//!` lines, on the lines where they stand.
pub fn about(source: &Source) -> String {
    let line = |line: &str| {
        let text = line.strip_prefix("//!").unwrap_or_default();
        text.strip_prefix(' ').unwrap_or(text).to_string() + "\n"
    };
    source.text.lines().take_while(|line| line.starts_with("//!")).map(line).collect()
}

/// Finds files that are no room, rooms that are missing, and tables that name what is not there.
pub fn rooms(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for engine in engines(project) {
        let Some(face) = engine.face() else {
            let path = format!("{ENGINES}{}", engine.name);
            findings.push(Finding::new(
                &path,
                1,
                "an engine without `mod.rs`; begin with its paper",
            ));
            continue;
        };
        faces(&engine, face, &mut findings);
        tables(project, &engine, face, &mut findings);
    }
    findings
}

fn faces(engine: &Engine<'_>, face: &Source, findings: &mut Vec<Finding>) {
    let mut report = |line, what: String| findings.push(Finding::new(&face.path, line, what));
    for title in ["File", "The paper says"] {
        if engine.about.tables_with(title).next().is_none() {
            report(1, format!("no table with a column `{title}`; see `docs/style.md`, rooms"));
        }
    }
    let code = face.text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.filter(|line| !line.trim().is_empty()).count();
    if code > FACE_LINES {
        report(1, format!("{code} lines of code; a `mod.rs` delegates, {FACE_LINES} are the most"));
    }
    let about = about(face);
    let present: BTreeSet<&str> = engine.sources.iter().map(|source| engine.room(source)).collect();
    for room in FIXED.iter().filter(|room| !present.contains(*room)) {
        if !about.contains(&format!("no `{room}.rs`")) {
            report(
                1,
                format!("there is no `{room}.rs`; write it, or say \"no `{room}.rs`\" and why"),
            );
        }
    }
}

fn tables(project: &Project, engine: &Engine<'_>, face: &Source, findings: &mut Vec<Finding>) {
    let named = engine.named();
    for (line, file) in &named {
        if !project.tree.has(&format!("{ENGINES}{}/{file}", engine.name)) {
            let what = format!("the section table names `{file}`, which is not there; correct it");
            findings.push(Finding::new(&face.path, *line, what));
        }
    }
    for source in &engine.sources {
        let room = engine.room(source);
        let is_known = kind(room) != "mechanism";
        let in_table = named.iter().any(|(_, file)| {
            file.strip_suffix(".rs").unwrap_or(file).split('/').next() == Some(room)
        });
        if !is_known && !in_table {
            let what = format!(
                "`{room}` is no room and no mechanism of the section table in \
                                `mod.rs`; name its section there"
            );
            findings.push(Finding::new(&source.path, 1, what));
        }
    }
}

/// Finds imports against the arrows, inside an engine and between engines.
pub fn arrows(project: &Project) -> Vec<Finding> {
    let engines = engines(project);
    let names: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
    let mut findings = Vec::new();
    for engine in &engines {
        for source in &engine.sources {
            let from = engine.room(source);
            for named in paths::named(source, &module(&source.path)) {
                let line = named.line;
                if let Some(what) = verdict(engine, from, &names, &named.path) {
                    findings.push(Finding::new(&source.path, line, what));
                }
            }
        }
    }
    for source in project.sources.iter().filter(|s| s.path.starts_with(&format!("{ENGINES}common")))
    {
        for named in paths::named(source, &module(&source.path)) {
            if let Some(other) = named.path.first().filter(|first| names.contains(&first.as_str()))
            {
                let what =
                    format!("`common` names the engine `{other}`; it serves all and knows none");
                findings.push(Finding::new(&source.path, named.line, what));
            }
        }
    }
    // One `use` may name many items of a room.
    findings.dedup();
    findings
}

/// Returns the module path of a file of the engines.
pub(super) fn module(path: &str) -> Vec<String> {
    let inside = path[ENGINES.len()..].trim_end_matches(".rs").trim_end_matches("/mod");
    inside.split('/').map(String::from).collect()
}

fn verdict(engine: &Engine<'_>, from: &str, names: &[&str], path: &[String]) -> Option<String> {
    let first = path.first()?.as_str();
    if first != engine.name && names.contains(&first) {
        return Some(format!(
            "names the engine `{first}`; what two engines use belongs in `common`"
        ));
    }
    // The hash function is part of the format, and frozen by published values.
    let is_hash = path.starts_with(&["common".into(), "hash".into()]);
    let is_check = path.starts_with(&["common".into(), "check".into()]);
    if from != "check" && is_check {
        return Some("imports `common::check`, which is for `check.rs` alone".into());
    }
    if from == "check" && first != engine.name && !is_hash && !is_check {
        let what = path[..path.len().min(2)].join("::");
        return Some(format!(
            "`check.rs` imports `{what}`; a judge shares no code with the judged"
        ));
    }
    if first != engine.name || ["tests", "mod", TABLE].contains(&from) {
        return None;
    }
    let rooms: BTreeSet<&str> = engine.sources.iter().map(|source| engine.room(source)).collect();
    let to = path.get(1).map_or("mod", |segment| match rooms.get(segment.as_str()) {
        Some(room) => room,
        None => "mod",
    });
    if to == from || may_import(kind(from), kind(to)) {
        return None;
    }
    Some(format!("`{from}` imports `{to}`; a room imports the rooms below it, see docs/style.md"))
}

/// Returns whether one room may import another. Mechanisms may import one another.
fn may_import(from: &str, to: &str) -> bool {
    match from {
        "layout" => false,
        "check" => to == "layout",
        // Recovery repairs and does not operate: it runs before there are promises to operate on.
        "recovery" => height(to) < height("ops"),
        "mechanism" | "state" => height(to) <= height(from),
        _ => height(to) < height(from),
    }
}

/// Returns how high a room stands: what is built from what.
fn height(room: &str) -> u32 {
    match room {
        "layout" => 0,
        "setup" => 1,
        "concurrency" => 2,
        // What an open table holds in DRAM, mechanisms included.
        "mechanism" | "state" => 3,
        "resize" => 4,
        "ops" => 5,
        _ => u32::MAX,
    }
}

fn kind(room: &str) -> &str {
    if room == "mod" || FIXED.contains(&room) { room } else { "mechanism" }
}
