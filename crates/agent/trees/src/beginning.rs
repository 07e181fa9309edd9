//! How a directory becomes a tree.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Delegate;
use namespace::{Caller, Found, Inode};
use types::Step;

use crate::holder::Holder;
use crate::limits;
use crate::mark;
use crate::noted_waiting::NotedWaiting;
use crate::open_tree::OpenTree;
use crate::probe;
use crate::record::TreeRecord;
use crate::registry::Trees;

impl Trees {
    /// Whether a directory that is made at this path may become a tree.
    pub(crate) fn wants(&self, caller: &Caller, path: &Path) -> bool {
        (self.settings.policy)(path).delegate != Delegate::Off
            && self.may_begin()
            && (self.settings.namespace.acts_for_all() || caller.uid == Caller::own().uid)
    }

    /// Whether any directory may become a tree now.
    pub(crate) fn may_begin(&self) -> bool {
        self.settings.background
            && !self.quiet.load(Ordering::Acquire)
            && self.len() < limits::TREES_MAX
            && self.has_room()
            && !self.store_lacks_room()
    }

    /// Makes a tree of a directory that was made just now, and returns it. If that is not possible, the directory stays as it is.
    pub(crate) fn begin(&self, caller: &Caller, parent: &Inode, name: &OsStr) -> Option<Arc<OpenTree>> {
        let begun = self.try_begin(caller, parent, name);
        begun.unwrap_or_else(|error| {
            tracing::warn!(%error, name = %name.display(), "a directory is not delegated");
            None
        })
    }

    fn try_begin(&self, caller: &Caller, parent: &Inode, name: &OsStr) -> io::Result<Option<Arc<OpenTree>>> {
        let namespace = &self.settings.namespace;
        let Found { inode, .. } = namespace.lookup(parent, name)?;
        namespace.identify(&inode, &|_| true)?;
        if !self.keeps(caller, &inode) {
            return Ok(None);
        }
        self.begin_at(inode, false).map(Some)
    }

    /// Makes a tree of a directory. `leased`: it existed before, so that its names are read when they are asked for.
    pub(crate) fn begin_at(&self, inode: Inode, leased: bool) -> io::Result<Arc<OpenTree>> {
        let namespace = &self.settings.namespace;
        let mut random = [0; 8];
        concurrency::random_bytes(&mut random)?;
        let id = format!("{:016x}", u64::from_le_bytes(random));
        let directory = self.settings.directory.join(&id);
        let path = namespace.path_of(&inode).unwrap_or_default();
        let mark = Holder::mark(&id, &self.settings.agent, &directory);
        let record = TreeRecord { identity: inode.identity().clone(), path, mark, leased };
        std::fs::create_dir_all(&directory).step("make the directory of a delegated tree")?;
        let opened = record
            .write(&directory)
            .and_then(|()| OpenTree::open(namespace, directory.clone(), &record, inode, &self.common));
        // The mark comes last: others must not wait for what this burst buffer does not have.
        let begun = opened.and_then(|tree| {
            *tree.noted_waiting.lock() = NotedWaiting::Nothing;
            let marked = tree.sync_place().and_then(|()| mark::set(&**namespace, &tree.root, &record.mark));
            marked.inspect_err(|_| tree.close()).map(|()| tree)
        });
        match begun {
            Ok(tree) => Ok(self.add(tree)),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// Whether the store keeps what a tree of this user would tell it. Asked once for each user; a refusal is told once.
    pub(crate) fn keeps(&self, caller: &Caller, directory: &Inode) -> bool {
        if let Some(known) = self.tried.lock().get(&caller.uid) {
            return *known;
        }
        let tried = probe::try_out(&*self.settings.namespace, caller, directory, &self.settings.agent);
        if let Err(error) = &tried {
            tracing::warn!(%error, uid = caller.uid, "new directories are not delegated");
        }
        self.tried.lock().insert(caller.uid, tried.is_ok());
        tried.is_ok()
    }
}
