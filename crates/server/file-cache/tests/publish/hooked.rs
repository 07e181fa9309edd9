//! A store in which something happens between two steps of a publication.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use global_store::posix::PosixStore;
use global_store::{Access, Anchor, Attributes, Dressed, GlobalStore, OpenFile, Successor};
use parking_lot::Mutex;
use types::{Identity, Timestamp};

/// Where something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The new file has got what the other has; how often it had it before.
    Dressed(u32),
    /// It has taken the name.
    Placed,
    /// It was asked whether it can have what the other has.
    Fit,
    /// Its directory is about to be synced.
    Syncing,
    /// A name is synced in place, without any publication.
    SyncingInPlace,
}

type Hook = Box<dyn FnMut(Step) -> io::Result<()> + Send>;

/// A POSIX store with a hook.
#[derive(Clone)]
pub struct Hooked {
    pub store: PosixStore,
    hook: Arc<Mutex<Option<Hook>>>,
    blind: Blind,
    /// Names synced in place.
    pub synced: Arc<AtomicU32>,
}

/// What a store cannot tell.
#[derive(Clone, Copy, Default)]
pub struct Blind {
    /// The paths of files that were found by handle.
    pub paths: bool,
    /// What is in some of its directories.
    pub walks: bool,
    /// Whether a name is on the medium.
    pub syncs: bool,
}

impl Hooked {
    pub fn new(store: PosixStore, blind: Blind) -> Hooked {
        Hooked { store, hook: Arc::default(), blind, synced: Arc::default() }
    }

    pub fn at(&self, hook: impl FnMut(Step) -> io::Result<()> + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    fn pass(&self, step: Step) -> io::Result<()> {
        // A hook may use the store itself.
        let taken = self.hook.lock().take();
        let Some(mut hook) = taken else { return Ok(()) };
        let told = hook(step);
        self.hook.lock().get_or_insert(hook);
        told
    }

    pub fn wrap(&self, anchor: Arc<dyn Anchor>) -> Arc<dyn Anchor> {
        Arc::new(HookedAnchor { anchor, all: self.clone(), lost: false })
    }
}

impl GlobalStore for Hooked {
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        let found = self.store.locate(identity, hint, false)?;
        if found.is_none() && scan && self.blind.walks {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let found = if scan { self.store.locate(identity, hint, true)? } else { found };
        Ok(found.map(|anchor| {
            let lost = self.blind.paths && anchor.path_hint() != hint;
            Arc::new(HookedAnchor { anchor, all: self.clone(), lost }) as Arc<dyn Anchor>
        }))
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.store.sync_names()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn finds_by_identity(&self) -> bool {
        self.store.finds_by_identity()
    }

    fn remove_hidden(&self, path: &Path) -> io::Result<()> {
        self.store.remove_hidden(path)
    }
}

struct HookedAnchor {
    anchor: Arc<dyn Anchor>,
    all: Hooked,
    lost: bool,
}

impl Anchor for HookedAnchor {
    fn identity(&self) -> &Identity {
        self.anchor.identity()
    }

    fn attributes(&self) -> io::Result<Attributes> {
        self.anchor.attributes()
    }

    fn open(&self, access: Access) -> io::Result<Box<dyn OpenFile>> {
        self.anchor.open(access)
    }

    fn path_hint(&self) -> PathBuf {
        if self.lost { PathBuf::new() } else { self.anchor.path_hint() }
    }

    fn sync_name(&self) -> io::Result<()> {
        self.all.pass(Step::SyncingInPlace)?;
        if self.all.blind.syncs {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.all.synced.fetch_add(1, Ordering::Relaxed);
        self.anchor.sync_name()
    }

    fn set_atime(&self, atime: Timestamp) -> io::Result<()> {
        self.anchor.set_atime(atime)
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.anchor.mark()
    }

    fn set_mark(&self, mark: Option<&[u8]>) -> io::Result<()> {
        self.anchor.set_mark(mark)
    }

    fn begin_successor(&self, hidden: &OsStr) -> io::Result<Option<Box<dyn Successor>>> {
        let all = self.all.clone();
        let begun = self.anchor.begin_successor(hidden)?;
        Ok(begun.map(|next| Box::new(HookedSuccessor { next, all, dressed: Mutex::default() }) as Box<dyn Successor>))
    }
}

struct HookedSuccessor {
    next: Box<dyn Successor>,
    all: Hooked,
    dressed: Mutex<u32>,
}

impl Successor for HookedSuccessor {
    fn identity(&self) -> &Identity {
        self.next.identity()
    }

    fn file(&self) -> &dyn OpenFile {
        self.next.file()
    }

    fn anchor(&self) -> Arc<dyn Anchor> {
        self.next.anchor()
    }

    fn is_fit(&self) -> io::Result<bool> {
        let fit = self.next.is_fit()?;
        self.all.pass(Step::Fit)?;
        Ok(fit)
    }

    fn dress(&self) -> io::Result<Dressed> {
        let dressed = self.next.dress()?;
        let mut times = self.dressed.lock();
        *times += 1;
        self.all.pass(Step::Dressed(*times - 1))?;
        Ok(dressed)
    }

    fn take_place(&mut self) -> io::Result<bool> {
        let placed = self.next.take_place()?;
        self.all.pass(Step::Placed)?;
        Ok(placed)
    }

    fn is_placed(&self) -> Option<bool> {
        self.next.is_placed()
    }

    fn sync_name(&self) -> io::Result<()> {
        self.all.pass(Step::Syncing)?;
        self.next.sync_name()
    }
}
