//! The asking side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{Reply, Request, SOCKET, short_path};
use crate::limits;

/// A connection to a running agent; dropping it interrupts what is under way.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the agent of a burst buffer. `ENOENT` or `ECONNREFUSED`: none runs. `EACCES`: another user's.
    pub fn connect(burst_buffer: &Path) -> io::Result<Client> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(burst_buffer, flags, Mode::empty())?;
        let stream = UnixStream::connect(short_path(&directory, Path::new(SOCKET)))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Asks, gives every line before the last to `each`, and returns the last: [`Reply::Done`] or [`Reply::Failed`].
    /// `UnexpectedEof`: the agent ended.
    pub fn request(&mut self, request: &Request, mut each: impl FnMut(&Reply)) -> io::Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut line = String::new();
            let most = limits::CONTROL_LINE_BYTES_MAX as u64;
            if self.stream.by_ref().take(most).read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match serde_json::from_str(&line)? {
                last @ (Reply::Done { .. } | Reply::Failed { .. }) => return Ok(last),
                other => each(&other),
            }
        }
    }

    /// Waits until the agent closes the connection: after [`Request::Shutdown`], until it has ended.
    pub fn wait_for_end(mut self) -> io::Result<()> {
        io::copy(&mut self.stream, &mut io::sink()).map(|_| ())
    }
}
