//! One open file, and which version of its data that is.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use config::Atime;
use file_cache::{Backdating, File, FileHandle, Foresee, SeekFor, WriteBehind, WriteResult};
use types::{ByteRange, Timestamp, Version};
use window::Gather;
use window::read_queue::Part;

use crate::remote::Mates;

/// One open file description. Dropping it is its release. The methods mean what those of [`FileHandle`] mean.
pub trait OpenData: Send + Sync {
    /// The version of the data that is open.
    fn data(&self) -> DataVersion;
    /// The number of the complete replica, wherever [`backing`](OpenData::backing) may give it.
    fn version(&self) -> Option<Version>;
    /// The complete replica, for the kernel to read and write itself.
    fn backing(&self) -> Option<Arc<OwnedFd>>;
    /// The kernel is to be given the replica. False: it must not be.
    fn use_passthrough(&self) -> bool;
    /// As what the kernel notes reads of `backing`.
    fn atime(&self) -> Atime {
        Atime::No
    }
    /// Reads through it move no time of last access, whatever the policy says.
    fn keep_atime_unchanged(&self) {}
    /// Reads; fewer bytes than asked only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Before a read of `range`: what will be read next may be fetched first. Nothing where that is for somebody else to see.
    fn read_ahead(&self, _range: ByteRange, _foresee: Foresee<'_>) {}
    /// What is to be read next is fetched, also if nobody reads now.
    fn fetch(&self) {}
    /// The bytes of a read of `range`, up to the end of the file, where they lie in memory of this node; `None` where not all of them
    /// do, or in more than `parts_max` places.
    fn read_in_place(&self, _range: ByteRange, _parts_max: usize) -> Option<Vec<Part>> {
        None
    }
    /// A read of so many bytes begins: bytes that may be kept ahead of this open file's reads, of what all may keep.
    fn ahead_share(&self, _bytes: u64) -> u64 {
        u64::MAX
    }
    /// Bytes that may be kept ahead of a read of so many, by what reads of the file have used so far.
    fn ahead_earned(&self, _bytes: u64) -> u64 {
        u64::MAX
    }
    /// Reads go on in sequence behind `range`.
    fn spent(&self, _range: ByteRange) {}
    /// Writes all of `data`.
    fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult>;
    /// Writes what was written `at` that time and acknowledged: the errors of stage-outs are not told. The file has that time where it is
    /// kept elsewhere, and else when [`backdate`](OpenData::backdate) says so.
    fn write_acknowledged(&self, data: &[u8], offset: u64, at: Timestamp) -> io::Result<()>;
    /// Before such bytes come to a replica here.
    fn backdating(&self) -> Option<Backdating> {
        None
    }
    /// They are there, and the last of them was written `at` that time.
    fn backdate(&self, _since: &Backdating, _at: Timestamp) -> io::Result<()> {
        Ok(())
    }
    /// The same by `write`, from where the bytes are straight into the complete replica; whether it did. If not it is as if nobody had
    /// tried, but that any part may be there.
    fn write_straight(&self, _write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        false
    }
    /// What has written back what lies in the complete replica; `None` where that is nobody's here to do.
    fn write_behind(&self) -> Option<WriteBehind> {
        None
    }
    /// What was acknowledged before, at several places that do not overlap, each with its first byte, in whatever order.
    fn write_scattered(&self, parts: &[(u64, &[u8])], at: Timestamp) -> io::Result<()> {
        parts.iter().try_for_each(|(offset, data)| self.write_acknowledged(data, *offset, at))
    }
    /// The same of bytes that are sent from where they lie, of each part at most as many as one request takes; whether all were. If not
    /// any part may be there.
    fn write_gathered(&self, _parts: &[(u64, Gather<'_>)], _at: Timestamp) -> io::Result<bool> {
        Ok(false)
    }
    /// Whether each write costs a round trip, so that several are better made at once.
    fn is_remote(&self) -> bool {
        false
    }
    /// What comes through it is kept elsewhere until it is synced: where that is lost with a server's machine, nothing is lost.
    fn retains(&self) {}
    /// Another number than before: what was not synced may be lost, with a server's machine.
    fn boot_verifier(&self) -> u64 {
        0
    }
    /// `EIO`, once for each loss that no sync has told: who writes is told sooner, and of a part of a write does not hear it.
    fn report_error_to_writer(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether nobody else has the file open or mapped; false where nobody can tell.
    fn is_unshared(&self) -> bool;
    /// Whether the file has lost its last name and nobody but this handle has it open; false where nobody can tell.
    fn is_last_of_removed(&self) -> bool;
    /// Whether it was removed, and not through this agent: nobody here has asked that what was written is dropped.
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
    /// The same as a part of a write, which may be a part of a larger one that does not hear of it: what is told is told to the next sync as
    /// well.
    fn sync_written(&self) -> io::Result<()> {
        self.sync(true)
    }
    /// The same for what was acknowledged before: the errors of stage-outs are not told.
    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        self.sync(data_only)
    }
    /// The same where all that was written survives a crash of the machine as it is: what is left to tell. `None`: there is more to do.
    fn sync_kept(&self) -> Option<io::Result<()>> {
        None
    }
    /// One `close` of a descriptor.
    fn flush(&self) -> io::Result<()>;
}

/// A version of a file's data.
#[derive(Clone)]
pub enum DataVersion {
    /// In this process.
    Here(Arc<File>),
    /// At a server.
    There(Arc<Mates>),
}

impl DataVersion {
    /// Whether it is known not to be the file's newest.
    pub fn is_current(&self) -> bool {
        match self {
            DataVersion::Here(file) => file.is_current(),
            DataVersion::There(_) => true,
        }
    }
}

/// Whether who has the one open has the same bytes as who has the other.
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
