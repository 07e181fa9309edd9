//! One open file description of a delegated tree.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Policy;
use data_store::{
    DataVersion, Foresee, InPlace, InPlaceAs, OpenData, OpenHow, Passthrough, SeekFor, SyncScope, WriteResult,
    WriteWhere,
};
use delegation::NodeNumber;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use types::{ByteRange, Step, Timestamp};

use super::Shared;
use super::contents::{read_full, write_full};
use super::directory::times_with;
use super::node::OpenNode;
use super::packs::Source;

/// One open file description. Dropping it releases the file.
pub(super) struct TreeHandle {
    pub(super) shared: Arc<Shared>,
    pub open: Arc<OpenNode>,
    policy: Arc<Policy>,
    /// Whether the handle is counted as one that may write.
    writes: bool,
    /// Whether the program may map the file and write it so.
    may_map: bool,
}

impl TreeHandle {
    /// Opens a file, with the rules of [`DataStore::open`](data_store::DataStore::open).
    pub fn open(
        shared: &Arc<Shared>,
        node: NodeNumber,
        how: &OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<TreeHandle> {
        let (shared, open) = (Arc::clone(shared), shared.table.enter(node));
        let policy = Arc::clone(&how.policy);
        // From here on, an error releases the file.
        let mut handle = TreeHandle { shared, open, policy, writes: false, may_map: how.may_map };
        handle.open.prepare(handle.shared.place(), how, interrupted)?;
        if how.write || how.truncate {
            let ended = handle.shared.ended.read();
            if *ended {
                return Err(Errno::STALE.into());
            }
            handle.open.begin_writing(handle.shared.place())?;
            drop(ended);
            handle.writes = true;
        }
        if how.truncate {
            handle.set_len(0)?;
        }
        if how.sync {
            handle.shared.directory.sync_names()?;
            handle.shared.sync_log()?;
        }
        Ok(handle)
    }

    fn source(&self) -> io::Result<Source> {
        self.open.source(self.shared.place())
    }

    /// Returns the local file, which a packed file becomes now. `truncates`: nobody needs the content.
    pub(super) fn to_write(&self, truncates: bool) -> io::Result<Arc<OwnedFd>> {
        if !self.writes {
            return Err(Errno::BADF.into());
        }
        self.open.make_local(self.shared.place(), truncates)?;
        self.open.fd(self.shared.place())
    }

    /// Appends in one call, so that no append of the kernel comes in between. Returns how much found room.
    fn append(&self, data: &[u8]) -> io::Result<WriteResult> {
        let fd = self.to_write(false)?;
        let _appending = self.open.appending.lock();
        self.open.dating.change(|| {
            loop {
                // With this offset the position of the descriptor says afterwards where the bytes went.
                match rustix::io::pwritev2(&fd, &[IoSlice::new(data)], u64::MAX, ReadWriteFlags::APPEND) {
                    Ok(written) => {
                        let end = rustix::fs::tell(&fd)?;
                        return Ok(WriteResult { written, offset: end - written as u64 });
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }

    fn write(&self, data: &[u8], offset: u64, at: Option<Timestamp>) -> io::Result<WriteResult> {
        let fd = self.to_write(false)?;
        self.open.dating.change(|| {
            write_full(&fd, data, offset)?;
            if let Some(at) = at {
                rustix::fs::futimens(&fd, &times_with(at))?;
            }
            Ok(WriteResult { written: data.len(), offset })
        })
    }

    /// Makes everything survive a crash of the machine: the content, its name here, and what the tree says of the file.
    pub(super) fn sync_all(&self, data_only: bool) -> io::Result<()> {
        match self.source()? {
            Source::Local(fd) => {
                let synced = if data_only { rustix::fs::fdatasync(&fd) } else { rustix::fs::fsync(&fd) };
                synced.map_err(io::Error::from).step("sync the local file")?;
                self.shared.directory.sync_names()?;
            }
            Source::Packed(_) => self.shared.directory.packs.sync().step("sync the packed file")?,
        }
        self.open.using.lock().settle(self.shared.place(), self.open.number, false)?;
        self.shared.sync_log()
    }
}

/// Finds data, the hole or the end of a packed file, which is all data.
fn seek_packed(size: u64, offset: u64, what: SeekFor) -> io::Result<u64> {
    match what {
        SeekFor::End => Ok(size),
        _ if offset >= size => Err(Errno::NXIO.into()),
        SeekFor::Data => Ok(offset),
        SeekFor::Hole => Ok(size),
    }
}

impl OpenData for TreeHandle {
    fn data(&self) -> DataVersion {
        let (replica, steady) = self.open.versions();
        DataVersion { content: Arc::clone(&self.open) as _, is_current: true, replica, steady }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.source()? {
            Source::Local(fd) => read_full(&fd, buffer, offset).step("read the local file"),
            Source::Packed(packed) => packed.read_at(buffer, offset).step("read the packed file"),
        }
    }

    fn read_in_place(&self, range: ByteRange, wanted: InPlaceAs) -> Option<InPlace> {
        if wanted != InPlaceAs::File {
            return None;
        }
        // Errors are reported by an ordinary read.
        let Source::Local(fd) = self.source().ok()? else { return None };
        let size = rustix::fs::fstat(&fd).ok()?.st_size as u64;
        Some(InPlace::File(fd, size.saturating_sub(range.start).min(range.len()) as usize))
    }

    /// The kernel reads ahead by itself: every file is in the burst buffer.
    fn read_ahead(&self, _: ByteRange, wanted: Option<u64>, _: Foresee<'_>) -> bool {
        wanted.is_none()
    }

    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        match place {
            WriteWhere::At(offset) => self.write(data, offset, None),
            WriteWhere::Backdated(offset, at) => self.write(data, offset, Some(at)),
            // Only clients of a server repeat an append, and no server serves a delegated tree.
            WriteWhere::End | WriteWhere::EndAgain(_) => self.append(data),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let fd = self.to_write(len == 0)?;
        self.open.dating.change(|| Ok(rustix::fs::ftruncate(&fd, len)?))
    }

    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.to_write(false)?;
        self.open.dating.change(|| Ok(rustix::fs::fallocate(&fd, FallocateFlags::from_bits_retain(mode), offset, len)?))
    }

    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        let fd = match self.source()? {
            Source::Local(fd) => fd,
            Source::Packed(packed) => return seek_packed(packed.len(), offset, what),
        };
        let from = match what {
            SeekFor::End => return Ok(rustix::fs::fstat(&fd)?.st_size as u64),
            SeekFor::Data => SeekFrom::Data(offset),
            SeekFor::Hole => SeekFrom::Hole(offset),
        };
        Ok(rustix::fs::seek(&fd, from)?)
    }

    fn sync(&self, scope: SyncScope) -> io::Result<bool> {
        match scope {
            SyncScope::All | SyncScope::Acknowledged(false) => self.sync_all(false)?,
            SyncScope::Data | SyncScope::OfWrite | SyncScope::Acknowledged(true) => self.sync_all(true)?,
            // The kernel may have written without the agent.
            SyncScope::IfKept => return Ok(false),
            // Nothing is lost while the agent lives.
            SyncScope::LossOnly => {}
        }
        Ok(true)
    }

    /// Handles one `close`. Makes the data durable under `durable_at = close`.
    fn flush(&self) -> io::Result<()> {
        if self.writes && self.policy.durable_at_close { self.sync_all(false) } else { Ok(()) }
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        Some(self)
    }
}

impl Passthrough for TreeHandle {
    /// Without the right to read or write, the descriptor stands in no lease's way.
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        self.open.path()
    }

    fn begin(&self) -> bool {
        if self.may_map {
            self.open.using.lock().is_bypassed = true;
        }
        true
    }

    /// Only those ask that may grant a window.
    fn is_unshared(&self) -> bool {
        if !self.shared.has_windows.load(Ordering::Relaxed) {
            return false;
        }
        // What was closed may only not have been looked at yet.
        self.shared.look_again(&self.open);
        self.open.handles.load(Ordering::Acquire) == 1 && self.open.is_alone(self.shared.place())
    }
}

impl Drop for TreeHandle {
    fn drop(&mut self) {
        // The handle becomes the kernel's if the file may still be mapped.
        if self.writes && self.open.end_writing(self.shared.place(), self.shared.settles_later()) {
            return self.shared.keep_mapped(self.open.number);
        }
        self.shared.leave(&self.open);
    }
}
