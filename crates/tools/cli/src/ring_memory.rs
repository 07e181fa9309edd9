//! The node's memory in which rings lie for which no directory is named.

use std::error::Error;
use std::path::{Path, PathBuf};

use agent::own_tmpfs::{self, Unfit};
use rustix::process::geteuid;

use crate::exit::reason;
use crate::privilege;

/// What every node has.
const SHARED: &str = "/dev/shm";
/// What batch systems tell a job: Slurm, PBS, LSF, Flux, OAR, Cobalt, Fujitsu's, Grid Engine.
const JOB: [&str; 8] =
    ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID", "COBALT_JOBID", "PJM_JOBID", "JOB_ID"];

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

    /// Whether what a killed agent leaves in it is there for the next one, also when the job or the container that it was in has
    /// ended; else why not, in words.
    pub fn lasts(&self) -> Result<(), String> {
        let job = JOB.iter().find(|name| std::env::var_os(name).is_some());
        match (self, job) {
            (RingMemory::Own { .. }, _) => Ok(()),
            _ if !own_tmpfs::sees_mounts_of_the_machine() => Err(format!("{SHARED} of a container may end with it")),
            (_, Some(job)) => Err(format!("{SHARED} may be cleared when this job ends ({job} is set)")),
            (_, None) => Ok(()),
        }
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
