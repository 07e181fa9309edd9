//! Draining a cache that this process owns, with progress, until the second request to end.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use file_cache::{DrainProgress, FileCache, Residency, Stuck};

use crate::exit::say;
use crate::limits::LISTED_MAX;
use crate::progress::{Progress, State};
use crate::signals::{Signal, Signals};

/// Requests to end that come while nothing is left to do but to drain: the first is told that data is still to be
/// drained, the second ends the wait.
pub struct Requests<'a> {
    signals: &'a Signals,
    count: Cell<u32>,
    told: Cell<bool>,
}

impl<'a> Requests<'a> {
    /// None yet.
    pub fn none(signals: &'a Signals) -> Requests<'a> {
        Requests { signals, count: Cell::new(0), told: Cell::new(false) }
    }

    /// The first came before; `told`: and was answered.
    pub fn one(signals: &'a Signals, told: bool) -> Requests<'a> {
        Requests { signals, count: Cell::new(1), told: Cell::new(told) }
    }

    /// Looks for new ones. True from the second on.
    fn give_up(&self) -> bool {
        if self.signals.next(Duration::ZERO).is_some_and(Signal::asks_to_end) {
            self.count.set(self.count.get() + 1);
        }
        if self.count.get() == 1 && !self.told.replace(true) {
            say!("forebay: data is still on its way to the global store; once more leaves it in the burst buffer");
        }
        self.count.get() > 1
    }
}

/// Stages out everything dirty, until there are too many `requests` to end. Returns what did not reach the global
/// store, and how long it took.
pub fn drain(cache: &FileCache, requests: &Requests<'_>, quiet: bool) -> (Vec<Stuck>, Duration) {
    let mut progress = Progress::new("draining", quiet);
    let mut show = |now: DrainProgress| progress.update(state(now));
    let stuck = cache.drain_all(&mut show, &|| requests.give_up());
    (stuck, progress.finish().1)
}

fn state(now: DrainProgress) -> State {
    State { files_done: now.files_done, files_left: now.files_left, bytes_left: now.bytes_left }
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

/// Says where the data of a file is, or that it is not there.
pub fn tell_data(replica: &Path) {
    if replica.is_file() {
        say!("    data: {}", replica.display());
    } else {
        say!(
            "    its data is gone from {}: put it back from a copy, or give it up with --keep global",
            replica.display()
        );
    }
}

/// Lists what did not reach the global store: path, state, reason, where the data is, what to do.
pub fn list(stuck: &[Stuck], dir: &Path, burst_buffer: &Path) {
    say!("forebay: {} files of {} are not in the global store; their data is kept:", stuck.len(), dir.display());
    for one in stuck.iter().take(LISTED_MAX) {
        let (path, state) = (dir.join(&one.path_hint), if one.orphaned { "orphaned" } else { one.state.name() });
        say!("  {}: {state}: {}", path.display(), plain(&one.reason));
        tell_data(&one.replica);
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
