//! Notifications to the kernel (cached data is no longer valid), and backing files.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::abi::{
    INVAL_ENTRY_EXPIRE_ONLY, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, OutHeader, bytes_of,
    notify_code, take,
};
use crate::transport::Transport;
use crate::{BackingId, NodeId};

/// Sender of notifications. Never to be used from a handler that serves the notified inode or directory. The kernel may
/// hold a lock until the handler answers, and the notification waits for that lock.
#[derive(Clone)]
pub struct Notifier {
    transport: Arc<dyn Transport>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifier")
    }
}

impl Notifier {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Notifier {
        Notifier { transport }
    }

    /// Invalidates a name: the kernel looks it up again and drops its node when unused. The kernel drops a name even if
    /// a program has it open, works in it, or has mounted something there: see [`crate::InUse`]. Errors: `ENOENT` if
    /// the kernel has no such name cached, which is just as good.
    pub fn inval_entry(&self, parent: NodeId, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel look a name up again. Unlike [`Notifier::inval_entry`], nothing below it is unmounted or
    /// dropped. Without `HAS_EXPIRE_ONLY` this is an invalidation.
    pub fn expire_entry(&self, parent: NodeId, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, INVAL_ENTRY_EXPIRE_ONLY)
    }

    /// Reports that the name of `child` was removed. Errors: those of [`Notifier::inval_entry`], and `ENOTEMPTY`.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &OsStr) -> io::Result<()> {
        let body = NotifyDeleteOut { parent, child, namelen: name.len() as u32, padding: 0 };
        self.send(notify_code::DELETE, bytes_of(&body), name.as_bytes(), true)
    }

    /// Invalidates attributes and `len` bytes of cached data from `offset`. `len` 0 means to the end; `offset` -1 means
    /// attributes alone. Errors: `ENOENT` if the kernel does not know the node.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> io::Result<()> {
        let body = NotifyInvalInodeOut { ino: node, off: offset, len };
        self.send(notify_code::INVAL_INODE, bytes_of(&body), &[], false)
    }

    /// Registers a file for [`crate::OpenReply::backing`]; an `O_PATH` descriptor is enough. Errors: `EPERM` without
    /// `CAP_SYS_ADMIN`, `ELOOP` if its file system is stacked deeper than agreed.
    pub fn backing_open(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.transport.backing_open(file)
    }

    /// Removes a registration. Files opened with it keep working.
    pub fn backing_close(&self, id: BackingId) -> io::Result<()> {
        self.transport.backing_close(id)
    }

    fn entry(&self, parent: NodeId, name: &OsStr, flags: u32) -> io::Result<()> {
        let body = NotifyInvalEntryOut { parent, namelen: name.len() as u32, flags };
        self.send(notify_code::INVAL_ENTRY, bytes_of(&body), name.as_bytes(), true)
    }

    fn send(&self, code: i32, body: &[u8], name: &[u8], named: bool) -> io::Result<()> {
        // The kernel expects names with their terminating NUL, which `namelen` does not count.
        let end: &[u8] = if named { &[0] } else { &[] };
        let len = size_of::<OutHeader>() + body.len() + name.len() + end.len();
        let header = OutHeader { len: len as u32, error: code, unique: 0 };
        let parts = [bytes_of(&header), body, name, end].map(IoSlice::new);
        self.transport.send(&parts)
    }
}

/// Returns the name that a message to the kernel invalidates ([`Notifier::inval_entry`]), or `None` for other messages.
pub fn name_to_forget(message: &[u8]) -> Option<&OsStr> {
    let (header, body) = take::<OutHeader>(message)?;
    let (entry, name) = take::<NotifyInvalEntryOut>(body)?;
    if header.error != notify_code::INVAL_ENTRY || entry.flags != 0 {
        return None;
    }
    let name = name.get(..entry.namelen as usize)?;
    Some(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Sent(Mutex<Vec<Vec<u8>>>);

    impl Transport for Sent {
        fn backing_open(&self, _file: BorrowedFd<'_>) -> io::Result<BackingId> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn backing_close(&self, _id: BackingId) -> io::Result<()> {
            Ok(())
        }

        fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            self.0.lock().push(parts.iter().flat_map(|part| part.iter().copied()).collect());
            Ok(())
        }
    }

    #[test] // S33
    fn a_name_to_forget_is_told_from_all_else() {
        let sent = Arc::new(Sent::default());
        let notifier = Notifier::new(sent.clone());
        let name = OsStr::new("name");
        notifier.inval_entry(7, name).unwrap();
        notifier.expire_entry(7, name).unwrap();
        notifier.inval_inode(7, 0, 0).unwrap();
        notifier.delete(7, 8, name).unwrap();
        let sent = std::mem::take(&mut *sent.0.lock());
        let names = sent.iter().map(|message| name_to_forget(message).map(OsStr::to_owned)).collect::<Vec<_>>();
        assert_eq!(names, [Some(OsString::from("name")), None, None, None]);
        assert!((0..sent[0].len()).all(|end| name_to_forget(&sent[0][..end]).is_none_or(|cut| cut == name)));
    }
}
