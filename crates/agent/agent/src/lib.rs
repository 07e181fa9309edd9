//! The agent: POSIX semantics on a node, over a global store that owns the names and a file cache that has the data.
//!
//! The crate knows nothing of FUSE. Nodes are `O_PATH` descriptors, so names may change below and above. Every change
//! of the namespace is made in the global store at once, as the user who asked. Locks are keyed by identity.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod agent;
mod attributes;
mod beside;
mod caller;
pub mod control;
mod directory;
mod flags;
pub mod limits;
mod locking;
pub mod locks;
mod mode;
mod names;
mod node;
mod open_file;
mod opening;
mod places;
mod policy_table;
mod reader;
mod rename;
mod rights;
mod set_id;
mod stat;
mod window_control;
#[cfg(test)]
mod window_tests;
mod xattr;

pub use agent::Agent;
pub use attributes::NewAttributes;
pub use caller::{Caller, groups_of, set_groups_of_callers};
pub use directory::{DirectoryEntry, OpenDirectory};
pub use flags::is_of_flags;
pub use global_store::calls::{OutstandingCall, RequestId, Store};
pub use global_store::descriptors;
pub use locks::LockScope;
pub use mode::{Mode, WriteHow};
pub use names::{FoundNode, NewMode};
pub use node::Node;
pub use open_file::OpenFile;
pub use policy_table::{PolicyError, PolicyTable};
pub use reader::ReadData;
pub use set_id::CAPABILITY;
pub use stat::{Attributes, FileSystemSpace};
pub use window::WindowMedium;
pub use window_control::attaches;
pub use windows::own_tmpfs;
pub use windows::{
    Announced, LeftWindows, OutOfSight, Replayed, WindowService, WindowSettings, WindowStatus, fits_windows,
    forget_windows, has_windows_in, left_windows, provide_for_windows, windows_left,
};
