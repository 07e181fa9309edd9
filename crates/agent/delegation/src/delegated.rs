//! A delegated tree that is open: the index, the log, and those who hold nodes.

mod anchor;
mod attributes;
mod cleaning;
mod content;
mod disowning;
mod listing;
mod names;
mod opening;
mod owner;
mod reading;
#[cfg(all(test, feature = "shuttle"))]
mod stories;

use std::any::Any;
use std::io;
use std::sync::Arc;

use concurrency::{Mutex, RwLock, RwLockWriteGuard};
use global_store::{Access, StoreFile};
use namespace::{Exclusivity, FileSystemSpace, Found, Hold, Inode, KeptFile};
use rustix::fs::FileType;
use rustix::io::Errno;
use types::Identity;

pub use cleaning::Cleaning;
pub use content::NotedContent;
pub use opening::OpeningReport;
pub use owner::Applied;
pub use reading::FoundBelow;

use crate::callers::RecentCallers;
use crate::holders::Holders;
use crate::layout;
use crate::limits;
use crate::log::NameLog;
use crate::rules::{self, Dress};
use crate::state::{
    BelowState, Credentials, DataPlace, LogRecord, Moment, NodeKind, NodeName, NodeNumber, NodeState, Transaction,
};
use crate::tree::Tree;

/// First bytes of a provisional identity. No identity of a global store begins with this kind.
const KEY_TAG: [u8; 4] = *b"FBdt";
/// Bit of all inode numbers of a delegated tree but the root's.
const INO_WIDE: u64 = 1 << 62;
const INO_NARROW: u64 = 1 << 31;

/// Returns the log and the node that a provisional identity names; `None` for an identity of a global store.
pub fn node_of_key(identity: &Identity) -> Option<([u8; 16], NodeNumber)> {
    let (log, number) = identity.as_bytes().strip_prefix(&KEY_TAG)?.split_first_chunk::<16>()?;
    Some((*log, NodeNumber(u64::from_le_bytes(number.try_into().ok()?))))
}

/// Questions of a delegated tree to the global store.
pub trait FilesBelow: Send + Sync {
    /// Opens the file that the global store has of a node, and makes one if there is none yet.
    fn open(&self, node: NodeNumber, access: Access) -> io::Result<Box<dyn StoreFile>>;

    /// Makes the root's own name survive a crash of the store's machine. Asked before each sync of the log.
    fn sync_root(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns how much space there is.
    fn space(&self) -> io::Result<FileSystemSpace>;

    /// Chooses the place of the data of a regular file that is about to be made; [`DataPlace::None`]: it gets one later.
    fn new_place(&self) -> DataPlace {
        DataPlace::None
    }

    /// Takes back the place of a file that was not made.
    fn return_place(&self, _place: DataPlace) {}
}

/// How inode numbers are made of node numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeNumbers {
    /// 64 bits: bit 62, and the node's number after a start that the log's id decides. No two nodes of a tree have one number, and
    /// those of two trees do not meet in practice: programs take files with one number for one file.
    #[default]
    Wide,
    /// 32 bits, for programs that know no others: bit 31 and the low bits of such a sum. After 2^31 creations in one tree numbers come
    /// again.
    Narrow,
}

/// Settings of a delegated tree.
#[derive(Debug, Clone, Copy)]
pub struct DelegationSettings {
    /// Bytes of a log file.
    pub log_file_bytes: u64,
    /// Percentage of live records below which the log's oldest file is cleaned.
    pub live_percent: u64,
    /// How inode numbers are made.
    pub inode_numbers: InodeNumbers,
    /// Inode number of the root.
    pub root_ino: u64,
}

impl Default for DelegationSettings {
    fn default() -> DelegationSettings {
        DelegationSettings {
            log_file_bytes: limits::LOG_FILE_BYTES,
            live_percent: limits::LIVE_PERCENT,
            inode_numbers: InodeNumbers::Wide,
            root_ino: INO_WIDE | NodeNumber::ROOT.0,
        }
    }
}

/// A directory tree that this agent alone holds. All methods may be called from any thread.
///
/// An answer is given when the kernel has the change's record, so it survives the death of the agent. A crash of the machine may
/// lose changes after the last [`sync`](namespace::Names::sync), the latest first. The flags of chattr(1) do not exist.
pub struct DelegatedTree {
    shared: Arc<Shared>,
}

struct Shared {
    inner: RwLock<Inner>,
    log: NameLog,
    holders: Holders,
    callers: RecentCallers,
    below: Arc<dyn FilesBelow>,
    settings: DelegationSettings,
    exclusivity: Arc<Exclusivity>,
    /// Slot at which cleaning of the oldest file goes on, if it has begun.
    cleaning: Mutex<Option<u32>>,
    /// Locked while changes are applied to the global store. Taken before all other locks.
    applying: Mutex<()>,
}

struct Inner {
    tree: Tree,
    /// Bytes of the frame that is made, kept for the next.
    frame: Vec<u8>,
    next_number: u64,
    /// Whether nothing more is logged: the tree was given back.
    is_frozen: bool,
    /// Transactions that note only where data is, or repeat records.
    unchanging: u64,
}

/// A node that is held: its slot stays.
struct Held {
    shared: Arc<Shared>,
    slot: u32,
    number: NodeNumber,
    kind: NodeKind,
}

impl KeptFile for Held {
    fn key(&self) -> Identity {
        self.shared.key(self.number)
    }

    fn kind(&self) -> FileType {
        self.kind.file_type()
    }

    fn exclusivity(&self) -> &Arc<Exclusivity> {
        &self.shared.exclusivity
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.holders.release(self.slot);
    }
}

/// A transaction that is being made.
struct Draft {
    sequence: u64,
    time: Moment,
    touched: Vec<NodeNumber>,
    records: Vec<LogRecord>,
}

impl Draft {
    /// Adds a state that the global store lacks.
    fn change(&mut self, mut state: NodeState) {
        if state.stamp == 0 {
            state.stamp = self.sequence;
        }
        self.records.push(LogRecord::State(Box::new(state)));
    }

    fn touch(&mut self, tree: &Tree, directory: u32) {
        let number = tree.member(directory).number;
        if !self.touched.contains(&number) {
            self.touched.push(number);
        }
    }

    /// Adds the removal of one name of a node, whose last name leaves a tombstone if the global store has the node.
    fn remove(&mut self, tree: &Tree, slot: u32, name: &NodeName) {
        let mut state = tree.state(slot);
        state.names.retain(|other| other != name);
        state.ctime = self.time;
        if state.names.is_empty() && state.below == BelowState::Never {
            self.records.push(LogRecord::Forgotten(state.number));
        } else {
            self.change(state);
        }
    }
}

impl Inner {
    fn draft(&self, shared: &Shared) -> Draft {
        let (touched, records) = (Vec::with_capacity(2), Vec::with_capacity(2));
        Draft { sequence: shared.log.next_sequence(), time: rules::now(), touched, records }
    }

    /// Takes a number that no node ever had.
    fn take_number(&mut self) -> Result<NodeNumber, Errno> {
        let number = self.next_number;
        if self.tree.len() >= limits::NODES_MAX || (number + 1) & ((1 << limits::NUMBER_BITS) - 1) == 0 {
            return Err(Errno::NOSPC);
        }
        self.next_number += 1;
        Ok(NodeNumber(number))
    }

    /// Returns the state of a new node without a name.
    fn new_state(
        &mut self,
        creator: Arc<Credentials>,
        kind: NodeKind,
        (dress, xattrs): Dress,
        time: Moment,
    ) -> Result<NodeState, Errno> {
        Ok(NodeState { creator, xattrs, ..NodeState::new(self.take_number()?, kind, dress, time) })
    }

    /// Logs a draft, and then changes the index. After an error nothing has changed.
    fn commit(&mut self, shared: &Shared, draft: Draft) -> io::Result<()> {
        if self.is_frozen {
            return Err(Errno::STALE.into());
        }
        let Draft { sequence, time, touched, records } = draft;
        let mut transaction = Transaction { sequence, time, touched, records };
        layout::begin_frame(&mut self.frame);
        layout::encode_transaction(&mut self.frame, &transaction);
        let (logged, file) = shared.log.append(&mut self.frame, transaction.records.len())?;
        debug_assert_eq!(logged, sequence, "the tree's lock orders the log");
        transaction.sequence = logged;
        for slot in self.tree.apply(file, transaction) {
            if shared.holders.forget(slot) {
                self.tree.free(slot);
            }
        }
        Ok(())
    }

    /// Logs a new state of a node; that of a node without names is not logged.
    fn update(&mut self, shared: &Shared, slot: u32, edit: impl FnOnce(&mut NodeState)) -> io::Result<()> {
        let mut draft = self.draft(shared);
        let mut state = self.tree.state(slot);
        state.ctime = draft.time;
        edit(&mut state);
        if state.names.is_empty() && state.number != NodeNumber::ROOT {
            let linkable = self.tree.member(slot).is_linkable();
            self.tree.apply_unlogged(state, linkable);
            return Ok(());
        }
        draft.change(state);
        self.commit(shared, draft)
    }
}

impl Shared {
    /// Locks the index for a change, and frees what nobody holds any more.
    fn change(&self) -> RwLockWriteGuard<'_, Inner> {
        let mut inner = self.inner.write();
        while let Some(slot) = self.holders.take_released() {
            if inner.tree.is_forgotten(slot) {
                inner.tree.free(slot);
            }
        }
        inner
    }

    /// Makes all names survive a crash of the machine: what the log says counts for nothing without the root.
    fn sync(&self) -> io::Result<()> {
        let end = self.log.end();
        self.below.sync_root()?;
        self.log.sync(end)
    }

    fn ino(&self, number: NodeNumber) -> u64 {
        let (start, _) = self.log.id().split_first_chunk().expect("16 bytes");
        let sum = u64::from_le_bytes(*start).wrapping_add(number.0);
        match self.settings.inode_numbers {
            _ if number == NodeNumber::ROOT => self.settings.root_ino,
            InodeNumbers::Wide => INO_WIDE | sum & (INO_WIDE - 1),
            InodeNumbers::Narrow => INO_NARROW | sum & (INO_NARROW - 1),
        }
    }

    fn key(&self, number: NodeNumber) -> Identity {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&KEY_TAG);
        bytes[4..20].copy_from_slice(self.log.id());
        bytes[20..].copy_from_slice(&number.0.to_le_bytes());
        Identity::new(bytes).expect("28 bytes")
    }

    /// Holds the node in a slot. The caller has the tree locked.
    fn hold(self: &Arc<Shared>, tree: &Tree, slot: u32) -> Arc<Held> {
        self.holders.hold(slot);
        let member = tree.member(slot);
        Arc::new(Held { shared: Arc::clone(self), slot, number: member.number, kind: member.kind })
    }

    /// Returns an inode for the node in a slot. The caller has the tree locked.
    fn inode(self: &Arc<Shared>, tree: &Tree, slot: u32) -> Inode {
        Inode::kept(self.hold(tree, slot), self.ino_of(tree.member(slot)))
    }

    fn found(self: &Arc<Shared>, tree: &Tree, slot: u32) -> Found {
        let attributes = tree.attributes(slot, self.ino_of(tree.member(slot)));
        Found { inode: self.inode(tree, slot), attributes }
    }

    /// Returns what holds the node of an inode. `ESTALE` for an inode of another namespace.
    fn held(&self, inode: &Inode) -> Result<Arc<Held>, Errno> {
        let Hold::Kept(held) = inode.hold() else { return Err(Errno::STALE) };
        let held: Arc<dyn Any + Send + Sync> = Arc::clone(held) as _;
        let held = held.downcast::<Held>().map_err(|_| Errno::STALE)?;
        if std::ptr::eq(Arc::as_ptr(&held.shared), self) { Ok(held) } else { Err(Errno::STALE) }
    }

    /// Returns the slot of an inode's node, which stays as long as the inode.
    fn slot(&self, inode: &Inode) -> Result<u32, Errno> {
        let Hold::Kept(held) = inode.hold() else { return Err(Errno::STALE) };
        let held: &dyn Any = &**held;
        let held = held.downcast_ref::<Held>().ok_or(Errno::STALE)?;
        if std::ptr::eq(Arc::as_ptr(&held.shared), self) { Ok(held.slot) } else { Err(Errno::STALE) }
    }

    /// Returns the node that a provisional identity names, unless it is gone.
    fn node_of_key(&self, identity: &Identity) -> Option<NodeNumber> {
        let (log, number) = node_of_key(identity)?;
        (log == *self.log.id()).then_some(number)
    }
}
