//! The product's Rust code, parsed: `crates/LAYER/CRATE/src` without tests.
//!
//! Tests are recognised in two ways: by `#[cfg(test)]` before an item, and by the name of a file or folder.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ImplItem, Item, ItemMod, Lit, Meta, Token};

use crate::sources::Sources;

/// File and folder names that hold tests only.
const TEST_NAMES: [&str; 3] = ["tests", "interleavings", "stories"];

/// All product files, in order of their paths.
pub struct Product {
    pub files: Vec<RustFile>,
}

/// One product file.
pub struct RustFile {
    /// Path from the root.
    pub path: String,
    /// Name of the crate's folder, which is the crate's name.
    pub krate: String,
    /// Path of the file's module in its crate; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    /// Number of lines without the lines of tests.
    pub lines: usize,
    /// Syntax tree without items of tests.
    pub ast: syn::File,
}

impl Product {
    /// Parses each product file. Panics if a file is no Rust: the compiler then refuses it as well.
    pub fn parse(sources: &Sources) -> Product {
        let mut files = Vec::new();
        let mut tests = BTreeSet::new();
        for (path, text) in sources.matching("crates/", ".rs") {
            let Some((krate, inside)) = split(path).filter(|(_, inside)| !has_test_name(inside)) else { continue };
            let mut ast = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            if ast.attrs.iter().any(is_test) {
                continue;
            }
            for module in ast.items.iter().filter_map(declared_test) {
                tests.insert(file_of(path, module));
            }
            let lines = text.lines().count() - strip(&mut ast.items);
            files.push(RustFile {
                path: path.to_owned(),
                krate: krate.to_owned(),
                module: module_path(inside),
                lines,
                ast,
            });
        }
        files.retain(|file| !tests.iter().any(|test| is_within(&file.path, test)));
        Product { files }
    }

    /// Names of all crates with product code.
    pub fn crates(&self) -> BTreeSet<&str> {
        self.files.iter().map(|file| file.krate.as_str()).collect()
    }

    /// The files of one crate.
    pub fn files_of<'a>(&'a self, krate: &'a str) -> impl Iterator<Item = &'a RustFile> {
        self.files.iter().filter(move |file| file.krate == krate)
    }
}

/// Crate name and path below `src` of a file, if it is in a crate's `src`.
fn split(path: &str) -> Option<(&str, &str)> {
    let (directory, inside) = path.split_once("/src/")?;
    Some((directory.rsplit('/').next()?, inside))
}

fn has_test_name(inside: &str) -> bool {
    inside.trim_end_matches(".rs").split('/').any(|part| TEST_NAMES.contains(&part) || part.ends_with("_tests"))
}

fn module_path(inside: &str) -> Vec<String> {
    let mut path: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The module declared by `#[cfg(test)] mod name;`.
fn declared_test(item: &Item) -> Option<&ItemMod> {
    match item {
        Item::Mod(module) if module.content.is_none() && module.attrs.iter().any(is_test) => Some(module),
        _ => None,
    }
}

/// Path, without `.rs`, of the file or folder of a module that the file `path` declares.
fn file_of(path: &str, module: &ItemMod) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let named = module.attrs.iter().find(|attribute| attribute.path().is_ident("path")).and_then(text_of);
    match (named, file) {
        (Some(named), _) => format!("{folder}/{}", named.trim_end_matches(".rs")),
        (None, "lib.rs" | "main.rs" | "mod.rs") => format!("{folder}/{}", module.ident),
        (None, _) => format!("{}/{}", path.trim_end_matches(".rs"), module.ident),
    }
}

fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// The string of an attribute `#[name = "string"]`.
pub fn text_of(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Removes the items of tests. Returns the number of lines that they took.
fn strip(items: &mut Vec<Item>) -> usize {
    let mut lines = 0;
    items.retain_mut(|item| {
        if attributes(item).iter().any(is_test) {
            lines += length(item);
            return false;
        }
        match item {
            Item::Mod(ItemMod { content: Some((_, items)), .. }) => lines += strip(items),
            Item::Impl(block) => block.items.retain(|item| {
                let test = matches!(item, ImplItem::Fn(function) if function.attrs.iter().any(is_test));
                lines += if test { length(item) } else { 0 };
                !test
            }),
            _ => {}
        }
        true
    });
    lines
}

fn length(item: &impl Spanned) -> usize {
    let span = item.span();
    span.end().line - span.start().line + 1
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|condition| needs_test(&condition))
}

/// Whether a condition of `cfg` holds only where tests are built.
fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
    (list.path.is_ident("all") && parts.iter().any(needs_test))
        || (list.path.is_ident("any") && parts.iter().all(needs_test))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let product = Product::parse(&Sources::of(files));
        product.files.into_iter().map(|file| (file.path, file.lines)).collect()
    }

    #[test]
    fn tests_in_a_file_are_not_counted() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nimpl A {\n    #[cfg(all(test, loom))]\n    fn c() {}\n}\n";
        assert_eq!(parse(&[("crates/x/a/src/lib.rs", text)]), [("crates/x/a/src/lib.rs".to_owned(), 4)]);
    }

    #[test]
    fn files_of_tests_are_left_out_by_name_and_by_declaration() {
        let declares = "#[cfg(test)] mod world;\n#[cfg(test)]\n#[path = \"other.rs\"]\nmod named;\nmod kept;\n";
        let left = parse(&[
            ("crates/x/a/src/lib.rs", "mod inner;"),
            ("crates/x/a/src/inner.rs", declares),
            ("crates/x/a/src/inner/world.rs", ""),
            ("crates/x/a/src/inner/world/more.rs", ""),
            ("crates/x/a/src/inner/worlds.rs", ""),
            ("crates/x/a/src/inner/kept_tests.rs", ""),
            ("crates/x/a/src/other.rs", ""),
            ("crates/x/a/src/ring/interleavings.rs", ""),
            ("crates/x/a/tests/a.rs", ""),
        ]);
        let paths: Vec<&str> = left.iter().map(|(path, _)| path.trim_start_matches("crates/x/a/src/")).collect();
        assert_eq!(paths, ["inner.rs", "inner/worlds.rs", "lib.rs"]);
    }

    #[test]
    fn a_condition_that_holds_without_tests_too_is_product() {
        assert_eq!(parse(&[("crates/x/a/src/lib.rs", "#[cfg(any(test, not(loom)))]\nmod a {}\n")])[0].1, 2);
        assert_eq!(parse(&[("crates/x/a/src/lib.rs", "#[cfg(not(test))]\nmod a {}\n")])[0].1, 2);
    }

    #[test]
    fn a_file_and_its_folder_are_one_module() {
        assert_eq!(module_path("a.rs"), ["a"]);
        assert_eq!(module_path("a/mod.rs"), ["a"]);
        assert_eq!(module_path("a/b.rs"), ["a", "b"]);
        assert!(module_path("lib.rs").is_empty());
    }
}
