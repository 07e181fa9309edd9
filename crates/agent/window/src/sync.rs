//! The atomics of what is shared without a lock: those of the standard library, or of `loom` when a protocol is being model-checked.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
