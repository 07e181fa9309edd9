//! Interface of a FUSE file system: one synchronous method per operation, called from the session's threads.

use std::ffi::{CStr, OsStr};

use types::Timestamp;

use crate::{
    AttrReply, DelayAction, DirSink, Entry, Errno, Handle, InitReply, KernelConfig, Late, LockArgs, NodeId, OpenReply,
    Parked, ReadBytes, Request, SetAttr, StatFs, WriteFlags,
};

/// Defines operations that answer `ENOSYS` unless a file system has them.
macro_rules! unanswered {
    ($($(#[$doc:meta])* fn $name:ident(&$this:ident $(, $argument:ident: $type:ty)* $(,)?) -> $result:ty;)*) => {
        $($(#[$doc])* fn $name(&$this $(, $argument: $type)*) -> $result {
            Err(Errno::ENOSYS)
        })*
    };
}

/// Operations of a mounted file system. Every operation answers `ENOSYS` by default; the kernel then uses a fallback if
/// there is one. A handler may block its thread: the session starts another, up to its bound. A handler that may wait
/// for another request (a lock) takes a [`Parked`] reply and answers later from any thread.
#[allow(unused_variables, clippy::too_many_arguments, reason = "the kernel's own argument lists")]
pub trait Filesystem: Send + Sync + 'static {
    /// Negotiates features. Called once, before all other calls.
    fn init(&self, kernel: &KernelConfig) -> Result<InitReply, Errno>;
    /// Ends the session; no call follows.
    fn destroy(&self) {}
    /// Announces that this thread begins a request. Called before all other calls for that request.
    fn begins(&self, unique: u64) {}
    /// Announces that this thread has ended its request.
    fn ends(&self) {}
    /// Decides about a request that has not been answered for long. Called repeatedly, from another thread. Must not
    /// wait.
    fn late(&self, request: &Late) -> DelayAction {
        DelayAction::Wait
    }
    /// Subtracts `count` from a node's lookup count; never answered. A batch arrives here one by one.
    fn forget(&self, node: NodeId, count: u64) {}
    /// Reads as [`Filesystem::read`] does, or returns buffers that are in memory already and are sent in place.
    fn read_or_share(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadBytes, Errno> {
        self.read(req, node, handle, offset, buffer).map(ReadBytes::Copied)
    }
    /// Closes an open file, whose last descriptor is gone. `flock_owner`: release that owner's flock.
    fn release(&self, req: &Request, node: NodeId, handle: Handle, flags: i32, flock_owner: Option<u64>) {}
    /// Closes a directory.
    fn releasedir(&self, req: &Request, node: NodeId, handle: Handle) {}
    /// Takes, changes or releases a POSIX lock or flock (`lock.flock`). Without `wait`, answers at once. With `wait`,
    /// answers `reply` when the lock is granted, or with `EINTR` once `reply.interrupted()`.
    fn setlk(&self, req: &Request, node: NodeId, handle: Handle, lock: LockArgs, wait: bool, reply: Parked) {
        reply.error(Errno::ENOSYS);
    }
    /// Handles an ioctl whose number describes its argument. `input` is the caller's data; at most `out_size` bytes are
    /// returned.
    fn ioctl(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        command: u32,
        input: &[u8],
        out_size: usize,
    ) -> Result<(i32, Vec<u8>), Errno> {
        Err(Errno::ENOTTY)
    }

    unanswered! {
        /// Finds `name` in `parent`; each success adds one to the node's lookup count.
        fn lookup(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<Entry, Errno>;
        /// Returns attributes. `handle` is present if the kernel has an open file.
        fn getattr(&self, req: &Request, node: NodeId, handle: Option<Handle>) -> Result<AttrReply, Errno>;
        /// Returns attributes and the time of birth, if known. Called only for a caller that wants that time.
        fn statx(
            &self, req: &Request, node: NodeId, handle: Option<Handle>,
        ) -> Result<(AttrReply, Option<Timestamp>), Errno>;
        /// Changes attributes, in any combination: chmod, chown, truncate, utimens.
        fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno>;
        /// Returns the target of a symbolic link.
        fn readlink(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno>;
        /// Creates a symbolic link.
        fn symlink(&self, req: &Request, parent: NodeId, name: &OsStr, target: &OsStr) -> Result<Entry, Errno>;
        /// Creates a file, fifo, socket or device. `mode` contains the type; `umask` must be applied unless ACLs rule
        /// it out.
        fn mknod(
            &self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32, rdev: u32,
        ) -> Result<Entry, Errno>;
        /// Creates a directory.
        fn mkdir(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry, Errno>;
        /// Removes a name that is not a directory.
        fn unlink(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno>;
        /// Removes an empty directory.
        fn rmdir(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno>;
        /// Renames a file; `flags` are those of renameat2.
        fn rename(
            &self, req: &Request, parent: NodeId, name: &OsStr, to: NodeId, new_name: &OsStr, flags: u32,
        ) -> Result<(), Errno>;
        /// Adds a name to `node`.
        fn link(&self, req: &Request, node: NodeId, to: NodeId, new_name: &OsStr) -> Result<Entry, Errno>;
        /// Opens a file. `flags` are those of open(2) without `O_CREAT` and `O_EXCL`. They contain `O_TRUNC` if atomic
        /// truncation was agreed. `kill_suidgid` asks to clear the set-id bits on truncation.
        fn open(&self, req: &Request, node: NodeId, flags: i32, kill_suidgid: bool) -> Result<OpenReply, Errno>;
        /// Creates and opens a file.
        fn create(
            &self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32, flags: i32,
        ) -> Result<(Entry, OpenReply), Errno>;
        /// Creates and opens a file without a name.
        fn tmpfile(
            &self, req: &Request, parent: NodeId, mode: u32, umask: u32, flags: i32,
        ) -> Result<(Entry, OpenReply), Errno>;
        /// Reads into `buffer` from `offset` and returns the number of bytes. Fewer than asked for mean the end of the
        /// file.
        fn read(
            &self, req: &Request, node: NodeId, handle: Handle, offset: u64, buffer: &mut [u8],
        ) -> Result<usize, Errno>;
        /// Writes all of `data` or returns an error. A partial write returns its number of bytes.
        fn write(
            &self, req: &Request, node: NodeId, handle: Handle, offset: u64, data: &[u8], how: WriteFlags,
        ) -> Result<usize, Errno>;
        /// Handles the close of one descriptor (FUSE's flush); others of this open file may remain. `owner` identifies
        /// the closer's POSIX locks.
        fn flush(&self, req: &Request, node: NodeId, handle: Handle, owner: u64) -> Result<(), Errno>;
        /// Syncs an open file: fsync or fdatasync.
        fn fsync(&self, req: &Request, node: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno>;
        /// Opens a directory.
        fn opendir(&self, req: &Request, node: NodeId, flags: i32) -> Result<OpenReply, Errno>;
        /// Fills `sink` with entries that follow `offset`: 0 for the start, otherwise the offset given with an entry.
        /// With `plus`, entries carry attributes and count as lookups; entries that did not fit do not count.
        fn readdir(
            &self, req: &Request, node: NodeId, handle: Handle, offset: u64, plus: bool, sink: &mut DirSink<'_>,
        ) -> Result<(), Errno>;
        /// Syncs a directory (fsync).
        fn fsyncdir(&self, req: &Request, node: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno>;
        /// Returns file system statistics.
        fn statfs(&self, req: &Request, node: NodeId) -> Result<StatFs, Errno>;
        /// Syncs the whole file system (syncfs).
        fn syncfs(&self, req: &Request, node: NodeId) -> Result<(), Errno>;
        /// Sets an extended attribute; `flags` are those of setxattr(2). `kill_sgid`: an ACL change must clear
        /// set-group-id.
        fn setxattr(
            &self, req: &Request, node: NodeId, name: &CStr, value: &[u8], flags: i32, kill_sgid: bool,
        ) -> Result<(), Errno>;
        /// Returns the whole value of an extended attribute. The session answers size queries and `ERANGE`.
        fn getxattr(&self, req: &Request, node: NodeId, name: &CStr) -> Result<Vec<u8>, Errno>;
        /// Returns the names of all extended attributes, each ended by a NUL. The session answers size queries and
        /// `ERANGE`.
        fn listxattr(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno>;
        /// Removes an extended attribute.
        fn removexattr(&self, req: &Request, node: NodeId, name: &CStr) -> Result<(), Errno>;
        /// Checks access(2). Never called if the mount checks permissions itself.
        fn access(&self, req: &Request, node: NodeId, mask: i32) -> Result<(), Errno>;
        /// Finds a conflicting lock. Returns `F_UNLCK` in `kind` if there is none.
        fn getlk(&self, req: &Request, node: NodeId, handle: Handle, lock: LockArgs) -> Result<LockArgs, Errno>;
        /// Changes the allocation of a range: fallocate(2), with its mode bits.
        fn fallocate(
            &self, req: &Request, node: NodeId, handle: Handle, offset: u64, len: u64, mode: i32,
        ) -> Result<(), Errno>;
        /// Finds data or a hole: `SEEK_DATA` and `SEEK_HOLE`.
        fn lseek(&self, req: &Request, node: NodeId, handle: Handle, offset: u64, whence: i32) -> Result<u64, Errno>;
        /// Copies a range as copy_file_range(2). Returns the number of bytes copied.
        fn copy_file_range(
            &self, req: &Request, from: (NodeId, Handle, u64), to: (NodeId, Handle, u64), len: u64, flags: u64,
        ) -> Result<usize, Errno>;
    }
}
