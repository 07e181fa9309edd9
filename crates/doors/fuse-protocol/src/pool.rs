//! The threads of a session. Each reads a request into its own buffer and runs it itself.
//!
//! P1. While the session lives, some thread is reading or about to, whatever the handlers of the others wait for: when
//!     the last reader takes a request, a spare thread is woken or a new one started.
//! P2. At the bound of threads the last reader keeps reading. It runs interrupts and forgets itself and leaves the rest
//!     to the first handler that ends, in order. Only when [`limits::WAITING_REQUESTS_MAX`] wait does it run one.
//! P3. A request that waits so and is interrupted is answered `EINTR` at once.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::dispatch::{Scratch, Server, Urgency};
use crate::session::is_transient;
use crate::{Errno, Threads, limits};

#[derive(Default)]
struct State {
    /// Threads that live.
    total: usize,
    /// Threads that read or are about to.
    idle: usize,
    /// Threads kept warm for the next burst.
    spares: usize,
    /// Spares told to read, that did not run yet.
    woken: usize,
    /// Requests that no thread was free for.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    /// Why the session ended.
    ended: Option<io::Error>,
}

/// What a thread does after a request.
enum Next {
    Run(Vec<u8>),
    Read,
    End,
}

pub(crate) struct Pool {
    server: Server,
    threads: Threads,
    state: Mutex<State>,
    spare: Condvar,
    gone: Condvar,
    myself: Weak<Pool>,
}

impl Pool {
    pub fn new(server: Server, threads: Threads) -> Arc<Pool> {
        // Two, or a blocked handler would leave nobody to read.
        let max = threads.max.max(2);
        let threads = Threads { idle_min: threads.idle_min.clamp(1, max), max };
        Arc::new_cyclic(|myself| Pool {
            server,
            threads,
            state: Mutex::default(),
            spare: Condvar::new(),
            gone: Condvar::new(),
            myself: myself.clone(),
        })
    }

    /// Serves until the transport ends and the last handler has returned; why it ended.
    pub fn run(&self) -> io::Error {
        let mut state = self.state.lock();
        if let Err(error) = self.start_thread(&mut state) {
            return error;
        }
        while state.total > 0 {
            self.gone.wait(&mut state);
        }
        state.ended.take().unwrap_or_else(|| io::Error::other("the threads of the session died"))
    }

    /// Counts a reader and starts it.
    fn start_thread(&self, state: &mut MutexGuard<'_, State>) -> io::Result<()> {
        let Some(pool) = self.myself.upgrade() else { return Ok(()) };
        std::thread::Builder::new().name("fuse".into()).spawn(move || pool.thread())?;
        // The thread cannot look before we let go of the lock.
        state.total += 1;
        state.idle += 1;
        Ok(())
    }

    fn thread(&self) {
        let gone = Gone(self);
        let mut buffer = vec![0; limits::HEADER_ROOM + self.server.agreed.max_write as usize];
        let mut scratch = Scratch::default();
        loop {
            let received = match self.server.channel.transport.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => {
                    self.end(error);
                    break;
                }
            };
            let message = &buffer[..received];
            let urgency = self.server.arrived(message);
            if !self.takes(urgency, message) {
                if urgency == Urgency::Immediate {
                    self.server.serve(message, &mut scratch);
                }
                continue;
            }
            self.server.serve(message, &mut scratch);
            loop {
                match self.next() {
                    Next::Run(waiting) => self.server.serve(&waiting, &mut scratch),
                    Next::Read => break,
                    Next::End => return drop(gone),
                }
            }
        }
        drop(gone);
    }

    /// Decides whether the reader runs what it read (P1) or goes on reading (P2).
    fn takes(&self, urgency: Urgency, message: &[u8]) -> bool {
        let Urgency::Request(unique) = urgency else { return false };
        let mut state = self.state.lock();
        if state.idle > 1 {
            state.idle -= 1;
            return true;
        }
        if state.spares > 0 {
            state.spares -= 1;
            state.woken += 1;
            self.spare.notify_one();
            // It takes our place among the readers.
            return true;
        }
        if state.total < self.threads.max {
            match self.start_thread(&mut state) {
                Ok(()) => {
                    state.idle -= 1;
                    return true;
                }
                Err(error) => tracing::warn!(%error, threads = state.total, "cannot start another thread"),
            }
        }
        let full = state.waiting.len() >= limits::WAITING_REQUESTS_MAX
            || state.waiting_bytes + message.len() > limits::WAITING_BYTES_MAX;
        if full || state.total == 1 {
            state.idle -= 1;
            return true;
        }
        let pool = self.myself.clone();
        let withdraw = move || {
            if let Some(pool) = pool.upgrade() {
                pool.withdraw(unique);
            }
        };
        // Under our lock, which `withdraw` takes: before a handler can see the request and set a callback of its own.
        if self.server.channel.interrupts.keep(unique, Box::new(withdraw)) {
            state.waiting_bytes += message.len();
            state.waiting.push_back((unique, message.to_vec()));
        } else {
            drop(state);
            self.server.channel.error(unique, Errno::EINTR);
        }
        false
    }

    /// An interrupted request that no handler has seen (P3). A callback that is left after it was taken finds nothing.
    fn withdraw(&self, unique: u64) {
        let mut state = self.state.lock();
        let Some(at) = state.waiting.iter().position(|(waiting, _)| *waiting == unique) else { return };
        if let Some((_, message)) = state.waiting.remove(at) {
            state.waiting_bytes -= message.len();
        }
        drop(state);
        self.server.channel.error(unique, Errno::EINTR);
    }

    /// After a request: run one that waits, become a reader again, or wait as a spare. One decision under one lock:
    /// a request that is left to us is never overlooked.
    fn next(&self) -> Next {
        let mut state = self.state.lock();
        if let Some((_, message)) = state.waiting.pop_front() {
            state.waiting_bytes -= message.len();
            return Next::Run(message);
        }
        if state.idle < self.threads.idle_min {
            state.idle += 1;
            return Next::Read;
        }
        state.spares += 1;
        loop {
            let timeout = self.spare.wait_for(&mut state, limits::SPARE_THREAD).timed_out();
            if state.woken > 0 {
                state.woken -= 1;
                return Next::Read;
            }
            if timeout || state.ended.is_some() {
                state.spares -= 1;
                return Next::End;
            }
        }
    }

    fn end(&self, error: io::Error) {
        let mut state = self.state.lock();
        state.idle -= 1;
        state.ended.get_or_insert(error);
        drop(state);
        self.spare.notify_all();
        self.server.channel.interrupts.close();
    }
}

/// Counts a thread out, also when it panics.
struct Gone<'a>(&'a Pool);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.state.lock().total -= 1;
        self.0.gone.notify_all();
    }
}
