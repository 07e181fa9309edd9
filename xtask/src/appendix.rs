//! The appendix `docs/clauses.md`: which tests prove which clause. It is made from what tests name, by `cargo xtask clauses`.

use std::fmt::Write;

use crate::clauses::{self, Clause};
use crate::proofs::{self, Proof, WHOLE_SUITE};
use crate::report::Report;
use crate::sources::Sources;

/// The appendix.
pub const FILE: &str = "docs/clauses.md";

const HEAD: &str = "# Tests of the clauses

<!-- Made from what tests name: cargo xtask clauses -->

Each test names the clauses of [semantics.md](semantics.md) that it proves; [CONTRIBUTING.md](../CONTRIBUTING.md) says
how. `cargo xtask tidy` checks that each clause has a test and that this page is up to date.
";

/// Checks that the appendix says what tests name.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    if sources.file(FILE) != Some(render(sources).as_str()) {
        report.error(format!("{FILE} is out of date: cargo xtask clauses"));
    }
    report
}

/// The text of the appendix.
pub fn render(sources: &Sources) -> String {
    let proofs = proofs::of(sources, &mut Report::default());
    let mut page = HEAD.to_owned();
    for clause in clauses::clauses(sources.file(clauses::FILE).unwrap_or_default()) {
        write_section(&mut page, &clause, &proofs);
    }
    page
}

fn write_section(page: &mut String, clause: &Clause, proofs: &[Proof]) {
    let Clause { number, title } = clause;
    let _ = writeln!(page, "\n## {}", format!("S{number} {title}").trim_end());
    let own: Vec<&Proof> = proofs.iter().filter(|proof| proof.clauses.contains(number)).collect();
    for (position, of_file) in own.chunk_by(|a, b| a.path == b.path).enumerate() {
        let path = of_file[0].path;
        let names: Vec<String> = of_file.iter().map(|proof| shown(proof.name)).collect();
        let blank = if position == 0 { "\n" } else { "" };
        let _ = writeln!(page, "{blank}* [{path}](../{path}): {}", names.join(", "));
    }
}

fn shown(name: &str) -> String {
    if name == WHOLE_SUITE { name.to_owned() } else { format!("`{name}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 3] = [
        (clauses::FILE, "**S1.** *First.* A promise.\n\n**S2.** *Withdrawn.* It was removed.\n"),
        ("crates/a/src/b.rs", "#[test] // S1\nfn one() {}\n#[test] // S1\nfn two() {}\n"),
        ("tests/suites/c.sh", "# Clauses: S1\n"),
    ];

    #[test]
    fn each_clause_lists_its_tests_by_file() {
        let page = render(&Sources::of(&FILES));
        let sections = "\n## S1 First\n\n* [crates/a/src/b.rs](../crates/a/src/b.rs): `one`, `two`\n\
                        * [tests/suites/c.sh](../tests/suites/c.sh): whole suite\n\n## S2 Withdrawn\n";
        assert_eq!(page.strip_prefix(HEAD), Some(sections));
    }

    #[test]
    fn an_appendix_that_is_missing_or_stale_is_an_error() {
        let page = render(&Sources::of(&FILES));
        let errors = |page: &str| {
            let files: Vec<(&str, &str)> = FILES.into_iter().chain([(FILE, page)]).collect();
            check(&Sources::of(&files)).errors().len()
        };
        assert_eq!((errors(&page), errors(HEAD)), (0, 1));
        assert_eq!(check(&Sources::of(&FILES)).errors().len(), 1);
    }
}
