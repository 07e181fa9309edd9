//! Thread that watches the others while requests come, and its supervision by a spare.

use std::sync::atomic::Ordering;

use super::{State, ThreadPool};
use crate::shift::Tick;
use crate::{follow, limits};

impl ThreadPool {
    /// Runs the watch. Takes only the lock, and waits only for time, so that no watched thread can hold it up.
    pub(super) fn keep_watch(&self) {
        let myself = rustix::thread::gettid().as_raw_nonzero().get();
        self.watcher.store(myself, Ordering::Relaxed);
        loop {
            // The holder of the lock may be modest and may not get its processor.
            let Some(mut state) = self.state.try_lock_for(limits::TICK) else {
                self.raise(None);
                continue;
            };
            if state.ended.is_some() {
                return state.shift.unwatch();
            }
            state.looks += 1;
            let (waits, late) = (self.server.channel.transport.has_waiting(), state.shift.late());
            let ready = waits && late.is_some_and(follow::is_ready);
            if state.shift.is_held_up(waits) {
                self.raise(None);
            } else if late.is_some() {
                // The reader may be waiting for its processor. It stays there as yet, where its caller is.
                self.following.lock().iter().for_each(|thread| follow::raise(*thread, None));
            }
            match state.shift.tick(waits, ready) {
                Tick::Go => {}
                Tick::WakeSpare => _ = self.spare.notify_one(),
                Tick::Sleep => {
                    self.raise(Some(myself));
                    while state.shift.watch_sleeps() && state.ended.is_none() {
                        self.watch.wait(&mut state);
                    }
                    // A spare supervises the watch while the watch is awake.
                    self.spare.notify_all();
                }
            }
            drop(state);
            concurrency::park_timeout(limits::TICK);
        }
    }

    /// Raises all readers that may be modest, and the watch if given, so that they run like all other threads.
    fn raise(&self, watch: Option<i32>) {
        for thread in self.following.lock().iter().copied().chain(watch) {
            follow::raise(thread, self.processors.as_deref());
        }
    }

    /// Raises the watch if it did nothing while a spare waited, although it should have.
    pub(super) fn look_after_watch(&self, state: &State, looks: u64) {
        if state.looks == looks && !state.shift.watch_sleeps() {
            self.raise(Some(self.watcher.load(Ordering::Relaxed)));
        }
    }
}
