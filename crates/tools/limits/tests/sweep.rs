//! The sweep as a user runs it: real processes, real files, results that survive.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay-limits");

fn sweep(target: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["sweep", "--quiet", "--warm-up", "0", "--target"]).arg(target).args(words);
    if !words.contains(&"--time") {
        command.args(["--time", "50ms"]);
    }
    command
}

fn output(mut command: Command) -> (Output, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output, said)
}

fn results(path: &Path) -> Value {
    serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap()["results"].clone()
}

fn runs(results: &Value) -> Vec<(u64, u64, String)> {
    let runs = results["runs"].as_array().unwrap().iter();
    runs.map(|run| {
        let number = |key: &str| run[key].as_u64().unwrap();
        (number("groups"), number("processes"), run["kind"].as_str().unwrap().to_string())
    })
    .collect()
}

#[test]
fn every_cell_of_every_pattern_runs_and_nothing_is_left_behind() {
    for (pattern, phases) in [
        ("stream", &["write"][..]),
        ("ior-easy", &["write", "read"]),
        ("ior-hard", &["write", "read"]),
        ("mdtest-easy", &["create", "stat", "delete"]),
        ("mdtest-hard", &["create", "stat", "fetch", "delete"]),
        ("find", &["create", "walk"]),
    ] {
        let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = file.path().join("r.json");
        let words =
            ["-M", "1,2", "-N", "1,2", "--repeat", "1", "--size", "8MiB", "--files", "300", "--pattern", pattern];
        let (out, said) = output({
            let mut command = sweep(target.path(), &words);
            command.arg("-o").arg(&file);
            command
        });
        assert!(out.status.success(), "{pattern}: {said}");
        let found = results(&file);
        assert_eq!(found["complete"], true);
        let mut wanted = Vec::new();
        for (m, n) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            wanted.extend(phases.iter().map(|kind| (m, n, kind.to_string())));
        }
        assert_eq!(runs(&found), wanted, "{pattern}");
        for run in found["runs"].as_array().unwrap() {
            assert!(run["operations"].as_u64().unwrap() > 0, "{run}");
            assert_eq!(run["group_rates"].as_array().unwrap().len() as u64, run["groups"].as_u64().unwrap());
        }
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "{pattern} left files behind");
    }
}

/// Files of four processes in two directories: each directory gets half of them, and nothing is left, even after a
/// killed run.
#[test]
fn files_are_dealt_out_to_directories_and_all_of_them_are_tidied_up() {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["a", "b"] {
        fs::create_dir(target.path().join(name)).unwrap();
    }
    let file = file.path().join("r.json");
    for (pattern, phases) in [("ior-easy", 2), ("ior-hard", 2), ("mdtest-easy", 3), ("mdtest-hard", 4), ("find", 2)] {
        let words = ["-M", "2", "-N", "2", "--repeat", "1", "--size", "8MiB", "--files", "300", "--pattern", pattern];
        let mut command = sweep(target.path(), &words);
        command.args(["--across", "a,b", "-o"]).arg(&file);
        let (out, said) = output(command);
        assert!(out.status.success(), "{pattern}: {said}");
        let found = results(&file);
        assert_eq!(runs(&found).len(), phases, "{pattern}: {said}");
        assert_eq!((&found["scratch"], found["further"].as_array().unwrap().len()), (&Value::Null, 0));
        fs::remove_file(&file).unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs::read_dir(target.path().join(name)).unwrap().count(), 0, "{pattern} left files behind");
        }
    }
    let (out, said) = output({
        let mut command = sweep(target.path(), &["-M", "1", "-N", "1"]);
        command.args(["--across", "a,c"]);
        command
    });
    assert_eq!(out.status.code(), Some(66), "{said}");
    assert!(said.contains("c is no directory in"), "{said}");
}

#[test]
fn shared_and_random_transfers_read_back_what_was_written() {
    for words in [
        &["--layout", "segmented", "--random"][..],
        &["--layout", "strided", "--random", "--transfer", "4097"],
        &["--random", "--sync", "each", "--transfer", "64KiB"],
    ] {
        let target = tempfile::tempdir().unwrap();
        let both = ["--read", "-M", "2", "-N", "2", "--repeat", "1", "--size", "2MiB", "--transfer", "16KiB"];
        let given: Vec<&str> = if words.contains(&"--transfer") { both[..9].into() } else { both.into() };
        let (out, said) = output(sweep(target.path(), &[&given, words].concat()));
        assert!(out.status.success(), "{words:?}: {said}");
    }
}

#[test]
fn a_finished_file_is_not_run_again_and_other_options_are_refused() {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = file.path().join("r.json");
    let run = |more: &[&str]| {
        let words = ["-M", "1", "-N", "1,2", "--repeat", "1", "--size", "4MiB"];
        let mut command = sweep(target.path(), &[&words, more].concat());
        command.arg("-o").arg(&file);
        output(command)
    };
    assert!(run(&[]).0.status.success());
    let first = results(&file);
    // One run of two is removed, as if the sweep had been killed.
    let mut whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    whole["results"]["runs"].as_array_mut().unwrap().pop();
    whole["results"]["complete"] = false.into();
    fs::write(&file, whole.to_string()).unwrap();
    assert!(run(&[]).0.status.success());
    let second = results(&file);
    assert_eq!(second["runs"][0], first["runs"][0]);
    assert_eq!(runs(&second), runs(&first));
    assert_eq!(second["complete"], true);
    let (out, said) = run(&["--seed", "9"]);
    assert_eq!(out.status.code(), Some(66), "{said}");
    assert!(said.contains("holds a sweep with other options"), "{said}");
}

#[test]
fn a_result_above_the_limit_is_rejected_and_names_the_cache() {
    let target = tempfile::tempdir_in("/dev/shm").unwrap();
    let words = ["-M", "1", "-N", "1", "--repeat", "1", "--size", "64MiB", "--limit", "1 kB/s"];
    let (out, said) = output(sweep(target.path(), &words));
    assert!(out.status.success(), "{said}");
    assert!(said.contains("above the limit of 1.000 kB/s (--limit): the target is this machine's memory"), "{said}");
    assert!(said.contains("no cell counts"), "{said}");
}

#[test]
fn a_dry_run_tells_the_time_and_writes_nothing() {
    let target = tempfile::tempdir().unwrap();
    let words = ["--dry-run", "-M", "1,2,4", "-N", "1,2", "--repeat", "5", "--time", "1m"];
    let (out, said) = output(sweep(target.path(), &words));
    assert!(out.status.success() && said.contains("30 (5 a cell)") && said.contains("30m"), "{said}");
    // Eight processes of 2 MiB each, or of 100 files with a block and a name each.
    for (more, room) in
        [(&["--size", "2MiB"][..], "0.017 GB"), (&["--pattern", "mdtest-hard", "--files", "100"], "0.007 GB")]
    {
        let (_, said) = output(sweep(target.path(), &[&words[..], more].concat()));
        assert!(said.contains(&format!("at most {room} at a time")), "{said}");
    }
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

/// Twice this machine's memory at the limit, however large the memory is.
#[test]
fn a_phase_is_as_long_as_it_takes_to_defeat_the_caches_where_that_is_asked() {
    let target = tempfile::tempdir().unwrap();
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total: f64 = total.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0;
    let limit = format!("{:.0} B/s", total / 30.0);
    let words = ["--dry-run", "-M", "1", "-N", "1", "--repeat", "5", "--pattern", "ior-easy", "--limit", &limit];
    let (out, said) = output(sweep(target.path(), &[&words[..], &["--time", "uncached"]].concat()));
    assert!(out.status.success(), "{said}");
    // Five runs of two phases of a minute.
    assert!(said.contains("10m 0") && said.contains("passes in 1m 00s at the limit"), "{said}");
    assert!(!said.contains("--time uncached"), "{said}");
    let (_, said) = output(sweep(target.path(), &words));
    assert!(said.contains("passes in 1m 00s at the limit: --time uncached"), "{said}");
    for refused in [&["--pattern", "mdtest-easy", "--limit", "1 GB/s"][..], &["--pattern", "stream"]] {
        let (out, said) = output(sweep(target.path(), &[refused, &["--time", "uncached"]].concat()));
        assert!(
            !out.status.success() && said.contains("--time uncached needs a pattern that writes or reads"),
            "{said}"
        );
    }
}

#[test]
fn wrong_words_say_what_to_change() {
    let target = tempfile::tempdir().unwrap();
    for (words, part) in [
        (&["-M", "0"][..], "cannot be zero"),
        (&["-M", "100", "-N", "100"], "has 10000 processes"),
        (&["--transfer", "1000", "--direct"], "multiples of 4096"),
        (&["--limit", "100"], "has no unit"),
        (&["--pattern", "mdtest-hard", "--read"], "--read goes with patterns that write data"),
    ] {
        let (out, said) = output(sweep(target.path(), words));
        assert!(!out.status.success() && said.contains(part), "{words:?}: {said}");
    }
    let (out, said) = output(sweep(Path::new("/nonexistent/dir"), &[]));
    assert!(!out.status.success() && said.contains("must be an existing directory"), "{said}");
}

/// Runs a sweep of a tmpfs, mounted with these options in a private namespace. Needs root.
fn on_tmpfs(options: &str, words: &[&str]) -> (Option<i32>, String, Value) {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = file.path().join("r.json");
    let mount = format!("mount -t tmpfs -o {options} x {} && exec \"$@\"", target.path().display());
    let inner = sweep(target.path(), words);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &mount, "sh"]).arg(inner.get_program());
    let (out, said) = output({
        command.args(inner.get_args()).arg("-o").arg(&file);
        command
    });
    let found = if file.exists() { results(&file) } else { Value::Null };
    (out.status.code(), said, found)
}

#[test]
fn a_target_that_is_too_small_is_told_with_what_it_needs() {
    let (code, said, found) = on_tmpfs("size=1m", &["-M", "1", "-N", "1,2", "--repeat", "1"]);
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("the target has too little room: ") && said.contains(" bytes free are needed"), "{said}");
    assert_eq!((found["runs"].as_array().unwrap().len(), found["complete"].as_bool()), (0, Some(false)), "{said}");
}

#[test]
fn a_target_that_fills_up_makes_a_hole_and_what_was_before_is_kept() {
    // Room for the names of one process and its directories, not of two.
    let words = ["-M", "1", "-N", "1,2", "--repeat", "1", "--pattern", "mdtest-easy", "--files", "60", "--time", "10s"];
    let (code, said, found) = on_tmpfs("size=16m,nr_inodes=100", &words);
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("missing: M=1 N=2: create by process") && said.contains("No space left"), "{said}");
    let kept = runs(&found);
    assert!(!kept.is_empty() && kept.iter().all(|(m, n, _)| (*m, *n) == (1, 1)), "{said}");
}

/// Eight network namespaces of eight processes each: the result contains the samples of all, and the traffic of each
/// namespace. Needs root.
#[test]
fn sixty_four_processes_in_eight_network_namespaces_lose_no_sample() {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = file.path().join("r.json");
    let names: Vec<String> = (0..8).map(|number| format!("forebay{number}")).collect();
    let hosts = names.iter().map(|name| format!("netns:{name}")).collect::<Vec<_>>().join(",");
    // A network namespace gets its name by a mount. In a private mount namespace no other process sees it, and it ends
    // with the test.
    let setup = "mount -t tmpfs x /run && for name in $NAMES; do ip netns add $name || exit 1; done && exec \"$@\"";
    let words = ["-M", "8", "-N", "8", "--repeat", "1", "--pattern", "mdtest-easy", "--files", "40", "--time", "60s"];
    let inner = sweep(target.path(), &[&words[..], &["--hosts", &hosts]].concat());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", setup, "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).arg("-o").arg(&file).env("NAMES", names.join(" "));
    let (out, said) = output(command);
    assert_eq!(out.status.code(), Some(0), "{said}");
    let found = results(&file);
    assert_eq!((runs(&found).len(), found["complete"].as_bool()), (3, Some(true)), "{said}");
    for run in found["runs"].as_array().unwrap() {
        assert_eq!((run["operations"].as_u64(), run["amount"].as_u64()), (Some(64 * 40), Some(64 * 40)), "{run}");
        let rates = run["group_rates"].as_array().unwrap();
        assert!(rates.len() == 8 && rates.iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{run}");
        assert_eq!(run["clients"].as_array().unwrap().len(), 8, "{run}");
    }
}

/// SIGTERM, as sent by a batch system or by `kill`.
#[test]
fn a_sweep_that_is_told_to_end_keeps_what_it_has_and_tidies_up() {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = file.path().join("r.json");
    let words = ["-M", "1", "-N", "1", "--repeat", "1000", "--time", "100ms", "--size", "64MiB"];
    let mut command = sweep(target.path(), &words);
    command.arg("-o").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let sweep = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() || runs(&results(&file)).is_empty() {
        assert!(Instant::now() < deadline, "the first run never ended");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").arg(sweep.id().to_string()).status().unwrap().success());
    let output = sweep.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("This sweep is not complete"), "{output:?}");
    let found = results(&file);
    assert_eq!((found["complete"].as_bool(), &found["scratch"]), (Some(false), &Value::Null));
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

fn children(of: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[test]
fn a_process_that_dies_makes_a_hole_and_the_rest_is_kept() {
    let (target, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = file.path().join("r.json");
    let mut command = Command::new(PROGRAM);
    // The first cell is (1, 1), the second (1, 2): its processes are recognised by their number.
    command.args(["sweep", "--quiet", "--warm-up", "0", "--repeat", "1", "--time", "1500ms", "-M", "1", "-N", "1,2"]);
    command.args(["--pattern", "mdtest-hard", "--files", "200000", "--target"]).arg(target.path());
    command.arg("-o").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let sweep = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let victim = loop {
        let workers: Vec<u32> = children(sweep.id()).into_iter().flat_map(children).collect();
        if let [victim, _] = workers[..] {
            break victim;
        }
        assert!(Instant::now() < deadline, "the second cell never started");
        thread::sleep(Duration::from_millis(5));
    };
    let killed = Command::new("kill").args(["-KILL", &victim.to_string()]).status().unwrap();
    assert!(killed.success());
    let output = sweep.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains("missing: M=1 N=2: process 0 ended early"), "{said}");
    let found = results(&file);
    assert_eq!(found["complete"], false);
    assert!(runs(&found).iter().all(|(m, n, _)| (*m, *n) == (1, 1)) && !runs(&found).is_empty());
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}
