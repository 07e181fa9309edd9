//! The library with an agent of another version.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recvmsg, send, sendmsg, socket_with, sockopt,
};
use testkit::{PATIENCE, ProcessGuard};
use window::attach::{MESSAGE_BYTES, MessageKind, VERSION, WindowMessage, page};
use window::client::Registration;
use window::limits::AGENT_ANSWERS_WITHIN;
use window::{Mapping, Memory, WindowMedium};

/// Bytes of the file that the programs copy.
const BYTES: usize = 256 << 10;

/// Shell program that opens three files for writing and runs a program that copies by many small reads and writes.
/// Prints the descriptors that the shell has afterwards.
const PROGRAM: &str = "for n in 1 2 3; do echo part $n > part$n; done; dd bs=512 if=input of=copy status=none; \
                       cat part1 part2 part3; cd /proc/$$/fd; echo *";

/// Number of processes of [`PROGRAM`] that open a file for writing.
const PROCESSES: usize = 2;

/// Answer of an agent of another version to the first request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Refusal in the format of its own version, as real agents do.
    Refusal(u16),
    /// Refusal in our format, as an agent that speaks several versions would send it.
    KnownRefusal,
    /// Acceptance, with the message of one version and the page of another.
    Welcome { words: u16, page: u16 },
    /// Refusal in a message that is longer than ours.
    Long,
}

const ANSWERS: [Answer; 8] = [
    Answer::Refusal(VERSION + 1),
    Answer::Refusal(VERSION - 1),
    Answer::Refusal(u16::MAX),
    Answer::KnownRefusal,
    Answer::Welcome { words: VERSION + 1, page: VERSION + 1 },
    Answer::Welcome { words: VERSION - 1, page: VERSION },
    Answer::Welcome { words: VERSION, page: VERSION + 1 },
    Answer::Long,
];

fn in_version(message: WindowMessage, version: u16) -> Vec<u8> {
    let mut bytes = message.to_bytes();
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    bytes.to_vec()
}

fn page_of(version: u16) -> Mapping {
    let memory = memfd_create("opens", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, page::BYTES as u64).unwrap();
    let opens = Mapping::of(File::from(memory), WindowMedium::Volatile).unwrap();
    let ours = u64::from(VERSION) << 32;
    opens.word(0).store(page::identification() - ours + (u64::from(version) << 32), Release);
    opens
}

fn send_with(connection: &OwnedFd, bytes: &[u8], page: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [page];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(connection, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Waits for a message. Returns `None` at the end of the connection.
fn question(connection: &OwnedFd) -> Option<MessageKind> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut nothing: [MaybeUninit<u8>; 0] = [];
    let mut control = RecvAncillaryBuffer::new(&mut nothing);
    let got = recvmsg(connection, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())
        .expect("the connection stays");
    (got.bytes > 0).then(|| WindowMessage::from_bytes(&bytes).unwrap().kind)
}

/// Answers a program's first request. The program must send no second one, though the connection stays open.
fn answer(connection: &OwnedFd, answer: Answer) {
    sockopt::set_socket_timeout(connection, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
    assert_eq!(question(connection), Some(MessageKind::Hello));
    let refused = WindowMessage { status: libc::EPROTO, ..WindowMessage::new(MessageKind::Refused) };
    let say = |bytes: &[u8]| assert_eq!(send(connection, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    match answer {
        Answer::Refusal(version) => say(&in_version(refused, version)),
        Answer::KnownRefusal => say(&refused.to_bytes()),
        Answer::Welcome { words, page } => {
            send_with(connection, &in_version(WindowMessage::new(MessageKind::Welcome), words), page_of(page).as_fd());
        }
        Answer::Long => {
            let mut bytes = in_version(refused, VERSION + 1);
            bytes.resize(2 * MESSAGE_BYTES, 1);
            say(&bytes);
        }
    }
    assert_eq!(question(connection), None, "it asked more");
}

/// Runs `act` while an agent at `path` answers. Returns the result and the number of connections to that agent.
fn beside<T>(path: &Path, says: Answer, act: impl FnOnce() -> T) -> (T, usize) {
    let listening = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let address = SocketAddrUnix::new(path).unwrap();
    bind(&listening, &address).unwrap();
    listen(&listening, 8).unwrap();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| {
            for connections in 0.. {
                let connection = accept_with(&listening, SocketFlags::CLOEXEC).unwrap();
                if ends.load(Acquire) {
                    return connections;
                }
                answer(&connection, says);
            }
            unreachable!()
        });
        let done = act();
        ends.store(true, Release);
        // A last connection, so that the agent does not wait for another client.
        let last = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&last, &address).unwrap();
        (done, agent.join().unwrap())
    })
}

/// Runs [`PROGRAM`] in a new directory below `tree`.
fn run(tree: &Path, socket: Option<&Path>, input: &[u8]) -> (Output, Vec<u8>) {
    let directory = tempfile::tempdir_in(tree).unwrap();
    std::fs::write(directory.path().join("input"), input).unwrap();
    let library = std::env::current_exe().unwrap().with_file_name("libforebay_preload.so");
    let mut command = Command::new("sh");
    command.args(["-ec", PROGRAM]).current_dir(directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(socket) = socket {
        command.env("LD_PRELOAD", library).env("FOREBAY_WINDOW_SOCKET", socket);
    }
    let mut program = ProcessGuard::spawn(&mut command);
    let status = program.wait(PATIENCE);
    let said = |stream: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let stdout = said(program.child().stdout.as_mut().unwrap());
    let stderr = said(program.child().stderr.as_mut().unwrap());
    (Output { status, stdout, stderr }, std::fs::read(directory.path().join("copy")).unwrap())
}

#[test]
fn programs_beside_an_agent_of_another_version_go_on_through_the_kernel_and_ask_once() {
    let tree = tempfile::tempdir().unwrap();
    let input: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let (without, _) = run(tree.path(), None, &input);
    assert!(without.stdout.starts_with(b"part 1\npart 2\npart 3\n"), "{without:?}");
    for (number, says) in ANSWERS.into_iter().enumerate() {
        let socket = tree.path().join(format!("socket{number}"));
        let began = Instant::now();
        let ((with, copy), connections) = beside(&socket, says, || run(tree.path(), Some(&socket), &input));
        assert!(began.elapsed() < AGENT_ANSWERS_WITHIN, "{says:?}: it waited");
        assert_eq!(with, without, "{says:?}: status, output and descriptors are what they are without the library");
        assert_eq!(connections, PROCESSES, "{says:?}");
        assert!(copy == input, "{says:?}: the copy is another");
    }
}

#[test]
fn an_agent_of_another_version_is_told_as_eproto() {
    let tree = tempfile::tempdir().unwrap();
    for (number, says) in ANSWERS.into_iter().enumerate() {
        let socket = tree.path().join(format!("socket{number}"));
        let connect = || Registration::connect(socket.as_os_str().as_encoded_bytes()).map(drop);
        let (outcome, connections) = beside(&socket, says, connect);
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EPROTO), "{says:?}");
        assert_eq!(connections, 1);
    }
}
