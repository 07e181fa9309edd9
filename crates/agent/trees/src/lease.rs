//! How an existing directory becomes a tree: at the first lookup of its name, while no program has anything of it.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use concurrency::Mutex;
use config::Delegate;
use namespace::{Caller, Inode};
use types::NewTime;

use crate::limits;
use crate::open_tree::OpenTree;
use crate::registry::Trees;

/// Directories that programs may have something of, by their inode numbers. They are not leased any more.
#[derive(Default)]
pub struct MetDirectories(Mutex<HashSet<u64>>);

impl MetDirectories {
    /// Notes a directory. Returns whether it was met before, or may have been.
    pub(crate) fn meet(&self, ino: u64) -> bool {
        let mut met = self.0.lock();
        if met.len() >= limits::MET_MAX {
            return true;
        }
        !met.insert(ino)
    }
}

impl Trees {
    /// Makes a tree of a directory that is met for the first time, if its policy says so. `None`: it stays as it is, and is to be
    /// looked up again.
    pub(crate) fn lease(&self, directory: Inode) -> io::Result<Option<Arc<OpenTree>>> {
        let path = self.settings.namespace.path_of(&directory).unwrap_or_default();
        self.settings.namespace.identify(&directory, &|_| true)?;
        let leased = self.take_lease(directory);
        // The directory can be used as it is.
        Ok(leased.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "a directory is not delegated");
            None
        }))
    }

    /// Whether a directory is met for the first time, and its policy says that it is to be a tree.
    pub(crate) fn is_to_lease(&self, directory: &Inode) -> bool {
        let is_known = self.met.meet(directory.ino());
        let path = || self.settings.namespace.path_of(directory).unwrap_or_default();
        !is_known && (self.settings.policy)(&path()).delegate == Delegate::Lease && self.may_begin()
    }

    /// Makes a tree of the accelerated directory itself, if its policy says so. Errors: `ETIMEDOUT` if another agent has it.
    pub(crate) fn lease_root(&self) -> io::Result<()> {
        let namespace = &self.settings.namespace;
        let root = namespace.root()?;
        if self.rooted_at(&root)?.is_some() {
            return Ok(());
        }
        self.wait_for_mark(&root, &namespace.attributes(&root)?)?;
        if self.is_to_lease(&root) { self.lease(root).map(drop) } else { Ok(()) }
    }

    fn take_lease(&self, directory: Inode) -> io::Result<Option<Arc<OpenTree>>> {
        let (namespace, own) = (&self.settings.namespace, Caller::own());
        let before = namespace.attributes(&directory)?;
        let keeps = self.keeps(&own, &directory);
        if namespace.attributes(&directory)?.mtime != before.mtime {
            // The file with which that was tried.
            let times = [before.atime, before.mtime].map(|time| Some(NewTime::At(time)));
            namespace.set_times(&own, &directory, times)?;
        }
        if keeps { self.begin_at(directory, true).map(Some) } else { Ok(None) }
    }
}
