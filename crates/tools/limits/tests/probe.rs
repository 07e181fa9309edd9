//! The probe as a user runs it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay-limits");

fn probe(words: &[&str]) -> (bool, String) {
    let output = Command::new(PROGRAM).args(["probe", "--quiet", "--time", "10ms"]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

fn document(directory: &Path, write: &str) -> String {
    let directory = directory.display();
    format!(
        "[[clients]]\ncount = 1\nlink = {{ rate = \"1 MB/s\" }}\n[[io_nodes]]\ncount = 1\nlink = {{ rate = \"1 MB/s\" }}\n\
         [[media]]\nname = \"memory\"\ncount = 1\nread = \"1 TB/s\"\nwrite = \"{write}\"\ndir = \"{directory}\"\n"
    )
}

#[test]
fn every_component_is_measured_and_promises_are_checked() {
    let medium = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = tempfile::tempdir().unwrap();
    let (cluster, file) = (other.path().join("cluster.toml"), other.path().join("probe.json"));
    fs::write(&cluster, document(medium.path(), "900 TB/s")).unwrap();
    let words = [cluster.to_str().unwrap(), "--size", "16MiB", "-o", file.to_str().unwrap()];
    let (good, said) = probe(&words);
    assert!(good, "{said}");
    // If FUSE cannot be measured here, the report says so.
    assert!(said.contains("FUSE request, read 4 KiB") || said.contains("the cost of FUSE was not measured"), "{said}");
    assert!(
        said.contains("the cost of the preload library was not measured") || said.contains("preload library, read")
    );
    // Memory supports O_DIRECT since Linux 6.6, and a kernel may refuse io_uring.
    assert!(
        said.contains("32 at a time, io_uring") || said.contains("io_uring: ") || said.contains("knows no O_DIRECT")
    );
    for part in ["copy, 1 thread", "CRC-32C of 8 KiB", "round trip", "write 1 MiB", "fdatasync", "create empty files"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(said.contains("media.memory.write promises 900.0 TB/s, the hardware gives"), "{said}");
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let measurements = results["results"]["measurements"].as_array().unwrap();
    // The cost of the library is a difference, and may be less than the noise.
    let is_difference = |m: &Value| m["what"].as_str().unwrap().starts_with("preload library");
    let sound = |m: &Value| m["value"].as_f64().unwrap() > 0.0 || is_difference(m);
    assert!(measurements.iter().all(sound), "{measurements:?}");
    assert!(results["results"]["media"][0]["write_bytes_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(medium.path()).unwrap().count(), 0);

    // The measurements are limits for a sweep of that file system, and of no other.
    let sweep = |target: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["sweep", "--quiet", "-M", "1", "-N", "1", "--repeat", "1", "--warm-up", "0", "--time", "30ms"]);
        let output = command.arg("--probe").arg(&file).arg("--target").arg(target).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let said = sweep(medium.path());
    assert!(said.contains("eta = ") || said.contains("is above the limit of"), "{said}");
    let said = sweep(Path::new("/proc/self"));
    assert!(said.contains("measured no directory of /proc"), "{said}");
}

/// A device that cannot be read is missing, and the other measurements are kept.
#[test]
fn what_cannot_be_measured_is_missing_and_the_rest_is_kept() {
    let (medium, other) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap());
    let file = other.path().join("probe.json");
    let mut command = Command::new(PROGRAM);
    command.args([
        "probe",
        "--quiet",
        "--time",
        "10ms",
        "--size",
        "16MiB",
        "--device",
        "/nonexistent/device",
        "--media",
    ]);
    let output = command.arg(medium.path()).arg("-o").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains("missing: cannot read /nonexistent/device") && said.contains("write 1 MiB"), "{said}");
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(results["results"]["media"].as_array().unwrap().len(), 1);
}

#[test]
fn a_missing_directory_is_named_before_anything_is_measured() {
    let (good, said) = probe(&["--media", "/nonexistent/medium"]);
    assert!(!good && said.contains("/nonexistent/medium is no directory"), "{said}");
    let (good, said) = probe(&["--dry-run", "--media", "/tmp"]);
    assert!(good && said.contains("about "), "{said}");
}

/// Fake tools replace the real ones, which not every machine has.
#[test]
fn the_customary_tools_are_used_where_they_are_and_stand_in_for_a_peer() {
    let tools = tempfile::tempdir().unwrap();
    let tool = |name: &str, script: &str| {
        let path = tools.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The server of one and the first answer of the other come late, as real ones may.
    let log = tools.path().join("log");
    tool(
        "iperf3",
        &format!(
            "echo \"$*\" >> {}\ncase \"$*\" in -s*) exec sleep 60 ;; esac\n\
             echo '{{\"end\":{{\"sum_received\":{{\"bits_per_second\":8e9}}}}}}'",
            log.display()
        ),
    );
    let late = tools.path().join("late");
    tool(
        "fi_pingpong",
        &format!(
            "case \"$*\" in *127.0.0.1) ;; *) exec sleep 60 ;; esac\n\
             [ -e {0} ] || {{ touch {0}; echo refused; exit 1; }}\n\
             echo 'bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec'; echo '1 2k =2k 3.9k 0.07s 0.03 12.50 0.03'",
            late.display()
        ),
    );
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["probe", "--quiet", "--time", "10ms", "--peer", &nobody]).env("PATH", path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    for part in ["iperf3 to itself, 4 streams", "1.000 GB/s", "message of 1 byte, one way", "12.50 us"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(said.contains(&format!("{nobody}: iperf3 from it, 4 streams")), "{said}");
    let asked = fs::read_to_string(log).unwrap();
    let port = nobody.rsplit_once(':').unwrap().1;
    assert!(asked.contains(&format!("-J -c 127.0.0.1 -p {port} -P 4 -t 1 -R")), "{asked}");
}

fn found(file: &Path) -> Option<Value> {
    let text = fs::read(file).ok()?;
    Some(serde_json::from_slice::<Value>(&text).ok()?["results"].clone())
}

fn names(found: &Value) -> Vec<&str> {
    found["left"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

/// The probe is killed, then stopped by Ctrl-C, then run to its end. The first measurements must be in the final result
/// unchanged.
#[test]
fn a_probe_that_was_killed_or_stopped_goes_on_with_what_is_left() {
    let (medium, other) = (tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap());
    let file = other.path().join("probe.json");
    let command = |size: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["probe", "--quiet", "--time", "60ms", "--size", size, "--media"]);
        command.arg(medium.path()).arg("-o").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // Ends the probe by a signal as soon as a part is measured.
    let end_after = |part: &str, signal: Signal| {
        let mut running = command("16MiB").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while found(&file).is_none_or(|found| names(&found).contains(&part)) {
            assert!(Instant::now() < deadline, "{part} was never measured");
            thread::sleep(Duration::from_millis(2));
        }
        kill_process(Pid::from_child(&running), signal).unwrap();
        running.wait().unwrap().code()
    };
    assert_eq!(end_after("memory", Signal::KILL), None);
    let first = found(&file).unwrap();
    let left = names(&first);
    assert!(left.contains(&"network") && !left.contains(&"memory"), "{left:?}");
    assert_eq!(end_after("checksums", Signal::INT), Some(75));
    let second = found(&file).unwrap();
    assert!(names(&second).iter().any(|name| name.starts_with("medium ")), "{second}");
    // State left by a run that is killed while it measures a medium.
    let mut whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let scratch = medium.path().join(".forebay-limits.1.0");
    fs::create_dir(&scratch).unwrap();
    whole["results"]["scratch"] = scratch.to_str().unwrap().into();
    fs::write(&file, whole.to_string()).unwrap();
    assert_eq!(command("32MiB").status().unwrap().code(), Some(66), "other options are another probe");
    assert_eq!(command("16MiB").status().unwrap().code(), Some(0));
    let last = found(&file).unwrap();
    assert!(names(&last).is_empty() && last["media"].as_array().unwrap().len() == 1, "{last}");
    let (before, after) = (first["measurements"].as_array().unwrap(), last["measurements"].as_array().unwrap());
    assert!(!before.is_empty() && after.starts_with(before), "{before:?} {after:?}");
    assert_eq!(fs::read_dir(medium.path()).unwrap().count(), 0);
    // A finished probe is shown, and reported as finished.
    let text = fs::read(&file).unwrap();
    let output = Command::new(PROGRAM)
        .args(["probe", "--time", "60ms", "--size", "16MiB", "--media"])
        .arg(medium.path())
        .arg("-o")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("is finished: nothing is run"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("copy, 1 thread"));
    let results = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()["results"].clone();
    assert_eq!(results(&fs::read(&file).unwrap()), results(&text));
}
