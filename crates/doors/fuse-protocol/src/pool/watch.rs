//! The thread that looks after the others while requests come, and who looks after it.

use std::sync::atomic::Ordering;

use super::{State, ThreadPool};
use crate::shift::Tick;
use crate::{follow, limits};

impl ThreadPool {
    /// Takes nothing but the lock, and waits for nothing but the time: what it looks after cannot hold it up.
    pub(super) fn keep_watch(&self) {
        let myself = rustix::thread::gettid().as_raw_nonzero().get();
        self.watcher.store(myself, Ordering::Relaxed);
        loop {
            // Who holds the lock may be modest, and kept from its processor.
            let Some(mut state) = self.state.try_lock_for(limits::TICK) else {
                self.raise(None);
                continue;
            };
            if state.ended.is_some() {
                return state.shift.unwatch();
            }
            state.looks += 1;
            let waits = self.server.channel.transport.has_waiting();
            if state.shift.is_held_up(waits) {
                self.raise(None);
            } else if state.shift.is_late() {
                // It may wait for its processor. It stays there, where its caller is.
                self.following.lock().iter().for_each(|thread| follow::raise(*thread, None));
            }
            match state.shift.tick(waits) {
                Tick::Go => {}
                Tick::WakeSpare => _ = self.spare.notify_one(),
                Tick::Sleep => {
                    self.raise(Some(myself));
                    while state.shift.watch_sleeps() && state.ended.is_none() {
                        self.watch.wait(&mut state);
                    }
                    // Who stands by looks after us while we are awake.
                    self.spare.notify_all();
                }
            }
            drop(state);
            std::thread::park_timeout(limits::TICK);
        }
    }

    /// Readers that may be modest run as all others do, whatever they wait for; and the watch, if it is named.
    fn raise(&self, watch: Option<i32>) {
        for thread in self.following.lock().iter().copied().chain(watch) {
            follow::raise(thread, self.processors.as_deref());
        }
    }

    /// One that stands by has waited: whether the watch did nothing meanwhile though it should have.
    pub(super) fn look_after_watch(&self, state: &State, looks: u64) {
        if state.looks == looks && !state.shift.watch_sleeps() {
            self.raise(Some(self.watcher.load(Ordering::Relaxed)));
        }
    }
}
