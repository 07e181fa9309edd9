//! Operations of the file cache on the store, and faults injected into them.

use types::{ByteRange, Identity, Timestamp};

/// One operation of the file cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOperation {
    /// [`GlobalStore::locate`](global_store::GlobalStore::locate).
    Locate,
    /// Attributes of an anchor or an open file.
    Attributes,
    /// Opening a file.
    Open(global_store::Access),
    /// Reading; the requested range.
    Read(ByteRange),
    /// Writing; the range.
    Write(ByteRange),
    /// Finding data and holes.
    NextData,
    /// Punching a hole.
    Punch(ByteRange),
    /// Truncating or extending to this many bytes.
    SetLen(u64),
    /// Setting the access time.
    SetAtime(Timestamp),
    /// Setting mtime.
    SetMtime(Timestamp),
    /// Syncing the content.
    Sync,
    /// Waiting for write-back and dropping a range from the page cache.
    LeaveBehind(ByteRange),
    /// Syncing content and name.
    SyncName,
    /// Syncing the whole store.
    SyncStore,
    /// Syncing all names.
    SyncNames,
    /// Reading the mark.
    Mark,
    /// Setting or removing the mark.
    SetMark(Option<Vec<u8>>),
}

impl StoreOperation {
    /// Returns whether the operation changes or syncs something, and is therefore recorded in the journal.
    pub fn changes(&self) -> bool {
        use StoreOperation::{Attributes, LeaveBehind, Locate, Mark, NextData, Open, Read};
        !matches!(self, Locate | Attributes | Open(_) | Read(_) | NextData | Mark | LeaveBehind(_))
    }
}

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The operation.
    pub operation: StoreOperation,
    /// Identity of the file; a single zero byte for the whole store.
    pub identity: Identity,
}

/// An injected fault: which operations fail, and how. The default fails the next operation with `EIO`, once.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Number of matching operations that succeed first.
    pub after: u64,
    /// Number of operations that fail then; `u64::MAX` for all.
    pub times: u64,
    /// Error number returned.
    pub errno: i32,
    /// Whether a failing write leaves garbage in the first half of its range.
    pub torn: bool,
    /// Filter: only operations for which it returns true are counted and fail.
    pub matching: fn(&StoreOperation) -> bool,
    /// File whose operations fail; `None`: all files.
    pub identity: Option<Identity>,
}

impl Default for Fault {
    fn default() -> Fault {
        Fault { after: 0, times: 1, errno: libc::EIO, torn: false, matching: |_| true, identity: None }
    }
}

/// The failure of one operation.
pub(super) struct Failure {
    pub(super) errno: i32,
    pub(super) torn: bool,
}

#[derive(Default)]
pub(super) struct Faults {
    armed: Option<Fault>,
    operations: u64,
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed = Some(fault);
    }

    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Counts an operation and returns its failure, if it is to fail.
    pub(super) fn next(&mut self, operation: &StoreOperation, identity: &Identity) -> Option<Failure> {
        self.operations += 1;
        let fault = self.armed.as_mut()?;
        if !(fault.matching)(operation) || fault.identity.as_ref().is_some_and(|only| only != identity) {
            return None;
        }
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.checked_sub(1)?;
        Some(Failure { errno: fault.errno, torn: fault.torn })
    }
}
