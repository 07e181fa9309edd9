//! A store with a hook between the steps of a publication.
#![allow(dead_code)] // Each test binary uses its part.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::HasErrno;

use global_store::posix::PosixStore;
use global_store::{Access, Anchor, Dressed, GlobalStore, StoreAttributes, StoreFile, Successor, SyncPoint};
use parking_lot::Mutex;
use types::{Identity, Timestamp};

/// Step at which the hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The new file exists, and is empty.
    Begun,
    /// The new file has the owner, mode and attributes of the former one. The number says how often that was done
    /// before. `EOPNOTSUPP`: the new file cannot have them.
    Dressed(u32),
    /// The new file has taken the name.
    Placed,
    /// The directory of the new file is about to be synced.
    Syncing,
}

type Hook = Box<dyn FnMut(Step) -> io::Result<()> + Send>;

/// A POSIX store with a hook.
#[derive(Clone)]
pub struct Hooked {
    pub store: PosixStore,
    hook: Arc<Mutex<Option<Hook>>>,
    /// The store does not say at once whether there is a hidden file.
    silent: Arc<AtomicBool>,
}

impl Hooked {
    pub fn new(store: PosixStore, silent: bool) -> Hooked {
        Hooked { store, hook: Arc::default(), silent: Arc::new(silent.into()) }
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
        Arc::new(HookedAnchor { anchor, all: self.clone() })
    }
}

impl GlobalStore for Hooked {
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        Ok(self.store.locate(identity, hint, scan)?.map(|anchor| self.wrap(anchor)))
    }

    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>> {
        self.store.sync_point()
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

    fn remove_hidden(&self, path: &Path) -> io::Result<bool> {
        if self.silent.swap(false, Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        self.store.remove_hidden(path)
    }
}

struct HookedAnchor {
    anchor: Arc<dyn Anchor>,
    all: Hooked,
}

impl Anchor for HookedAnchor {
    fn identity(&self) -> &Identity {
        self.anchor.identity()
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        self.anchor.attributes()
    }

    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>> {
        self.anchor.open(access)
    }

    fn path_hint(&self) -> PathBuf {
        self.anchor.path_hint()
    }

    fn sync_name(&self) -> io::Result<()> {
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
        all.pass(Step::Begun)?;
        Ok(begun.map(|next| Box::new(HookedSuccessor { next, all, dressed: Mutex::default() }) as Box<dyn Successor>))
    }
}

struct HookedSuccessor {
    next: Box<dyn Successor>,
    all: Hooked,
    dressed: Mutex<u32>,
}

impl Successor for HookedSuccessor {
    fn file(&self) -> &dyn StoreFile {
        self.next.file()
    }

    fn dress(&self) -> io::Result<Dressed> {
        let dressed = self.next.dress()?;
        let mut times = self.dressed.lock();
        *times += 1;
        match self.all.pass(Step::Dressed(*times - 1)) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(Dressed::Unfit),
            done => done.map(|()| dressed),
        }
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
