//! An open file and the version of its data.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use config::Atime;
use file_cache::{Backdating, File, FileHandle, Foresee, SeekFor, WriteBehind, WriteResult};
use types::{ByteRange, Timestamp, Version};
use window::Gather;
use window::read_queue::Part;

use crate::remote::Mates;

/// One open file description, released when dropped. The methods mean what those of [`FileHandle`] mean.
pub trait OpenData: Send + Sync {
    /// The version of the data that is open.
    fn data(&self) -> DataVersion;
    /// Version of the complete replica, if [`backing`](OpenData::backing) can return it.
    fn version(&self) -> Option<Version>;
    /// Descriptor of the complete replica, which the kernel reads and writes directly.
    fn backing(&self) -> Option<Arc<OwnedFd>>;
    /// Switches to passthrough: the kernel gets the replica. False if it must not.
    fn use_passthrough(&self) -> bool;
    /// The backing file's access-time mode.
    fn atime(&self) -> Atime {
        Atime::No
    }
    /// Makes reads through this open file leave the access time unchanged, whatever the policy says.
    fn keep_atime_unchanged(&self) {}
    /// Reads. Returns fewer bytes than requested only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Announces a read of `range`, so that likely next reads can be fetched. Does nothing where reads are predicted
    /// elsewhere.
    fn read_ahead(&self, _range: ByteRange, _foresee: Foresee<'_>) {}
    /// Fetches the data that is likely to be read next, even if no read is under way.
    fn fetch(&self) {}
    /// Returns the bytes of a read of `range`, up to the end of the file, as parts of this node's memory. `None` if not
    /// all of them are in memory, or if they lie in more than `parts_max` parts.
    fn read_in_place(&self, _range: ByteRange, _parts_max: usize) -> Option<Vec<Part>> {
        None
    }
    /// Returns the share of the read-ahead memory, in bytes, that this open file may use. Called when a read of
    /// `_bytes` bytes begins.
    fn ahead_share(&self, _bytes: u64) -> u64 {
        u64::MAX
    }
    /// Returns how many bytes may be read ahead of a read of `_bytes` bytes, judged by how much of earlier read-ahead
    /// was used.
    fn ahead_earned(&self, _bytes: u64) -> u64 {
        u64::MAX
    }
    /// Notes that sequential reads have passed `range`.
    fn spent(&self, _range: ByteRange) {}
    /// Writes all of `data`.
    fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult>;
    /// Writes data that was written and acknowledged at the time `at`. Does not report errors of earlier stage-outs. A
    /// server sets the file's modification time to `at`; a local replica gets it from [`backdate`](OpenData::backdate).
    fn write_acknowledged(&self, data: &[u8], offset: u64, at: Timestamp) -> io::Result<()>;
    /// Returns the state that [`backdate`](OpenData::backdate) needs. Call this before acknowledged bytes are written
    /// to a local replica.
    fn backdating(&self) -> Option<Backdating> {
        None
    }
    /// Sets the modification time to `at`, when the last of the acknowledged bytes was written. Call this after they
    /// are written.
    fn backdate(&self, _since: &Backdating, _at: Timestamp) -> io::Result<()> {
        Ok(())
    }
    /// Lets `write` copy acknowledged bytes straight from memory into the complete replica. Returns whether this
    /// succeeded. If not, any part may have been written, and all must be written again.
    fn write_straight(&self, _write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        false
    }
    /// The write-back queue of the complete replica. `None` if the data is not in a replica of this process.
    fn write_behind(&self) -> Option<WriteBehind> {
        None
    }
    /// Writes several acknowledged parts, which do not overlap. Each has its offset; the order is free.
    fn write_scattered(&self, parts: &[(u64, &[u8])], at: Timestamp) -> io::Result<()> {
        parts.iter().try_for_each(|(offset, data)| self.write_acknowledged(data, *offset, at))
    }
    /// Writes several acknowledged parts, sent directly from where they lie. Sends at most one request's bytes of each
    /// part. Returns whether all were sent; if not, any part may have been written.
    fn write_gathered(&self, _parts: &[(u64, Gather<'_>)], _at: Timestamp) -> io::Result<bool> {
        Ok(false)
    }
    /// Whether each write costs a round trip, so that several writes are better combined.
    fn is_remote(&self) -> bool {
        false
    }
    /// Notes that the writer keeps all data until it is synced. If a server's machine crashes, nothing is lost.
    fn retains(&self) {}
    /// Boot verifier of the server's machine. A change means that unsynced writes may be lost.
    fn boot_verifier(&self) -> u64 {
        0
    }
    /// Reports each loss of unsynced writes once, as `EIO`, if no sync has reported it. Called from a write, so that
    /// the writer learns sooner; a part of a write does not report.
    fn report_error_to_writer(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether no other process has the file open or mapped. False if unknown.
    fn is_unshared(&self) -> bool;
    /// Whether the file has no name left and only this handle has it open. False if unknown.
    fn is_last_of_removed(&self) -> bool;
    /// Whether the file was removed by another agent. Then no program here has asked for its data to be dropped.
    fn was_removed_elsewhere(&self) -> bool {
        false
    }
    /// `ftruncate`
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// `fallocate`
    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()>;
    /// `SEEK_DATA`, `SEEK_HOLE`
    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64>;
    /// `fsync`, `fdatasync`
    fn sync(&self, data_only: bool) -> io::Result<()>;
    /// Syncs data as part of a write, which may be part of a larger write that does not see the result. So an error is
    /// reported to the next sync as well.
    fn sync_written(&self) -> io::Result<()> {
        self.sync(true)
    }
    /// Syncs data that was acknowledged before. Does not report errors of stage-outs.
    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        self.sync(data_only)
    }
    /// Returns the result of a sync if everything written already survives a crash of the machine. `None`: a real sync
    /// is needed.
    fn sync_kept(&self) -> Option<io::Result<()>> {
        None
    }
    /// Handles one `close` of a descriptor.
    fn flush(&self) -> io::Result<()>;
}

/// A version of a file's data.
#[derive(Clone)]
pub enum DataVersion {
    /// A file of this process's cache.
    Here(Arc<File>),
    /// A file at a server.
    There(Arc<Mates>),
}

impl DataVersion {
    /// Whether this may be the newest version. False only if a newer one is known.
    pub fn is_current(&self) -> bool {
        match self {
            DataVersion::Here(file) => file.is_current(),
            DataVersion::There(_) => true,
        }
    }
}

/// Equal if both handles see the same bytes.
impl PartialEq for DataVersion {
    fn eq(&self, other: &DataVersion) -> bool {
        match (self, other) {
            (DataVersion::Here(one), DataVersion::Here(other)) => Arc::ptr_eq(one, other),
            (DataVersion::There(one), DataVersion::There(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl OpenData for FileHandle {
    fn data(&self) -> DataVersion {
        DataVersion::Here(Arc::clone(self.file()))
    }
    fn version(&self) -> Option<Version> {
        FileHandle::version(self)
    }
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        FileHandle::backing(self)
    }
    fn use_passthrough(&self) -> bool {
        FileHandle::use_passthrough(self)
    }
    fn atime(&self) -> Atime {
        FileHandle::atime(self)
    }
    fn keep_atime_unchanged(&self) {
        FileHandle::keep_atime_unchanged(self);
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileHandle::read_at(self, buffer, offset)
    }
    fn read_ahead(&self, range: ByteRange, foresee: Foresee<'_>) {
        FileHandle::read_ahead(self, range, foresee);
    }
    fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult> {
        FileHandle::write_at(self, data, offset, append)
    }
    fn write_acknowledged(&self, data: &[u8], offset: u64, _: Timestamp) -> io::Result<()> {
        FileHandle::write_acknowledged(self, data, offset)
    }
    fn backdating(&self) -> Option<Backdating> {
        FileHandle::backdating(self)
    }
    fn backdate(&self, since: &Backdating, at: Timestamp) -> io::Result<()> {
        FileHandle::backdate(self, since, at)
    }
    fn write_straight(&self, write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        FileHandle::write_straight(self, write)
    }
    fn write_behind(&self) -> Option<WriteBehind> {
        FileHandle::write_behind(self)
    }
    fn is_unshared(&self) -> bool {
        FileHandle::is_unshared(self)
    }
    fn is_last_of_removed(&self) -> bool {
        FileHandle::is_last_of_removed(self)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        FileHandle::set_len(self, len)
    }
    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        FileHandle::fallocate(self, mode, offset, len)
    }
    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        FileHandle::seek(self, offset, what)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        FileHandle::sync(self, data_only)
    }
    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        FileHandle::sync_acknowledged(self, data_only)
    }
    fn sync_kept(&self) -> Option<io::Result<()>> {
        FileHandle::sync_kept(self)
    }
    fn flush(&self) -> io::Result<()> {
        FileHandle::flush(self)
    }
}
