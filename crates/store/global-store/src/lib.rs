//! The global store: the existing file system below, reached by descriptor and never by a path under our own mount.
//!
//! Two parts. [`GlobalStore`], [`Anchor`] and [`StoreFile`] are what the file cache copies data through; they have a
//! POSIX and a memory implementation. The namespace (names, links, permissions) belongs to the agent, which works on
//! the POSIX implementation's directory descriptors directly.

pub mod calls;
pub mod clones;
pub mod descriptors;
pub mod hidden;
pub mod limits;
pub mod memory;
pub mod posix;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use types::{Fingerprint, Identity, Timestamp};

/// What `stat` says of a file, as far as the file cache needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreAttributes {
    /// Size and times.
    pub fingerprint: Fingerprint,
    /// Last access.
    pub atime: Timestamp,
    /// Names the file has; 0 once unlinked.
    pub links: u64,
    /// Mode bits including the file type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The store takes nothing but appends to it (`chattr +a`), and no other time.
    pub append_only: bool,
}

/// How an anchored file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading; never moves atime where the store allows it.
    Read,
    /// For reading and writing; reading moves no atime either.
    Write,
    /// For reading and appending: a write anywhere but at the end fails with `EPERM`.
    Append,
}

/// One mounted global store, from the directory that is accelerated downwards.
pub trait GlobalStore: Send + Sync {
    /// Finds a file by identity: by durable handle, else at `hint` (a path relative to the root), else - if `scan` -
    /// by a walk of the whole tree. `None` means that it is not there.
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>>;

    /// A point before some writes, one for many small files.
    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>>;

    /// Makes everything written so far durable. What could not be written before this call may have been told to somebody else.
    fn sync(&self) -> io::Result<()> {
        self.sync_point()?.sync()
    }

    /// Makes the names as they are now durable: what was taken away stays away. An error about data, which `sync` is to tell, is not
    /// kept from it.
    fn sync_names(&self) -> io::Result<()>;

    /// Whether other machines may change the store: then dirty files carry a mark (`user.forebay.dirty`).
    fn is_shared(&self) -> bool;

    /// Whether a change of a file never leaves the time of change that a look before it found: the clock of the store never stands
    /// still between the two.
    fn tells_changes_apart(&self) -> bool {
        false
    }

    /// Whether `locate` finds a file by its identity alone, wherever it was moved. Where it does not, who needs the file
    /// later keeps its anchor.
    fn finds_by_identity(&self) -> bool;

    /// Bytes that may still be written; `None` where nobody can tell.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Removes a hidden file ([`hidden`]) at a path relative to the root; whether there was one. One that may not be removed stays.
    fn remove_hidden(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

/// A point in time. The system tells each descriptor of an error of writing back once: this has one of its own, opened before the
/// writes, so that nobody else who syncs hears in its stead that they failed.
pub trait SyncPoint: Send {
    /// Makes what was written so far durable (`syncfs`). An error tells that something that was written since the point was made, or
    /// before, may be lost.
    fn sync(&self) -> io::Result<()>;
}

/// A regular file that stays findable whatever becomes of its name: an `O_PATH` descriptor.
pub trait Anchor: Send + Sync {
    /// Who it is.
    fn identity(&self) -> &Identity;
    /// Its attributes now.
    fn attributes(&self) -> io::Result<StoreAttributes>;
    /// Its attributes, asked past the caches of the store's client (`AT_STATX_FORCE_SYNC`).
    fn attributes_now(&self) -> io::Result<StoreAttributes> {
        self.attributes()
    }
    /// Its attributes as this machine learnt them last, with no request to the store where that has a cache of them here.
    fn attributes_in_memory(&self) -> io::Result<StoreAttributes> {
        self.attributes()
    }
    /// Opens it. `EACCES` cannot come for a file that was created through us by an agent without privilege: the
    /// anchor keeps the descriptor that creation gave.
    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>>;
    /// Its present path relative to the store's root; a hint, empty if it has none.
    fn path_hint(&self) -> PathBuf;
    /// Sets atime and leaves mtime alone. Changes ctime. `EPERM`: only its owner and root may.
    fn set_atime(&self, atime: Timestamp) -> io::Result<()>;
    /// Sets its times, as this process.
    fn set_times(&self, _times: &rustix::fs::Timestamps) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes its name durable: fsync of the file and of its directory.
    fn sync_name(&self) -> io::Result<()>;
    /// Reads the mark that an agent left on it, if any.
    fn mark(&self) -> io::Result<Option<Vec<u8>>>;
    /// Sets (`Some`) or removes (`None`) the mark. Changes ctime.
    fn set_mark(&self, mark: Option<&[u8]>) -> io::Result<()>;
    /// Begins a file that is to take this one's place, beside it under the name `hidden`, where another may be that was left so.
    /// `None`: it cannot have one, for it has several names or none, is not where it was last, its directory refuses, or the store
    /// cannot do it in one step.
    fn begin_successor(&self, _hidden: &OsStr) -> io::Result<Option<Box<dyn Successor>>> {
        Ok(None)
    }
}

/// What giving a file the attributes of another came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dressed {
    /// It had them.
    Same,
    /// It has them now.
    Changed,
    /// It cannot have them.
    Unfit,
}

/// A file that is to take an anchored file's place: empty, hidden, and removed when it is dropped before.
pub trait Successor: Send + Sync {
    /// Its data.
    fn file(&self) -> &dyn StoreFile;
    /// Gives it the owner, the mode, the attributes and the time of last access that the other file has now; after the last
    /// write. `ENOSPC`, `EDQUOT`, `EIO`: there is no room for that, or it failed.
    fn dress(&self) -> io::Result<Dressed>;
    /// Takes the other file's name and place, at once. False, and nothing done: that file is not where it was, or has other
    /// names too.
    fn take_place(&mut self) -> io::Result<bool>;
    /// Whether it has the name; `None` after an error that leaves this open.
    fn is_placed(&self) -> Option<bool>;
    /// Makes that durable.
    fn sync_name(&self) -> io::Result<()>;
}

/// An open file of the global store.
pub trait StoreFile: Send + Sync {
    /// Reads at `offset`; fewer bytes than asked only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// The first data range at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`); `None` when only a hole follows. A store
    /// that cannot tell says that everything is data.
    fn next_data(&self, offset: u64) -> io::Result<Option<types::ByteRange>>;
    /// Turns a range into a hole, or zeros where the store has no holes. Never changes the size.
    fn punch(&self, range: types::ByteRange) -> io::Result<()>;
    /// `fallocate(2)` with any other mode than punching: room for the range (0, `FALLOC_FL_KEEP_SIZE`), or zeros in it
    /// (`FALLOC_FL_ZERO_RANGE`). `EOPNOTSUPP` for what the store cannot do.
    fn allocate(&self, mode: u32, range: types::ByteRange) -> io::Result<()>;
    /// Cuts or extends.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sets mtime and leaves atime alone.
    fn set_mtime(&self, mtime: Timestamp) -> io::Result<()>;
    /// Its attributes now.
    fn attributes(&self) -> io::Result<StoreAttributes>;
    /// Makes its content durable.
    fn sync(&self) -> io::Result<()>;
    /// Has the store begin to write a range to its medium, so that a later `sync` waits for less. A hint, without promise.
    fn begin_sync(&self, _range: types::ByteRange) {}
    /// Waits until a range is where `begin_sync` sends it, and leaves no copy of it in this machine's memory. That does not
    /// make it durable; but an error says what one of `sync` says, which may not say it again: what was written may be lost.
    fn leave_behind(&self, _range: types::ByteRange) -> io::Result<()> {
        Ok(())
    }
}
