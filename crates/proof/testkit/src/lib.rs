//! Shared test tools: a private mount namespace, a bounded wait, processes that die with their test, and scratch trees.
//! A dev-dependency only. Every function panics with a sentence when the test cannot go on.
//!
//! ```no_run
//! use std::time::Duration;
//! use testkit::{TempTree, in_private_namespace, wait_until};
//!
//! // In a test: the body runs in a child process whose mounts nobody else sees and which is killed when it hangs.
//! in_private_namespace(|| {
//!     let tree = TempTree::new();
//!     let slow = tree.mount_tmpfs("burst-buffer", 16 << 20);
//!     std::fs::write(slow.join("a"), b"bytes").unwrap();
//!     wait_until("the file is there", Duration::from_secs(5), || slow.join("a").exists());
//! });
//! ```

mod connections;
mod disk;
mod kernel;
mod namespace;
mod process;
mod random;
mod tree;
mod wait;

pub use connections::abort_connections_of;
pub use disk::Disk;
pub use kernel::kernel_has;
pub use namespace::{in_private_namespace, in_private_namespace_within};
pub use process::{ProcessGuard, exported};
pub use random::Random;
pub use tree::TempTree;
pub use wait::{PATIENCE, wait_for, wait_until};
