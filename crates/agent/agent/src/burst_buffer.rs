//! The seam between an agent and the data of its files: a file cache in this process, or one behind a server.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{Atime, Policy};
use file_cache::{
    Anchor, DrainProgress, File, FileCache, FileHandle, Foresee, Keep, OpenHow, Overlay, Residency, SeekFor, SetMtime,
    Status, Stuck, WriteResult,
};
use parking_lot::RwLockReadGuard;
use types::{ByteRange, Identity, Timestamp, Version};
use window::read_queue::Part;

use crate::attributes::NewTime;
use crate::remote::Reads;

/// Where the data of files is. The methods mean what those of [`FileCache`] mean; with a server in between they may fail
/// for want of it.
pub trait BurstBuffer: Send + Sync {
    /// Opens a file; `EINTR` if `interrupted` says so while it waits.
    fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>>;
    /// What `stat` must say instead of the global copy's attributes.
    fn attributes(&self, identity: &Identity) -> io::Result<Option<Overlay>>;
    /// When a file was last read, as far as that is noted and later than what the global copy says, which is `below`.
    fn accessed(&self, _identity: &Identity, below: Timestamp) -> Timestamp {
        below
    }
    /// Whether reads can be noted as a policy says; if not, why, and what to do.
    fn notes_reads(&self, atime: Atime) -> Result<(), String>;
    /// Moves whenever a global copy may have become the truth about its file.
    fn settled(&self) -> u64;
    /// `truncate(2)`; `EINTR` if `interrupted` says so while it waits. What it gives keeps a file in use that is to be published.
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>>;
    /// `utimens` by somebody who may; `apply` does it as the caller, on this node.
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        times: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;
    /// After our own change of names or attributes.
    fn own_change(&self, anchor: &dyn Anchor);
    /// The last name is about to be taken away through us.
    fn removing(&self, identity: &Identity);
    /// The last name is gone through us.
    fn unlinked(&self, identity: &Identity);
    /// All that others have noted by their identities has been dealt with: files may take others' places.
    fn begin_publishing(&self) {}
    /// Whether files have taken others' places since it was opened.
    fn has_published(&self) -> bool {
        false
    }
    /// Of a file that has no name any more: whether that may be as another took it.
    fn may_have_lost_place(&self, _identity: &Identity) -> bool {
        false
    }
    /// Held while names or attributes are changed below: no file takes another's place meanwhile. `wait` is run around the wait for
    /// one that does. Not while something is opened or staged out.
    fn steady_names<'a>(&'a self, _wait: &mut dyn FnMut(&mut dyn FnMut())) -> Option<RwLockReadGuard<'a, ()>> {
        None
    }
    /// Whether the replica holds what the global copy lacks; true where nobody can tell.
    fn is_dirty(&self, identity: &Identity) -> bool;
    /// Stages a file out now and waits.
    fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck>;
    /// Stages out every dirty file - with a server: that this agent opened for writing - and waits.
    fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck>;
    /// Copies a whole file up and waits.
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()>;
    /// Drops a clean replica.
    fn evict(&self, identity: &Identity) -> io::Result<()>;
    /// Pins or unpins a replica.
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()>;
    /// Whether a replica is pinned; false where nobody can tell.
    fn is_pinned(&self, identity: &Identity) -> bool;
    /// Where a file's data is; absent where nobody can tell.
    fn state(&self, identity: &Identity) -> Residency;
    /// Ends a conflict, a failure or an orphan. `EOPNOTSUPP`: that is decided on the server.
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>>;
    /// Whether new writes go to the global store. `EOPNOTSUPP`: that is decided on the server.
    fn quiesce(&self, on: bool) -> io::Result<()>;
    /// Has `tell` called before each removal of a replica that the kernel may have; the first one stays.
    fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>);
    /// Counters; with a server: of all that it serves.
    fn status(&self) -> io::Result<Status>;
    /// The same without those that mean to read the whole catalogue.
    fn activity(&self) -> io::Result<Status>;
    /// The server in between.
    fn server(&self) -> Option<ServerState>;
    /// How this node's reads of files at a server fared, where they are read ahead.
    fn reads(&self) -> Option<Reads> {
        None
    }
    /// Lets it go; nothing may be used afterwards.
    fn shutdown(&self);
    /// Whether other nodes open the same files through the same burst buffer: the kernel must ask before it believes.
    fn is_shared(&self) -> bool;
}

/// One open file description. Dropping it is its release. The methods mean what those of [`FileHandle`] mean.
pub trait OpenData: Send + Sync {
    /// The version of the data that is open.
    fn data(&self) -> DataVersion;
    /// The number of the complete replica, wherever [`backing`](OpenData::backing) may give it.
    fn version(&self) -> Option<Version>;
    /// The complete replica, for the kernel to read and write itself.
    fn backing(&self) -> Option<BorrowedFd<'_>>;
    /// The kernel is to be given the replica. False: it must not be.
    fn use_passthrough(&self) -> bool;
    /// As what the kernel notes reads of `backing`.
    fn atime(&self) -> Atime {
        Atime::No
    }
    /// Reads through it move no time of last access, whatever the policy says.
    fn leave_atime(&self) {}
    /// Reads; fewer bytes than asked only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Before a read of `range`: what will be read next may be fetched first. Nothing where that is for somebody else to see.
    fn read_ahead(&self, _range: ByteRange, _foresee: Foresee<'_>) {}
    /// The bytes of a read of `range`, up to the end of the file, where they lie in memory of this node; `None` where not all of them
    /// do, or in more than `parts_max` places.
    fn read_in_place(&self, _range: ByteRange, _parts_max: usize) -> Option<Vec<Part>> {
        None
    }
    /// A read of so many bytes begins: bytes that may be kept ahead of this open file's reads, of what all may keep.
    fn ahead_share(&self, _bytes: u64) -> u64 {
        u64::MAX
    }
    /// Reads go on in sequence behind `range`.
    fn spent(&self, _range: ByteRange) {}
    /// Writes all of `data`.
    fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult>;
    /// Writes what was acknowledged before: the errors of stage-outs are not told.
    fn write_acknowledged(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// The same by `write`, from where the bytes are straight into the complete replica; whether it did. If not it is as if nobody had
    /// tried, but that any part may be there.
    fn write_straight(&self, _write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        false
    }
    /// What was acknowledged before, at several places that do not overlap, each with its first byte, in whatever order.
    fn write_scattered(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        parts.iter().try_for_each(|(offset, data)| self.write_acknowledged(data, *offset))
    }
    /// Whether each write costs a round trip, so that several are better made at once.
    fn is_remote(&self) -> bool {
        false
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
    /// The same for what was acknowledged before: the errors of stage-outs are not told.
    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        self.sync(data_only)
    }
    /// One `close` of a descriptor.
    fn flush(&self) -> io::Result<()>;
}

/// How it stands with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Where it listens.
    pub address: String,
    /// For how long it has not answered; `None`: it answers, as far as anybody has asked.
    pub away: Option<Duration>,
}

/// A version of a file's data; equal ones are one version.
#[derive(Clone)]
pub enum DataVersion {
    /// In this process.
    Here(Arc<File>),
    /// As the server numbers it.
    There(u64),
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

impl PartialEq for DataVersion {
    fn eq(&self, other: &DataVersion) -> bool {
        match (self, other) {
            (DataVersion::Here(one), DataVersion::Here(other)) => Arc::ptr_eq(one, other),
            (DataVersion::There(one), DataVersion::There(other)) => one == other,
            _ => false,
        }
    }
}

impl BurstBuffer for FileCache {
    fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(FileCache::open_unless(self, anchor, how, interrupted)?))
    }
    fn attributes(&self, identity: &Identity) -> io::Result<Option<Overlay>> {
        Ok(FileCache::attributes(self, identity))
    }
    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        FileCache::accessed(self, identity, below)
    }
    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        if FileCache::notes_reads(self, atime) {
            return Ok(());
        }
        let option = if atime == Atime::Strict { "strictatime" } else { "relatime" };
        Err(format!(
            "the policy `atime` cannot be kept here: the burst buffer notes no reads; run the agent as root, or mount the burst buffer's file system with `{option}`"
        ))
    }
    fn settled(&self) -> u64 {
        FileCache::settled(self)
    }
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>> {
        let handle = FileCache::set_len(self, anchor, len, policy, interrupted)?;
        Ok(policy.publish_atomic.then(|| Box::new(handle) as Box<dyn OpenData>))
    }
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [_, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let sets = match mtime {
            None => SetMtime::Keep,
            Some(NewTime::Now) => SetMtime::Now,
            Some(NewTime::At(time)) => SetMtime::To(time),
        };
        FileCache::set_times(self, anchor, sets, apply)
    }
    fn own_change(&self, anchor: &dyn Anchor) {
        FileCache::own_change(self, anchor);
    }
    fn removing(&self, identity: &Identity) {
        FileCache::removing(self, identity);
    }
    fn unlinked(&self, identity: &Identity) {
        FileCache::unlinked(self, identity);
    }
    fn begin_publishing(&self) {
        FileCache::begin_publishing(self);
    }
    fn has_published(&self) -> bool {
        FileCache::has_published(self)
    }
    fn may_have_lost_place(&self, identity: &Identity) -> bool {
        FileCache::may_have_lost_place(self, identity)
    }
    fn steady_names<'a>(&'a self, wait: &mut dyn FnMut(&mut dyn FnMut())) -> Option<RwLockReadGuard<'a, ()>> {
        let mut names = self.try_steady_names();
        if names.is_none() {
            wait(&mut || names = Some(FileCache::steady_names(self)));
        }
        names
    }
    fn is_dirty(&self, identity: &Identity) -> bool {
        FileCache::is_dirty(self, identity)
    }
    fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        FileCache::drain_file(self, identity, interrupted)
    }
    fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        FileCache::drain_all(self, progress, interrupted)
    }
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        FileCache::stage_in(self, anchor, policy)
    }
    fn evict(&self, identity: &Identity) -> io::Result<()> {
        FileCache::evict(self, identity)
    }
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        FileCache::pin(self, identity, pinned)
    }
    fn is_pinned(&self, identity: &Identity) -> bool {
        FileCache::is_pinned(self, identity)
    }
    fn state(&self, identity: &Identity) -> Residency {
        FileCache::state(self, identity)
    }
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        FileCache::resolve(self, identity, keep)
    }
    fn quiesce(&self, on: bool) -> io::Result<()> {
        FileCache::quiesce(self, on);
        Ok(())
    }
    fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>) {
        FileCache::before_removals(self, tell);
    }
    fn status(&self) -> io::Result<Status> {
        Ok(FileCache::status(self))
    }
    fn activity(&self) -> io::Result<Status> {
        Ok(FileCache::activity(self))
    }
    fn server(&self) -> Option<ServerState> {
        None
    }
    fn shutdown(&self) {
        FileCache::shutdown(self);
    }
    fn is_shared(&self) -> bool {
        false
    }
}

impl OpenData for FileHandle {
    fn data(&self) -> DataVersion {
        DataVersion::Here(Arc::clone(self.file()))
    }
    fn version(&self) -> Option<Version> {
        FileHandle::version(self)
    }
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        FileHandle::backing(self)
    }
    fn use_passthrough(&self) -> bool {
        FileHandle::use_passthrough(self)
    }
    fn atime(&self) -> Atime {
        FileHandle::atime(self)
    }
    fn leave_atime(&self) {
        FileHandle::leave_atime(self);
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
    fn write_acknowledged(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileHandle::write_acknowledged(self, data, offset)
    }
    fn write_straight(&self, write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        FileHandle::write_straight(self, write)
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
    fn flush(&self) -> io::Result<()> {
        FileHandle::flush(self)
    }
}
