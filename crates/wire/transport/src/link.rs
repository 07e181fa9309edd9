//! The seam under the protocol: something that moves bytes to one peer and back. Sockets today; RDMA fits here.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::address::Address;
use crate::limits::{KEEP_ALIVE, TICK, UNCONFIRMED_MS};

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, as the kernel says.
    Local {
        /// Its user.
        uid: u32,
        /// Its process id.
        pid: i32,
    },
    /// Somebody on the network.
    Remote(String),
}

/// Moves bytes to one peer and back. Both calls return `WouldBlock` after about a tick without progress.
pub trait Link: Send {
    /// Takes what has come, at least one byte; 0 once the peer has ended.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Sends a first part of the parts.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Who is at the other end.
    fn peer(&self) -> io::Result<Peer>;
}

impl Link for UnixStream {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(parts)
    }

    fn peer(&self) -> io::Result<Peer> {
        let who = sockopt::socket_peercred(self)?;
        Ok(Peer::Local { uid: who.uid.as_raw(), pid: who.pid.as_raw_nonzero().get() })
    }
}

impl Link for TcpStream {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(parts)
    }

    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer::Remote(self.peer_addr()?.to_string()))
    }
}

/// Makes a Unix socket a link.
pub(crate) fn unix(stream: UnixStream) -> io::Result<Box<dyn Link>> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    Ok(Box::new(stream))
}

/// Makes a TCP socket a link.
pub(crate) fn tcp(stream: TcpStream) -> io::Result<Box<dyn Link>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let (idle, between, times) = KEEP_ALIVE;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, idle)?;
    sockopt::set_tcp_keepintvl(&stream, between)?;
    sockopt::set_tcp_keepcnt(&stream, times)?;
    sockopt::set_tcp_user_timeout(&stream, UNCONFIRMED_MS)?;
    Ok(Box::new(stream))
}

/// Connects at once or not at all: a server that stands still has a queue that may be full, in which others wait for ever.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl Address {
    /// Connects within about `wait`.
    pub fn connect(&self, wait: Duration) -> io::Result<Box<dyn Link>> {
        match self {
            Address::Unix(path) => unix(connect_unix(path)?),
            Address::Tcp(place) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in place.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, wait) {
                        Ok(stream) => return tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}
