//! Threads of a session. Each reads a request into its own buffer and runs it itself.
//!
//! P1. While the session lives, some thread is reading or about to. Otherwise one thread runs a request alone, and the
//! watch makes a spare read instead if that takes long. `shift.rs` ensures this and says how.
//! P2. At the bound of threads the last reader keeps reading. It runs interrupts and forgets itself and leaves other
//! requests to the first handlers that end, in order. Only when [`limits::WAITING_REQUESTS_MAX`] wait does it run one.
//! P3. A request that waits this way and is interrupted is answered `EINTR` at once.

mod late;
mod watch;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use concurrency::{Condvar, Mutex, MutexGuard};
use rustix::thread::CpuSet;

use crate::dispatch::{Arrival, Dispatcher, Scratch, Urgency};
use crate::follow::{self, Follower};
use crate::session::is_transient;
use crate::shift::{Done, Follow, Rhythm, Shift, Take};
use crate::{Errno, ThreadCounts, limits};

struct State {
    shift: Shift,
    /// Requests for which no thread was free.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    /// Requests with stuck handlers; another thread works in the place of each.
    stuck: HashSet<u64>,
    /// Reason why the session ended.
    ended: Option<io::Error>,
    /// Number of times that the watch has looked.
    looks: u64,
}

impl State {
    fn is_full(&self, message: &[u8]) -> bool {
        self.waiting.len() >= limits::WAITING_REQUESTS_MAX
            || self.waiting_bytes + message.len() > limits::WAITING_BYTES_MAX
    }
}

/// Next action of a thread after a request.
enum Next {
    Run(Vec<u8>),
    Read,
    End,
}

pub(crate) struct ThreadPool {
    server: Dispatcher,
    state: Mutex<State>,
    /// Condition of spares; the next one is that of the watch.
    spare: Condvar,
    watch: Condvar,
    gone: Condvar,
    /// Processors on which the threads may run.
    processors: Option<Arc<CpuSet>>,
    /// Whether readers may be modest.
    modest: bool,
    /// Whether no request is run alone, because handlers usually wait.
    wait: bool,
    /// Thread id of the watch; 0: none.
    watcher: AtomicI32,
    /// Whether some handler is stuck.
    lent: AtomicBool,
    /// Thread ids of readers that may be modest. Only threads that are not modest take this lock.
    following: Mutex<Vec<i32>>,
    myself: Weak<ThreadPool>,
}

struct Reader {
    thread: i32,
    /// Whether the thread is in `following`.
    listed: bool,
    scratch: Scratch,
    follower: Follower,
}

impl ThreadPool {
    pub fn new(server: Dispatcher, threads: ThreadCounts) -> Arc<ThreadPool> {
        let rhythm = Rhythm {
            eager: limits::EAGER_TICKS,
            quiet: limits::QUIET_TICKS,
            follow: limits::FOLLOW_TICKS,
            turns: limits::CALLER_TURNS,
            proud: limits::PROUD_TICKS,
            patience: limits::PATIENCE_TICKS,
        };
        let shift = Shift::new(threads.max, threads.readers, rhythm);
        let state =
            State { shift, waiting: VecDeque::new(), waiting_bytes: 0, stuck: HashSet::new(), ended: None, looks: 0 };
        let processors = follow::allowed();
        let modest = follow::may_be_modest(processors.as_deref());
        Arc::new_cyclic(|myself| ThreadPool {
            server,
            state: Mutex::new(state),
            spare: Condvar::new(),
            watch: Condvar::new(),
            gone: Condvar::new(),
            processors,
            modest,
            wait: threads.wait,
            watcher: AtomicI32::new(0),
            lent: AtomicBool::new(false),
            following: Mutex::default(),
            myself: myself.clone(),
        })
    }

    /// Serves until the transport ends and the last handler has returned. Returns the reason of the end.
    pub fn run(&self) -> io::Error {
        let (watch, late) = (self.start_watch(), self.start_late());
        let mut state = self.state.lock();
        if let Err(error) = self.start_thread(&mut state) {
            state.ended = Some(error);
        }
        while state.shift.total > 0 {
            self.gone.wait(&mut state);
        }
        let ended = state.ended.take().unwrap_or_else(|| io::Error::other("the threads of the session died"));
        // Tell the watch that the session has ended.
        state.ended = Some(io::Error::from(io::ErrorKind::NotConnected));
        drop(state);
        self.watch.notify_all();
        for looking in watch.into_iter().chain(late) {
            looking.thread().unpark();
            // These threads do nothing that could panic.
            let _ = looking.join();
        }
        ended
    }

    fn start_thread(&self, state: &mut MutexGuard<'_, State>) -> io::Result<()> {
        let Some(pool) = self.myself.upgrade() else { return Ok(()) };
        concurrency::spawn("fuse", move || pool.thread(false))?;
        // The thread cannot see the state before this lock is released.
        state.shift.started();
        Ok(())
    }

    /// Starts the watch. Without it no request is run alone.
    fn start_watch(&self) -> Option<concurrency::JoinHandle<()>> {
        let pool = self.myself.upgrade().filter(|pool| !pool.wait)?;
        self.state.lock().shift.watch();
        let started = concurrency::spawn_joined("fuse-watch", move || pool.keep_watch());
        started
            .inspect_err(|error| {
                tracing::warn!(%error, "could not start the watch: every request wakes another reader");
                self.state.lock().shift.unwatch();
            })
            .ok()
    }

    /// Runs a thread of the pool. `runs`: it begins with the requests that wait for a thread.
    fn thread(&self, runs: bool) {
        let gone = Gone(self);
        let mut buffer = vec![0; limits::HEADER_ROOM + self.server.agreed.max_write as usize];
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mut reader = Reader {
            thread,
            listed: false,
            scratch: Scratch::default(),
            follower: Follower::new(self.processors.clone()),
        };
        if !runs || self.reads_again(&mut reader) {
            self.read(&mut reader, &mut buffer);
        }
        self.leave_place(&mut reader);
        drop(gone);
    }

    /// Reads and runs requests until the thread must end.
    fn read(&self, reader: &mut Reader, buffer: &mut [u8]) {
        loop {
            let received = match self.server.channel.transport.receive(buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return self.end(error),
            };
            let message = &buffer[..received];
            let stopped_reading = match self.server.arrived(message) {
                Urgency::Immediate => self.takes_at_once(reader.thread),
                Urgency::Request(request) => {
                    if !self.takes(reader.thread, request, message) {
                        continue;
                    }
                    if !request.brief {
                        // Threads that the handler may start must run everywhere.
                        self.leave_place(reader);
                    }
                    true
                }
            };
            self.serve(message, reader);
            if stopped_reading && !self.reads_again(reader) {
                return;
            }
        }
    }

    fn serve(&self, message: &[u8], reader: &mut Reader) {
        self.server.serve(message, &[], &mut reader.scratch);
        if self.lent.load(Ordering::Relaxed) {
            self.came_back(message);
        }
    }

    /// Continues after a request: runs the requests that wait for a thread. Returns false if the thread must end.
    fn reads_again(&self, reader: &mut Reader) -> bool {
        loop {
            match self.next(reader) {
                Next::Run(waiting) => self.serve(&waiting, reader),
                Next::Read => return true,
                Next::End => return false,
            }
        }
    }

    /// Returns whether the reader stops reading to run a message that cannot be left.
    fn takes_at_once(&self, thread: i32) -> bool {
        let mut state = self.state.lock();
        self.take(&mut state, thread, Arrival { unique: 0, caller: 0, brief: true }, false) != Take::Leave
    }

    fn rouse_watch(&self, state: &mut MutexGuard<'_, State>) {
        if state.shift.rouses_watch() {
            self.watch.notify_one();
        }
    }

    /// Decides whether the reader runs the request (P1) or leaves it and reads on (P2).
    fn takes(&self, thread: i32, request: Arrival, message: &[u8]) -> bool {
        let mut state = self.state.lock();
        let full = state.is_full(message);
        let taken = self.take(&mut state, thread, request, full) != Take::Leave;
        if !taken {
            self.leave(state, request.unique, message);
        }
        taken
    }

    fn take(&self, state: &mut MutexGuard<'_, State>, thread: i32, request: Arrival, full: bool) -> Take {
        self.rouse_watch(state);
        let take = state.shift.take(thread, request.caller, request.brief, full);
        match take {
            Take::Start => match self.start_thread(state) {
                Ok(()) => return state.shift.take_for_started(),
                Err(error) => {
                    tracing::warn!(%error, threads = state.shift.total, "cannot start a thread: requests wait");
                    return state.shift.take_without_thread(full);
                }
            },
            Take::WakeSpare => _ = self.spare.notify_one(),
            Take::Run | Take::RunAlone | Take::Leave => {}
        }
        take
    }

    /// Keeps a request for the first handler that ends.
    fn leave(&self, mut state: MutexGuard<'_, State>, unique: u64, message: &[u8]) {
        let pool = self.myself.clone();
        let withdraw = move || {
            if let Some(pool) = pool.upgrade() {
                pool.withdraw(unique);
            }
        };
        // Under the lock that `withdraw` takes: no handler can see the request and set its own callback before.
        if self.server.channel.interrupts.keep(unique, Box::new(withdraw)) {
            state.waiting_bytes += message.len();
            state.waiting.push_back((unique, message.to_vec()));
        } else {
            drop(state);
            self.server.channel.error(unique, Errno::EINTR);
        }
    }

    /// Answers an interrupted request that no handler has seen (P3). Does nothing if a thread has taken the request.
    fn withdraw(&self, unique: u64) {
        if self.state.lock().take_waiting(unique) {
            self.server.channel.error(unique, Errno::EINTR);
        }
    }

    /// Decides after a request: run one that waits, become a reader again, or wait as a spare. One decision under one
    /// lock, so that a waiting request is never overlooked.
    fn next(&self, reader: &mut Reader) -> Next {
        let mut state = self.state.lock();
        match state.shift.follows() {
            Follow::AsBefore => {}
            Follow::Nobody if !reader.follower.is_pinned() => {}
            // Without the lock, but before reading again: the watch supervises the request for as long as this takes.
            follow => {
                drop(state);
                self.follow(reader, follow);
                state = self.state.lock();
            }
        }
        if let Some((_, message)) = state.waiting.pop_front() {
            state.waiting_bytes -= message.len();
            return Next::Run(message);
        }
        if state.shift.done(reader.thread) == Done::Read {
            return Next::Read;
        }
        self.stand_by(state, reader)
    }

    /// Moves the reader. A thread that may be modest is in `following` before, and as long as it may be.
    fn follow(&self, reader: &mut Reader, follow: Follow) {
        let follow = match follow {
            Follow::Caller { thread, modest } => Follow::Caller { thread, modest: modest && self.modest },
            other => other,
        };
        if !std::mem::replace(&mut reader.listed, true) {
            self.following.lock().push(reader.thread);
        }
        reader.follower.follow(follow, self.watcher.load(Ordering::Relaxed));
        if !reader.follower.is_pinned() {
            self.leave_place(reader);
        }
    }

    /// Lets the reader run on all processors again, as all other threads do.
    fn leave_place(&self, reader: &mut Reader) {
        reader.follower.release();
        if std::mem::take(&mut reader.listed) {
            self.following.lock().retain(|thread| *thread != reader.thread);
        }
    }

    fn stand_by(&self, mut state: MutexGuard<'_, State>, reader: &mut Reader) -> Next {
        if reader.follower.is_pinned() {
            MutexGuard::unlocked(&mut state, || self.leave_place(reader));
        }
        let mut timeout = false;
        loop {
            if state.shift.is_called() {
                return Next::Read;
            }
            if state.ended.is_some() {
                state.shift.spare_goes();
                return Next::End;
            }
            if timeout && state.shift.spare_may_go() {
                return Next::End;
            }
            timeout = if state.shift.has_spares_to_go() {
                self.spare.wait_for(&mut state, limits::SPARE_THREAD).timed_out()
            } else if self.wait || state.shift.watch_sleeps() {
                // The last spare waits without a timeout: nothing wakes while nothing happens.
                self.spare.wait(&mut state);
                false
            } else {
                let looks = state.looks;
                if self.spare.wait_for(&mut state, limits::WATCH_SILENCE).timed_out() {
                    self.look_after_watch(&state, looks);
                }
                false
            };
        }
    }

    fn end(&self, error: io::Error) {
        let mut state = self.state.lock();
        state.shift.stopped_reading();
        state.shift.unwatch();
        state.ended.get_or_insert(error);
        drop(state);
        self.spare.notify_all();
        self.watch.notify_all();
        self.server.channel.interrupts.close();
    }
}

/// Counts a thread out when dropped, also by a panic.
struct Gone<'a>(&'a ThreadPool);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.state.lock().shift.total -= 1;
        self.0.gone.notify_all();
    }
}
