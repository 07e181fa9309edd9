//! Unsafe code stays in the crates that `layers.toml` lists with a reason.

use std::collections::BTreeSet;

use crate::report::Report;
use crate::sources::{Sources, crate_name};

const FILE: &str = "layers.toml";
/// Followed by what makes the word the keyword and not part of a sentence.
const FORMS: [&str; 5] = ["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe extern ", "unsafe trait "];

/// Checks each crate's sources, its tests included, against the list; a listed crate must still need it.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    let table: toml::Table = sources.file(FILE).and_then(|text| text.parse().ok()).unwrap_or_default();
    let listed: BTreeSet<&str> = table
        .get("unsafe")
        .and_then(|list| list.as_table())
        .map(|list| list.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let mut needed = BTreeSet::new();
    for (directory, manifest) in sources.manifests() {
        let Some(name) = crate_name(&manifest).filter(|name| *name != "xtask") else { continue };
        for (path, text) in sources.matching(&format!("{directory}/"), ".rs") {
            let Some(line) = text.lines().position(is_unsafe) else { continue };
            match listed.get(name) {
                Some(entry) => {
                    needed.insert(*entry);
                }
                None => report.error(format!("{path}:{}: {FILE} lists no unsafe code for `{name}`", line + 1)),
            }
        }
    }
    for name in listed.difference(&needed) {
        report.error(format!("{FILE}: `{name}` is listed for unsafe code and has none"));
    }
    report
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or(line);
    FORMS.iter().any(|form| code.contains(form))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(layers: &str, code: &str) -> usize {
        let files = [(FILE, layers), ("crates/a/Cargo.toml", "package.name = 'a'"), ("crates/a/src/lib.rs", code)];
        check(&Sources::of(&files)).errors().len()
    }

    #[test]
    fn unsafe_code_is_only_where_it_is_listed() {
        assert_eq!(errors("unsafe.a = 'why'", "let b = unsafe { c() };"), 0);
        assert_eq!(errors("", "let b = unsafe { c() };"), 1);
        assert_eq!(errors("", "// not unsafe { at all }"), 0);
    }

    #[test]
    fn a_listed_crate_without_unsafe_code_is_an_error() {
        assert_eq!(errors("unsafe.a = 'why'", "let b = c();"), 1);
    }
}
