//! Attributes of a file of the lower directory, which are also shown for it, including the inode number.

use std::os::fd::AsFd;

use fuse_protocol::{Attr, Errno};
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};
use types::Timestamp;

use crate::nodes::Key;

/// A file's attributes, its key in the node table, and its birth time if the lower file system reports one.
pub struct Known {
    pub attr: Attr,
    pub key: Key,
    pub birth: Option<Timestamp>,
}

/// Reads the attributes from the lower file system; an `O_PATH` descriptor is enough.
pub fn of(file: impl AsFd) -> Result<Known, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, mask)?;
    let attr = Attr {
        ino: stat.stx_ino,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
        mode: stat.stx_mode.into(),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        // A Linux device number has 12 + 20 bits, which this packs into the low 32.
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
        blksize: stat.stx_blksize,
    };
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Known { attr, key: (device, stat.stx_ino), birth: has_birth.then(|| time(&stat.stx_btime)) })
}

fn time(at: &StatxTimestamp) -> Timestamp {
    Timestamp { seconds: at.tv_sec, nanos: at.tv_nsec }
}
