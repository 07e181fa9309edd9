//! Replies to the kernel.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use types::Timestamp;

use crate::abi::{self, OutHeader, bytes_of};
use crate::interrupts::Interrupts;
use crate::limits::READ_PARTS_MAX;
use crate::transport::Transport;
use crate::{Attr, AttrReply, Entry, Errno, OpenReply, RequestCounts, StatFs, fopen};

/// Shared state of all answers: the transport, and the running requests.
pub(crate) struct Channel {
    pub transport: Arc<dyn Transport>,
    pub interrupts: Interrupts,
    pub counts: Arc<RequestCounts>,
}

impl Channel {
    pub fn new(transport: Arc<dyn Transport>) -> Channel {
        Channel { transport, interrupts: Interrupts::default(), counts: Arc::default() }
    }

    /// Answers success with a body. Returns false if nobody waits for it any more.
    pub fn ok(&self, unique: u64, body: &[&[u8]]) -> bool {
        self.send(unique, 0, body)
    }

    /// Answers a read of at most `size` bytes with data in memory, which is not copied on the way.
    pub fn in_place(&self, unique: u64, body: &[Box<dyn AsRef<[u8]>>], size: usize) -> bool {
        let mut parts: [&[u8]; READ_PARTS_MAX] = [&[]; READ_PARTS_MAX];
        let bytes: usize = parts
            .iter_mut()
            .zip(body)
            .map(|(part, bytes)| {
                *part = (**bytes).as_ref();
                part.len()
            })
            .sum();
        if body.len() > READ_PARTS_MAX || bytes > size {
            return self.error(unique, Errno::EIO);
        }
        self.ok(unique, &parts[..body.len()])
    }

    /// Answers an error. Returns false if nobody waits for it any more.
    pub fn error(&self, unique: u64, errno: Errno) -> bool {
        // A number outside the kernel's range would make the reply invalid and leave the caller hanging.
        let errno = if (1..=4095).contains(&errno.0) { errno.0 } else { libc::EIO };
        self.send(unique, -errno, &[])
    }

    fn send(&self, unique: u64, error: i32, body: &[&[u8]]) -> bool {
        let bytes: usize = body.iter().map(|part| part.len()).sum();
        let header = OutHeader { len: (size_of::<OutHeader>() + bytes) as u32, error, unique };
        let mut parts = [IoSlice::new(&[]); READ_PARTS_MAX + 1];
        parts[0] = IoSlice::new(bytes_of(&header));
        for (part, bytes) in parts[1..].iter_mut().zip(body) {
            *part = IoSlice::new(bytes);
        }
        self.pass(unique, &parts[..=body.len()])
    }

    /// Sends an answer that has its header already. Returns false if nobody waits for it any more.
    pub fn pass(&self, unique: u64, parts: &[IoSlice<'_>]) -> bool {
        let sent = self.transport.send(parts);
        // Only after sending: an interrupt that comes before the kernel has the answer must still find the request.
        self.interrupts.end(unique);
        match sent {
            Ok(()) => true,
            Err(error) => {
                match error.raw_os_error() {
                    // Aborted or unmounted meanwhile.
                    Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED | libc::EPERM) => {}
                    _ => tracing::error!(unique, %error, "the kernel refused a reply"),
                }
                false
            }
        }
    }
}

fn nanos_of(time: Timestamp) -> (u64, u32) {
    (time.seconds.cast_unsigned(), time.nanos)
}

fn validity(time: Duration) -> (u64, u32) {
    (time.as_secs(), time.subsec_nanos())
}

pub(crate) fn attr_out(attr: &Attr) -> abi::Attr {
    let ((atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)) =
        (nanos_of(attr.atime), nanos_of(attr.mtime), nanos_of(attr.ctime));
    abi::Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

pub(crate) fn attr_reply_out(reply: &AttrReply) -> abi::AttrOut {
    let (attr_valid, attr_valid_nsec) = validity(reply.valid);
    abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr_out(&reply.attr) }
}

pub(crate) fn statx_out(reply: &AttrReply, birth: Option<Timestamp>) -> abi::StatxOut {
    let attr = &reply.attr;
    let time = |at: Timestamp| abi::SxTime { seconds: at.seconds, nanos: at.nanos, reserved: 0 };
    let birth_mask = if birth.is_some() { libc::STATX_BTIME } else { 0 };
    let (attr_valid, attr_valid_nsec) = validity(reply.valid);
    let stat = abi::Statx {
        mask: libc::STATX_BASIC_STATS | birth_mask,
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Type and permission bits are 16 bits.
        mode: attr.mode as u16,
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(birth.unwrap_or_default()),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: rustix::fs::major(attr.rdev.into()),
        rdev_minor: rustix::fs::minor(attr.rdev.into()),
        ..abi::Statx::default()
    };
    abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..abi::StatxOut::default() }
}

pub(crate) fn entry_out(entry: &Entry) -> abi::EntryOut {
    let (entry_valid, entry_valid_nsec) = validity(entry.entry_valid);
    let (attr_valid, attr_valid_nsec) = validity(entry.attr_valid);
    // Node ids are never reused, so one generation is enough.
    abi::EntryOut {
        nodeid: entry.node,
        generation: 0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr_out(&entry.attr),
    }
}

pub(crate) fn open_out(opened: &OpenReply) -> abi::OpenOut {
    let flags = opened.flags & !fopen::PASSTHROUGH;
    match opened.backing {
        None => abi::OpenOut { fh: opened.handle, open_flags: flags, backing_id: 0 },
        Some(id) => abi::OpenOut { fh: opened.handle, open_flags: flags | fopen::PASSTHROUGH, backing_id: id.0 },
    }
}

pub(crate) fn statfs_out(stat: &StatFs) -> abi::StatfsOut {
    abi::StatfsOut {
        blocks: stat.blocks,
        bfree: stat.bfree,
        bavail: stat.bavail,
        files: stat.files,
        ffree: stat.ffree,
        bsize: stat.bsize,
        namelen: stat.namelen,
        frsize: stat.frsize,
        ..abi::StatfsOut::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;

    use parking_lot::Mutex;

    use super::*;
    use crate::BackingId;

    /// Transport that keeps the last sent message.
    #[derive(Default)]
    struct Sent(Mutex<Vec<u8>>);

    impl Transport for Sent {
        fn receive(&self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            *self.0.lock() = parts.iter().flat_map(|part| part.to_vec()).collect();
            Ok(())
        }

        fn backing_open(&self, _: BorrowedFd<'_>) -> io::Result<BackingId> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn backing_close(&self, _: BackingId) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn a_read_is_answered_from_where_its_bytes_lie_and_never_by_more_than_was_asked_for() {
        let sent = Arc::new(Sent::default());
        let channel = Channel::new(sent.clone());
        let body = |parts: &[&str]| -> Vec<Box<dyn AsRef<[u8]>>> {
            parts.iter().map(|part| Box::new(part.as_bytes().to_vec()) as Box<dyn AsRef<[u8]>>).collect()
        };
        let answer = |body: &[u8], error: i32| {
            let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error, unique: 7 };
            [bytes_of(&header), body].concat()
        };
        assert!(channel.in_place(7, &body(&["one ", "and ", "two"]), 11));
        assert_eq!(*sent.0.lock(), answer(b"one and two", 0));
        assert!(channel.in_place(7, &body(&["one"]), 2));
        assert_eq!(*sent.0.lock(), answer(b"", -libc::EIO));
        assert!(channel.in_place(7, &body(&["x"; READ_PARTS_MAX]), 100));
        assert_eq!(*sent.0.lock(), answer(&[b'x'; READ_PARTS_MAX], 0));
        assert!(channel.in_place(7, &body(&["x"; READ_PARTS_MAX + 1]), 100));
        assert_eq!(*sent.0.lock(), answer(b"", -libc::EIO));
    }
}
