//! Accounting of the process's descriptors: limits on open files, and a reserve for everything else.
//!
//! Each open file costs one descriptor as long as it is open. All other descriptors are opened when needed. They are
//! cached only while there are plenty ([`spare`]). The kernel assigns the lowest free number. A number as high as
//! [`is_last`] says therefore means that all lower ones are in use.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::limits::{
    DESCRIPTORS_CREATED, DESCRIPTORS_LAST, DESCRIPTORS_OWN, DESCRIPTORS_RESERVE, DESCRIPTORS_UNLIMITED,
};

/// The party that a file is open for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DescriptorOwner {
    /// A user of this machine, by user id.
    User(u32),
    /// Another machine, by node number.
    Node(u64),
}

/// Descriptor counts of open files, in total and for each owner.
struct Shares {
    limit: u64,
    all: AtomicU64,
    each: Mutex<HashMap<DescriptorOwner, u64>>,
}

static SHARES: LazyLock<Shares> = LazyLock::new(|| Shares::of(limit_of_process()));

fn limit_of_process() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_UNLIMITED).min(DESCRIPTORS_UNLIMITED)
}

/// Returns the process's descriptor limit, read when this module is first used.
pub fn limit() -> u64 {
    SHARES.limit
}

/// Returns the number of descriptors that open files hold now.
pub fn of_open_files() -> u64 {
    SHARES.all.load(Ordering::Relaxed)
}

/// Returns the number of descriptors available for uses other than open files. These are entries that the kernel has
/// looked up, batches of a stage-out, and files that wait for a stage-out.
pub fn spare() -> u64 {
    let own = DESCRIPTORS_OWN + share(limit(), DESCRIPTORS_CREATED);
    limit().saturating_sub(of_open_files() + own)
}

/// Returns whether a descriptor that a creation gave may be kept, because plenty are free.
pub(crate) fn may_keep_created(fd: impl AsFd) -> bool {
    number(fd) < share(limit(), DESCRIPTORS_CREATED)
}

/// Returns whether a descriptor is one of the last, which are reserved for requests that end soon.
pub fn is_last(fd: impl AsFd) -> bool {
    number(fd) >= share(limit(), DESCRIPTORS_LAST)
}

/// Returns whether only the last descriptors are free, or none.
pub fn are_scarce() -> bool {
    // The number of a new descriptor is the lowest free one.
    rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_or(true, is_last)
}

fn number(fd: impl AsFd) -> u64 {
    u64::try_from(fd.as_fd().as_raw_fd()).unwrap_or(0)
}

fn share(limit: u64, (part, of): (u64, u64)) -> u64 {
    limit / of * part + limit % of * part / of
}

/// One open file charged to an owner; the charge ends on drop.
#[derive(Debug)]
pub struct Charge {
    shares: &'static Shares,
    owner: DescriptorOwner,
    descriptors: u64,
}

impl Charge {
    /// Charges an open file to `owner`.
    ///
    /// Errors: `ENFILE` if no descriptor is left for open files. Also if descriptors are scarce and the owner already
    /// has an equal share.
    pub fn take(owner: DescriptorOwner) -> Result<Charge, Errno> {
        SHARES.take(owner)
    }

    /// Charges `descriptors` more for the same open file. Never refused, because these descriptors are already open.
    pub fn grow(&mut self, descriptors: u64) {
        self.descriptors += descriptors;
        self.shares.all.fetch_add(descriptors, Ordering::Relaxed);
        *self.shares.each.lock().entry(self.owner).or_default() += descriptors;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shares.all.fetch_sub(self.descriptors, Ordering::Relaxed);
        let mut each = self.shares.each.lock();
        if let Some(count) = each.get_mut(&self.owner) {
            *count -= self.descriptors;
            if *count == 0 {
                each.remove(&self.owner);
            }
        }
    }
}

impl std::fmt::Debug for Shares {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} of {} descriptors", self.all.load(Ordering::Relaxed), self.limit)
    }
}

impl Shares {
    fn of(limit: u64) -> Shares {
        Shares { limit, all: AtomicU64::new(0), each: Mutex::default() }
    }

    fn take(&'static self, owner: DescriptorOwner) -> Result<Charge, Errno> {
        let mut each = self.each.lock();
        let (all, own) = (self.all.load(Ordering::Relaxed), each.get(&owner).copied().unwrap_or(0));
        let reserve = DESCRIPTORS_OWN + share(self.limit, DESCRIPTORS_RESERVE);
        let is_one_too_many = all + reserve >= self.limit;
        // While there are plenty, no owner is limited.
        let is_contended = all + 2 * reserve >= self.limit;
        let owners = each.len() as u64 + u64::from(own == 0);
        if is_one_too_many || (is_contended && own >= self.limit / owners.max(2)) {
            return Err(Errno::NFILE);
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        each.insert(owner, own + 1);
        Ok(Charge { shares: self, owner, descriptors: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limit: u64) -> &'static Shares {
        Box::leak(Box::new(Shares::of(limit)))
    }

    fn take_all(shares: &'static Shares, owner: DescriptorOwner) -> Vec<Charge> {
        std::iter::from_fn(|| shares.take(owner).ok()).collect()
    }

    #[test] // S62
    fn who_takes_all_descriptors_leaves_some_for_others_and_for_the_agent() {
        let shares = shares(20_000);
        let greedy = take_all(shares, DescriptorOwner::User(1));
        assert!((18_000..19_000).contains(&greedy.len()), "{}", greedy.len());
        let other = take_all(shares, DescriptorOwner::Node(1));
        assert!(other.len() > 500, "{}", other.len());
        assert!(greedy.len() + other.len() < 19_500);
        drop(greedy);
        assert!(take_all(shares, DescriptorOwner::User(2)).len() > 15_000);
    }

    #[test] // S62
    fn what_is_given_back_is_there_again_to_the_last() {
        let shares = shares(1024);
        let mut charge = shares.take(DescriptorOwner::User(1)).unwrap();
        charge.grow(2);
        assert_eq!(shares.all.load(Ordering::Relaxed), 3);
        drop(charge);
        assert_eq!((shares.all.load(Ordering::Relaxed), shares.each.lock().len()), (0, 0));
    }
}
