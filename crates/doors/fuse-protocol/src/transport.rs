//! Transport of messages between the kernel and this layer: `/dev/fuse` now, perhaps io_uring later.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::BackingId;
use crate::abi::{BackingMap, IOC_BACKING_CLOSE, IOC_BACKING_OPEN};

/// Connection to the kernel. All calls may come from many threads at once.
pub trait Transport: Send + Sync + 'static {
    /// Waits for one message and puts it into `buffer`. Returns its length in bytes. Errors: those of read(2) on
    /// `/dev/fuse`, such as `ENODEV` once unmounted and `ECONNABORTED` once aborted.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Returns whether a message waits to be received, or may wait. Never blocks.
    fn has_waiting(&self) -> bool {
        true
    }
    /// Sends one whole message. Errors: `ENOENT` if nobody waits for this reply any more, or if the kernel does not
    /// have the object of a notification any more.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// Registers a backing file. Errors: `EPERM` without `CAP_SYS_ADMIN`, `ELOOP` if its file system is stacked too
    /// deep.
    fn backing_open(&self, file: BorrowedFd<'_>) -> io::Result<BackingId>;
    /// Removes the registration of a backing file. Open files that use it keep working.
    fn backing_close(&self, id: BackingId) -> io::Result<()>;
}

/// Connection by `/dev/fuse`.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Wraps an open `/dev/fuse`, before or after it is mounted.
    pub fn new(device: OwnedFd) -> Device {
        Device(device)
    }
}

impl Transport for Device {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, &mut *buffer) {
            // Also the result for a message in transit during an unmount. Reading again shows which case it is.
            Err(rustix::io::Errno::CONNABORTED) => Ok(rustix::io::read(&self.0, buffer)?),
            read => Ok(read?),
        }
    }

    fn has_waiting(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut device = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A closed connection is reported as an error here; reading it then says more.
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
