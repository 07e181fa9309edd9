//! The seam under the protocol: a link moves bytes to one peer and back. Links are sockets today; RDMA would fit
//! here.

use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use types::Gathered;

use crate::address::Address;
use crate::limits::{FILE_COPY_BYTES, KEEP_ALIVE, TICK, UNCONFIRMED_MS};
use crate::wait_limit::WaitLimit;

/// Peer at the other end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Process of this machine, as the kernel identifies it.
    Local {
        /// User id of the process.
        uid: u32,
        /// Process id.
        pid: i32,
    },
    /// Network address of a process on another machine.
    Remote(String),
}

/// Connection that moves bytes to one peer and back. Calls return `WouldBlock` after about a [`TICK`] without
/// progress.
pub trait Link: Send {
    /// Receives at least one byte and returns the number. Returns 0 once the peer has closed its end.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Sends a first part of `parts` and returns its length. `more`: further bytes follow at once.
    fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize>;
    /// Sends a first part of `bytes` bytes of a file and returns its length. Returns 0 if the file ends at `offset`.
    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        copy(self, file, offset, bytes)
    }
    /// Sends a first part of data in memory, from `skip` on, and returns its length.
    fn send_gathered(&mut self, data: &dyn Gathered, skip: usize) -> io::Result<usize>;
    /// Returns the peer at the other end.
    fn peer(&self) -> io::Result<Peer>;
}

/// Way to a server. Addresses are one; a simulated network is another.
pub trait Dial: Send + Sync {
    /// Makes a link, within about `wait` and while `patience` lasts.
    fn dial(&self, wait: Duration, patience: &WaitLimit<'_>) -> io::Result<Box<dyn Link>>;
}

/// New connection at a server.
pub struct NewConnection {
    /// Link to the peer.
    pub link: Box<dyn Link>,
    /// Socket of the link, by which another thread can end it, if it has one.
    pub socket: Option<OwnedFd>,
    /// Network address of the peer. `None`: this machine.
    pub from: Option<IpAddr>,
}

/// Source of a server's connections: a listening socket, or a simulated network.
pub trait Listener: Send + Sync {
    /// Waits for the next connection, at most a [`TICK`]. `None`: there is none yet.
    fn next(&self) -> io::Result<Option<NewConnection>>;
}

fn send(socket: impl AsFd, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    Ok(net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Sends from a file by sendfile(2). Returns `None` if the file system does not support that.
fn lend(socket: impl AsFd, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Option<io::Result<usize>> {
    match rustix::fs::sendfile(socket, file, Some(&mut { offset }), bytes) {
        Err(Errno::INVAL | Errno::NOSYS) => None,
        sent => Some(sent.map_err(io::Error::from)),
    }
}

fn copy(link: &mut (impl Link + ?Sized), file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
    let mut copy = vec![0; bytes.min(FILE_COPY_BYTES)];
    let got = rustix::io::pread(file, &mut copy, offset)?;
    if got == 0 { Ok(0) } else { link.send(&[IoSlice::new(&copy[..got])], false) }
}

impl Link for UnixStream {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        send(self, parts, more)
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        lend(&*self, file, offset, bytes).unwrap_or_else(|| copy(self, file, offset, bytes))
    }

    fn send_gathered(&mut self, data: &dyn Gathered, skip: usize) -> io::Result<usize> {
        data.send(self.as_fd(), skip)
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

    fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        send(self, parts, more)
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        lend(&*self, file, offset, bytes).unwrap_or_else(|| copy(self, file, offset, bytes))
    }

    fn send_gathered(&mut self, data: &dyn Gathered, skip: usize) -> io::Result<usize> {
        data.send(self.as_fd(), skip)
    }

    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer::Remote(self.peer_addr()?.to_string()))
    }
}

/// Returns a link over a Unix socket.
pub(crate) fn unix(stream: UnixStream) -> io::Result<Box<dyn Link>> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    Ok(Box::new(stream))
}

/// Returns a link over a TCP socket.
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

/// Connects to a Unix socket, without waiting. A stopped server's queue may be full, and a blocking connect would
/// wait for ever.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects to a TCP address while `patience` lasts. A network that drops every packet and a stopped server with a
/// full queue never answer. A caller that is killed must not wait for them.
fn connect_tcp(address: &SocketAddr, patience: &WaitLimit<'_>) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    match net::connect(&socket, address) {
        Err(Errno::INPROGRESS) => {}
        connected => connected?,
    }
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&tick)) {
            Ok(0) | Err(Errno::INTR) => patience.check()?,
            ready => {
                ready?;
                break;
            }
        }
    }
    sockopt::socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Each IP address of a host name is tried.
impl Dial for Address {
    fn dial(&self, wait: Duration, patience: &WaitLimit<'_>) -> io::Result<Box<dyn Link>> {
        match self {
            Address::Unix(path) => unix(connect_unix(path)?),
            Address::Tcp(place) => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in place.to_socket_addrs()? {
                    match connect_tcp(&address, &patience.at_most(wait)) {
                        Ok(stream) => return tcp(stream),
                        Err(error) => last = error,
                    }
                    patience.check()?;
                }
                Err(last)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    /// Returns an address where nobody answers: the listener's queue is full, and no connection is ever accepted.
    fn silent() -> (TcpListener, Vec<TcpStream>, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The shortest queue that the kernel allows.
        net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let short = Duration::from_millis(200);
        let queue = std::iter::from_fn(|| TcpStream::connect_timeout(&address, short).ok()).collect();
        (listener, queue, Address::Tcp(address.to_string()))
    }

    #[test] // S43
    fn who_is_killed_does_not_wait_for_a_connection_that_nobody_answers() {
        let (_listener, _queue, address) = silent();
        let asked = AtomicBool::new(false);
        let interrupted = || asked.swap(true, Ordering::SeqCst);
        let patience = WaitLimit { until: None, interrupted: &interrupted };
        let began = Instant::now();
        let error = address.dial(Duration::from_secs(60), &patience).err().expect("no connection");
        assert_eq!(error.raw_os_error(), Some(libc::EINTR));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let never = WaitLimit { until: None, interrupted: &|| false };
        let error = address.dial(Duration::from_millis(300), &never).err().expect("no connection");
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }
}
