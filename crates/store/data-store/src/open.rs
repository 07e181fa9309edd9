//! Open files.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::Policy;
use types::{ByteRange, Gathered, Timestamp, Version};

/// How a file is opened.
#[derive(Debug, Clone, Default)]
pub struct OpenHow {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// `O_WRONLY` with `O_APPEND`: each write goes to the end, also one that the kernel makes without the agent. No
    /// shared mapping is possible.
    pub appends: bool,
    /// `O_RDWR`: the program may map the file shared and write it so, also after the close.
    pub may_map: bool,
    /// `O_TRUNC`: the content is discarded.
    pub truncate: bool,
    /// The caller created the file just now, empty.
    pub created: bool,
    /// `O_SYNC` or `O_DSYNC`. Records that recovery needs after a crash of the machine are durable before the open is
    /// answered, because the agent does not see passthrough writes.
    pub sync: bool,
    /// `O_NOATIME`: reads leave the access time unchanged, whatever the policy says.
    pub noatime: bool,
    /// Mark of the client that opens the file, reported with its changes
    /// ([`StoreObserver::Changes`](crate::StoreObserver::Changes)); 0: none.
    pub mark: u64,
    /// The policy of the file's directory.
    pub policy: Arc<Policy>,
}

/// Bytes fetched ahead of one open file's reads before the rest of the file: some seconds of a slow store.
pub const READ_AHEAD_BYTES: u64 = 32 << 20;

/// Returns the read-ahead budget of one open file, bytes; 0: none.
pub fn read_ahead_bytes(policy: &Policy) -> u64 {
    match policy.read_ahead.wish() {
        None => 0,
        Some(0) => READ_AHEAD_BYTES,
        Some(bytes) => bytes,
    }
}

/// How a read of a file that is being staged in found its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fared {
    /// All bytes were in the burst buffer.
    Hit,
    /// The bytes were being fetched already.
    Late,
    /// Some bytes had to be requested.
    Miss,
}

/// Callback that returns the bytes of a range that are neither present nor being fetched.
pub type FindMissing<'a> = &'a mut dyn FnMut(ByteRange) -> Vec<ByteRange>;

/// Callback that returns the ranges that the reader will want, the nearest first. Gets the file's size, how the last
/// read fared, and the share of the read-ahead memory, in bytes, that the open file may use.
pub type Foresee<'a> = &'a mut dyn FnMut(u64, Fared, u64, FindMissing<'_>) -> ReadNotice;

/// Answer of [`Foresee`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadNotice {
    /// Ranges that the reader will want, the nearest first.
    pub following: Vec<ByteRange>,
    /// Range that sequential reads have passed.
    pub spent: Option<ByteRange>,
}

/// Target of a `seek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekFor {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`
    Hole,
    /// The end of the file as this handle reads it, whatever the offset.
    End,
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteWhere {
    /// At an offset.
    At(u64),
    /// At an offset; the write was made earlier, at the time given.
    Backdated(u64, Timestamp),
    /// At the end; no other append comes in between.
    End,
    /// At the end, by an append that may have been executed already. The file had at least this size when it was first
    /// tried.
    EndAgain(u64),
}

/// Where a write went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Number of bytes written. That is all of the data, except for an append that found no more room.
    pub written: usize,
    /// Offset of the first byte: the former end of the file for an append.
    pub offset: u64,
}

/// Scope of a sync, and which errors it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncScope {
    /// `fsync`
    All,
    /// `fdatasync`
    Data,
    /// Data, as part of a write. The write may be part of a larger one that does not see the result. So an error is
    /// reported to the next sync as well.
    OfWrite,
    /// Data that was acknowledged before; with true, only the data. Errors of stage-outs are not reported.
    Acknowledged(bool),
    /// Nothing is synced: the sync succeeds if everything written already survives a crash of the machine. False: a
    /// real sync is needed.
    IfKept,
    /// Nothing is synced. Each loss of unsynced writes that no sync has reported is reported once, as `EIO`, so that a
    /// writer learns sooner.
    LossOnly,
}

/// Bytes of a read in place, without a copy.
pub enum InPlace {
    /// Parts of this process's memory.
    Memory(Vec<Box<dyn AsRef<[u8]> + Send + Sync>>),
    /// Bytes of a file at the read's offset, and their number. The number may shrink, as with any read beside a
    /// truncation.
    File(Arc<OwnedFd>, usize),
}

/// In which form bytes of a read are wanted in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlaceAs {
    /// At most this many parts of memory.
    Memory(usize),
    /// Bytes of a file.
    File,
}

/// Version of the data that is open.
#[derive(Clone)]
pub struct DataVersion {
    /// The data: of two open files with the same one, both see the same bytes.
    pub content: Arc<dyn Any + Send + Sync>,
    /// Whether this may be the newest version. False only if a newer one is known.
    pub is_current: bool,
    /// Number of the complete replica, if [`Passthrough::backing`] can return it. No other file or content ever has it.
    pub replica: Option<Version>,
    /// Number of a content that nobody changes but through this open file's node and the agent, so that the kernel may keep its
    /// pages from one open to the next. No other file or content ever has it. `None` beside a `replica`.
    pub steady: Option<Version>,
}

/// Equal if both open files see the same bytes.
impl PartialEq for DataVersion {
    fn eq(&self, other: &DataVersion) -> bool {
        Arc::as_ptr(&self.content).addr() == Arc::as_ptr(&other.content).addr()
    }
}

/// One open file description, released when dropped.
pub trait OpenData: Send + Sync {
    /// Returns the version of the data that is open.
    fn data(&self) -> DataVersion;
    /// Reads; returns fewer bytes than requested only at the end of the file. Errors: those of the global store, such
    /// as `EIO`, for bytes that are not in the burst buffer.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Returns the bytes of a read of `range`, up to the end of the file, in place. `None` if only
    /// [`read_at`](OpenData::read_at) finds them.
    fn read_in_place(&self, range: ByteRange, wanted: InPlaceAs) -> Option<InPlace>;
    /// Announces a read of `range`, so that likely next reads can be fetched. `foresee` is called under locks and must
    /// not wait; it is not called where the kernel reads ahead by itself.
    ///
    /// `wanted`: bytes that the program asks for in advance instead; they are fetched at once. Returns false if only
    /// the kernel can do that.
    fn read_ahead(&self, range: ByteRange, wanted: Option<u64>, foresee: Foresee<'_>) -> bool;
    /// Writes all of `data`. Reports a failed stage-out once. Errors: `ENOSPC` if the global store is full as well. An
    /// append of which a part was written returns how much.
    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult>;
    /// Sets the length (`ftruncate`).
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates, punches or zeroes a range; `mode` holds the `FALLOC_FL_*` bits.
    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()>;
    /// Finds data, a hole or the end. Errors: `ENXIO` past the end, or if there is no more data.
    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64>;
    /// Makes what was written survive a crash of the machine. False only for [`SyncScope::IfKept`].
    fn sync(&self, scope: SyncScope) -> io::Result<bool>;
    /// Handles one `close` of a descriptor.
    fn flush(&self) -> io::Result<()>;
    /// Returns the access to the complete replica for the kernel of this machine, if there may be one.
    fn passthrough(&self) -> Option<&dyn Passthrough>;
}

/// Access to a complete replica for the kernel, which then reads and writes it without the agent.
pub trait Passthrough {
    /// Returns the descriptor of the replica (`O_PATH`).
    fn backing(&self) -> Option<Arc<OwnedFd>>;
    /// Begins passthrough. False if it must not: the data has left the burst buffer since the open, or room is scarce.
    fn begin(&self) -> bool;
    /// Returns whether no other process has the file open or mapped. False if unknown.
    fn is_unshared(&self) -> bool;
}

/// Acknowledged bytes of a window.
pub enum AcknowledgedBytes<'a> {
    /// Bytes in memory of this process.
    Copied(&'a [u8]),
    /// Bytes where programs wrote them.
    Gathered(&'a dyn Gathered),
}

/// Callback that starts the write-back of a range of the replica, from any thread. It waits at most for the medium's
/// queue and promises nothing: the range must still be synced. Errors: those of the write-back.
pub type StartWriteBack = Box<dyn Fn(ByteRange) -> io::Result<()> + Send + Sync>;

/// Where acknowledged bytes of windows go, opened for one file.
pub struct WindowFile {
    /// The target.
    pub target: Box<dyn WindowTarget>,
    /// Most bytes of one part. Parts of a local replica end at multiples of it.
    pub part_bytes: u64,
    /// Whether each write costs a round trip, so that several are better combined.
    pub is_remote: bool,
    /// Write-back of the replica. `None` if there is none, or if the kernel does it alone.
    pub write_back: Option<StartWriteBack>,
}

/// Whether a file has lost its last name while windows wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The file has a name, or others have it open, or that is unknown.
    No,
    /// The file was removed through this agent.
    Here,
    /// The file was removed by another agent: no program here has asked for its data to be dropped.
    Elsewhere,
}

/// Target of acknowledged bytes of windows.
pub trait WindowTarget: Send + Sync {
    /// Writes parts, each at its offset, which were acknowledged at the time `at` at the latest. They do not overlap.
    /// The file's modification time becomes `at`, unless others wrote meanwhile. Errors of earlier stage-outs are not
    /// reported.
    ///
    /// Returns the boot verifier of the machine with the data, from before the write. `None`: gathered bytes could not
    /// all be taken from where they lie. Then, as after an error, any part may have been written.
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>>;
    /// Makes what was written survive a crash of the machine with the data. Returns its boot verifier: if it differs
    /// from that of a write, the write may be lost. Errors of stage-outs are not reported.
    fn sync(&self) -> io::Result<u64>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns whether the file has no name left and only this handle has it open.
    fn removed(&self) -> Removed;
    /// Reports each loss of writes past the windows once, as [`SyncScope::LossOnly`] does.
    fn report_loss(&self) -> io::Result<()>;
}
