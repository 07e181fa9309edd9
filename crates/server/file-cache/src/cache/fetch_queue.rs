//! The files that wait for a background fetch.

use std::collections::VecDeque;
use std::sync::Arc;

use concurrency::{Condvar, Mutex};

use crate::residency::File;

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
