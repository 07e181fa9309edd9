//! On the data path a type's name means one thing, whichever crate it is read in.
//!
//! `tidy.toml` lists the names that are meant to be used again, each with its reason.

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Ident, ItemEnum, ItemFn, ItemStruct, ItemTrait, ItemType, ItemUnion, Visibility};

use crate::layers;
use crate::ratchet::{FILE, Findings};
use crate::sources::Sources;

/// Crates that a program's data goes through.
const DATA_PATH: [&str; 25] = [
    "agent",
    "delegation",
    "remote",
    "trees",
    "window",
    "windows",
    "fuse",
    "fuse-protocol",
    "relay",
    "relay-server",
    "preload",
    "server",
    "data-store",
    "file-cache",
    "catalogue",
    "segments",
    "wire",
    "peer",
    "transport",
    "namespace",
    "posix-namespace",
    "global-store",
    "config",
    "types",
    "concurrency",
];

/// Finds names of more than one type, and exceptions without a reason or a use.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    let mut names = definitions(sources);
    let table = sources.toml(FILE);
    for exception in layers::list(&table, "same_name") {
        let word = |key: &str| exception.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let (name, reason) = (word("name"), word("reason"));
        if reason.is_empty() {
            findings.add(FILE, 1, format!("the exception for the type name `{name}` gives no reason"));
        }
        if names.remove(name).is_none_or(|places| places.len() < 2) {
            findings.add(FILE, 1, format!("the exception for the type name `{name}` is not used"));
        }
    }
    for (name, places) in names.iter().filter(|(_, places)| places.len() > 1) {
        let list: Vec<String> = places.iter().map(|place| format!("{} ({})", place.krate, place.kind)).collect();
        let what = format!("`{name}` has {} meanings: {}", places.len(), list.join(", "));
        findings.add(places[0].path, places[0].line, what);
        for place in places {
            findings.note(format!("{name}: {}:{}, {}", place.path, place.line, place.kind));
        }
    }
    findings
}

/// Where a name is defined.
struct Place<'a> {
    krate: &'a str,
    path: &'a str,
    line: usize,
    kind: &'static str,
}

/// Places of each visible type name of the data path.
fn definitions(sources: &Sources) -> BTreeMap<String, Vec<Place<'_>>> {
    let mut names = BTreeMap::<String, Vec<Place<'_>>>::new();
    for file in sources.product().files.iter().filter(|file| DATA_PATH.contains(&file.krate.as_str())) {
        let mut search = Search(Vec::new());
        search.visit_file(&file.ast);
        for (name, line, kind) in search.0 {
            names.entry(name).or_default().push(Place { krate: &file.krate, path: &file.path, line, kind });
        }
    }
    names
}

/// Name, line and kind of each `pub` or `pub(crate)` type.
struct Search(Vec<(String, usize, &'static str)>);

impl Search {
    fn add(&mut self, visibility: &Visibility, ident: &Ident, kind: &'static str) {
        let seen = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(restricted) => restricted.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        if seen {
            self.0.push((ident.to_string(), ident.span().start().line, kind));
        }
    }
}

impl<'ast> Visit<'ast> for Search {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add(&item.vis, &item.ident, "struct");
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add(&item.vis, &item.ident, "enum");
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.add(&item.vis, &item.ident, "union");
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add(&item.vis, &item.ident, "trait");
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add(&item.vis, &item.ident, "type");
    }

    fn visit_item_fn(&mut self, _: &'ast ItemFn) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(agent: &str, wire: &str, exceptions: &str) -> Vec<String> {
        let sources = Sources::of(&[
            ("crates/agent/agent/src/lib.rs", agent),
            ("crates/wire/wire/src/lib.rs", wire),
            ("crates/tools/cli/src/main.rs", "pub struct Tool; pub struct Twice;"),
            (FILE, exceptions),
        ]);
        check(&sources).list.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_name_of_two_types_is_a_finding() {
        let found = found("pub struct Twice;", "mod inner { pub(crate) trait Twice {} }", "");
        assert_eq!(found, ["`Twice` has 2 meanings: agent (struct), wire (trait)"]);
    }

    #[test]
    fn private_types_tests_other_crates_and_imports_are_none() {
        let wire =
            "struct Once; pub(super) enum Once2 {}\n#[cfg(test)] mod tests { pub struct Once; }\npub use agent::Once;";
        assert!(found("pub struct Once; pub enum Once2 {} pub struct Tool;", wire, "").is_empty());
    }

    #[test]
    fn an_exception_has_a_reason_and_a_use() {
        let with = |reason: &str| format!("[[same_name]]\nname = 'Error'\nreason = '{reason}'\n");
        assert!(found("pub enum Error {}", "pub enum Error {}", &with("each crate has its own")).is_empty());
        assert_eq!(found("pub enum Error {}", "pub enum Error {}", &with("")).len(), 1);
        assert_eq!(found("pub enum Error {}", "", &with("each crate has its own")).len(), 1);
    }
}
