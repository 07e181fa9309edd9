//! Delegated trees of one accelerated directory: which directories are delegated, where their files' data is, and when the
//! global store gets them.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]
