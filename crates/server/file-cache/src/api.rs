//! The surface.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use config::Policy;
use global_store::Anchor;
use types::{ByteRange, Identity, Timestamp};

use crate::settings::{OpenError, Settings};
use crate::status::Status;

fn later<T>() -> io::Result<T> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// `O_TRUNC`: the content goes.
    pub truncate: bool,
    /// The caller created the file just now, empty.
    pub created: bool,
    /// The rules of its directory.
    pub policy: Arc<Policy>,
}

/// What `stat` must say of a file whose replica is ahead of the global copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlay {
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks that the replica takes.
    pub blocks: u64,
    /// Last write.
    pub mtime: Timestamp,
    /// Last change: the later of the replica's and the global copy's.
    pub ctime: Timestamp,
}

/// Where a file's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Only in the global store.
    Absent,
    /// Being copied up.
    Fetching,
    /// In both, equal.
    Clean,
    /// Ahead of the global copy and open for writing, or mapped.
    Dirty,
    /// Ahead, and waiting for its stage-out.
    Queued,
    /// Being copied down.
    Draining,
    /// Both changed.
    Conflict,
    /// Its stage-out cannot finish.
    Failed,
}

/// Dirty data that did not reach the global store.
#[derive(Debug, Clone)]
pub struct Stuck {
    /// Path relative to the accelerated directory, as last known.
    pub path_hint: PathBuf,
    /// Whose.
    pub identity: Identity,
    /// Where it stands.
    pub state: Residency,
    /// Not found in the global store.
    pub orphaned: bool,
    /// Why.
    pub reason: String,
    /// The errno behind it; `EINTR` when the caller interrupted the wait.
    pub errno: i32,
    /// Where the data is.
    pub replica: PathBuf,
}

/// Which copy of a conflict stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The replica replaces the global copy.
    BurstBuffer,
    /// The global copy stays; the replica's data goes.
    Global,
    /// The global copy stays; the replica is saved beside the burst buffer's data in `saved/` and its path is returned.
    Both,
}

/// How far a drain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainProgress {
    /// Files staged out since the drain began.
    pub files_done: u64,
    /// Files still to go.
    pub files_left: u64,
    /// Bytes of the files still to go.
    pub bytes_left: u64,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekFor {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`
    Hole,
}

/// Where a write went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Bytes written, all of the data.
    pub written: usize,
    /// Where they begin: the end of the file for an append.
    pub offset: u64,
}

/// The file cache. Cheap to clone.
#[derive(Clone)]
pub struct FileCache {}

/// One version of one file's data.
pub struct File {}

/// One open file description. Dropping it is its release.
pub struct FileHandle {}

#[allow(unused_variables, missing_docs)]
impl FileCache {
    /// Opens (or makes) the burst buffer, recovers what a crash left, and starts the background threads.
    pub fn open(settings: Settings) -> Result<FileCache, OpenError> {
        Ok(FileCache {})
    }
    /// Opens a file. For a writer, what a crash needs to know is durable against the death of the process before
    /// this returns. `ETIMEDOUT`: another agent's mark did not go within the policy's `remote_wait`.
    pub fn open_file(&self, anchor: Arc<dyn Anchor>, how: OpenHow) -> io::Result<FileHandle> {
        later()
    }
    /// What `stat` must say instead of the global copy's attributes; `None`: these are true. Never blocks on I/O of
    /// the global store.
    pub fn attributes(&self, identity: &Identity) -> Option<Overlay> {
        None
    }
    /// `truncate(2)`: like opening for writing, `FileHandle::set_len` and closing.
    pub fn set_len(&self, anchor: &Arc<dyn Anchor>, len: u64, policy: &Arc<Policy>) -> io::Result<()> {
        later()
    }
    /// `utimens`: runs `apply`, which changes the global copy's times, so that a stage-out running now does not take
    /// the change for an outsider's; then a dirty replica gets the same mtime if `sets_mtime`. Call it for every
    /// utimens of a regular file; for a file without a replica it only runs `apply`.
    pub fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        sets_mtime: bool,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        apply()
    }
    /// After our own chmod, chown, rename, link or xattr: the record's fingerprint and hint follow.
    pub fn own_change(&self, anchor: &dyn Anchor) {}
    /// The last name is gone through us: the data is dropped once nobody has it open, and never staged out.
    pub fn unlinked(&self, identity: &Identity) {}
    /// Whether the replica holds, or may hold, what the global copy lacks.
    pub fn is_dirty(&self, identity: &Identity) -> bool {
        false
    }
    /// Stages a file out now and waits. A file that is open for writing or mapped is copied and stays dirty: no error.
    pub fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        Ok(())
    }
    /// Stages out every dirty file and waits; what cannot be staged out is returned.
    pub fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        Vec::new()
    }
    /// Copies a whole file up and waits.
    pub fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        later()
    }
    /// Drops a clean replica that nobody uses. `EBUSY`: open or mapped or being copied; `EINVAL`: dirty; pinned: `EPERM`.
    pub fn evict(&self, identity: &Identity) -> io::Result<()> {
        later()
    }
    /// Pins (never evicted, never expired) or unpins. `ENOENT`: no replica; stage it in first.
    pub fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        later()
    }
    /// Where a file's data is.
    pub fn state(&self, identity: &Identity) -> Residency {
        Residency::Absent
    }
    /// Ends a conflict, a failure or an orphan. Returns where `Keep::Both` saved the replica's data.
    pub fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        later()
    }
    /// While true, new opens for writing go to the global store. Drain afterwards.
    pub fn quiesce(&self, on: bool) {}
    /// What an operator sees.
    pub fn status(&self) -> Status {
        Status::default()
    }
    /// Stops the background threads and lets the burst buffer go; dirty data stays for the next start. Drain first.
    pub fn shutdown(&self) {}
}

#[allow(unused_variables)]
impl FileHandle {
    /// The version of the data that is open; compare with `Arc::ptr_eq`.
    pub fn file(&self) -> &Arc<File> {
        unreachable!("no handle exists yet")
    }
    /// An `O_PATH` descriptor of the complete replica: passthrough may be answered. `None` for every other route.
    pub fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Passthrough was answered: from now on the kernel reads and writes past us.
    pub fn use_passthrough(&self) {}
    /// Reads; fewer bytes than asked only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        later()
    }
    /// Writes all of `data` at `offset`, or atomically at the end if `append`.
    pub fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult> {
        later()
    }
    /// `ftruncate`
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        later()
    }
    /// `fallocate`; `mode` holds the `FALLOC_FL_*` bits. `EOPNOTSUPP` for what the route cannot do.
    pub fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        later()
    }
    /// `SEEK_DATA`, `SEEK_HOLE`. `ENXIO` past the end, or no more data.
    pub fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        later()
    }
    /// `fsync`, or `fdatasync` if `data_only`: returns when what was written survives a crash of the machine. Tells a
    /// failed stage-out once.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        later()
    }
    /// One `close` of a descriptor. Tells a failed stage-out once.
    pub fn flush(&self) -> io::Result<()> {
        later()
    }
    /// The bytes that lie in the replica; everything for a complete one.
    pub fn present(&self) -> Vec<ByteRange> {
        Vec::new()
    }
}

impl File {
    /// Whether this version is still the file's newest: false after the global copy changed behind us.
    pub fn is_current(&self) -> bool {
        true
    }
}
