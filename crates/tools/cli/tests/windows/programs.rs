//! Kinds of programs that a run with windows starts. Each must behave as it does in the plain directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::in_private_namespace;

use crate::common::{Bench, Done, forebay, ok, start};

/// Writes 3200 bytes in 200 calls to the file that is its argument, and says so.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
  int file = open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 200; n++)
    if (write(file, "0123456789abcdef", 16) != 16) return 1;
  if (close(file)) return 1;
  puts("ran");
  return 0;
}
"#;

/// Commands that make each kind of program, and whether the library serves it.
const KINDS: [(&str, &[&str], bool); 14] = [
    ("glibc", &["gcc"], true),
    ("not position independent", &["gcc", "-no-pie"], true),
    ("C++", &["g++", "-x", "c++"], true),
    ("address sanitizer", &["gcc", "-fsanitize=address"], true),
    ("address sanitizer inside", &["gcc", "-fsanitize=address", "-static-libasan"], true),
    ("thread sanitizer", &["gcc", "-fsanitize=thread"], true),
    ("leak sanitizer", &["gcc", "-fsanitize=leak"], true),
    ("undefined behaviour sanitizer", &["gcc", "-fsanitize=undefined"], true),
    ("clang's address sanitizer", &["clang", "-fsanitize=address"], true),
    ("clang's shared address sanitizer", &["clang", "-fsanitize=address", "-shared-libasan"], true),
    ("static", &["gcc", "-static"], false),
    ("musl", &["musl-gcc"], false),
    ("32 bits", &["gcc", "-m32"], false),
    ("32 bits with address sanitizer", &["gcc", "-m32", "-fsanitize=address"], false),
];

/// Builds each kind for which this machine has a compiler. Returns the numbers of the kinds, and whether the library
/// serves them.
fn build(into: &Path) -> Vec<(usize, bool)> {
    let source = into.join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let builds = |&(number, (name, compiler, serves)): &(usize, (&str, &[&str], bool))| {
        let program = into.join(number.to_string());
        let built = Command::new(compiler[0]).args(&compiler[1..]).arg(&source).arg("-o").arg(&program).output();
        // Some machines have the compiler and not what the program needs to run.
        let runs = || Command::new(&program).arg(into.join("plain")).output().is_ok_and(|done| done.status.success());
        let there = built.is_ok_and(|done| done.status.success()) && runs();
        if !there {
            println!("not tested in: {name}");
        }
        there.then_some((number, serves))
    };
    KINDS.into_iter().enumerate().filter_map(|kind| builds(&kind)).collect()
}

/// Runs a script with windows. Returns its result and the number of windows.
fn run(bench: &Bench, script: &str, variables: &[(&str, &str)]) -> (Done, u64) {
    let report = bench.tree.path("report");
    let mut command = forebay();
    command.arg("run").arg("--report").arg(&report).arg("--quiet");
    command.arg(format!("--window={}", bench.tree.path("rings").display()));
    command.arg("--burst-buffer").arg(&bench.buffer).arg("--dir").arg(&bench.dir);
    command.args(["--", "sh", "-c", script]).current_dir(&bench.dir).envs(variables.iter().copied());
    let done = start(&mut command, "").wait();
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let attached = report["directories"][0]["windows"]["attached"].as_u64();
    (done, attached.unwrap_or_default())
}

#[test] // S64
fn programs_of_every_kind_run_as_in_the_plain_directory_whoever_starts_them() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let programs = bench.tree.dir("programs").display().to_string();
        let kinds = build(Path::new(&programs));
        let served = kinds.iter().filter(|(_, serves)| *serves).count() as u64;
        // Shells of which one loads the library, and one cannot.
        let mut starters = vec!["sh"];
        match Command::new("busybox").arg("true").status() {
            Ok(status) if status.success() => starters.push("busybox sh"),
            _ => println!("not tested in: a static shell"),
        }
        let mut script = String::new();
        for starter in &starters {
            for (number, _) in &kinds {
                script += &format!("{starter} -c '{programs}/{number} {number}' || echo kind {number}: $?\n");
            }
        }
        let (done, attached) = run(&bench, &script, &[]);
        let all = starters.len() * kinds.len();
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
        assert_eq!(done.out, "ran\n".repeat(all));
        assert_eq!(attached, served * starters.len() as u64);
        kinds.iter().for_each(|(number, _)| assert_eq!(bench.read(&number.to_string()).len(), 3200));
    });
}

#[test] // S64
fn a_sanitizer_finds_what_it_finds_without_the_library() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let source = bench.tree.path("broken.c");
        let body = "char *late = malloc(16); free(late); write(2, late, 16);";
        fs::write(&source, format!("#include <stdlib.h>\n#include <unistd.h>\nint main() {{ {body} return 0; }}"))
            .unwrap();
        let program = bench.tree.path("broken");
        let build =
            Command::new("gcc").args(["-w", "-fsanitize=address"]).arg(&source).arg("-o").arg(&program).status();
        assert!(build.unwrap().success());
        let (done, _) = run(&bench, &program.display().to_string(), &[("ASAN_OPTIONS", "detect_leaks=0")]);
        assert!(done.code == 1 && done.err.contains("heap-use-after-free"), "{done:?}");
    });
}

#[test] // S64
fn libraries_that_somebody_else_preloads_stay_and_may_replace_ours() {
    in_private_namespace(|| {
        let bench = Bench::new();
        let (source, other) = (bench.tree.path("other.c"), bench.tree.path("other.so"));
        let writes =
            "#include <unistd.h>\n__attribute__((constructor)) static void loaded(void) { write(1, \"other\\n\", 6); }";
        fs::write(&source, writes).unwrap();
        let build = Command::new("gcc").args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&other).status();
        assert!(build.unwrap().success());
        let other = other.to_str().unwrap();
        let (both, _) = run(&bench, "exec true", &[("LD_PRELOAD", other)]);
        assert_eq!(ok(both), "other\n".repeat(3), "of `forebay`, the shell and `true`");
        let (alone, _) = run(&bench, &format!("LD_PRELOAD={other} exec env"), &[]);
        assert!(alone.code == 0 && alone.err.is_empty(), "{alone:?}");
        assert!(alone.out.starts_with("other\n") && alone.out.contains(&format!("LD_PRELOAD={other}\n")), "{alone:?}");
    });
}
