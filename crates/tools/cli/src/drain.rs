//! Draining a cache that this process owns, with progress, interruptible on the second request.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use file_cache::{DrainProgress, FileCache, Residency, Stuck};

use crate::exit::say;
use crate::limits::LISTED_MAX;
use crate::progress::{Progress, State};
use crate::signals::Signals;

/// Stages out everything dirty. The first request to end is told that data is still to be drained, the second ends the
/// wait; `asked`: the first has been already. Returns what did not reach the global store, and how long it took.
pub fn drain(cache: &FileCache, signals: &Signals, quiet: bool, asked: bool) -> (Vec<Stuck>, Duration) {
    let mut progress = Progress::new("draining", quiet);
    let asked = Cell::new(u32::from(asked));
    let interrupted = || {
        if signals.next(Duration::ZERO).is_some_and(|signal| signal.asks_to_end()) {
            asked.set(asked.get() + 1);
            if asked.get() == 1 {
                say!("forebay: data is still on its way to the global store; once more leaves it in the burst buffer");
            }
        }
        asked.get() > 1
    };
    let mut show = |now: DrainProgress| progress.update(state(now));
    let stuck = cache.drain_all(&mut show, &interrupted);
    (stuck, progress.finish().1)
}

fn state(now: DrainProgress) -> State {
    State { files_done: now.files_done, files_left: now.files_left, bytes_left: now.bytes_left }
}

/// The word for a residency.
pub fn word(state: Residency) -> &'static str {
    match state {
        Residency::Absent => "absent",
        Residency::Fetching => "fetching",
        Residency::Clean => "clean",
        Residency::Dirty => "dirty",
        Residency::Queued => "queued",
        Residency::Draining => "draining",
        Residency::Conflict => "conflict",
        Residency::Failed => "failed",
    }
}

/// How to try again to stage out what a burst buffer holds.
pub fn advice(burst_buffer: &Path) -> String {
    format!("to stage out what is dirty: forebay recover {}", burst_buffer.display())
}

/// A reason without errno; the one that everybody meets says what it means.
pub fn plain(reason: &str) -> &str {
    match reason.split(" (os error").next().unwrap_or_default() {
        "Device or resource busy" => "a process still has it open for writing, or mapped",
        other => other,
    }
}

/// Lists what did not reach the global store: path, state, reason, where the data is, what to do.
pub fn list(stuck: &[Stuck], dir: &Path, burst_buffer: &Path) {
    say!("forebay: {} files of {} are not in the global store; their data is kept:", stuck.len(), dir.display());
    for one in stuck.iter().take(LISTED_MAX) {
        let (path, state) = (dir.join(&one.path_hint), if one.orphaned { "orphaned" } else { word(one.state) });
        say!("  {}: {state}: {}", path.display(), plain(&one.reason));
        say!("    data: {}", one.replica.display());
        let file = if one.orphaned { PathBuf::from(one.identity.to_string()) } else { path };
        if one.orphaned || matches!(one.state, Residency::Conflict | Residency::Failed) {
            let (file, buffer) = (file.display(), burst_buffer.display());
            say!("    to decide: forebay resolve {file} --keep burst-buffer|global|both --burst-buffer {buffer}");
        }
    }
    if stuck.len() > LISTED_MAX {
        say!("  and {} more", stuck.len() - LISTED_MAX);
    }
    say!("  {}", advice(burst_buffer));
}

/// True if the wait for a drain was ended by a second request.
pub fn was_interrupted(stuck: &[Stuck]) -> bool {
    stuck.iter().any(|one| one.errno == libc::EINTR)
}
