//! Identities of files, independent of their paths.
//!
//! An identity starts with a byte for its kind, followed by:
//! * kind 1: the handle's type (3 bytes, little endian) and the handle, up to 128 bytes;
//! * kind 2: inode number (8 bytes), birth time (8 bytes of seconds, 4 of nanoseconds), all little endian;
//! * kind 3: inode number alone, if the store reports no birth time. A reused inode number then gives the same
//!   identity. Programs should not delete files outside Forebay on such a store;
//! * kind 4, never stored: a handle of a FUSE file system, which is valid only while the file is open.
//!
//! No identity contains `st_dev`, because it changes when the store is mounted again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{self, AtFlags, StatxFlags};
use types::Identity;

use crate::limits::{HANDLE_BYTES_MAX, HANDLE_PAUSES};

const KIND_HANDLE: u8 = 1;
const KIND_BORN: u8 = 2;
const KIND_NUMBER: u8 = 3;
const KIND_PASSING: u8 = 4;

/// `AT_HANDLE_FID` of `name_to_handle_at`: the handle distinguishes files but need not be usable to open them.
const HANDLE_TELLS_APART: libc::c_int = 0x200;

/// `statfs` type of every FUSE file system. Handles there contain the server's node ids, which end with the mount.
pub(super) const FUSE_MAGIC: i64 = 0x6573_5546;

/// A kernel file handle: `struct file_handle` with room for the longest.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    data: [u8; HANDLE_BYTES_MAX],
}

/// Returns whether handles on this file system stay valid after a remount.
pub(super) fn handles_are_durable(fd: BorrowedFd) -> io::Result<bool> {
    Ok(fs::fstatfs(fd)?.f_type as i64 != FUSE_MAGIC)
}

/// Returns the identity of an open file (`O_PATH` is enough). `handles`: whether a file handle may be used.
pub(super) fn identify(fd: BorrowedFd, handles: bool) -> io::Result<Identity> {
    if handles && let Some(handle) = handle_of(fd, 0) {
        return of_handle(KIND_HANDLE, &handle);
    }
    let mask = StatxFlags::INO | StatxFlags::BTIME;
    let stat = fs::statx(fd, "", AtFlags::EMPTY_PATH, mask)?;
    let mut bytes = vec![KIND_BORN];
    bytes.extend_from_slice(&stat.stx_ino.to_le_bytes());
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        bytes.extend_from_slice(&stat.stx_btime.tv_sec.to_le_bytes());
        bytes.extend_from_slice(&stat.stx_btime.tv_nsec.to_le_bytes());
    } else {
        bytes[0] = KIND_NUMBER;
    }
    Identity::new(bytes).map_err(io::Error::other)
}

/// Returns an identity that distinguishes a file from all other open files, without a request to the store. It is the
/// FUSE client's own handle. Returns `None` if this kernel does not provide one.
pub(super) fn passing(fd: BorrowedFd) -> Option<Identity> {
    of_handle(KIND_PASSING, &handle_of(fd, HANDLE_TELLS_APART)?).ok()
}

fn of_handle(kind: u8, handle: &Handle) -> io::Result<Identity> {
    let mut bytes = Vec::with_capacity(4 + handle.bytes as usize);
    bytes.push(kind);
    bytes.extend_from_slice(&handle.kind.to_le_bytes()[..3]);
    bytes.extend_from_slice(&handle.data[..handle.bytes as usize]);
    Identity::new(bytes).map_err(io::Error::other)
}

/// Returns the first bytes of the identities of files with this inode number, for identities without handles.
pub(super) fn starts_of(ino: u64) -> [[u8; 9]; 2] {
    [KIND_BORN, KIND_NUMBER].map(|kind| {
        let mut start = [kind; 9];
        start[1..].copy_from_slice(&ino.to_le_bytes());
        start
    })
}

/// Returns the inode number in an identity without handle, as a cheap filter for a walk; `None` for other identities.
pub(super) fn inode_of(identity: &Identity) -> Option<u64> {
    match identity.as_bytes() {
        [KIND_BORN | KIND_NUMBER, rest @ ..] => Some(u64::from_le_bytes(rest.get(..8)?.try_into().ok()?)),
        _ => None,
    }
}

/// Returns whether the identity contains only an inode number.
pub(super) fn is_number_alone(identity: &Identity) -> bool {
    identity.as_bytes().first() == Some(&KIND_NUMBER)
}

fn handle_of(fd: BorrowedFd, flags: libc::c_int) -> Option<Handle> {
    let mut handle = Handle { bytes: HANDLE_BYTES_MAX as u32, kind: 0, data: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    let (file, flags) = (fd.as_raw_fd(), libc::AT_EMPTY_PATH | flags);
    // SAFETY: `handle` starts with the two fields of `struct file_handle` (both are `repr(C)`) and has as many bytes
    // behind them as it says; the path is a C string and the mount id is written to a live integer.
    let result = unsafe { libc::name_to_handle_at(file, c"".as_ptr(), (&raw mut handle).cast(), &mut mount, flags) };
    // A type of more than 24 bits does not fit an identity; no file system has one.
    let usable = result == 0 && handle.bytes as usize <= HANDLE_BYTES_MAX && (0..1 << 24).contains(&handle.kind);
    usable.then_some(handle)
}

/// Outcome of opening a file by its handle.
pub(super) enum ByHandle {
    /// An `O_PATH` descriptor of the file.
    Found(OwnedFd),
    /// The store reports that the file no longer exists.
    Gone,
    /// This identity has no handle, or handles cannot be opened here (that needs `CAP_DAC_READ_SEARCH`).
    Unable,
}

/// Opens a file by handle. `root` is a descriptor on the same mount, opened for reading and not with `O_PATH`.
///
/// Retries after `ENOMEM`, as long as [`HANDLE_PAUSES`] last.
pub(super) fn open_by_handle(root: BorrowedFd, identity: &Identity) -> io::Result<ByHandle> {
    let mut pauses = HANDLE_PAUSES.iter();
    loop {
        match open_by_handle_once(root, identity) {
            // The kernel also returns `ENOMEM` while it gives the inode's number to a new file.
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => match pauses.next() {
                Some(pause) => concurrency::sleep(*pause),
                None => return Err(error),
            },
            other => return other,
        }
    }
}

fn open_by_handle_once(root: BorrowedFd, identity: &Identity) -> io::Result<ByHandle> {
    let [KIND_HANDLE, k0, k1, k2, data @ ..] = identity.as_bytes() else { return Ok(ByHandle::Unable) };
    if data.len() > HANDLE_BYTES_MAX {
        return Ok(ByHandle::Unable);
    }
    let mut handle =
        Handle { bytes: data.len() as u32, kind: i32::from_le_bytes([*k0, *k1, *k2, 0]), data: [0; HANDLE_BYTES_MAX] };
    handle.data[..data.len()].copy_from_slice(data);
    // SAFETY: as above; the kernel only reads the handle.
    let fd =
        unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), libc::O_PATH | libc::O_CLOEXEC) };
    if fd >= 0 {
        // SAFETY: the kernel just returned this descriptor, and no other code owns it.
        return Ok(ByHandle::Found(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESTALE | libc::ENOENT) => Ok(ByHandle::Gone),
        Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => Ok(ByHandle::Unable),
        _ => Err(error),
    }
}
