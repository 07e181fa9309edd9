//! The replica's descriptor for the kernel, which then reads and writes it without the agent.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Atime;
use global_store::posix::reopen_as_path;
use types::Version;

use super::FileHandle;
use crate::burst_buffer::replica::How;
use crate::cache::Inner;
use crate::residency::File;

impl FileHandle {
    /// Returns an `O_PATH` descriptor of the complete replica, for passthrough; `None` for every other route. The
    /// handles of a file share one while descriptors are plenty.
    pub fn backing(&self) -> Option<Arc<OwnedFd>> {
        self.inner.backing_of(&self.file, self.whole?, self.policy.atime)
    }

    /// Returns how the kernel notes reads of [`backing`](FileHandle::backing).
    pub fn atime(&self) -> Atime {
        self.policy.atime
    }

    /// Begins passthrough: from now on the kernel reads and writes without the agent. Returns false if that is not
    /// allowed: the file has moved to the global store since it was opened, or room is so scarce that written data may
    /// have to go there.
    pub fn use_passthrough(&self) -> bool {
        let scarce = self.write && self.inner.spaces.is_scarce(&self.policy);
        let mut live = self.file.live.lock();
        if self.whole.is_none() || live.version() != self.whole || !live.is_whole() {
            return false;
        }
        if scarce && !live.is_bypassed() && !live.is_unlinked() {
            return false;
        }
        if !self.passthrough.swap(true, Ordering::AcqRel) {
            live.users.bypass();
            self.inner.counters.kernel_writers.fetch_add(self.write.into(), Ordering::Relaxed);
        }
        true
    }
}

impl Inner {
    /// Returns the descriptor that the kernel gets for a complete replica.
    fn backing_of(&self, file: &File, version: Version, atime: Atime) -> Option<Arc<OwnedFd>> {
        let (held, writing) = file.peek(|live| {
            let ours = |fd: &Option<Arc<OwnedFd>>| fd.clone().filter(|_| live.version() == Some(version));
            (ours(&live.fds.handle), ours(&live.fds.write))
        });
        if held.is_some() {
            return held;
        }
        // The replica is open already and need not be looked up.
        let opened = match writing {
            Some(fd) if atime == Atime::No => reopen_as_path(fd.as_fd()),
            _ => self.replicas.open_as(version, How::Handle(atime)),
        };
        let fd = Arc::new(opened.ok()?);
        self.keeps_one();
        let mut live = file.live.lock();
        if live.version() == Some(version) {
            live.fds.handle = Some(Arc::clone(&fd));
        }
        Some(fd)
    }
}
