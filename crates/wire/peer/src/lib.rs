//! State that a client keeps about a server that may die, forget the client and come back, as pure data. There are no
//! sockets, threads or clocks here: callers ask what to do next and report what happened.
//!
//! | what | who asks |
//! | --- | --- |
//! | [`StateHolder`]: the session instance that has the client's state | the relay |
//! | [`Boots`]: session instances and boot verifiers that were met | both |
//! | [`Unsynced`], [`LossReports`]: changes that a crash may lose, and who was told | both |
//! | [`ReopenableFile`], [`ReopenableGroup`]: open files that must be opened again | the remote client |
//! | [`Reclaim`]: claims to be made from a server that has forgotten the client | the relay |
//! | [`Notices`]: messages that no caller waits for | both |
//!
//! # Invariants
//!
//! 1. A change that was acknowledged and not synced is counted as lost once, if the boot verifier changes.
//! 2. Each open file that may have lost something is told by one sync, and before that by one write and each close.
//! 3. Of the callers that meet a new session instance, one opens again what is open. The others need not.
//! 4. A file that was closed while it was opened again is closed again.
//! 5. Files with locks are claimed before all others, and each with all its locks or not at all.
//! 6. A grant counts only if the session instance that gave it still has the client's state.
//!
//! The crate `simulation` runs all of this over a network that loses, delays and restarts (docs/adr/0021).

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod boots;
mod holder;
mod notices;
pub mod planted;
mod reclaim;
mod reopenable;
mod unsynced;

pub use boots::Boots;
pub use holder::StateHolder;
pub use notices::{NextNotice, Notices};
pub use reclaim::{ClaimAnswer, LockedClaims, LostClaim, Reclaim, ReclaimStep};
pub use reopenable::{OpenVersion, ReopenEnd, ReopenableFile, ReopenableGroup};
pub use unsynced::{LossReports, TellWith, Unsynced};
