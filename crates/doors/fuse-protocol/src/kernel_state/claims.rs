//! Claims for everything that the kernel knows, made at a successor of whoever held the kernel's state.

use std::path::PathBuf;

use types::Identity;

use super::lock_change::LockChange;
use crate::{Handle, NodeId};

/// Open file or directory that the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFile {
    /// Node number.
    pub node: NodeId,
    /// Identity of the file.
    pub identity: Identity,
    /// Path at which the file was last seen.
    pub hint: PathBuf,
    /// Flags of open(2).
    pub flags: i32,
    /// Whether it is a file that is open for writing.
    pub writes: bool,
}

/// Node number to be restored, with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReclaim {
    /// Node number.
    pub node: NodeId,
    /// Number of lookups that the kernel has not given back.
    pub lookups: u64,
    /// Identity of the file.
    pub identity: Identity,
    /// Path at which the file was last seen.
    pub hint: PathBuf,
    /// Handle and open flags, if an open file is to be restored.
    pub open: Option<(Handle, i32)>,
}

/// File on which locks are held, with everything that is to be claimed of it.
#[derive(Debug, PartialEq, Eq)]
pub struct LockedFile {
    /// Node number.
    pub node: NodeId,
    /// Open files of the node.
    pub opens: Vec<FileReclaim>,
    /// Locks on the file, each to be taken again.
    pub locks: Vec<LockChange>,
}

/// Claims to make, in this order.
#[derive(Debug, Default)]
pub struct Claims {
    /// Files with locks. Each is claimed with all of its locks, or not at all.
    pub locked: Vec<LockedFile>,
    /// Directories, and open files without locks.
    pub others: Vec<FileReclaim>,
    /// Open files that are not claimed: the locks held on them are in doubt, or there are too many locks.
    pub lost: Vec<HeldFile>,
}
