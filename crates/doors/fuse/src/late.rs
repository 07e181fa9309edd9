//! What becomes of a request while the global store does not answer.
//!
//! L1. Only who waits for the store is given up: a thread that is in one call to it for all that time, or that waits for
//!     another thread while one is.
//! L2. What was given up begins nothing more below ([`Store::change`](agent::Store::change)); the call that it is in may
//!     still happen.
//! L3. A program that was killed is let go, whatever the policy says: nobody waits for the answer any more.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::{Attributes, OpenFile, RequestId};
use fuse_protocol::{AttrReply, DelayAction, Errno, Late};

use crate::door::Door;
use crate::limits;
use crate::nodes::Known;
use crate::working::is_dying;

impl Door {
    fn errand(&self, unique: u64) -> RequestId {
        RequestId { asker: self.asker, number: unique }
    }

    pub(crate) fn begin(&self, unique: u64) {
        self.errand(unique).begin();
    }

    /// See [`fuse_protocol::Filesystem::late`].
    pub(crate) fn patience(&self, request: &Late) -> DelayAction {
        if self.refreshing.has(request.unique) {
            return DelayAction::Stuck;
        }
        let Some(stuck) = self.stuck_for(request) else { return DelayAction::Wait };
        let errand = self.errand(request.unique);
        if request.interrupted && request.pid != 0 && is_dying(request.pid) {
            errand.give_up();
            return DelayAction::GiveUp(Errno::EINTR);
        }
        let known = self.nodes.get(request.node);
        if stuck >= limits::STUCK {
            self.hangs.store(true, Ordering::Relaxed);
            if let Some(known) = &known {
                if request.attributes
                    && let Some(reply) = self.told_before(known)
                {
                    errand.give_up();
                    return DelayAction::Attributes(reply);
                }
                if request.capabilities && self.is_known_plain(known) {
                    errand.give_up();
                    return DelayAction::GiveUp(Errno::ENODATA);
                }
            }
        }
        let policy = known.as_ref().map(|known| self.agent.policy_for(&known.node));
        let patience = policy.unwrap_or_else(|| self.agent.policies().base()).unavailable;
        if patience.is_none_or(|patience| stuck < patience) {
            if stuck < limits::STUCK {
                return DelayAction::Wait;
            }
            if let Some(path) = known.and_then(|known| self.agent.path_of(&known.node)) {
                errand.label(&path.to_string_lossy());
            }
            return DelayAction::Stuck;
        }
        errand.give_up();
        match known.filter(|_| request.attributes).and_then(|known| self.told_before(&known)) {
            Some(reply) => DelayAction::Attributes(reply),
            None => DelayAction::GiveUp(Errno::EIO),
        }
    }

    /// Whether the store was found not to answer, and still does not: then who has the data here is not to wait for a look.
    pub(crate) fn hangs(&self) -> bool {
        if !self.hangs.load(Ordering::Relaxed) {
            return false;
        }
        let hangs = self.agent.store_calls().silence() >= limits::STUCK;
        self.hangs.store(hangs, Ordering::Relaxed);
        hangs
    }

    /// How long it has waited for the store; `None`: not at all.
    fn stuck_for(&self, request: &Late) -> Option<Duration> {
        let silence = || self.agent.store_calls().silence();
        // Behind a server a thread may wait for that instead.
        let alone = self.agent.cache().is_shared();
        match self.errand(request.unique).working() {
            Some(working) if working.call.is_some() => Some(working.since),
            Some(working) if !alone => Some(working.since.min(silence())),
            None if request.queued => Some(request.waited.min(silence())),
            _ => None,
        }
        .filter(|stuck| !stuck.is_zero())
    }

    /// Remembers what is told of a file: it may have to serve once more.
    pub(crate) fn keep_told(&self, known: &Known, attributes: &Attributes) {
        if known.node.is_regular() {
            *known.told.lock() = Some(*attributes);
        }
    }

    /// What was told last of a file that somebody has open and whose data is here, with the size and the time of that: who
    /// reads it asks for them.
    pub(crate) fn told_before(&self, known: &Known) -> Option<AttrReply> {
        let file = self.handles.of_replica(known)?;
        let mut attributes = (*known.told.lock())?;
        let replica = Attributes::of(file.open.backing()?.as_fd()).ok()?;
        (attributes.size, attributes.blocks, attributes.mtime) = (replica.size, replica.blocks, replica.mtime);
        Some(AttrReply { attr: self.shown(&attributes), valid: Duration::ZERO })
    }

    /// Whether somebody who writes a file whose data is here saw that it has no capabilities, and nobody gave it any since. Where
    /// somebody did below the data takes them away there when it is staged out.
    pub(crate) fn is_known_plain(&self, known: &Known) -> bool {
        self.handles.of_replica_where(known, OpenFile::writes_plainly).is_some()
    }
}
