//! A file is named for the noun it defines, and its first line says what it is for.

use crate::report::Report;
use crate::sources::Sources;

/// Names that say nothing.
const BANNED: [&str; 7] = ["utils", "util", "helpers", "helper", "common", "misc", "manager"];

/// Checks the name and the first line of each Rust file.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    for (path, text) in sources.matching("", ".rs") {
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        if BANNED.contains(&stem) {
            report.error(format!("{path}: `{stem}` says nothing; name the file for what it defines"));
        }
        if !text.starts_with("//!") {
            report.error(format!("{path}: does not begin with `//!` and its purpose"));
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_nothing_is_an_error() {
        let tree = Sources::of(&[("crates/a/src/utils.rs", "//! A."), ("crates/a/src/ring.rs", "//! B.")]);
        assert_eq!(check(&tree).errors().len(), 1);
    }

    #[test]
    fn a_file_without_a_purpose_is_an_error() {
        assert_eq!(check(&Sources::of(&[("crates/a/src/ring.rs", "use std::io;")])).errors().len(), 1);
    }
}
