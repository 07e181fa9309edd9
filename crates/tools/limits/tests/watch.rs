//! Watching as a user does it.

use std::fs;
use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay-limits");

#[test]
fn the_programs_output_and_status_are_its_own_and_the_rest_is_on_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("watch.json");
    let mut command = Command::new(PROGRAM);
    command.args(["watch", "--interval", "20ms", "-o"]).arg(&file).args(["--", "sh", "-c", "echo hello; exit 3"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"hello\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("status 3") && said.contains("of one processor"), "{said}");
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(results["stage"], "watch");
    assert_eq!(results["results"]["command"][0], "sh");
}

#[test]
fn an_interrupted_program_is_still_told_of() {
    let mut command = Command::new(PROGRAM);
    // What Ctrl-C does: both get the signal. The shell sends it to the watcher first, then dies of it.
    command.args(["watch", "--", "sh", "-c", "kill -INT $PPID; kill -INT $$"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("status 130"));
}

#[test]
fn a_program_that_cannot_run_is_named() {
    let output = Command::new(PROGRAM).args(["watch", "--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run /nonexistent/program"));
}

#[test]
fn the_threads_time_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("watch.json");
    let mut command = Command::new(PROGRAM);
    // Works until it has been seen working: the looks are as far apart as they have to be.
    command.args(["watch", "-o"]).arg(&file);
    command.args(["--", "sh", "-c", "n=0; while [ $n -lt 400000 ]; do n=$((n+1)); done"]);
    let output = command.output().unwrap();
    assert!(output.status.success());
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let profile = &results["results"]["profile"];
    assert!(profile["looks"].as_u64().unwrap() > 0, "{profile}");
    assert!(profile["computing"].as_u64().unwrap() > 0, "{profile}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the program's threads, when not idle: computing"), "{said}");
}
