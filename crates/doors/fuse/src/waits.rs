//! Waits for locks: the reply is parked, and no thread waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::locks::{LockRequest, LockTicket};
use agent::{Agent, Node};
use concurrency::Mutex;
use fuse_protocol::{Errno, Parked};

use crate::coherence::SharedFile;

/// State that an interrupt needs to cancel a wait. The ticket exists only once the lock is waited for, and the
/// interrupt may come before.
#[derive(Default)]
struct Wait {
    ticket: Mutex<Option<LockTicket>>,
    interrupted: Arc<AtomicBool>,
}

impl Wait {
    fn cancel(&self, agent: &Agent, node: &Node) {
        let ticket = *self.ticket.lock();
        agent.cancel_lock(node, ticket, &self.interrupted);
    }
}

/// Takes a lock when it becomes free, and then answers. An interrupt ends the wait with `EINTR`. A `shared` file is
/// refreshed before the program is told that it has the lock.
pub fn lock_and_answer(
    agent: &Arc<Agent>,
    node: &Arc<Node>,
    request: LockRequest,
    shared: Option<SharedFile>,
    reply: Parked,
) {
    let wait = Arc::new(Wait::default());
    let (for_interrupt, with, of) = (wait.clone(), agent.clone(), node.clone());
    reply.on_interrupt(Box::new(move || {
        for_interrupt.interrupted.store(true, Ordering::SeqCst);
        for_interrupt.cancel(&with, &of);
    }));
    let grant = Box::new(move |outcome: Result<(), _>| match outcome {
        Ok(()) => {
            shared.iter().for_each(SharedFile::refresh);
            reply.done();
        }
        Err(errno) => reply.error(Errno::from(errno)),
    });
    let Some(ticket) = agent.lock(node, request, &wait.interrupted, grant) else { return };
    *wait.ticket.lock() = Some(ticket);
    if wait.interrupted.load(Ordering::SeqCst) {
        wait.cancel(agent, node);
    }
}
