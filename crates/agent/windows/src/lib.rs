//! Write windows: permissions, the rings of each file, and applying their records.
//!
//! The behaviour of programs is described in `docs/window.md`. The rule here is short: **an answer about a file that
//! has windows is given after everything acknowledged before is in the burst buffer** ([`Windows::apply`]). Exception:
//! a sync where windows survive a crash themselves ([`Windows::keeps`]). Whoever could access the file past the agent
//! ends the windows first ([`Windows::end`]). So no other part of the agent needs to know about rings.
//!
//! Lock order: a file's `drain`, the turn of the files, the table. `drain` is held during writes to the burst buffer.
//! Behind a server, these may block. Then a wait for `drain` ends no later than a wait for the server itself
//! ([`Windows::rings`]), and ending the windows of a closed file never waits.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod budget;
mod counters;
mod damage;
mod directory;
mod drain;
pub mod fault;
mod file;
mod grant;
mod leftover;
pub mod limits;
mod out_of_sight;
pub mod own_tmpfs;
mod place;
mod processes;
mod replay;
mod right;
mod service;
mod session;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod waiting;

pub use counters::WindowStatus;
pub use directory::{fits as fits_windows, provide as provide_for_windows};
pub use drain::Pending;
pub use leftover::{LeftWindows, left_windows};
pub use out_of_sight::{OutOfSight, forget_windows, has_windows_in};
pub use processes::Announced;
pub use replay::{ReplayTarget, Replayed, replay};
pub use right::{WindowRight, WindowRules};
pub use service::WindowService;
pub use table::{CrashDurability, WindowSettings, Windows};
pub use waiting::{has_windows_of, windows_left};
