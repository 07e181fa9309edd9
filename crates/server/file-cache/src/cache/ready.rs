//! Empty replicas that are made before the files are that get them, so that no creation waits for that.
//!
//! They have no records. A crash leaves them as replicas that the next start's sweep removes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use concurrency::{Condvar, Mutex};
use config::Atime;
use data_store::ReadyObserver;
use global_store::{descriptors, posix::reopen_as_path};
use types::Version;

use super::Inner;
use crate::limits::{READY_MAX, READY_MIN, READY_SHARE};

/// A replica without a file.
type Ready = (Version, OwnedFd);

/// The replicas that are ready, and the thread that waits for them to become few.
#[derive(Default)]
pub(crate) struct ReadyReplicas {
    state: Mutex<State>,
    more: Condvar,
    /// Called for each replica before it is ready.
    pub(crate) observer: OnceLock<ReadyObserver>,
}

#[derive(Default)]
struct State {
    ready: Vec<Ready>,
    /// Replicas that are to be ready. Grows while programs take them faster than they are made.
    wanted: usize,
    is_asked: bool,
    is_closed: bool,
}

impl ReadyReplicas {
    /// Returns a replica that no file has, open for reading and writing; `None` if none is ready.
    pub(crate) fn take(&self) -> Option<Ready> {
        let mut state = self.state.lock();
        let ready = state.ready.pop();
        if ready.is_none() {
            state.wanted = (2 * state.wanted).clamp(READY_MIN, READY_MAX);
        }
        if 2 * state.ready.len() < state.wanted && !state.is_asked {
            state.is_asked = true;
            self.more.notify_one();
        }
        ready
    }

    /// Waits until more are wanted. Returns false at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_asked && !state.is_closed {
            self.more.wait(&mut state);
        }
        state.is_asked = false;
        !state.is_closed
    }

    /// Returns whether another one is wanted.
    fn lacks_some(&self) -> bool {
        let state = self.state.lock();
        state.ready.len() < state.wanted && !state.is_closed
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.more.notify_all();
    }
}

impl Inner {
    /// Makes replicas ready until the end.
    pub(crate) fn make_ready(self: &Arc<Inner>) {
        while self.ready.wait() {
            // Who finds none makes one, and is told why that fails.
            while self.ready.lacks_some() && self.takes_ready() && self.make_one_ready().is_ok() {}
        }
    }

    /// Whether there is room, in the burst buffer and among the descriptors, for replicas that may never be used.
    fn takes_ready(&self) -> bool {
        let has_descriptors = descriptors::spare() / READY_SHARE >= READY_MAX as u64;
        has_descriptors && self.refusal().is_none() && !self.spaces.is_scarce(&self.settings.policy)
    }

    fn make_one_ready(&self) -> std::io::Result<()> {
        let version = self.superblock.next_version()?;
        let fd = self.replicas.create(version)?;
        if let (Some(tell), Ok(path)) = (self.ready.observer.get(), reopen_as_path(fd.as_fd())) {
            tell(version, Some(Atime::No), path.as_fd());
        }
        self.ready.state.lock().ready.push((version, fd));
        Ok(())
    }

    /// Removes the replicas that no file got.
    pub(crate) fn drop_ready(&self) {
        let ready = std::mem::take(&mut self.ready.state.lock().ready);
        for (version, _) in ready {
            // If this fails, the next start's sweep removes it.
            let _ = self.replicas.remove(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::{PATIENCE, wait_until};

    use super::*;
    use crate::world::World;

    #[test] // S14
    fn replicas_are_made_ready_as_fast_as_they_are_taken_and_none_is_left_at_the_end() {
        let world = World::new();
        let inner = Arc::clone(&world.cache.inner);
        let told: Arc<Mutex<Vec<Version>>> = Arc::default();
        let tell = Arc::clone(&told);
        _ = inner.ready.observer.set(Box::new(move |version, _, _| tell.lock().push(version)));
        let maker = std::thread::spawn({
            let inner = Arc::clone(&inner);
            move || inner.make_ready()
        });
        assert!(inner.ready.take().is_none(), "nothing is made before the first file");
        let count = || inner.ready.state.lock().ready.len();
        wait_until("the first ones", PATIENCE, || count() == READY_MIN);
        let (version, _fd) = inner.ready.take().unwrap();
        assert!(told.lock().contains(&version));
        // Whoever creates many finds them all taken now and then.
        for _ in 0..10 {
            while inner.ready.take().is_some() {}
        }
        wait_until("more of them", PATIENCE, || count() == READY_MAX);
        inner.ready.close();
        maker.join().unwrap();
        inner.drop_ready();
        let removed = told.lock().clone();
        assert!(removed.iter().rev().take(READY_MAX).all(|version| inner.replicas.stat(*version).is_err()));
        assert_eq!(count(), 0);
    }
}
