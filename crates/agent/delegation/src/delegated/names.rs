//! Names of a delegated tree.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use global_store::Anchor;
use global_store::hidden::is_hidden;
use namespace::{Caller, Found, Inode, KnownSince, NameKind, Names, NewFile, NewMode, NewName, OpenDirectory, plain};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use types::Identity;

use super::anchor::NodeAnchor;
use super::listing::Listing;
use super::{DelegatedTree, Draft, Inner, Shared};
use crate::limits;
use crate::rules::{Capability, READ, WRITE, has, may, now};
use crate::short_name::ShortName;
use crate::state::{Credentials, NodeKind, NodeName, NodeNumber, NodeState};
use crate::tree::Tree;

/// Directory and name, as a call gives them.
type Place<'a> = (u32, &'a [u8]);

fn node_name(tree: &Tree, (directory, name): Place<'_>) -> Result<NodeName, Errno> {
    let name = ShortName::new(name).ok_or(Errno::INVAL)?;
    Ok(NodeName { parent: tree.member(directory).number, name })
}

/// Makes a node with its first name.
fn make_named(
    (shared, inner): (&Arc<Shared>, &mut Inner),
    (caller, creator): (&Caller, Arc<Credentials>),
    place: Place<'_>,
    (kind, mode): (NodeKind, NewMode),
    edit: impl FnOnce(&mut NodeState),
) -> io::Result<u32> {
    let mut draft = inner.draft(shared);
    let dress = inner.tree.dressed(caller, place.0, kind, mode);
    let mut state = inner.new_state(creator, kind, dress, draft.time)?;
    edit(&mut state);
    state.names.push(node_name(&inner.tree, place)?);
    let number = state.number;
    draft.change(state);
    draft.touch(&inner.tree, place.0);
    inner.commit(shared, draft)?;
    Ok(inner.tree.slot_of(number).expect("just made"))
}

/// Makes a file without a name.
fn make_unnamed(
    inner: &mut Inner,
    (caller, creator): (&Caller, Arc<Credentials>),
    directory: u32,
    (mode, linkable): (NewMode, bool),
) -> Result<u32, Errno> {
    let dress = inner.tree.dressed(caller, directory, NodeKind::File, mode);
    let state = inner.new_state(creator, NodeKind::File, dress, now())?;
    Ok(inner.tree.apply_unlogged(state, linkable))
}

impl Names for DelegatedTree {
    fn root(&self) -> io::Result<Inode> {
        let inner = self.shared.inner.read();
        let root = inner.tree.slot_of(NodeNumber::ROOT).ok_or(Errno::STALE)?;
        Ok(self.shared.inode(&inner.tree, root))
    }

    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        if is_hidden(name) {
            return Err(Errno::NOENT.into());
        }
        let (name, parent) = (plain(name)?.as_bytes(), self.shared.slot(parent)?);
        let inner = self.shared.inner.read();
        let slot = inner.tree.find(parent, name)?.ok_or(Errno::NOENT)?;
        Ok(self.shared.found(&inner.tree, slot))
    }

    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)> {
        let directory = self.shared.slot(parent)?;
        let name = new.name.map(plain).transpose()?;
        let creator = self.shared.callers.credentials(caller);
        let mut inner = self.shared.change();
        let tree = &inner.tree;
        match name.map(|name| tree.may_make(caller, directory, name.as_bytes())) {
            Some(Err(Errno::EXIST)) if !new.exclusive => return Err(Errno::STALE.into()),
            Some(may_make) => may_make?,
            None => {
                tree.check_directory(directory)?;
                tree.may_write_names(caller, directory)?;
            }
        }
        let (shared, mode) = (&self.shared, new.mode);
        let slot = match name {
            Some(name) => {
                let (place, data) = ((directory, name.as_bytes()), shared.below.new_place());
                let made =
                    make_named((shared, &mut *inner), (caller, creator), place, (NodeKind::File, mode), |state| {
                        state.data = data;
                    });
                if made.is_err() {
                    shared.below.return_place(data);
                }
                made?
            }
            None => make_unnamed(&mut inner, (caller, creator), directory, (mode, !new.exclusive))?,
        };
        let found = shared.found(&inner.tree, slot);
        if name.is_none() {
            // Whoever is handed the file holds it now.
            shared.holders.forget(slot);
        }
        let held = shared.hold(&inner.tree, slot);
        Ok((found, Arc::new(NodeAnchor::new(held))))
    }

    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        let (directory, name) = (self.shared.slot(parent)?, plain(name)?.as_bytes());
        if let NewName::Symlink(target) = new {
            match target.len() {
                0 => return Err(Errno::NOENT.into()),
                1..=limits::TARGET_BYTES_MAX => {}
                _ => return Err(Errno::NAMETOOLONG.into()),
            }
        }
        let creator = self.shared.callers.credentials(caller);
        let mut inner = self.shared.change();
        inner.tree.may_make(caller, directory, name)?;
        let (kind, mode) = match new {
            NewName::Directory(mode) => (NodeKind::Directory, mode),
            NewName::Special { kind, mode, .. } => (NodeKind::of(kind).ok_or(Errno::INVAL)?, mode),
            NewName::Symlink(_) => (NodeKind::Symlink, NewMode { mode: 0o777, umask: 0 }),
        };
        if kind.is_device() && !has(caller, Capability::Mknod) {
            return Err(Errno::PERM.into());
        }
        make_named((&self.shared, &mut *inner), (caller, creator), (directory, name), (kind, mode), |state| match new {
            NewName::Special { device, .. } if kind.is_device() => state.device = device,
            NewName::Symlink(target) => state.target = target.as_bytes().into(),
            _ => {}
        })
        .map(drop)
    }

    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()> {
        let (slot, directory) = (self.shared.slot(inode)?, self.shared.slot(parent)?);
        let name = plain(name)?.as_bytes();
        let mut inner = self.shared.change();
        let tree = &inner.tree;
        tree.may_search(caller, directory)?;
        if tree.find(directory, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        tree.may_link(caller, slot)?;
        tree.may_write_names(caller, directory)?;
        let member = tree.member(slot);
        let (names, is_linkable) = (member.names(), member.is_linkable());
        match names {
            _ if member.is_directory() => return Err(Errno::PERM.into()),
            0 if !is_linkable => return Err(Errno::NOENT.into()),
            limits::LINKS_MAX.. => return Err(Errno::MLINK.into()),
            _ => {}
        }
        let mut draft = inner.draft(&self.shared);
        let mut state = tree.state(slot);
        state.names.push(node_name(tree, (directory, name))?);
        state.ctime = draft.time;
        draft.change(state);
        draft.touch(tree, directory);
        inner.commit(&self.shared, draft)
    }

    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        let (directory, name) = (self.shared.slot(parent)?, plain(name)?.as_bytes());
        let mut inner = self.shared.change();
        let tree = &inner.tree;
        tree.may_search(caller, directory)?;
        let victim = tree.find(directory, name)?.ok_or(Errno::NOENT)?;
        tree.may_remove(caller, directory, victim, what == NameKind::Directory)?;
        if what == NameKind::Directory && tree.child_count(victim) > 0 {
            return Err(Errno::NOTEMPTY.into());
        }
        let mut draft = inner.draft(&self.shared);
        draft.remove(tree, victim, &node_name(tree, (directory, name))?);
        draft.touch(tree, directory);
        inner.commit(&self.shared, draft)
    }

    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        let from = (self.shared.slot(from.0)?, plain(from.1)?.as_bytes());
        let to = (self.shared.slot(to.0)?, plain(to.1)?.as_bytes());
        if !known.contains(flags) || flags == known {
            return Err(Errno::INVAL.into());
        }
        let mut inner = self.shared.change();
        let Some((source, target)) = may_rename(&inner.tree, caller, from, to, flags)? else { return Ok(()) };
        let mut draft = inner.draft(&self.shared);
        draft_rename(&mut draft, &inner.tree, (source, from), (target, to), flags)?;
        inner.commit(&self.shared, draft)
    }

    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let (slot, inner) = (self.shared.slot(inode)?, self.shared.inner.read());
        match inner.tree.member(slot).kind {
            NodeKind::Symlink => Ok(inner.tree.member(slot).target().to_vec()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>> {
        let held = self.shared.held(inode)?;
        let inner = self.shared.inner.read();
        inner.tree.check_directory(held.slot)?;
        may(caller, inner.tree.member(held.slot), READ)?;
        drop(inner);
        Ok(Box::new(Listing::new(held)))
    }

    fn find(&self, identity: &Identity, _hint: &Path, _since: KnownSince) -> io::Result<Option<Inode>> {
        let Some(number) = self.shared.node_of_key(identity) else { return Ok(None) };
        let inner = self.shared.inner.read();
        let slot = inner.tree.slot_of(number).filter(|slot| inner.tree.link_count(*slot) > 0);
        Ok(slot.map(|slot| self.shared.inode(&inner.tree, slot)))
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        let slot = self.shared.slot(inode).ok()?;
        path_of(&self.shared.inner.read().tree, slot)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync()
    }
}

/// Returns the path of a node by its first name; `None` if it has none, or is too long.
pub(super) fn path_of(tree: &Tree, slot: u32) -> Option<PathBuf> {
    let (mut at, mut names, mut bytes) = (slot, Vec::new(), 0);
    while let Some((parent, name)) = tree.first_name(at) {
        bytes += name.len() + 1;
        if bytes > limits::PATH_BYTES_MAX {
            return None;
        }
        names.push(name);
        at = parent;
    }
    names.reverse();
    let is_root = tree.member(at).number == NodeNumber::ROOT;
    is_root.then(|| OsString::from_vec(names.join(&b'/')).into())
}

/// Checks a rename. Returns the nodes of both names, or `None` if they are one node and nothing is to be done.
fn may_rename(
    tree: &Tree,
    caller: &Caller,
    from: Place<'_>,
    to: Place<'_>,
    flags: RenameFlags,
) -> Result<Option<(u32, Option<u32>)>, Errno> {
    tree.may_search(caller, from.0)?;
    tree.may_search(caller, to.0)?;
    let source = tree.find(from.0, from.1)?.ok_or(Errno::NOENT)?;
    let target = tree.find(to.0, to.1)?;
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    match target {
        Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
        None if exchange => return Err(Errno::NOENT),
        _ => {}
    }
    if tree.is_within(to.0, source) {
        return Err(Errno::INVAL);
    }
    if target.is_some_and(|target| tree.is_within(from.0, target)) {
        return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
    }
    if target == Some(source) {
        return Ok(None);
    }
    let is_directory = |slot: u32| tree.member(slot).is_directory();
    let moves = is_directory(source);
    tree.may_remove(caller, from.0, source, moves)?;
    match target {
        None => tree.may_write_names(caller, to.0)?,
        Some(target) if exchange => tree.may_remove(caller, to.0, target, is_directory(target))?,
        Some(target) => tree.may_remove(caller, to.0, target, moves)?,
    }
    if from.0 != to.0 {
        for moved in [Some(source), target.filter(|_| exchange)].into_iter().flatten() {
            if is_directory(moved) {
                may(caller, tree.member(moved), WRITE)?;
            }
        }
    }
    if target.is_some_and(|target| !exchange && moves && tree.child_count(target) > 0) {
        return Err(Errno::NOTEMPTY);
    }
    Ok(Some((source, target)))
}

/// Adds a rename that is permitted.
fn draft_rename(
    draft: &mut Draft,
    tree: &Tree,
    (source, from): (u32, Place<'_>),
    (target, to): (Option<u32>, Place<'_>),
    flags: RenameFlags,
) -> Result<(), Errno> {
    let (old, new) = (node_name(tree, from)?, node_name(tree, to)?);
    let moved = |slot: u32, old: &NodeName, new: &NodeName| {
        let mut state = tree.state(slot);
        state.ctime = draft.time;
        state.names.iter_mut().filter(|name| *name == old).for_each(|name| *name = new.clone());
        state
    };
    let source = moved(source, &old, &new);
    match target {
        Some(target) if flags.contains(RenameFlags::EXCHANGE) => {
            let target = moved(target, &new, &old);
            draft.change(source);
            draft.change(target);
        }
        Some(target) => {
            draft.remove(tree, target, &new);
            draft.change(source);
        }
        None => draft.change(source),
    }
    draft.touch(tree, from.0);
    draft.touch(tree, to.0);
    Ok(())
}
