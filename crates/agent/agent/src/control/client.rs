//! Client side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use concurrency::Instant;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{ControlRequest, Reply, SOCKET, short_path};
use crate::limits;

/// A connection to a running agent. Dropping it interrupts the command under way.
///
/// A running agent sends a line regularly while it works. If an agent is silent for [`limits::CONTROL_SILENCE`], it is
/// stopped or hangs: then requests end with `TimedOut`.
pub struct ControlClient {
    stream: BufReader<UnixStream>,
    silence: Duration,
}

impl ControlClient {
    /// Connects to the agent of a burst buffer. `ENOENT` or `ECONNREFUSED`: none runs. `EACCES`: the agent belongs to
    /// another user. `TimedOut`: the agent accepts no more connections.
    pub fn connect(burst_buffer: &Path) -> io::Result<ControlClient> {
        ControlClient::connect_within(burst_buffer, limits::CONTROL_SILENCE)
    }

    /// Connects as [`ControlClient::connect`] does, with another bound on the agent's silence.
    pub fn connect_within(burst_buffer: &Path, silence: Duration) -> io::Result<ControlClient> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(burst_buffer, flags, Mode::empty())?;
        let address = SocketAddrUnix::new(short_path(&directory, Path::new(SOCKET)))?;
        // A connect succeeds at once, unless a stopped agent has let too many connections queue up.
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

    /// Process id of the agent; `None` if the agent is in another process namespace.
    pub fn agent(&self) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref()).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }

    /// Sends a request, passes every line before the last to `each`, and returns the last: [`Reply::Done`] or
    /// [`Reply::Failed`]. `UnexpectedEof`: the agent ended. `TimedOut`: the agent is silent.
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

    /// Waits until the agent closes the connection. After [`ControlRequest::Shutdown`], this means that the agent has
    /// ended. `TimedOut`: the agent is silent, or has not ended within `patience`.
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
                // Any other error means that the agent is gone.
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

/// Maps `EAGAIN`, which a socket returns on timeout, to `TimedOut`.
fn silent(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
