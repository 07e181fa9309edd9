//! The probe as a user runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

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
    // Where this may not be, the report says so.
    assert!(said.contains("FUSE request, read 4 KiB") || said.contains("the cost of FUSE was not measured"), "{said}");
    for part in ["copy, 1 thread", "CRC-32C of 8 KiB", "round trip", "write 1 MiB", "fdatasync", "create empty files"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(said.contains("media.memory.write promises 900.0 TB/s, the hardware gives"), "{said}");
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let measurements = results["results"]["measurements"].as_array().unwrap();
    assert!(measurements.iter().all(|m| m["value"].as_f64().unwrap() > 0.0), "{measurements:?}");
    assert!(results["results"]["media"][0]["write_bytes_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(medium.path()).unwrap().count(), 0);

    // What was measured is a limit for a sweep of the same file system, and of no other.
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

#[test]
fn a_missing_directory_is_named_before_anything_is_measured() {
    let (good, said) = probe(&["--media", "/nonexistent/medium"]);
    assert!(!good && said.contains("/nonexistent/medium is no directory"), "{said}");
    let (good, said) = probe(&["--dry-run", "--media", "/tmp"]);
    assert!(good && said.contains("about "), "{said}");
}
