//! Tests that name the clauses of `docs/semantics.md` which they prove.
//!
//! * A Rust test: `#[test] // S7, S8`, on one line.
//! * A function of a suite in `tests/suites`: `name() { # S7, S8`.
//! * A whole suite: a line `# Clauses: S7, S8`.

use crate::report::Report;
use crate::sources::Sources;

/// A test with the clauses that it proves.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof<'a> {
    /// Path of its file, from the root.
    pub path: &'a str,
    /// The function, or [`WHOLE_SUITE`].
    pub name: &'a str,
    pub clauses: Vec<usize>,
}

/// Name of a proof that is a whole script.
pub const WHOLE_SUITE: &str = "whole suite";

/// All proofs, by path and in the order of their file. Reports marks that are not lists of clauses.
pub fn of<'a>(sources: &'a Sources, report: &mut Report) -> Vec<Proof<'a>> {
    let mut proofs = Vec::new();
    for (path, text) in sources.matching("crates/", ".rs") {
        for (name, mark) in rust_tests(text) {
            add(&mut proofs, report, path, name, mark);
        }
    }
    for (path, text) in sources.matching("tests/suites/", ".sh") {
        for line in text.lines() {
            if let Some(mark) = line.strip_prefix("# Clauses: ") {
                add(&mut proofs, report, path, WHOLE_SUITE, mark);
            } else if let Some((name, mark)) = line.split_once("() { # ")
                && begins_with_clause(mark)
            {
                add(&mut proofs, report, path, name, mark);
            }
        }
    }
    proofs
}

/// Whether a comment is a mark, and no other comment.
fn begins_with_clause(comment: &str) -> bool {
    comment.strip_prefix('S').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn add<'a>(proofs: &mut Vec<Proof<'a>>, report: &mut Report, path: &'a str, name: &'a str, mark: &str) {
    match numbers(mark) {
        Some(clauses) => proofs.push(Proof { path, name, clauses }),
        None => report.error(format!("{path}: `{name}`: not a list of clauses as `S7, S8`: {mark}")),
    }
}

/// The numbers of a mark `S7, S8`. `None` if it is anything else.
fn numbers(mark: &str) -> Option<Vec<usize>> {
    mark.trim_end().split(", ").map(|clause| clause.strip_prefix('S')?.parse().ok()).collect()
}

/// Name and mark of each Rust test that has a mark.
fn rust_tests(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut marked = None;
    for line in text.lines().map(str::trim) {
        if let Some(mark) = line.strip_prefix("#[test]") {
            marked = mark.trim_start().strip_prefix("// ").filter(|mark| begins_with_clause(mark));
        } else if let Some(rest) = line.strip_prefix("fn ")
            && let Some(mark) = marked.take()
        {
            found.push((rest.split('(').next().unwrap_or(rest), mark));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proofs_of(path: &str, text: &str) -> (Vec<(String, Vec<usize>)>, usize) {
        let sources = Sources::of(&[(path, text)]);
        let mut report = Report::default();
        let found = of(&sources, &mut report);
        (found.into_iter().map(|proof| (proof.name.to_owned(), proof.clauses)).collect(), report.errors().len())
    }

    #[test]
    fn a_rust_test_names_its_clauses_behind_its_attribute() {
        let text = "#[test] // S7, S54\n#[ignore]\nfn a_fact() {}\nfn not_a_test() {}\n#[test]\nfn of_no_clause() {}\n";
        assert_eq!(proofs_of("crates/a/src/b.rs", text), (vec![("a_fact".to_owned(), vec![7, 54])], 0));
    }

    #[test]
    fn a_function_of_a_suite_and_a_whole_suite_name_their_clauses() {
        let text = "# Clauses: S1, S2\na_promise() { # S3\n}\nnot_a_promise() { # SIDE COMMAND\n}\n";
        let found = vec![(WHOLE_SUITE.to_owned(), vec![1, 2]), ("a_promise".to_owned(), vec![3])];
        assert_eq!(proofs_of("tests/suites/a.sh", text), (found, 0));
    }

    #[test]
    fn a_mark_that_is_no_list_of_clauses_is_an_error() {
        for text in ["#[test] // S7 and S8\nfn a_fact() {}\n", "#[test] // S7,S8\nfn a_fact() {}\n"] {
            assert_eq!(proofs_of("crates/a/src/b.rs", text), (Vec::new(), 1), "{text}");
        }
        assert_eq!(proofs_of("tests/suites/a.sh", "# Clauses: 7\n"), (Vec::new(), 1));
    }
}
