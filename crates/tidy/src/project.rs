//! The whole project, read once: what every rule looks at.

use crate::{Finding, Source, Tree};

/// The manifest of a crate or of the workspace.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Path from the root of the repository.
    pub path: String,
    /// Folder of the crate's path, for example `pmem`; empty for the workspace.
    pub name: String,
    /// The contents.
    pub table: toml::Table,
    text: String,
}

impl Manifest {
    /// Returns the line that begins with `start`, counted from 1; 1 if there is none.
    ///
    /// The parser keeps no lines.
    pub fn line_starting(&self, start: &str) -> usize {
        let mut lines = self.text.lines();
        lines.position(|line| line.trim_start().starts_with(start)).map_or(1, |index| index + 1)
    }
}

/// The whole project.
pub struct Project {
    /// Every file.
    pub tree: Tree,
    /// Every Rust file, parsed.
    pub sources: Vec<Source>,
    /// Every manifest.
    pub manifests: Vec<Manifest>,
    /// Files that could not be parsed.
    pub unreadable: Vec<Finding>,
}

impl Project {
    /// Parses what `tree` holds. A folder with a workspace of its own is no part of the project.
    pub fn parse(tree: Tree) -> Project {
        let mut project = Project {
            tree: Tree::default(),
            sources: Vec::new(),
            manifests: Vec::new(),
            unreadable: Vec::new(),
        };
        let others = other_workspaces(&tree);
        let is_ours = |path: &str| !others.iter().any(|folder| path.starts_with(folder.as_str()));
        for (path, text) in tree.ending(".rs").filter(|file| is_ours(file.0)) {
            match Source::parse(path, text) {
                Ok(source) => project.sources.push(source),
                Err(finding) => project.unreadable.push(finding),
            }
        }
        for (path, text) in tree.ending("Cargo.toml").filter(|file| is_ours(file.0)) {
            match text.parse() {
                Ok(table) => project.manifests.push(manifest(path, text, table)),
                Err(error) => {
                    let what = format!("cannot be parsed ({error}); make cargo read it");
                    project.unreadable.push(Finding::new(path, 1, what));
                }
            }
        }
        project.tree = tree;
        project
    }

    /// Returns the source at `path`.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }

    /// Returns the manifests of the crates, without the workspace's.
    pub fn crates(&self) -> impl Iterator<Item = &Manifest> {
        self.manifests.iter().filter(|manifest| !manifest.name.is_empty())
    }
}

/// Returns the folders below the root that begin a workspace.
fn other_workspaces(tree: &Tree) -> Vec<String> {
    let begins = |text: &str| text.lines().any(|line| line.trim() == "[workspace]");
    let manifests = tree.ending("Cargo.toml").filter(|(_, text)| begins(text));
    let folders = manifests.filter_map(|(path, _)| path.strip_suffix("Cargo.toml"));
    folders.filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
}

fn manifest(path: &str, text: &str, table: toml::Table) -> Manifest {
    let folder = path.strip_suffix("Cargo.toml").unwrap_or(path).trim_end_matches('/');
    let name = folder.rsplit('/').next().unwrap_or_default().to_string();
    Manifest { path: path.into(), name, table, text: text.into() }
}
