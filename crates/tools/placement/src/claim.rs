//! The claim: permission to choose a place in a burst buffer.
//!
//! Two agents that start at once for two directories would both find a fresh burst buffer empty, and both take the
//! first place. So one agent at a time looks and chooses. It locks the burst buffer's directory from the look until
//! the chosen places have superblocks. That is short, since a fresh place has nothing to recover.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::choice;
use crate::failure::Failure;
use crate::limits::{CLAIM_POLL, CLAIM_WAIT};
use crate::place::{self, Place};

/// Permission to choose places, until dropped. A process forked meanwhile shares it and must not drop it.
pub struct Claim(OwnedFd);

impl Claim {
    /// Waits for the claim. Returns `None` where it cannot be had: the directory is missing, its file system has no
    /// locks, or somebody who is no agent of ours holds it. Agents that start at once may then find the place in use,
    /// and report that.
    pub fn wait(burst_buffer: &Path) -> Option<Claim> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(burst_buffer, flags, Mode::empty()).ok()?;
        let deadline = Instant::now() + CLAIM_WAIT;
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Claim(dir)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(CLAIM_POLL),
                Err(_) => return None,
            }
        }
    }
}

/// Returns the places of the directories, and the claim if one of them is new. The claim must be kept until the
/// places are opened.
pub fn places(dirs: &[PathBuf], burst_buffer: &Path) -> Result<(Vec<Place>, Option<Claim>), Failure> {
    let claim = Claim::wait(burst_buffer);
    let places = choice::places(dirs, burst_buffer)?;
    let new = places.iter().any(|place| !place::is_formatted(&place.burst_buffer));
    Ok((places, claim.filter(|_| new)))
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Not the close: a child may have the descriptor too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
