//! The files of the project: those under version control, or all where there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

/// The names of all files, and the texts of those that the rules read.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    names: BTreeSet<String>,
    texts: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the project below `root`.
    ///
    /// New files count before they are added, ignored ones never. Without git, or where git does
    /// not trust the owner of the folder, every file outside `target` counts.
    ///
    /// # Errors
    /// Those of reading a file or a folder.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let names = match listed_by_git(root) {
            Some(names) => names,
            None => walk(root)?,
        };
        for name in names {
            let path = root.join(&name);
            // A file may be listed and deleted, or be a link to nowhere.
            if !path.is_file() {
                continue;
            }
            if is_read(&name) {
                tree.texts.insert(name.clone(), std::fs::read_to_string(&path)?);
            }
            tree.names.insert(name);
        }
        Ok(tree)
    }

    /// Makes a tree of files in memory: path and text.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (name, text) in files {
            tree.names.insert((*name).into());
            tree.texts.insert((*name).into(), (*text).into());
        }
        tree
    }

    /// Returns the text of a file that the rules read.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Returns whether `name` is a file or a folder.
    pub fn has(&self, name: &str) -> bool {
        let folder = format!("{name}/");
        let next = self.names.range(folder.clone()..).next();
        self.names.contains(name) || next.is_some_and(|next| next.starts_with(&folder))
    }

    /// Returns path and text of every file whose name ends in `ending`.
    pub fn ending(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        all.filter(move |(name, _)| name.ends_with(ending))
    }

    /// Returns path and text of every file that the rules read.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("")
    }
}

fn is_read(name: &str) -> bool {
    let endings = [".rs", ".md", ".toml"];
    name.starts_with(".ci/") || endings.iter().any(|ending| name.ends_with(ending))
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split_terminator('\0').map(String::from).collect())
}

fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_file() {
                names.push(name);
            } else if kind.is_dir() && name != ".git" && !name.ends_with("target") {
                folders.push(name + "/");
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_finds_what_git_lists() {
        // Fails if a tree without git would be checked less than one with it.
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let names = walk(root).unwrap();
        assert!(names.contains(&"lib.rs".into()) && names.contains(&"rules/shape.rs".into()));
    }

    #[test]
    fn a_folder_is_there_if_a_file_lies_in_it() {
        // Fails if links to folders were refused, or a prefix of a name taken for a folder.
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-old.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/a.md") && !tree.has("doc"));
        assert!(!tree.has("docs-old"));
    }
}
