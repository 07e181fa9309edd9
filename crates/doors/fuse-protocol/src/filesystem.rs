//! What a FUSE file system implements: one method an operation, synchronous, called from the session's threads.

use std::ffi::{CStr, OsStr};

use types::Timestamp;

use crate::{
    AttrReply, DelayAction, DirSink, Entry, Errno, InitReply, KernelConfig, Late, LockArgs, OpenReply, Parked,
    ReadBytes, Request, SetAttr, StatFs, WriteFlags,
};

/// A file as the kernel names it: 1 is the root, others are minted by the file system and die at `forget`.
pub type NodeId = u64;
/// An open file or directory as the file system names it, from `open` to `release`.
pub type Handle = u64;

/// The operations of a mounted file system. The default of every operation is `ENOSYS`; the kernel then falls back
/// where it can. A handler may block its thread (the session starts another, up to its bound); one that may wait for
/// another request - a lock - takes a [`Parked`] reply and answers later from wherever it likes.
#[allow(unused_variables, clippy::too_many_arguments, reason = "the kernel's own argument lists")]
pub trait Filesystem: Send + Sync + 'static {
    /// Agrees on features, once, before anything else.
    fn init(&self, kernel: &KernelConfig) -> Result<InitReply, Errno>;
    /// The session ends; no call follows.
    fn destroy(&self) {}
    /// This thread begins with a request, before anything else is called for it.
    fn begins(&self, unique: u64) {}
    /// And has ended.
    fn ends(&self) {}
    /// Asked again and again of a request that is not answered for long, from another thread. Must not wait.
    fn late(&self, request: &Late) -> DelayAction {
        DelayAction::Wait
    }
    /// Finds `name` in `parent`; each success adds one to the node's lookup count.
    fn lookup(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Takes `count` from a node's lookup count; never answered. Batches arrive one by one here.
    fn forget(&self, node: NodeId, count: u64) {}
    /// Attributes; `handle` when the kernel has an open file.
    fn getattr(&self, req: &Request, node: NodeId, handle: Option<Handle>) -> Result<AttrReply, Errno> {
        Err(Errno::ENOSYS)
    }
    /// As getattr, with the time of birth if it is known; asked only for a caller that wants that time.
    fn statx(
        &self,
        req: &Request,
        node: NodeId,
        handle: Option<Handle>,
    ) -> Result<(AttrReply, Option<Timestamp>), Errno> {
        Err(Errno::ENOSYS)
    }
    /// chmod, chown, truncate, utimens: any mix.
    fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        Err(Errno::ENOSYS)
    }
    /// The target of a symbolic link.
    fn readlink(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates a symbolic link.
    fn symlink(&self, req: &Request, parent: NodeId, name: &OsStr, target: &OsStr) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates a file, fifo, socket or device. `mode` has the type; `umask` is to be applied unless ACLs rule it out.
    fn mknod(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates a directory.
    fn mkdir(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Removes a name that is no directory.
    fn unlink(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Removes an empty directory.
    fn rmdir(&self, req: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Renames; `flags` are those of renameat2.
    fn rename(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        to: NodeId,
        new_name: &OsStr,
        flags: u32,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Adds a name to `node`.
    fn link(&self, req: &Request, node: NodeId, to: NodeId, new_name: &OsStr) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Opens; `flags` are those of open(2) without `O_CREAT`, `O_EXCL`; `O_TRUNC` is there if atomic truncation was agreed.
    /// `kill_suidgid` asks to clear the set-id bits on truncation.
    fn open(&self, req: &Request, node: NodeId, flags: i32, kill_suidgid: bool) -> Result<OpenReply, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates and opens.
    fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(Entry, OpenReply), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates and opens a file without a name.
    fn tmpfile(
        &self,
        req: &Request,
        parent: NodeId,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(Entry, OpenReply), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Fills `buffer` from `offset`; fewer bytes than asked mean the end of the file.
    fn read(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }
    /// The same where the bytes may lie in memory already: they are answered from there.
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
    /// Writes; all of `data` or an error, unless it says how much.
    fn write(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }
    /// A descriptor was closed; others of the same open file may remain. `owner` identifies the closer's POSIX locks.
    fn flush(&self, req: &Request, node: NodeId, handle: Handle, owner: u64) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// The last descriptor of an open file is gone. `flock_owner`: release that owner's flock.
    fn release(&self, req: &Request, node: NodeId, handle: Handle, flags: i32, flock_owner: Option<u64>) {}
    /// fsync or fdatasync.
    fn fsync(&self, req: &Request, node: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Opens a directory.
    fn opendir(&self, req: &Request, node: NodeId, flags: i32) -> Result<OpenReply, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Fills `sink` with entries that follow `offset` (0: from the start; else the offset given with an entry). With
    /// `plus` entries carry attributes and count as lookups; those that did not fit do not.
    fn readdir(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        plus: bool,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Closes a directory.
    fn releasedir(&self, req: &Request, node: NodeId, handle: Handle) {}
    /// fsync of a directory.
    fn fsyncdir(&self, req: &Request, node: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// File system statistics.
    fn statfs(&self, req: &Request, node: NodeId) -> Result<StatFs, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Syncs the whole file system (syncfs).
    fn syncfs(&self, req: &Request, node: NodeId) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Sets an extended attribute; `flags` are those of setxattr(2). `kill_sgid`: an ACL change must clear set-group-id.
    fn setxattr(
        &self,
        req: &Request,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: i32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// The whole value; the session answers size queries and `ERANGE`.
    fn getxattr(&self, req: &Request, node: NodeId, name: &CStr) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOSYS)
    }
    /// All names, each ended by a NUL; the session answers size queries and `ERANGE`.
    fn listxattr(&self, req: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request, node: NodeId, name: &CStr) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// access(2); never asked when the mount checks permissions itself.
    fn access(&self, req: &Request, node: NodeId, mask: i32) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Finds a lock that would conflict; `F_UNLCK` in the answer's `kind` when none does.
    fn getlk(&self, req: &Request, node: NodeId, handle: Handle, lock: LockArgs) -> Result<LockArgs, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Takes, changes or releases a POSIX lock or flock (`lock.flock`). With `wait`, answer `reply` when it is granted,
    /// or with `EINTR` once `reply.interrupted()`; without, at once.
    fn setlk(&self, req: &Request, node: NodeId, handle: Handle, lock: LockArgs, wait: bool, reply: Parked) {
        reply.error(Errno::ENOSYS);
    }
    /// fallocate(2), with its mode bits.
    fn fallocate(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// `SEEK_DATA` and `SEEK_HOLE`.
    fn lseek(&self, req: &Request, node: NodeId, handle: Handle, offset: u64, whence: i32) -> Result<u64, Errno> {
        Err(Errno::ENOSYS)
    }
    /// copy_file_range(2); the number of bytes copied.
    fn copy_file_range(
        &self,
        req: &Request,
        from: (NodeId, Handle, u64),
        to: (NodeId, Handle, u64),
        len: u64,
        flags: u64,
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }
    /// An ioctl whose argument is described by its number; `input` has what the caller passed in, at most `out_size` bytes go back.
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
}
