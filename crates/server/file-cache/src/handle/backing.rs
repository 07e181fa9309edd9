//! The replica's descriptor for the kernel, which then reads and writes it without the agent.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Atime;
use global_store::posix::reopen_as_path;

use super::FileHandle;
use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::How;
use data_store::Passthrough;

impl Passthrough for FileHandle {
    /// The handles of a file share one descriptor while descriptors are plenty.
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        let (version, atime) = (self.whole?, self.policy.atime);
        let (held, writing) = self.file.peek(|live| {
            let ours = |fd: &Option<Arc<OwnedFd>>| fd.clone().filter(|_| live.version() == Some(version));
            (ours(&live.fds.handle), ours(&live.fds.write))
        });
        if held.is_some() {
            return held;
        }
        // The replica is open already and need not be looked up.
        let opened = match writing {
            Some(fd) if atime == Atime::No => reopen_as_path(fd.as_fd()),
            _ => self.inner.replicas.open_as(version, How::Handle(atime)),
        };
        let fd = Arc::new(opened.ok()?);
        self.inner.keeps_one();
        let mut live = self.file.live.lock();
        if live.version() == Some(version) {
            live.fds.handle = Some(Arc::clone(&fd));
        }
        Some(fd)
    }

    fn begin(&self) -> bool {
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

    fn is_unshared(&self) -> bool {
        let Some(version) = self.whole else { return false };
        {
            let mut live = self.file.live.lock();
            if live.users.handles() != 1 || live.version() != Some(version) {
                return false;
            }
            // Our own descriptors would refuse the lease.
            (live.fds.read, live.fds.noted, live.fds.write) = (None, None, None);
        }
        let alone = |fd: OwnedFd| lease::probe(fd.as_fd(), Nobody::Uses).unwrap_or(false);
        self.inner.replicas.open_as(version, How::Read).is_ok_and(alone)
    }
}
