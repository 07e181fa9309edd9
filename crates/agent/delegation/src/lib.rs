//! Delegated directories: a tree that one agent alone holds is answered from an index in memory, and each change is one record
//! of a log in the burst buffer.
//!
//! The log is a sequence of transactions, each a set of whole states of nodes. The latest state of a node counts. So opposites
//! annihilate, and replay and cleaning need no order of operations.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod acl;
mod apply;
mod callers;
mod delegated;
pub mod fault;
mod holders;
pub mod layout;
pub mod limits;
pub mod log;
mod replay;
mod rules;
mod short_name;
mod state;
mod tree;

pub use apply::{ApplyProgress, ApplyReport, ApplyRequest, Contents, StoreTree, StuckNode};
pub use delegated::{
    Applied, Cleaning, DelegatedTree, DelegationSettings, FilesBelow, FoundBelow, InodeNumbers, NotedContent,
    OpeningReport, node_of_key,
};
pub use replay::{LoggedNode, NodeStates, Pruned, replay};
pub use short_name::ShortName;
pub use state::{
    BelowCopy, BelowState, Credentials, DataPlace, LogRecord, Moment, NodeKind, NodeName, NodeNumber, NodeState,
    Transaction, Xattrs,
};
pub use tree::{BrokenTree, PendingNode, Tree};
