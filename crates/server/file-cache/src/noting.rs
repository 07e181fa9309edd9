//! Mounts of the burst buffer that note reads.
//!
//! Whether the kernel moves a file's time of last access is up to the mount through which the file was opened. So
//! replicas whose reads are to be noted are opened through a mount of ours that does as the policy says, whatever the
//! burst buffer's own does: a clone of that, which shows in no namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use global_store::clones;
use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::mount::{OpenTreeFlags, open_tree};
use types::Timestamp;

use crate::clock::wall;

/// The mounts, made when they are first wanted.
#[derive(Default)]
pub(crate) struct Noting {
    relative: OnceLock<Option<OwnedFd>>,
    strict: OnceLock<Option<OwnedFd>>,
}

impl Noting {
    /// `buffer` by another mount. `None`: reads cannot be noted so.
    pub(crate) fn of(&self, buffer: BorrowedFd<'_>, strict: bool) -> Option<BorrowedFd<'_>> {
        let made = if strict { &self.strict } else { &self.relative };
        let make = || {
            // Without the privilege to mount the burst buffer's own mount may do.
            let clone = clone_of(buffer, strict).ok();
            // What cannot be found out of a mount that is to note reads is believed.
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

/// Finds out, by a read (there need be nothing to read) that `relatime` would note, or by one that `strictatime` alone
/// does.
fn notes(dir: BorrowedFd<'_>, strict: bool) -> io::Result<bool> {
    let file = rustix::fs::openat(dir, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    let before = Timestamp { seconds: if strict { wall().seconds + 3600 } else { 0 }, nanos: 0 };
    rustix::fs::futimens(&file, &to_atime(before))?;
    rustix::io::pread(&file, &mut [0_u8], 0)?;
    Ok(atime_of(&rustix::fs::fstat(&file)?) != before)
}

/// Last access.
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
