//! Names of the memory store, and which of their changes a crash reverts.

use std::io;
use std::path::Path;

use types::Identity;

use super::{MemoryStore, State};

impl MemoryStore {
    /// Makes crashes revert name changes since the last sync of the store, from now on. A file's new name is also made
    /// durable by `sync_name` of that file.
    pub fn set_forgets_names(&self) {
        self.state.lock().keep_names_from_now_on();
    }

    /// Renames a file, replacing a file that has the new name.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.state.lock();
        let identity = state.at(from.as_ref())?;
        state.names.remove(from.as_ref());
        if let Some(replaced) = state.names.insert(to.as_ref().to_path_buf(), identity.clone()) {
            state.touch(&replaced, |inode| inode.links -= 1)?;
        }
        state.touch(&identity, |_| ())
    }

    /// Gives a file another name.
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let identity = self.state.lock().at(from.as_ref())?;
        self.name(identity, to)
    }

    /// Gives a file a name, even if it has none.
    pub fn name(&self, identity: Identity, to: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.names.insert(to.as_ref().to_path_buf(), identity.clone());
        state.touch(&identity, |inode| inode.links += 1)
    }

    /// Removes a name. The file stays readable through its anchors.
    pub fn unlink(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        state.names.remove(path.as_ref());
        state.touch(&identity, |inode| inode.links -= 1)
    }
}

impl State {
    fn keep_names_from_now_on(&mut self) {
        self.durable_names = Some(self.names.clone());
    }

    /// Makes all names durable.
    pub(super) fn keep_names(&mut self) {
        if self.durable_names.is_some() {
            self.keep_names_from_now_on();
        }
    }

    /// Makes the names of one file durable.
    pub(super) fn keep_names_of(&mut self, identity: &Identity) {
        if let Some(durable) = &mut self.durable_names {
            let names = self.names.iter().filter(|(_, named)| *named == identity);
            durable.extend(names.map(|(path, named)| (path.clone(), named.clone())));
        }
    }

    /// Reverts the names to the durable ones, after a crash.
    pub(super) fn restore_names(&mut self) {
        let Some(durable) = &self.durable_names else { return };
        self.names.clone_from(durable);
        for (identity, inode) in &mut self.files {
            inode.links = durable.values().filter(|named| *named == identity).count() as u64;
        }
    }
}
