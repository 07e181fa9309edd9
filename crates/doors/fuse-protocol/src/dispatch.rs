//! Dispatch of operations to the file system's methods, and of their results to replies.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::abi::{self, InHeader, Opcode, Plain, bytes_of, take};
use crate::decode::{NotARequest, Operation, decode};
use crate::dir_sink::looked_up;
use crate::init::Agreed;
use crate::interrupts::Arrived;
use crate::reply::{Channel, attr_reply_out, entry_out, open_out, statfs_out, statx_out};
use crate::{
    AttrReply, DirSink, Entry, Envelope, Errno, Filesystem, NodeId, OpenReply, Parked, Raw, ReadBytes, Request,
};

/// Name of the attribute that holds a file's capabilities.
const CAPABILITY: &CStr = c"security.capability";

/// Buffers that a thread keeps from one request to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    data: Vec<u8>,
    listing: Vec<u8>,
}

/// Treatment of a message before its arguments are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Interrupt or forget, which never blocks and is never answered late.
    Immediate,
    /// Request that may take long.
    Request(Arrival),
}

/// Request before its arguments are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub unique: u64,
    /// Thread id of the caller; 0 if the kernel asks by itself.
    pub caller: u32,
    /// Whether such requests usually wait for neither a disk nor the global store.
    pub brief: bool,
}

#[derive(Clone)]
pub(crate) enum Handler {
    Files(Arc<dyn Filesystem>),
    Raw(Arc<dyn Raw>),
}

impl Handler {
    /// Ends the session of the receiver.
    pub fn destroy(&self) {
        match self {
            Handler::Files(fs) => fs.destroy(),
            Handler::Raw(raw) => raw.destroy(),
        }
    }
}

/// File system and its connection to the kernel.
pub(crate) struct Dispatcher {
    pub handler: Handler,
    pub channel: Arc<Channel>,
    pub agreed: Agreed,
    /// Whether the kernel is another machine's. Its process ids have no meaning here and are not passed on.
    pub foreign: bool,
}

impl Dispatcher {
    /// Notes that a request has arrived, so that an interrupt finds it. To be called as soon as it was read.
    pub fn arrived(&self, message: &[u8]) -> Urgency {
        let Some((header, body)) = take::<InHeader>(message) else { return Urgency::Immediate };
        let opcode = Opcode::of(header.opcode);
        opcode.into_iter().for_each(|kind| self.channel.counts.count(kind));
        match opcode {
            Some(Opcode::Interrupt | Opcode::Forget | Opcode::BatchForget) => Urgency::Immediate,
            opcode => {
                let attributes = opcode == Some(Opcode::Getattr);
                let capabilities = opcode == Some(Opcode::Getxattr) && body.ends_with(CAPABILITY.to_bytes_with_nul());
                let (unique, node, caller) = (header.unique, header.nodeid, header.pid);
                self.channel.interrupts.begin(Arrived { unique, node, caller, attributes, capabilities });
                let brief = opcode.is_none_or(|kind| kind.is_brief(body));
                Urgency::Request(Arrival { unique: header.unique, caller: header.pid, brief })
            }
        }
    }

    /// Runs one message that has [`Dispatcher::arrived`] and answers it, except a lock, which the file system answers.
    /// `apart` holds the data of a write whose message ends before it, and is empty otherwise.
    pub fn serve(&self, message: &[u8], apart: &[u8], scratch: &mut Scratch) {
        let (header, operation) = match decode(message, apart, &self.agreed) {
            Ok(decoded) => decoded,
            Err(NotARequest::Headless) => {
                tracing::error!(bytes = message.len(), "a message from the kernel is too short");
                return;
            }
            Err(NotARequest::Answer { unique, errno }) => {
                if errno != Errno::ENOSYS {
                    tracing::error!(unique, ?errno, "the kernel sent a malformed request: answered with an error");
                }
                self.channel.error(unique, errno);
                return;
            }
        };
        let fs = match &self.handler {
            Handler::Files(fs) => &**fs,
            Handler::Raw(raw) => return self.pass(&**raw, message, &header, operation),
        };
        // After a panic these are answered by the session; others by a parked reply when it is dropped.
        let answers_itself = !matches!(
            operation,
            Operation::Setlk { .. }
                | Operation::Forget { .. }
                | Operation::BatchForget { .. }
                | Operation::Interrupt { .. }
        );
        let request = Request {
            unique: header.unique,
            uid: header.uid,
            gid: header.gid,
            pid: if self.foreign { 0 } else { header.pid },
            channel: Arc::clone(&self.channel),
        };
        let answer = Answer { server: self, fs, req: &request, node: header.nodeid };
        fs.begins(header.unique);
        // The file system's own locks do not poison. Work left half done is its own matter; other requests go on.
        let outcome = catch_unwind(AssertUnwindSafe(|| answer.run(operation, scratch)));
        fs.ends();
        if outcome.is_err() {
            tracing::error!(opcode = header.opcode, unique = header.unique, "a handler panicked: answered EIO");
            if answers_itself {
                self.channel.error(header.unique, Errno::EIO);
            }
        }
    }
}

impl Dispatcher {
    /// Interrupts a running request; `own` is the interrupt's number. Returns false if the request does not run here.
    fn interrupt(&self, own: u64, unique: u64) -> bool {
        let runs = self.channel.interrupts.interrupt(unique);
        if !runs {
            // Read but not yet noted by another thread, or answered meanwhile. In the first case EAGAIN makes the
            // kernel send it again. In the second the kernel no longer knows the request and refuses this (ENOENT).
            self.channel.error(own, Errno::EAGAIN);
            concurrency::yield_now();
        }
        runs
    }

    /// Passes a message on unchanged.
    fn pass(&self, raw: &dyn Raw, message: &[u8], header: &InHeader, operation: Operation<'_>) {
        match operation {
            Operation::Interrupt { unique } => {
                if self.interrupt(header.unique, unique) {
                    raw.interrupt(unique);
                }
            }
            Operation::Forget { count } => raw.forget(header.nodeid, count),
            Operation::BatchForget { ones } => lookups(ones).for_each(|(node, count)| raw.forget(node, count)),
            // The end of the session comes with ENODEV.
            Operation::Destroy => _ = self.channel.ok(header.unique, &[]),
            _ => {
                let (envelope, reply) =
                    (Envelope::new(header, message), Parked::new(Arc::clone(&self.channel), header.unique));
                // The reply answers EIO when it is dropped by a panic.
                if catch_unwind(AssertUnwindSafe(|| raw.request(&envelope, message, reply))).is_err() {
                    tracing::error!(opcode = header.opcode, unique = header.unique, "a handler panicked: answered EIO");
                }
            }
        }
    }
}

/// One request that is being answered.
struct Answer<'a> {
    server: &'a Dispatcher,
    fs: &'a dyn Filesystem,
    req: &'a Request,
    node: NodeId,
}

impl Answer<'_> {
    fn body(&self, outcome: Result<&[u8], Errno>) -> bool {
        match outcome {
            Ok(body) => self.server.channel.ok(self.req.unique, &[body]),
            Err(errno) => self.server.channel.error(self.req.unique, errno),
        }
    }

    fn unit(&self, outcome: Result<(), Errno>) {
        self.body(outcome.map(|()| [].as_slice()));
    }

    fn is_taken<T: Plain>(&self, outcome: Result<T, Errno>) -> bool {
        self.body(outcome.as_ref().map(bytes_of).map_err(|errno| *errno))
    }

    fn plain<T: Plain>(&self, outcome: Result<T, Errno>) {
        self.is_taken(outcome);
    }

    fn attr(&self, outcome: Result<AttrReply, Errno>) {
        self.plain(outcome.map(|reply| attr_reply_out(&reply)));
    }

    /// Answers with an entry. The kernel then refers to the node; if it gets no answer, forgets that reference.
    fn entry(&self, outcome: Result<Entry, Errno>) {
        let node = outcome.as_ref().map_or(0, |entry| entry.node);
        let delivered = self.is_taken(outcome.map(|entry| entry_out(&entry)));
        if !delivered && node != 0 {
            self.fs.forget(node, 1);
        }
    }

    /// Answers with an open file. If the answer is not delivered, releases the file, because the kernel never will.
    fn opened(&self, outcome: Result<OpenReply, Errno>, flags: i32, directory: bool) {
        let handle = outcome.as_ref().ok().map(|opened| opened.handle);
        let delivered = self.is_taken(outcome.map(|opened| open_out(&opened)));
        match handle {
            Some(handle) if !delivered && directory => self.fs.releasedir(self.req, self.node, handle),
            Some(handle) if !delivered => self.fs.release(self.req, self.node, handle, flags, None),
            _ => {}
        }
    }

    fn created(&self, outcome: Result<(Entry, OpenReply), Errno>, flags: i32) {
        let (entry, opened) = match outcome {
            Ok(created) => created,
            Err(errno) => return self.unit(Err(errno)),
        };
        let (entry_bytes, open_bytes) = (entry_out(&entry), open_out(&opened));
        if !self.server.channel.ok(self.req.unique, &[bytes_of(&entry_bytes), bytes_of(&open_bytes)]) {
            self.fs.release(self.req, entry.node, opened.handle, flags, None);
            self.fs.forget(entry.node, 1);
        }
    }

    /// Answers with a value of unknown size: its size for a size query, the whole value, or `ERANGE`.
    fn sized(&self, outcome: Result<Vec<u8>, Errno>, room: usize) {
        match outcome {
            Ok(value) if room == 0 => self.plain(Ok(abi::GetxattrOut { size: value.len() as u32, padding: 0 })),
            Ok(value) if value.len() > room => self.unit(Err(Errno::ERANGE)),
            Ok(value) => _ = self.body(Ok(&value)),
            Err(errno) => self.unit(Err(errno)),
        }
    }

    fn run(&self, operation: Operation<'_>, scratch: &mut Scratch) {
        use Operation as O;
        let (fs, req, node) = (self.fs, self.req, self.node);
        match operation {
            O::Interrupt { unique } => _ = self.server.interrupt(req.unique, unique),
            O::Forget { count } => fs.forget(node, count),
            O::BatchForget { ones } => lookups(ones).for_each(|(node, count)| fs.forget(node, count)),
            // The end of the session comes with ENODEV; `destroy` is called once, then.
            O::Destroy => self.unit(Ok(())),
            O::Getattr { handle } => self.attr(fs.getattr(req, node, handle)),
            O::Statx { handle } => {
                self.plain(fs.statx(req, node, handle).map(|(reply, birth)| statx_out(&reply, birth)));
            }
            O::Setattr { set } => self.attr(fs.setattr(req, node, &set)),
            O::Access { mask } => self.unit(fs.access(req, node, mask)),
            O::Statfs => self.plain(fs.statfs(req, node).map(|stat| statfs_out(&stat))),
            O::Syncfs => self.unit(fs.syncfs(req, node)),
            O::Setxattr { name, value, flags, kill_sgid } => {
                self.unit(fs.setxattr(req, node, name, value, flags, kill_sgid));
            }
            O::Getxattr { name, size } => self.sized(fs.getxattr(req, node, name), size),
            O::Listxattr { size } => self.sized(fs.listxattr(req, node), size),
            O::Removexattr { name } => self.unit(fs.removexattr(req, node, name)),
            O::Getlk { handle, lock } => self.plain(fs.getlk(req, node, handle, lock).map(|lock| lk_out(&lock))),
            O::Setlk { handle, lock, wait } => {
                let parked = Parked::new(Arc::clone(&self.server.channel), req.unique);
                fs.setlk(req, node, handle, lock, wait, parked);
            }
            other => self.name(other, scratch),
        }
    }

    /// Runs requests about names.
    fn name(&self, operation: Operation<'_>, scratch: &mut Scratch) {
        use Operation as O;
        let (fs, req, node) = (self.fs, self.req, self.node);
        match operation {
            O::Lookup { name } => self.entry(fs.lookup(req, node, name)),
            O::Readlink => match fs.readlink(req, node) {
                Ok(target) => _ = self.body(Ok(&target)),
                Err(errno) => self.unit(Err(errno)),
            },
            O::Symlink { name, target } => self.entry(fs.symlink(req, node, name, target)),
            O::Mknod { name, mode, umask, rdev } => self.entry(fs.mknod(req, node, name, mode, umask, rdev)),
            O::Mkdir { name, mode, umask } => self.entry(fs.mkdir(req, node, name, mode, umask)),
            O::Unlink { name } => self.unit(fs.unlink(req, node, name)),
            O::Rmdir { name } => self.unit(fs.rmdir(req, node, name)),
            O::Rename { name, to, new_name, flags } => self.unit(fs.rename(req, node, name, to, new_name, flags)),
            O::Link { node: linked, new_name } => self.entry(fs.link(req, linked, node, new_name)),
            O::Open { flags, kill_suidgid } => self.opened(fs.open(req, node, flags, kill_suidgid), flags, false),
            O::Opendir { flags } => self.opened(fs.opendir(req, node, flags), flags, true),
            O::Create { name, mode, umask, flags } => {
                self.created(fs.create(req, node, name, mode, umask, flags), flags);
            }
            O::Tmpfile { mode, umask, flags } => self.created(fs.tmpfile(req, node, mode, umask, flags), flags),
            other => self.open_file(other, scratch),
        }
    }

    /// Runs requests about open files and directories.
    fn open_file(&self, operation: Operation<'_>, scratch: &mut Scratch) {
        use Operation as O;
        let (fs, req, node) = (self.fs, self.req, self.node);
        match operation {
            O::Read { handle, offset, size } => {
                if scratch.data.len() < size {
                    scratch.data.resize(size, 0);
                }
                match fs.read_or_share(req, node, handle, offset, &mut scratch.data[..size]) {
                    Ok(ReadBytes::InPlace(parts)) => _ = self.server.channel.in_place(req.unique, &parts, size),
                    Ok(ReadBytes::Copied(read)) => _ = self.body(scratch.data[..size].get(..read).ok_or(Errno::EIO)),
                    Err(errno) => self.unit(Err(errno)),
                }
            }
            O::Write { handle, offset, data, how } => {
                let written = fs.write(req, node, handle, offset, data, how);
                self.plain(written.and_then(|size| written_out(size, data.len())));
            }
            O::Readdir { handle, offset, size, plus } => {
                let mut sink = DirSink::new(&mut scratch.listing, size, plus);
                let filled = fs.readdir(req, node, handle, offset, plus, &mut sink);
                let given = filled.is_ok();
                if !(self.body(filled.map(|()| scratch.listing.as_slice())) && given) && plus {
                    looked_up(&scratch.listing).for_each(|node| fs.forget(node, 1));
                }
            }
            O::Flush { handle, owner } => self.unit(fs.flush(req, node, handle, owner)),
            O::Release { handle, flags, flock_owner } => {
                fs.release(req, node, handle, flags, flock_owner);
                self.unit(Ok(()));
            }
            O::Releasedir { handle } => {
                fs.releasedir(req, node, handle);
                self.unit(Ok(()));
            }
            O::Fsync { handle, data_only } => self.unit(fs.fsync(req, node, handle, data_only)),
            O::Fsyncdir { handle, data_only } => self.unit(fs.fsyncdir(req, node, handle, data_only)),
            O::Fallocate { handle, offset, len, mode } => {
                self.unit(fs.fallocate(req, node, handle, offset, len, mode));
            }
            O::Lseek { handle, offset, whence } => {
                self.plain(fs.lseek(req, node, handle, offset, whence).map(|offset| abi::LseekOut { offset }));
            }
            O::CopyFileRange { from: (handle, offset), to, len, flags, wide } => {
                let copied = fs.copy_file_range(req, (node, handle, offset), to, len, flags);
                if wide {
                    self.plain(copied.map(|bytes| abi::CopyFileRangeOut { bytes_copied: bytes as u64 }));
                } else {
                    self.plain(copied.and_then(|bytes| written_out(bytes, u32::MAX as usize)));
                }
            }
            O::Ioctl { handle, command, input, out_size } => {
                self.ioctl(fs.ioctl(req, node, handle, command, input, out_size), out_size);
            }
            // Handled by `run` and `name`.
            other => {
                debug_assert!(false, "{other:?} is not dispatched");
                self.unit(Err(Errno::ENOSYS));
            }
        }
    }

    fn ioctl(&self, outcome: Result<(i32, Vec<u8>), Errno>, out_size: usize) {
        match outcome {
            Ok((_, output)) if output.len() > out_size => self.unit(Err(Errno::EIO)),
            Ok((result, output)) => {
                let out = abi::IoctlOut { result, ..Default::default() };
                self.server.channel.ok(self.req.unique, &[bytes_of(&out), &output]);
            }
            Err(errno) => self.unit(Err(errno)),
        }
    }
}

/// Returns the nodes of a BATCH_FORGET, each with the number of lookups to subtract.
fn lookups(ones: &[u8]) -> impl Iterator<Item = (NodeId, u64)> {
    let ones = ones.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(take::<abi::ForgetOne>);
    ones.map(|(one, _)| (one.nodeid, one.nlookup))
}

fn written_out(size: usize, most: usize) -> Result<abi::WriteOut, Errno> {
    if size > most {
        return Err(Errno::EIO);
    }
    Ok(abi::WriteOut { size: size as u32, padding: 0 })
}

fn lk_out(lock: &crate::LockArgs) -> abi::LkOut {
    let kind = lock.kind.cast_unsigned();
    abi::LkOut { lk: abi::FileLock { start: lock.start, end: lock.end, kind, pid: lock.pid } }
}
