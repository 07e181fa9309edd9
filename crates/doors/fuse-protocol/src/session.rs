//! Session of a mounted file system, from INIT to the end.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::abi::{InHeader, InitCompatIn, InitOut, KERNEL_MAJOR, Opcode, OutHeader, bytes_of, init_flags, take};
use crate::dispatch::{Dispatcher, Handler};
use crate::init::{Agreed, agree, offer};
use crate::pool::ThreadPool;
use crate::reply::Channel;
use crate::transport::{Device, Transport};
use crate::{Errno, Filesystem, Notifier, Raw, RequestCounts, limits};

/// Numbers of serving threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Number of threads that read while several programs ask or handlers are slow; at least 1. For a lone program one
    /// thread reads.
    pub readers: usize,
    /// Maximum number of threads. At least 2 are used, so that an interrupt is read while a handler blocks.
    pub max: usize,
    /// Whether handlers usually wait, as those of a server that simulates a slow store. Another thread then always
    /// reads meanwhile.
    pub wait: bool,
}

impl Default for ThreadCounts {
    fn default() -> ThreadCounts {
        ThreadCounts { readers: limits::THREADS_READING, max: limits::THREADS_MAX, wait: false }
    }
}

/// End of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The last mount is gone.
    Unmounted,
    /// The connection was cut while mounted (`/sys/fs/fuse/connections/N/abort`, `umount -f`).
    Aborted,
}

/// File system and its connection to the kernel.
pub struct Session {
    handler: Handler,
    channel: Arc<Channel>,
    threads: ThreadCounts,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Session {
    /// Makes a session over `/dev/fuse`, which serves once [`Session::run`] is called.
    pub fn new<F: Filesystem>(fs: Arc<F>, device: OwnedFd, threads: ThreadCounts) -> Session {
        Session::over(fs, Arc::new(Device::new(device)), threads)
    }

    /// Makes a session over any transport.
    pub fn over<F: Filesystem>(fs: Arc<F>, transport: Arc<dyn Transport>, threads: ThreadCounts) -> Session {
        Session { handler: Handler::Files(fs), channel: Arc::new(Channel::new(transport)), threads }
    }

    /// Makes a session over `/dev/fuse` that passes its requests on unchanged.
    pub fn raw(raw: Arc<dyn Raw>, device: OwnedFd, threads: ThreadCounts) -> Session {
        let channel = Arc::new(Channel::new(Arc::new(Device::new(device))));
        Session { handler: Handler::Raw(raw), channel, threads }
    }

    /// Returns a function that sends the kernel a notification made elsewhere, header included.
    pub fn passer(&self) -> impl Fn(&[u8]) -> io::Result<()> + Send + Sync + use<> {
        let transport = Arc::clone(&self.channel.transport);
        move |message| transport.send(&[io::IoSlice::new(message)])
    }

    /// Returns a sender of notifications, which also registers backing files. Usable from any thread.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.channel.transport))
    }

    /// Returns the numbers of requests that have arrived, which go on counting.
    pub fn requests(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.channel.counts)
    }

    /// Serves until unmounted or aborted. Then interrupts all running handlers, waits for them and calls `destroy`.
    /// Errors: INIT failed, or the device cannot be read.
    pub fn run(&self) -> io::Result<SessionEnd> {
        let agreed = match self.agree() {
            Ok(agreed) => agreed,
            Err(error) => return ended(error),
        };
        let (handler, channel) = (self.handler.clone(), Arc::clone(&self.channel));
        let server = Dispatcher { handler, channel, agreed, foreign: false };
        let end = ThreadPool::new(server, self.threads).run();
        self.handler.destroy();
        ended(end)
    }

    /// Reads requests until INIT is answered.
    fn agree(&self) -> io::Result<Agreed> {
        // The kernel demands a buffer of this size even for INIT.
        let mut buffer = vec![0; limits::HEADER_ROOM + limits::WRITE_MAX as usize];
        loop {
            let received = match self.channel.transport.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            if let Some(agreed) = self.answer_init(&buffer[..received])? {
                return Ok(agreed);
            }
        }
    }

    fn answer_init(&self, message: &[u8]) -> io::Result<Option<Agreed>> {
        answer_init(&self.handler, &self.channel, message)
    }
}

/// Answers INIT. Returns `None` if the kernel must ask again. Errors: the kernel is too old, or the file system
/// refused.
pub(crate) fn answer_init(handler: &Handler, channel: &Channel, message: &[u8]) -> io::Result<Option<Agreed>> {
    let Some((header, body)) = take::<InHeader>(message) else { return Ok(None) };
    let init = take::<InitCompatIn>(body).filter(|_| Opcode::of(header.opcode) == Some(Opcode::Init));
    let Some((fixed, rest)) = init else {
        channel.error(header.unique, Errno::EIO);
        return Ok(None);
    };
    if fixed.major > KERNEL_MAJOR {
        // The kernel asks again with our major version.
        let ours = crate::abi::InitOut { major: KERNEL_MAJOR, minor: limits::MINOR, ..Default::default() };
        channel.ok(header.unique, &[bytes_of(&ours)]);
        return Ok(None);
    }
    if fixed.major < KERNEL_MAJOR || fixed.minor < limits::MINOR_MIN {
        channel.error(header.unique, Errno(libc::EPROTO));
        return Err(io::Error::other(format!(
            "the kernel speaks FUSE {}.{}; 7.{} is the oldest served",
            fixed.major,
            fixed.minor,
            limits::MINOR_MIN
        )));
    }
    let answered = match handler {
        Handler::Raw(raw) => pass_init(&**raw, channel, header.unique, message),
        Handler::Files(fs) => {
            let kernel = offer(&fixed, rest);
            fs.init(&kernel).map(|wanted| {
                let (agreed, out) = agree(&kernel, &wanted);
                channel.ok(header.unique, &[bytes_of(&out)]);
                agreed
            })
        }
    };
    answered.map(Some).map_err(|errno| {
        channel.error(header.unique, errno);
        io::Error::from_raw_os_error(errno.0)
    })
}

/// Passes INIT and its answer on. Returns the agreement that the answer contains.
fn pass_init(raw: &dyn Raw, channel: &Channel, unique: u64, message: &[u8]) -> Result<Agreed, Errno> {
    let answer = raw.init(message)?;
    let (header, body) = take::<OutHeader>(&answer).ok_or(Errno(libc::EPROTO))?;
    let (out, _) = take::<InitOut>(body).filter(|_| header.error == 0).ok_or(Errno(libc::EPROTO))?;
    let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
    // Passthrough needs descriptors of this machine, and our buffers have a bound.
    if flags & init_flags::PASSTHROUGH != 0 || out.max_write > limits::WRITE_MAX {
        return Err(Errno(libc::EPROTO));
    }
    channel.pass(unique, &[io::IoSlice::new(&answer)]);
    Ok(Agreed { flags, max_write: out.max_write })
}

/// Returns whether to read again: after a signal, or when a request was withdrawn while it was being read.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOENT))
}

fn ended(error: io::Error) -> io::Result<SessionEnd> {
    match error.raw_os_error() {
        Some(libc::ENODEV) => Ok(SessionEnd::Unmounted),
        Some(libc::ECONNABORTED) => Ok(SessionEnd::Aborted),
        _ => Err(error),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
