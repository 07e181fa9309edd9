//! A file of the namespace, held by descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use concurrency::{Instant, Mutex};
use file_cache::Anchor;
use global_store::posix::{Identified, PosixStore};
use rustix::fs::FileType;
use types::Identity;

use crate::beside::beside;
use crate::limits;

/// One file, directory, link or special file, named by an `O_PATH` descriptor: it stays the same whatever becomes of
/// its name. Minted by lookups and creations; lives as long as somebody refers to it.
pub struct Node {
    fd: Arc<OwnedFd>,
    who: Who,
    kind: FileType,
    ino: u64,
    /// What the file cache knows it by, made when first needed and shared while anybody has it.
    anchor: Mutex<Option<Weak<dyn Anchor>>>,
    /// When it was found to have no capabilities, on the clock of [`seconds`], until somebody has asked for them or set an attribute;
    /// 0: long ago.
    plain_s: AtomicU64,
    /// It was given capabilities through us.
    capable: AtomicBool,
}

/// What tells a file from others.
enum Who {
    /// Its identity.
    Lasting(Identity),
    /// What does as long as somebody has the file, and the identity once somebody needed it: a request to the store that who only
    /// looks at the file is spared.
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

    /// What tells it from every other file that is known, by whatever name, as long as it is.
    pub fn key(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Passing { key, .. } => key,
        }
    }

    /// Who it is. Of a node that nobody has identified yet ([`Agent::may_hold`](crate::Agent::may_hold), opening it): its key, of
    /// which no burst buffer knows anything.
    pub fn identity(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Passing { key, asked } => asked.get().map_or(key, |asked| &asked.identity),
        }
    }

    /// Whether `identity` tells who it is, for ever.
    pub(crate) fn is_identified(&self) -> bool {
        match &self.who {
            Who::Lasting(_) => true,
            Who::Passing { asked, .. } => asked.get().is_some(),
        }
    }

    /// Finds out who it is.
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
            FileType::RegularFile => store.anchor_identified(self.fd.clone(), self.identify(store)?.clone()),
            _ => store.anchor(self.fd.as_fd().try_clone_to_owned()?, None)?,
        };
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// What the file cache knows this regular file by, which was found at this path below the root just now.
    pub(crate) fn anchor_found(&self, store: &PosixStore, place: &Path) -> io::Result<Arc<dyn Anchor>> {
        let mut slot = self.anchor.lock();
        if let Some(anchor) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(anchor);
        }
        let anchor = store.anchor_found(self.fd.clone(), self.identify(store)?.clone(), place);
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// What the file cache knows this regular file by, of which nobody has an anchor yet. The file is opened for reading below, and read
    /// if it is no longer than `read_max`, while the store is asked who it is: whoever reads it first waits for its bytes alone.
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
        // Whoever opens it for himself hears what is wrong.
        let anchor = store.anchor_opened(self.fd.clone(), self.identity().clone(), place, opened.ok());
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    /// Makes the anchor of a file that was created just now, at `place` if it has a name; it keeps the descriptor that creation
    /// gave.
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

    /// It was created, or seen to have no capabilities, just now.
    pub(crate) fn note_plain(&self) {
        self.plain_s.store(seconds(), Ordering::Relaxed);
    }

    /// Whether it had no capabilities a moment ago and nobody has given it an attribute through us; asked once. The kernel asks for
    /// them before the first write through an open file, which is spared a look below by this.
    pub(crate) fn take_plain(&self) -> bool {
        let plain_s = self.plain_s.swap(0, Ordering::Relaxed);
        plain_s > 0 && seconds() - plain_s <= limits::PLAIN_S
    }

    /// It is given capabilities.
    pub(crate) fn note_capable(&self) {
        self.capable.store(true, Ordering::Relaxed);
    }

    /// Whether it was given capabilities through us, at whatever time.
    pub(crate) fn may_be_capable(&self) -> bool {
        self.capable.load(Ordering::Relaxed)
    }
}

/// Seconds since a moment of this process, from 1.
fn seconds() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    1 + FIRST.elapsed().as_secs()
}
