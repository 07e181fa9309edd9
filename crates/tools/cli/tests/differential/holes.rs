//! Results of `SEEK_DATA` and `SEEK_HOLE` must be consistent with what is read. File systems may report holes
//! differently, so the results themselves are not compared.

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

use crate::outcome::Outcome;
use crate::side::Answer;

/// Reads the whole file and looks for a nonzero byte in reported holes.
pub fn check(fd: BorrowedFd<'_>) -> Answer {
    let mut bytes = vec![0; fstat(fd)?.st_size as usize];
    let read = rustix::io::pread(fd, &mut bytes, 0)?;
    bytes.truncate(read);
    let offset = seek(fd, SeekFrom::Current(0))?;
    let outcome = walk(fd, &bytes);
    seek(fd, SeekFrom::Start(offset))?;
    outcome
}

fn walk(fd: BorrowedFd<'_>, bytes: &[u8]) -> Answer {
    let size = bytes.len() as u64;
    let mut hole = 0;
    while hole < size {
        let data = match seek(fd, SeekFrom::Data(hole)) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno),
        };
        if data < hole || data > size {
            return Ok(Outcome::Broken(format!("SEEK_DATA from {hole} said {data} in {size} bytes")));
        }
        if let Some(at) = bytes[hole as usize..data as usize].iter().position(|byte| *byte != 0) {
            return Ok(Outcome::Broken(format!("data at {} in the hole {hole}..{data}", hole + at as u64)));
        }
        if data == size {
            break;
        }
        let next = seek(fd, SeekFrom::Hole(data))?;
        if next <= data || next > size {
            return Ok(Outcome::Broken(format!("SEEK_HOLE from {data} said {next} in {size} bytes")));
        }
        hole = next;
    }
    Ok(Outcome::Value(0))
}
