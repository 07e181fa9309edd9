//! State of one file or directory of a delegated tree, whole, and the transactions that change it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustix::fs::FileType;
use types::{Identity, Timestamp};

use crate::limits;
use crate::short_name::ShortName;

/// Number of a file or directory of one tree, never used twice, whatever crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNumber(pub u64);

impl NodeNumber {
    /// The directory at the top of the tree.
    pub const ROOT: NodeNumber = NodeNumber(1);
}

/// Type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "inode(7) documents them")]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
}

impl NodeKind {
    /// Returns the kind for a type of the system; `None` for an unknown one.
    pub fn of(kind: FileType) -> Option<NodeKind> {
        Some(match kind {
            FileType::RegularFile => NodeKind::File,
            FileType::Directory => NodeKind::Directory,
            FileType::Symlink => NodeKind::Symlink,
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
            FileType::BlockDevice => NodeKind::BlockDevice,
            FileType::CharacterDevice => NodeKind::CharacterDevice,
            FileType::Unknown => return None,
        })
    }

    /// Returns the type as the system has it.
    pub fn file_type(self) -> FileType {
        match self {
            NodeKind::File => FileType::RegularFile,
            NodeKind::Directory => FileType::Directory,
            NodeKind::Symlink => FileType::Symlink,
            NodeKind::Fifo => FileType::Fifo,
            NodeKind::Socket => FileType::Socket,
            NodeKind::BlockDevice => FileType::BlockDevice,
            NodeKind::CharacterDevice => FileType::CharacterDevice,
        }
    }

    /// Whether nodes of this kind are device files.
    pub fn is_device(self) -> bool {
        matches!(self, NodeKind::BlockDevice | NodeKind::CharacterDevice)
    }
}

/// A moment: nanoseconds since 1970-01-01 UTC. Moments before 1678 or after 2262 become the nearest that it can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub i64);

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Moment {
        Moment(time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into()))
    }
}

impl From<Moment> for Timestamp {
    fn from(moment: Moment) -> Timestamp {
        let nanos = moment.0.rem_euclid(1_000_000_000);
        Timestamp { seconds: moment.0.div_euclid(1_000_000_000), nanos: nanos as u32 }
    }
}

/// Where the data of a regular file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataPlace {
    /// Nowhere: nothing was written yet.
    #[default]
    None,
    /// In the replica of this version.
    Replica(u64),
    /// In a pack of small files, at this place.
    Packed(u64),
    /// In the global store alone. Of a directory: its names were not read yet.
    BelowOnly,
    /// In the global store, which answers for all of the file but its names.
    Outside,
}

/// One name of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeName {
    /// The directory.
    pub parent: NodeNumber,
    /// The name in that directory.
    pub name: ShortName,
}

/// Knowledge of a node in the global store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BelowState {
    /// Nothing, and nothing was begun.
    #[default]
    Never,
    /// A file, or perhaps one.
    At(Arc<BelowCopy>),
}

/// A file of the global store, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BelowCopy {
    /// Identity in the global store. `None`: its creation was begun, and whether it took place was not recorded.
    pub identity: Option<Identity>,
    /// Names in the global store, or where the node may be.
    pub names: Vec<NodeName>,
    /// Whether the content there may be another: the file was written since, here or there, and the store was not synced since.
    pub doubtful: bool,
}

impl BelowState {
    /// Returns the knowledge that is left once the content may be another.
    pub(crate) fn doubted(&self) -> BelowState {
        match self {
            BelowState::At(copy) if !copy.doubtful => {
                BelowState::At(Arc::new(BelowCopy { doubtful: true, ..BelowCopy::clone(copy) }))
            }
            known => known.clone(),
        }
    }

    /// Whether the content in the store may be another.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(self, BelowState::At(copy) if copy.doubtful)
    }
}

/// Credentials of the process that created a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Credentials {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// All that is known of a node.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeState {
    /// Number of the node.
    pub number: NodeNumber,
    /// Type of the node.
    pub kind: NodeKind,
    /// Permission bits, `0o7777` at most.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last access.
    pub atime: Moment,
    /// Time of the last change of the content.
    pub mtime: Moment,
    /// Time of the last change.
    pub ctime: Moment,
    /// Bytes of a regular file's content. Of a directory whose names were not read yet: its number of links.
    pub size: u64,
    /// Inode number that programs see; 0: it is made of the node's number.
    pub ino: u64,
    /// Number of a device file, as makedev(3) makes it.
    pub device: u64,
    /// Target of a symbolic link; empty for others.
    pub target: Box<[u8]>,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Names. Empty: the last was removed, and the global store still has the node. The root has none.
    pub names: Vec<NodeName>,
    /// Where the data is.
    pub data: DataPlace,
    /// Knowledge of the node in the global store.
    pub below: BelowState,
    /// Credentials of the creation.
    pub creator: Arc<Credentials>,
    /// Sequence of the first change that the global store lacks; 0 if it has all.
    pub stamp: u64,
}

impl NodeState {
    /// Creates the state of a new node without a name, whose times are all `now`.
    pub fn new(number: NodeNumber, kind: NodeKind, (mode, uid, gid): (u16, u32, u32), now: Moment) -> NodeState {
        NodeState {
            number,
            kind,
            mode,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            size: 0,
            ino: 0,
            device: 0,
            target: Box::default(),
            xattrs: Xattrs::new(),
            names: Vec::new(),
            data: DataPlace::None,
            below: BelowState::Never,
            creator: Arc::default(),
            stamp: 0,
        }
    }

    /// Bytes that the state takes in the log, or somewhat more.
    pub(crate) fn log_bytes_max(&self) -> usize {
        let names_below = if let BelowState::At(copy) = &self.below { copy.names.len() } else { 0 };
        let names = (self.names.len() + names_below) * (limits::NAME_BYTES_MAX + 9);
        let xattrs: usize = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 5).sum();
        512 + names + xattrs + self.target.len() + 4 * self.creator.groups.len()
    }
}

impl fmt::Debug for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeState { number, kind, mode, uid, gid, size, names, data, below, stamp, .. } = self;
        write!(f, "{} {kind:?} {mode:o} of {uid}:{gid}, {size} bytes in {data:?}, {names:?}, ", number.0)?;
        write!(f, "{below:?}, stamp {stamp}, times {:?}", [self.atime.0, self.mtime.0, self.ctime.0])?;
        write!(f, ", {} xattrs, device {}, by {:?}", self.xattrs.len(), self.device, self.creator)
    }
}

/// One entry of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRecord {
    /// The node is in this state now.
    State(Box<NodeState>),
    /// Nothing more is to be known of the node.
    Forgotten(NodeNumber),
}

/// Changes that take place together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// Position in the log, from 1, without gaps.
    pub sequence: u64,
    /// When the change was made.
    pub time: Moment,
    /// Directories whose names were changed. Their mtime and ctime become `time`, after the records.
    pub touched: Vec<NodeNumber>,
    /// New states.
    pub records: Vec<LogRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_keeps_every_time_between_1678_and_2262_and_the_nearest_of_others() {
        for (seconds, nanos) in [(0, 0), (-1, 999_999_999), (9_000_000_000, 1), (-9_000_000_000, 7)] {
            let time = Timestamp { seconds, nanos };
            assert_eq!(Timestamp::from(Moment::from(time)), time);
        }
        assert_eq!(Moment::from(Timestamp { seconds: i64::MAX, nanos: 0 }), Moment(i64::MAX));
        assert_eq!(Moment::from(Timestamp { seconds: i64::MIN, nanos: 5 }), Moment(i64::MIN + 5));
    }

    #[test]
    fn every_kind_is_a_type_of_the_system() {
        for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Symlink, NodeKind::Fifo, NodeKind::Socket] {
            assert_eq!(NodeKind::of(kind.file_type()), Some(kind));
        }
        assert_eq!(NodeKind::of(FileType::Unknown), None);
    }
}
