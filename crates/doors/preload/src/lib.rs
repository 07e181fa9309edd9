//! `libforebay_preload.so`, loaded into a program with `LD_PRELOAD`: handles data calls that must not cost a system
//! call.
//!
//! The library replaces the C library's functions listed in [`table`]. Writes to files that have a window
//! (`docs/window.md`) are appended to it. All other calls, including reads, go to the kernel on the kernel's own
//! descriptor. The agent applies the records of windows before it answers the kernel. Without an agent that offers
//! windows (`FOREBAY_WINDOW_SOCKET`), all calls are forwarded.
//!
//! Invariants:
//!
//! 1. Descriptors are the kernel's own. A call that is not understood goes to the C library unchanged: arguments,
//!    result and `errno`. It is forwarded as a jump, so that no frame of ours is on the stack for thread cancellation
//!    and signals.
//! 2. No read or write allocates, locks or makes a system call beyond moving the file's position. Asking for a window
//!    does so, with signals blocked and with memory that is not the program's. The library has no thread. A forked
//!    child waits for no thread that it does not have: state in use by such a thread is wiped there ([`own`]).
//! 3. A panic ends in `abort`, never in the program's frames.
//! 4. Only the functions of the table are exported. Only libc is needed, in as old a version as possible.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod advice;
mod agent;
mod allocator;
mod asynchronous;
mod data;
mod departure;
mod descriptors;
mod environment;
mod forward;
mod liburing;
mod lifetime;
mod limits;
mod original;
mod own;
mod sharing;
mod signals;
mod stdio;
mod table;
mod unfinished;
mod unwinder;
