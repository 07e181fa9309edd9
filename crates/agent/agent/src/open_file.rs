//! Open files.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use config::Atime;
use file_cache::{OpenHow, SeekFor};
use global_store::calls::Call;
use rustix::fs;
use types::{ByteRange, Version};

use crate::agent::Agent;
use crate::burst_buffer::{BurstBuffer, DataVersion, OpenData};
use crate::caller::Caller;
use crate::limits;
use crate::mode::{Mode, WriteHow};
use crate::names::{Found, NewMode};
use crate::node::Node;
use crate::reader::{Bytes, Reader};
use crate::remote::patiently;
use crate::windows::{WindowRight, WindowRules, Windows};

/// One open file description.
pub struct OpenFile {
    /// Its right to a window, which ends before the handle does.
    right: OnceLock<WindowRight>,
    windows: Option<Arc<Windows>>,
    rules: WindowRules,
    reader: Reader,
    node: Arc<Node>,
    handle: Box<dyn OpenData>,
    cache: Arc<dyn BurstBuffer>,
    mode: Mode,
    /// The file had set-id bits or capabilities when it was opened for writing, and no write has taken them yet.
    privileged: AtomicBool,
    /// It may still be without a name at the end: then its data goes with it.
    nameless: bool,
}

impl Agent {
    /// Opens an existing regular file as the caller. `EACCES` if its user may not, whatever the kernel believed; `EINTR` if
    /// `interrupted` says so while it waits.
    pub fn open(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        mode: Mode,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<OpenFile> {
        if !node.is_regular() {
            let errno = if node.is_directory() { libc::EISDIR } else { libc::ENXIO };
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.check_access(caller, node, mode)?;
        self.open_allowed(node, mode, interrupted)
    }

    /// Opens a regular file again that was open in an earlier process: whoever has it was allowed to then, and nothing is cut.
    pub fn reopen(&self, node: &Arc<Node>, mode: Mode) -> io::Result<OpenFile> {
        if !node.is_regular() {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        self.open_allowed(node, Mode { truncate: false, ..mode }, &|| false)
    }

    fn open_allowed(&self, node: &Arc<Node>, mode: Mode, interrupted: &dyn Fn() -> bool) -> io::Result<OpenFile> {
        let writes = mode.write || mode.truncate;
        let privileged = writes && self.has_privileges(node)?;
        let how = OpenHow {
            read: mode.read,
            write: writes,
            truncate: mode.truncate,
            created: false,
            sync: mode.sync,
            policy: self.policy_for(node),
        };
        let (rules, reader) = (WindowRules::of(&how.policy), Reader::new(&how.policy));
        if mode.truncate && privileged {
            // Before: an open that is refused cuts nothing.
            self.drop_privileges_of(node, mode.clear_set_id)?;
        }
        let open = |how: &OpenHow| self.cache.open_unless(node.anchor(&self.store)?, how.clone(), interrupted);
        let handle = if mode.truncate { self.cut(node, 0, &mut || open(&how))? } else { open(&how)? };
        Ok(self.opened(node.clone(), handle, mode, privileged, false, rules, reader))
    }

    pub(crate) fn check_access(&self, caller: &Caller, node: &Node, mode: Mode) -> io::Result<()> {
        if caller.uid == 0 {
            return Ok(());
        }
        let mut access = 0;
        if mode.execute {
            access |= libc::X_OK;
        } else if mode.read {
            access |= libc::R_OK;
        }
        if mode.write || mode.truncate {
            access |= libc::W_OK;
        }
        let name = CString::new(self.descriptor_name(node))?;
        let _as_caller = self.impersonator.become_caller(caller)?;
        let descriptors = self.descriptors.as_raw_fd();
        // The raw call: wrappers ask for the process's real user where they believe it to be the effective one.
        // SAFETY: an open descriptor and a C string that lives through the call.
        let ask =
            || unsafe { libc::syscall(libc::SYS_faccessat2, descriptors, name.as_ptr(), access, libc::AT_EACCESS) };
        self.below(Call::Attributes, || if ask() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    }

    /// Creates a regular file and opens it; without a name until linked if `name` is `None` (`exclusive`: for ever).
    /// `ESTALE` when the name is there already and not `exclusive`.
    pub fn create(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Option<&OsStr>,
        new: NewMode,
        exclusive: bool,
        mode: Mode,
    ) -> io::Result<(Found, OpenFile)> {
        if name.is_none() && self.cache.is_shared() {
            // Without a name a server cannot find it; programs then make a name and remove it.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let (found, created) = self.create_below(caller, parent, name, new, exclusive)?;
        let anchor = found.node.anchor_created(&self.store, created, name.map(|name| (parent, name)));
        let policy = if name.is_some() { self.policy_for(&found.node) } else { self.policy_for(parent) };
        let (rules, reader) = (WindowRules::of(&policy), Reader::new(&policy));
        let how = OpenHow { read: true, write: true, truncate: false, created: true, sync: mode.sync, policy };
        let opened = self.cache.open_unless(anchor, how, &|| false);
        if opened.is_err()
            && let Some(name) = name
        {
            // A file that could not be opened was never created, as far as the caller can tell.
            let _ = self.unlink(caller, parent, name);
        }
        let opened = opened?;
        if name.is_none() {
            self.cache.removing(found.node.identity());
        }
        let open = self.opened(found.node.clone(), opened, mode, false, name.is_none(), rules, reader);
        Ok((found, open))
    }

    #[allow(clippy::too_many_arguments, reason = "what an open file is made of")]
    fn opened(
        &self,
        node: Arc<Node>,
        handle: Box<dyn OpenData>,
        mode: Mode,
        privileged: bool,
        nameless: bool,
        rules: WindowRules,
        reader: Reader,
    ) -> OpenFile {
        let (cache, right, windows) = (Arc::clone(&self.cache), OnceLock::new(), self.windows.get().cloned());
        let privileged = privileged.into();
        if mode.noatime {
            handle.leave_atime();
        }
        OpenFile { right, windows, rules, reader, node, handle, cache, mode, privileged, nameless }
    }

    /// Writes at `offset`, or at the end.
    pub fn write(&self, open: &OpenFile, data: &[u8], offset: u64, how: WriteHow) -> io::Result<usize> {
        if how.clear_set_id || open.privileged.load(Ordering::Relaxed) {
            self.before_write(open, how.clear_set_id)?;
        }
        open.settle()?;
        let written = open.handle.write_at(data, offset, how.append)?.written;
        if how.sync {
            open.handle.sync(true)?;
        }
        open.keep()?;
        Ok(written)
    }

    fn before_write(&self, open: &OpenFile, clear_set_id: bool) -> io::Result<()> {
        let mode = fs::Mode::from_raw_mode(self.stat(&open.node)?.st_mode);
        let set_id = mode.intersects(fs::Mode::SUID | fs::Mode::SGID);
        if (set_id && clear_set_id) || open.privileged.load(Ordering::Relaxed) {
            self.drop_privileges_of(&open.node, clear_set_id)?;
            // A privileged writer leaves the set-id bits for a later, unprivileged one to clear.
            open.privileged.store(set_id && !clear_set_id, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Allocates, punches or zeroes; `mode` holds the `FALLOC_FL_*` bits.
    pub fn allocate(&self, open: &OpenFile, mode: u32, range: ByteRange, clear_set_id: bool) -> io::Result<()> {
        if range.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if open.privileged.load(Ordering::Relaxed) {
            self.before_write(open, clear_set_id)?;
        }
        open.settle()?;
        open.handle.fallocate(mode, range.start, range.len())?;
        open.keep()
    }

    /// Copies between open files; how many bytes, which may be fewer than asked: the caller comes again.
    pub fn copy(
        &self,
        from: (&OpenFile, u64),
        to: (&OpenFile, u64),
        len: u64,
        clear_set_id: bool,
    ) -> io::Result<usize> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(limits::COPY_BYTES_PER_CALL);
        let mut buffer = vec![0; len.min(limits::COPY_BUFFER_BYTES)];
        let how = WriteHow { append: false, sync: to.0.mode.sync, clear_set_id };
        let mut done = 0;
        while done < len {
            let part = buffer.len().min(len - done);
            let got = match from.0.read(&mut buffer[..part], from.1 + done as u64) {
                Err(error) if done == 0 => return Err(error),
                Err(_) | Ok(0) => break,
                Ok(got) => got,
            };
            match self.write(to.0, &buffer[..got], to.1 + done as u64, how) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(_) => done += got,
            }
        }
        Ok(done)
    }
}

impl OpenFile {
    /// The file.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The version of the data that is open.
    pub fn data(&self) -> DataVersion {
        self.handle.data()
    }

    /// The complete replica as an `O_PATH` descriptor, for the kernel to read and write itself.
    pub fn backing(&self) -> Option<BorrowedFd<'_>> {
        self.handle.backing()
    }

    /// The complete replica's number, wherever [`backing`](OpenFile::backing) may give it.
    pub fn version(&self) -> Option<Version> {
        self.handle.version()
    }

    /// As what the kernel notes its own reads of [`backing`](OpenFile::backing).
    pub fn atime(&self) -> Atime {
        self.handle.atime()
    }

    /// Whether the kernel opened it to execute it.
    pub fn executes(&self) -> bool {
        self.mode.execute
    }

    /// Whether it is open for writing and not for reading: then it cannot be mapped.
    pub fn writes_alone(&self) -> bool {
        self.mode.write && !self.mode.read
    }

    /// Whether a mapping of it could be stored to.
    pub fn maps_for_writing(&self) -> bool {
        self.mode.write && self.mode.read
    }

    /// Whether writes must be seen by the agent although the replica is complete.
    pub fn writes_must_pass(&self) -> bool {
        self.privileged.load(Ordering::Relaxed)
    }

    /// The kernel is to be given the replica. False: the data has left the burst buffer, and it must not be.
    #[must_use]
    pub fn use_passthrough(&self) -> bool {
        self.handle.use_passthrough()
    }

    /// Reads; fewer bytes than asked only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reader.reads(&*self.handle, ByteRange::at(offset, buffer.len() as u64));
        let Some(windows) = self.windows.as_ref().filter(|_| self.is_windowed()) else {
            return self.handle.read_at(buffer, offset);
        };
        let mut look = || {
            if self.rules.read_ends {
                // What cannot be drained the read finds all the same.
                let _ = windows.bar(self.node.identity());
            }
            windows.look(self.node.identity(), &mut |pending| {
                let read = self.handle.read_at(buffer, offset)?;
                pending.map_or(Ok(read), |pending| pending.lay_over(buffer, offset, read))
            })
        };
        if self.cache.is_shared() { patiently(self.rules.patience, look) } else { look() }
    }

    /// [`OpenFile::read`], or the bytes where they lie, if that is in at most `parts_max` places of memory.
    pub fn read_or_share(&self, buffer: &mut [u8], offset: u64, parts_max: usize) -> io::Result<Bytes> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        if !self.is_windowed() {
            self.reader.reads(&*self.handle, range);
            if let Some(parts) = self.handle.read_in_place(range, parts_max) {
                return Ok(Bytes::InPlace(parts));
            }
            return self.handle.read_at(buffer, offset).map(Bytes::Copied);
        }
        self.read(buffer, offset).map(Bytes::Copied)
    }

    /// Cuts or extends.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let Some(windows) = &self.windows else { return self.handle.set_len(len) };
        windows.cut(self.node.identity(), len, &mut || self.handle.set_len(len))
    }

    /// Finds data or a hole.
    pub fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        self.settle()?;
        self.handle.seek(offset, what)
    }

    /// fsync or fdatasync.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        self.settle()?;
        self.handle.sync(data_only)
    }

    /// A descriptor was closed.
    pub fn flush(&self) -> io::Result<()> {
        let lazy = self.rules.lazy && self.has_window_right();
        if lazy && self.handle.is_remote() {
            return Ok(()); // no more for the server than for the drain
        }
        let settled = if lazy { Ok(()) } else { self.settle() };
        self.handle.flush().and(settled)
    }

    /// Whether the file has windows, or may have.
    fn is_windowed(&self) -> bool {
        self.windows.as_ref().is_some_and(|windows| windows.is_windowed(self.node.identity()))
    }

    /// What was acknowledged is in the burst buffer.
    fn settle(&self) -> io::Result<()> {
        self.windows.as_ref().map_or(Ok(()), |windows| windows.settle(self.node.identity()))
    }

    /// What was changed past the windows of the file is as durable as what comes through them.
    fn keep(&self) -> io::Result<()> {
        self.windows.as_ref().map_or(Ok(()), |windows| windows.keep(self.node.identity()))
    }

    /// Whether a program that asks for it may have a window on this open file, as far as the file is concerned: it is open
    /// for writing and nothing else, whole in the burst buffer or at a server, without privileges. `first`: nobody else has
    /// it open; then it is made sure that nobody has it mapped either.
    pub fn may_have_window(&self, first: bool) -> bool {
        let mode = &self.mode;
        let plain = mode.write && !mode.append && !mode.sync && !mode.direct && !mode.execute;
        let served = self.windows.is_some() && self.rules.wish.is_some();
        let settled = served && plain && !self.nameless && !self.writes_must_pass();
        if self.cache.is_shared() {
            // Whatever it is at the server, a write goes there; who maps it has it open. Other nodes see it when it is closed.
            return settled;
        }
        settled && self.handle.backing().is_some() && (!first || self.handle.is_unshared())
    }

    /// Whether it was opened to change the file.
    pub fn changes(&self) -> bool {
        self.mode.write || self.mode.truncate
    }

    /// Whether its data is at a server: each read and write is a request.
    pub fn is_remote(&self) -> bool {
        self.cache.is_shared()
    }

    /// It may have one. Only while every open description of the file may.
    pub fn allow_window(&self) {
        if let Some(windows) = self.windows.as_ref().filter(|_| self.rules.wish.is_some()) {
            self.right.get_or_init(|| WindowRight::new(windows, self.node.identity(), self.rules));
        }
    }

    /// Whether it may.
    pub fn has_window_right(&self) -> bool {
        self.right.get().is_some()
    }

    pub(crate) fn window_right(&self) -> Option<&WindowRight> {
        self.right.get()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Before the handle goes, so that nothing is staged out to a file that goes with it.
        if self.nameless && fs::fstat(self.node.fd()).is_ok_and(|stat| stat.st_nlink == 0) {
            self.cache.unlinked(self.node.identity());
        }
    }
}
