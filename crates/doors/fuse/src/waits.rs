//! Locks that are waited for: no thread waits, the reply does.

use std::sync::Arc;

use agent::locks::{LockRequest, LockTable, Ticket};
use fuse_protocol::{Errno, Parked};
use parking_lot::Mutex;
use types::Identity;

use agent::Agent;

/// What an interrupt has to cancel: known only once the lock is waited for, and the interrupt may come before.
#[derive(Default)]
struct Wait {
    ticket: Option<Ticket>,
    interrupted: bool,
}

/// Takes a lock when it becomes free, and answers then; an interrupt ends the wait with `EINTR`.
pub fn lock_and_answer(agent: &Arc<Agent>, file: &Identity, request: LockRequest, reply: Parked) {
    let wait = Arc::new(Mutex::new(Wait::default()));
    let (for_interrupt, with, of) = (wait.clone(), agent.clone(), file.clone());
    reply.on_interrupt(Box::new(move || {
        let ticket = {
            let mut wait = for_interrupt.lock();
            wait.interrupted = true;
            wait.ticket
        };
        cancel(with.locks(), &of, ticket);
    }));
    let grant = Box::new(move |outcome: Result<(), _>| match outcome {
        Ok(()) => reply.done(),
        Err(errno) => reply.error(Errno::from(errno)),
    });
    let Some(ticket) = agent.locks().lock(file, request, grant) else { return };
    let came_before = {
        let mut wait = wait.lock();
        wait.ticket = Some(ticket);
        wait.interrupted
    };
    if came_before {
        agent.locks().cancel(file, ticket);
    }
}

fn cancel(locks: &LockTable, file: &Identity, ticket: Option<Ticket>) {
    if let Some(ticket) = ticket {
        locks.cancel(file, ticket);
    }
}
