//! Requests that have not been answered for long. The file system decides about them.
//!
//! A handler that waits in the kernel for another file system cannot be ended. It keeps its thread, and another thread
//! takes its place. The kernel accepts the first answer to a request and refuses the second.

use std::sync::atomic::Ordering;

use super::{State, ThreadPool};
use crate::abi::{InHeader, bytes_of, take};
use crate::dispatch::Handler;
use crate::reply::attr_reply_out;
use crate::{DelayAction, Errno, Filesystem, Late, limits};

impl ThreadPool {
    pub(super) fn start_late(&self) -> Option<concurrency::JoinHandle<()>> {
        let pool = self.myself.upgrade()?;
        let started = concurrency::spawn_joined("fuse-late", move || pool.look_after_late());
        started.inspect_err(|error| tracing::warn!(%error, "no thread for late requests: each waits for ever")).ok()
    }

    /// Checks unanswered requests until the session ends.
    fn look_after_late(&self) {
        let mut late = Vec::new();
        while !self.server.channel.interrupts.is_closed() {
            let any = self.server.channel.interrupts.late(&mut late);
            for (arrived, interrupted, looks) in late.drain(..) {
                let queued = self.state.lock().waiting.iter().any(|(waiting, _)| *waiting == arrived.unique);
                let request = Late {
                    unique: arrived.unique,
                    node: arrived.node,
                    pid: arrived.caller,
                    attributes: arrived.attributes,
                    capabilities: arrived.capabilities,
                    interrupted,
                    queued,
                    waited: limits::LATE_POLL * looks,
                };
                match &self.server.handler {
                    Handler::Files(fs) => self.decide(&**fs, &request),
                    Handler::Raw(raw) if raw.waits_for_kernel(request.unique) => self.lend(&request),
                    Handler::Raw(_) => {}
                }
            }
            concurrency::park_timeout(if any { limits::LATE_POLL } else { limits::LATE_REST });
        }
    }

    fn decide(&self, fs: &dyn Filesystem, request: &Late) {
        match fs.late(request) {
            DelayAction::Wait => {}
            DelayAction::Stuck => self.lend(request),
            DelayAction::GiveUp(errno) => {
                self.lend(request);
                self.give_up(request, errno);
            }
            DelayAction::Attributes(reply) => {
                self.lend(request);
                let out = attr_reply_out(&reply);
                self.server.channel.ok(request.unique, &[bytes_of(&out)]);
            }
        }
    }

    fn give_up(&self, request: &Late, errno: Errno) {
        let taken = self.state.lock().take_waiting(request.unique);
        if taken || !request.queued {
            self.server.channel.error(request.unique, errno);
        }
    }

    /// Lets another thread work in the place of a stuck handler.
    fn lend(&self, request: &Late) {
        let mut state = self.state.lock();
        if request.queued || state.ended.is_some() || state.stuck.len() >= limits::STUCK_THREADS_MAX {
            return;
        }
        if !state.stuck.insert(request.unique) {
            return;
        }
        self.lent.store(true, Ordering::Relaxed);
        if !self.server.channel.interrupts.is_running(request.unique) {
            // The handler has ended since and did not see `lent`.
            state.stuck.remove(&request.unique);
            return self.lent.store(!state.stuck.is_empty(), Ordering::Relaxed);
        }
        state.shift.lend();
        if state.waiting.is_empty() {
            // The next reader starts the thread.
            return;
        }
        let Some(pool) = self.myself.upgrade() else { return };
        match concurrency::spawn("fuse", move || pool.thread(true)) {
            // The thread cannot see the state before this lock is released.
            Ok(_) => state.shift.started_running(),
            Err(error) => tracing::warn!(%error, threads = state.shift.total, "cannot start a thread: requests wait"),
        }
    }

    /// Ends the replacement of a handler that was stuck and has ended.
    pub(super) fn came_back(&self, message: &[u8]) {
        let Some((header, _)) = take::<InHeader>(message) else { return };
        let mut state = self.state.lock();
        if state.stuck.remove(&header.unique) {
            state.shift.returned();
            self.lent.store(!state.stuck.is_empty(), Ordering::Relaxed);
        }
    }
}

impl State {
    /// Removes a request that waits for a thread. Returns whether it was there.
    pub(super) fn take_waiting(&mut self, unique: u64) -> bool {
        let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == unique) else { return false };
        if let Some((_, message)) = self.waiting.remove(at) {
            self.waiting_bytes -= message.len();
        }
        true
    }
}
