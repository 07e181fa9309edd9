//! Listening sockets of a server.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};

use crate::limits::TICK;
use crate::link::{self, Listener, NewConnection};

/// One listening socket.
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Binds a Unix socket with mode 0600. Replaces a socket file on which nobody listens any more.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let bound = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                _ => return Err(error),
            }
            UnixListener::bind(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(bound)
}

impl Listener for Socket {
    fn next(&self) -> io::Result<Option<NewConnection>> {
        let fd = match self {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        };
        let tick = rustix::event::Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&tick))? == 0 {
            return Ok(None);
        }
        match self {
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(false)?;
                let fd = stream.as_fd().try_clone_to_owned()?;
                Ok(Some(NewConnection { link: link::unix(stream)?, socket: Some(fd), from: None }))
            }
            Socket::Tcp(socket) => {
                let (stream, from) = socket.accept()?;
                stream.set_nonblocking(false)?;
                let fd = stream.as_fd().try_clone_to_owned()?;
                Ok(Some(NewConnection { link: link::tcp(stream)?, socket: Some(fd), from: Some(from.ip()) }))
            }
        }
    }
}
