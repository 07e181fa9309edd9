//! A store of many small immutable byte strings, the *objects*, in few append-only files, the *segments*, of one directory of
//! the burst buffer. No object has an inode, and each takes about forty bytes of memory.
//!
//! [`SegmentStore`] is what an owner opens. The owner knows which objects are alive: a removal is not durable, and after an
//! opening [`SegmentStore::retain`] drops what the owner's own log does not know.
//!
//! # Invariants
//!
//! 1. An acknowledged put is there after the death of the process, and after a crash of the machine if a sync came between.
//! 2. Of two objects of a key the one with the higher sequence number counts, wherever copies of them lie.
//! 3. An object is whole or absent. No byte passes as an object's before its checksum, which covers a random number of its file.
//! 4. A segment is deleted only when it has no live object, and what superseded its objects is on the medium.
//! 5. A live object that cannot be read back is never dropped: its segment is kept, and the owner is told.
//!
//! # Life of a segment
//!
//! A segment is *filled*, then *full*, and *sealed* when a compaction step has written its footer: the list of its objects, by
//! which the next opening does without its data. It is deleted when its last object is dead, or after a compaction step
//! has copied its live objects because they were few.
//!
//! # Memory
//!
//! An object takes 38 to 46 bytes of the index, and up to 64 after many removals. A segment takes some hundred bytes and a
//! descriptor. Nothing else grows with the number of objects.
//!
//! # Locks
//!
//! In this order, and only to look something up or to change it: an entry of the index, the end of the newest segment, the table of
//! segments, the life of one segment, the list of dirty ones. Bytes are copied, summed, written and synced without a lock. Two exceptions are rare: the
//! creation of a segment, and the second attempt of a put during which a later object was removed.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod append;
mod compaction;
mod error;
pub mod fault;
mod footer;
mod group;
mod index;
mod key;
mod layout;
pub mod limits;
mod medium;
mod object;
mod opening;
mod scan;
mod segment;
mod store;
mod sync;
#[cfg(test)]
mod tests;

pub use compaction::CompactionStep;
pub use error::{DamagedObject, SegmentError};
pub use key::ObjectKey;
pub use object::Object;
pub use opening::SegmentReport;
pub use store::{SegmentSettings, SegmentStore, SegmentUsage};
