//! How an existing directory becomes a tree: at the first lookup of its name, while no program has anything of it.

use std::collections::HashSet;
use std::io;
use std::path::Path;
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
    /// Makes a tree of a directory that is met for the first time, if its policy says so. `None`: it stays as it is.
    pub(crate) fn lease(&self, directory: &Inode) -> io::Result<Option<Arc<OpenTree>>> {
        if self.met.meet(directory.ino()) {
            return Ok(None);
        }
        let path = self.settings.namespace.path_of(directory).unwrap_or_default();
        self.lease_at(directory, &path)
    }

    fn lease_at(&self, directory: &Inode, path: &Path) -> io::Result<Option<Arc<OpenTree>>> {
        if !self.wants_lease(path) {
            return Ok(None);
        }
        self.settings.namespace.identify(directory, &|_| true)?;
        let leased = self.take_lease(directory, path);
        // The directory can be used as it is.
        Ok(leased.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "a directory is not delegated");
            None
        }))
    }

    /// Makes a tree of the accelerated directory itself, if its policy says so. Errors: `ETIMEDOUT` if another agent has it.
    pub(crate) fn lease_root(&self) -> io::Result<()> {
        let namespace = &self.settings.namespace;
        let root = namespace.root()?;
        if self.rooted_at(&root)?.is_some() {
            return Ok(());
        }
        self.wait_for_mark(&root, &namespace.attributes(&root)?)?;
        self.met.meet(root.ino());
        self.lease_at(&root, "".as_ref()).map(drop)
    }

    fn wants_lease(&self, path: &Path) -> bool {
        self.may_begin() && (self.settings.policy)(path).delegate == Delegate::Lease
    }

    fn take_lease(&self, directory: &Inode, path: &Path) -> io::Result<Option<Arc<OpenTree>>> {
        let (namespace, own) = (&self.settings.namespace, Caller::own());
        let before = namespace.attributes(directory)?;
        let keeps = self.keeps(&own, directory);
        if namespace.attributes(directory)?.mtime != before.mtime {
            // The file with which that was tried.
            let times = [before.atime, before.mtime].map(|time| Some(NewTime::At(time)));
            namespace.set_times(&own, directory, times)?;
        }
        if !keeps {
            return Ok(None);
        }
        let Some(root) = namespace.find(directory.identity(), path, namespace::KnownSince::InUse)? else {
            return Ok(None);
        };
        self.begin_at(root, true).map(Some)
    }
}
