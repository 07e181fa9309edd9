//! The files that wait for their stage-out, ordered by when it is due, and those that wait for a background fetch.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Condvar, Mutex};

use crate::limits::ROUND;
use crate::residency::File;

type Key = (Duration, u64);

/// A queue of files. Each file is in it at most once.
#[derive(Default)]
pub(crate) struct FileQueue {
    state: Mutex<State>,
    changed: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    due: BTreeMap<Key, Arc<File>>,
    keys: HashMap<usize, Key>,
    next: u64,
    closed: bool,
}

fn address(file: &Arc<File>) -> usize {
    Arc::as_ptr(file) as usize
}

impl FileQueue {
    /// Adds a file, or makes a waiting one due earlier.
    pub(crate) fn push(&self, file: &Arc<File>, due: Duration) {
        let mut state = self.state.lock();
        if let Some(&key) = state.keys.get(&address(file)) {
            if key.0 <= due {
                return;
            }
            state.due.remove(&key);
        }
        let key = (due, state.next);
        state.next += 1;
        state.keys.insert(address(file), key);
        state.due.insert(key, Arc::clone(file));
        self.changed.notify_one();
    }

    pub(crate) fn remove(&self, file: &Arc<File>) {
        let mut state = self.state.lock();
        if let Some(key) = state.keys.remove(&address(file)) {
            state.due.remove(&key);
        }
    }

    /// Takes the earliest file that is due at `now` and that `fits`. A file that does not fit stays first.
    pub(crate) fn pop(&self, now: Duration, fits: &mut dyn FnMut(&Arc<File>) -> bool) -> Option<Arc<File>> {
        let mut state = self.state.lock();
        let (&key, file) = state.due.first_key_value()?;
        if key.0 > now || !fits(file) {
            return None;
        }
        let file = state.due.remove(&key)?;
        state.keys.remove(&address(&file));
        Some(file)
    }

    /// Waits until something may be due. Returns false once the queue is closed.
    pub(crate) fn wait(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let pause = state.due.first_key_value().map_or(ROUND, |(key, _)| key.0.saturating_sub(now).min(ROUND));
        if !pause.is_zero() {
            self.changed.wait_for(&mut state, pause);
        }
        !state.closed
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.ended.notify_all();
    }

    /// Waits for `pause`. Returns false once the queue is closed.
    pub(crate) fn rest(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        let end = concurrency::Instant::now() + pause;
        while !state.closed && !self.ended.wait_until(&mut state, end).timed_out() {}
        !state.closed
    }
}

#[derive(Default)]
pub(crate) struct FetchQueue {
    state: Mutex<(VecDeque<Arc<File>>, bool)>,
    changed: Condvar,
}

impl FetchQueue {
    pub(crate) fn push(&self, file: &Arc<File>) {
        self.state.lock().0.push_back(Arc::clone(file));
        self.changed.notify_one();
    }

    /// Waits for a file and returns it. Returns `None` once the queue is closed.
    pub(crate) fn pop(&self) -> Option<Arc<File>> {
        let mut state = self.state.lock();
        loop {
            if state.1 {
                return None;
            }
            if let Some(file) = state.0.pop_front() {
                return Some(file);
            }
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.state.lock().0.is_empty()
    }

    pub(crate) fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}
