//! Finding in the store what the log says is there.

use std::io;
use std::sync::Arc;

use namespace::Inode;
use types::{HasErrno, Identity};

use super::{Hands, Run};
use crate::fault;
use crate::state::{BelowCopy, BelowState, NodeName, NodeNumber};

/// Names at which a file was found, and the file. `false`: not every name could be looked at.
struct Sought {
    names: Vec<NodeName>,
    inode: Option<Arc<Inode>>,
    complete: bool,
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE))
}

impl Run<'_> {
    /// Returns a directory of the store; `None` if the store has none for this node.
    pub(super) fn directory(&mut self, number: NodeNumber) -> io::Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.directories.get(&number) {
            return Ok(Some(Arc::clone(inode)));
        }
        if self.items.contains_key(&number) {
            self.locate(number)?;
            return Ok(self.item(number).inode.clone());
        }
        let Some(state) = self.hands.tree.state(number) else { return Ok(None) };
        let BelowState::At(copy) = &state.below else { return Ok(None) };
        let Some(identity) = &copy.identity else { return Ok(None) };
        if !self.seeking.insert(number) {
            return Ok(None);
        }
        let sought = self.seek(identity, &copy.names, true);
        self.seeking.remove(&number);
        let inode = sought?.inode;
        if let Some(inode) = &inode {
            self.directories.insert(number, Arc::clone(inode));
        }
        Ok(inode)
    }

    /// Looks for a pending node at all names where it may be.
    pub(super) fn locate(&mut self, number: NodeNumber) -> io::Result<()> {
        let item = self.item(number);
        if item.located || number == NodeNumber::ROOT {
            return Ok(());
        }
        let Some(identity) = item.identity.clone() else { return Ok(()) };
        let (names, is_directory) = (item.names.clone(), item.is_directory());
        if !self.seeking.insert(number) {
            return Ok(());
        }
        let sought = self.seek(&identity, &names, is_directory);
        self.seeking.remove(&number);
        let sought = sought?;
        if sought.inode.is_none() && !sought.complete {
            return Ok(());
        }
        if let Some(inode) = sought.inode.as_ref().filter(|_| is_directory) {
            self.directories.insert(number, Arc::clone(inode));
        }
        let item = self.item_mut(number);
        (item.names, item.inode, item.located) = (sought.names, sought.inode, true);
        Ok(())
    }

    fn seek(&mut self, identity: &Identity, names: &[NodeName], only_one: bool) -> io::Result<Sought> {
        let mut sought = Sought { names: Vec::new(), inode: None, complete: true };
        for name in names {
            let Some(parent) = self.directory(name.parent)? else {
                sought.complete &= !self.seeking.contains(&name.parent);
                continue;
            };
            match self.hands.lookup_at((&parent, name)) {
                Ok(found) if found.inode.identity() == identity => {
                    sought.names.push(name.clone());
                    sought.inode = Some(Arc::new(found.inode));
                    if only_one {
                        break;
                    }
                }
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sought)
    }

    /// Records where a node is, and where a step that follows may bring it. Returns false if the node is gone.
    pub(super) fn note(&mut self, number: NodeNumber, more: &[NodeName]) -> io::Result<bool> {
        let item = self.item(number);
        let mut names = item.names.clone();
        names.extend(more.iter().filter(|name| !item.names.contains(name)).cloned());
        self.hands.note_at(number, item.identity.clone(), names)
    }

    /// Returns what the log is to say of a node when all is done.
    pub(super) fn record(&self, number: NodeNumber) -> BelowState {
        let item = self.item(number);
        if number == NodeNumber::ROOT {
            return item.state.below.clone();
        }
        BelowState::At(Arc::new(BelowCopy { identity: item.identity.clone(), names: item.names.clone() }))
    }
}

impl Hands {
    /// Records that a node is at some of these names, or will be. Returns false if the node is gone.
    pub(super) fn note_at(
        &self,
        number: NodeNumber,
        identity: Option<Identity>,
        names: Vec<NodeName>,
    ) -> io::Result<bool> {
        let noted = self.tree.note_below(number, BelowState::At(Arc::new(BelowCopy { identity, names })))?;
        fault::point("apply.noted");
        Ok(noted)
    }
}
