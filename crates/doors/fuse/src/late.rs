//! Handling of requests while the global store does not answer.
//!
//! L1. Only a request that waits for the store is given up. Its thread has been in one call to the store for all that
//! time, or waits for another thread that has.
//! L2. A request that was given up begins nothing more below ([`Store::change`](agent::Store::change)). Its current
//! call may still take effect.
//! L3. The request of a killed program is given up whatever the policy says: nobody waits for the answer any more.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::{FileAttributes, OpenFile, RequestId};
use fuse_protocol::{AttrReply, DelayAction, Errno, Late, is_dying};

use crate::door::Door;
use crate::limits;
use crate::nodes::Known;

impl Door {
    fn id(&self, unique: u64) -> RequestId {
        RequestId { asker: self.asker, number: unique }
    }

    pub(crate) fn begin(&self, unique: u64) {
        self.id(unique).begin();
    }

    /// Decides about a late request; see [`fuse_protocol::Filesystem::late`].
    pub(crate) fn patience(&self, request: &Late) -> DelayAction {
        if self.refreshing.has(request.unique) {
            return DelayAction::Stuck;
        }
        let Some(stuck) = self.stuck_for(request) else { return DelayAction::Wait };
        let id = self.id(request.unique);
        if request.interrupted && request.pid != 0 && is_dying(request.pid) {
            id.give_up();
            return DelayAction::GiveUp(Errno::EINTR);
        }
        let known = self.nodes.get(request.node);
        if stuck >= limits::STUCK {
            self.hangs.store(true, Ordering::Relaxed);
            if let Some(known) = &known {
                if request.attributes
                    && let Some(reply) = self.told_before(known)
                {
                    id.give_up();
                    return DelayAction::Attributes(reply);
                }
                if request.capabilities && self.is_known_plain(known) {
                    id.give_up();
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
                id.label(&path.to_string_lossy());
            }
            return DelayAction::Stuck;
        }
        id.give_up();
        match known.filter(|_| request.attributes).and_then(|known| self.told_before(&known)) {
            Some(reply) => DelayAction::Attributes(reply),
            None => DelayAction::GiveUp(Errno::EIO),
        }
    }

    /// Returns whether the store was found not to answer, and still does not. Then requests whose data is here need
    /// not wait for a look at the store.
    pub(crate) fn hangs(&self) -> bool {
        if !self.hangs.load(Ordering::Relaxed) {
            return false;
        }
        let hangs = self.agent.store_calls().silence() >= limits::STUCK;
        self.hangs.store(hangs, Ordering::Relaxed);
        hangs
    }

    /// Returns how long the request has waited for the store. `None`: it does not wait for the store.
    fn stuck_for(&self, request: &Late) -> Option<Duration> {
        let silence = || self.agent.store_calls().silence();
        // Behind a server a thread may wait for the server instead of the store.
        let alone = self.agent.is_shared();
        match self.id(request.unique).working() {
            Some(working) if working.call.is_some() => Some(working.since),
            Some(working) if !alone => Some(working.since.min(silence())),
            None if request.queued => Some(request.waited.min(silence())),
            _ => None,
        }
        .filter(|stuck| !stuck.is_zero())
    }

    /// Remembers the attributes last shown of a file, for use while the store hangs.
    pub(crate) fn keep_told(&self, known: &Known, attributes: &FileAttributes) {
        // Nobody asks the store about what is held exclusively.
        if known.node.is_regular() && !known.node.is_exclusive() {
            *known.told.lock() = Some(Box::new(*attributes));
        }
    }

    /// Returns the attributes last shown of an open file whose data is here, with size and time of the replica.
    /// Readers of such a file ask for them. `None`: no such open file, or no attributes were shown.
    pub(crate) fn told_before(&self, known: &Known) -> Option<AttrReply> {
        let file = self.handles.of_replica(known)?;
        let mut attributes = **known.told.lock().as_ref()?;
        let replica = FileAttributes::of(file.open.backing()?.as_fd()).ok()?;
        (attributes.size, attributes.blocks, attributes.mtime) = (replica.size, replica.blocks, replica.mtime);
        Some(AttrReply { attr: self.shown(&attributes), valid: Duration::ZERO })
    }

    /// Returns whether the file is known to have no capabilities. True if an open for writing whose data is here
    /// found none, and none was set since. A capability that was set below is removed there when the data is staged
    /// out.
    pub(crate) fn is_known_plain(&self, known: &Known) -> bool {
        self.handles.of_replica_where(known, OpenFile::writes_plainly).is_some()
    }
}
