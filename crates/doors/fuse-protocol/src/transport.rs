//! How messages travel between the kernel and us: the seam for `/dev/fuse` now and io_uring later.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::BackingId;
use crate::abi::{BackingMap, IOC_BACKING_CLOSE, IOC_BACKING_OPEN};

/// A connection to the kernel. All calls may come from many threads at once.
pub trait Transport: Send + Sync + 'static {
    /// Waits for one message and puts it into `buffer`; its length in bytes. Errors are those of read(2) on
    /// `/dev/fuse`: `ENODEV` once unmounted, `ECONNABORTED` once aborted.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Whether a message waits to be received, or may. Never blocks.
    fn has_waiting(&self) -> bool {
        true
    }
    /// Sends one message, whole. `ENOENT`: nobody waits for this reply any more, or the kernel no longer has what a
    /// notification is about.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// Registers a backing file. `EPERM` without `CAP_SYS_ADMIN`, `ELOOP` when its file system is stacked too deep.
    fn backing_open(&self, file: BorrowedFd<'_>) -> io::Result<BackingId>;
    /// Forgets a backing file; open files that use it go on.
    fn backing_close(&self, id: BackingId) -> io::Result<()>;
}

/// `/dev/fuse`.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Takes over an open `/dev/fuse`, before or after it is mounted.
    pub fn new(device: OwnedFd) -> Device {
        Device(device)
    }
}

impl Transport for Device {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, &mut *buffer) {
            // Also of a message that was on its way while the file system was unmounted: asked again, the kernel says which.
            Err(rustix::io::Errno::CONNABORTED) => Ok(rustix::io::read(&self.0, buffer)?),
            read => Ok(read?),
        }
    }

    fn has_waiting(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut device = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A connection that has ended is told as an error: reading it tells more.
        poll(&mut device, Some(&at_once)) != Ok(0)
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        loop {
            match rustix::io::writev(&self.0, parts) {
                Ok(sent) if sent == bytes => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn backing_open(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let map = BackingMap { fd: file.as_raw_fd(), ..BackingMap::default() };
        // SAFETY: the request number carries the size of `map`, which the kernel only reads during the call.
        let id = unsafe { libc::ioctl(self.0.as_fd().as_raw_fd(), IOC_BACKING_OPEN as _, &raw const map) };
        if id < 0 { Err(io::Error::last_os_error()) } else { Ok(BackingId(id)) }
    }

    fn backing_close(&self, id: BackingId) -> io::Result<()> {
        let id = id.0 as u32;
        // SAFETY: the request number carries the size of `id`, which the kernel only reads during the call.
        let done = unsafe { libc::ioctl(self.0.as_fd().as_raw_fd(), IOC_BACKING_CLOSE as _, &raw const id) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
