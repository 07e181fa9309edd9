//! An agent that answers late: programs continue without it, and never take an answer for another request's.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use testkit::{PATIENCE, wait_until};
use window::attach::{MESSAGE_BYTES, MessageKind, WindowMessage, page};
use window::client::Registration;
use window::limits::{AGENT_ANSWERS_WITHIN, AGENT_IS_THERE_WITHIN};
use window::{Mapping, Memory, WindowMedium};

/// Time that counts as "at once" on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(AGENT_IS_THERE_WITHIN.as_millis() as u64 / 2);

/// Agent's end of a connection.
struct End(OwnedFd);

impl End {
    fn question(&self, flags: RecvFlags) -> Result<MessageKind, Errno> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut nothing: [MaybeUninit<u8>; 0] = [];
        let mut control = RecvAncillaryBuffer::new(&mut nothing);
        recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        Ok(WindowMessage::from_bytes(&bytes).unwrap().kind)
    }

    fn answer(&self, message: &WindowMessage, descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(&self.0, &[IoSlice::new(&message.to_bytes())], &mut control, SendFlags::NOSIGNAL).unwrap();
    }
}

fn socket(flags: SocketFlags) -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None).unwrap()
}

fn listening(path: &Path) -> OwnedFd {
    let socket = socket(SocketFlags::empty());
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 1).unwrap();
    socket
}

fn connected(path: &Path) -> io::Result<Registration> {
    Registration::connect(path.as_os_str().as_encoded_bytes())
}

/// Answers a program's first request.
fn welcome(end: &End) {
    assert_eq!(end.question(RecvFlags::empty()), Ok(MessageKind::Hello));
    let memory = memfd_create("opens", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, page::BYTES as u64).unwrap();
    let opens = Mapping::of(File::from(memory), WindowMedium::Volatile).unwrap();
    opens.word(0).store(page::identification(), std::sync::atomic::Ordering::Release);
    end.answer(&WindowMessage::new(MessageKind::Welcome), &[opens.as_fd()]);
}

fn registered(dir: &Path) -> (End, Registration) {
    let path = dir.join("socket");
    let socket = listening(&path);
    thread::scope(|scope| {
        let program = scope.spawn(|| connected(&path).unwrap());
        let end = End(accept(&socket).unwrap());
        welcome(&end);
        (end, program.join().unwrap())
    })
}

/// Opens connections until there is room for no other.
fn crowd(path: &Path) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(path).unwrap();
    let waiting: Vec<OwnedFd> = std::iter::repeat_with(|| socket(SocketFlags::NONBLOCK))
        .take(100)
        .take_while(|socket| connect(socket, &address).is_ok())
        .collect();
    assert!(waiting.len() < 100);
    waiting
}

#[test] // S40
fn who_is_not_answered_in_time_asks_nothing_more_until_the_late_answer_has_come() {
    let tree = tempfile::tempdir().unwrap();
    let (end, registration) = registered(tree.path());
    assert!(!registration.is_answered());
    let began = Instant::now();
    assert!(!registration.is_answered());
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(end.question(RecvFlags::empty()), Ok(MessageKind::Here));
    assert_eq!(end.question(RecvFlags::DONTWAIT), Err(Errno::AGAIN), "asked again");

    end.answer(&WindowMessage::new(MessageKind::Here), &[]);
    thread::scope(|scope| {
        let asks = scope.spawn(|| registration.is_answered());
        assert_eq!(end.question(RecvFlags::empty()), Ok(MessageKind::Here));
        end.answer(&WindowMessage::new(MessageKind::Here), &[]);
        assert!(asks.join().unwrap());
    });

    drop(end);
    assert!(!registration.is_answered(), "the agent has gone");
}

#[test] // S40
fn a_connection_that_nobody_accepts_is_given_up() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("socket");
    let _listening = listening(&path);
    let _crowd = crowd(&path);
    let (told, tells) = std::sync::mpsc::channel();
    thread::spawn(move || told.send(connected(&path).map(drop)));
    let given_up = tells.recv_timeout(AGENT_ANSWERS_WITHIN * 3).expect("it waits").unwrap_err();
    assert_eq!(given_up.kind(), io::ErrorKind::WouldBlock);
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, SeqCst);
}

/// Runs a handler without `SA_RESTART` in a thread that waits in a system call.
fn interrupt(thread: i32, call: libc::c_long) {
    // SAFETY: zeroes are an action without flags and mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    // SAFETY: an action of the system's own layout, whose handler touches only an atomic number.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
    let waits = || {
        let now = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
        now.split(' ').next() == Some(&call.to_string())
    };
    for _ in 0..3 {
        wait_until("a thread in the system call", PATIENCE, waits);
        let before = HANDLED.load(SeqCst);
        // SAFETY: no memory is involved; the thread is one of ours, and has not ended.
        assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) }, 0);
        wait_until("the handler", PATIENCE, || HANDLED.load(SeqCst) > before);
    }
    wait_until("a thread in the system call again", PATIENCE, waits);
}

#[test] // S40
fn handlers_of_signals_end_neither_the_connection_nor_the_wait_for_an_answer() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("socket");
    let listening = listening(&path);
    let crowd = crowd(&path);
    let (told, tells) = std::sync::mpsc::channel();
    let program = thread::spawn(move || {
        told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let registration = connected(&path)?;
        Ok::<_, io::Error>(registration.is_answered())
    });
    let thread = tells.recv().unwrap();
    interrupt(thread, libc::SYS_connect);
    crowd.iter().for_each(|_| drop(accept(&listening).unwrap()));
    let end = End(accept(&listening).unwrap());
    interrupt(thread, libc::SYS_ppoll);
    welcome(&end);
    assert_eq!(end.question(RecvFlags::empty()), Ok(MessageKind::Here));
    end.answer(&WindowMessage::new(MessageKind::Here), &[]);
    assert!(program.join().unwrap().unwrap());
}
