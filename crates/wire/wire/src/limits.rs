//! Bounds of the protocol, each with its reason.

/// Bytes of a message without data. The largest holds two paths and a reason.
pub const BODY_BYTES_MAX: u32 = 16 << 10;

/// Bytes of data in a frame: the largest request of FUSE. Larger reads and writes are several requests.
pub const DATA_BYTES_MAX: u32 = 1 << 20;

/// Bytes of a path: the kernel's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of a text: the policy of a directory, a reason, a name.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Bytes of a file's identity: see `types::Identity`.
pub const IDENTITY_BYTES_MAX: usize = 132;

/// Bytes of a piece of a kernel's message: a name, the target of a link, a list of a thousand groups. Longer parts are
/// sent as data.
pub const PIECE_BYTES_MAX: usize = 4096;

const _: () = assert!(2 * PIECE_BYTES_MAX + 256 < BODY_BYTES_MAX as usize);
const _: () = assert!(2 * PATH_BYTES_MAX + TEXT_BYTES_MAX + IDENTITY_BYTES_MAX + 256 < BODY_BYTES_MAX as usize);
