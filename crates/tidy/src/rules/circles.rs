//! Circles: the rooms of an engine import one another in one direction.

use std::collections::{BTreeMap, BTreeSet};

use super::rooms::{self, Engine, engines};
use crate::{Finding, Project, paths};

/// Circles that are still there, by engine and rooms. The list may only become shorter.
const KNOWN: &[(&str, &[&str])] = &[];

/// Which room imports which.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Finds rooms that import one another in a circle, and known circles that are gone.
pub fn none(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for engine in engines(project) {
        let found = circles(&imports(&engine));
        let known: Vec<_> = KNOWN.iter().filter(|known| known.0 == engine.name).collect();
        for circle in &found {
            let is_known =
                known.iter().any(|known| circle.iter().all(|room| known.1.contains(room)));
            if !is_known {
                let path = format!("{}{}/mod.rs", rooms::ENGINES, engine.name);
                let rooms = circle.iter().copied().collect::<Vec<_>>().join(", ");
                let what = format!("import one another in a circle: {rooms}; let one know less");
                findings.push(Finding::new(&path, 1, what));
            }
        }
        for (name, rooms) in known {
            let whole = |circle: &BTreeSet<&str>| rooms.iter().all(|room| circle.contains(room));
            if !found.iter().any(whole) {
                let what = format!("{name}: the circle {} is smaller now", rooms.join(", "));
                findings.push(Finding::new("crates/tidy/src/rules/circles.rs", 1, what));
            }
        }
    }
    findings
}

/// Returns what the rooms of an engine import, its face and its tests apart.
fn imports<'a>(engine: &Engine<'a>) -> Imports<'a> {
    let inside = |room: &str| !["mod", "tests"].contains(&room);
    let rooms: BTreeSet<&str> = engine.sources.iter().map(|source| engine.room(source)).collect();
    let mut imports = Imports::new();
    for source in engine.sources.iter().filter(|source| inside(engine.room(source))) {
        let from = engine.room(source);
        for named in paths::named(source, &rooms::module(&source.path)) {
            let (Some(first), Some(second)) = (named.path.first(), named.path.get(1)) else {
                continue;
            };
            let to = rooms.get(second.as_str()).filter(|to| inside(to) && **to != from);
            if let (true, Some(to)) = (first == engine.name, to) {
                imports.entry(from).or_default().insert(*to);
            }
        }
    }
    imports
}

/// Returns the groups of rooms of which each reaches each other.
fn circles<'a>(imports: &Imports<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|room| (*room, reach(imports, room))).collect();
    let together = |a: &str, b: &str| {
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        reaches(a, b) && reaches(b, a)
    };
    let mut circles: Vec<BTreeSet<&'a str>> = Vec::new();
    for room in imports.keys().filter(|room| together(room, room)) {
        let circle = imports.keys().copied().filter(|other| together(room, other)).collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Returns every room that `from` imports, directly or through others.
fn reach<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = imports.get(from).into_iter().flatten().copied().collect();
    while let Some(room) = next.pop() {
        if reached.insert(room) {
            next.extend(imports.get(room).into_iter().flatten());
        }
    }
    reached
}
