//! Reserve of journal blocks for commits that free space in the burst buffer.
//!
//! Programs may fill a burst buffer to its last block. An eviction or a stage-out frees space, but must be recorded in
//! the catalogue first. So blocks for some thousand commits are always allocated behind the end of the newest journal.
//! While these cannot be allocated again, [`Catalogue::has_room`](crate::Catalogue::has_room) refuses commits that take
//! space, and the others use the rest. A journal that is opened again may lose its blocks and then gets new ones. An
//! orderly end gives them back.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::journal;
use crate::limits::{KEPT_BYTES, KEPT_SHARE_MAX};

/// Reserved blocks behind the end of the newest journal.
pub(super) struct Room {
    database: PathBuf,
    /// Whether anybody has asked for the reserve. A program that only reads a catalogue reserves nothing.
    wanted: AtomicBool,
    /// Bytes of the reserve known to be left.
    left: AtomicU64,
    /// Whether the file system cannot reserve blocks (NFS), so that nothing is known.
    unknown: AtomicBool,
}

impl Room {
    pub(super) fn new(database: &Path) -> Room {
        let (wanted, left, unknown) = Default::default();
        Room { database: database.to_owned(), wanted, left, unknown }
    }

    /// Counts a written commit of about `bytes` bytes and refills the reserve if needed.
    pub(super) fn used(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if self.wanted.load(Ordering::Relaxed) && !self.is_kept() {
            self.keep();
        }
    }

    /// Returns whether the reserve is large enough, or could be refilled now. The first call turns the reserve on.
    pub(super) fn has_some(&self) -> bool {
        self.wanted.store(true, Ordering::Relaxed);
        self.is_kept() || self.keep()
    }

    fn is_kept(&self) -> bool {
        self.unknown.load(Ordering::Relaxed) || self.left.load(Ordering::Relaxed) >= KEPT_BYTES / 2
    }

    /// Allocates the reserve, or a part of it if there is not enough space. Returns whether it is large enough.
    fn keep(&self) -> bool {
        match allocate(&self.database) {
            Ok(bytes) => self.left.store(bytes, Ordering::Relaxed),
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.unknown.store(true, Ordering::Relaxed),
            // Other errors, such as a read-only file system, are reported by the next commit.
            Err(_) => return true,
        }
        self.is_kept()
    }
}

/// Allocates as many blocks as possible behind the end of the newest journal. Returns their bytes.
fn allocate(database: &Path) -> Result<u64, Errno> {
    let newest = journal::journals(database).map_err(errno)?.pop().ok_or(Errno::NOENT)?;
    let journal = OpenOptions::new().write(true).open(newest.1).map_err(errno)?;
    // fjall begins a journal with a hole of 64 MiB and fills it from its start.
    let end = match seek(&journal, SeekFrom::Hole(0)) {
        Ok(end) => end,
        Err(Errno::NXIO) => 0,
        Err(error) => return Err(error),
    };
    let mut kept = Err(Errno::NOSPC);
    for share in 0..=KEPT_SHARE_MAX {
        let bytes = KEPT_BYTES >> share;
        // A smaller share leaves at least as much free space to the rest of a start.
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

/// Frees the reserved blocks. Nobody may have the database open. A failure leaves them allocated.
pub(super) fn give_back(database: &Path) -> io::Result<()> {
    let Some((_, newest)) = journal::journals(database)?.pop() else { return Ok(()) };
    let journal = OpenOptions::new().write(true).open(newest)?;
    let len = journal.metadata()?.len();
    let end = seek(&journal, SeekFrom::Hole(0)).unwrap_or(len);
    if end < len {
        fallocate(&journal, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, end, len - end)?;
    }
    // Frees also the blocks behind the end of the file.
    journal.set_len(len)
}

/// Returns the bytes that may still be written in the file system; `None` if that cannot be asked.
pub(super) fn free(database: &Path) -> Option<u64> {
    let now = rustix::fs::statvfs(database).ok()?;
    Some(now.f_bavail.saturating_mul(now.f_frsize))
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
