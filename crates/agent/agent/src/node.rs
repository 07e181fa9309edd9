//! A file of the namespace, held by descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use file_cache::Anchor;
use global_store::posix::PosixStore;
use parking_lot::Mutex;
use rustix::fs::FileType;
use types::Identity;

/// One file, directory, link or special file, named by an `O_PATH` descriptor: it stays the same whatever becomes of
/// its name. Minted by lookups and creations; lives as long as somebody refers to it.
pub struct Node {
    fd: Arc<OwnedFd>,
    identity: Identity,
    kind: FileType,
    ino: u64,
    /// What the file cache knows it by, made when first needed and shared while anybody has it.
    anchor: Mutex<Option<Weak<dyn Anchor>>>,
}

impl Node {
    pub(crate) fn new(store: &PosixStore, fd: OwnedFd, mode: u32, ino: u64) -> io::Result<Node> {
        let identity = store.identify(fd.as_fd())?;
        Ok(Node { fd: Arc::new(fd), identity, kind: FileType::from_raw_mode(mode), ino, anchor: Mutex::new(None) })
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its inode number in the global store, as programs see it.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Whether it has data that is accelerated.
    pub fn is_regular(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path for calls that take no descriptor. It leads to the file itself, a symbolic link included.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// What the file cache knows this regular file by.
    pub(crate) fn anchor(&self, store: &PosixStore) -> io::Result<Arc<dyn Anchor>> {
        let mut slot = self.anchor.lock();
        if let Some(anchor) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(anchor);
        }
        let anchor = match self.kind {
            FileType::RegularFile => store.anchor_identified(self.fd.clone(), self.identity.clone()),
            _ => store.anchor(self.fd.as_fd().try_clone_to_owned()?, None)?,
        };
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// Makes the anchor of a file that was created just now; it keeps the descriptor that creation gave.
    pub(crate) fn anchor_created(&self, store: &PosixStore, created: OwnedFd) -> Arc<dyn Anchor> {
        let anchor = store.anchor_created(self.fd.clone(), self.identity.clone(), created);
        *self.anchor.lock() = Some(Arc::downgrade(&anchor));
        anchor
    }
}
