//! Tasks of the repository itself: `cargo xtask tidy`, `cargo xtask clauses`, `cargo xtask lines`.

mod appendix;
mod clauses;
mod comments;
mod dependencies;
mod docs;
mod knots;
mod layers;
mod lengths;
mod lines;
mod modules;
mod names;
mod offsets;
mod product;
mod proofs;
mod prose;
mod ratchet;
mod report;
mod sentences;
mod sources;
mod traits;
mod type_names;
mod unsafety;

use std::path::Path;
use std::process::ExitCode;

use ratchet::Count;
use report::Report;
use sources::Sources;

const USAGE: &str = "usage: cargo xtask tidy [--list CHECK]
       cargo xtask clauses|lines

  tidy    checks what the compiler cannot: layers, lengths, names, clauses and their tests,
          the decisions behind dependencies, where unsafe code may be, and the counted checks
          whose bounds are in tidy.toml; --list prints every finding of one of these
  clauses writes docs/clauses.md: the tests of each clause, as the tests name them
  lines   prints how many lines the product has, without tests, per crate";

/// A check that fails at its first error: a pure function of the repository's text.
type Check = fn(&Sources) -> Report;

const CHECKS: [(&str, Check); 8] = [
    ("imports_point_downwards", layers::check),
    ("files_and_functions_are_short", lengths::check),
    ("files_are_named_for_what_they_define", names::check),
    ("every_clause_has_a_test", clauses::check),
    ("the_tests_of_clauses_are_listed", appendix::check),
    ("every_listed_failure_has_a_clause", clauses::check_expected_failures),
    ("every_dependency_was_decided", dependencies::check),
    ("unsafe_code_is_where_it_may_be", unsafety::check),
];

/// Checks that may have as many findings as `tidy.toml` allows.
const COUNTED: [(&str, Count); 6] = [
    ("modules_form_no_knots", knots::check),
    ("traits_at_seams_are_narrow", traits::check),
    ("type_names_mean_one_thing", type_names::check),
    ("comments_stand_alone", comments::check),
    ("sentences_are_short", sentences::check),
    ("fuse_offsets_are_named", offsets::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["help" | "--help" | "-h"] = arguments[..] {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let sources = match Sources::read(root) {
        Ok(sources) => sources,
        Err(error) => {
            eprintln!("error: read the tree: {error}");
            return ExitCode::FAILURE;
        }
    };
    match arguments[..] {
        ["tidy"] => tidy(&sources),
        ["tidy", "--list", name] => list(&sources, name),
        ["lines"] => lines(&sources),
        ["clauses"] => write_clauses(root, &sources),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy(sources: &Sources) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    let mut verdict = |name: &str, passes: bool, words: &str| {
        println!("test tidy::{name} ... {}{words}", if passes { "ok" } else { "FAILED" });
        *if passes { &mut passed } else { &mut failed } += 1;
    };
    for (name, check) in CHECKS {
        let report = check(sources);
        print!("{report}");
        verdict(name, report.is_clean(), "");
    }
    let report = ratchet::check_bounds(sources, &COUNTED.map(|(name, _)| name));
    print!("{report}");
    verdict("every_bound_belongs_to_a_check", report.is_clean(), "");
    for (name, count) in COUNTED {
        let (passes, words) = ratchet::judge(sources, name, count(sources).list.len());
        verdict(name, passes, &format!(" ({words})"));
    }
    println!("test result: {}. {passed} passed; {failed} failed", if failed == 0 { "ok" } else { "FAILED" });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list(sources: &Sources, name: &str) -> ExitCode {
    let Some((_, count)) = COUNTED.iter().find(|(counted, _)| *counted == name) else {
        eprintln!("error: no counted check `{name}`; there are: {}", COUNTED.map(|(name, _)| name).join(", "));
        return ExitCode::from(2);
    };
    let findings = count(sources);
    for finding in &findings.list {
        println!("{}:{}: {}", finding.path, finding.line, finding.what);
    }
    for note in &findings.notes {
        println!("note: {note}");
    }
    ExitCode::SUCCESS
}

fn write_clauses(root: &Path, sources: &Sources) -> ExitCode {
    if let Err(error) = std::fs::write(root.join(appendix::FILE), appendix::render(sources)) {
        eprintln!("error: write {}: {error}", appendix::FILE);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn lines(sources: &Sources) -> ExitCode {
    let lines = lines::of_crates(sources);
    for (krate, lines) in &lines {
        println!("{lines:>7} {krate}");
    }
    println!("{:>7} in all", lines.values().sum::<usize>());
    ExitCode::SUCCESS
}
