//! Creation of nodes that the store does not have, under hidden names.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use global_store::StoreFile;
use namespace::{Found, Inode, NameKind, NewMode, NewName};
use types::{HasErrno, reported};

use super::acting::{creating, os};
use super::below::is_absent;
use super::dressing::Dressing;
use super::{Hands, Run};
use crate::fault;
use crate::state::{DataPlace, NodeKind, NodeName, NodeNumber, NodeState};

/// Bits of a new directory's mode that its owner needs until its names are there.
const OWNER_WORKS: u16 = 0o700;

/// A node that is about to be created.
pub(super) struct Creation {
    pub state: Arc<NodeState>,
    /// Directory of the first name.
    pub parent: Arc<Inode>,
    /// Name that it gets: a hidden one, or its own in a directory that nobody sees yet.
    pub name: NodeName,
    /// Whether the directory is one that nobody sees yet.
    pub is_within: bool,
}

pub(super) fn kind_of(state: &NodeState) -> NameKind {
    if state.kind == NodeKind::Directory { NameKind::Directory } else { NameKind::File }
}

impl Run<'_> {
    /// Creates a node under a hidden name in the directory of its first name. Returns false if the node is gone.
    pub(super) fn create(&mut self, number: NodeNumber) -> io::Result<bool> {
        let Some(creation) = self.prepare(number)? else { return Ok(false) };
        self.hands.sync_log()?;
        let inode = self.hands.carry_out(&creation, &|| {})?;
        self.created(&creation, inode);
        Ok(true)
    }

    /// Returns all that the creation of a node needs, which the log has then; `None` if the node is gone.
    pub(super) fn prepare(&mut self, number: NodeNumber) -> io::Result<Option<Creation>> {
        let state = Arc::clone(&self.item(number).state);
        if matches!(state.data, DataPlace::BelowOnly | DataPlace::Outside) {
            let what = if state.kind == NodeKind::Directory { "directory" } else { "file" };
            return Err(reported(libc::ENOENT, &format!("the store has lost the {what}, which had its only content")));
        }
        let target = state.names[0].parent;
        let parent = self.directory(target)?.ok_or_else(|| reported(libc::ENOENT, "the directory is not there"))?;
        let hidden = self.hands.hidden_in(target, number);
        self.remove_leftovers(number, &hidden)?;
        let item = self.item_mut(number);
        (item.identity, item.names, item.located) = (None, Vec::new(), true);
        self.touched.insert(target);
        let is_noted = self.note(number, std::slice::from_ref(&hidden))?;
        Ok(is_noted.then_some(Creation { state, parent, name: hidden, is_within: false }))
    }

    /// Notes where a new node is.
    pub(super) fn created(&mut self, creation: &Creation, inode: Arc<Inode>) {
        let (state, name) = (&creation.state, creation.name.clone());
        let (number, identity) = (state.number, inode.identity().clone());
        self.owners.insert(identity.clone(), number);
        if state.kind == NodeKind::Directory {
            self.keep_open(number, Arc::clone(&inode));
        }
        let item = self.item_mut(number);
        (item.dressed, item.is_made) = (state.kind != NodeKind::Directory, true);
        (item.identity, item.names, item.inode) = (Some(identity), vec![name], Some(inode));
    }

    /// Removes what an earlier creation has left elsewhere.
    pub(super) fn remove_leftovers(&mut self, number: NodeNumber, hidden: &NodeName) -> io::Result<()> {
        let item = self.item(number);
        if item.identity.is_some() {
            return Ok(());
        }
        let (names, state) = (item.names.clone(), Arc::clone(&item.state));
        for name in names.iter().filter(|name| *name != hidden) {
            let Some(parent) = self.directory(name.parent)? else { continue };
            match self.hands.clear(&state.creator, (&parent, name), kind_of(&state)) {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Hands {
    /// Creates a node under a name that nobody sees, for which the log has all. Calls `made` when the name is there.
    pub(super) fn carry_out(&self, creation: &Creation, made: &dyn Fn()) -> io::Result<Arc<Inode>> {
        let Creation { state, parent, .. } = creation;
        let found = match state.kind {
            NodeKind::File => self.create_file(creation, made)?,
            _ => self.make(creation, made)?,
        };
        fault::point("apply.created");
        self.store.namespace.identify(&found.inode, &|_| true)?;
        let has_acl = self.hands_down_acl(parent)?;
        if state.kind == NodeKind::Directory {
            // It hands down what it has got itself, until it gets its attributes.
            self.acls.lock().insert(found.inode.identity().clone(), has_acl);
        } else {
            self.dress(&found.inode, state, &found.attributes, Dressing { is_new: true, has_acl })?;
        }
        Ok(Arc::new(found.inode))
    }

    fn create_file(&self, creation: &Creation, made: &dyn Fn()) -> io::Result<Found> {
        let Creation { state, parent, name, .. } = creation;
        let (files, mode) = (self.store.namespace.hidden_files(), u32::from(state.mode & 0o777));
        let (found, file) = creating(&state.creator, &|caller| files.create_hidden(caller, parent, os(name), mode))?;
        made();
        fault::point("apply.begun");
        self.write(state, &*file)?;
        Ok(found)
    }

    /// Writes the content of a file.
    pub(super) fn write(&self, state: &NodeState, file: &dyn StoreFile) -> io::Result<()> {
        if state.data != DataPlace::None {
            self.contents.write(state.number, state.data, file)?;
        }
        if state.data == DataPlace::None && state.size > 0 {
            file.set_len(state.size)?;
        }
        Ok(())
    }

    fn make(&self, creation: &Creation, made: &dyn Fn()) -> io::Result<Found> {
        let Creation { state, parent, name, is_within } = creation;
        let mode = |mode: u16| NewMode { mode: u32::from(mode & 0o777), umask: 0 };
        let new = match state.kind {
            NodeKind::Directory => NewName::Directory(mode(state.mode | OWNER_WORKS)),
            NodeKind::Symlink => NewName::Symlink(OsStr::from_bytes(&state.target)),
            kind => NewName::Special { kind: kind.file_type(), mode: mode(state.mode), device: state.device },
        };
        let below = &self.store.namespace;
        let make = || {
            creating(&state.creator, &|caller| match is_within {
                true => below.make(caller, parent, os(name), new),
                false => below.hidden_files().make_hidden(caller, parent, os(name), new),
            })
        };
        match make() {
            Err(error) if !is_within && error.errno() == Some(libc::EEXIST) => {
                self.clear(&state.creator, (parent, name), kind_of(state))?;
                make()?;
            }
            made => made?,
        }
        made();
        fault::point("apply.begun");
        self.lookup_at((parent, name))
    }
}
