//! Promises are tests: each numbered clause of `docs/semantics.md` has a test that names it.
//!
//! A clause begins with a line `**S7.** *Title.* ...`. One that begins `**S7.** *Withdrawn.*` retains its number and has
//! no test. How a test names its clauses is in `proofs.rs`.

use crate::proofs::{self, Proof};
use crate::report::Report;
use crate::sources::Sources;

/// The document of the clauses.
pub const FILE: &str = "docs/semantics.md";

/// One numbered promise.
#[derive(Debug, PartialEq, Eq)]
pub struct Clause<'a> {
    pub number: usize,
    /// Without its full stop; empty if the clause has none.
    pub title: &'a str,
}

impl Clause<'_> {
    /// Whether the promise was withdrawn: the number stays, so that it never means another promise.
    pub fn is_withdrawn(&self) -> bool {
        self.title == "Withdrawn"
    }
}

/// Checks that the numbers of clauses rise, that each clause has a test, and that each test names existing clauses.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    let Some(text) = sources.file(FILE) else {
        report.error(format!("{FILE} is missing"));
        return report;
    };
    let clauses = clauses(text);
    let proofs = proofs::of(sources, &mut report);
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
        if !clause.is_withdrawn() && !proofs.iter().any(|proof| proof.clauses.contains(&number)) {
            report.error(format!("{FILE}: no test names S{number}"));
        }
    }
    for Proof { path, name, clauses: named } in &proofs {
        for number in named {
            if !clauses.iter().any(|clause| clause.number == *number && !clause.is_withdrawn()) {
                report.error(format!("{path}: `{name}` names S{number}, which {FILE} does not promise"));
            }
        }
    }
    report
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

/// The clauses of a text, in its order.
pub fn clauses(text: &str) -> Vec<Clause<'_>> {
    let mut clauses = Vec::new();
    for line in text.lines() {
        let Some((digits, rest)) = line.strip_prefix("**S").and_then(|line| line.split_once(".**")) else { continue };
        let Ok(number) = digits.parse() else { continue };
        let title = rest.trim_start().strip_prefix('*').and_then(|rest| rest.split_once(".*"));
        clauses.push(Clause { number, title: title.map_or("", |(title, _)| title) });
    }
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(semantics: &str, test: &str) -> usize {
        check(&Sources::of(&[(FILE, semantics), ("crates/a/tests/b.rs", test)])).errors().len()
    }

    fn test_of(clauses: &str) -> String {
        format!("#[test] // {clauses}\nfn a_fact() {{}}\n")
    }

    #[test]
    fn a_clause_has_a_number_and_a_title() {
        let text = "# Head\n\n**S1.** *A title.* A promise, as **S2.** says.\n\n**S3.** One more.\n";
        assert_eq!(clauses(text), [Clause { number: 1, title: "A title" }, Clause { number: 3, title: "" }]);
    }

    #[test]
    fn a_clause_that_a_test_names_is_right() {
        assert_eq!(errors("**S1.** A promise.\n\n**S2.** One more.\n", &test_of("S1, S2")), 0);
    }

    #[test]
    fn a_clause_that_no_test_names_is_an_error() {
        assert_eq!(errors("**S1.** A promise.\n\n**S2.** One more.\n", &test_of("S1")), 1);
    }

    #[test]
    fn a_withdrawn_clause_needs_no_test_and_no_test_may_name_it() {
        let semantics =
            "**S1.** *Withdrawn.* The promise was removed.\n\n**S2.** A promise. *Withdrawn.* Not at its start.\n";
        assert_eq!(errors(semantics, &test_of("S2")), 0);
        assert_eq!(errors(semantics, &test_of("S1, S2")), 1);
        assert_eq!(errors(semantics, ""), 1);
    }

    #[test]
    fn a_test_of_a_clause_that_does_not_exist_is_an_error() {
        assert_eq!(errors("**S1.** A promise.\n", &test_of("S1, S2")), 1);
    }

    #[test]
    fn a_number_that_does_not_rise_is_an_error_and_a_gap_is_none() {
        assert_eq!(errors("**S1.** One.\n\n**S3.** Three.\n", &test_of("S1, S3")), 0);
        assert_eq!(errors("**S3.** Three.\n\n**S1.** One.\n", &test_of("S1, S3")), 1);
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
