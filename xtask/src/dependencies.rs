//! An outside dependency is a decision: some page in `docs/adr` names it in backquotes.

use std::collections::BTreeSet;

use crate::report::Report;
use crate::sources::{Sources, crate_name, dependencies};

/// Checks every dependency of every manifest that is no crate of ours.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    let manifests: Vec<(&str, toml::Table)> = sources.manifests().collect();
    let ours: BTreeSet<&str> = manifests.iter().filter_map(|(_, manifest)| crate_name(manifest)).collect();
    let mut seen = ours;
    for (directory, manifest) in &manifests {
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in dependencies(manifest, table) {
                let quoted = format!("`{name}`");
                if seen.insert(name) && !sources.matching("docs/adr/", ".md").any(|(_, text)| text.contains(&quoted)) {
                    report.error(format!("{directory}: no page in docs/adr says why we depend on `{name}`"));
                }
            }
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_decision_is_an_error() {
        let manifest = "package.name = 'a'\n[dependencies]\nb = {}\nc = {}\n[dev-dependencies]\nd = {}\n";
        let tree = Sources::of(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/b/Cargo.toml", "package.name = 'b'"),
            ("docs/adr/0001-c.md", "We use `c`, not cc."),
        ]);
        let report = check(&tree);
        assert_eq!(report.errors().len(), 1);
        assert!(report.errors()[0].contains("`d`"));
    }
}
