//! A session over a simulated kernel, for cases that cannot be brought about at will with the real one.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::*;
use crate::abi::{self, OutHeader};
use crate::{BackingId, DirSink, Entry, Handle, InitReply, KernelConfig, NodeId, OpenReply, Request};

const PATIENCE: Duration = Duration::from_secs(30);

/// Simulated kernel: messages go in, replies come out.
struct Played {
    messages: Mutex<Receiver<Vec<u8>>>,
    replies: Mutex<Sender<(u64, i32)>>,
    /// Requests whose replies are refused, as after an abort.
    gone: Mutex<HashSet<u64>>,
}

impl Transport for Played {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let message = self.messages.lock().recv().map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        buffer[..message.len()].copy_from_slice(&message);
        Ok(message.len())
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let (header, _) = take::<OutHeader>(&parts[0]).unwrap();
        if self.gone.lock().contains(&header.unique) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        // The test may have ended.
        _ = self.replies.lock().send((header.unique, -header.error));
        Ok(())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> io::Result<BackingId> {
        Ok(BackingId(1))
    }

    fn backing_close(&self, _: BackingId) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Blocking {
    blocked: AtomicU64,
    released: AtomicU64,
    forgotten: AtomicU64,
    destroyed: AtomicU64,
    /// Count of a forget that blocks until this value changes.
    stuck: AtomicU64,
}

impl Filesystem for Blocking {
    fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
        Ok(InitReply::default())
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn readlink(&self, req: &Request, _: NodeId) -> Result<Vec<u8>, Errno> {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        while !req.interrupted() {
            std::thread::yield_now();
        }
        Err(Errno::EINTR)
    }

    fn fsync(&self, req: &Request, node: NodeId, _: Handle, _: bool) -> Result<(), Errno> {
        self.readlink(req, node).map(|_| ())
    }

    fn create(&self, _: &Request, _: NodeId, _: &OsStr, _: u32, _: u32, _: i32) -> Result<(Entry, OpenReply), Errno> {
        let zero = Duration::ZERO;
        let entry = Entry { node: 2, attr: Default::default(), entry_valid: zero, attr_valid: zero };
        Ok((entry, OpenReply { handle: 7, ..OpenReply::default() }))
    }

    fn readdir(
        &self,
        _: &Request,
        node: NodeId,
        _: Handle,
        _: u64,
        _: bool,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let zero = Duration::ZERO;
        for node in [node + 1, node + 2] {
            let entry = Entry { node, attr: Default::default(), entry_valid: zero, attr_valid: zero };
            assert!(sink.add_plus(&entry, node, OsStr::new("name")));
        }
        if node == FAILS { Err(Errno::EIO) } else { Ok(()) }
    }

    fn release(&self, _: &Request, _: NodeId, handle: Handle, _: i32, _: Option<u64>) {
        self.released.fetch_add(handle, Ordering::SeqCst);
    }

    fn forget(&self, node: NodeId, count: u64) {
        while self.stuck.load(Ordering::SeqCst) == count {
            std::thread::yield_now();
        }
        self.forgotten.fetch_add(node * 10 + count, Ordering::SeqCst);
    }
}

fn message(opcode: u32, unique: u64, body: &[&[u8]]) -> Vec<u8> {
    let len = size_of::<InHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
    let header = InHeader { len: len as u32, opcode, unique, nodeid: 1, ..Default::default() };
    [&[bytes_of(&header)], body].concat().concat()
}

fn init() -> Vec<u8> {
    let fixed = InitCompatIn { major: 7, minor: 45, max_readahead: 0, flags: 0 };
    message(26, 2, &[bytes_of(&fixed)])
}

/// Directory whose listing fails after some names.
const FAILS: NodeId = 100;

const FORGET: u32 = 2;
const READLINK: u32 = 5;
const STATFS: u32 = 17;
const FSYNC: u32 = 20;
const READDIRPLUS: u32 = 44;

fn interrupt(unique: u64) -> Vec<u8> {
    message(36, unique | 1, &[&unique.to_ne_bytes()])
}

/// Session with its thread and the ends of the simulated kernel.
struct Playing {
    fs: Arc<Blocking>,
    transport: Arc<Played>,
    kernel: Option<Sender<Vec<u8>>>,
    replies: Receiver<(u64, i32)>,
    thread: std::thread::JoinHandle<io::Result<SessionEnd>>,
}

fn session(max: usize) -> Playing {
    let ((kernel, messages), (sender, replies)) = (channel(), channel());
    let transport =
        Arc::new(Played { messages: Mutex::new(messages), replies: Mutex::new(sender), gone: Mutex::default() });
    let fs = Arc::new(Blocking::default());
    let session =
        Session::over(Arc::clone(&fs), Arc::clone(&transport) as _, ThreadCounts { readers: 1, max, wait: false });
    let thread = std::thread::spawn(move || session.run());
    kernel.send(init()).unwrap();
    assert_eq!(replies.recv_timeout(PATIENCE), Ok((2, 0)));
    Playing { fs, transport, kernel: Some(kernel), replies, thread }
}

impl Playing {
    fn send(&self, message: Vec<u8>) {
        self.kernel.as_ref().unwrap().send(message).unwrap();
    }

    fn reply(&self) -> (u64, i32) {
        self.replies.recv_timeout(PATIENCE).expect("a reply")
    }

    /// Interrupts a request that was sent, and repeats that on `EAGAIN` as the kernel does, until it is answered.
    fn interrupted(&self, unique: u64) {
        loop {
            self.send(interrupt(unique));
            match self.reply() {
                (reply, libc::EAGAIN) if reply == unique | 1 => {}
                reply => return assert_eq!(reply, (unique, libc::EINTR)),
            }
        }
    }

    /// Ends the connection as the kernel does.
    fn end(mut self) -> Arc<Blocking> {
        self.kernel = None;
        assert_eq!(self.thread.join().unwrap().unwrap(), SessionEnd::Unmounted);
        assert_eq!(self.fs.destroyed.load(Ordering::SeqCst), 1);
        self.fs
    }
}

#[test]
fn a_request_that_waits_for_a_thread_is_interrupted_while_all_handlers_block() {
    let played = session(2);
    for unique in (10..30).step_by(2) {
        played.send(message(READLINK, unique, &[]));
    }
    // In any order: running and waiting requests alike.
    for unique in [28, 10, 20, 12] {
        played.interrupted(unique);
    }
    // The end of the session interrupts the rest.
    let fs = played.end();
    assert!(fs.blocked.load(Ordering::SeqCst) >= 1);
}

#[test]
fn whatever_handlers_wait_for_others_are_served() {
    let played = session(64);
    played.fs.stuck.store(4711, Ordering::SeqCst);
    let mut unique = 10;
    let mut next = || {
        unique += 2;
        unique
    };
    let mut is_served = || {
        let unique = next();
        played.send(message(STATFS, unique, &[]));
        assert_eq!(played.reply(), (unique, libc::ENOSYS));
    };
    let stuck: [&dyn Fn(u64) -> Vec<u8>; 3] = [
        &|unique| message(READLINK, unique, &[]),
        &|unique| message(FSYNC, unique, &[bytes_of(&abi::FsyncIn::default())]),
        &|unique| message(FORGET, unique, &[&4711u64.to_ne_bytes()]),
    ];
    is_served();
    for round in 0..15 {
        for (kind, stuck) in stuck.iter().enumerate() {
            // After other requests, which find a lone reader, and immediately, when readers are ready.
            (0..round % 3).for_each(|_| is_served());
            played.send(stuck(10_000 + round * 100 + kind as u64 * 2));
            is_served();
        }
    }
    played.fs.stuck.store(0, Ordering::SeqCst);
    played.interrupted(10_000);
    let fs = played.end();
    assert_eq!(fs.blocked.load(Ordering::SeqCst), 30);
}

#[test]
fn an_interrupt_of_an_unknown_request_is_sent_back_once_for_each_time_it_comes() {
    let played = session(2);
    played.send(interrupt(100));
    assert_eq!(played.reply(), (101, libc::EAGAIN));
    played.send(interrupt(100));
    assert_eq!(played.reply(), (101, libc::EAGAIN));
    played.send(message(READLINK, 100, &[]));
    played.interrupted(100);
    played.end();
}

#[test]
fn a_create_whose_answer_nobody_takes_is_released_and_forgotten() {
    let played = session(2);
    played.transport.gone.lock().insert(40);
    played.send(message(35, 40, &[bytes_of(&abi::CreateIn::default()), b"name\0"]));
    let fs = played.end();
    assert_eq!(fs.released.load(Ordering::SeqCst), 7);
    assert_eq!(fs.forgotten.load(Ordering::SeqCst), 21);
}

#[test]
fn the_lookups_of_a_listing_that_nobody_takes_or_that_fails_are_forgotten() {
    let played = session(2);
    let list = |node: NodeId, unique| {
        let body = abi::ReadIn { size: 4096, ..Default::default() };
        let mut message = message(READDIRPLUS, unique, &[bytes_of(&body)]);
        message[16..24].copy_from_slice(&node.to_ne_bytes());
        message
    };
    played.send(list(1, 40));
    assert_eq!(played.reply(), (40, 0));
    assert_eq!(played.fs.forgotten.load(Ordering::SeqCst), 0, "the kernel has them");
    played.send(list(FAILS, 42));
    assert_eq!(played.reply(), (42, libc::EIO));
    played.transport.gone.lock().insert(44);
    played.send(list(1, 44));
    // If the session ended before a thread was free for the request, it would be interrupted and nothing listed.
    let all = 1011 + 1021 + 21 + 31;
    let begun = Instant::now();
    while played.fs.forgotten.load(Ordering::SeqCst) < all && begun.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    assert_eq!(played.end().forgotten.load(Ordering::SeqCst), all);
}

#[test]
fn what_is_unknown_is_enosys_and_what_is_not_implemented_too() {
    let played = session(2);
    played.send(message(4711, 50, &[]));
    assert_eq!(played.reply(), (50, libc::ENOSYS));
    played.send(message(17, 52, &[]));
    assert_eq!(played.reply(), (52, libc::ENOSYS));
    played.end();
}

#[test]
fn the_kernels_major_is_talked_down_and_an_old_minor_refused() {
    let ((kernel, messages), (sender, replies)) = (channel(), channel());
    let transport = Played { messages: Mutex::new(messages), replies: Mutex::new(sender), gone: Mutex::default() };
    let session = Session::over(Arc::new(Blocking::default()), Arc::new(transport), ThreadCounts::default());
    let init = |unique, major, minor| {
        let fixed = InitCompatIn { major, minor, ..Default::default() };
        message(26, unique, &[bytes_of(&fixed)])
    };
    kernel.send(init(2, 8, 0)).unwrap();
    kernel.send(init(4, 7, 12)).unwrap();
    assert!(session.run().is_err());
    assert_eq!(replies.recv_timeout(PATIENCE), Ok((2, 0)));
    assert_eq!(replies.recv_timeout(PATIENCE), Ok((4, libc::EPROTO)));
}
