//! Finding in the store what the log says is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use namespace::Inode;
use types::{HasErrno, Identity};

use super::acting::is_hidden_name;
use super::items::has_content;
use super::{Hands, Run};
use crate::fault;
use crate::limits;
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
        if let Some(inode) = self.directories.get(number) {
            return Ok(Some(inode));
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
            self.keep_open(number, Arc::clone(inode));
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
            self.keep_open(number, Arc::clone(inode));
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

    /// Records where a node is, where it was, and where a step that follows may bring it. Returns false if the node is gone.
    pub(super) fn note(&mut self, number: NodeNumber, more: &[NodeName]) -> io::Result<bool> {
        let item = self.item(number);
        let noted = item.noted.as_deref().cloned().unwrap_or_default();
        let is_same = noted.identity == item.identity;
        // Without an identity only hidden names tell whose they are.
        let stays = |name: &&NodeName| is_same && item.identity.is_some() || is_hidden_name(name);
        let mut names: Vec<NodeName> = noted.names.iter().filter(stays).cloned().collect();
        if names.len() + item.names.len() + more.len() > limits::NAMES_BELOW_MAX {
            names.clear();
        }
        for name in item.names.iter().chain(more) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let doubtful = noted.doubtful || has_content(&item.state);
        let copy = Arc::new(BelowCopy { identity: item.identity.clone(), names, doubtful });
        if item.noted.as_ref() == Some(&copy) {
            return Ok(true);
        }
        let is_noted = self.hands.note_at(number, Arc::clone(&copy))?;
        self.item_mut(number).noted = Some(copy);
        Ok(is_noted)
    }

    /// Records as [`note`](Run::note) does, durably.
    pub(super) fn note_durably(&mut self, number: NodeNumber, more: &[NodeName]) -> io::Result<bool> {
        Ok(self.note(number, more)? && self.hands.sync_log().map(|()| true)?)
    }

    /// Returns what the log is to say of a node when all is done and the store is synced.
    pub(super) fn record(&self, number: NodeNumber) -> BelowState {
        let item = self.item(number);
        if number == NodeNumber::ROOT {
            return item.state.below.clone();
        }
        let (identity, names) = (item.identity.clone(), item.names.clone());
        BelowState::At(Arc::new(BelowCopy { identity, names, doubtful: false }))
    }

    /// Forgets where a node is: all names count where it may be.
    pub(super) fn forget_place(&mut self, number: NodeNumber) {
        let item = self.item_mut(number);
        item.located = false;
        let names = item.noted.iter().flat_map(|copy| copy.names.clone()).collect::<Vec<_>>();
        names.into_iter().for_each(|name| {
            if !item.names.contains(&name) {
                item.names.push(name)
            }
        });
    }
}

impl Hands {
    /// Records what the store has of a node, or will have. Returns false if the node is gone.
    fn note_at(&self, number: NodeNumber, copy: Arc<BelowCopy>) -> io::Result<bool> {
        let is_noted = self.tree.note_below(number, BelowState::At(copy))?;
        self.noted.store(self.tree.log().end(), Ordering::Release);
        fault::point("apply.noted");
        Ok(is_noted)
    }

    /// Makes all of the log durable: states that the store gets must not be lost to a crash of the machine.
    pub(super) fn sync_all_of_log(&self) -> io::Result<()> {
        self.tree.log().sync(self.tree.log().end())
    }

    /// Makes what was noted durable, before the store is changed by it.
    pub(super) fn sync_log(&self) -> io::Result<()> {
        self.tree.log().sync(self.noted.load(Ordering::Acquire))?;
        fault::point("apply.logged");
        Ok(())
    }
}
