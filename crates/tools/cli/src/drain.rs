//! Draining a cache that this process owns, with progress, until the second request to end.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent::control::Stall;
use data_store::{DataStore, DrainProgress, Keep, Residency, Stuck};
use file_cache::limits::GIVEN_UP_WAIT;
use types::Shown;

use crate::aside::aside;
use crate::count::files;
use crate::exit::say;
use crate::limits::{LISTED_MAX, POLL};
use crate::progress::{Progress, State};
use crate::shell;
use crate::signals::{Signal, Signals};

/// Requests to end that arrive while only draining is left to do. The first is answered that data is still to be
/// drained; the second ends the wait.
pub struct Requests<'a> {
    signals: &'a Signals,
    count: Cell<u32>,
    told: Cell<bool>,
    patience: Option<Duration>,
}

impl<'a> Requests<'a> {
    /// Returns a state without requests so far.
    pub fn none(signals: &'a Signals) -> Requests<'a> {
        Requests { signals, count: Cell::new(0), told: Cell::new(false), patience: None }
    }

    /// Returns a state after a first request. `told`: whether it was answered.
    pub fn one(signals: &'a Signals, told: bool) -> Requests<'a> {
        Requests { signals, count: Cell::new(1), told: Cell::new(told), patience: None }
    }

    /// Returns a state in which enough requests have arrived.
    pub fn over(signals: &'a Signals) -> Requests<'a> {
        Requests { signals, count: Cell::new(2), told: Cell::new(true), patience: None }
    }

    /// Adds a limit: a drain that makes no progress for `patience` is ended too.
    pub fn with_patience(self, patience: Duration) -> Requests<'a> {
        Requests { patience: Some(patience), ..self }
    }

    /// Checks for new requests. Returns true from the second on.
    pub fn give_up(&self) -> bool {
        if self.signals.next(Duration::ZERO).is_some_and(Signal::asks_to_end) {
            self.count.set(self.count.get() + 1);
        }
        if self.count.get() == 1 && !self.told.replace(true) {
            say!("forebay: data is still on its way to the global store; once more leaves it in the burst buffer");
        }
        self.count.get() > 1
    }

    /// Runs `work`, which may wait for a global store, in a thread of its own. When enough requests have arrived,
    /// `work` is told, and has a moment to end. Returns `None` if it did not end: this process should then end as if
    /// killed.
    pub fn unless<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<AtomicBool>) -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let asked = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&asked);
        let mut given_up: Option<Instant> = None;
        let mut leave = || {
            if given_up.is_none() && self.give_up() {
                given_up = Some(Instant::now());
                asked.store(true, Ordering::Release);
            }
            given_up.is_some_and(|then| then.elapsed() >= GIVEN_UP_WAIT)
        };
        aside("end", POLL, move || work(theirs), &mut leave)
    }
}

/// Releases a burst buffer; dirty data stays in it. Afterwards this process should end. `left`: whether abandoned
/// work still uses it.
pub fn let_go(cache: &dyn DataStore, burst_buffer: &Path, left: bool) {
    if left || !cache.shutdown() {
        say!(
            "forebay: calls to the global store have not come back; process {} is gone when the system lets go of them, and keeps {} \
             until then",
            std::process::id(),
            burst_buffer.shown()
        );
    }
}

/// Stages out everything dirty, until there are enough `requests` to end. Returns the files that did not reach the
/// global store, and the duration.
pub fn drain(cache: &Arc<dyn DataStore>, requests: &Requests<'_>, quiet: bool) -> (Vec<Stuck>, Duration) {
    let stall = Stall::new(requests.patience);
    with_progress(quiet, |show| {
        let mut watched = |now| {
            stall.saw(now);
            show(now);
        };
        cache.drain(None, &mut watched, &|| requests.give_up() || stall.is_over())
    })
}

/// Shows the progress of a drain. Returns the result of the drain and its duration.
pub fn with_progress(
    quiet: bool,
    drain: impl FnOnce(&mut dyn FnMut(DrainProgress)) -> Vec<Stuck>,
) -> (Vec<Stuck>, Duration) {
    let mut progress = Progress::new("draining", quiet);
    let stuck = drain(&mut |DrainProgress { files_done, files_left, bytes_left, .. }| {
        progress.update(State { files_done, files_left, bytes_left });
    });
    (stuck, progress.finish().1)
}

/// Returns the advice how to stage out the contents of a burst buffer.
pub fn advice(burst_buffer: &Path) -> String {
    format!("to stage out what is dirty: forebay recover {}", shell::word(burst_buffer))
}

/// Shortens a reason to its message without errno, and explains the commonest one.
pub fn plain(reason: &str) -> &str {
    match reason.split(" (os error").next().unwrap_or_default() {
        "Device or resource busy" => "a process still has it open for writing, or mapped",
        "Interrupted system call" => "it was not waited for",
        other => other,
    }
}

/// Returns whether a file's data exists where it is said to be. A path that is not absolute is a server's; the server
/// reports it if it was lost.
fn is_there(replica: &Path) -> bool {
    let is_tree = || replica.is_dir() && replica.parent().is_some_and(|all| all.ends_with(crate::delegated::TREES));
    !is_none(replica) && (replica.is_relative() || replica.is_file() || is_tree())
}

/// Whether something has no data that could be kept: it was removed.
pub fn is_none(replica: &Path) -> bool {
    replica.as_os_str().is_empty()
}

/// Prints where a file's data is, or that it is missing.
pub fn tell_data(replica: &Path) {
    if is_none(replica) {
        // What waits is a removal.
    } else if is_there(replica) {
        say!("    data: {}", replica.shown());
    } else {
        say!(
            "    its data is gone from {}: put it back from a copy, or give it up with --keep global",
            replica.shown()
        );
    }
}

/// Returns the arguments of `forebay resolve` for a file, with the choices that are possible.
pub fn resolve_words(file: &Path, orphaned: bool, there: bool, burst_buffer: Option<&Path>) -> String {
    let keep = Keep::choices(orphaned, there);
    let buffer = burst_buffer.map_or(String::new(), |buffer| format!(" --burst-buffer {}", shell::word(buffer)));
    format!("{} --keep {keep}{buffer}", shell::word(file))
}

/// File that did not reach the global store.
pub struct Left<'a> {
    /// Path of the file below the directory.
    pub path: &'a Path,
    pub state: &'a str,
    pub reason: &'a str,
    /// Path of the file's data, and whether this process can check that it exists.
    pub data: Option<(&'a Path, bool)>,
    /// Arguments of `forebay resolve`, if somebody must decide.
    pub resolve: Option<String>,
}

/// Lists such files: path, state, reason, where the data is, and what to do.
pub fn list_left<'a>(dir: &Path, count: usize, left: impl Iterator<Item = Left<'a>>) {
    let are = if count == 1 { "is not in the global store; its" } else { "are not in the global store; their" };
    say!("forebay: {} of {} {are} data is kept:", files(count as u64), dir.shown());
    for one in left.take(LISTED_MAX) {
        say!("  {}: {}: {}", dir.join(one.path).shown(), one.state, plain(one.reason));
        match one.data {
            Some((replica, true)) => tell_data(replica),
            Some((replica, false)) => say!("    data: {}", replica.shown()),
            None => {}
        }
        if let Some(words) = one.resolve {
            say!("    to decide: forebay resolve {words}");
        }
    }
    if count > LISTED_MAX {
        say!("  and {} more", count - LISTED_MAX);
    }
}

/// Lists files that a server has not staged out.
pub fn list_at_server(stuck: &[Stuck], dir: &Path, address: &str) {
    let left = stuck.iter().map(|one| Left {
        path: &one.path_hint,
        state: one.state_name(),
        reason: &one.reason,
        data: None,
        resolve: None,
    });
    list_left(dir, stuck.len(), left);
    say!("  the server at {address} has them and goes on by itself; there: forebay status");
}

/// Lists files that did not reach the global store.
pub fn list(stuck: &[Stuck], dir: &Path, burst_buffer: &Path) {
    let left = stuck.iter().map(|one| {
        let decide = one.orphaned || matches!(one.state, Residency::Conflict | Residency::Failed);
        let file = || if one.orphaned { one.identity.to_string().into() } else { dir.join(&one.path_hint) };
        let words = || resolve_words(&file(), one.orphaned, is_there(&one.replica), Some(burst_buffer));
        Left {
            path: &one.path_hint,
            state: one.state_name(),
            reason: &one.reason,
            data: Some((&one.replica, true)),
            resolve: decide.then(words),
        }
    });
    list_left(dir, stuck.len(), left);
    say!("  {}", advice(burst_buffer));
}

/// Returns whether the wait for a drain was ended by a second request.
pub fn was_interrupted(stuck: &[Stuck]) -> bool {
    stuck.iter().any(|one| one.errno == libc::EINTR)
}
