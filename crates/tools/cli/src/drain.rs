//! Draining a cache that this process owns, with progress, until the second request to end.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent::BurstBuffer;
use agent::control::Stall;
use file_cache::limits::GIVEN_UP_WAIT;
use file_cache::{DrainProgress, Keep, Residency, Stuck};
use types::Shown;

use crate::aside::aside;
use crate::count::files;
use crate::exit::say;
use crate::limits::{LISTED_MAX, POLL};
use crate::progress::{Progress, State};
use crate::shell;
use crate::signals::{Signal, Signals};

/// Requests to end that come while nothing is left to do but to drain: the first is told that data is still to be
/// drained, the second ends the wait.
pub struct Requests<'a> {
    signals: &'a Signals,
    count: Cell<u32>,
    told: Cell<bool>,
    patience: Option<Duration>,
}

impl<'a> Requests<'a> {
    /// None yet.
    pub fn none(signals: &'a Signals) -> Requests<'a> {
        Requests { signals, count: Cell::new(0), told: Cell::new(false), patience: None }
    }

    /// The first came before; `told`: and was answered.
    pub fn one(signals: &'a Signals, told: bool) -> Requests<'a> {
        Requests { signals, count: Cell::new(1), told: Cell::new(told), patience: None }
    }

    /// There were enough before.
    pub fn over(signals: &'a Signals) -> Requests<'a> {
        Requests { signals, count: Cell::new(2), told: Cell::new(true), patience: None }
    }

    /// The same, and a drain that has come no further for so long is ended too.
    pub fn with_patience(self, patience: Duration) -> Requests<'a> {
        Requests { patience: Some(patience), ..self }
    }

    /// Looks for new ones. True from the second on.
    pub fn give_up(&self) -> bool {
        if self.signals.next(Duration::ZERO).is_some_and(Signal::asks_to_end) {
            self.count.set(self.count.get() + 1);
        }
        if self.count.get() == 1 && !self.told.replace(true) {
            say!("forebay: data is still on its way to the global store; once more leaves it in the burst buffer");
        }
        self.count.get() > 1
    }

    /// Does `work`, which may wait for a global store, in a thread of its own. Too many requests are told to it, and it has a moment
    /// then. `None`: it did not end, and is left: this process should end as if it were killed.
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

/// Lets a burst buffer go; what is dirty stays in it. Then this process should end. `left`: something that works on it was left.
pub fn let_go(cache: &dyn BurstBuffer, burst_buffer: &Path, left: bool) {
    if left || !cache.shutdown() {
        say!(
            "forebay: calls to the global store have not come back; process {} is gone when the system lets go of them, and keeps {} \
             until then",
            std::process::id(),
            burst_buffer.shown()
        );
    }
}

/// Stages out everything dirty, until there are too many `requests` to end. Returns what did not reach the global
/// store, and how long it took.
pub fn drain(cache: &Arc<dyn BurstBuffer>, requests: &Requests<'_>, quiet: bool) -> (Vec<Stuck>, Duration) {
    let stall = Stall::new(requests.patience);
    with_progress(quiet, |show| {
        let mut watched = |now| {
            stall.saw(now);
            show(now);
        };
        cache.drain_all(&mut watched, &|| requests.give_up() || stall.is_over())
    })
}

/// Shows how far a drain is; what it returns, and how long it took.
pub fn with_progress(
    quiet: bool,
    drain: impl FnOnce(&mut dyn FnMut(DrainProgress)) -> Vec<Stuck>,
) -> (Vec<Stuck>, Duration) {
    let mut progress = Progress::new("draining", quiet);
    let stuck = drain(&mut |now| progress.update(state(now)));
    (stuck, progress.finish().1)
}

fn state(now: DrainProgress) -> State {
    State { files_done: now.files_done, files_left: now.files_left, bytes_left: now.bytes_left }
}

/// How to try again to stage out what a burst buffer holds.
pub fn advice(burst_buffer: &Path) -> String {
    format!("to stage out what is dirty: forebay recover {}", shell::word(burst_buffer))
}

/// A reason without errno; the one that everybody meets says what it means.
pub fn plain(reason: &str) -> &str {
    match reason.split(" (os error").next().unwrap_or_default() {
        "Device or resource busy" => "a process still has it open for writing, or mapped",
        "Interrupted system call" => "it was not waited for",
        other => other,
    }
}

/// Whether the data of a file is where it is said to be. What is no absolute path is a server's, which tells if it has lost it.
fn is_there(replica: &Path) -> bool {
    replica.is_relative() || replica.is_file()
}

/// Says where the data of a file is, or that it is not there.
pub fn tell_data(replica: &Path) {
    if is_there(replica) {
        say!("    data: {}", replica.shown());
    } else {
        say!(
            "    its data is gone from {}: put it back from a copy, or give it up with --keep global",
            replica.shown()
        );
    }
}

/// What `forebay resolve` is told of a file, with what it can do.
pub fn resolve_words(file: &Path, orphaned: bool, there: bool, burst_buffer: Option<&Path>) -> String {
    let keep = Keep::choices(orphaned, there);
    let buffer = burst_buffer.map_or(String::new(), |buffer| format!(" --burst-buffer {}", shell::word(buffer)));
    format!("{} --keep {keep}{buffer}", shell::word(file))
}

/// One file that did not reach the global store.
pub struct Left<'a> {
    /// Its path below the directory.
    pub path: &'a Path,
    /// Where it stands.
    pub state: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Its data, and whether this process may look whether it is there.
    pub data: Option<(&'a Path, bool)>,
    /// What `forebay resolve` is to be told if somebody must decide.
    pub resolve: Option<String>,
}

/// Lists such files: path, state, reason, where the data is, what to do.
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

/// Lists what a server has not brought to the global store.
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

/// Lists what did not reach the global store.
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

/// True if the wait for a drain was ended by a second request.
pub fn was_interrupted(stuck: &[Stuck]) -> bool {
    stuck.iter().any(|one| one.errno == libc::EINTR)
}
