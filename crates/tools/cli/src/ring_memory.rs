//! The node's memory in which rings lie for which no directory is named.

use std::error::Error;
use std::path::{Path, PathBuf};

use agent::own_tmpfs::{self, Unfit};
use rustix::process::geteuid;

use crate::exit::reason;
use crate::leaving;
use crate::privilege;

/// What every node has.
pub const SHARED: &str = "/dev/shm";

/// Where rings would lie.
#[derive(Debug)]
pub enum RingMemory {
    /// Among huge pages.
    Own {
        /// It is there already; else the first who serves windows mounts it.
        mounted: bool,
    },
    /// In `/dev/shm`.
    Shared {
        /// In words: why not there.
        why: String,
    },
}

impl RingMemory {
    /// Finds out, and changes nothing.
    pub fn look() -> RingMemory {
        if !may_mount() {
            return RingMemory::Shared { why: "only root of the machine mounts a tmpfs for them".to_owned() };
        }
        own_tmpfs::look().map_or_else(|unfit| shared(&unfit), |mounted| RingMemory::Own { mounted })
    }

    /// The same, and has it mounted where it can be. Call it among the mounts in which others will look for rings.
    pub fn provide() -> RingMemory {
        match RingMemory::look() {
            RingMemory::Own { .. } => {
                own_tmpfs::provide().map_or_else(|unfit| shared(&unfit), |_| RingMemory::Own { mounted: true })
            }
            shared => shared,
        }
    }

    /// Whether what a killed agent leaves in it is there for the next one, also when the job, the container or the login that it was
    /// in has ended; else why not, in words.
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

    /// The directory.
    pub fn dir(&self) -> PathBuf {
        let dir = match self {
            RingMemory::Own { .. } => own_tmpfs::OWN_TMPFS,
            RingMemory::Shared { .. } => SHARED,
        };
        Path::new(dir).to_owned()
    }
}

fn may_mount() -> bool {
    geteuid().is_root() && privilege::administrates_machine()
}

fn shared(unfit: &Unfit) -> RingMemory {
    let cause = unfit.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let cause = cause.map(|error| format!(": {}", reason(error))).unwrap_or_default();
    RingMemory::Shared { why: format!("{unfit}{cause}") }
}
