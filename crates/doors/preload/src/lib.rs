//! `libforebay_preload.so`, loaded into a program with `LD_PRELOAD`: the door for data calls that must not cost a system
//! call.
//!
//! It takes the place of the C library's functions listed in [`table`] and forwards them. **Today it forwards all of
//! them**: no write of a program travels through a window yet. What is proved so far is that a program cannot tell that the library
//! is there, and what it costs.
//!
//! Invariants:
//!
//! 1. Descriptors are the kernel's own. A call that is not understood goes to the C library unchanged, arguments, result and
//!    `errno`, as a jump: no frame of ours is on the stack, so thread cancellation and signals find what they would find.
//! 2. No function here allocates, locks, starts a thread or uses standard input and output.
//! 3. A panic ends in `abort`, never in the program's frames.
//! 4. Only the functions of the table are exported, and only libc is needed.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod departure;
mod forward;
mod original;
mod table;
