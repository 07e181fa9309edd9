//! Named places where a test kills the process: one after every step that a crash can separate from the next.
//!
//! `FOREBAY_FAULT=name[:nth]` arms the nth passage (from 1) of one point; reaching it appends the name to the file
//! `FOREBAY_FAULT_LOG`, then the process kills itself as `kill -9` would. Unarmed, a point costs one load.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every point that the default policies pass, in the order of the steps.
pub const POINTS: &[&str] = &[
    "w0.replica",
    "w0.intent",
    "w0.truncated",
    "w2.synced",
    "w3.draining",
    "w4.cut",
    "w4.range",
    "w4.written",
    "w5.sized",
    "w5.mtime",
    "w6.synced",
    "w6.unmarked",
    "w7.verified",
    "w7.sums",
    "w7.committed",
    "w8.dropped",
    "p0.replica",
    "p1.range",
    "p3.checked",
    "p3.sums",
    "p4.clean",
    "evict.record",
    "evict.replica",
    "unlink.intent",
    "unlink.below",
    "unlink.kept",
    "unlink.synced",
    "unlink.record",
    "unlink.replica",
];

/// Points of a stage-out into a hidden file (`publish.rs`), which only a policy requests.
pub const PUBLICATION: &[&str] = &["a1.begun", "a2.recorded", "a3.written", "a4.synced", "a5.placed", "a6.synced"];

struct Armed {
    name: String,
    left: AtomicU64,
    log: Option<std::ffi::OsString>,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

fn armed() -> Option<Armed> {
    let wish = std::env::var("FOREBAY_FAULT").ok()?;
    let (name, nth) = wish.split_once(':').unwrap_or((&wish, "1"));
    let left = AtomicU64::new(nth.parse().unwrap_or(1));
    Some(Armed { name: name.to_owned(), left, log: std::env::var_os("FOREBAY_FAULT_LOG") })
}

/// Passes a point.
pub fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name) || PUBLICATION.contains(&name), "{name} is not listed");
    pass(name);
}

/// Passes a point of another crate, which lists it there.
pub fn pass(name: &'static str) {
    let Some(armed) = ARMED.get_or_init(armed) else { return };
    if armed.name != name || armed.left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    if let Some(log) = &armed.log
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(log)
    {
        let _ = writeln!(file, "{name}");
    }
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
