//! Free space of the burst buffer, its distribution, and the ballast: room for the catalogue that programs cannot fill.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use concurrency::Mutex;
use config::Policy;
use rustix::fs::FallocateFlags;

use crate::clock::Clock;
use crate::limits::{HIGH_WATER, LOW_WATER, SPACE_AGE};
use crate::settings::{Space, SpaceProbe};

pub(crate) struct Spaces {
    probe: SpaceProbe,
    clock: Clock,
    last: Mutex<Option<(Duration, Space)>>,
    ballast: PathBuf,
    pub(crate) ballast_bytes: u64,
}

pub(crate) fn statvfs(root: PathBuf) -> SpaceProbe {
    std::sync::Arc::new(move || {
        let found = rustix::fs::statvfs(&root)?;
        Ok(space_of(found.f_blocks, found.f_bavail, found.f_frsize))
    })
}

/// Converts blocks to bytes. A file system that has given out its reserve may count the available blocks below zero,
/// which looks like more than it has.
fn space_of(blocks: u64, available: u64, block: u64) -> Space {
    let available = if available > blocks { 0 } else { available };
    Space { total: blocks.saturating_mul(block), free: available.saturating_mul(block) }
}

impl Spaces {
    pub(crate) fn new(probe: SpaceProbe, clock: Clock, ballast: PathBuf, ballast_bytes: u64) -> Spaces {
        Spaces { probe, clock, last: Mutex::new(None), ballast, ballast_bytes }
    }

    /// Returns the space, at most `SPACE_AGE` old. A file system that does not answer counts as full.
    pub(crate) fn now(&self) -> Space {
        let now = (self.clock)();
        let mut last = self.last.lock();
        match *last {
            Some((then, space)) if now.saturating_sub(then) < SPACE_AGE => space,
            _ => {
                let space = (self.probe)().unwrap_or(Space { total: 0, free: 0 });
                *last = Some((now, space));
                space
            }
        }
    }

    pub(crate) fn forget(&self) {
        *self.last.lock() = None;
    }

    /// Returns whether `bytes` more leave the policy's reserve free. Subtracts them from the cached answer, so that
    /// many opens within `SPACE_AGE` do not all count the same bytes.
    pub(crate) fn admit(&self, bytes: u64, policy: &Policy) -> bool {
        let reserve = self.reserve(policy);
        let space = self.now();
        if space.free < reserve.saturating_add(bytes) {
            return false;
        }
        if let Some((_, space)) = self.last.lock().as_mut() {
            space.free = space.free.saturating_sub(bytes);
        }
        true
    }

    /// Returns whether less than the policy's reserve is free, whatever was promised to opens.
    pub(crate) fn is_scarce(&self, policy: &Policy) -> bool {
        let scarce = || self.now().free < self.reserve(policy);
        scarce() && {
            self.forget();
            scarce()
        }
    }

    /// Returns how many bytes must be freed before `bytes` more are admitted.
    pub(crate) fn lacks(&self, bytes: u64, policy: &Policy) -> u64 {
        self.reserve(policy).saturating_add(bytes).saturating_sub(self.now().free)
    }

    pub(crate) fn reserve(&self, policy: &Policy) -> u64 {
        (self.now().total / 1000).saturating_mul(policy.reserve_thousandths.into())
    }

    /// Returns the bytes to evict now; 0 below the high-water mark.
    pub(crate) fn excess(&self) -> u64 {
        let space = self.now();
        let used = space.total.saturating_sub(space.free);
        if used <= space.total / 1000 * HIGH_WATER { 0 } else { used.saturating_sub(space.total / 1000 * LOW_WATER) }
    }

    /// Deletes the ballast. Returns whether there was one.
    pub(crate) fn drop_ballast(&self) -> bool {
        self.forget();
        std::fs::remove_file(&self.ballast).is_ok()
    }

    /// Makes the ballast again if it takes no more than a quarter of the free space.
    pub(crate) fn make_ballast(&self) -> io::Result<()> {
        if self.ballast_bytes == 0 || self.now().free / 4 < self.ballast_bytes || self.ballast.exists() {
            return Ok(());
        }
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.ballast)?;
        let made = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.ballast_bytes);
        if made.is_err() {
            std::fs::remove_file(&self.ballast)?;
        }
        Ok(made?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test] // S30
    fn what_statfs_counts_below_zero_or_beyond_all_bytes_overflows_nothing() {
        assert_eq!(space_of(1000, (-3_i64) as u64, 4096), Space { total: 4_096_000, free: 0 });
        let endless = space_of(u64::MAX, u64::MAX / 2, 4096);
        assert_eq!(endless, Space { total: u64::MAX, free: u64::MAX });
        let spaces = Spaces::new(Arc::new(move || Ok(endless)), Arc::new(|| Duration::ZERO), PathBuf::new(), u64::MAX);
        for reserve_thousandths in [0, 50, 1000] {
            let policy = Policy { reserve_thousandths, ..Policy::default() };
            assert!(spaces.admit(1 << 20, &policy), "{reserve_thousandths}");
            spaces.forget();
            assert_eq!(spaces.excess(), 0);
        }
    }
}
