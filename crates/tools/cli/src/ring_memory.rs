//! Memory of the node for rings when no directory is named.

use std::error::Error;
use std::path::{Path, PathBuf};

use agent::own_tmpfs::{self, Unfit};
use rustix::process::geteuid;

use crate::exit::reason;
use crate::leaving;
use crate::privilege;

/// Memory file system that every node has.
pub const SHARED: &str = "/dev/shm";

#[derive(Debug)]
pub enum RingMemory {
    /// A tmpfs of our own with huge pages.
    Own {
        /// Whether the tmpfs is mounted already. If not, the first process that serves windows mounts it.
        mounted: bool,
    },
    Shared {
        /// Reason for not using a tmpfs of our own, in words.
        why: String,
    },
}

impl RingMemory {
    /// Finds the memory without changing anything.
    pub fn look() -> RingMemory {
        if !(geteuid().is_root() && privilege::administrates_machine()) {
            return RingMemory::Shared { why: "only root of the machine mounts a tmpfs for them".to_owned() };
        }
        own_tmpfs::look().map_or_else(|unfit| shared(&unfit), |mounted| RingMemory::Own { mounted })
    }

    /// Finds the memory, and mounts the tmpfs if that is possible. Must be called in the mount namespace in which
    /// others will look for rings.
    pub fn provide() -> RingMemory {
        match RingMemory::look() {
            RingMemory::Own { .. } => {
                own_tmpfs::provide().map_or_else(|unfit| shared(&unfit), |_| RingMemory::Own { mounted: true })
            }
            shared => shared,
        }
    }

    /// Returns whether rings that a killed agent leaves there exist for the next agent, even after the job, container
    /// or login has ended. Errors: the reason why not.
    pub fn lasts(&self) -> Result<(), String> {
        if matches!(self, RingMemory::Own { .. }) {
            return Ok(());
        }
        if !own_tmpfs::sees_mounts_of_the_machine() {
            return Err(format!("{SHARED} of a container may end with it"));
        }
        if let Some(job) = leaving::job() {
            return Err(format!("{SHARED} may be cleared when this job ends ({job})"));
        }
        if leaving::is_cleared_at_logout(geteuid().as_raw(), Path::new("/")) {
            return Err(format!("{SHARED} is cleared when you log out (RemoveIPC of systemd's logind)"));
        }
        Ok(())
    }

    pub fn dir(&self) -> PathBuf {
        let dir = match self {
            RingMemory::Own { .. } => own_tmpfs::OWN_TMPFS,
            RingMemory::Shared { .. } => SHARED,
        };
        Path::new(dir).to_owned()
    }
}

fn shared(unfit: &Unfit) -> RingMemory {
    let cause = unfit.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let cause = cause.map(|error| format!(": {}", reason(error))).unwrap_or_default();
    RingMemory::Shared { why: format!("{unfit}{cause}") }
}
