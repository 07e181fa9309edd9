//! Descriptors of a file, and its noted reads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use global_store::{Access, StoreFile};
use types::{Timestamp, Version};

/// The descriptors that the open descriptions of a file share.
#[derive(Default)]
pub(crate) struct Descriptors {
    pub(crate) read: Option<Arc<OwnedFd>>,
    /// Descriptor for reads that move the access time.
    pub(crate) noted: Option<Arc<OwnedFd>>,
    /// Descriptor for writing. It is closed when the last writer closes, for it would refuse our own lease probe.
    pub(crate) write: Option<Arc<OwnedFd>>,
    pub(crate) handle: Option<Arc<OwnedFd>>,
    pub(crate) global: Option<(Access, Arc<dyn StoreFile>)>,
}

impl Descriptors {
    /// Takes the descriptors of the replica out, and leaves that of the global copy.
    pub(crate) fn take_replicas(&mut self) -> Descriptors {
        let global = self.global.take();
        let replicas = std::mem::take(self);
        self.global = global;
        replicas
    }

    /// Returns a descriptor of the replica, of whatever kind.
    pub(crate) fn of_replica(&self) -> Option<Arc<OwnedFd>> {
        self.handle.as_ref().or(self.read.as_ref()).or(self.write.as_ref()).cloned()
    }
}

/// Version of a replica, and the access time that it has without any read that we do not know of.
pub(crate) type Watched = (Version, Timestamp);

/// NotedReads of a file whose policy has them noted.
#[derive(Debug, Default)]
pub(crate) struct NotedReads {
    /// Access time from which a later one shows a program's read. Set while reads are noted.
    pub(crate) watched: Option<Watched>,
    /// The last noted read that came through the agent and left no trace in a replica.
    pub(crate) asked: Option<Timestamp>,
}
