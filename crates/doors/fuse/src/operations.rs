//! Handlers of the kernel's requests.

use std::ffi::{CStr, OsStr};
use std::time::Duration;

use agent::descriptors::Charge;
use agent::locks::owner as owner_of;
use agent::{Mode, NewMode, ReadData, RequestId};
use data_store::SeekFor;
use fuse_protocol::{
    AttrReply, DelayAction, DirSink, Entry, Errno, Filesystem, Handle, InitReply, KernelConfig, Late, LockArgs, NodeId,
    OpenReply, Parked, ReadBytes, Request, SetAttr, StatFs, WriteFlags,
    limits::{PAGES_READ_MAX, READ_PARTS_MAX},
};
use types::ByteRange;

use crate::coherence::SharedFile;
use crate::convert::{self, caller};
use crate::door::{Door, lock_request};
use crate::limits;
use crate::waits;

type Done<T> = Result<T, Errno>;

impl Filesystem for Door {
    fn init(&self, kernel: &KernelConfig) -> Done<InitReply> {
        let (flags, max_stack_depth) = self.agree(kernel);
        Ok(InitReply { flags, max_stack_depth, max_background: limits::BACKGROUND_REQUESTS, ..InitReply::default() })
    }

    /// Closes everything that is still open, before the caller drains. At the end of a mount the kernel drops the
    /// releases that it had queued.
    fn destroy(&self) {
        self.handles.all_files().into_iter().for_each(|handle| self.release_file(handle, None));
        self.handles.clear_directories();
    }

    fn begins(&self, unique: u64) {
        self.begin(unique);
    }

    fn ends(&self) {
        RequestId::end();
    }

    fn late(&self, request: &Late) -> DelayAction {
        self.patience(request)
    }

    fn lookup(&self, req: &Request, parent: NodeId, name: &OsStr) -> Done<Entry> {
        let _working = self.work_for(req);
        let directory = self.node(parent)?;
        match self.agent.lookup(&directory.node, name) {
            Ok(found) => Ok(self.entry(found, parent, Some(name)).1),
            Err(error) => self.absent(&directory, name, error.into()),
        }
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.pages_of(node).into_iter().for_each(|pages| pages.forgotten(node));
        self.forget_lookups(node, count);
    }

    fn getattr(&self, req: &Request, node: NodeId, _handle: Option<Handle>) -> Done<AttrReply> {
        let _working = self.work_for(req);
        self.attributes(&*self.node(node)?)
    }

    fn setattr(&self, req: &Request, node: NodeId, set: &SetAttr) -> Done<AttrReply> {
        let _working = self.work_for(req);
        let known = self.node(node)?;
        if set.size.is_some() {
            self.pages_of(node).into_iter().for_each(|pages| pages.changed(node));
        }
        let open = set.handle.map(|handle| self.handles.file(handle)).transpose()?;
        let (caller, new) = (caller(req), convert::new_attributes(set));
        if let Some(user) = self.only_user
            && set.gid.is_some()
            && user.misleads(set, self.agent.attributes(&known.node)?.gid)
        {
            return Err(Errno::EPERM);
        }
        let open = open.as_ref().map(|file| &file.open);
        let set = self.agent.set_attributes(&caller, &known.node, open, &new, &|| req.interrupted());
        let attributes = set.map_err(self.failed("setattr", &known.node))?;
        // Opens of an older version have that version's size and time.
        if known.is_retired() { self.attributes(&known) } else { Ok(self.told(&known, &attributes)) }
    }

    fn readlink(&self, _req: &Request, node: NodeId) -> Done<Vec<u8>> {
        Ok(self.agent.read_symlink(&self.node(node)?.node)?)
    }

    fn symlink(&self, req: &Request, parent: NodeId, name: &OsStr, target: &OsStr) -> Done<Entry> {
        let directory = self.node(parent)?;
        let found = self.agent.make_symlink(&caller(req), &directory.node, name, target)?;
        Ok(self.entry(found, parent, Some(name)).1)
    }

    fn mknod(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> Done<Entry> {
        let _working = self.work_for(req);
        let new = NewMode { mode, umask };
        let directory = self.node(parent)?;
        let found = self.agent.make_node(&caller(req), &directory.node, name, new, rdev)?;
        Ok(self.entry(found, parent, Some(name)).1)
    }

    fn mkdir(&self, req: &Request, parent: NodeId, name: &OsStr, mode: u32, umask: u32) -> Done<Entry> {
        let new = NewMode { mode, umask };
        let directory = self.node(parent)?;
        let found = self.agent.make_directory(&caller(req), &directory.node, name, new)?;
        Ok(self.entry(found, parent, Some(name)).1)
    }

    fn unlink(&self, req: &Request, parent: NodeId, name: &OsStr) -> Done<()> {
        let _working = self.work_for(req);
        let directory = self.node(parent)?;
        self.agent.unlink(&caller(req), &directory.node, name)?;
        self.trusted.removed(parent, name);
        Ok(())
    }

    fn rmdir(&self, req: &Request, parent: NodeId, name: &OsStr) -> Done<()> {
        let directory = self.node(parent)?;
        self.agent.remove_directory(&caller(req), &directory.node, name)?;
        self.trusted.removed(parent, name);
        Ok(())
    }

    fn rename(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        to: NodeId,
        new_name: &OsStr,
        flags: u32,
    ) -> Done<()> {
        let _working = self.work_for(req);
        let (from, to) = (self.node(parent)?, self.node(to)?);
        let exchanges = flags & libc::RENAME_EXCHANGE != 0;
        self.trusted.moves((parent, name), (to.id, new_name), exchanges);
        let (old, new) = ((&*from.node, name), (&*to.node, new_name));
        self.agent.rename(&caller(req), old, new, flags, &|| req.interrupted())?;
        if !exchanges {
            self.trusted.removed(parent, name);
        }
        Ok(())
    }

    fn link(&self, req: &Request, node: NodeId, to: NodeId, new_name: &OsStr) -> Done<Entry> {
        let _working = self.work_for(req);
        let (known, parent) = (self.node(node)?, self.node(to)?);
        let found = self.agent.link(&caller(req), &known.node, &parent.node, new_name)?;
        Ok(self.entry(found, to, Some(new_name)).1)
    }

    fn open(&self, req: &Request, node: NodeId, flags: i32, kill_suidgid: bool) -> Done<OpenReply> {
        let _working = self.work_for(req);
        let mode = Mode { clear_set_id: kill_suidgid, ..Mode::from_flags(flags) };
        if mode.truncate {
            self.pages_of(node).into_iter().for_each(|pages| pages.changed(node));
        }
        self.open_file(req, &self.node(node)?, mode)
    }

    fn create(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Done<(Entry, OpenReply)> {
        let _working = self.work_for(req);
        self.create_file(req, parent, Some(name), NewMode { mode, umask }, flags)
    }

    fn tmpfile(&self, req: &Request, parent: NodeId, mode: u32, umask: u32, flags: i32) -> Done<(Entry, OpenReply)> {
        let _working = self.work_for(req);
        self.create_file(req, parent, None, NewMode { mode, umask }, flags)
    }

    fn read(&self, req: &Request, node: NodeId, handle: Handle, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        let _working = self.work_for(req);
        let file = self.handles.file(handle)?;
        let read = file.open.read(buffer, offset).map_err(self.failed("read", &file.known.node))?;
        self.pages_of(node).into_iter().for_each(|pages| pages.read(node, offset, &buffer[..read]));
        Ok(read)
    }

    fn read_or_share(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Done<ReadBytes> {
        // Streamed data is returned in place and its pages are not remembered.
        let small = buffer.len() <= PAGES_READ_MAX;
        if self.pages_of(node).filter(|pages| small || pages.has_any(node)).is_some() {
            return self.read(req, node, handle, offset, buffer).map(ReadBytes::Copied);
        }
        let _working = self.work_for(req);
        let file = self.handles.file(handle)?;
        let read = file.open.read_or_share(buffer, offset, READ_PARTS_MAX);
        Ok(match read.map_err(self.failed("read", &file.known.node))? {
            ReadData::Copied(read) => ReadBytes::Copied(read),
            ReadData::InPlace(parts) => {
                ReadBytes::InPlace(parts.into_iter().map(|part| part as Box<dyn AsRef<[u8]>>).collect())
            }
        })
    }

    fn write(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
    ) -> Done<usize> {
        let _working = self.work_for(req);
        let file = self.handles.file(handle)?;
        let pages = self.pages_of(node);
        let differing = pages.filter(|_| how.cached).and_then(|pages| pages.differing(node, offset, data));
        for part in differing.unwrap_or_else(|| std::iter::once(0..data.len()).collect()) {
            let at = offset + part.start as u64;
            let written = self.agent.write(&file.open, &data[part.clone()], at, convert::write_how(how));
            let written = written.map_err(self.failed("write", &file.known.node))?;
            self.wrote(&file, at, written);
            if part.start + written < part.end {
                pages.into_iter().for_each(|pages| pages.changed(node));
                return Ok(part.start + written);
            }
        }
        pages.into_iter().for_each(|pages| pages.written(node, offset, data));
        Ok(data.len())
    }

    fn flush(&self, req: &Request, _node: NodeId, handle: Handle, owner: u64) -> Done<()> {
        let _working = self.work_for_close(req);
        let file = self.handles.file(handle)?;
        let _refreshes = self.refreshes(req);
        let flushed = file.open.flush();
        // Closing any descriptor of a file ends all of its process's POSIX locks on it. The next holder of such a
        // lock sees what was flushed.
        self.agent.close_descriptor(&file.known.node, owner_of(self.client, owner), handle);
        flushed.map_err(self.failed("close", &file.known.node))
    }

    fn release(&self, req: &Request, _node: NodeId, handle: Handle, _flags: i32, flock_owner: Option<u64>) {
        let _refreshes = self.refreshes(req);
        self.release_file(handle, flock_owner);
    }

    fn fsync(&self, req: &Request, _node: NodeId, handle: Handle, data_only: bool) -> Done<()> {
        let _working = self.work_for(req);
        let file = self.handles.file(handle)?;
        file.open.sync(data_only).map_err(self.failed("fsync", &file.known.node))?;
        let _refreshes = self.refreshes(req);
        self.shared(&file.known).iter().for_each(SharedFile::refresh);
        Ok(())
    }

    fn opendir(&self, req: &Request, node: NodeId, _flags: i32) -> Done<OpenReply> {
        let known = self.node(node)?;
        let charge = Charge::take(self.owner(req.uid)).map_err(std::io::Error::from)?;
        let directory = self.agent.open_directory(&caller(req), &known.node)?;
        let flags = self.listing_flags(&known);
        let handle = self.handles.add_directory(known, directory, Some(charge));
        Ok(OpenReply { handle, flags, ..OpenReply::default() })
    }

    fn readdir(
        &self,
        _req: &Request,
        node: NodeId,
        handle: Handle,
        offset: u64,
        plus: bool,
        sink: &mut DirSink<'_>,
    ) -> Done<()> {
        self.list(node, &*self.handles.directory(handle)?, offset, plus, sink)
    }

    fn releasedir(&self, _req: &Request, _node: NodeId, handle: Handle) {
        self.handles.remove_directory(handle);
    }

    fn fsyncdir(&self, _req: &Request, _node: NodeId, handle: Handle, _data_only: bool) -> Done<()> {
        Ok(self.handles.directory(handle)?.sync()?)
    }

    fn syncfs(&self, req: &Request, _node: NodeId) -> Done<()> {
        let _working = self.work_for(req);
        Ok(self.agent.sync_all()?)
    }

    fn statfs(&self, _req: &Request, _node: NodeId) -> Done<StatFs> {
        let space = self.agent.space()?;
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(StatFs {
            blocks: space.blocks,
            bfree: space.bfree,
            bavail: space.bavail,
            files: space.files,
            ffree: space.ffree,
            bsize: narrow(space.bsize),
            namelen: narrow(space.namelen),
            frsize: narrow(space.frsize),
        })
    }

    fn setxattr(
        &self,
        req: &Request,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: i32,
        kill_sgid: bool,
    ) -> Done<()> {
        let _working = self.work_for(req);
        let known = self.node(node)?;
        self.agent.set_xattr(&caller(req), &known.node, name, value, flags as u32, kill_sgid)?;
        Ok(())
    }

    fn getxattr(&self, _req: &Request, node: NodeId, name: &CStr) -> Done<Vec<u8>> {
        let known = self.node(node)?;
        // The attribute that leads to this machine's agent is only for this machine's commands.
        if self.client != 0 && name == agent::control::CONTROL {
            return Err(Errno::ENODATA);
        }
        if self.hangs() && name == agent::CAPABILITY && self.is_known_plain(&known) {
            return Err(Errno::ENODATA);
        }
        Ok(self.agent.xattr(&known.node, name)?)
    }

    fn listxattr(&self, req: &Request, node: NodeId) -> Done<Vec<u8>> {
        Ok(self.agent.xattr_names(&caller(req), &self.node(node)?.node)?)
    }

    fn removexattr(&self, req: &Request, node: NodeId, name: &CStr) -> Done<()> {
        let _working = self.work_for(req);
        let known = self.node(node)?;
        self.agent.remove_xattr(&caller(req), &known.node, name)?;
        Ok(())
    }

    fn getlk(&self, _req: &Request, node: NodeId, handle: Handle, lock: LockArgs) -> Done<LockArgs> {
        let known = self.node(node)?;
        let Some(wanted) = lock_request(self.client, &lock, handle)? else { return Ok(lock) };
        Ok(match self.agent.test_lock(&known.node, &wanted.range)? {
            None => LockArgs { kind: libc::F_UNLCK, ..lock },
            Some(held) => convert::held_lock(&held, lock, self.client),
        })
    }

    fn setlk(&self, req: &Request, node: NodeId, handle: Handle, lock: LockArgs, wait: bool, reply: Parked) {
        let Ok(file) = self.handles.file(handle) else { return reply.error(self.handles.unknown()) };
        let (known, request) = match (self.node(node), lock_request(self.client, &lock, handle)) {
            (Ok(known), Ok(request)) => (known, request),
            (Err(errno), _) | (_, Err(errno)) => return reply.error(errno),
        };
        let shared = self.shared(&known);
        let _refreshes = self.refreshes(req);
        let Some(request) = request else {
            shared.iter().for_each(SharedFile::refresh);
            let drained = if shared.is_some() { file.open.drain_windows() } else { Ok(()) };
            let owner = owner_of(self.client, lock.owner);
            if lock.flock {
                self.agent.unlock_flock(&known.node, owner);
            } else {
                self.agent.unlock(&known.node, owner, lock.start, lock.end);
            }
            return match drained {
                Ok(()) => reply.done(),
                Err(error) => reply.error(error.into()),
            };
        };
        if wait {
            return waits::lock_and_answer(&self.agent, &known.node, request, shared, reply);
        }
        match self.agent.try_lock(&known.node, request) {
            Ok(()) => {
                shared.iter().for_each(SharedFile::refresh);
                reply.done();
            }
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn fallocate(&self, req: &Request, node: NodeId, handle: Handle, offset: u64, len: u64, mode: i32) -> Done<()> {
        let _working = self.work_for(req);
        self.pages_of(node).into_iter().for_each(|pages| pages.changed(node));
        let file = self.handles.file(handle)?;
        self.agent.allocate(&file.open, mode as u32, ByteRange::at(offset, len), req.uid != 0)?;
        Ok(())
    }

    fn lseek(&self, req: &Request, _node: NodeId, handle: Handle, offset: u64, whence: i32) -> Done<u64> {
        let _working = self.work_for(req);
        let what = match whence {
            libc::SEEK_DATA => SeekFor::Data,
            libc::SEEK_HOLE => SeekFor::Hole,
            _ => return Err(Errno::EINVAL),
        };
        Ok(self.handles.file(handle)?.open.seek(offset, what)?)
    }

    fn ioctl(
        &self,
        req: &Request,
        node: NodeId,
        handle: Handle,
        command: u32,
        input: &[u8],
        _out_size: usize,
    ) -> Done<(i32, Vec<u8>)> {
        if agent::is_of_flags(command) {
            let _working = self.work_for(req);
            let known = self.node(node)?;
            return Ok((0, self.agent.flags(&caller(req), &known.node, command, input)?));
        }
        if command != window::attach::CONTROL {
            return Err(Errno::ENOTTY);
        }
        let _working = self.work_for(req);
        let (known, file) = (self.node(node)?, self.handles.file(handle).map_err(|_| Errno::ENOTTY)?);
        let state = known.open.lock();
        let exclusive = state.is_all_windowed() && !self.nodes.is_split(&known);
        // The lock is held, so that nobody opens the file while it gets a window. Giving one back may wait for a
        // server, so no lock is held then.
        let _held = agent::attaches(input).then_some(state);
        Ok((0, self.agent.window_control(&file.open, req.pid, exclusive, input)?))
    }

    fn copy_file_range(
        &self,
        req: &Request,
        from: (NodeId, Handle, u64),
        to: (NodeId, Handle, u64),
        len: u64,
        _flags: u64,
    ) -> Done<usize> {
        let _working = self.work_for(req);
        self.pages_of(to.0).into_iter().for_each(|pages| pages.changed(to.0));
        let (source, target) = (self.handles.file(from.1)?, self.handles.file(to.1)?);
        Ok(self.agent.copy((&source.open, from.2), (&target.open, to.2), len, req.uid != 0)?)
    }
}

impl Door {
    fn create_file(
        &self,
        req: &Request,
        parent: NodeId,
        name: Option<&OsStr>,
        new: NewMode,
        flags: i32,
    ) -> Done<(Entry, OpenReply)> {
        let exclusive = flags & libc::O_EXCL != 0;
        let directory = self.node(parent)?;
        let mode = Mode::from_flags(flags);
        let announced = self.agent.announced(req.pid);
        // Charged before the file is created, so that a refused open creates nothing.
        let charge = Charge::take(self.owner(req.uid)).map_err(std::io::Error::from)?;
        let created = self.agent.create(&caller(req), &directory.node, name, new, exclusive, mode);
        let (found, open) = created.map_err(self.failed("create", &directory.node))?;
        let (known, mut entry) = self.entry(found, parent, name);
        match self.admit(req, &known, (open, Some(charge)), announced) {
            Ok(opened) => {
                if self.agent.is_windowed(&known.node) {
                    entry.attr_valid = Duration::ZERO;
                }
                Ok((entry, opened))
            }
            Err(errno) => {
                self.forget_lookups(known.id, 1);
                Err(errno)
            }
        }
    }
}
