//! The global store: the existing file system below, reached by descriptor and never by a path under our own mount.
//!
//! [`GlobalStore`], [`Anchor`] and [`StoreFile`] are the traits through which the file cache copies data. They are
//! implemented over a mounted file system. Names, links and permissions are asked for through the crate `namespace`.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod calls;
pub mod clones;
pub mod descriptors;
pub mod hidden;
pub mod limits;
pub mod posix;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use types::{Fingerprint, Identity, Timestamp};

/// Returns the time of day by the clock from which file systems take their times. It stands still between two ticks of
/// the kernel.
pub fn now_of_files() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The part of a file's `stat` that the file cache needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreAttributes {
    /// Size, times, and a hash of the other attributes.
    pub fingerprint: Fingerprint,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Number of names; 0 after the last unlink.
    pub links: u64,
    /// Mode bits, including the file type.
    pub mode: u32,
    /// Owner's user id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Whether the store accepts only appends to the file (`chattr +a`), and no changes of times.
    pub append_only: bool,
}

/// The mode in which an anchored file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading. The access time stays unchanged if the store permits that.
    Read,
    /// Reading and writing. Reads do not change the access time either.
    Write,
    /// Reading and appending. A write anywhere but at the end fails with `EPERM`.
    Append,
}

/// One mounted global store, from the accelerated directory downwards.
pub trait GlobalStore: Send + Sync {
    /// Finds a file by identity and returns its anchor, or `None` if the file does not exist.
    ///
    /// Tries the durable handle and `hint` (a path relative to the root) first, then - if `scan` - a walk of the whole
    /// tree.
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>>;

    /// Opens a sync point. Open it before the writes whose errors [`SyncPoint::sync`] is to report; one can serve many
    /// small files.
    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>>;

    /// Makes everything written so far durable. An error of a write before this call may already have been reported to
    /// another descriptor.
    fn sync(&self) -> io::Result<()> {
        self.sync_point()?.sync()
    }

    /// Makes the present names durable: removed names stay removed. Does not consume data errors, which the next `sync`
    /// reports.
    fn sync_names(&self) -> io::Result<()>;

    /// Returns whether other machines may change the store. If so, dirty files carry a mark (`user.forebay.dirty`).
    fn is_shared(&self) -> bool;

    /// Returns whether every change of a file after a `stat` gives the file a new ctime. That is so if the store's
    /// clock never stands still between the two.
    fn tells_changes_apart(&self) -> bool {
        false
    }

    /// Returns whether `locate` finds a file by identity alone, wherever it was moved. If not, code that needs the file
    /// later must keep its anchor.
    fn finds_by_identity(&self) -> bool;

    /// Returns the number of bytes that may still be written; `None` if unknown.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A point in time from which write-back errors are collected.
///
/// The kernel reports a write-back error once to each open descriptor. This type owns a descriptor that was opened
/// before the writes, so no other caller of sync can consume its errors.
pub trait SyncPoint: Send {
    /// Makes everything written so far durable (`syncfs`). Errors: data written since the point was opened, or before,
    /// may be lost.
    fn sync(&self) -> io::Result<()>;
}

/// A regular file that stays reachable whatever happens to its name: an `O_PATH` descriptor.
pub trait Anchor: Send + Sync {
    /// Returns the file's identity.
    fn identity(&self) -> &Identity;
    /// Returns the file's current attributes.
    fn attributes(&self) -> io::Result<StoreAttributes>;
    /// Returns the attributes from the server, bypassing caches of the store's client (`AT_STATX_FORCE_SYNC`).
    fn attributes_now(&self) -> io::Result<StoreAttributes> {
        self.attributes()
    }
    /// Returns the attributes cached on this machine, without a request to the store where the store's client has a
    /// cache.
    fn attributes_in_memory(&self) -> io::Result<StoreAttributes> {
        self.attributes()
    }
    /// Opens the file. Succeeds without permission (`EACCES`) if an agent without privilege created the file through
    /// us. The anchor then still has the descriptor from the creation.
    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>>;
    /// Returns the present path relative to the store's root, as a hint; empty if there is none.
    fn path_hint(&self) -> PathBuf;
    /// Sets the access time and leaves mtime alone. Changes ctime. Errors: `EPERM` unless the caller is the owner or
    /// root.
    fn set_atime(&self, atime: Timestamp) -> io::Result<()>;
    /// Sets the times, with the credentials of this process.
    fn set_times(&self, _times: &rustix::fs::Timestamps) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes the name durable: fsync of the file and of its directory.
    fn sync_name(&self) -> io::Result<()>;
    /// Returns the dirty mark that an agent left on the file, if any.
    fn mark(&self) -> io::Result<Option<Vec<u8>>>;
    /// Sets (`Some`) or removes (`None`) the mark. Changes ctime.
    fn set_mark(&self, mark: Option<&[u8]>) -> io::Result<()>;
}

/// An open file of the global store.
pub trait StoreFile: Send + Sync {
    /// Reads at `offset` and returns the number of bytes. Fewer than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Returns the first data range at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`); `None` if only a hole follows. A
    /// store that cannot tell reports everything as data.
    fn next_data(&self, offset: u64) -> io::Result<Option<types::ByteRange>>;
    /// Turns a range into a hole, or into zeros if the store has no holes. Never changes the size.
    fn punch(&self, range: types::ByteRange) -> io::Result<()>;
    /// Calls `fallocate(2)` in a mode other than punching. Modes: allocation (0, `FALLOC_FL_KEEP_SIZE`) or zeros
    /// (`FALLOC_FL_ZERO_RANGE`). Errors: `EOPNOTSUPP` if the store does not support the mode.
    fn allocate(&self, mode: u32, range: types::ByteRange) -> io::Result<()>;
    /// Truncates or extends the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sets mtime and leaves the access time alone.
    fn set_mtime(&self, mtime: Timestamp) -> io::Result<()>;
    /// Returns the current attributes.
    fn attributes(&self) -> io::Result<StoreAttributes>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
    /// Starts writing a range to the store's medium, so that a later `sync` takes less time. A hint without guarantee.
    fn begin_sync(&self, _range: types::ByteRange) {}
    /// Waits until a range is written as by `begin_sync`, and drops the range from this machine's page cache. Does not
    /// make the range durable.
    ///
    /// Errors: like those of `sync`, written data may be lost. A later `sync` may not report that error again.
    fn leave_behind(&self, _range: types::ByteRange) -> io::Result<()> {
        Ok(())
    }
}
