//! Bytes of mappings that are written to a file or socket without a copy in between.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use types::Gathered;

use super::Mapping;

/// Bytes of mappings that one system call writes or sends one after another. Programs may change them until then, as
/// with [`Memory::read`](crate::Memory::read).
#[derive(Debug, Default)]
pub struct Gather<'a> {
    parts: Vec<libc::iovec>,
    bytes: usize,
    mappings: PhantomData<&'a Mapping>,
}

impl<'a> Gather<'a> {
    /// Adds `len` bytes from `at` of `mapping`. Panics if they are outside of it. The kernel accepts 1,024 parts.
    pub fn add(&mut self, mapping: &'a Mapping, at: usize, len: usize) {
        let start = mapping.check(at, len);
        if len > 0 {
            self.parts.push(libc::iovec { iov_base: start.cast(), iov_len: len });
            self.bytes += len;
        }
    }
}

/// A truncated file of a mapping gives `EFAULT` and no signal.
impl Gathered for Gather<'_> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, to: BorrowedFd<'_>, offset: u64) -> bool {
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        // SAFETY: each part lies inside of a mapping (`add`) that lives as long as `'a`. The kernel only reads there,
        // and no reference to the shared bytes is made.
        let written = unsafe { libc::pwritev(to.as_raw_fd(), self.parts.as_ptr(), self.parts.len() as i32, offset) };
        usize::try_from(written).is_ok_and(|written| written == self.bytes)
    }

    fn send(&self, to: BorrowedFd<'_>, skip: usize) -> io::Result<usize> {
        let (mut before, mut rest) = (0, self.parts.as_slice());
        while let Some(part) = rest.first().filter(|part| before + part.iov_len <= skip) {
            (before, rest) = (before + part.iov_len, &rest[1..]);
        }
        // If `skip` ends inside a part, the rest of that part comes first.
        let begun = rest.first().filter(|_| before < skip).map(|part| {
            let gone = skip - before;
            // Within the part, because its length is larger.
            [libc::iovec { iov_base: part.iov_base.wrapping_byte_add(gone), iov_len: part.iov_len - gone }]
        });
        let parts = begun.as_ref().map_or(rest, |begun| begun.as_slice());
        // SAFETY: plain numbers and pointers, which may all be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len());
        // SAFETY: as in `write`; the kernel writes neither to the message nor to its parts.
        let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

// SAFETY: the pointers are into mappings, which threads may share, and only the kernel uses them.
unsafe impl Sync for Gather<'_> {}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Memory, WindowMedium};

    #[test]
    fn parts_are_sent_from_wherever_a_socket_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let mapping = Mapping::create(&dir.path().join("ring"), 8192, WindowMedium::Volatile).unwrap();
        let bytes: Vec<u8> = (0..8192_u32).map(|at| (at % 251) as u8).collect();
        mapping.write(0, &bytes);
        let mut gather = Gather::default();
        for (at, len) in [(100, 10), (0, 0), (4000, 200), (50, 1), (8000, 192)] {
            gather.add(&mapping, at, len);
        }
        let whole = [&bytes[100..110], &bytes[4000..4200], &bytes[50..51], &bytes[8000..]].concat();
        assert_eq!(gather.bytes(), whole.len());
        for skip in 0..whole.len() {
            let (here, mut there) = UnixStream::pair().unwrap();
            let mut done = skip;
            while done < whole.len() {
                done += gather.send(here.as_fd(), done).unwrap();
            }
            drop(here);
            let mut got = Vec::new();
            there.read_to_end(&mut got).unwrap();
            assert!(got == whole[skip..], "from {skip} on");
        }
    }

    #[test]
    fn what_was_cut_is_told_and_no_signal_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let mapping = Mapping::create(&path, 1 << 20, WindowMedium::Volatile).unwrap();
        let mut gather = Gather::default();
        gather.add(&mapping, 512 << 10, 4096);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        assert_eq!(gather.send(here.as_fd(), 0).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        drop(there);
        let mut gather = Gather::default();
        gather.add(&mapping, 0, 10);
        assert_eq!(gather.send(here.as_fd(), 0).unwrap_err().raw_os_error(), Some(libc::EPIPE));
    }
}
