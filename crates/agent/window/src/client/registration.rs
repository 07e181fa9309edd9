//! Connection of a process to the agent.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with, sockopt,
};

use super::fork_guard::ForkGuard;
use super::window::Window;
use crate::attach::{
    CONTROL, CONTROL_BYTES, Command, Control, MESSAGE_BYTES, MessageKind, NotAMessage, WindowMessage, page,
};
use crate::limits::{AGENT_ANSWERS_WITHIN, AGENT_IS_THERE_WITHIN, DESCRIPTORS_PER_MESSAGE};
use crate::mapping::{Mapping, WindowMedium};
use crate::memory::Memory;
use crate::ring::Writer;
use crate::sequence::Sequence;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Part of a registration that its windows share.
#[derive(Debug)]
pub(super) struct AgentLink {
    socket: OwnedFd,
    pub(super) fork_guard: ForkGuard,
    /// Lock for one request at a time.
    asking: Mutex<Asking>,
}

/// State of the exchange of messages.
#[derive(Debug, Default)]
struct Asking {
    /// Whether the last answer has not come in time. No new request is sent before that answer has come and was
    /// discarded.
    is_late: bool,
    /// Whether an answer was not understood, or the connection has ended.
    is_broken: bool,
}

impl AgentLink {
    /// Returns whether the agent still holds the other end.
    pub(super) fn is_alive(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut socket, Some(&now)) {
            Ok(_) => !socket[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
            Err(_) => true,
        }
    }

    /// Sends a request and waits for its answer, at most `within`. Errors: `TimedOut` if the answer does not come in
    /// time; from then on `WouldBlock` at once, until that answer has come.
    fn ask(&self, question: &WindowMessage, within: Duration) -> io::Result<(WindowMessage, Vec<OwnedFd>)> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.is_broken || !self.fork_guard.is_here() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let answer = self.exchange(&mut asking, question, within);
        let waits = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        asking.is_broken = answer.as_ref().is_err_and(|error| !waits.contains(&error.kind()));
        let (answer, descriptors) = answer?;
        match answer.kind {
            MessageKind::Refused => Err(io::Error::from_raw_os_error(answer.status)),
            _ => Ok((answer, descriptors)),
        }
    }

    fn exchange(
        &self,
        asking: &mut Asking,
        question: &WindowMessage,
        within: Duration,
    ) -> io::Result<(WindowMessage, Vec<OwnedFd>)> {
        if asking.is_late {
            if !self.is_readable(Duration::ZERO)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.receive()?;
            asking.is_late = false;
        }
        let bytes = question.to_bytes();
        let mut nothing = SendAncillaryBuffer::default();
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut nothing, SendFlags::NOSIGNAL)?;
        if !self.is_readable(within)? {
            asking.is_late = true;
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.receive()
    }

    /// Returns whether a message comes within that time, or the connection ends.
    fn is_readable(&self, within: Duration) -> io::Result<bool> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }

    fn receive(&self) -> io::Result<(WindowMessage, Vec<OwnedFd>)> {
        let mut answer = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut answer)];
        let got = recvmsg(&self.socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        match WindowMessage::from_bytes(&answer[..got.bytes]) {
            Ok(answer) => Ok((answer, descriptors)),
            Err(NotAMessage::Version(_)) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Registration of a process. A forked child registers anew.
#[derive(Debug)]
pub struct Registration {
    link: Arc<AgentLink>,
    page: Mapping,
}

impl Registration {
    /// Registers with the agent that listens at `path` (`FOREBAY_WINDOW_SOCKET`). Errors: `EPERM` if the agent runs
    /// neither as root nor as our own user, `EPROTO` for an agent of another version, and those of socket, connect and
    /// mmap.
    pub fn connect(path: &[u8]) -> io::Result<Registration> {
        Registration::connect_from(path, 0)
    }

    /// Registers as [`Registration::connect`] does, with a descriptor number of at least `lowest`, so that the program
    /// finds the numbers it expects. If the program's limit is lower, uses the lowest free number.
    pub fn connect_from(path: &[u8], lowest: i32) -> io::Result<Registration> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let socket = rustix::io::fcntl_dupfd_cloexec(&socket, lowest).unwrap_or(socket);
        // Needed for connect: a hanging agent may have as many connections waiting as it accepts.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(AGENT_ANSWERS_WITHIN))?;
        // With a timeout set, connect fails with EINTR in a process that is stopped and continued.
        let address = SocketAddrUnix::new(path)?;
        rustix::io::retry_on_intr(|| connect(&socket, &address))?;
        let peer = sockopt::socket_peercred(&socket)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let link = Arc::new(AgentLink { socket, fork_guard: ForkGuard::here()?, asking: Mutex::default() });
        let (answer, mut descriptors) = link.ask(&WindowMessage::new(MessageKind::Hello), AGENT_ANSWERS_WITHIN)?;
        let (MessageKind::Welcome, 1, Some(page)) = (answer.kind, descriptors.len(), descriptors.pop()) else {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        };
        let page = Mapping::handed(page, WindowMedium::Volatile)?;
        if page.len() != page::BYTES || page.word(0).load(Acquire) != page::identification() {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        Ok(Registration { link, page })
    }

    /// Announces that the calling thread, whose kernel id is `thread`, is about to open a file that may have a window.
    /// After the open, ask [`Announcement::windowed`]. If all slots are taken, announces nothing, which is never wrong.
    pub fn announce(&self, thread: u32) -> Announcement<'_> {
        self.announce_as(u64::from(thread))
    }

    /// Announces an open for reading and writing. The file gets a window only if its reads lose nothing: without a
    /// window the kernel alone may serve them.
    pub fn announce_mildly(&self, thread: u32) -> Announcement<'_> {
        self.announce_as(u64::from(thread) | page::MILD)
    }

    fn announce_as(&self, word: u64) -> Announcement<'_> {
        let free = |slot: &usize| {
            let word = self.page.word(page::thread_at(*slot));
            word.load(Relaxed) == 0 && word.compare_exchange(0, page::PREPARING, AcqRel, Relaxed).is_ok()
        };
        let slot = if self.is_here() { (0..page::SLOTS).find(free) } else { None };
        if let Some(slot) = slot {
            self.page.word(page::answer_at(slot)).store(0, Relaxed);
            self.page.word(page::thread_at(slot)).store(word, Release);
        }
        Announcement { page: &self.page, slot }
    }

    /// Returns the window of the open file `fd`, about `bytes` large (0: as the policy says). Errors: `EOPNOTSUPP` if
    /// this descriptor will never have a window. `EAGAIN` if it cannot now, because somebody else has the file open or
    /// memory is short. Others: not an accelerated file, or the agent has gone.
    pub fn attach(&self, fd: BorrowedFd<'_>, bytes: u64) -> io::Result<Window> {
        self.fetch(control(fd, &Control::new(Command::Attach, bytes))?.token)
    }

    /// Completes [`Registration::attach`]: returns the window of a token.
    pub fn fetch(&self, token: u64) -> io::Result<Window> {
        let (answer, descriptors) =
            self.link.ask(&WindowMessage { token, ..WindowMessage::new(MessageKind::Fetch) }, AGENT_ANSWERS_WITHIN)?;
        let right = answer.kind == MessageKind::Ring && answer.token == token;
        let [ring, sequence]: [OwnedFd; 2] = match descriptors.try_into() {
            Ok(both) if right => both,
            _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
        };
        let medium = WindowMedium::numbered(answer.medium).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))?;
        let ring = Mapping::handed(ring, medium)?;
        let sequence = Sequence::new(Mapping::handed(sequence, medium)?);
        let writer = Writer::new(ring, answer.ring, answer.capacity, sequence)
            .map_err(|_| io::Error::from_raw_os_error(libc::EPROTO))?;
        Ok(Window::new(writer, Arc::clone(&self.link)))
    }

    /// Returns whether the agent answers at the moment, within [`AGENT_IS_THERE_WITHIN`]. The ioctl would wait without
    /// a limit. After a false answer, returns false at once until the agent has answered.
    pub fn is_answered(&self) -> bool {
        self.link.ask(&WindowMessage::new(MessageKind::Here), AGENT_IS_THERE_WITHIN).is_ok()
    }

    /// Returns whether this is the process that registered, and not a forked child.
    pub fn is_here(&self) -> bool {
        self.link.fork_guard.is_here()
    }

    /// Returns whether the agent still holds the connection. If not, the program should register anew, but only now and
    /// then.
    pub fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    /// Returns the descriptor of the connection. The program must neither close nor use it.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket.as_fd()
    }
}

/// Announced open. Dropping it withdraws the announcement.
#[derive(Debug)]
pub struct Announcement<'a> {
    page: &'a Mapping,
    slot: Option<usize>,
}

impl Announcement<'_> {
    /// Returns whether the opened file may have a window; to be called after the open. This is a hint;
    /// [`Registration::attach`] decides.
    pub fn windowed(self) -> bool {
        self.slot.is_some_and(|slot| self.page.word(page::answer_at(slot)).load(Acquire) & page::WINDOWED != 0)
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.page.word(page::thread_at(slot)).store(0, Release);
        }
    }
}

/// Returns whether the file system of `fd` might answer [`control`]. Asks no server that could hang: for a FUSE file
/// system the kernel first copies the argument, whose address is invalid here. Other file systems do not know the call.
pub fn might_answer(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: there is nothing at that address for the kernel to read or write.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), u64::from(CONTROL), 0usize) };
    done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Makes the ioctl [`CONTROL`] on `fd`. Errors: those of the kernel; `ENOTTY` if there is no agent.
pub fn control(fd: BorrowedFd<'_>, ask: &Control) -> io::Result<Control> {
    let mut argument: [u8; CONTROL_BYTES] = ask.to_bytes();
    // SAFETY: the kernel reads and writes as many bytes as the call's number says, which is the buffer's length.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), u64::from(CONTROL), argument.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Control::from_bytes(&argument).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))
}
