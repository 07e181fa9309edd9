//! Appending once, although a process that ended in the middle may have done it already.

use std::io;

use super::{FileHandle, Route, errno};
use crate::api::WriteResult;
use crate::limits::{APPEND_SEARCHED_BYTES, PAGE_BYTES};
use crate::open::is_full;
use crate::replica;

/// What is found of an append.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    /// All of it, from here on.
    At(u64),
    /// So many of its first bytes, and nothing behind them.
    Part(u64),
    Nothing,
}

/// `there`: what the file has from `end` on, all of it or as much as is searched.
fn find(data: &[u8], there: &[u8], end: u64) -> Done {
    if data.is_empty() {
        return Done::Nothing;
    }
    if let Some(at) = memchr::memmem::find(there, data) {
        return Done::At(end + at as u64);
    }
    // The kernel stops a write for a kill between two pages: what ends elsewhere is somebody else's.
    let (part, tail) = (there.len() as u64, end + there.len() as u64);
    if part > 0 && data.starts_with(there) && tail.is_multiple_of(PAGE_BYTES) {
        return Done::Part(part);
    }
    Done::Nothing
}

impl FileHandle {
    /// Appends data whose first try was lost with the process that had it; the file had `end` bytes when that was begun. If the
    /// data stands somewhere behind them it was done; if nothing but a first part of it stands there, it is completed.
    pub fn append_again(&self, data: &[u8], end: u64) -> io::Result<WriteResult> {
        let outcome = {
            let _io = self.file.io.read();
            self.append_if_missing(data, end)
        };
        match outcome {
            // Nothing of it is left.
            Err(error) if is_full(&error) => self.write_at(data, 0, true),
            outcome => outcome,
        }
    }

    fn append_if_missing(&self, data: &[u8], end: u64) -> io::Result<WriteResult> {
        let routes = (self.route(false)?, self.route(true)?);
        // Nobody appends between the look and the write.
        let _append = self.file.append.lock();
        match routes {
            (Route::Replica(from), Route::Replica(to)) => {
                let size = rustix::fs::fstat(&to)?.st_size as u64;
                let read = |buffer: &mut [u8], at| replica::read_full(&from, buffer, at);
                let write = |data: &[u8], at| {
                    let written = replica::write_full(&to, data, at);
                    if written.is_err() && self.file.live.lock().passthrough == 0 {
                        let _cutting = self.cutting();
                        let _ = rustix::fs::ftruncate(&to, at);
                    }
                    written
                };
                look_and_append(data, (end, size), &read, &write)
            }
            (_, Route::Global(global)) => {
                let size = global.attributes()?.fingerprint.size;
                let read = |buffer: &mut [u8], at| global.read_at(buffer, at);
                look_and_append(data, (end, size), &read, &|data, at| global.write_at(data, at))
            }
            _ => errno(libc::EIO),
        }
    }
}

fn look_and_append(
    data: &[u8],
    (end, size): (u64, u64),
    read: &dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    write: &dyn Fn(&[u8], u64) -> io::Result<()>,
) -> io::Result<WriteResult> {
    // It was cut since: then what is there now is all newer.
    let end = if size < end { 0 } else { end };
    let mut there = vec![0; (size - end).min(APPEND_SEARCHED_BYTES) as usize];
    let got = read(&mut there, end)?;
    let written = data.len();
    match find(data, &there[..got], end) {
        Done::At(offset) => Ok(WriteResult { written, offset }),
        Done::Part(part) => write(&data[part as usize..], end + part).map(|()| WriteResult { written, offset: end }),
        Done::Nothing => write(data, size).map(|()| WriteResult { written, offset: size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_found_completed_or_not_there() {
        let data = vec![7; 5000];
        assert_eq!(find(b"two", b"one two three", 4), Done::At(8));
        assert_eq!(find(&data, &data[..4096 - 100], 100), Done::Part(4096 - 100), "stopped at the end of a page");
        assert_eq!(find(&data, &data[..4000], 100), Done::Nothing, "somebody else's, by chance the same");
        assert_eq!(find(&data, b"", 4096), Done::Nothing);
        assert_eq!(find(b"", b"one", 0), Done::Nothing);
    }
}
