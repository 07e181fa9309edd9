//! The repository's text, read once; the checks are pure functions of it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use crate::product::Product;

/// Where text of ours lies, from the root.
const ROOTS: [&str; 6] = ["crates", "docs", "tests", "xtask", "layers.toml", "tidy.toml"];

/// Path from the root, with `/`, to content.
#[derive(Default)]
pub struct Sources {
    files: BTreeMap<String, String>,
    product: OnceCell<Product>,
}

impl Sources {
    /// Reads every `.rs`, `.toml`, `.md`, `.sh` and `.expected` file below `root` that belongs to the project. Of the files in `root`
    /// itself, the Markdown files and the tables of these checks are read.
    pub fn read(root: &Path) -> io::Result<Sources> {
        let mut sources = Sources::default();
        for start in ROOTS {
            sources.walk(root, start)?;
        }
        for entry in fs::read_dir(root)? {
            if let Some(name) = entry?.file_name().to_str().filter(|name| name.ends_with(".md")) {
                sources.walk(root, name)?;
            }
        }
        Ok(sources)
    }

    /// A tree for a test.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Sources {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        Sources { files, product: OnceCell::new() }
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

    /// The product's Rust code, parsed at the first call.
    pub fn product(&self) -> &Product {
        self.product.get_or_init(|| Product::parse(self))
    }

    /// The content of one TOML file; an empty table if the file is missing.
    pub fn toml(&self, path: &str) -> toml::Table {
        let text = self.file(path).unwrap_or_default();
        text.parse().unwrap_or_else(|error| panic!("{path}: {error}"))
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
