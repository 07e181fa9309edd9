//! Anchors of regular files of a delegated tree.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use global_store::{Access, Anchor, StoreAttributes, StoreFile};
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};
use types::{Fingerprint, Identity, Timestamp};

use super::Held;
use super::names::path_of;
use crate::rules;
use crate::state::Moment;

/// A file of the tree, which is opened in the global store when its bytes are asked for.
pub(super) struct NodeAnchor {
    held: Arc<Held>,
    identity: Identity,
}

impl NodeAnchor {
    pub fn new(held: Arc<Held>) -> NodeAnchor {
        let identity = held.shared.key(held.number);
        NodeAnchor { held, identity }
    }
}

/// Returns the time that a `timespec` of utimensat(2) sets; `None` for none.
fn time_of(time: &Timespec) -> Option<Moment> {
    match time.tv_nsec {
        UTIME_OMIT => None,
        UTIME_NOW => Some(rules::now()),
        nanos => Some(Timestamp { seconds: time.tv_sec, nanos: u32::try_from(nanos).unwrap_or(0) }.into()),
    }
}

impl Anchor for NodeAnchor {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        let Held { shared, slot, .. } = &*self.held;
        let inner = shared.inner.read();
        let found = inner.tree.attributes(*slot, shared.ino_of(inner.tree.member(*slot)));
        let (mode, uid, gid, links) = (found.mode, found.uid, found.gid, u64::from(found.nlink));
        let attributes = Fingerprint::attributes_of(mode, uid, gid, links);
        let fingerprint = Fingerprint { size: found.size, mtime: found.mtime, ctime: found.ctime, attributes };
        Ok(StoreAttributes { fingerprint, atime: found.atime, links, mode, uid, gid, append_only: false })
    }

    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>> {
        self.held.shared.below.open(self.held.number, access)
    }

    fn path_hint(&self) -> PathBuf {
        let inner = self.held.shared.inner.read();
        path_of(&inner.tree, self.held.slot).unwrap_or_default()
    }

    fn set_atime(&self, atime: Timestamp) -> io::Result<()> {
        let Held { shared, slot, .. } = &*self.held;
        shared.change().update(shared, *slot, |state| state.atime = atime.into())
    }

    fn set_times(&self, times: &rustix::fs::Timestamps) -> io::Result<()> {
        let Held { shared, slot, .. } = &*self.held;
        let (atime, mtime) = (time_of(&times.last_access), time_of(&times.last_modification));
        shared.change().update(shared, *slot, |state| {
            (state.atime, state.mtime) = (atime.unwrap_or(state.atime), mtime.unwrap_or(state.mtime));
        })
    }

    fn sync_name(&self) -> io::Result<()> {
        self.held.shared.sync()
    }

    /// Nobody else sees a file of a delegated tree, so it needs no mark.
    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn set_mark(&self, _mark: Option<&[u8]>) -> io::Result<()> {
        Ok(())
    }
}
