//! Open files and their operations.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use config::{Atime, Policy};
use data_store::{
    DataStore, DataVersion, FileChange, InPlace, InPlaceAs, OpenData, Passthrough, SeekFor, SyncScope, WriteWhere,
    patiently,
};
use namespace::{Mode, Namespace};
use types::{ByteRange, Version};

use crate::agent::Agent;
use crate::limits;
use crate::node::Node;
use crate::reader::{ReadData, ReadObserver};
use crate::set_id::SET_IDS;
use crate::write_how::WriteHow;
use windows::{CrashDurability, WindowRight, WindowRules, Windows};

/// One open file description.
pub struct OpenFile {
    /// Permission to use a write window. Dropped before `handle`.
    right: OnceLock<WindowRight>,
    windows: Option<Arc<Windows>>,
    rules: WindowRules,
    reader: ReadObserver,
    node: Arc<Node>,
    handle: Box<dyn OpenData>,
    store: Arc<dyn DataStore>,
    names: Arc<dyn Namespace>,
    atime: Atime,
    mode: Mode,
    /// Whether the file had set-id bits or capabilities at an open for writing that no write has removed yet.
    privileged: AtomicBool,
    /// Whether the file was created without a name (`O_TMPFILE`). If it still has none at the last close, its data is
    /// discarded.
    nameless: bool,
}

impl Agent {
    /// Builds an open file over its data. `nameless`: the file has no name yet.
    pub(crate) fn opened(
        &self,
        node: Arc<Node>,
        handle: Box<dyn OpenData>,
        mode: Mode,
        privileged: bool,
        nameless: bool,
        policy: &Policy,
    ) -> OpenFile {
        OpenFile {
            right: OnceLock::new(),
            windows: self.windows.get().cloned(),
            rules: WindowRules::of(policy),
            reader: ReadObserver::new(policy),
            node,
            handle,
            store: Arc::clone(&self.data),
            names: Arc::clone(&self.names),
            atime: policy.atime,
            mode,
            privileged: privileged.into(),
            nameless,
        }
    }

    /// Writes at `offset`, or at the end if `how.append`. Returns the number of bytes written.
    pub fn write(&self, open: &OpenFile, data: &[u8], offset: u64, how: WriteHow) -> io::Result<usize> {
        if !how.cached {
            open.handle.sync(SyncScope::LossOnly)?;
        }
        if how.clear_set_id || open.privileged.load(Ordering::Relaxed) {
            self.before_write(open, how.clear_set_id)?;
        }
        // An append needs the end of the file, so the records of all windows are applied first.
        let range = if how.append { ByteRange::new(0, u64::MAX) } else { ByteRange::at(offset, data.len() as u64) };
        open.settle_within(range)?;
        let place = if how.append { WriteWhere::End } else { WriteWhere::At(offset) };
        let written = open.handle.write_at(data, place)?.written;
        if how.sync {
            open.handle.sync(SyncScope::OfWrite)?;
        }
        open.keep()?;
        Ok(written)
    }

    fn before_write(&self, open: &OpenFile, clear_set_id: bool) -> io::Result<()> {
        let set_id = self.stat(&open.node)?.mode & SET_IDS != 0;
        if (set_id && clear_set_id) || open.privileged.load(Ordering::Relaxed) {
            self.drop_privileges_of(&open.node, clear_set_id)?;
            // A privileged writer leaves the set-id bits for a later, unprivileged one to clear.
            open.privileged.store(set_id && !clear_set_id, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Allocates, punches or zeroes a range; `mode` holds the `FALLOC_FL_*` bits.
    pub fn allocate(&self, open: &OpenFile, mode: u32, range: ByteRange, clear_set_id: bool) -> io::Result<()> {
        if range.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if clear_set_id || open.privileged.load(Ordering::Relaxed) {
            self.before_write(open, clear_set_id)?;
        }
        open.apply_window()?;
        open.handle.fallocate(mode, range.start, range.len())?;
        open.keep()
    }

    /// Copies between open files. Returns the number of bytes copied. If that is less than `len`, the caller calls
    /// again.
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
    /// Node of the file.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Version of the data that is open.
    pub fn data(&self) -> DataVersion {
        self.handle.data()
    }

    /// Number of the complete replica, if [`backing`](OpenFile::backing) can return it.
    pub fn version(&self) -> Option<Version> {
        self.handle.data().replica
    }

    /// Descriptor of the complete replica (`O_PATH`), which the kernel reads and writes directly.
    pub fn backing(&self) -> Option<Arc<OwnedFd>> {
        self.handle.passthrough()?.backing()
    }

    /// The access-time mode of [`backing`](OpenFile::backing), for reads by the kernel.
    pub fn atime(&self) -> Atime {
        self.atime
    }

    /// Whether the kernel opened the file for execution.
    pub fn executes(&self) -> bool {
        self.mode.execute
    }

    /// Whether the file is open for writing only, and so cannot be mapped.
    pub fn writes_alone(&self) -> bool {
        self.mode.write && !self.mode.read
    }

    /// Whether a mapping of this open file could be stored to.
    pub fn maps_for_writing(&self) -> bool {
        self.mode.write && self.mode.read
    }

    /// Whether writes must go through the agent although the replica is complete.
    pub fn writes_must_pass(&self) -> bool {
        self.privileged.load(Ordering::Relaxed)
    }

    /// Switches to passthrough: the kernel gets the replica. False if it must not, because the data has left the burst
    /// buffer.
    #[must_use]
    pub fn use_passthrough(&self) -> bool {
        self.handle.passthrough().is_some_and(Passthrough::begin)
    }

    /// Applies advice on future reads: one of [`window::attach::advice`]. The advice is for `len` bytes from `start`; 0
    /// means up to the end. Errors: `EINVAL` for an unknown advice; `EOPNOTSUPP` if reading ahead is up to the kernel.
    pub fn advise(&self, advice: u32, start: u64, len: u64) -> io::Result<()> {
        self.reader.advise(&*self.handle, advice, start, len)
    }

    /// Turns read-ahead off, except for explicit requests, or on again.
    pub(crate) fn switch_read_ahead(&self, off: bool) {
        self.reader.switch(off);
    }

    /// Reads. Returns fewer bytes than requested only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let windows = self.windows.as_ref().filter(|_| self.is_windowed());
        if windows.is_none() || !self.rules.read_ends {
            self.reader.reads(&*self.handle, ByteRange::at(offset, buffer.len() as u64));
        }
        let Some(windows) = windows else { return self.handle.read_at(buffer, offset) };
        let mut look = || {
            if self.rules.read_ends {
                // The read also sees records that cannot be applied.
                let _ = windows.bar(self.node.identity());
            }
            windows.look(self.node.identity(), &mut |pending| {
                let read = self.handle.read_at(buffer, offset)?;
                pending.map_or(Ok(read), |pending| pending.lay_over(buffer, offset, read))
            })
        };
        if self.is_remote() { patiently(self.rules.patience, look) } else { look() }
    }

    /// Reads as [`OpenFile::read`] does. If the bytes lie in at most `parts_max` parts of memory, returns these instead
    /// of a copy.
    pub fn read_or_share(&self, buffer: &mut [u8], offset: u64, parts_max: usize) -> io::Result<ReadData> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        if !self.is_windowed() {
            self.reader.reads(&*self.handle, range);
            if let Some(InPlace::Memory(parts)) = self.handle.read_in_place(range, InPlaceAs::Memory(parts_max)) {
                return Ok(ReadData::InPlace(parts));
            }
            return self.handle.read_at(buffer, offset).map(ReadData::Copied);
        }
        self.read(buffer, offset).map(ReadData::Copied)
    }

    /// Truncates or extends the file.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let Some(windows) = &self.windows else { return self.handle.set_len(len) };
        windows.cut(self.node.identity(), len, &mut || self.handle.set_len(len))
    }

    /// Finds data or a hole.
    pub fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        self.apply_window()?;
        self.handle.seek(offset, what)
    }

    /// Runs `fsync` or, with `data_only`, `fdatasync`.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        let synced = self.make_durable(data_only);
        synced.and_then(|()| self.tell_damage())
    }

    fn make_durable(&self, data_only: bool) -> io::Result<()> {
        let kept =
            self.windows.as_ref().map_or(CrashDurability::Nothing, |windows| windows.keeps(self.node.identity()));
        if kept != CrashDurability::Nothing && self.handle.sync(SyncScope::IfKept)? {
            if kept != CrashDurability::All {
                self.handle.sync(SyncScope::Acknowledged(data_only))?;
            }
            return Ok(());
        }
        self.apply_window()?;
        self.handle.sync(if data_only { SyncScope::Data } else { SyncScope::All }).map(drop)
    }

    /// Handles the close of a descriptor.
    pub fn flush(&self) -> io::Result<()> {
        let lazy = self.rules.lazy && self.has_window_right();
        if lazy && self.is_remote() && self.right.get().is_some_and(WindowRight::is_used) {
            return self.tell_damage(); // neither the server nor the windows have more to do
        }
        let settled = if lazy { Ok(()) } else { self.apply_window() };
        self.handle.flush().and(settled).and_then(|()| self.tell_damage())
    }

    /// Applies the records of the file's windows, as before a lock is released.
    pub fn drain_windows(&self) -> io::Result<()> {
        self.apply_window()
    }

    /// Reports the loss of acknowledged data of the file, once, as `EIO`.
    fn tell_damage(&self) -> io::Result<()> {
        self.right.get().map_or(Ok(()), WindowRight::tell_damage)
    }

    /// Whether the file has windows, or may have.
    fn is_windowed(&self) -> bool {
        self.windows.as_ref().is_some_and(|windows| windows.is_windowed(self.node.identity()))
    }

    /// Applies all records of the file's windows.
    fn apply_window(&self) -> io::Result<()> {
        self.settle_within(ByteRange::new(0, u64::MAX))
    }

    /// Applies the records of the file's windows that overlap `range`.
    fn settle_within(&self, range: ByteRange) -> io::Result<()> {
        self.windows.as_ref().map_or(Ok(()), |windows| windows.apply_within(self.node.identity(), range))
    }

    /// Makes a change that bypassed the file's windows as durable as writes through them.
    fn keep(&self) -> io::Result<()> {
        let Some(windows) = &self.windows else { return Ok(()) };
        if windows.keep(self.node.identity())? { self.handle.sync(SyncScope::LossOnly).map(drop) } else { Ok(()) }
    }

    /// Whether this open file allows a window to a program that asks for one. It must be open for writing without other
    /// modes, have no privileges, and be complete in the burst buffer or at a server. `first`: no other process has it
    /// open; then mappings by others are excluded as well.
    pub fn may_have_window(&self, first: bool) -> bool {
        let mode = &self.mode;
        let plain = mode.write && !mode.append && !mode.sync && !mode.direct && !mode.execute;
        let served = self.windows.is_some() && self.rules.wish.is_some();
        let settled = served && plain && !self.nameless && !self.writes_must_pass();
        if self.is_remote() {
            // At a server, all writes go there, and a process that maps the file has it open. Other nodes see the data
            // after a close.
            return settled;
        }
        let complete = |replica: &dyn Passthrough| replica.backing().is_some() && (!first || replica.is_unshared());
        settled && self.handle.passthrough().is_some_and(complete)
    }

    /// Whether this was opened to change the file, and no capabilities are known here that a write would remove.
    pub fn writes_plainly(&self) -> bool {
        self.changes() && !self.privileged.load(Ordering::Relaxed) && !self.node.may_be_capable()
    }

    /// Whether this was opened to change the file.
    pub fn changes(&self) -> bool {
        self.mode.write || self.mode.truncate
    }

    /// Whether the data is at a server, so that each read and write is a request.
    pub fn is_remote(&self) -> bool {
        self.store.is_shared()
    }

    /// Allows a window. Call this only while every open file description of the file allows one.
    pub fn allow_window(&self) {
        if let Some(windows) = self.windows.as_ref().filter(|_| self.rules.wish.is_some()) {
            self.right.get_or_init(|| WindowRight::new(windows, self.node.identity(), self.rules, self.mode.read));
        }
    }

    /// Whether a window is allowed.
    pub fn has_window_right(&self) -> bool {
        self.right.get().is_some()
    }

    pub(crate) fn window_right(&self) -> Option<&WindowRight> {
        self.right.get()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Must come before the handle drops, so that nothing is staged out to a file that is about to vanish.
        if self.nameless && self.names.attributes(self.node.inode()).is_ok_and(|stat| stat.nlink == 0) {
            self.store.note(self.node.identity(), FileChange::Unlinked);
        }
    }
}
