//! The mark of a replica whose open was refused (`withdrawal.rs`).

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, Stat};
use types::Version;

use super::replica::{How, Replicas};

/// The permissions of a void replica: the sticky bit alone, which means nothing on a file.
const VOID: Mode = Mode::SVTX;

/// Returns whether a replica is that of an open that was refused.
pub(crate) fn is_void(replica: &Stat) -> bool {
    replica.st_size == 0 && replica.st_mode & 0o7777 == VOID.as_raw_mode()
}

impl Replicas {
    /// Marks an empty replica as void, if nobody was told of it: its record, if there is one, counts for nothing.
    pub(crate) fn make_void(&self, version: Version) -> io::Result<()> {
        let replica = self.open_as(version, How::Read)?;
        rustix::fs::fchmod(&replica, VOID)?;
        Replicas::remove_identity_attribute(replica.as_fd());
        // A crash of the machine may leave the record and lose this mark.
        Ok(rustix::fs::fsync(&replica)?)
    }
}
