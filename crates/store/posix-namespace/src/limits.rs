//! Bounds of the names of a global store, each with its reason.

use std::time::Duration;

/// Bytes of directory entries read from the global store at once: as many as one `readdir(3)` call of glibc gets from
/// `getdents64`.
pub(crate) const DIRECTORY_BUFFER_BYTES: usize = 32 << 10;

/// Longest value of an extended attribute: the kernel's `XATTR_SIZE_MAX`.
pub(crate) const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Longest list of extended attribute names: the kernel's `XATTR_LIST_MAX`.
pub(crate) const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// How long an idle helper thread is kept.
pub(crate) const HELPER_REST: Duration = Duration::from_secs(10);
