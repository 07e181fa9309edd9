//! The seam between programs' files and the place of their data.
//!
//! An agent has a [`DataStore`] beneath it, and an open file has an [`OpenData`]. The file cache implements both over
//! a burst buffer of this machine, the remote client over a server's. A server serves any data store, so that another
//! layer can stand between the two.
//!
//! What only some stores can do is asked for by type: [`DataStore::extensions`] and [`OpenData::passthrough`].

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod command;
mod file;
mod interruption;
mod open;
mod status;
mod store;

pub use command::{Cleaned, CommandOutcome, DrainProgress, Keep, ORPHANED, StoreCommand, Stuck, Which};
pub use file::{FileChange, FileState, Overlay, Residency};
pub use interruption::{Interruption, is_interrupted, patiently, set_interruption};
pub use open::{
    AcknowledgedBytes, DataVersion, Fared, FindMissing, Foresee, InPlace, InPlaceAs, OpenData, OpenHow, Passthrough,
    ReadNotice, Removed, SeekFor, StartWriteBack, SyncScope, WindowFile, WindowTarget, WriteResult, WriteWhere,
    read_ahead_bytes,
};
pub use status::{ServerState, Status, StatusScope, StoreStatus, StuckStatus};
pub use store::{
    ChangeObserver, DataStore, Extensions, LeftFile, LocalIndex, ReadyObserver, RemovalObserver, StoreObserver,
    WindowStore, WindowUsage,
};

pub use global_store::Anchor;
pub use types::NewTime;
