//! The burst buffer on disk: replicas, checksums, marks and the superblock. Nothing here knows the files in memory.

pub(crate) mod extents;
pub(crate) mod identity_attribute;
pub(crate) mod noting;
pub(crate) mod replica;
pub(crate) mod space;
pub(crate) mod sums;
pub(crate) mod superblock;

pub(crate) use global_store::posix::lease;
