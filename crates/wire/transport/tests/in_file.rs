//! Answers whose data lies in a file: the client gets the same bytes, whatever the file system and the link.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{BOUND, anonymous, any_port, client_of};
use transport::{Address, Call, InFile, Link, Server, Service, Targets};
use wire::Message;

/// A service that answers reads from a file without copying.
struct Lent {
    file: Arc<OwnedFd>,
    size: usize,
    /// Number of answers that promise more bytes than the file has.
    lies: AtomicUsize,
    asked: Arc<AtomicUsize>,
}

impl Service for Lent {
    type Session = ();

    fn begin(&self, _: &[u8; 16], _store: &str, _agent: &str) -> Result<(), (i32, String)> {
        Ok(())
    }

    fn targets(&self, _session: &(), _message: &Message) -> Option<Targets> {
        None
    }

    fn remembers(&self, _message: &Message) -> bool {
        false
    }

    fn in_file(&self, _session: &(), message: &Message) -> Option<(Message, InFile)> {
        let Message::Read { offset, len, .. } = *message else { return None };
        self.asked.fetch_add(1, Ordering::SeqCst);
        let lie = self.lies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lies| lies.checked_sub(1)).is_ok();
        let there = if lie { usize::MAX } else { self.size.saturating_sub(offset as usize) };
        let bytes = there.min(len as usize);
        Some((Message::Bytes {}, InFile { file: Arc::clone(&self.file), offset, bytes }))
    }

    fn handle(&self, _session: &(), message: Message, _data: &[u8], out: &mut Vec<u8>) -> Message {
        match message {
            Message::Ping {} => Message::Done {},
            Message::Read { offset, len, .. } => {
                out.resize(len as usize, 0);
                let got = rustix::io::pread(&self.file, &mut out[..], offset).unwrap();
                out.truncate(got);
                Message::Bytes {}
            }
            other => panic!("{} is not answered from a file", other.name()),
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}

/// Serves a file of `size` bytes. Returns the server and a counter of requests.
fn lend(file: &mut File, size: usize, lies: usize, at: &[Address]) -> (Server, Arc<AtomicUsize>) {
    file.write_all(&bytes(size)).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let file = Arc::new(OwnedFd::from(file.try_clone().unwrap()));
    let lent = Lent { file, size, lies: AtomicUsize::new(lies), asked: Arc::clone(&asked) };
    (Server::start(lent, at, anonymous()).unwrap(), asked)
}

fn read(client: &transport::Client, offset: u64, len: usize) -> Vec<u8> {
    let message = Message::Read { handle: 1, offset, len: len as u32 };
    let mut into = vec![0xee; len];
    let call = Call { into: &mut into, within: Some(BOUND), ..Call::new(&message) };
    let got = client.call(call).unwrap().data_bytes;
    into.truncate(got);
    into
}

#[test] // S47
fn what_lies_in_a_file_is_sent_as_it_lies_there() {
    let dir = tempfile::tempdir().unwrap();
    let size = 3 << 20;
    // On another file system, since not all support sendfile(2).
    let other = tempfile::tempfile_in("/dev/shm").unwrap();
    for mut file in [tempfile::tempfile().unwrap(), other] {
        let socket = Address::Unix(dir.path().join("socket"));
        let (server, asked) = lend(&mut file, size, 0, &[any_port(), socket]);
        let whole = bytes(size);
        for address in server.addresses() {
            let client = client_of(address);
            for (offset, len) in [(0, 1 << 20), (17, 1 << 20), (4095, 100_000), (size - 5000, 1 << 20), (7, 1)] {
                let found = read(&client, offset as u64, len);
                assert!(found == whole[offset..size.min(offset + len)], "{len} bytes at {offset} by {address}");
            }
        }
        assert_eq!(asked.load(Ordering::SeqCst), 10);
    }
}

#[test] // S47
fn an_answer_that_breaks_off_in_a_file_costs_a_connection_and_no_byte() {
    let size = 100_000;
    let (server, asked) = lend(&mut tempfile::tempfile().unwrap(), size, usize::MAX, &[any_port()]);
    let client = client_of(&server.addresses()[0]);
    assert!(read(&client, 0, 1 << 20) == bytes(size));
    assert_eq!(asked.load(Ordering::SeqCst), 1, "then it is answered without");
}

#[test]
fn a_file_that_cannot_be_lent_is_copied() {
    // Text that the kernel makes when it is read has no pages to send.
    let made = File::open("/proc/self/stat").unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(rustix::fs::sendfile(&ours, &made, Some(&mut 0), 10).is_err(), "then the way round it is not taken");
    let mut link: Box<dyn Link> = Box::new(ours);
    let sent = link.send_file(made.as_fd(), 0, 10).unwrap();
    let mut got = vec![0; sent];
    (&theirs).read_exact(&mut got).unwrap();
    assert!(sent > 0 && got.starts_with(std::process::id().to_string().as_bytes()), "{got:?}");
}
