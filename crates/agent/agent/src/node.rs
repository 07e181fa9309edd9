//! A file of the namespace, held by a descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use concurrency::{Instant, Mutex};
use global_store::Anchor;
use global_store::posix::{Identified, PosixStore};
use rustix::fs::FileType;
use types::Identity;

use crate::beside::beside;
use crate::limits;

/// A file, directory, symbolic link or special file, named by an `O_PATH` descriptor. The descriptor stays valid if the
/// name changes. Created by lookups and creations; lives while it is referenced.
pub struct Node {
    fd: Arc<OwnedFd>,
    who: Who,
    kind: FileType,
    ino: u64,
    /// The file cache's anchor of the file, made when first needed and shared while it is in use.
    anchor: Mutex<Option<Weak<dyn Anchor>>>,
    /// Time at which the file was found to have no capabilities, on the clock of [`seconds`]. 0: long ago, or since
    /// then capabilities were queried or an attribute was set.
    plain_s: AtomicU64,
    /// Whether capabilities were set through us.
    capable: AtomicBool,
}

/// Identification of a file.
enum Who {
    /// The file's lasting identity.
    Lasting(Identity),
    /// A key that is valid while the file is in use, and the identity once it was needed. The identity costs a request
    /// to the store, which mere lookups of attributes are spared.
    Passing { key: Identity, asked: OnceLock<Identified> },
}

impl Node {
    pub(crate) fn new(store: &PosixStore, fd: OwnedFd, mode: u32, ino: u64) -> io::Result<Node> {
        let who = match store.passing_identity(fd.as_fd()) {
            Some(key) => Who::Passing { key, asked: OnceLock::new() },
            None => Who::Lasting(store.identify(fd.as_fd())?),
        };
        let (fd, kind) = (Arc::new(fd), FileType::from_raw_mode(mode));
        let (plain_s, capable) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Node { fd, who, kind, ino, anchor: Mutex::new(None), plain_s, capable })
    }

    /// Returns the key that tells this node from every other node in use, by whatever name it was found.
    pub fn key(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Passing { key, .. } => key,
        }
    }

    /// Returns the identity. For a node not yet identified ([`Agent::may_hold`](crate::Agent::may_hold), an open) this
    /// is its key, which no burst buffer knows.
    pub fn identity(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Passing { key, asked } => asked.get().map_or(key, |asked| &asked.identity),
        }
    }

    /// Whether `identity` returns the lasting identity.
    pub(crate) fn is_identified(&self) -> bool {
        match &self.who {
            Who::Lasting(_) => true,
            Who::Passing { asked, .. } => asked.get().is_some(),
        }
    }

    /// Queries the identity, unless it is known.
    pub(crate) fn identify(&self, store: &PosixStore) -> io::Result<&Identity> {
        if let Who::Passing { asked, .. } = &self.who
            && asked.get().is_none()
        {
            let found = store.identify_passing(self.fd.as_fd(), self.ino)?;
            // Another thread may have been faster, with the same answer.
            let _ = asked.set(found);
        }
        Ok(self.identity())
    }

    /// Inode number in the global store, as programs see it.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Whether this is a regular file: its data is accelerated.
    pub fn is_regular(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns a path for calls that take no descriptor. The path leads to the file itself, also if that is a symbolic
    /// link.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Returns the file cache's anchor of this regular file.
    pub(crate) fn anchor(&self, store: &PosixStore) -> io::Result<Arc<dyn Anchor>> {
        let mut slot = self.anchor.lock();
        if let Some(anchor) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(anchor);
        }
        let anchor = match self.kind {
            FileType::RegularFile => store.anchor_identified(self.fd.clone(), self.identify(store)?.clone()),
            _ => store.anchor(self.fd.as_fd().try_clone_to_owned()?, None)?,
        };
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// Returns the file cache's anchor of this regular file, which was just found at `place` below the root.
    pub(crate) fn anchor_found(&self, store: &PosixStore, place: &Path) -> io::Result<Arc<dyn Anchor>> {
        let mut slot = self.anchor.lock();
        if let Some(anchor) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(anchor);
        }
        let anchor = store.anchor_found(self.fd.clone(), self.identify(store)?.clone(), place);
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// Returns the file cache's anchor of this regular file, which had none. Opens the global copy, and reads it if it
    /// has at most `read_max` bytes, while another thread queries the identity. So the first read waits for the file's
    /// bytes only.
    pub(crate) fn anchor_reading(&self, store: &PosixStore, read_max: u64) -> io::Result<Arc<dyn Anchor>> {
        let (asks, fd, ino) = (store.clone(), self.fd.clone(), self.ino);
        let asked = beside(move || (asks.identify_passing(fd.as_fd(), ino), asks.place_of(fd.as_fd())));
        let opened = store.open_reading(self.fd(), read_max);
        let mut place = None;
        if let (Who::Passing { asked: slot, .. }, Ok((found, at))) = (&self.who, asked.recv()) {
            // Another thread may have been faster, with the same answer.
            let _ = slot.set(found?);
            place = at;
        }
        self.identify(store)?;
        let mut slot = self.anchor.lock();
        if let Some(anchor) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(anchor);
        }
        // An error is reported when the file is opened for use.
        let anchor = store.anchor_opened(self.fd.clone(), self.identity().clone(), place, opened.ok());
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// Makes the anchor of a file that was just created, at `place` if it has a name. The anchor keeps the descriptor
    /// of the creation.
    pub(crate) fn anchor_created(
        &self,
        store: &PosixStore,
        created: OwnedFd,
        place: Option<(&Node, &OsStr)>,
    ) -> io::Result<Arc<dyn Anchor>> {
        let place = place.map(|(directory, name)| (directory.fd(), name));
        let anchor = store.anchor_created(self.fd.clone(), self.identify(store)?.clone(), created, place);
        *self.anchor.lock() = Some(Arc::downgrade(&anchor));
        self.note_plain();
        Ok(anchor)
    }

    /// Notes that the file was just created, or just found to have no capabilities.
    pub(crate) fn note_plain(&self) {
        self.plain_s.store(seconds(), Ordering::Relaxed);
    }

    /// Whether the file had no capabilities a moment ago and no attribute was set through us since. Answers true once.
    /// The kernel asks for capabilities before the first write through an open file, and this saves a query of the
    /// store.
    pub(crate) fn take_plain(&self) -> bool {
        let plain_s = self.plain_s.swap(0, Ordering::Relaxed);
        plain_s > 0 && seconds() - plain_s <= limits::PLAIN_S
    }

    /// Notes that capabilities are set through us.
    pub(crate) fn note_capable(&self) {
        self.capable.store(true, Ordering::Relaxed);
    }

    /// Whether capabilities were ever set through us.
    pub(crate) fn may_be_capable(&self) -> bool {
        self.capable.load(Ordering::Relaxed)
    }
}

/// Seconds since the first call in this process, starting at 1.
fn seconds() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    1 + FIRST.elapsed().as_secs()
}
