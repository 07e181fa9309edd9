//! The namespace of a global store: a POSIX directory, asked as the caller who asks.
//!
//! Files are held by `O_PATH` descriptors, so names may change below and above. Every change is made in the global
//! store at once.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod anchors;
mod attributes;
mod beside;
mod directory;
mod hidden_files;
mod hidden_names;
mod impersonator;
mod limits;
mod names;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use global_store::calls::{Store, StoreCall};
use global_store::posix::PosixStore;
use global_store::{Anchor, GlobalStore};
use namespace::{AnchorFor, HiddenFiles, Hold, Inode, Namespace};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::impersonator::Impersonator;

/// Names and attributes of the files of a [`PosixStore`].
pub struct PosixNamespace {
    store: PosixStore,
    impersonator: Impersonator,
    /// Descriptor of `/proc/self/fd`, opened once. A descriptor `N` is passed as the name `N` in it to calls that need
    /// a path.
    descriptors: OwnedFd,
}

impl PosixNamespace {
    /// Creates the namespace of a store. Call this in the process that will use it, because descriptors are named
    /// through `/proc`, and with the credentials that the process will keep.
    pub fn new(store: PosixStore) -> io::Result<PosixNamespace> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = fs::open("/proc/self/fd", flags, Mode::empty())?;
        Ok(PosixNamespace { store, impersonator: Impersonator::new(), descriptors })
    }

    /// Runs a call that reads from the global store.
    fn below<T>(&self, call: StoreCall, run: impl FnOnce() -> T) -> T {
        self.store.calls().call(call, run)
    }

    /// Runs a call that changes the global store. Errors: those of the call; `EIO`, without running it, if the request
    /// was given up because its sender has been answered already.
    fn change<T>(&self, call: StoreCall, run: impl FnOnce() -> Result<T, Errno>) -> io::Result<T> {
        Ok(self.store.calls().change(call, run)?)
    }

    /// Returns the inode of a file with this descriptor, type bits and inode number.
    fn inode(&self, fd: OwnedFd, mode: u32, ino: u64) -> io::Result<Inode> {
        let kind = FileType::from_raw_mode(mode);
        match self.store.passing_identity(fd.as_fd()) {
            Some(key) => Ok(Inode::provisional(key, kind, ino, Hold::Descriptor(Arc::new(fd)))),
            None => {
                let identity = self.store.identify(fd.as_fd())?;
                Ok(Inode::new(identity, kind, ino, Hold::Descriptor(Arc::new(fd))))
            }
        }
    }
}

impl Namespace for PosixNamespace {
    fn anchor(&self, inode: &Inode, what: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>> {
        let fd = shared_descriptor_of(inode)?;
        if inode.kind() != FileType::RegularFile {
            return self.store.anchor(fd.as_fd().try_clone_to_owned()?, None);
        }
        if let AnchorFor::Reading(bytes_max) = what {
            return self.anchor_reading(inode, bytes_max);
        }
        self.identified(inode)?;
        let (fd, identity) = (Arc::clone(fd), inode.identity().clone());
        Ok(match what {
            AnchorFor::FoundAt(place) => self.store.anchor_found(fd, identity, place),
            _ => self.store.anchor_identified(fd, identity),
        })
    }

    fn identify(&self, inode: &Inode, may_be_known: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        let ino = inode.ino();
        let known = || PosixStore::starts_of(ino).iter().any(|start| may_be_known(start));
        if !inode.is_identified() && !self.store.is_identified(ino) && !known() {
            return Ok(false);
        }
        self.identified(inode).map(|()| true)
    }

    fn calls(&self) -> Store {
        self.store.calls()
    }

    fn acts_for_all(&self) -> bool {
        self.impersonator.is_privileged()
    }

    fn hidden_files(&self) -> &dyn HiddenFiles {
        self
    }

    fn store(&self) -> &dyn GlobalStore {
        &self.store
    }
}

/// Returns the descriptor of a file of the global store. `ESTALE` for a file of another namespace.
fn shared_descriptor_of(inode: &Inode) -> Result<&Arc<OwnedFd>, Errno> {
    match inode.hold() {
        Hold::Descriptor(fd) => Ok(fd),
        Hold::Other(_) | Hold::Kept(_) => Err(Errno::STALE),
    }
}

fn descriptor_of(inode: &Inode) -> Result<BorrowedFd<'_>, Errno> {
    shared_descriptor_of(inode).map(|fd| fd.as_fd())
}

/// Returns the name of a file in `/proc/self/fd`.
fn descriptor_name(inode: &Inode) -> Result<String, Errno> {
    Ok(descriptor_of(inode)?.as_raw_fd().to_string())
}

/// Returns a path for calls that take no descriptor. The path leads to the file itself, also if that is a symbolic link.
fn proc_path(inode: &Inode) -> Result<String, Errno> {
    Ok(format!("/proc/self/fd/{}", descriptor_of(inode)?.as_raw_fd()))
}
