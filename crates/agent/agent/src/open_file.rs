//! Open files.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use config::Atime;
use file_cache::SeekFor;
use rustix::fs;
use types::{ByteRange, Version};

use crate::agent::Agent;
use crate::burst_buffer::{BurstBuffer, DataVersion, OpenData};
use crate::limits;
use crate::mode::{Mode, WriteHow};
use crate::node::Node;
use crate::reader::{ReadData, ReadObserver};
use crate::remote::patiently;
use crate::windows::{CrashDurability, WindowRight, WindowRules, Windows};

/// One open file description.
pub struct OpenFile {
    /// Its right to a window, which ends before the handle does.
    right: OnceLock<WindowRight>,
    windows: Option<Arc<Windows>>,
    rules: WindowRules,
    reader: ReadObserver,
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
    /// An open file over its data. `nameless`: it has no name yet.
    #[allow(clippy::too_many_arguments, reason = "what an open file is made of")]
    pub(crate) fn opened(
        &self,
        node: Arc<Node>,
        handle: Box<dyn OpenData>,
        mode: Mode,
        privileged: bool,
        nameless: bool,
        rules: WindowRules,
        reader: ReadObserver,
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
        if !how.cached {
            open.handle.tell_writer()?;
        }
        if how.clear_set_id || open.privileged.load(Ordering::Relaxed) {
            self.before_write(open, how.clear_set_id)?;
        }
        // At the end of the file: where that is, all must have said.
        let range = if how.append { ByteRange::new(0, u64::MAX) } else { ByteRange::at(offset, data.len() as u64) };
        open.settle_within(range)?;
        let written = open.handle.write_at(data, offset, how.append)?.written;
        if how.sync {
            open.handle.sync_written()?;
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
        if clear_set_id || open.privileged.load(Ordering::Relaxed) {
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
        let how = WriteHow { append: false, sync: to.0.mode.sync, clear_set_id, cached: false };
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
    pub fn backing(&self) -> Option<Arc<OwnedFd>> {
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

    /// The program said how it will read: one of [`window::attach::advice`]; what it will need begins at `start` and has `len` bytes, 0
    /// for all up to the end. `EINVAL`: no such advice; `EOPNOTSUPP`: that is the kernel's to do.
    pub fn advise(&self, advice: u32, start: u64, len: u64) -> io::Result<()> {
        self.reader.advise(&*self.handle, advice, start, len)
    }

    /// Nothing is read ahead for it any more but what is asked for, or again as before.
    pub(crate) fn switch_read_ahead(&self, off: bool) {
        self.reader.switch(off);
    }

    /// Reads; fewer bytes than asked only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let windows = self.windows.as_ref().filter(|_| self.is_windowed());
        if windows.is_none() || !self.rules.read_ends {
            self.reader.reads(&*self.handle, ByteRange::at(offset, buffer.len() as u64));
        }
        let Some(windows) = windows else { return self.handle.read_at(buffer, offset) };
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
    pub fn read_or_share(&self, buffer: &mut [u8], offset: u64, parts_max: usize) -> io::Result<ReadData> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        if !self.is_windowed() {
            self.reader.reads(&*self.handle, range);
            if let Some(parts) = self.handle.read_in_place(range, parts_max) {
                return Ok(ReadData::InPlace(parts));
            }
            return self.handle.read_at(buffer, offset).map(ReadData::Copied);
        }
        self.read(buffer, offset).map(ReadData::Copied)
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
        let synced = self.make_durable(data_only);
        synced.and_then(|()| self.tell_damage())
    }

    fn make_durable(&self, data_only: bool) -> io::Result<()> {
        let kept =
            self.windows.as_ref().map_or(CrashDurability::Nothing, |windows| windows.keeps(self.node.identity()));
        if kept != CrashDurability::Nothing
            && let Some(told) = self.handle.sync_kept()
        {
            told?;
            return if kept == CrashDurability::All { Ok(()) } else { self.handle.sync_acknowledged(data_only) };
        }
        self.settle()?;
        self.handle.sync(data_only)
    }

    /// A descriptor was closed.
    pub fn flush(&self) -> io::Result<()> {
        let lazy = self.rules.lazy && self.has_window_right();
        if lazy && self.handle.is_remote() && self.right.get().is_some_and(WindowRight::is_used) {
            return self.tell_damage(); // no more for the server than for the drain
        }
        let settled = if lazy { Ok(()) } else { self.settle() };
        self.handle.flush().and(settled).and_then(|()| self.tell_damage())
    }

    /// Brings what windows of the file hold to where its data is, as before a lock is released.
    pub fn drain_windows(&self) -> io::Result<()> {
        self.settle()
    }

    /// `EIO`, once: something that was acknowledged on the file is lost.
    fn tell_damage(&self) -> io::Result<()> {
        self.right.get().map_or(Ok(()), WindowRight::tell_damage)
    }

    /// Whether the file has windows, or may have.
    fn is_windowed(&self) -> bool {
        self.windows.as_ref().is_some_and(|windows| windows.is_windowed(self.node.identity()))
    }

    /// What was acknowledged is in the burst buffer.
    fn settle(&self) -> io::Result<()> {
        self.settle_within(ByteRange::new(0, u64::MAX))
    }

    /// What was acknowledged of `range` is.
    fn settle_within(&self, range: ByteRange) -> io::Result<()> {
        self.windows.as_ref().map_or(Ok(()), |windows| windows.settle_within(self.node.identity(), range))
    }

    /// What was changed past the windows of the file is as durable as what comes through them.
    fn keep(&self) -> io::Result<()> {
        let Some(windows) = &self.windows else { return Ok(()) };
        if windows.keep(self.node.identity())? { self.handle.tell_writer() } else { Ok(()) }
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

    /// Whether it was opened to change the file, and a write through it has no capabilities to take away, as far as is known here.
    pub fn writes_plainly(&self) -> bool {
        self.changes() && !self.privileged.load(Ordering::Relaxed) && !self.node.may_be_capable()
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
            self.right.get_or_init(|| WindowRight::new(windows, self.node.identity(), self.rules, self.mode.read));
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
