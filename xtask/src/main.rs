//! Tasks of the repository itself: `cargo xtask tidy`.

mod clauses;
mod dependencies;
mod layers;
mod lengths;
mod names;
mod report;
mod sources;
mod unsafety;

use std::path::Path;
use std::process::ExitCode;

use report::Report;
use sources::Sources;

const USAGE: &str = "usage: cargo xtask tidy

  tidy    checks what the compiler cannot: layers, lengths, names, clauses and their tests,
          the decisions behind dependencies, and where unsafe code may be";

/// A check: a pure function of the repository's text.
type Check = fn(&Sources) -> Report;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy(),
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

fn tidy() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let sources = match Sources::read(root) {
        Ok(sources) => sources,
        Err(error) => {
            eprintln!("error: read the tree: {error}");
            return ExitCode::FAILURE;
        }
    };
    let checks: [(&str, Check); 7] = [
        ("imports_point_downwards", layers::check),
        ("files_and_functions_are_short", lengths::check),
        ("files_are_named_for_what_they_define", names::check),
        ("every_clause_has_a_test", clauses::check),
        ("every_listed_failure_has_a_clause", clauses::check_expected_failures),
        ("every_dependency_was_decided", dependencies::check),
        ("unsafe_code_is_where_it_may_be", unsafety::check),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        let report = check(&sources);
        print!("{report}");
        println!("test tidy::{name} ... {}", if report.is_clean() { "ok" } else { "FAILED" });
        failed += usize::from(!report.is_clean());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {} passed; {failed} failed", checks.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
