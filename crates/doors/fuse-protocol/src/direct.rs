//! File system for the kernel of another machine. The thread that brings a message runs it and gets the answer, except
//! for locks that are waited for.
//!
//! D1. The caller's process id has no meaning here and is not given to the file system.
//! D2. There is no passthrough: backing files are descriptors of one machine.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{OutHeader, take};
use crate::decode::is_head_of_write;
use crate::dispatch::{Dispatcher, Handler, Scratch};
use crate::reply::Channel;
use crate::session::answer_init;
use crate::transport::Transport;
use crate::{BackingId, Envelope, Filesystem, Given, Notifier, Request};

/// Receiver of messages that the kernel did not wait for: late answers, and notifications, whose number is 0.
pub trait Events: Send + Sync + 'static {
    /// Handles one whole message. An error is returned to its sender.
    fn tell(&self, message: Vec<u8>) -> io::Result<()>;
}

/// File system and the kernel of another machine.
pub struct Direct {
    server: Dispatcher,
    kernel: u64,
}

/// Answer to the request that a thread runs. Two kernels use the same numbers, so an answer for another kernel does not
/// match.
struct Capture {
    kernel: u64,
    unique: u64,
    head: Vec<u8>,
    body: Vec<u8>,
}

thread_local! {
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Counter that numbers the kernels of a process.
static KERNELS: AtomicU64 = AtomicU64::new(0);

/// Largest answer that is returned whole in the head, bytes.
const HEAD_BYTES: usize = 4096;

impl Direct {
    /// Negotiates with the kernel from its INIT. Returns also the answer to INIT.
    pub fn new(fs: Arc<dyn Filesystem>, events: Arc<dyn Events>, init: &[u8]) -> io::Result<(Direct, Vec<u8>)> {
        let refused = || io::Error::from_raw_os_error(libc::EPROTO);
        let kernel = KERNELS.fetch_add(1, Ordering::Relaxed);
        let channel = Arc::new(Channel::new(Arc::new(Outlet { kernel, events })));
        let handler = Handler::Files(fs);
        let unique = Envelope::of(init).ok_or_else(refused)?.unique;
        let mut agreed = Ok(None);
        let (answer, _) = capture((kernel, unique), Vec::new(), || agreed = answer_init(&handler, &channel, init));
        let agreed = agreed?.ok_or_else(refused)?;
        Ok((Direct { server: Dispatcher { handler, channel, agreed, foreign: true }, kernel }, answer))
    }

    /// Returns a sender of notifications, usable from any thread.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.server.channel.transport))
    }

    /// Runs a message that begins in `head` and continues in `data`. Data of a write is used from where it lies; other
    /// messages are joined first. Returns the answer: all of it, or only its header with the rest in `out`. Empty if
    /// there is no answer, or not yet.
    pub fn run(&self, head: &[u8], data: &[u8], out: &mut Vec<u8>) -> Vec<u8> {
        let joined;
        let (message, apart) = if data.is_empty() || is_head_of_write(head) {
            (head, data)
        } else {
            joined = [head, data].concat();
            (&joined[..], &[][..])
        };
        let unique = Envelope::of(message).map_or(0, |envelope| envelope.unique);
        let (head, body) = capture((self.kernel, unique), std::mem::take(out), || {
            self.server.arrived(message);
            SCRATCH.with_borrow_mut(|scratch| self.server.serve(message, apart, scratch));
        });
        *out = body;
        head
    }

    /// Returns whether a request has run and is not answered, because it waits for a lock.
    pub fn is_waiting(&self, unique: u64) -> bool {
        self.server.channel.interrupts.is_running(unique)
    }

    /// Takes back what an answer gave the kernel that never received it.
    pub fn take_back(&self, given: &Given) {
        let Handler::Files(fs) = &self.server.handler else { return };
        if let Some((node, handle)) = given.opened {
            let request = Request { unique: 0, uid: 0, gid: 0, pid: 0, channel: Arc::clone(&self.server.channel) };
            match given.directory {
                true => fs.releasedir(&request, node, handle),
                false => fs.release(&request, node, handle, 0, None),
            }
        }
        if given.looked_up != 0 {
            fs.forget(given.looked_up, 1);
        }
    }

    /// Interrupts all waiting requests and closes all open files, because the kernel is gone. No call may follow.
    pub fn close(&self) {
        self.server.channel.interrupts.close();
        self.server.handler.destroy();
    }
}

/// Runs `work` and captures the answer to `unique` meanwhile; `body` is the buffer for a large one.
fn capture((kernel, unique): (u64, u64), mut body: Vec<u8>, work: impl FnOnce()) -> (Vec<u8>, Vec<u8>) {
    body.clear();
    CAPTURE.set(Some(Capture { kernel, unique, head: Vec::new(), body }));
    work();
    CAPTURE.take().map_or_else(Default::default, |capture| (capture.head, capture.body))
}

impl Capture {
    fn put(&mut self, parts: &[IoSlice<'_>]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (head, rest) = if bytes <= HEAD_BYTES { (parts, &parts[..0]) } else { parts.split_at(1) };
        head.iter().for_each(|part| self.head.extend_from_slice(part));
        rest.iter().for_each(|part| self.body.extend_from_slice(part));
    }
}

/// Transport that returns answers to the thread that runs the request and passes other messages on as events.
struct Outlet {
    kernel: u64,
    events: Arc<dyn Events>,
}

impl Transport for Outlet {
    fn receive(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let unique = parts.first().and_then(|part| take::<OutHeader>(part)).map_or(0, |(header, _)| header.unique);
        let caught = CAPTURE.with_borrow_mut(|capture| match capture {
            Some(capture)
                if unique != 0
                    && (capture.kernel, capture.unique) == (self.kernel, unique)
                    && capture.head.is_empty() =>
            {
                capture.put(parts);
                true
            }
            _ => false,
        });
        if caught { Ok(()) } else { self.events.tell(parts.iter().flat_map(|part| part.iter().copied()).collect()) }
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> io::Result<BackingId> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn backing_close(&self, _: BackingId) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::abi::{GetattrIn, InHeader, InitCompatIn, SetxattrCompatIn, WriteIn, bytes_of};
    use crate::{AttrReply, Errno, Handle, InitReply, KernelConfig, LockArgs, NodeId, Parked, WriteFlags};

    struct Asked(AtomicU32);

    impl Filesystem for Asked {
        fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
            Ok(InitReply::default())
        }

        fn getattr(&self, req: &Request, _: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
            self.0.store(req.pid, Ordering::Relaxed);
            Err(Errno::EACCES)
        }
    }

    struct Nobody;

    impl Events for Nobody {
        fn tell(&self, _: Vec<u8>) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::ENOBUFS))
        }
    }

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader { len: 40 + body.len() as u32, opcode, unique: 8, pid: 4711, ..InHeader::default() };
        [bytes_of(&header), body].concat()
    }

    #[test] // S49
    fn a_process_of_another_machine_is_not_told_and_the_answer_comes_back_to_who_asked() {
        let fs = Arc::new(Asked(AtomicU32::new(1)));
        let init = InitCompatIn { major: 7, minor: 45, max_readahead: 0, flags: u32::MAX };
        let (direct, answer) = Direct::new(fs.clone(), Arc::new(Nobody), &message(26, bytes_of(&init))).unwrap();
        assert_eq!(answer.len(), 16 + 64);
        let mut out = Vec::new();
        let answer = direct.run(&message(3, bytes_of(&GetattrIn::default())), &[], &mut out);
        let (header, _) = take::<OutHeader>(&answer).unwrap();
        assert_eq!((header.unique, header.error, out.len()), (8, -libc::EACCES, 0));
        assert_eq!(fs.0.load(Ordering::Relaxed), 0);
        assert!(direct.run(&message(2, &[0; 8]), &[], &mut out).is_empty(), "a forget has no answer");
        assert!(Direct::new(fs, Arc::new(Nobody), &message(3, &[])).is_err(), "no INIT");
    }

    /// Tells what is written, where that lies, and the value of an attribute.
    #[derive(Default)]
    struct Writing(parking_lot::Mutex<Vec<(usize, Vec<u8>)>>);

    impl Filesystem for Writing {
        fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
            Ok(InitReply::default())
        }

        fn write(&self, _: &Request, _: NodeId, _: Handle, _: u64, data: &[u8], _: WriteFlags) -> Result<usize, Errno> {
            self.0.lock().push((data.as_ptr().addr(), data.to_vec()));
            Ok(data.len())
        }

        fn setxattr(&self, _: &Request, _: NodeId, _: &CStr, value: &[u8], _: i32, _: bool) -> Result<(), Errno> {
            self.0.lock().push((0, value.to_vec()));
            Ok(())
        }
    }

    #[test]
    fn the_data_of_a_write_is_used_where_it_lies_and_any_other_message_joined() {
        let (fs, init) = (Arc::new(Writing::default()), InitCompatIn { major: 7, minor: 45, ..Default::default() });
        let (direct, _) = Direct::new(fs.clone(), Arc::new(Nobody), &message(26, bytes_of(&init))).unwrap();
        let runs = |message: &[u8], cut: usize| {
            let (head, data) = message.split_at(cut);
            let answer = direct.run(head, data, &mut Vec::new());
            assert_eq!(take::<OutHeader>(&answer).unwrap().0.error, 0);
            let (at, bytes) = fs.0.lock().pop().unwrap();
            (at == data.as_ptr().addr(), bytes)
        };
        let body = WriteIn { size: 4, ..WriteIn::default() };
        let write = message(16, &[bytes_of(&body), &b"data"[..]].concat());
        assert_eq!(runs(&write, 80), (true, b"data".to_vec()));
        assert_eq!(runs(&write, 82), (false, b"data".to_vec()));
        let body = SetxattrCompatIn { size: 5, flags: 0 };
        let attribute = message(21, &[bytes_of(&body), b"user.name\0", b"value"].concat());
        assert_eq!(runs(&attribute, 52), (false, b"value".to_vec()));
    }

    /// Whoever waits for a lock is answered while somebody else is asked something.
    #[derive(Default)]
    struct Granting(parking_lot::Mutex<Option<Parked>>);

    impl Filesystem for Granting {
        fn init(&self, _: &KernelConfig) -> Result<InitReply, Errno> {
            Ok(InitReply::default())
        }

        fn setlk(&self, _: &Request, _: NodeId, _: Handle, _: LockArgs, _: bool, reply: Parked) {
            *self.0.lock() = Some(reply);
        }

        fn getattr(&self, _: &Request, _: NodeId, _: Option<Handle>) -> Result<AttrReply, Errno> {
            self.0.lock().take().expect("somebody waits").done();
            Err(Errno::EACCES)
        }
    }

    #[derive(Default)]
    struct Told(parking_lot::Mutex<Vec<Vec<u8>>>);

    impl Events for Told {
        fn tell(&self, message: Vec<u8>) -> io::Result<()> {
            self.0.lock().push(message);
            Ok(())
        }
    }

    #[test]
    fn an_answer_to_another_kernels_request_of_the_same_number_goes_there() {
        let (fs, init) = (Arc::new(Granting::default()), InitCompatIn { major: 7, minor: 45, ..Default::default() });
        let told = [(); 2].map(|()| Arc::new(Told::default()));
        let kernel = |told: &Arc<Told>| Direct::new(fs.clone(), told.clone(), &message(26, bytes_of(&init))).unwrap().0;
        let [waits, asks] = [kernel(&told[0]), kernel(&told[1])];
        let mut lock = [0; 48];
        lock[32] = libc::F_WRLCK as u8;
        let mut out = Vec::new();
        assert!(waits.run(&message(33, &lock), &[], &mut out).is_empty(), "it waits");
        let answer = asks.run(&message(3, bytes_of(&GetattrIn::default())), &[], &mut out);
        assert_eq!(take::<OutHeader>(&answer).unwrap().0.error, -libc::EACCES);
        let error_of = |message: &Vec<u8>| take::<OutHeader>(message).unwrap().0.error;
        assert_eq!(told.map(|told| told.0.lock().iter().map(error_of).collect::<Vec<_>>()), [vec![0], vec![]]);
    }
}
