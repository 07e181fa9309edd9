//! Test of a process that reused another one's process id.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use window::attach::{MESSAGE_BYTES, MessageKind, WindowMessage, page};
use window::{Mapping, Memory, WindowMedium};

use super::fork::{end, ended, process};
use super::*;

/// Starts a process with the id `pid`, if possible: the kernel assigns ids in order.
fn with_number(pid: i32) -> Option<i32> {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
    let another = process(libc::CLONE_FILES, &|| None);
    if another != pid {
        end(another);
        return None;
    }
    Some(another)
}

/// Receives the page of the process that said hello on `socket`.
fn page_of(socket: &OwnedFd) -> Mapping {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    assert_eq!(WindowMessage::from_bytes(&bytes).unwrap().kind, MessageKind::Welcome);
    let page = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    });
    Mapping::handed(page.unwrap(), WindowMedium::Volatile).unwrap()
}

#[test] // S39
fn a_process_with_the_number_of_one_that_registered_is_another_process() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can choose process ids
    }
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let path = stand.agent.window_socket().unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let hello = WindowMessage::new(MessageKind::Hello).to_bytes();
    let say_hello = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
        connect(&socket, &address).ok()?;
        let mut nothing = SendAncillaryBuffer::default();
        sendmsg(&socket, &[IoSlice::new(&hello)], &mut nothing, SendFlags::NOSIGNAL).ok()?;
        // Waits until the agent has identified the process.
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).ok()?;
        Some(socket)
    };
    wait_until("a process with a number that was used", PATIENCE, || {
        let registered = process(libc::CLONE_FILES, &|| {
            use std::os::fd::IntoRawFd;
            Some(say_hello().map_or(-1, IntoRawFd::into_raw_fd))
        });
        let socket = ended(registered);
        assert!(socket > 2, "it could not connect");
        // SAFETY: opened by the child in the table of descriptors that we share, and by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let page = page_of(&socket);
        let Some(other) = with_number(registered) else { return false };
        page.word(page::thread_at(0)).store(other as u64, std::sync::atomic::Ordering::Release);
        let windows = stand.agent.windows.get().unwrap();
        let taken_for_it = (stand.agent.announced(other as u32).is_some(), windows.service.process_of(other as u32));
        end(other);
        assert_eq!(taken_for_it, (false, None));
        true
    });
}
