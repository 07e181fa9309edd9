//! Bringing nodes to the names that they have in the tree.

use std::io;
use std::sync::Arc;

use namespace::Inode;
use rustix::fs::RenameFlags;
use types::{HasErrno, reported};

use super::Run;
use super::acting::{changing, os};
use super::below::is_absent;
use super::creating::kind_of;
use super::items::Progress;
use crate::fault;
use crate::limits;
use crate::state::{NodeName, NodeNumber};

/// Finding about a wanted name in the store.
pub(super) enum Room {
    /// Nothing, now.
    Free,
    /// The node itself.
    Own,
    /// A file of this node, which is not to have the name.
    Replaceable(NodeNumber),
    /// A file of others, which the caller gives up.
    GivenUp,
    /// A directory of others, in which this one is to go on.
    Joined(Inode),
}

impl Run<'_> {
    /// Brings a node with names to its place, once. Errors: the node stays pending; the report has the reason.
    pub(super) fn settle(&mut self, number: NodeNumber) -> io::Result<()> {
        let item = self.item(number);
        let waits = || Err(reported(libc::EAGAIN, "waits for a directory"));
        match item.progress {
            _ if item.is_tombstone() || number == NodeNumber::ROOT => return Ok(()),
            Progress::Placed => return Ok(()),
            Progress::Doing | Progress::Failed => return waits(),
            Progress::Todo => {}
        }
        let is_directory = item.is_directory();
        self.item_mut(number).progress = Progress::Doing;
        let placed = self.place(number).and_then(|is_there| match is_there && !is_directory {
            true => self.finish(number).map(|()| is_there),
            false => Ok(is_there),
        });
        match placed {
            Ok(true) => {
                self.placed(number);
                Ok(())
            }
            Ok(false) => {
                self.item_mut(number).progress = Progress::Failed;
                self.done(number);
                Ok(())
            }
            Err(error) => {
                self.item_mut(number).progress = Progress::Failed;
                self.stuck(number, &error);
                waits()
            }
        }
    }

    /// Notes that a node is in its place. A directory gets its attributes later.
    pub(super) fn placed(&mut self, number: NodeNumber) {
        self.item_mut(number).progress = Progress::Placed;
        if self.item(number).is_directory() {
            self.settled.insert(number);
        }
    }

    /// Returns false if the node is gone.
    fn place(&mut self, number: NodeNumber) -> io::Result<bool> {
        let state = Arc::clone(&self.item(number).state);
        for name in &state.names {
            self.settle_directory(name.parent)?;
        }
        self.locate(number)?;
        if self.item(number).inode.is_none() && !self.create(number)? {
            return Ok(false);
        }
        self.arrange(number, &state.names)
    }

    /// Brings a directory and those above it to their places.
    pub(super) fn settle_directory(&mut self, number: NodeNumber) -> io::Result<()> {
        let (mut above, mut at) = (Vec::new(), number);
        while !self.settled.contains(&at) {
            above.push(at);
            let parent = match self.items.get(&at) {
                Some(item) => item.state.names.first().map(|name| name.parent),
                None => self.hands.tree.state(at).and_then(|state| state.names.first().map(|name| name.parent)),
            };
            at = parent.ok_or_else(|| reported(libc::EAGAIN, "waits for a directory that was removed meanwhile"))?;
            if above.len() > limits::PATH_BYTES_MAX {
                return Err(reported(libc::ELOOP, "the path is too long"));
            }
        }
        for directory in above.into_iter().rev() {
            if self.items.contains_key(&directory) {
                self.settle(directory)?;
            }
            self.settled.insert(directory);
        }
        Ok(())
    }

    /// Gives a node that the store has the wanted names, and takes others away.
    fn arrange(&mut self, number: NodeNumber, wanted: &[NodeName]) -> io::Result<bool> {
        let names = &self.item(number).names;
        let missing: Vec<NodeName> = wanted.iter().filter(|name| !names.contains(name)).cloned().collect();
        let mut surplus: Vec<NodeName> = names.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        for name in missing {
            let done = match surplus.pop() {
                Some(from) => self.rename(number, &from, &name)?,
                None => self.link(number, &name)?,
            };
            if !done {
                return Ok(false);
            }
        }
        surplus.iter().try_for_each(|name| self.unlink(number, name))?;
        Ok(true)
    }

    pub(super) fn parent_of(&mut self, name: &NodeName) -> io::Result<Arc<Inode>> {
        self.directory(name.parent)?.ok_or_else(|| reported(libc::ENOENT, "the directory is not in the store"))
    }

    fn rename(&mut self, number: NodeNumber, from: &NodeName, to: &NodeName) -> io::Result<bool> {
        if !self.note_durably(number, std::slice::from_ref(to))? {
            return Ok(false);
        }
        let renamed = self.rename_noted(number, from, to);
        if renamed.is_err() {
            self.doubt(number, to);
        }
        renamed.map(|()| true)
    }

    fn rename_noted(&mut self, number: NodeNumber, from: &NodeName, to: &NodeName) -> io::Result<()> {
        let (old, new) = (self.parent_of(from)?, self.parent_of(to)?);
        let creator = Arc::clone(&self.item(number).state.creator);
        let (fresh, over) = (RenameFlags::NOREPLACE.bits(), 0);
        let renamed = self.hands.rename_at(&creator, (&old, from), (&new, to), fresh);
        if renamed.as_ref().is_err_and(|error| error.errno() == Some(libc::EEXIST)) {
            match self.make_room(number, to, true)? {
                Room::Own => self.hands.remove_at(&creator, (&old, from), kind_of(&self.item(number).state.clone()))?,
                Room::Free => self.hands.rename_at(&creator, (&old, from), (&new, to), fresh)?,
                Room::Replaceable(victim) => {
                    // Looked for again, should this fail and yet take place.
                    self.item_mut(victim).located = false;
                    self.hands.rename_at(&creator, (&old, from), (&new, to), over)?;
                    self.item_mut(victim).names.retain(|name| name != to);
                }
                Room::GivenUp => self.hands.rename_at(&creator, (&old, from), (&new, to), over)?,
                Room::Joined(theirs) => return self.join(number, from, to, theirs),
            }
        } else {
            renamed?;
        }
        fault::point("apply.renamed");
        self.touched.extend([from.parent, to.parent]);
        let names = &mut self.item_mut(number).names;
        names.retain(|name| name != from && name != to);
        names.push(to.clone());
        Ok(())
    }

    fn link(&mut self, number: NodeNumber, to: &NodeName) -> io::Result<bool> {
        if !self.note_durably(number, std::slice::from_ref(to))? {
            return Ok(false);
        }
        let linked = self.link_noted(number, to);
        if linked.is_err() {
            self.doubt(number, to);
        }
        linked.map(|()| true)
    }

    fn link_noted(&mut self, number: NodeNumber, to: &NodeName) -> io::Result<()> {
        let (parent, item) = (self.parent_of(to)?, self.item(number));
        let (state, inode) = (Arc::clone(&item.state), item.inode.clone().expect("the store has the node"));
        let below = Arc::clone(&self.hands.store.namespace);
        let link = || changing(&state.creator, &|caller| below.link(caller, &inode, &parent, os(to)));
        let linked = link();
        if linked.as_ref().is_err_and(|error| error.errno() == Some(libc::EEXIST)) {
            if let Room::Free = self.make_room(number, to, false)? {
                link()?;
            }
        } else {
            linked?;
        }
        fault::point("apply.linked");
        self.touched.insert(to.parent);
        self.item_mut(number).names.push(to.clone());
        Ok(())
    }

    /// Notes that a step has failed, which may have brought a node to this name nevertheless.
    fn doubt(&mut self, number: NodeNumber, name: &NodeName) {
        let item = self.item_mut(number);
        item.located = false;
        if !item.names.contains(name) {
            item.names.push(name.clone());
        }
    }

    fn unlink(&mut self, number: NodeNumber, name: &NodeName) -> io::Result<()> {
        let (parent, state) = (self.parent_of(name)?, Arc::clone(&self.item(number).state));
        match self.hands.remove_at(&state.creator, (&parent, name), kind_of(&state)) {
            Err(error) if !is_absent(&error) => return Err(error),
            _ => {}
        }
        fault::point("apply.unlinked");
        self.touched.insert(name.parent);
        self.item_mut(number).names.retain(|other| other != name);
        Ok(())
    }

    /// Finds out who has a wanted name in the store, and takes the name from a node of this tree. Errors: `EEXIST` if somebody
    /// else has made the name.
    fn make_room(&mut self, number: NodeNumber, at: &NodeName, may_replace: bool) -> io::Result<Room> {
        let parent = self.parent_of(at)?;
        let found = match self.hands.lookup_at((&parent, at)) {
            Err(error) if is_absent(&error) => return Ok(Room::Free),
            found => found?,
        };
        let identity = found.inode.identity();
        if self.item(number).identity.as_ref() == Some(identity) {
            return Ok(Room::Own);
        }
        if !self.owners.contains_key(identity) {
            self.load_all();
        }
        let Some(victim) = self.owners.get(identity).copied() else {
            return self.room_of_others(number, (&parent, at), found.inode, may_replace);
        };
        if self.item(victim).state.names.contains(at) {
            return Err(reported(libc::EEXIST, "another node has this name in the store"));
        }
        self.locate(victim)?;
        let item = self.item(victim);
        let keeps = item.names.iter().any(|name| name != at && item.state.names.contains(name));
        let is_plain = !item.is_directory() && !self.item(number).is_directory();
        if may_replace && is_plain && (item.is_tombstone() || keeps) {
            return Ok(Room::Replaceable(victim));
        }
        self.park(victim, at)?;
        Ok(Room::Free)
    }

    /// Takes a name from a node that is to have another, or none. Meanwhile the node has a hidden one.
    fn park(&mut self, number: NodeNumber, at: &NodeName) -> io::Result<()> {
        let hidden = self.hands.hidden_in(NodeNumber::ROOT, number);
        if self.item(number).names.contains(&hidden) {
            return self.unlink(number, at);
        }
        if !self.note_durably(number, std::slice::from_ref(&hidden))? {
            return Err(reported(libc::EAGAIN, "the name is taken by a node that was removed meanwhile"));
        }
        let (from, root) = (self.parent_of(at)?, Arc::clone(&self.hands.store.root));
        let creator = Arc::clone(&self.item(number).state.creator);
        let flags = RenameFlags::NOREPLACE.bits();
        let parked = self.hands.rename_at(&creator, (&from, at), (&root, &hidden), flags);
        if parked.is_err() {
            self.doubt(number, &hidden);
            return parked;
        }
        fault::point("apply.parked");
        self.parked.push(number);
        self.touched.extend([at.parent, NodeNumber::ROOT]);
        let names = &mut self.item_mut(number).names;
        names.retain(|name| name != at);
        names.push(hidden);
        Ok(())
    }
}
