//! Delegated trees of one accelerated directory: which directories are delegated, where their files' data is, and when the
//! global store gets them.
//!
//! [`Trees`] owns the trees. [`TreesNamespace`] and [`TreesData`] stand between an agent and the namespace and data store
//! below. They answer for what is in a tree and pass on everything else.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod ahead;
mod applying;
mod attributes;
mod background;
mod beginning;
mod change_times;
mod data;
pub mod fault;
mod files;
mod holder;
mod inside;
mod just_made;
mod lease;
mod left;
mod left_files;
pub mod limits;
mod mark;
mod names;
mod noted_waiting;
mod open_tree;
mod opening;
mod probe;
mod reading;
mod record;
mod registry;
mod resolve;
mod room;
mod saving;
mod telling;
mod unopened;
mod waiting;
mod window_store;

pub use data::TreesData;
pub use files::{FilesReport, FilesUsage, PackReport, TreeFiles};
pub use holder::Holder;
pub use left::{LeftTree, left};
pub use names::TreesNamespace;
pub use registry::{Trees, TreesSettings};
pub use unopened::is_of_tree;
