//! Signals during the library's first exchange with the agent.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::Signal;
use testkit::{PATIENCE, ProcessGuard, wait_for, wait_until};
use window::attach::{MESSAGE_BYTES, MessageKind, WindowMessage, page};
use window::{Mapping, Memory, WindowMedium};

/// Shell program that traps a signal, with a handler that interrupts system calls, and opens a file for writing.
const PROGRAM: &str = "trap 'echo handled' USR1; : > file";

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// Makes an agent with a full backlog: no other program gets a connection before these are accepted.
fn crowded(path: &Path) -> (OwnedFd, Vec<OwnedFd>) {
    let (listening, address) = (socket(), SocketAddrUnix::new(path).unwrap());
    bind(&listening, &address).unwrap();
    listen(&listening, 1).unwrap();
    let connections = std::iter::repeat_with(socket).take(100);
    let crowd: Vec<OwnedFd> = connections.take_while(|socket| connect(socket, &address).is_ok()).collect();
    assert!(crowd.len() < 100);
    (listening, crowd)
}

fn question(connection: &OwnedFd) -> Option<MessageKind> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut nothing: [MaybeUninit<u8>; 0] = [];
    let mut control = RecvAncillaryBuffer::new(&mut nothing);
    recvmsg(connection, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT).ok()?;
    Some(WindowMessage::from_bytes(&bytes).unwrap().kind)
}

/// Answers a program's first request. Returns the page for announced opens, with none in it.
fn welcome(connection: &OwnedFd) -> Mapping {
    let memory = memfd_create("opens", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, page::BYTES as u64).unwrap();
    let opens = Mapping::of(File::from(memory), WindowMedium::Volatile).unwrap();
    opens.word(page::answer_at(0)).store(!page::WINDOWED, Release);
    opens.word(0).store(page::identification(), Release);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [opens.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = WindowMessage::new(MessageKind::Welcome).to_bytes();
    sendmsg(connection, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    opens
}

/// Sends the program the signal that it handles, then stops and continues it, while it waits in a system call.
fn disturb(program: &ProcessGuard, call: i64) {
    let told = |what: &str| std::fs::read_to_string(format!("/proc/{}/{what}", program.pid())).unwrap();
    let waits = || told("syscall").split(' ').next() == Some(&call.to_string());
    for _ in 0..3 {
        wait_until("a program in the system call", PATIENCE, waits);
        program.signal(Signal::USR1);
        program.signal(Signal::STOP);
        wait_until("a program that has stopped", PATIENCE, || told("stat").contains(") T "));
        program.signal(Signal::CONT);
    }
    wait_until("a program in the system call again", PATIENCE, waits);
}

#[test] // S40
fn a_program_that_signals_reach_and_stop_while_it_registers_has_registered_and_handles_them_then() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("socket");
    let (listening, crowd) = crowded(&path);
    let library = std::env::current_exe().unwrap().with_file_name("libforebay_preload.so");
    let mut command = Command::new("sh");
    command.args(["-c", PROGRAM]).current_dir(tree.path()).stdout(Stdio::piped());
    command.env("LD_PRELOAD", library).env("FOREBAY_WINDOW_SOCKET", &path);
    let mut program = ProcessGuard::spawn(&mut command);

    disturb(&program, libc::SYS_connect);
    crowd.iter().for_each(|_| drop(accept(&listening).unwrap()));
    let connection = wait_for("its connection", PATIENCE, || accept(&listening).ok());
    wait_until("its question", PATIENCE, || question(&connection) == Some(MessageKind::Hello));
    disturb(&program, libc::SYS_ppoll);
    assert!(!tree.path().join("file").exists(), "it goes on without an answer");
    let opens = welcome(&connection);

    assert!(program.wait(PATIENCE).success());
    let mut said = String::new();
    program.child().stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "handled\n");
    assert_eq!(opens.word(page::answer_at(0)).load(Acquire), 0, "the open was announced");
    assert!(tree.path().join("file").exists());
}
