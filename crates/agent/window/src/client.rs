//! The half of the window that lives in programs: what a preload library is built on.
//!
//! It registers the process with the agent ([`Registration`]), says which opens are to have a window, fetches the ring of
//! an open file and appends to it ([`Window`]). Every system call is made directly, never through the C library's
//! wrappers, which a preload library intercepts; appending allocates nothing and makes no system call.
//!
//! What else the user of this module must do is in `docs/window.md`. The short of it: reads, `fsync`, `close`, file
//! positions, everything but the bytes of writes stays with the kernel and the descriptor that it gave.

mod home;
mod registration;
mod window;

pub use home::ForkGuard;
pub use registration::{Announcement, Registration, control, might_answer};
pub use window::Window;
