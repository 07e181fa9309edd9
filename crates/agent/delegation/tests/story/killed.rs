//! An agent that is killed at a fault point.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the test `child` of this program with one point armed. Returns false if it passed the point fewer than `nth` times.
pub fn run_child(dir: &Path, seed: u64, point: &str, nth: u32) -> bool {
    let hits = dir.join("hits");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("FOREBAY_CRASH_DIR", dir)
        .env("FOREBAY_CRASH_SEED", seed.to_string())
        .env("FOREBAY_FAULT", format!("{point}:{nth}"))
        .env("FOREBAY_FAULT_LOG", &hits)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let hit = std::fs::read_to_string(&hits).is_ok_and(|text| text.trim() == point);
    if hit {
        assert_eq!(output.status.signal(), Some(9), "{point}:{nth}");
    } else {
        assert!(output.status.success(), "{point}:{nth}: {}", String::from_utf8_lossy(&output.stderr));
    }
    hit
}
