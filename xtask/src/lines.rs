//! The product's size: lines of `crates/**/src` without tests and without `crates/proof`.

use std::collections::BTreeMap;

use crate::sources::Sources;

/// Crates that only tests use.
const PROOF: &str = "crates/proof/";

/// Product lines of each crate.
pub fn of_crates(sources: &Sources) -> BTreeMap<&str, usize> {
    let mut lines = BTreeMap::new();
    for file in sources.product().files.iter().filter(|file| !file.path.starts_with(PROOF)) {
        *lines.entry(file.krate.as_str()).or_default() += file.lines;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_per_crate_without_tests_and_proof() {
        let sources = Sources::of(&[
            ("crates/x/a/src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod tests {}\n"),
            ("crates/x/a/src/b.rs", "fn b() {}\n\n"),
            ("crates/x/c/src/main.rs", "fn main() {}\n"),
            ("crates/proof/testkit/src/lib.rs", "fn d() {}\n"),
        ]);
        assert_eq!(of_crates(&sources), BTreeMap::from([("a", 3), ("c", 1)]));
    }
}
