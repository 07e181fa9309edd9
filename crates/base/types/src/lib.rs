//! The vocabulary that every crate shares: identities, ranges, locks, epochs, fingerprints.
//!
//! This crate imports nothing but the standard library, and every name here is a word of `ARCHITECTURE.md`.

mod fingerprint;
mod gathered;
mod identity;
mod lock;
mod order;
mod range;
mod session;
mod short_bytes;
mod shown;
mod step;

pub use fingerprint::{Fingerprint, Moved, NewTime, Timestamp};
pub use gathered::Gathered;
pub use identity::{Identity, IdentityError};
pub use lock::{LockKind, LockOwner, RangeLock, RangeLocks};
pub use order::{Epoch, Version};
pub use range::{ByteRange, RangeSet};
pub use session::SessionInstance;
pub use short_bytes::ShortBytes;
pub use shown::{Shown, word};
pub use step::{HasErrno, Step, names_step, reported};
