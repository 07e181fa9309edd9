//! The seam under the protocol: something that moves bytes to one peer and back. Sockets today; RDMA fits here.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::Address;
use crate::data::Gathered;
use crate::frame::WaitLimit;
use crate::limits::{FILE_COPY_BYTES, KEEP_ALIVE, TICK, UNCONFIRMED_MS};

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
    /// Sends a first part of the parts. `more`: other bytes follow at once.
    fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize>;
    /// Sends a first part of so many bytes of a file; 0: the file ends there.
    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<usize> {
        copy(self, file, offset, bytes)
    }
    /// Sends a first part of what lies in memory, from `skip` on.
    fn send_gathered(&mut self, data: &dyn Gathered, skip: usize) -> io::Result<usize>;
    /// Who is at the other end.
    fn peer(&self) -> io::Result<Peer>;
}

fn send(socket: impl AsFd, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    Ok(net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
}

/// `None`: this file system does not lend its pages.
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

/// Connects while `patience` lasts: a network that swallows everything, and a server that stands still with a full queue, answer
/// nothing, and who is killed meanwhile must not wait for that.
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

impl Address {
    /// Connects, in at most about `wait` for each address that a name has, and as long as `patience` says.
    pub(crate) fn connect(&self, wait: Duration, patience: &WaitLimit<'_>) -> io::Result<Box<dyn Link>> {
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

    /// An address where nobody answers: its queue is full, and is never taken from.
    fn silent() -> (TcpListener, Vec<TcpStream>, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // As short as the kernel makes it.
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
        let error = address.connect(Duration::from_secs(60), &patience).err().expect("no connection");
        assert_eq!(error.raw_os_error(), Some(libc::EINTR));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let never = WaitLimit { until: None, interrupted: &|| false };
        let error = address.connect(Duration::from_millis(300), &never).err().expect("no connection");
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }
}
