//! Promises are tests: each numbered clause of `docs/semantics.md` names the tests that prove it, and they exist.
//!
//! A clause begins with a line `**S7.** ...` and ends before the next one; in it, `Tests:` is followed by names in
//! backquotes: of functions in Rust sources, of promises in a suite, or, as `suite/NAME`, of a whole script in
//! `tests/suites`. A clause that begins `**S7.** *Withdrawn.*` retains its number and has no test.

use std::collections::BTreeSet;

use crate::report::Report;
use crate::sources::Sources;

const FILE: &str = "docs/semantics.md";

struct Clause<'a> {
    number: usize,
    text: &'a str,
}

impl Clause<'_> {
    /// Whether the promise was withdrawn: the number stays, so that it never means another promise.
    fn is_withdrawn(&self) -> bool {
        self.text.split_once(".**").is_some_and(|(_, text)| text.trim_start().starts_with("*Withdrawn.*"))
    }
}

/// Checks that the numbers of clauses rise, and that each names existing tests.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    let Some(text) = sources.file(FILE) else {
        report.error(format!("{FILE} is missing"));
        return report;
    };
    let functions = function_names(sources);
    let clauses = clauses(text);
    if clauses.is_empty() {
        report.error(format!("{FILE}: no clause"));
    }
    let mut last = 0;
    for clause in &clauses {
        let number = clause.number;
        if number <= last {
            report.error(format!("{FILE}: S{number} stands behind S{last}"));
        }
        last = number;
        let tests = tests_of(clause.text);
        if tests.is_empty() && !clause.is_withdrawn() {
            report.error(format!("{FILE}: S{number} names no test"));
        }
        for test in tests {
            let exists = match test.strip_prefix("suite/") {
                Some(suite) => sources.file(&format!("tests/suites/{suite}.sh")).is_some(),
                None => functions.contains(test),
            };
            if !exists {
                report.error(format!("{FILE}: S{number} names the test `{test}`, which does not exist"));
            }
        }
    }
    for (path, name, number) in promises(sources) {
        let named = clauses.iter().any(|clause| clause.number == number && tests_of(clause.text).contains(&name));
        if !named {
            report.error(format!("{path}: `{name}` says that it is a test of S{number}, which does not name it"));
        }
    }
    report
}

/// The promises of suites, `name() { # S7, S8`, with each clause that they are said to be tests of.
fn promises(sources: &Sources) -> Vec<(&str, &str, usize)> {
    let mut found = Vec::new();
    for (path, text) in sources.matching("tests/suites/", ".sh") {
        for (name, rest) in text.lines().filter_map(|line| line.split_once("() { # S")) {
            let numbers = rest.split(", S").map_while(|digits| digits.parse().ok());
            found.extend(numbers.map(|number| (path, name, number)));
        }
    }
    found
}

/// Checks that each line of each `tests/suites/*.expected` file, `TEST-CASE S7 REASON`, names an existing clause.
pub fn check_expected_failures(sources: &Sources) -> Report {
    let mut report = Report::default();
    let clauses = clauses(sources.file(FILE).unwrap_or_default());
    for (path, text) in sources.matching("tests/suites/", ".expected") {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let clause = line.split_whitespace().nth(1).and_then(|word| word.strip_prefix('S'));
            let number = clause.and_then(|digits| digits.parse::<usize>().ok());
            if !number.is_some_and(|number| clauses.iter().any(|clause| clause.number == number)) {
                report.error(format!("{path}: no clause of {FILE} is named in: {line}"));
            }
        }
    }
    report
}

fn clauses(text: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    let starts: Vec<(usize, usize)> = text
        .match_indices("**S")
        .filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'))
        .filter_map(|(at, _)| Some((at, text[at + 3..].split_once(".**")?.0.parse().ok()?)))
        .collect();
    for (position, (at, number)) in starts.iter().enumerate() {
        let end = starts.get(position + 1).map_or(text.len(), |next| next.0);
        clauses.push(Clause { number: *number, text: &text[*at..end] });
    }
    clauses
}

fn tests_of(clause: &str) -> Vec<&str> {
    let Some((_, list)) = clause.split_once("Tests:") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap_or(list);
    list.split('`').skip(1).step_by(2).collect()
}

/// The name of every function marked as a test, `#[test]` in Rust and `name() { # S7` in a suite.
fn function_names(sources: &Sources) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (_, text) in sources.matching("crates/", ".rs") {
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") {
                marked = true;
            } else if let Some(rest) = line.strip_prefix("fn ")
                && std::mem::take(&mut marked)
            {
                names.extend(rest.split('(').next());
            }
        }
    }
    for (_, text) in sources.matching("tests/suites/", ".sh") {
        names.extend(text.lines().filter_map(|line| Some(line.split_once("() { # S")?.0)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("crates/a/tests/b.rs", "#[test]\nfn a_fact() {}\nfn not_a_test() {}\n");

    fn errors(semantics: &str) -> usize {
        check(&Sources::of(&[(FILE, semantics), TEST, ("tests/suites/fsx.sh", "")])).errors().len()
    }

    #[test]
    fn a_clause_with_an_existing_test_is_right() {
        assert_eq!(
            errors("**S1.** A promise.\nTests: `a_fact`.\n\n**S2.** One more.\nTests: `suite/fsx`,\n`a_fact`.\n"),
            0
        );
    }

    #[test]
    fn a_clause_without_a_test_is_an_error() {
        assert_eq!(errors("**S1.** A promise about `a_fact`.\n"), 1);
    }

    #[test]
    fn a_withdrawn_clause_needs_no_test() {
        assert_eq!(errors("**S1.** *Withdrawn.* The promise was removed.\n"), 0);
        assert_eq!(errors("**S1.** A promise. *Withdrawn.* Not at its begin.\n"), 1);
    }

    #[test]
    fn a_test_that_does_not_exist_is_an_error() {
        assert_eq!(errors("**S1.** A promise. Tests: `not_a_test`, `nothing`, `suite/nothing`.\n"), 3);
    }

    #[test]
    fn a_promise_of_a_suite_is_a_test() {
        let suite = ("tests/suites/promises.sh", "a_promise() { # S1\n}\nnot_a_promise() {\n}\n");
        let errors = |name: &str| {
            let clause = format!("**S1.** One. Tests: `{name}`.\n");
            check(&Sources::of(&[(FILE, &clause), suite])).errors().len()
        };
        // A clause that names no test, and a promise that its clause does not name.
        assert_eq!((errors("a_promise"), errors("not_a_promise")), (0, 2));
    }

    #[test]
    fn a_promise_of_another_clause_than_it_says_is_an_error() {
        let suite = ("tests/suites/promises.sh", "a_promise() { # S1, S2\n}\n");
        let semantics = "**S1.** One. Tests: `a_promise`.\n\n**S2.** Two. Tests: `a_fact`.\n";
        assert_eq!(check(&Sources::of(&[(FILE, semantics), TEST, suite])).errors().len(), 1);
    }

    #[test]
    fn a_number_that_does_not_rise_is_an_error_and_a_gap_is_none() {
        assert_eq!(errors("**S1.** One. Tests: `a_fact`.\n\n**S3.** Three. Tests: `a_fact`.\n"), 0);
        assert_eq!(errors("**S3.** Three. Tests: `a_fact`.\n\n**S1.** One. Tests: `a_fact`.\n"), 1);
    }

    #[test]
    fn an_expected_failure_must_name_a_clause() {
        let check_line = |line: &str| {
            let files = [(FILE, "**S1.** A promise.\n"), ("tests/suites/pjdfstest.expected", line)];
            check_expected_failures(&Sources::of(&files)).errors().len()
        };
        assert_eq!(check_line("# a comment\n\nchmod::case S1 because\n"), 0);
        assert_eq!(check_line("chmod::case S2 because\n"), 1);
        assert_eq!(check_line("chmod::case because\n"), 1);
    }
}
