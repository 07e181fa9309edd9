//! Which module of a crate uses which: the graph behind `modules_form_no_knots`.
//!
//! A module is a name directly below a crate's `src`; what is below it belongs to it. A path that begins with `crate`, `self` or
//! `super` is an edge to the module that it leads to. A name that `lib.rs` or `main.rs` imports from a module leads to that module.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, MetaList, UseTree, Visibility};

use crate::product::{Product, RustFile};

/// The modules of one crate and their imports.
pub struct Graph {
    /// Names, in order; their positions are the nodes.
    pub names: Vec<String>,
    /// Lines of each module.
    pub lines: Vec<usize>,
    /// First place and number of uses of each edge.
    pub edges: BTreeMap<(usize, usize), Edge>,
}

/// Where one module uses another.
pub struct Edge {
    pub path: String,
    pub line: usize,
    pub uses: usize,
}

impl Graph {
    /// Reads the graph of one crate.
    pub fn of(product: &Product, krate: &str) -> Graph {
        let mut modules = BTreeMap::<&str, usize>::new();
        for file in product.files_of(krate) {
            if let Some(name) = file.module.first() {
                *modules.entry(name).or_default() += file.lines;
            }
        }
        let names: Vec<String> = modules.keys().map(|name| name.to_string()).collect();
        let mut graph = Graph { names, lines: modules.into_values().collect(), edges: BTreeMap::new() };
        let exports = graph.exports(product, krate);
        for file in product.files_of(krate) {
            graph.read(file, &exports);
        }
        graph
    }

    fn node(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Names that the root imports, each with the module that it comes from.
    fn exports(&self, product: &Product, krate: &str) -> BTreeMap<String, usize> {
        let mut exports = BTreeMap::new();
        for root in product.files_of(krate).filter(|file| file.module.is_empty()) {
            for (path, name) in uses(&root.ast.items) {
                let own = path.iter().find(|part| !["crate", "self"].contains(&part.as_str()));
                let Some(node) = own.and_then(|module| self.node(module)) else { continue };
                if name != "*" {
                    exports.insert(name, node);
                    continue;
                }
                let of_module = |file: &&RustFile| file.module.len() == 1 && file.module[0] == self.names[node];
                for file in product.files_of(krate).filter(of_module) {
                    exports.extend(public_names(&file.ast.items).into_iter().map(|name| (name, node)));
                }
            }
        }
        exports
    }

    fn read(&mut self, file: &RustFile, exports: &BTreeMap<String, usize>) {
        let Some(from) = file.module.first().and_then(|name| self.node(name)) else { return };
        let mut paths = Paths { module: file.module.clone(), found: Vec::new() };
        paths.visit_file(&file.ast);
        for (line, path) in paths.found {
            let Some(to) = path.first().and_then(|name| self.node(name).or_else(|| exports.get(name).copied())) else {
                continue;
            };
            if to != from {
                let first = || Edge { path: file.path.clone(), line, uses: 0 };
                self.edges.entry((from, to)).or_insert_with(first).uses += 1;
            }
        }
    }
}

/// The leaves of all `use` items: path and name that it is known by, `*` for a glob.
fn uses(items: &[Item]) -> Vec<(Vec<String>, String)> {
    let mut leaves = Vec::new();
    for item in items {
        if let Item::Use(ItemUse { tree, leading_colon: None, .. }) = item {
            flatten(tree, &mut Vec::new(), &mut leaves);
        }
    }
    leaves
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, leaves)),
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.clone(), before.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => leaves.push((with(before, &name.ident), name.ident.to_string())),
        UseTree::Rename(rename) => leaves.push((with(before, &rename.ident), rename.rename.to_string())),
        UseTree::Glob(_) => leaves.push((before.clone(), "*".to_owned())),
    }
}

fn with(before: &[String], last: &proc_macro2::Ident) -> Vec<String> {
    before.iter().cloned().chain([last.to_string()]).collect()
}

/// Names of the public items and imports of a module.
fn public_names(items: &[Item]) -> Vec<String> {
    let public = |vis: &Visibility| !matches!(vis, Visibility::Inherited);
    let mut names = Vec::new();
    for item in items {
        let (vis, ident) = match item {
            Item::Const(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Fn(item) => (&item.vis, &item.sig.ident),
            Item::Mod(item) => (&item.vis, &item.ident),
            Item::Static(item) => (&item.vis, &item.ident),
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Use(item) if public(&item.vis) => {
                names.extend(uses(std::slice::from_ref(&Item::Use(item.clone()))).into_iter().map(|leaf| leaf.1));
                continue;
            }
            _ => continue,
        };
        if public(vis) {
            names.push(ident.to_string());
        }
    }
    names
}

/// Collects paths into the own crate, each from the crate's root, with the line.
struct Paths {
    module: Vec<String>,
    found: Vec<(usize, Vec<String>)>,
}

impl Paths {
    fn add(&mut self, line: usize, path: &[String]) {
        let mut from = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for (position, part) in path.iter().enumerate() {
            match part.as_str() {
                "crate" | "self" if position == 0 => {}
                "super" => drop(from.pop()),
                part => from.push(part.to_owned()),
            }
        }
        self.found.push((line, from));
    }

    /// Finds paths in what a macro is given, which is not parsed.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if !path.is_empty() && colons == 2 => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() && colons < 2 => {
                    colons += 1;
                    continue;
                }
                token => {
                    self.add(line, &std::mem::take(&mut path));
                    match token {
                        TokenTree::Ident(ident) => {
                            line = ident.span().start().line;
                            path.push(ident.to_string());
                        }
                        TokenTree::Group(group) => self.scan(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.add(line, &path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let line = item.use_token.span.start().line;
        for (path, _) in uses(std::slice::from_ref(&Item::Use(item.clone()))) {
            self.add(line, &path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let (None, Some(first)) = (path.leading_colon, path.segments.first()) {
            let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            if parts.len() > 1 {
                self.add(first.ident.span().start().line, &parts);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.scan(list.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Sources;

    /// The edges of a crate of these files, as `from to`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("crates/x/a/src/{name}.rs"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let sources = Sources::of(&files);
        let graph = Graph::of(sources.product(), "a");
        graph.edges.keys().map(|(from, to)| format!("{} {}", graph.names[*from], graph.names[*to])).collect()
    }

    #[test]
    fn imports_with_nested_braces_are_edges() {
        let text = "use crate::{b::{self, X}, c::d::Y as Z, own::A};\nuse std::{io, fs};\n";
        assert_eq!(edges(&[("own", text), ("b", ""), ("c/mod", "")]), ["own b", "own c"]);
    }

    #[test]
    fn super_counts_from_the_module_that_it_stands_in() {
        let text = "use super::c::X;\nuse super::super::b::Y;\nmod inner { fn f() { super::super::super::d::g() } }\n";
        let files = [("own/part", text), ("own", ""), ("b", ""), ("c", ""), ("d", "")];
        assert_eq!(edges(&files), ["own b", "own d"]);
    }

    #[test]
    fn expressions_types_and_macros_are_read() {
        let text =
            "fn f(x: crate::b::X) { println!(\"{}\", [crate::c::Y]); }\n#[arg(with = crate::d::parse)]\nstruct S;\n";
        assert_eq!(edges(&[("own", text), ("b", ""), ("c", ""), ("d", "")]), ["own b", "own c", "own d"]);
    }

    #[test]
    fn names_of_the_root_lead_to_their_module() {
        let root = "pub use b::{Thing, Other as Named};\nuse self::c::hidden;\npub use d::*;\n";
        let text = "use crate::{Named, hidden, All, own::X, Absent};\n";
        let files = [("lib", root), ("own", text), ("b", ""), ("c", ""), ("d", "pub struct All;")];
        assert_eq!(edges(&files), ["own b", "own c", "own d"]);
        assert_eq!(edges(&[("lib", root), ("own", "type A = super::Thing;"), ("b", "")]), ["own b"]);
    }

    #[test]
    fn other_crates_and_tests_are_no_edges() {
        let text = "use b::X;\nuse ::c::Y;\n#[cfg(test)]\nmod tests { use crate::b::X; }\n";
        assert!(edges(&[("own", text), ("b", ""), ("c", "")]).is_empty());
    }
}
