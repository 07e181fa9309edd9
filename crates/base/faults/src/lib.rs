//! Fault points: named places where a test kills the process.
//!
//! `FOREBAY_FAULT=name[:nth]` arms the nth passage (from 1) of one point. Reaching it appends the name to the file
//! `FOREBAY_FAULT_LOG`; then the process kills itself as `kill -9` would. Unarmed, a point costs one load. Each crate
//! lists its points.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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
