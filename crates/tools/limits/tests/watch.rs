//! `watch` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
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
    // Simulates Ctrl-C: both processes get the signal. The shell sends it to the watcher first, then dies of it.
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
    // Works long enough to be sampled: samples are as far apart as they need to be.
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

/// Installs this program, with an agent's command beside it. Other programs write the files: a descriptor of ours open
/// for writing could be inherited by a child of another test, and then the files could not be started.
fn installed(directory: &Path, agent: &str) -> PathBuf {
    let script = r#"cp "$1" "$2/forebay-limits" && printf '%s' "$3" >"$2/forebay" && chmod 755 "$2/forebay""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", PROGRAM]).arg(directory).arg(agent);
    assert!(command.status().unwrap().success());
    directory.join("forebay-limits")
}

/// A program may end while an agent is asked for its status; each child's processor time is still counted separately.
#[test]
fn the_programs_time_is_not_taken_for_that_of_asking() {
    let directory = tempfile::tempdir().unwrap();
    // The agent is asked after two seconds and answers a second and a half later; the program ends meanwhile. Without
    // any agent, nobody would be asked.
    let answer = r#"[{"agent":1,"burst_buffer":"/bb","dir":"/d","status":{}}]"#;
    let program = installed(directory.path(), &format!("#!/bin/sh\nsleep 1.5\necho '{answer}'\n"));
    let file = directory.path().join("watch.json");
    let mut command = Command::new(program);
    command.args(["watch", "-o"]).arg(&file).args(["--", "timeout", "2.7", "sh", "-c", "while :; do :; done"]);
    assert_eq!(command.output().unwrap().status.code(), Some(124));
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(results["results"]["tiers"]["agents"].as_object().unwrap().len(), 1, "{results}");
    let used = results["results"]["program_cpu_s"].as_f64().unwrap();
    assert!(used > 0.1, "{used} s in a loop of 2.7 s");
}

/// If no agent was seen and nothing has been mounted since, no process is started to ask again.
#[test]
fn nobody_is_asked_again_where_nobody_was_and_nothing_came() {
    let directory = tempfile::tempdir().unwrap();
    let program = installed(directory.path(), "#!/bin/sh\necho asked >>\"$0.log\"\necho '[]'\n");
    // Other tests may mount something meanwhile, which a private namespace does not see. Needs root.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program).args(["watch", "--", "sleep", "4.5"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(directory.path().join("forebay.log")).unwrap(), "asked\n");
}
