//! What the cache does to the store, and how to make it fail.

use types::{ByteRange, Identity, Timestamp};

/// One operation of the file cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOperation {
    /// [`GlobalStore::locate`](crate::GlobalStore::locate).
    Locate,
    /// Attributes of an anchor or an open file.
    Attributes,
    /// Opening.
    Open(crate::Access),
    /// Reading; the range asked for.
    Read(ByteRange),
    /// Writing.
    Write(ByteRange),
    /// Asking for data and holes.
    NextData,
    /// Making a hole.
    Punch(ByteRange),
    /// Cutting or extending.
    SetLen(u64),
    /// Setting atime.
    SetAtime(Timestamp),
    /// Setting mtime.
    SetMtime(Timestamp),
    /// Syncing the content.
    Sync,
    /// Leaving what was written behind.
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
    /// Whether it changes or syncs something, and so belongs in the journal.
    pub fn changes(&self) -> bool {
        use StoreOperation::{Attributes, LeaveBehind, Locate, Mark, NextData, Open, Read};
        !matches!(self, Locate | Attributes | Open(_) | Read(_) | NextData | Mark | LeaveBehind(_))
    }
}

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// What was done.
    pub operation: StoreOperation,
    /// To whom; a single zero byte for the whole store.
    pub identity: Identity,
}

/// Which operation fails, and how. The default fails the next operation with `EIO`, once.
#[derive(Debug, Clone)]
pub struct Fault {
    /// How many matching operations succeed before.
    pub after: u64,
    /// How many fail then; `u64::MAX` for all.
    pub times: u64,
    /// The error.
    pub errno: i32,
    /// A failing write leaves garbage in the first half of its range.
    pub torn: bool,
    /// Only operations for which this says true are counted and fail.
    pub matching: fn(&StoreOperation) -> bool,
    /// Only operations on this file, if given.
    pub identity: Option<Identity>,
}

impl Default for Fault {
    fn default() -> Fault {
        Fault { after: 0, times: 1, errno: libc::EIO, torn: false, matching: |_| true, identity: None }
    }
}

/// How an operation fails.
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

    /// Counts an operation and says whether it fails.
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
