//! Tests of the counted reasons for refused windows.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, sendmsg,
    socket_with,
};
use window::attach::{MessageKind, WindowMessage};
use window::limits::CAPACITY_MIN;

use super::*;

/// Says hello as a library of another version does.
fn stranger(stand: &Stand) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(stand.agent.window_socket().unwrap()).unwrap()).unwrap();
    let mut hello = WindowMessage::new(MessageKind::Hello).to_bytes();
    hello[4] ^= 0x40;
    sendmsg(&socket, &[IoSlice::new(&hello)], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).unwrap();
    socket
}

#[test] // S37
fn why_there_was_no_window_is_counted() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::with_budget(tree.path(), &[], 2 * CAPACITY_MIN);
    let status = || stand.agent.window_status().unwrap();
    let attach = |open: &OpenFile| stand.control(open, Control::new(Command::Attach, 0)).err();
    let (first, second) = (stand.windowed("first"), stand.windowed("second"));
    assert_eq!((attach(&first), status().without_memory), (None, 0));
    assert_eq!(
        (attach(&second), status().without_memory),
        (Some(libc::EAGAIN), 1),
        "the first leaves half of the rest"
    );
    assert_eq!((attach(&second), status().without_memory), (Some(libc::EAGAIN), 1), "and is told of once");
    drop(first);
    std::fs::remove_dir_all(stand.agent.window_socket().unwrap().with_file_name("files")).unwrap();
    let third = stand.windowed("third");
    assert_eq!((status().without_place, status().without_place_errno), (0, 0));
    assert_eq!(attach(&third), Some(libc::ENOENT));
    assert_eq!((status().without_place, status().without_place_errno), (1, libc::ENOENT));
    let _stranger = stranger(&stand);
    wait_until("a program of another version", PATIENCE, || status().without_library == 1);
    assert_eq!((status().without_memory, status().without_place, status().attached), (1, 1, 1));
}
