//! Names of nodes in directories.

use std::hash::BuildHasher;

use super::Tree;
use super::directory::Directory;
use super::slots::{Link, Member, NONE, Slot};
use crate::short_name::ShortName;
use crate::state::NodeName;

/// An entry of a directory, as a reading finds it.
pub(crate) struct Listed<'a> {
    /// Offset after which reading goes on.
    pub cookie: u64,
    pub name: &'a [u8],
    pub member: &'a Member,
    /// Slot of the node.
    pub node: u32,
}

impl Tree {
    fn hash_of(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Links of a node, the first name first.
    pub(super) fn links(&self, slot: u32) -> impl Iterator<Item = &Link> {
        let member = self.slots.member(slot);
        let first = (member.link.parent != NONE).then_some(&member.link);
        first.into_iter().chain(member.aliases().iter().map(|alias| self.slots.link(*alias)))
    }

    /// Finds a name in a directory, and returns the slot of the node.
    pub(crate) fn child(&self, directory: u32, name: &[u8]) -> Option<u32> {
        let table = &self.slots.member(directory).directory()?.table;
        let found = table.find(self.hash_of(name), |slot| self.slots.link(*slot).name.as_bytes() == name)?;
        Some(self.slots.link(*found).node)
    }

    /// Number of names in a directory.
    pub(crate) fn child_count(&self, directory: u32) -> usize {
        self.slots.member(directory).directory().map_or(0, |directory| directory.positions.len())
    }

    /// Names of a directory after an offset, in their order.
    pub(crate) fn children_after(&self, directory: u32, offset: u64) -> impl Iterator<Item = Listed<'_>> {
        let directory = self.slots.member(directory).directory().into_iter();
        directory.flat_map(move |directory| directory.positions.after(offset)).map(|(cookie, slot)| {
            let link = self.slots.link(slot);
            Listed { cookie, name: link.name.as_bytes(), member: self.slots.member(link.node), node: link.node }
        })
    }

    /// Slot of the directory above, and the first name of a node; `None` for the root and for a node without names.
    pub(crate) fn first_name(&self, slot: u32) -> Option<(u32, &[u8])> {
        let link = &self.slots.member(slot).link;
        (link.parent != NONE).then(|| (link.parent, link.name.as_bytes()))
    }

    /// Slot of the directory with the first name of a node, and the offset of that name; `None` for a node without names.
    pub(crate) fn first_place(&self, slot: u32) -> Option<(u32, u64)> {
        let link = &self.slots.member(slot).link;
        (link.parent != NONE).then_some((link.parent, link.cookie))
    }

    /// Whether `above` is `directory` or one of the directories above it.
    pub(crate) fn is_within(&self, mut directory: u32, above: u32) -> bool {
        loop {
            if directory == above {
                return true;
            }
            match self.first_name(directory) {
                Some((parent, _)) => directory = parent,
                None => return false,
            }
        }
    }

    /// Changes a directory that is out of its node meanwhile, so that tables can look at nodes.
    fn with_directory<T>(&mut self, slot: u32, change: impl FnOnce(&mut Tree, &mut Directory) -> T) -> T {
        let taken = self.slots.member_mut(slot).rare().directory.take();
        let mut directory = taken.expect("the parent of a name is a directory");
        let result = change(self, &mut directory);
        self.slots.member_mut(slot).rare().directory = Some(directory);
        result
    }

    /// Removes the names of a node that are not among `kept`.
    pub(super) fn unlink_all_but(&mut self, slot: u32, kept: &[NodeName]) {
        let keeps = |tree: &Tree, link: &Link| {
            let parent = tree.slots.member(link.parent).number;
            kept.iter().any(|name| name.parent == parent && name.name == link.name)
        };
        for alias in self.slots.member(slot).aliases().to_vec() {
            if !keeps(self, self.slots.link(alias)) {
                self.unlink_alias(slot, alias);
            }
        }
        let first = &self.slots.member(slot).link;
        if first.parent != NONE && !keeps(self, first) {
            self.unlink_first(slot);
        }
    }

    /// Takes a link out of its directory.
    fn withdraw(&mut self, link_slot: u32, is_directory: bool) {
        let link = self.slots.link(link_slot);
        let (parent, cookie, hash) = (link.parent, link.cookie, self.hash_of(link.name.as_bytes()));
        let node = link.node;
        self.note_change(node);
        self.with_directory(parent, |_, directory| {
            if let Ok(entry) = directory.table.find_entry(hash, |slot| *slot == link_slot) {
                entry.remove();
            }
            directory.positions.remove(cookie);
            directory.subdirectories -= u32::from(is_directory);
        });
    }

    fn note_change(&mut self, slot: u32) {
        let member = self.slots.member_mut(slot);
        member.changes = member.changes.wrapping_add(1);
    }

    fn unlink_alias(&mut self, slot: u32, alias: u32) {
        self.withdraw(alias, false);
        self.slots.member_mut(slot).rare().aliases.retain(|other| *other != alias);
        self.slots.free(alias);
    }

    /// Removes the first name; a further one becomes the first.
    fn unlink_first(&mut self, slot: u32) {
        let is_directory = self.slots.member(slot).is_directory();
        self.withdraw(slot, is_directory);
        let next = if is_directory { None } else { self.slots.member(slot).aliases().last().copied() };
        let Some(alias) = next else {
            let link = &mut self.slots.member_mut(slot).link;
            (link.name, link.parent, link.cookie) = (ShortName::EMPTY, NONE, 0);
            return;
        };
        self.slots.member_mut(slot).rare().aliases.pop();
        let Slot::Alias(link) = self.slots.at_mut(alias) else { unreachable!("an alias is one") };
        let (name, parent, cookie) = (std::mem::replace(&mut link.name, ShortName::EMPTY), link.parent, link.cookie);
        let hash = self.hash_of(name.as_bytes());
        let first = &mut self.slots.member_mut(slot).link;
        (first.name, first.parent, first.cookie) = (name, parent, cookie);
        self.with_directory(parent, |_, directory| {
            if let Some(entry) = directory.table.find_mut(hash, |other| *other == alias) {
                *entry = slot;
            }
            directory.positions.replace(cookie, slot);
        });
        self.slots.free(alias);
    }

    /// Adds the names that a node does not have yet.
    pub(super) fn link_all(&mut self, slot: u32, names: Vec<NodeName>) {
        for NodeName { parent, name } in names {
            let parent = self.slot_of(parent).expect("a name in a directory that exists");
            if !self.links(slot).any(|link| link.parent == parent && link.name == name) {
                self.link(slot, parent, name);
            }
        }
    }

    fn link(&mut self, slot: u32, parent: u32, name: ShortName) {
        let hash = self.hash_of(name.as_bytes());
        self.note_change(slot);
        let member = self.slots.member_mut(slot);
        let is_directory = member.is_directory();
        let link_slot = if member.link.parent == NONE {
            (member.link.name, member.link.parent) = (name, parent);
            slot
        } else {
            let alias = self.slots.add(|_| Slot::Alias(Link { name, cookie: 0, parent, node: slot }));
            self.slots.member_mut(slot).rare().aliases.push(alias);
            alias
        };
        let cookie = self.with_directory(parent, |tree, directory| {
            let cookie = directory.take_cookie();
            let (slots, hasher) = (&tree.slots, &tree.hasher);
            directory.table.insert_unique(hash, link_slot, |slot| hasher.hash_one(slots.link(*slot).name.as_bytes()));
            directory.positions.push(cookie, link_slot);
            directory.subdirectories += u32::from(is_directory);
            cookie
        });
        match self.slots.at_mut(link_slot) {
            Slot::Member(member) => member.link.cookie = cookie,
            Slot::Alias(link) => link.cookie = cookie,
            Slot::Free { .. } => unreachable!("just filled"),
        }
    }
}
