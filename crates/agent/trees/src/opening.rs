//! Opening the trees that an earlier agent left, and the end, by command, of those that cannot be opened.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use data_store::Keep;
use delegation::NodeNumber;
use namespace::{Inode, KnownSince};
use types::{Identity, Step, reported};

use crate::files::{Packs, pack_of};
use crate::left::{states_of, waiting_of};
use crate::mark;
use crate::open_tree::{DATA, LOG, OpenTree, id_of};
use crate::record::TreeRecord;
use crate::registry::Trees;
use crate::saving::{Saving, free_name};
use crate::unopened::Unopened;
use crate::waiting::count;

impl Trees {
    /// Opens a tree that an earlier agent left, or notes why that is not possible.
    pub(crate) fn open_left(&self, directory: PathBuf) -> io::Result<()> {
        let read = TreeRecord::read(&directory).and_then(|record| match record {
            None if directory.join(LOG).exists() => {
                Err(reported(libc::EUCLEAN, "the record of a delegated tree is missing"))
            }
            record => Ok(record),
        });
        let (record, opened) = match read {
            // Nothing was logged yet: the record comes first.
            Ok(None) => (None, Ok(None)),
            Ok(Some(record)) => {
                let opened = self.open_recorded(&directory, &record);
                (Some(record), opened)
            }
            Err(error) => (None, Err(error)),
        };
        match opened {
            Ok(None) => std::fs::remove_dir_all(&directory).step("remove what is left of a delegated tree"),
            Ok(Some(tree)) => {
                self.add(tree);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, directory = %directory.display(), "a delegated tree cannot be opened");
                self.unopened.lock().push(Unopened { directory, record, error });
                Ok(())
            }
        }
    }

    /// Opens a tree, if anything of it is left: one without a mark was about to begin or to be given back.
    fn open_recorded(&self, directory: &Path, record: &TreeRecord) -> io::Result<Option<OpenTree>> {
        let namespace = &self.settings.namespace;
        let Some(root) = namespace.find(&record.identity, &record.path, KnownSince::Restart)? else {
            return match waiting_of(directory, &states_of(directory)?) {
                0 => Ok(None),
                waiting => {
                    let why = format!("the directory is gone from the global store, and {} for it", count(waiting));
                    Err(reported(libc::ENOENT, &why))
                }
            };
        };
        let is_ours = mark::get(&**namespace, &root)?.as_deref() == Some(&record.mark);
        let tree = OpenTree::open(namespace, directory.to_owned(), record, root, &self.common)?;
        match (is_ours, tree.tree.pending_len()) {
            (true, _) => Ok(Some(tree)),
            (false, 0) => {
                tree.close();
                Ok(None)
            }
            (false, waiting) => {
                tree.close();
                let why = format!("{}, and {} for it", mark::NOT_OURS, count(waiting as u64));
                Err(reported(libc::EBUSY, &why))
            }
        }
    }

    /// Tries once more to open those trees that could not be opened.
    pub(crate) fn open_again(&self) {
        let all = std::mem::take(&mut *self.unopened.lock());
        for tree in all {
            if let Err(error) = self.open_left(tree.directory.clone()) {
                self.unopened.lock().push(Unopened { error, ..tree });
            }
        }
    }

    /// Ends what waits in a tree that could not be opened. `None` if there is no such tree.
    pub(crate) fn resolve_unopened(&self, identity: &Identity, keep: Keep) -> Option<io::Result<Option<PathBuf>>> {
        let mut all = self.unopened.lock();
        let index = all.iter().position(|tree| tree.is_named(identity))?;
        let tree = all.remove(index);
        drop(all);
        let done = match keep {
            Keep::BurstBuffer => self.take_up(&tree).map(|()| None),
            Keep::Global => self.drop_unopened(&tree).map(|()| None),
            Keep::Both => self.save_unopened(&tree).and_then(|saved| self.drop_unopened(&tree).map(|()| Some(saved))),
        };
        if done.is_err() {
            self.unopened.lock().push(tree);
        }
        Some(done)
    }

    fn root_of(&self, tree: &Unopened) -> io::Result<Option<(Inode, TreeRecord)>> {
        let Some(record) = &tree.record else { return Ok(None) };
        let found = self.settings.namespace.find(&record.identity, &record.path, KnownSince::Restart)?;
        Ok(found.map(|root| (root, record.clone())))
    }

    /// Marks the directory of a tree as ours again, and opens the tree.
    fn take_up(&self, tree: &Unopened) -> io::Result<()> {
        let Some((root, record)) = self.root_of(tree)? else {
            return Err(reported(libc::ENOENT, "the directory is not in the global store"));
        };
        mark::set_again(&*self.settings.namespace, &root, &record.mark)?;
        match self.open_recorded(&tree.directory, &record)? {
            Some(tree) => drop(self.add(tree)),
            None => std::fs::remove_dir_all(&tree.directory).step("remove what is left of a delegated tree")?,
        }
        Ok(())
    }

    /// Gives up a tree, and the mark of its directory.
    fn drop_unopened(&self, tree: &Unopened) -> io::Result<()> {
        if let Some((root, record)) = self.root_of(tree)?
            && mark::get(&*self.settings.namespace, &root)?.as_deref() == Some(&record.mark)
        {
            mark::note_waiting(&*self.settings.namespace, &root, 0)?;
            mark::remove(&*self.settings.namespace, &root)?;
        }
        std::fs::remove_dir_all(&tree.directory).step("remove a delegated tree from the burst buffer")
    }

    /// Saves what can be read of a tree: its files by their names, or by numbers alone if the log is of no use.
    fn save_unopened(&self, tree: &Unopened) -> io::Result<PathBuf> {
        let name = saved_name(&tree.path(), &id_of(&tree.directory));
        let states = states_of(&tree.directory).unwrap_or_default();
        if states.iter().any(|state| state.number == NodeNumber::ROOT) {
            let saving = Saving::left(&states, tree.directory.join(DATA))?;
            return saving.save(NodeNumber::ROOT, &self.saved(), &name);
        }
        let (saved, data) = (self.saved(), tree.directory.join(DATA));
        let to = free_name(&saved, &name)?;
        let packs = Packs::open(pack_of(&data))?;
        std::fs::create_dir_all(&saved).and_then(|()| std::fs::rename(data, &to)).step("save the files of a tree")?;
        packs.save_all(&to).step("save the packed files of a tree")?;
        durable::sync_directory(&saved)?;
        Ok(to)
    }

    /// Directory of saved files.
    pub(crate) fn saved(&self) -> PathBuf {
        self.settings.directory.with_file_name("saved")
    }
}

/// Returns the name under which what has this path is saved.
pub(crate) fn saved_name(path: &Path, id: &Identity) -> OsString {
    let mut name = path.file_name().map_or_else(|| "directory".into(), OsString::from);
    name.push(format!(".{id}"));
    name
}
