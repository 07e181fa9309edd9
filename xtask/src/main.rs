//! Tasks of the repository itself: `cargo xtask tidy`, `cargo xtask clauses`.

mod appendix;
mod clauses;
mod dependencies;
mod layers;
mod lengths;
mod names;
mod proofs;
mod report;
mod sources;
mod unsafety;

use std::path::Path;
use std::process::ExitCode;

use report::Report;
use sources::Sources;

const USAGE: &str = "usage: cargo xtask tidy|clauses

  tidy     checks what the compiler cannot: layers, lengths, names, clauses and their tests,
           the decisions behind dependencies, and where unsafe code may be
  clauses  writes docs/clauses.md: the tests of each clause, as the tests name them";

/// A check: a pure function of the repository's text.
type Check = fn(&Sources) -> Report;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => run(tidy),
        Some("clauses") => run(write_clauses),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Reads the tree and does a task with it.
fn run(task: fn(&Path, &Sources) -> ExitCode) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    match Sources::read(root) {
        Ok(sources) => task(root, &sources),
        Err(error) => {
            eprintln!("error: read the tree: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_clauses(root: &Path, sources: &Sources) -> ExitCode {
    if let Err(error) = std::fs::write(root.join(appendix::FILE), appendix::render(sources)) {
        eprintln!("error: write {}: {error}", appendix::FILE);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn tidy(_root: &Path, sources: &Sources) -> ExitCode {
    let checks: [(&str, Check); 8] = [
        ("imports_point_downwards", layers::check),
        ("files_and_functions_are_short", lengths::check),
        ("files_are_named_for_what_they_define", names::check),
        ("every_clause_has_a_test", clauses::check),
        ("the_tests_of_clauses_are_listed", appendix::check),
        ("every_listed_failure_has_a_clause", clauses::check_expected_failures),
        ("every_dependency_was_decided", dependencies::check),
        ("unsafe_code_is_where_it_may_be", unsafety::check),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        let report = check(sources);
        print!("{report}");
        println!("test tidy::{name} ... {}", if report.is_clean() { "ok" } else { "FAILED" });
        failed += usize::from(!report.is_clean());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {} passed; {failed} failed", checks.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
