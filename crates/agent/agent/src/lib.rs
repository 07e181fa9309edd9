//! The agent: POSIX semantics on a node, over a global store that owns the names and a file cache that has the data.
//!
//! The crate knows nothing of FUSE. Names are those of a `Namespace`, data is that of a `DataStore`, and the agent joins
//! the two. Locks are keyed by identity.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod agent;
mod attributes;
pub mod control;
mod flags;
pub mod limits;
mod locking;
pub mod locks;
mod names;
mod node;
mod open_file;
mod opening;
mod overlay;
mod policy_table;
mod reader;
mod rename;
mod set_id;
mod window_control;
#[cfg(test)]
mod window_tests;
mod write_how;
mod xattr;

pub use agent::Agent;
pub use attributes::NewAttributes;
pub use flags::is_of_flags;
pub use global_store::calls::{OutstandingCall, RequestId, Store};
pub use global_store::descriptors;
pub use locks::LockScope;
pub use names::FoundNode;
pub use namespace::{
    Caller, DirectoryEntry, FileAttributes, FileSystemSpace, Mode, NewMode, OpenDirectory, groups_of,
    set_groups_of_callers,
};
pub use node::{Node, RestingNode};
pub use open_file::OpenFile;
pub use policy_table::{PolicyError, PolicyTable};
pub use reader::ReadData;
pub use set_id::CAPABILITY;
pub use window::WindowMedium;
pub use window_control::attaches;
pub use windows::own_tmpfs;
pub use windows::{
    Announced, LeftWindows, OutOfSight, Replayed, WindowService, WindowSettings, WindowStatus, fits_windows,
    forget_windows, has_windows_in, has_windows_of, left_windows, provide_for_windows, windows_left,
};
pub use write_how::WriteHow;
