//! The seam to names: what an agent has beneath it for names and attributes.
//!
//! [`Names`] and [`Attributes`] say what can be asked, [`Namespace`] joins them with the anchors by which a data store
//! gets at files. The global store's names are one implementation; a model keeps them in memory. Others may stand
//! between the agent and the global store.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod attributes;
mod caller;
mod directory;
mod exclusivity;
mod hidden;
mod inode;
pub mod limits;
mod mode;
mod names;
mod namespace;
mod rights;
mod umask;

pub use attributes::{Attributes, FileAttributes, FileSystemSpace};
pub use caller::{Caller, groups_of, groups_set, set_groups_of_callers};
pub use directory::{DirectoryEntry, OpenDirectory};
pub use exclusivity::Exclusivity;
pub use hidden::HiddenFiles;
pub use inode::{Hold, Inode, KeptFile, RestingInode};
pub use mode::Mode;
pub use names::{Found, KnownSince, NameKind, Names, NewFile, NewMode, NewName, component, plain};
pub use namespace::{AnchorFor, Namespace};
pub use rights::{Rights, rights_of};
pub use umask::with_umask;
