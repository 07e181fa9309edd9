//! Allocation (`fallocate`), also of more than the burst buffer has room for.

use std::io;
use std::os::fd::OwnedFd;
use types::HasErrno;

use global_store::StoreFile;
use global_store::calls::still_wanted;
use rustix::fs::FallocateFlags;
use types::ByteRange;

use super::route::Route;
use super::{FileHandle, is_too_large};
use crate::errors::{is_full, os};

/// Modes that leave every byte of the content unchanged.
pub(super) const KEEPS: u32 = (libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_UNSHARE_RANGE) as u32;
/// Modes that move the bytes behind the range.
pub(super) const MOVES: u32 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u32;

/// Outcome of one try.
enum Tried {
    Done,
    /// The burst buffer has no room for the range; nothing was done.
    Full(Option<i32>),
}

impl FileHandle {
    /// Allocates (`fallocate`); `mode` holds the `FALLOC_FL_*` bits. If the burst buffer has no room, the file moves
    /// to the global store. A file that the kernel writes without the agent stays, and gets its new length with a hole
    /// if the global store has room for it. Errors: `EOPNOTSUPP` if the route does not support the mode; a file that
    /// goes through only grows and gets holes.
    pub(super) fn allocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        let Tried::Full(code) = self.try_allocate(mode, offset, len)? else { return Ok(()) };
        if self.inner.spill(&self.file)?
            && let Tried::Done = self.try_allocate(mode, offset, len)?
        {
            return Ok(());
        }
        let fits_below = self.inner.store.free_bytes().is_some_and(|free| len <= free);
        if mode & !KEEPS != 0 || !fits_below || code == Some(libc::EFBIG) {
            return os(code.unwrap_or(libc::ENOSPC));
        }
        if mode & KEEPS == 0 { self.lengthen(offset.saturating_add(len)) } else { Ok(()) }
    }

    /// Extends the file to `end`, with a hole, if it is shorter.
    fn lengthen(&self, end: u64) -> io::Result<()> {
        let _io = self.file.io.read();
        let Route::Replica(fd) = self.route(true)? else { return os(libc::EIO) };
        let size = rustix::fs::fstat(&fd)?.st_size as u64;
        if size < end {
            rustix::fs::ftruncate(&fd, end)?;
            self.changed_now();
            let mut live = self.file.live.lock();
            live.changes += 1;
            live.copies.untouched.touch(size);
        }
        Ok(())
    }

    fn try_allocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<Tried> {
        let _io = self.file.io.read();
        self.strays();
        let to = self.route(true)?;
        still_wanted()?;
        match to {
            Route::Replica(fd) => self.allocate_here(&fd, mode, offset, len),
            Route::Global(global) => allocate_below(&*global, mode, offset, len).map(|()| Tried::Done),
            Route::Partial => os(libc::EIO),
        }
    }

    fn allocate_here(&self, fd: &OwnedFd, mode: u32, offset: u64, len: u64) -> io::Result<Tried> {
        // A call that fails in the middle leaves its first part, which cannot be undone beside other writers.
        if mode & !KEEPS == 0 && !self.has_room_for(fd, offset, len)? {
            return Ok(Tried::Full(None));
        }
        let flags = FallocateFlags::from_bits_retain(mode);
        let allocate = || rustix::fs::fallocate(fd, flags, offset, len).map_err(io::Error::from);
        let mut done = allocate();
        if done.as_ref().is_err_and(is_full) {
            self.inner.make_room(len);
            done = allocate();
        }
        match done {
            Err(error) if is_full(&error) || is_too_large(&error) => return Ok(Tried::Full(error.errno())),
            done => done?,
        }
        self.inner.spaces.forget();
        self.changed_now();
        self.file.live.lock().changes += 1;
        Ok(Tried::Done)
    }

    /// Returns whether the burst buffer keeps its reserve after the range is allocated. Evicts for that.
    fn has_room_for(&self, fd: &OwnedFd, offset: u64, len: u64) -> io::Result<bool> {
        // Assumes that all its blocks lie before the end of the range.
        let held = rustix::fs::fstat(fd)?.st_blocks as u64 * 512;
        let lacks = offset.saturating_add(len).saturating_sub(held).min(len);
        let spaces = &self.inner.spaces;
        if lacks == 0 || spaces.admit(lacks, &self.policy) {
            return Ok(true);
        }
        self.inner.make_room(spaces.lacks(lacks, &self.policy));
        Ok(spaces.admit(lacks, &self.policy))
    }
}

fn allocate_below(global: &dyn StoreFile, mode: u32, offset: u64, len: u64) -> io::Result<()> {
    let range = ByteRange::at(offset, len);
    if mode == (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE).bits() {
        let size = global.attributes()?.fingerprint.size;
        return global.punch(range.intersection(&ByteRange::new(0, size)));
    }
    match global.allocate(mode, range) {
        // Most programs only want the size.
        Err(error) if mode == 0 && error.errno() == Some(libc::EOPNOTSUPP) => {
            let size = global.attributes()?.fingerprint.size;
            if range.end > size { global.set_len(range.end) } else { Ok(()) }
        }
        other => other,
    }
}
