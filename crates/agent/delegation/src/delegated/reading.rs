//! Directories of the global store that a delegated tree takes up: each is read once, and answered from the index then.

use std::io;
use std::sync::Arc;

use namespace::{FileAttributes, Inode};
use rustix::io::Errno;
use types::Identity;

use super::{DelegatedTree, Inner, Shared};
use crate::limits;
use crate::short_name::ShortName;
use crate::state::{
    BelowCopy, BelowState, Credentials, DataPlace, LogRecord, NodeKind, NodeName, NodeNumber, NodeState, Xattrs,
};

/// A file or directory as the global store has it.
pub struct FoundBelow {
    /// Name in its directory.
    pub name: ShortName,
    /// Identity in the global store.
    pub identity: Identity,
    /// Type.
    pub kind: NodeKind,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Target of a symbolic link; empty for others.
    pub target: Box<[u8]>,
    /// Whether the global store goes on answering for all of the file but its name.
    pub stays_outside: bool,
}

impl FoundBelow {
    fn into_state(self, number: NodeNumber, directory: NodeNumber) -> NodeState {
        let FoundBelow { name, identity, kind, attributes: found, xattrs, target, stays_outside } = self;
        let names = vec![NodeName { parent: directory, name }];
        let copy = BelowCopy { identity: Some(identity), names: names.clone(), doubtful: false };
        let dress = ((found.mode & 0o7777) as u16, found.uid, found.gid);
        let (data, size) = match kind {
            _ if stays_outside => (DataPlace::Outside, found.size),
            NodeKind::Directory => (DataPlace::BelowOnly, found.nlink.into()),
            NodeKind::File => (DataPlace::BelowOnly, found.size),
            _ => (DataPlace::None, 0),
        };
        NodeState {
            atime: found.atime.into(),
            mtime: found.mtime.into(),
            size,
            ino: found.ino,
            device: if kind.is_device() { found.rdev.into() } else { 0 },
            target,
            xattrs,
            names,
            data,
            below: BelowState::At(Arc::new(copy)),
            creator: Arc::new(Credentials { uid: found.uid, gid: found.gid, groups: Arc::default() }),
            ..NodeState::new(number, kind, dress, found.ctime.into())
        }
    }
}

impl DelegatedTree {
    /// Whether the names in a directory were not read from the global store yet. `ESTALE` for an inode of another namespace.
    pub fn is_unread(&self, directory: &Inode) -> io::Result<bool> {
        let slot = self.shared.slot(directory)?;
        Ok(self.shared.inner.read().tree.member(slot).is_unread())
    }

    /// Returns the node of a name, and where its data is; `None` if there is no such name. `ESTALE` for an inode of another
    /// namespace.
    pub fn named(&self, directory: &Inode, name: &[u8]) -> io::Result<Option<(NodeNumber, DataPlace)>> {
        let slot = self.shared.slot(directory)?;
        let inner = self.shared.inner.read();
        let found = inner.tree.child(slot, name).map(|slot| inner.tree.member(slot));
        Ok(found.map(|member| (member.number, member.data())))
    }

    /// Returns the directory of a regular file whose data only the global store has, and those files of up to `bytes_max` bytes
    /// that follow it there, `most` at most. `None` for other nodes.
    pub fn unread_after(&self, node: NodeNumber, bytes_max: u64, most: usize) -> Option<(NodeNumber, Vec<NodeNumber>)> {
        let inner = self.shared.inner.read();
        let tree = &inner.tree;
        let is_unread = |member: &crate::tree::Member| {
            member.kind == NodeKind::File && member.data() == DataPlace::BelowOnly && member.size <= bytes_max
        };
        let slot = tree.slot_of(node).filter(|slot| is_unread(tree.member(*slot)))?;
        let (directory, cookie) = tree.first_place(slot)?;
        let following = tree.children_after(directory, cookie).map(|listed| listed.member);
        let numbers = following.filter(|member| is_unread(member)).map(|member| member.number).take(most);
        Some((tree.member(directory).number, numbers.collect()))
    }

    /// Takes up the names that the global store has in a directory, which counts as read then. The global store lacks nothing of
    /// them. Nothing happens if the directory was read before.
    ///
    /// Errors: `ENOENT` if the directory is gone; `ENOSPC` for too many nodes; those of the log. Names that were taken up before
    /// an error are found again.
    pub fn take_up(&self, directory: NodeNumber, found: Vec<FoundBelow>) -> io::Result<()> {
        let mut found = found.into_iter().peekable();
        loop {
            // The lock is given away between two transactions: others go on meanwhile.
            let mut inner = self.shared.change();
            let slot = inner.tree.slot_of(directory).ok_or(Errno::NOENT)?;
            if !inner.tree.member(slot).is_unread() {
                return Ok(());
            }
            let mut draft = inner.draft(&self.shared);
            let mut bytes = 0;
            while draft.records.len() + 1 < limits::TRANSACTION_RECORDS_MAX && bytes < limits::TAKEN_UP_BYTES {
                let Some(next) = found.next() else { break };
                // A crash may have come between two transactions.
                if inner.tree.child(slot, next.name.as_bytes()).is_some() {
                    continue;
                }
                let state = next.into_state(inner.take_number()?, directory);
                bytes += state.log_bytes_max();
                draft.records.push(LogRecord::State(Box::new(state)));
            }
            let is_last = found.peek().is_none();
            if is_last {
                draft.records.push(LogRecord::State(Box::new(read(&inner, slot))));
            }
            inner.commit(&self.shared, draft)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Returns the state of a directory whose names were read.
fn read(inner: &Inner, slot: u32) -> NodeState {
    NodeState { data: DataPlace::None, size: 0, ..inner.tree.state(slot) }
}

impl Shared {
    /// Returns the inode number of a node that programs see.
    pub(super) fn ino_of(&self, member: &crate::tree::Member) -> u64 {
        if member.ino == 0 { self.ino(member.number) } else { member.ino }
    }
}
