//! Memory of nodes: slots in chunks that never move.

use std::sync::Arc;

use super::directory::Directory;
use crate::acl::Acl;
use crate::short_name::ShortName;
use crate::state::{BelowState, Credentials, DataPlace, Moment, NodeKind, NodeNumber, NodeState, Xattrs};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;
const CHUNK: usize = 256;

/// One name of a node, in its directory.
pub(super) struct Link {
    pub name: ShortName,
    /// Offset of the name in readings of the directory.
    pub cookie: u64,
    /// Slot of the directory; [`NONE`] for a node without a name.
    pub parent: u32,
    /// Slot of the node.
    pub node: u32,
}

/// A file or directory. Rare parts are elsewhere, so that a million of these stay small.
pub(crate) struct Member {
    pub number: NodeNumber,
    pub size: u64,
    /// Inode number that programs see; 0: it is made of the node's number.
    pub ino: u64,
    pub atime: Moment,
    pub mtime: Moment,
    pub ctime: Moment,
    pub stamp: u64,
    pub below: BelowState,
    pub creator: Arc<Credentials>,
    pub(super) rare: Option<Box<Rare>>,
    data_value: u64,
    /// The first name; further ones are in slots of their own.
    pub(super) link: Link,
    pub uid: u32,
    pub gid: u32,
    /// Number of changes since the tree was opened, wrapping.
    pub changes: u32,
    /// Log file with the latest state; 0: none.
    pub log_file: u32,
    pub(super) pending_before: u32,
    pub(super) pending_after: u32,
    pub mode: u16,
    pub kind: NodeKind,
    data_kind: u8,
}

/// Parts that few nodes have.
#[derive(Default)]
pub(super) struct Rare {
    pub xattrs: Xattrs,
    pub target: Box<[u8]>,
    pub device: u64,
    /// Slots of further names.
    pub aliases: Vec<u32>,
    pub directory: Option<Box<Directory>>,
    /// Whether a file without a name may get one.
    pub linkable: bool,
}

impl Member {
    pub(super) fn new(number: NodeNumber, kind: NodeKind, slot: u32, creator: Arc<Credentials>) -> Member {
        let link = Link { name: ShortName::EMPTY, cookie: 0, parent: NONE, node: slot };
        let (atime, mtime, ctime) = Default::default();
        let mut member = Member {
            number,
            size: 0,
            ino: 0,
            atime,
            mtime,
            ctime,
            stamp: 0,
            below: BelowState::Never,
            creator,
            rare: None,
            data_value: 0,
            link,
            uid: 0,
            gid: 0,
            changes: 0,
            log_file: 0,
            pending_before: NONE,
            pending_after: NONE,
            mode: 0,
            kind,
            data_kind: 0,
        };
        if kind == NodeKind::Directory {
            member.rare().directory = Some(Box::default());
        }
        member
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub fn data(&self) -> DataPlace {
        match self.data_kind {
            1 => DataPlace::Replica(self.data_value),
            2 => DataPlace::Packed(self.data_value),
            3 => DataPlace::BelowOnly,
            4 => DataPlace::Outside,
            _ => DataPlace::None,
        }
    }

    pub(super) fn set_data(&mut self, data: DataPlace) {
        (self.data_kind, self.data_value) = match data {
            DataPlace::None => (0, 0),
            DataPlace::Replica(version) => (1, version),
            DataPlace::Packed(place) => (2, place),
            DataPlace::BelowOnly => (3, 0),
            DataPlace::Outside => (4, 0),
        };
    }

    /// Whether anything that programs see is different in a state, names apart.
    pub(super) fn differs(&self, state: &NodeState) -> bool {
        let same_owner = (self.mode, self.uid, self.gid, self.size) == (state.mode, state.uid, state.gid, state.size);
        let same_times = (self.atime, self.mtime, self.ctime) == (state.atime, state.mtime, state.ctime);
        let same_xattrs = self.xattrs().map_or(state.xattrs.is_empty(), |xattrs| *xattrs == state.xattrs);
        !(same_owner && same_times && same_xattrs && self.data() == state.data)
    }

    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }

    /// Whether the names in a directory were not read from the global store yet.
    pub fn is_unread(&self) -> bool {
        self.is_directory() && self.data() == DataPlace::BelowOnly
    }

    pub fn xattrs(&self) -> Option<&Xattrs> {
        self.rare.as_ref().map(|rare| &rare.xattrs)
    }

    /// Returns one of the node's ACLs.
    pub fn acl(&self, name: &[u8]) -> Option<Acl> {
        // The log may hold any value; one that is no ACL counts for nothing.
        Acl::parse(self.xattrs()?.get(name)?).ok()?.filter(Acl::is_valid)
    }

    pub fn target(&self) -> &[u8] {
        self.rare.as_ref().map_or(&[], |rare| &rare.target)
    }

    pub fn device(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.device)
    }

    pub fn is_linkable(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.linkable)
    }

    pub(super) fn aliases(&self) -> &[u32] {
        self.rare.as_ref().map_or(&[], |rare| &rare.aliases)
    }

    pub(super) fn directory(&self) -> Option<&Directory> {
        self.rare.as_ref()?.directory.as_deref()
    }

    /// Number of names, without those that directories have in themselves.
    pub fn names(&self) -> usize {
        usize::from(self.link.parent != NONE) + self.aliases().len()
    }
}

/// Content of a slot.
pub(super) enum Slot {
    Free { next: u32 },
    Member(Member),
    Alias(Link),
}

/// All slots.
pub(super) struct Slots {
    chunks: Vec<Vec<Slot>>,
    free: u32,
    pub used: usize,
}

impl Slots {
    pub fn new() -> Slots {
        Slots { chunks: Vec::new(), free: NONE, used: 0 }
    }

    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Fills a free slot with what `make` makes of its number.
    pub fn add(&mut self, make: impl FnOnce(u32) -> Slot) -> u32 {
        self.used += 1;
        if self.free != NONE {
            let slot = self.free;
            let Slot::Free { next } = *self.at(slot) else { unreachable!("the list of free slots has free ones") };
            self.free = next;
            *self.at_mut(slot) = make(slot);
            return slot;
        }
        let slot = self.len() as u32;
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut().expect("just made").push(make(slot));
        slot
    }

    pub fn free(&mut self, slot: u32) {
        *self.at_mut(slot) = Slot::Free { next: self.free };
        self.free = slot;
        self.used -= 1;
    }

    pub fn at(&self, slot: u32) -> &Slot {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    pub fn at_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    /// Returns the member in a slot.
    pub fn member(&self, slot: u32) -> &Member {
        match self.at(slot) {
            Slot::Member(member) => member,
            _ => panic!("slot {slot} holds no node"),
        }
    }

    pub fn member_mut(&mut self, slot: u32) -> &mut Member {
        match self.at_mut(slot) {
            Slot::Member(member) => member,
            _ => panic!("slot {slot} holds no node"),
        }
    }

    /// Returns the name that a slot stands for: a node's first, or a further one.
    pub fn link(&self, slot: u32) -> &Link {
        match self.at(slot) {
            Slot::Member(member) => &member.link,
            Slot::Alias(link) => link,
            Slot::Free { .. } => panic!("slot {slot} is free"),
        }
    }

    /// Slots and their members, from slot `from` on.
    pub fn members_from(&self, from: u32) -> impl Iterator<Item = (u32, &Member)> {
        (from..self.len() as u32).filter_map(|slot| match self.at(slot) {
            Slot::Member(member) => Some((slot, member)),
            _ => None,
        })
    }

    /// Number of slots, free ones included.
    pub fn end(&self) -> u32 {
        self.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_at_most_160_bytes_and_a_free_slot_is_used_again() {
        assert!(size_of::<Slot>() <= 160, "{}", size_of::<Slot>());
        let mut slots = Slots::new();
        let link = |node| Slot::Alias(Link { name: ShortName::EMPTY, cookie: 0, parent: NONE, node });
        let all: Vec<u32> = (0..3 * CHUNK as u32).map(|_| slots.add(link)).collect();
        assert_eq!(all, (0..3 * CHUNK as u32).collect::<Vec<_>>());
        slots.free(7);
        slots.free(300);
        assert_eq!((slots.add(link), slots.add(link), slots.add(link)), (300, 7, 768));
    }
}
