//! Room kept for the commits that free room, where it cannot be taken away: in the journal itself.
//!
//! Programs may fill a burst buffer to its last block. What makes room again, an eviction or a stage-out, has to say so in the catalogue.
//! So blocks for some thousand commits are always allocated behind the end of the newest journal. While they cannot be allocated anew,
//! commits that take room are refused by [`Catalogue::has_room`](crate::Catalogue::has_room), and the others use what is left. A
//! journal that is opened again may lose its blocks and gets new ones then. An orderly end gives them back.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::journal;
use crate::limits::{KEPT_BYTES, KEPT_SHARE_MAX};

/// Blocks behind the end of the newest journal.
pub(super) struct Room {
    database: PathBuf,
    /// Somebody has asked for them: who only looks into a catalogue takes none.
    wanted: AtomicBool,
    /// Bytes that are known to be left of them.
    left: AtomicU64,
    /// The file system can keep none (NFS), so nothing is known.
    unknown: AtomicBool,
}

impl Room {
    pub(super) fn new(database: &Path) -> Room {
        let (wanted, left, unknown) = Default::default();
        Room { database: database.to_owned(), wanted, left, unknown }
    }

    /// Notes that a commit of about so many bytes was written.
    pub(super) fn used(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if self.wanted.load(Ordering::Relaxed) && !self.is_kept() {
            self.keep();
        }
    }

    /// Whether enough is kept, or could be allocated now. From the first time on it is.
    pub(super) fn has_some(&self) -> bool {
        self.wanted.store(true, Ordering::Relaxed);
        self.is_kept() || self.keep()
    }

    fn is_kept(&self) -> bool {
        self.unknown.load(Ordering::Relaxed) || self.left.load(Ordering::Relaxed) >= KEPT_BYTES / 2
    }

    /// Allocates them; a part where there is not enough for all. Whether that is enough.
    fn keep(&self) -> bool {
        match allocate(&self.database) {
            Ok(bytes) => self.left.store(bytes, Ordering::Relaxed),
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.unknown.store(true, Ordering::Relaxed),
            // What else is wrong, such as a file system that takes no writes, is told by the next commit.
            Err(_) => return true,
        }
        self.is_kept()
    }
}

/// Allocates blocks behind the end of the newest journal, as many as can be had, and returns their bytes.
fn allocate(database: &Path) -> Result<u64, Errno> {
    let newest = journal::journals(database).map_err(errno)?.pop().ok_or(Errno::NOENT)?;
    let journal = OpenOptions::new().write(true).open(newest.1).map_err(errno)?;
    // fjall begins a journal with a hole of 64 MiB, and fills it from its start.
    let end = match seek(&journal, SeekFrom::Hole(0)) {
        Ok(end) => end,
        Err(Errno::NXIO) => 0,
        Err(error) => return Err(error),
    };
    let mut kept = Err(Errno::NOSPC);
    for share in 0..=KEPT_SHARE_MAX {
        let bytes = KEPT_BYTES >> share;
        // The smaller ones leave as much to the rest of a start.
        if share > 0 && free(database).is_some_and(|free| free < 2 * bytes) {
            continue;
        }
        kept = fallocate(&journal, FallocateFlags::KEEP_SIZE, end, bytes).map(|()| bytes);
        if !matches!(kept, Err(Errno::NOSPC | Errno::DQUOT)) {
            break;
        }
    }
    kept
}

/// Gives the blocks back. Nobody has the database open. A failure leaves them there.
pub(super) fn give_back(database: &Path) -> io::Result<()> {
    let Some((_, newest)) = journal::journals(database)?.pop() else { return Ok(()) };
    let journal = OpenOptions::new().write(true).open(newest)?;
    let len = journal.metadata()?.len();
    let end = seek(&journal, SeekFrom::Hole(0)).unwrap_or(len);
    if end < len {
        fallocate(&journal, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, end, len - end)?;
    }
    // Also those behind the end of the file.
    journal.set_len(len)
}

/// Bytes that may still be written in the file system.
pub(super) fn free(database: &Path) -> Option<u64> {
    let now = rustix::fs::statvfs(database).ok()?;
    Some(now.f_bavail.saturating_mul(now.f_frsize))
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
