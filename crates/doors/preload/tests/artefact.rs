//! The built library: what it needs and exports, and a program that runs with it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

#[path = "../src/table.rs"]
mod table;

/// Collects the names of the table's rows.
macro_rules! names {
    (
        by_descriptor { $( $call:ident ( $($a:ident : $t:ty),* ) -> $r:ty => $how:tt $(:: $what:ident)?; )* }
        opens { $( $open:ident ( $($c:ident : $v:ty),* ) => $flags:expr; )* }
        always { $( $other:ident ( $($b:ident : $u:ty),* ) -> $s:ty => $by:tt $(:: $it:ident)?; )* }
        departures { $( $leaving:ident )* }
        looked_at { $( $past:ident => $first:ident :: $look:ident; )* }
        own { $( $whole:ident ( $($d:ident : $w:ty),* ) -> $x:ty => $mine:ident :: $does:ident; )* }
    ) => {
        [
            $( stringify!($call), )* $( stringify!($open), )* $( stringify!($other), )* $( stringify!($leaving), )*
            $( stringify!($past), )* $( stringify!($whole), )*
        ]
    };
}

/// Returns the path of the library, which cargo puts beside this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let library = here.with_file_name("libforebay_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_library_exports_the_table_and_nothing_else() {
    let symbols = output(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library()));
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let wanted: BTreeSet<&str> = table::table!(names).into_iter().collect();
    assert_eq!(exported, wanted);
}

#[test] // S64
fn the_library_needs_libc_and_its_loader_alone() {
    let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(library()));
    let needed: BTreeSet<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    let allowed = BTreeSet::from(["libc.so.6", "ld-linux-x86-64.so.2"]);
    assert!(needed.is_subset(&allowed), "{needed:?}");
    let versions = output(Command::new("readelf").args(["--version-info", "--wide"]).arg(library()));
    let minor = |word: &str| word.strip_prefix("GLIBC_2.")?.split('.').next()?.parse::<u32>().ok();
    let newest = versions.split_whitespace().filter_map(minor).max();
    assert!(newest.is_some_and(|minor| minor <= 34), "an older C library ends the program: {newest:?}");
    assert!(dynamic.contains("BIND_NOW"), "a first call in a signal handler would look for its function");
}

#[test]
fn the_library_sets_no_signal_handler() {
    let symbols = output(Command::new("nm").args(["--dynamic", "--undefined-only"]).arg(library()));
    let sets =
        |name: &&str| ["sigaction", "signal", "sigaltstack"].contains(&name.split('@').next().unwrap_or_default());
    let found: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().last()).filter(sets).collect();
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_program_that_is_preloaded_says_nothing_more_and_has_one_thread() {
    let script = "for n in 1 2; do (echo $n | cat); done; grep Threads: /proc/self/status; exec echo a b c d e f g h i";
    let run = |preload: &str| output(Command::new("bash").args(["-c", script]).env("LD_PRELOAD", preload));
    let plain = run("");
    assert!(plain.contains("Threads:\t1\n"));
    assert_eq!(run(library().to_str().unwrap()), plain);
}
