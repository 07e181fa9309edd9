//! The socket of the windows, served by one thread, which only looks things up and passes descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use concurrency::{JoinHandle, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use window::attach::{MESSAGE_BYTES, MessageKind, NotAMessage, WindowMessage};

use super::WindowService;
use crate::limits;
use crate::processes::{Process, Processes};

pub(super) struct WindowListener {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A connection. Registered after its hello.
struct Peer {
    socket: OwnedFd,
    pid: u32,
    /// Process that connected; moved to `process` when it registers.
    connected: Option<OwnedFd>,
    process: Option<Arc<Process>>,
}

impl WindowListener {
    pub fn start(path: &Path, service: &Arc<WindowService>) -> io::Result<WindowListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Every user of the node may connect. The open file that a program shows decides what it gets.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
        listen(&socket, 64)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (until, of) = (Arc::clone(&stop), Arc::downgrade(service));
        let serve = move || serve(&socket, &of, &until);
        let thread = concurrency::spawn_joined("windows", serve)?;
        Ok(WindowListener { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread; programs see the connection closed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            // The thread looks at `stop` every CONTROL_POLL. A panic in it has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for WindowListener {
    fn drop(&mut self) {
        // The thread itself may hold the last reference, so it is not joined.
        self.stop.store(true, Ordering::Release);
    }
}

fn serve(socket: &OwnedFd, service: &Weak<WindowService>, stop: &AtomicBool) {
    let nap = Timespec { tv_sec: 0, tv_nsec: limits::WINDOW_LISTEN_POLL.as_nanos() as i64 };
    let mut peers: Vec<Peer> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let ready: Vec<bool> = {
            let mut watched = vec![PollFd::new(socket, PollFlags::IN)];
            watched.extend(peers.iter().map(|peer| PollFd::new(&peer.socket, PollFlags::IN)));
            match poll(&mut watched, Some(&nap)) {
                Ok(1..) => watched.iter().map(|one| !one.revents().is_empty()).collect(),
                _ => continue,
            }
        };
        let Some(service) = service.upgrade() else { return };
        let mut ready = ready.into_iter();
        let somebody_new = ready.next() == Some(true);
        peers.retain_mut(|peer| {
            let stays = ready.next() != Some(true) || answer(peer, &service);
            if !stays && let Some(process) = peer.process.take() {
                service.processes.remove(&process);
            }
            stays
        });
        if somebody_new && let Ok(socket) = accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            peers.extend(admit(socket, peers.len()));
        }
    }
    let Some(service) = service.upgrade() else { return };
    peers.iter().filter_map(|peer| peer.process.as_ref()).for_each(|process| service.processes.remove(process));
}

/// Admits a connection. An agent without privilege serves only its own user, because it could not write for others.
fn admit(socket: OwnedFd, peers: usize) -> Option<Peer> {
    let connected = peer_process(&socket).ok()?;
    let peer = sockopt::socket_peercred(&socket).ok()?;
    let us = rustix::process::geteuid();
    if peers >= limits::WINDOW_PROCESSES_MAX || (!us.is_root() && peer.uid != us) {
        return None;
    }
    Some(Peer { socket, pid: peer.pid.as_raw_pid().unsigned_abs(), connected: Some(connected), process: None })
}

/// Returns the process that connected, whoever holds its end of the socket now and even if its process id was reused.
/// Before Linux 6.5: the process with that id some milliseconds later, if it has the user id that connected.
fn peer_process(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of_val(&fd) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERPIDFD);
    // SAFETY: the kernel writes one descriptor into a variable of that size.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut fd).cast(), &raw mut length) } {
        // SAFETY: the descriptor is new and owned by nobody else.
        0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOPROTOOPT) => process_by_number(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn process_by_number(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let peer = sockopt::socket_peercred(socket)?;
    let process = rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty())?;
    let user = std::fs::metadata(format!("/proc/{}", peer.pid.as_raw_pid()))?.uid();
    if user == peer.uid.as_raw() { Ok(process) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Answers one message. Returns whether the connection stays.
fn answer(peer: &mut Peer, service: &WindowService) -> bool {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut nothing: [MaybeUninit<u8>; 0] = [];
    let mut control = rustix::net::RecvAncillaryBuffer::new(&mut nothing);
    let got = match recvmsg(&peer.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Err(_) => return false,
        Ok(got) if got.bytes == 0 => return false,
        Ok(got) => got.bytes,
    };
    match WindowMessage::from_bytes(&bytes[..got]) {
        Ok(message) if message.kind == MessageKind::Hello && peer.process.is_none() => {
            hello(peer, &service.processes).is_ok()
        }
        Ok(message) if message.kind == MessageKind::Fetch => fetch(peer, service, message.token).is_ok(),
        Ok(message) if message.kind == MessageKind::Here => {
            send(&peer.socket, &WindowMessage::new(MessageKind::Here), &[]).is_ok()
        }
        Err(NotAMessage::Version(version)) => {
            // Any process that may connect could fill the log.
            if service.refuse_version().is_power_of_two() {
                tracing::info!(
                    version,
                    pid = peer.pid,
                    "refused a window: the preload library has another version; install that of the agent"
                );
            }
            let _ = refuse(peer, libc::EPROTO);
            false
        }
        _ => false,
    }
}

fn hello(peer: &mut Peer, processes: &Processes) -> io::Result<()> {
    let connected = peer.connected.take().ok_or(io::ErrorKind::AlreadyExists)?;
    let (process, page) = Process::new(peer.pid, connected)?;
    peer.process = Some(processes.add(process));
    send(&peer.socket, &WindowMessage::new(MessageKind::Welcome), &[page.as_fd()])
}

fn fetch(peer: &Peer, service: &WindowService, token: u64) -> io::Result<()> {
    let lives = peer.process.as_ref().is_some_and(|process| process.lives());
    let Some(granted) = service.fetch(token, peer.pid).filter(|_| lives) else { return refuse(peer, libc::EAGAIN) };
    let (ring, capacity) = (granted.id, granted.capacity);
    let medium = granted.medium.number();
    let message = WindowMessage { token, ring, capacity, medium, ..WindowMessage::new(MessageKind::Ring) };
    send(&peer.socket, &message, &[granted.ring.as_fd(), granted.sequence.as_fd()])
}

fn refuse(peer: &Peer, status: i32) -> io::Result<()> {
    send(&peer.socket, &WindowMessage { status, ..WindowMessage::new(MessageKind::Refused) }, &[])
}

fn send(socket: &OwnedFd, message: &WindowMessage, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&message.to_bytes())], &mut control, flags)?;
    Ok(())
}
