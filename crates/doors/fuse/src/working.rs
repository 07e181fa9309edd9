//! Callers for whom threads work. Behind a server, a program that is dying must not wait for the server.

use std::rc::Rc;

use fuse_protocol::{Request, is_dying, was_killed};

use crate::door::Door;

/// Guard during which this thread's waits for a server end when the caller dies.
pub struct CallerWatch(());

impl Door {
    /// Makes this thread work for the caller of a request. Returns `None` where no server is waited for.
    pub(crate) fn work_for(&self, req: &Request) -> Option<CallerWatch> {
        if !self.agent.is_shared() {
            return None;
        }
        let (interrupted, thread) = (req.interruption(), req.pid);
        // A signal that the program handles must not fail a write; plain file systems never do that.
        data_store::set_interruption(Some(Rc::new(move || interrupted() && is_dying(thread))));
        Some(CallerWatch(()))
    }
}

impl Door {
    /// Makes this thread work for a caller that closes a descriptor. A program that ends does that too, so a killed
    /// caller counts as dying.
    pub(crate) fn work_for_close(&self, req: &Request) -> Option<CallerWatch> {
        let working = self.work_for(req)?;
        let (interrupted, thread) = (req.interruption(), req.pid);
        data_store::set_interruption(Some(Rc::new(move || (interrupted() && is_dying(thread)) || was_killed(thread))));
        Some(working)
    }
}

impl Drop for CallerWatch {
    fn drop(&mut self) {
        data_store::set_interruption(None);
    }
}
