//! Anchors of the files of the namespace.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use global_store::Anchor;
use namespace::Inode;

use crate::beside::beside;
use crate::{PosixNamespace, descriptor_of, shared_descriptor_of};

impl PosixNamespace {
    /// Queries the lasting identity, unless it is known.
    pub(crate) fn identified(&self, inode: &Inode) -> io::Result<()> {
        if !inode.is_identified() {
            let found = self.store.identify_passing(descriptor_of(inode)?, inode.ino())?;
            inode.identify_as(found.identity.clone(), Box::new(found));
        }
        Ok(())
    }

    /// Opens the global copy, and reads it if it has at most `bytes_max` bytes, while another thread queries the
    /// identity. So the first read waits for the file's bytes only.
    pub(crate) fn anchor_reading(&self, inode: &Inode, bytes_max: u64) -> io::Result<Arc<dyn Anchor>> {
        let fd = shared_descriptor_of(inode)?;
        let asked = (!inode.is_identified()).then(|| {
            let (store, fd, ino) = (self.store.clone(), Arc::clone(fd), inode.ino());
            beside(move || (store.identify_passing(fd.as_fd(), ino), store.place_of(fd.as_fd())))
        });
        let opened = self.store.open_reading(fd.as_fd(), bytes_max);
        let mut place = None;
        if let Some(Ok((found, at))) = asked.map(|asked| asked.recv()) {
            let found = found?;
            inode.identify_as(found.identity.clone(), Box::new(found));
            place = at;
        }
        self.identified(inode)?;
        // An error is reported when the file is opened for use.
        Ok(self.store.anchor_opened(Arc::clone(fd), inode.identity().clone(), place, opened.ok()))
    }

    /// Makes the anchor of a file that was just created, at `place` if it has a name. The anchor keeps the descriptor
    /// of the creation.
    pub(crate) fn anchor_created(
        &self,
        inode: &Inode,
        created: OwnedFd,
        place: Option<(&Inode, &OsStr)>,
    ) -> io::Result<Arc<dyn Anchor>> {
        self.identified(inode)?;
        let place = match place {
            Some((directory, name)) => Some((descriptor_of(directory)?, name)),
            None => None,
        };
        Ok(self.store.anchor_created(
            Arc::clone(shared_descriptor_of(inode)?),
            inode.identity().clone(),
            created,
            place,
        ))
    }
}
