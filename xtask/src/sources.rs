//! The repository's text, read once; the checks are pure functions of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Where text of ours lies, from the root.
const ROOTS: [&str; 5] = ["crates", "docs", "tests", "xtask", "layers.toml"];

/// Path from the root, with `/`, to content.
#[derive(Debug, Default)]
pub struct Sources {
    files: BTreeMap<String, String>,
}

impl Sources {
    /// Reads every `.rs`, `.toml`, `.md`, `.sh` and `.expected` file below `root` that belongs to the project.
    pub fn read(root: &Path) -> io::Result<Sources> {
        let mut sources = Sources::default();
        for start in ROOTS {
            sources.walk(root, start)?;
        }
        Ok(sources)
    }

    /// A tree for a test.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Sources {
        Sources { files: files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect() }
    }

    /// The content of one file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Path and content of each file whose path starts and ends so.
    pub fn matching(&self, start: &str, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(start) && path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Directory, from the root, of each workspace crate and its parsed manifest.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, toml::Table)> {
        self.matching("", "/Cargo.toml").map(|(path, text)| {
            let manifest = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
            (path.trim_end_matches("/Cargo.toml"), manifest)
        })
    }

    fn walk(&mut self, root: &Path, relative: &str) -> io::Result<()> {
        let path = root.join(relative);
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                let name = entry?.file_name();
                let name = name.to_str().ok_or_else(|| io::Error::other(format!("a strange name in {relative}")))?;
                if name != "target" && !name.starts_with('.') {
                    self.walk(root, &format!("{relative}/{name}"))?;
                }
            }
        } else if [".rs", ".toml", ".md", ".sh", ".expected"].iter().any(|end| relative.ends_with(end)) {
            self.files.insert(relative.to_owned(), fs::read_to_string(&path)?);
        }
        Ok(())
    }
}

/// The name a manifest gives its crate.
pub fn crate_name(manifest: &toml::Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// The names in one table of dependencies.
pub fn dependencies<'a>(manifest: &'a toml::Table, table: &str) -> Vec<&'a str> {
    manifest
        .get(table)
        .and_then(|table| table.as_table())
        .map(|table| table.keys().map(String::as_str).collect())
        .unwrap_or_default()
}
