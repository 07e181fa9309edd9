//! The file system: the lower directory, with every operation delayed by the model. No lock is held during a delay.

mod pace;

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use fuse_protocol::{
    AttrReply, DirSink, Entry, Errno, Filesystem, Handle, InitReply, KernelConfig, NodeId, OpenReply, Request, SetAttr,
    StatFs, WriteFlags, fopen, init_flags,
};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom};
use types::Timestamp;

use crate::handles::Handles;
use crate::limits::BACKGROUND;
use crate::listing::Directory;
use crate::model::{ClientId, FileId};
use crate::nodes::{Node, Nodes, ROOT};
use crate::shape::{Call, Shape};
use crate::{attributes, lower};

struct File {
    fd: OwnedFd,
    id: FileId,
    client: ClientId,
}

pub struct SlowFs {
    nodes: Nodes,
    files: Handles<File>,
    directories: Handles<Directory>,
    shape: Shape,
    /// How long the kernel may cache names and attributes.
    valid: Duration,
}

impl SlowFs {
    pub fn new(root: OwnedFd, shape: Shape, valid: Duration) -> Result<SlowFs, Errno> {
        let key = attributes::of(&root)?.key;
        Ok(SlowFs { nodes: Nodes::new(root, key), files: Handles::new(), directories: Handles::new(), shape, valid })
    }

    /// Returns the entry for a file that was found or created, and counts a lookup.
    fn entry(&self, file: OwnedFd) -> Result<Entry, Errno> {
        let known = attributes::of(&file)?;
        let node = self.nodes.found(file, known.key);
        Ok(Entry { node, attr: known.attr, entry_valid: self.valid, attr_valid: self.valid })
    }

    fn find(&self, parent: &Node, name: &OsStr) -> Result<Entry, Errno> {
        self.entry(lower::child(parent, name)?)
    }

    /// Creates a file with `make`, then gives it to the caller.
    fn make(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        mode: u32,
        make: impl FnOnce(&Node) -> rustix::io::Result<()>,
    ) -> Result<Entry, Errno> {
        self.slowly(Call::Make, || {
            let parent = self.nodes.get(parent)?;
            make(&parent)?;
            let file = lower::child(&parent, name)?;
            lower::give(req, &parent, file.as_fd(), mode)?;
            self.entry(file)
        })
    }

    fn attr(&self, node: &Node) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: attributes::of(&node.fd)?.attr, valid: self.valid })
    }

    fn opened(&self, req: &Request, fd: OwnedFd, flags: OFlags) -> Result<OpenReply, Errno> {
        // A file that is only read has no errors to report at close.
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        // Writers of one file wait for each other by the lock protocol and not by this machine's inode lock.
        let mut opened = if writes { fopen::PARALLEL_DIRECT_WRITES } else { fopen::NOFLUSH };
        if flags.contains(OFlags::DIRECT) {
            opened |= fopen::DIRECT_IO;
        }
        let (id, client) = (attributes::of(&fd)?.attr.ino, self.shape.client(req));
        Ok(OpenReply { handle: self.files.insert(File { fd, id, client }), flags: opened, backing: None })
    }
}

/// Extended attribute of the root that contains the statistics of the store.
const STATISTICS: &CStr = c"user.slowfs.statistics";

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

impl Filesystem for SlowFs {
    fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
        use init_flags::*;
        let flags = ASYNC_READ
            | ASYNC_DIO
            | ATOMIC_O_TRUNC
            | AUTO_INVAL_DATA
            | DO_READDIRPLUS
            | READDIRPLUS_AUTO
            | PARALLEL_DIROPS
            | HANDLE_KILLPRIV_V2
            | DIRECT_IO_ALLOW_MMAP
            // File handles would contain our node ids, which end with the mount.
            | NO_EXPORT_SUPPORT;
        Ok(InitReply { flags, max_background: BACKGROUND, ..InitReply::default() })
    }

    fn lookup(&self, _: &Request, parent: NodeId, name: &OsStr) -> Result<Entry, Errno> {
        self.slowly(Call::Lookup, || self.find(&*self.nodes.get(parent)?, name))
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.nodes.forget(node, count);
    }

    fn getattr(&self, _: &Request, node: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
        self.slowly(Call::Getattr, || self.attr(&*self.nodes.get(node)?))
    }

    fn statx(&self, _: &Request, node: NodeId, _: Option<Handle>) -> Result<(AttrReply, Option<Timestamp>), Errno> {
        self.slowly(Call::Statx, || {
            let known = attributes::of(&self.nodes.get(node)?.fd)?;
            Ok((AttrReply { attr: known.attr, valid: self.valid }, known.birth))
        })
    }

    fn setattr(&self, _: &Request, node: NodeId, set: &SetAttr) -> Result<AttrReply, Errno> {
        self.slowly(Call::Setattr, || {
            let node = self.nodes.get(node)?;
            let open = set.handle.map(|handle| self.files.get(handle)).transpose()?;
            lower::set(&node, open.as_ref().map(|file| &file.fd), set)?;
            self.attr(&node)
        })
    }

    fn readlink(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.slowly(Call::Readlink, || {
            let target = rustix::fs::readlinkat(&self.nodes.get(node)?.fd, c"", Vec::new())?;
            Ok(target.into_bytes())
        })
    }

    fn symlink(&self, req: &Request, parent: NodeId, name: &OsStr, target: &OsStr) -> Result<Entry, Errno> {
        self.make(req, parent, name, libc::S_IFLNK, |parent| rustix::fs::symlinkat(target, &parent.fd, name))
    }

    fn mknod(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, _: u32, rdev: u32) -> Result<Entry, Errno> {
        self.make(req, parent, name, mode, |parent| {
            let kind = FileType::from_raw_mode(mode);
            rustix::fs::mknodat(&parent.fd, name, kind, Mode::from_raw_mode(mode & 0o7777), rdev.into())
        })
    }

    fn mkdir(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, _: u32) -> Result<Entry, Errno> {
        self.make(req, parent, name, mode | libc::S_IFDIR, |parent| {
            rustix::fs::mkdirat(&parent.fd, name, Mode::from_raw_mode(mode & 0o7777))
        })
    }

    fn unlink(&self, _: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.slowly(Call::Remove, || Ok(rustix::fs::unlinkat(&self.nodes.get(parent)?.fd, name, AtFlags::empty())?))
    }

    fn rmdir(&self, _: &Request, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.slowly(Call::Remove, || Ok(rustix::fs::unlinkat(&self.nodes.get(parent)?.fd, name, AtFlags::REMOVEDIR)?))
    }

    fn rename(
        &self,
        _: &Request,
        parent: NodeId,
        name: &OsStr,
        to: NodeId,
        new_name: &OsStr,
        flags: u32,
    ) -> Result<(), Errno> {
        self.slowly(Call::Rename, || {
            let (parent, to) = (self.nodes.get(parent)?, self.nodes.get(to)?);
            let flags = RenameFlags::from_bits_retain(flags);
            Ok(rustix::fs::renameat_with(&parent.fd, name, &to.fd, new_name, flags)?)
        })
    }

    fn link(&self, _: &Request, node: NodeId, to: NodeId, new_name: &OsStr) -> Result<Entry, Errno> {
        self.slowly(Call::Link, || {
            let (node, to) = (self.nodes.get(node)?, self.nodes.get(to)?);
            let path = lower::path_of(node.fd.as_fd());
            rustix::fs::linkat(rustix::fs::CWD, path, &to.fd, new_name, AtFlags::SYMLINK_FOLLOW)?;
            self.find(&to, new_name)
        })
    }

    fn open(&self, req: &Request, node: NodeId, flags: i32, kill_suidgid: bool) -> Result<OpenReply, Errno> {
        self.slowly(Call::Open, || {
            let (node, flags) = (self.nodes.get(node)?, open_flags(flags));
            let file = lower::open(node.fd.as_fd(), flags)?;
            if kill_suidgid {
                lower::drop_set_ids(node.fd.as_fd())?;
            }
            self.opened(req, file, flags)
        })
    }

    fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
    ) -> Result<(Entry, OpenReply), Errno> {
        self.slowly(Call::Create, || {
            let (parent, flags) = (self.nodes.get(parent)?, open_flags(flags));
            let (file, created) = lower::create(&parent, name, flags, mode & 0o7777)?;
            if created {
                lower::give(req, &parent, file.as_fd(), mode)?;
            }
            let entry = self.entry(lower::open(file.as_fd(), OFlags::PATH)?)?;
            Ok((entry, self.opened(req, file, flags)?))
        })
    }

    fn read(&self, _: &Request, _: NodeId, handle: Handle, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.moving(Call::Read, (handle, offset), |file| {
            let mut filled = 0;
            while filled < buffer.len() {
                match rustix::io::pread(&file.fd, &mut buffer[filled..], offset + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            Ok(filled)
        })
    }

    fn write(
        &self,
        _: &Request,
        _: NodeId,
        handle: Handle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
    ) -> Result<usize, Errno> {
        self.moving(Call::Write, (handle, offset), |file| {
            let mut written = 0;
            while written < data.len() {
                match rustix::io::pwrite(&file.fd, &data[written..], offset + written as u64) {
                    Ok(bytes) => written += bytes,
                    // Report the bytes written; the next write returns the error.
                    Err(_) if written > 0 => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if how.kill_suidgid {
                lower::drop_set_ids(file.fd.as_fd())?;
            }
            if how.sync {
                rustix::fs::fdatasync(&file.fd)?;
            }
            Ok(written)
        })
    }

    fn flush(&self, _: &Request, _: NodeId, handle: Handle, _: u64) -> Result<(), Errno> {
        self.slowly(Call::Flush, || {
            let copy = rustix::io::fcntl_dupfd_cloexec(&self.files.get(handle)?.fd, 0)?;
            // Closing a duplicate makes a network file system below report its errors. Not through `OwnedFd`, which
            // drops them.
            let raw = std::os::fd::IntoRawFd::into_raw_fd(copy);
            // SAFETY: `raw` is ours alone and is not used again.
            let closed = unsafe { libc::close(raw) };
            if closed < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
        })
    }

    fn release(&self, _: &Request, _: NodeId, handle: Handle, _: i32, _: Option<u64>) {
        // No process waits for it, so it is not delayed.
        self.shape.count(Call::Release);
        if let Ok(file) = self.files.get(handle) {
            self.shape.closed(file.id, handle, file.client);
        }
        self.files.remove(handle);
    }

    fn fsync(&self, _: &Request, _: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno> {
        self.slowly(Call::Fsync, || {
            let file = self.files.get(handle)?;
            if data_only {
                rustix::fs::fdatasync(&file.fd)?
            } else {
                rustix::fs::fsync(&file.fd)?
            }
            Ok(())
        })
    }

    fn opendir(&self, _: &Request, node: NodeId, _: i32) -> Result<OpenReply, Errno> {
        self.slowly(Call::Opendir, || {
            let fd = lower::open(self.nodes.get(node)?.fd.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(OpenReply { handle: self.directories.insert(Directory::new(fd)), ..OpenReply::default() })
        })
    }

    fn readdir(
        &self,
        _: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        plus: bool,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.slowly(Call::Readdir, || {
            let (parent, directory) = (self.nodes.get(node)?, self.directories.get(handle)?);
            let lookup = |name: &OsStr| self.find(&parent, name);
            directory.read(offset, sink, plus.then_some(&lookup))
        })
    }

    fn releasedir(&self, _: &Request, _: NodeId, handle: Handle) {
        self.directories.remove(handle);
    }

    fn fsyncdir(&self, _: &Request, _: NodeId, handle: Handle, data_only: bool) -> Result<(), Errno> {
        self.slowly(Call::Fsync, || self.directories.get(handle)?.sync(data_only))
    }

    fn statfs(&self, _: &Request, node: NodeId) -> Result<StatFs, Errno> {
        self.slowly(Call::Statfs, || {
            let stat = rustix::fs::fstatvfs(&self.nodes.get(node)?.fd)?;
            Ok(StatFs {
                blocks: stat.f_blocks,
                bfree: stat.f_bfree,
                bavail: stat.f_bavail,
                files: stat.f_files,
                ffree: stat.f_ffree,
                bsize: stat.f_bsize as u32,
                namelen: stat.f_namemax as u32,
                frsize: stat.f_frsize as u32,
            })
        })
    }

    fn setxattr(
        &self,
        _: &Request,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: i32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        self.slowly(Call::Xattr, || lower::set_xattr(&*self.nodes.get(node)?, name, value, flags, kill_sgid))
    }

    fn getxattr(&self, _: &Request, node: NodeId, name: &CStr) -> Result<Vec<u8>, Errno> {
        if node == ROOT && name == STATISTICS {
            return Ok(self.shape.statistics().into_bytes());
        }
        self.slowly(Call::Xattr, || lower::xattr(&*self.nodes.get(node)?, name))
    }

    fn listxattr(&self, _: &Request, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.slowly(Call::Xattr, || lower::xattr_names(&*self.nodes.get(node)?))
    }

    fn removexattr(&self, _: &Request, node: NodeId, name: &CStr) -> Result<(), Errno> {
        self.slowly(Call::Xattr, || lower::remove_xattr(&*self.nodes.get(node)?, name))
    }

    fn fallocate(&self, _: &Request, _: NodeId, handle: Handle, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
        self.slowly(Call::Allocate, || {
            let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
            Ok(rustix::fs::fallocate(&self.files.get(handle)?.fd, flags, offset, len)?)
        })
    }

    fn lseek(&self, _: &Request, _: NodeId, handle: Handle, offset: u64, whence: i32) -> Result<u64, Errno> {
        // Moves a file position that is not used otherwise: reads and writes give their offsets.
        let from = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        self.slowly(Call::Seek, || Ok(rustix::fs::seek(&self.files.get(handle)?.fd, from)?))
    }
}
