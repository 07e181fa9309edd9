//! Appends: atomic although room is made for them, and done once although a process may have died in the middle of
//! one.

use std::io;
use std::os::fd::OwnedFd;

use global_store::StoreFile;
use global_store::calls::still_wanted;
use types::ByteRange;

use super::{FileHandle, Route};
use crate::burst_buffer::replica;
use crate::errors::{is_full, os};
use crate::limits::{APPEND_SEARCHED_BYTES, PAGE_BYTES};
use data_store::WriteResult;

/// Trace of an append that may have been done already.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    /// All of its bytes stand at this offset.
    At(u64),
    /// Only its first bytes stand, with nothing behind them.
    Part(Standing),
    Nothing,
}

/// Compares an append with `there`, the bytes of the file from `end` on, or as many as are searched.
fn find(data: &[u8], there: &[u8], end: u64) -> Done {
    if data.is_empty() {
        return Done::Nothing;
    }
    if let Some(at) = memchr::memmem::find(there, data) {
        return Done::At(end + at as u64);
    }
    // The kernel stops a write for a kill between two pages: bytes that end elsewhere are somebody else's.
    let tail = end + there.len() as u64;
    if !there.is_empty() && data.starts_with(there) && tail.is_multiple_of(PAGE_BYTES) {
        return Done::Part(Standing { start: end, bytes: there.len() });
    }
    Done::Nothing
}

/// The part of a running append that stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Standing {
    start: u64,
    bytes: usize,
}

impl Standing {
    /// Returns whether the append can continue in a file of `size` bytes. It begins at the end if nothing of it
    /// stands. It cannot continue if others have grown or cut the file since: their acknowledged bytes must not be
    /// overwritten, and the part that stands cannot move.
    fn goes_on(&mut self, size: u64) -> bool {
        if self.bytes == 0 {
            self.start = size;
        }
        self.start + self.bytes as u64 == size
    }
}

impl FileHandle {
    /// Appends. The part of an append that found no more room stays: others may have written behind it since, or into
    /// it.
    pub(super) fn append(&self, data: &[u8]) -> io::Result<WriteResult> {
        self.tell()?;
        let _append = self.file.append.lock();
        self.append_rest(data, Standing::default())
    }

    /// Appends data whose first try was lost with its process. The file had `end` bytes when that began. If the data
    /// stands somewhere behind them, it was done. If only a first part stands there, that is completed.
    pub(super) fn append_again(&self, data: &[u8], end: u64) -> io::Result<WriteResult> {
        // Nobody else appends between the look and the write.
        let _append = self.file.append.lock();
        let found = {
            let _io = self.file.io.read();
            match self.route(true)? {
                Route::Replica(fd) => {
                    look(data, end, size_of(&fd)?, &|buffer, at| replica::read_full(&fd, buffer, at))?
                }
                Route::Global(global) => {
                    let size = global.attributes()?.fingerprint.size;
                    look(data, end, size, &|buffer, at| global.read_at(buffer, at))?
                }
                Route::Partial => return os(libc::EIO),
            }
        };
        match found {
            Done::At(offset) => {
                self.tell_change(ByteRange::at(offset, data.len() as u64));
                Ok(WriteResult { written: data.len(), offset })
            }
            Done::Part(standing) => self.append_rest(data, standing),
            Done::Nothing => self.append_rest(data, Standing::default()),
        }
    }

    /// Appends the rest. The `append` lock is held.
    fn append_rest(&self, data: &[u8], mut standing: Standing) -> io::Result<WriteResult> {
        let written = self.write_with_room(data.len(), &mut |to| {
            // The append may have waited for the lock, or for the file.
            still_wanted()?;
            match to {
                Route::Replica(fd) if standing.goes_on(size_of(fd)?) => {
                    replica::write_on(fd, data, standing.start, &mut standing.bytes)
                }
                Route::Global(global) if standing.goes_on(global.attributes()?.fingerprint.size) => {
                    still_wanted()?;
                    write_below(global.as_ref(), data, &mut standing)
                }
                Route::Replica(_) | Route::Global(_) => Ok(()),
                Route::Partial => os(libc::EIO),
            }
        });
        self.tell_change(ByteRange::at(standing.start, standing.bytes as u64));
        match written {
            Err(error) if standing.bytes == 0 || !is_full(&error) => Err(error),
            _ => Ok(WriteResult { written: standing.bytes, offset: standing.start }),
        }
    }
}

/// Appends in the global store. A full store may have taken a part, and its size says how much.
fn write_below(global: &dyn StoreFile, data: &[u8], standing: &mut Standing) -> io::Result<()> {
    let at = standing.start + standing.bytes as u64;
    let written = global.write_at(&data[standing.bytes..], at);
    let end = match &written {
        Ok(()) => standing.start + data.len() as u64,
        Err(error) if is_full(error) => global.attributes().map_or(at, |found| found.fingerprint.size),
        Err(_) => at,
    };
    // A longer file was extended by others.
    if (at..=standing.start + data.len() as u64).contains(&end) {
        standing.bytes = (end - standing.start) as usize;
    }
    written
}

fn size_of(replica: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(replica)?.st_size as u64)
}

/// Looks for `data` in a file of `size` bytes, which had `end` bytes before the append. Returns how much of it stands
/// there.
fn look(data: &[u8], end: u64, size: u64, read: &dyn Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Done> {
    // The file was cut since: its present bytes are all newer.
    let end = if size < end { 0 } else { end };
    let mut there = vec![0; (size - end).min(APPEND_SEARCHED_BYTES) as usize];
    let got = read(&mut there, end)?;
    Ok(find(data, &there[..got], end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S45
    fn an_append_is_found_completed_or_not_there() {
        let data = vec![7; 5000];
        assert_eq!(find(b"two", b"one two three", 4), Done::At(8));
        let part = Done::Part(Standing { start: 100, bytes: 4096 - 100 });
        assert_eq!(find(&data, &data[..4096 - 100], 100), part, "stopped at the end of a page");
        assert_eq!(find(&data, &data[..4000], 100), Done::Nothing, "somebody else's, by chance the same");
        assert_eq!(find(&data, b"", 4096), Done::Nothing);
        assert_eq!(find(b"", b"one", 0), Done::Nothing);
    }
}
