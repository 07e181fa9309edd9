//! The background fetchers and the files that wait for them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::cache::Inner;
use crate::file::{Body, File};

/// Files that wait for a background fetch.
#[derive(Default)]
pub(crate) struct Fetches {
    state: Mutex<(VecDeque<Arc<File>>, bool)>,
    changed: Condvar,
}

impl Fetches {
    pub(crate) fn push(&self, file: &Arc<File>) {
        self.state.lock().0.push_back(Arc::clone(file));
        self.changed.notify_one();
    }

    /// Waits for a file. `None`: closed.
    fn pop(&self) -> Option<Arc<File>> {
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

    pub(crate) fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

impl Inner {
    /// The body of a background fetcher.
    pub(crate) fn fetch_in_background(self: &Arc<Inner>) {
        while let Some(file) = self.fetches.pop() {
            loop {
                let block = {
                    let live = file.live.lock();
                    match &live.body {
                        Body::Partial(fetch) if !self.is_dead() => fetch.next_block(),
                        _ => None,
                    }
                };
                let Some(block) = block else { break };
                if let Err(error) = self.fetch_block(&file, block) {
                    tracing::warn!(%error, file = %file.identity, "a stage-in failed; readers will try again");
                    self.stop_fetch(&file);
                    break;
                }
            }
        }
    }

    fn stop_fetch(&self, file: &Arc<File>) {
        let _gate = file.gate.lock();
        let mut live = file.live.lock();
        let unused = live.handles == 0;
        if let Body::Partial(fetch) = &mut live.body {
            fetch.started = false;
        }
        drop(live);
        if unused {
            self.abandon_fetch(file);
        }
    }
}
