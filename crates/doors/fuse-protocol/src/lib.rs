//! Thin FUSE protocol layer of Forebay: the kernel's structures, the session, notifications, passthrough, the mount, and
//! the state that a kernel has of it.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod abi;
mod counts;
mod decode;
mod dir_sink;
mod direct;
mod dispatch;
mod dying;
mod envelope;
mod filesystem;
mod follow;
mod in_use;
mod init;
mod interrupts;
mod kernel_state;
pub mod limits;
pub mod mount;
mod notify;
mod pages;
mod pool;
mod raw;
mod reply;
mod request;
mod session;
mod shift;
mod transport;
mod types;
pub mod view;

pub use abi::{Opcode, fopen, init_flags};
pub use counts::RequestCounts;
pub use dir_sink::DirSink;
pub use direct::{Direct, Events};
pub use dying::{is_dying, was_killed};
pub use envelope::{Envelope, Given, drops_pages, forgets, interrupt, part_of_write, release, set_lock, written};
pub use filesystem::Filesystem;
pub use in_use::InUse;
pub use init::{InitReply, KernelConfig};
pub use kernel_state::{AboutFile, Claims, FileReclaim, HeldFile, KernelState, LockChange, LockOutcome, LockedFile};
pub use notify::{Notifier, name_to_forget};
pub use pages::Pages;
pub use raw::Raw;
pub use request::{Parked, Request};
pub use session::{Session, SessionEnd, ThreadCounts};
pub use transport::{Device, Transport};
pub use types::*;
