//! Mounts of the burst buffer that note reads.
//!
//! The mount through which a file was opened decides whether the kernel moves its access time. So replicas whose reads
//! are to be noted are opened through a mount of ours that follows the policy, whatever the burst buffer's own mount
//! does. It is a clone of that one, and appears in no namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use global_store::clones;
use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::mount::{OpenTreeFlags, open_tree};
use types::Timestamp;

use crate::clock::wall;

/// The mounts, made when they are first needed.
#[derive(Default)]
pub(crate) struct Noting {
    relative: OnceLock<Option<OwnedFd>>,
    strict: OnceLock<Option<OwnedFd>>,
}

impl Noting {
    /// Returns `buffer` through such a mount, or `None` if reads cannot be noted.
    pub(crate) fn of(&self, buffer: BorrowedFd<'_>, strict: bool) -> Option<BorrowedFd<'_>> {
        let made = if strict { &self.strict } else { &self.relative };
        let make = || {
            // Without the privilege to mount, the burst buffer's own mount may suffice.
            let clone = clone_of(buffer, strict).ok();
            // If the test of a clone fails, the clone is believed.
            let believed = clone.is_some();
            let found = clone.or_else(|| rustix::io::fcntl_dupfd_cloexec(buffer, 0).ok())?;
            notes(found.as_fd(), strict).unwrap_or(believed).then_some(found)
        };
        made.get_or_init(make).as_ref().map(AsFd::as_fd)
    }
}

fn clone_of(buffer: BorrowedFd<'_>, strict: bool) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = open_tree(buffer, "", flags)?;
    let noted = if strict { libc::MOUNT_ATTR_STRICTATIME } else { libc::MOUNT_ATTR_RELATIME };
    clones::make_own(clone.as_fd(), libc::MOUNT_ATTR__ATIME, noted)?;
    Ok(clone)
}

/// Tests by a read (of an empty file) that `relatime` would note, or by one that only `strictatime` notes. Returns
/// whether the mount notes reads.
fn notes(dir: BorrowedFd<'_>, strict: bool) -> io::Result<bool> {
    let file = rustix::fs::openat(dir, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    let before = Timestamp { seconds: if strict { wall().seconds + 3600 } else { 0 }, nanos: 0 };
    rustix::fs::futimens(&file, &to_atime(before))?;
    rustix::io::pread(&file, &mut [0_u8], 0)?;
    Ok(atime_of(&rustix::fs::fstat(&file)?) != before)
}

pub(crate) fn atime_of(stat: &Stat) -> Timestamp {
    Timestamp { seconds: stat.st_atime, nanos: stat.st_atime_nsec as u32 }
}

/// Returns arguments that set only the access time.
pub(crate) fn to_atime(atime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: atime.seconds, tv_nsec: atime.nanos.into() },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
    }
}
