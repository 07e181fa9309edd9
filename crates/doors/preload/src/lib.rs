//! `libforebay_preload.so`, loaded into a program with `LD_PRELOAD`: the door for data calls that must not cost a system
//! call.
//!
//! It takes the place of the C library's functions listed in [`table`]. Writes to files that have a window (`docs/window.md`) are
//! appended to it; everything else, reads included, is the kernel's, on the kernel's own descriptor, and the agent applies what
//! windows hold before it answers.
//! Without an agent that offers windows (`FOREBAY_WINDOW_SOCKET`), all is forwarded.
//!
//! Invariants:
//!
//! 1. Descriptors are the kernel's own. A call that is not understood goes to the C library unchanged, arguments, result and
//!    `errno`, as a jump: no frame of ours is on the stack, so thread cancellation and signals find what they would find.
//! 2. No read or write allocates, locks or makes a system call beyond moving the file's position; asking for a window does, with
//!    signals blocked and memory that is not the program's. There is no thread. Nobody waits for a thread that a forked child has
//!    not: what one may be in the midst of is wiped there ([`own`]).
//! 3. A panic ends in `abort`, never in the program's frames.
//! 4. Only the functions of the table are exported, and only libc is needed, in a version that is as old as can be.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod advice;
mod agent;
mod allocator;
mod asynchronous;
mod data;
mod departure;
mod descriptors;
mod forward;
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
