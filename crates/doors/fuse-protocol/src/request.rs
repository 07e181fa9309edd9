//! Request as a handler sees it, and the reply that is given later.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use crate::Errno;
use crate::interrupts::{Arrived, OnInterrupt};
use crate::reply::Channel;
use crate::transport::Transport;

/// Caller of a request, and whether it still waits for the answer.
pub struct Request {
    /// Number of this request, chosen by the kernel and never used twice in a session.
    pub unique: u64,
    /// The caller's file system user id.
    pub uid: u32,
    /// The caller's file system group id.
    pub gid: u32,
    /// Process id of the caller in the mounting namespace. 0 for callers outside of it and for write-back.
    pub pid: u32,
    pub(crate) channel: Arc<Channel>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} by {}:{} of process {})", self.unique, self.uid, self.gid, self.pid)
    }
}

impl Request {
    /// Returns whether the caller got a signal. A handler that waits should then answer `EINTR`; one that has done its
    /// work answers as usual.
    pub fn interrupted(&self) -> bool {
        self.channel.interrupts.interrupted(self.unique)
    }

    /// Returns a function equal to [`Request::interrupted`], for code that does not have the request.
    pub fn interruption(&self) -> impl Fn() -> bool + use<> {
        let (channel, unique) = (Arc::clone(&self.channel), self.unique);
        move || channel.interrupts.interrupted(unique)
    }

    /// Makes a request without a session, for tests of handlers.
    pub fn detached(uid: u32, gid: u32, pid: u32) -> Request {
        Request { unique: 0, uid, gid, pid, channel: Arc::new(Channel::new(Arc::new(Nowhere(None)))) }
    }
}

/// Reply to a request that is answered later, from any thread. Answers exactly once: dropping it without an answer
/// sends `EIO`.
pub struct Parked {
    channel: Arc<Channel>,
    unique: u64,
    answered: bool,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parked({})", self.unique)
    }
}

impl Parked {
    pub(crate) fn new(channel: Arc<Channel>, unique: u64) -> Parked {
        Parked { channel, unique, answered: false }
    }

    /// Answers with success.
    pub fn done(mut self) {
        self.answer(None);
    }

    /// Answers with an error.
    pub fn error(mut self, errno: Errno) {
        self.answer(Some(errno));
    }

    /// Answers with bytes made elsewhere, header included. Returns false if nobody waits for them any more.
    pub fn bytes(mut self, head: &[u8], body: &[u8]) -> bool {
        self.answered = true;
        self.channel.pass(self.unique, &[io::IoSlice::new(head), io::IoSlice::new(body)])
    }

    /// Returns whether the caller got a signal.
    pub fn interrupted(&self) -> bool {
        self.channel.interrupts.interrupted(self.unique)
    }

    /// Returns whether the session has ended, so that nobody waits for an answer.
    pub fn is_over(&self) -> bool {
        self.channel.interrupts.is_closed()
    }

    /// Runs `call` at most once: when the interrupt comes, in the session's thread that received it, or now if it has
    /// come. Drops `call` unrun when the request is answered. `call` must not wait.
    pub fn on_interrupt(&self, call: OnInterrupt) {
        self.channel.interrupts.on_interrupt(self.unique, call);
    }

    /// Returns the kernel's number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Makes a reply without a session, for tests: the answer comes out of the receiver. The returned function raises
    /// the interrupt.
    pub fn detached(unique: u64) -> (Parked, Receiver<Result<(), Errno>>, impl Fn() + Send + Sync) {
        let (sender, receiver) = mpsc::channel();
        let channel = Arc::new(Channel::new(Arc::new(Nowhere(Some(sender)))));
        channel.interrupts.begin(Arrived { unique, node: 0, caller: 0, attributes: false, capabilities: false });
        let interrupts = Arc::clone(&channel);
        (Parked::new(channel, unique), receiver, move || _ = interrupts.interrupts.interrupt(unique))
    }

    fn answer(&mut self, error: Option<Errno>) {
        self.answered = true;
        // Ignore whether anybody still waits. A lock granted to a caller that is gone is released by the kernel's flush
        // or release for it.
        match error {
            None => self.channel.ok(self.unique, &[]),
            Some(errno) => self.channel.error(self.unique, errno),
        };
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.answered {
            tracing::error!(unique = self.unique, "a request was dropped without an answer: it fails with EIO");
            self.answer(Some(Errno::EIO));
        }
    }
}

/// Transport of detached requests: passes the outcome of replies to a test.
struct Nowhere(Option<mpsc::Sender<Result<(), Errno>>>);

impl Transport for Nowhere {
    fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn send(&self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        let header = parts.first().and_then(|part| crate::abi::take::<crate::abi::OutHeader>(part));
        if let (Some(sender), Some((header, _))) = (&self.0, header) {
            // The test may have stopped listening.
            _ = sender.send(if header.error == 0 { Ok(()) } else { Err(Errno(-header.error)) });
        }
        Ok(())
    }

    fn backing_open(&self, _file: std::os::fd::BorrowedFd<'_>) -> io::Result<crate::BackingId> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn backing_close(&self, _id: crate::BackingId) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_parked_reply_answers_once_and_from_another_thread() {
        let (parked, answer, _) = Parked::detached(2);
        std::thread::spawn(move || parked.done()).join().unwrap();
        assert_eq!(answer.recv(), Ok(Ok(())));
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn a_parked_reply_that_is_dropped_answers_eio() {
        let (parked, answer, _) = Parked::detached(2);
        drop(parked);
        assert_eq!(answer.recv(), Ok(Err(Errno::EIO)));
    }

    #[test]
    fn an_interrupt_reaches_a_parked_reply() {
        let (parked, answer, interrupt) = Parked::detached(2);
        let called = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&called);
        parked.on_interrupt(Box::new(move || flag.store(true, Ordering::Relaxed)));
        assert!(!parked.interrupted());
        interrupt();
        assert!(parked.interrupted() && called.load(Ordering::Relaxed));
        parked.error(Errno::EINTR);
        assert_eq!(answer.recv(), Ok(Err(Errno::EINTR)));
    }
}
