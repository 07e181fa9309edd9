//! Sweeps over hosts. A fake `ssh` replaces the network, so that hosts can fail in ways that no real network offers on
//! demand.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay-limits");

/// Fake ssh: `dead` refuses connections; `dies` reads two lines and then nothing; `ahead` runs in a time namespace with
/// a clock a day ahead; `slow` delays every line.
const SSH: &str = r#"#!/bin/sh
two_lines() { for n in 1 2; do read -r line; printf '%s\n' "$line"; done; }
slow_lines() { while read -r line; do sleep 0.2; printf '%s\n' "$line"; done; }
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
  dead) echo "ssh: connect to host dead: No route to host" >&2; exit 255 ;;
  dies) eval "two_lines | $*" ;;
  slow) eval "slow_lines | $*" ;;
  ahead) eval "exec unshare --time --monotonic 86400 --fork --kill-child $*" ;;
  *) eval "exec $*" ;;
esac
"#;

/// Fake mpirun with the options that both MPICH and Open MPI accept.
const MPIRUN: &str = r#"#!/bin/sh
[ "$1 $2 $3 $4" = "-np 1 -host left" ] || exit 9
shift 4
exec "$@"
"#;

fn sweep(target: &Path, tools: &Path, hosts: &str, words: &[&str]) -> (Option<i32>, String, Value) {
    for (name, text) in [("ssh", SSH), ("mpirun", MPIRUN)] {
        fs::write(tools.join(name), text).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let results = tools.join("r.json");
    let _ = fs::remove_file(&results);
    let mut command = Command::new(PROGRAM);
    command.args(["sweep", "--quiet", "--repeat", "1", "--time", "3s", "--size", "4MiB"]);
    if !words.contains(&"--warm-up") {
        command.args(["--warm-up", "0"]);
    }
    command.arg("--target").arg(target).args(["--hosts", hosts, "-o"]).arg(&results).args(words).env("PATH", path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let found = fs::read(&results).map_or(Value::Null, |text| serde_json::from_slice::<Value>(&text).unwrap());
    (output.status.code(), said, found["results"].clone())
}

#[test]
fn groups_run_on_their_hosts_and_what_they_wrote_is_read_by_the_next() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (code, said, found) = sweep(target.path(), tools.path(), "left,right", &["-M", "1,2", "-N", "2", "--read"]);
    assert_eq!(code, Some(0), "{said}");
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4, "{said}");
    assert!(runs.iter().all(|run| run["operations"].as_u64().unwrap() > 0), "{runs:?}");
}

/// `pid:N` uses the network and the mounts of a process: a file system mounted only there is the target there. Needs
/// root.
#[test]
fn a_group_runs_in_the_namespaces_of_a_process() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = "ip link set lo up && mount -t tmpfs none \"$0\" && echo ready && read -r line";
    let mut node = Command::new("unshare");
    node.args(["--net", "--mount", "--propagation", "private", "sh", "-c", script]).arg(target.path());
    let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "unshare, ip and mount need root");
    let host = format!("pid:{}", node.id());
    let words = ["-M", "1", "-N", "1", "--io-nodes", &host];
    let (code, said, found) = sweep(target.path(), tools.path(), &host, &words);
    // The sweep creates its directory here, and there it does not exist: the target must be the same directory on all
    // hosts.
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
    assert_eq!(found["quiet"][0]["host"], host.as_str(), "{said}");
    let (code, said, found) = sweep(tools.path(), tools.path(), &host, &words[..4]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(found["runs"][0]["clients"][0]["host"], host.as_str(), "{said}");
    drop(node.stdin.take());
    node.wait().unwrap();
}

#[test]
fn a_dead_host_is_a_hole_with_its_name_and_the_rest_is_kept() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (second, part) in [("dead", "group 1 on dead"), ("dies", "group 1 on dies")] {
        let hosts = format!("left,{second}");
        let (code, said, found) = sweep(target.path(), tools.path(), &hosts, &["-M", "1,2", "-N", "1"]);
        assert_eq!(code, Some(75), "{said}");
        assert!(said.contains("missing: M=2 N=1") && said.contains(part), "{said}");
        // For a host that never answered, a command to try is shown; for one that answered and then failed, it is not.
        let hint = format!(
            "ended early (exit status: 255); this must answer there, and ask nothing: ssh -o BatchMode=yes -o ServerAliveInterval=10 -- dead '{PROGRAM}' 'worker' --help"
        );
        assert_eq!(said.contains(&hint), second == "dead", "{said}");
        assert_eq!(said.contains("this must answer there"), second == "dead", "{said}");
        let runs = found["runs"].as_array().unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|run| run["groups"] == 1), "{said}");
    }
}

/// The warm-up uses the largest cell, which needs the dead host. Cells that do not need that host must still run.
#[test]
fn a_warm_up_that_fails_loses_nothing() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let words = ["-M", "1,2", "-N", "1", "--warm-up", "1"];
    let (code, said, found) = sweep(target.path(), tools.path(), "left,dead", &words);
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("the warm-up did not come to its end: group 1 on dead"), "{said}");
    assert!(said.contains("missing: M=2 N=1: group 1 on dead"), "{said}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 1, "{said}");
}

#[test]
fn a_host_whose_clock_is_a_day_ahead_starts_and_ends_with_the_others() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let can = Command::new("unshare").args(["--time", "--monotonic", "86400", "--fork", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("skipped: time namespaces are not available");
        return;
    }
    let (code, said, found) = sweep(target.path(), tools.path(), "left,ahead", &["-M", "2", "-N", "1"]);
    assert_eq!(code, Some(0), "{said}");
    // With the wrong clock it would have lasted a day, or the group's own rate would be zero.
    let run = &found["runs"][0];
    assert!(run["seconds"].as_f64().unwrap() < 600.0, "{run}");
    assert!(run["group_rates"].as_array().unwrap().iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{run}");
}

#[test]
fn a_host_whose_clock_cannot_be_compared_well_enough_is_named_with_the_time_it_needs() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (code, said, found) = sweep(target.path(), tools.path(), "left,slow", &["-M", "2", "-N", "1"]);
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("the clock of group 1 on slow can be compared to "), "{said}");
    assert!(said.contains("too little for phases this short: --time"), "{said}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 0);
}

#[test]
fn mpirun_starts_a_group_and_the_interfaces_of_hosts_and_io_nodes_are_told() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let words = ["-M", "2", "-N", "2", "--io-nodes", "right,mpirun:left"];
    let (code, said, found) = sweep(target.path(), tools.path(), "mpirun:left,right", &words);
    assert_eq!(code, Some(0), "{said}");
    let hosts = |key: &str| {
        let seen = found["runs"][0][key].as_array().unwrap().iter();
        seen.map(|host| host["host"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hosts("clients"), ["mpirun:left", "right"]);
    assert_eq!(hosts("io_nodes"), ["right", "mpirun:left"]);
    assert_eq!(found["quiet"].as_array().unwrap().len(), 2);
}

#[test]
fn an_io_node_that_cannot_be_reached_is_named_before_anything_runs() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (code, said, _) =
        sweep(target.path(), tools.path(), "left", &["-M", "1", "-N", "1", "--io-nodes", "right,dead"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("I/O node 1 on dead ended early") && said.contains("--io-nodes takes hosts"), "{said}");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_host_is_refused_before_anything_runs() {
    let (target, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (code, said, _) = sweep(target.path(), tools.path(), "mpi:left", &["-M", "1", "-N", "1"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("no way to a host"), "{said}");
}
