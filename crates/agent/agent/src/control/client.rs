//! The asking side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use concurrency::Instant;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{ControlRequest, Reply, SOCKET, short_path};
use crate::limits;

/// A connection to a running agent; dropping it interrupts what is under way.
///
/// An agent that lives says so while it works. One that says nothing for [`limits::CONTROL_SILENCE`] is stopped, or
/// hangs: then requests end with `TimedOut`.
pub struct ControlClient {
    stream: BufReader<UnixStream>,
    silence: Duration,
}

impl ControlClient {
    /// Connects to the agent of a burst buffer. `ENOENT` or `ECONNREFUSED`: none runs. `EACCES`: another user's.
    /// `TimedOut`: it takes no more connections.
    pub fn connect(burst_buffer: &Path) -> io::Result<ControlClient> {
        ControlClient::connect_within(burst_buffer, limits::CONTROL_SILENCE)
    }

    /// As [`ControlClient::connect`], with another bound on the agent's silence.
    pub fn connect_within(burst_buffer: &Path, silence: Duration) -> io::Result<ControlClient> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(burst_buffer, flags, Mode::empty())?;
        let address = SocketAddrUnix::new(short_path(&directory, Path::new(SOCKET)))?;
        // A connection waits for nobody, unless a stopped agent has let too many pile up.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address).map_err(|error| match error {
            rustix::io::Errno::AGAIN => io::ErrorKind::TimedOut.into(),
            other => io::Error::from(other),
        })?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(silence))?;
        stream.set_read_timeout(Some(silence))?;
        Ok(ControlClient { stream: BufReader::new(stream), silence })
    }

    /// The process that listens; `None` if it is not of this process namespace.
    pub fn agent(&self) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref()).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }

    /// Asks, gives every line before the last to `each`, and returns the last: [`Reply::Done`] or [`Reply::Failed`].
    /// `UnexpectedEof`: the agent ended. `TimedOut`: it says nothing.
    pub fn request(&mut self, request: &ControlRequest, mut each: impl FnMut(&Reply)) -> io::Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(silent)?;
        loop {
            let mut line = String::new();
            let most = limits::CONTROL_LINE_BYTES_MAX as u64;
            if self.stream.by_ref().take(most).read_line(&mut line).map_err(silent)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match serde_json::from_str(&line)? {
                last @ (Reply::Done { .. } | Reply::Failed { .. }) => return Ok(last),
                Reply::Alive => {}
                other => each(&other),
            }
        }
    }

    /// Waits until the agent closes the connection: after [`ControlRequest::Shutdown`], until it has ended. `TimedOut`: it says
    /// nothing, or has not ended within `patience`.
    pub fn wait_for_end(mut self, patience: Option<Duration>) -> io::Result<()> {
        let start = Instant::now();
        loop {
            if patience.is_some_and(|patience| start.elapsed() >= patience) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.get_ref().set_read_timeout(Some(limits::CONTROL_POLL))?;
            match self.stream.read(&mut [0]).map_err(silent) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                // However the connection ends, nobody is at the other side.
                Err(_) => return Ok(()),
            }
            let silence = patience.map_or(self.silence, |patience| patience.min(self.silence));
            self.stream.get_ref().set_read_timeout(Some(silence))?;
            match self.request(&ControlRequest::Ping, |_| {}) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
                Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

/// A socket's time limit shows as `EAGAIN`.
fn silent(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
