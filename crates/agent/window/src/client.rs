//! Part of the window that runs in programs: the base of a preload library.
//!
//! [`Registration`] registers the process with the agent, announces opens that may have a window, and fetches the ring
//! of an open file. [`Window`] appends to that ring. All system calls are made directly, never through the C library's
//! wrappers, which a preload library intercepts. Appending allocates nothing and makes no system call.
//!
//! `docs/window.md` lists the further duties of a user of this module. In short: all but the bytes of writes stays with
//! the kernel and its descriptor, such as reads, `fsync`, `close` and file positions.

mod fork_guard;
mod registration;
mod window;

pub use fork_guard::ForkGuard;
pub use registration::{Announcement, Registration, control, might_answer};
pub use window::Window;
