//! The threads of a cache. The wait for their end is bounded.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};

/// Threads that end when they are told to, unless a call into a store holds them.
#[derive(Default)]
pub(crate) struct Threads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    living: usize,
    /// Whether the living threads are being waited for, so that none may start.
    closed: bool,
}

/// Guard of a living thread, however it ends.
struct Living(Arc<Shared>);

impl Drop for Living {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a background thread panicked");
        }
        self.0.state.lock().living -= 1;
        self.0.ended.notify_all();
    }
}

impl Threads {
    /// Starts a thread. Errors: `EINTR` once the threads are being waited for.
    pub(crate) fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        {
            let mut state = self.0.state.lock();
            if state.closed {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            state.living += 1;
        }
        let living = Living(Arc::clone(&self.0));
        let run = move || {
            let _living = living;
            work();
        };
        concurrency::spawn(name, run)
    }

    /// Waits until all threads have ended, at most `longest`. Returns how many have not. No thread starts from now on.
    pub(crate) fn join(&self, longest: Duration) -> usize {
        let until = Instant::now() + longest;
        let mut state = self.0.state.lock();
        state.closed = true;
        while state.living > 0 && !self.0.ended.wait_until(&mut state, until).timed_out() {}
        state.living
    }
}

#[cfg(test)]
mod tests {
    use models::DataStoreExt;
    use types::HasErrno;

    use super::*;
    use crate::world::World;

    #[test] // S22
    fn nothing_starts_once_the_end_has_counted_who_lives() {
        let threads = Threads::default();
        threads.start("one", || {}).unwrap();
        assert_eq!(threads.join(Duration::from_secs(60)), 0);
        assert_eq!(threads.start("late", || {}).unwrap_err().errno(), Some(libc::EINTR));
        let world = World::new();
        world.store.put("f", b"old");
        world.write(b"new");
        world.cache.shutdown();
        assert_eq!(world.drain(), 1, "the burst buffer may be another's");
        assert_eq!(world.store.read("f").unwrap(), b"old");
    }
}
