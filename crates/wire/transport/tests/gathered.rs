//! Requests whose data is gathered from memory: the server gets the same bytes, in however many parts they are sent,
//! once or again.

mod support;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::{BOUND, Cable, Log, client_of, serve};
use transport::{Call, CallError, Client, Data};
use types::Gathered;
use wire::Message;

/// Bytes that are sent one part at a time.
struct Lying {
    bytes: Vec<u8>,
    part: usize,
    /// Offset from which on the bytes are missing while this is set.
    gone_from: usize,
    gone: AtomicBool,
    sent: AtomicUsize,
}

impl Lying {
    fn new(len: usize, part: usize) -> Lying {
        let bytes = (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect();
        Lying { bytes, part, gone_from: 0, gone: AtomicBool::new(false), sent: AtomicUsize::new(0) }
    }
}

impl Gathered for Lying {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn write(&self, _: BorrowedFd<'_>, _: u64) -> bool {
        false
    }

    fn send(&self, socket: BorrowedFd<'_>, skip: usize) -> std::io::Result<usize> {
        if self.gone.load(Ordering::SeqCst) && skip >= self.gone_from {
            return Err(std::io::Error::from_raw_os_error(libc::EFAULT));
        }
        let end = self.bytes.len().min(skip + self.part);
        let sent = rustix::net::send(socket, &self.bytes[skip..end], rustix::net::SendFlags::NOSIGNAL)?;
        self.sent.fetch_add(sent, Ordering::SeqCst);
        Ok(sent)
    }
}

fn write(client: &Client, offset: u64, data: &Lying) -> Result<(), CallError> {
    let message = Message::Write { handle: 1, offset };
    let call = Call { data: Data::Gathered(data), within: Some(BOUND), ..Call::new(&message) };
    client.call(call).map(|answer| assert_eq!(answer.message, Message::Written { offset }))
}

#[test]
fn what_is_sent_from_where_it_lies_arrives_whole_in_however_many_parts() {
    let log = Arc::<Log>::default();
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    let mut whole = Vec::new();
    for (len, part) in [(1, 1), (1000, 7), (100_000, 4096), (1 << 20, 1 << 20), (1 << 20, 99_991), (0, 1)] {
        let data = Lying::new(len, part);
        write(&client, whole.len() as u64, &data).unwrap();
        whole.extend_from_slice(&data.bytes);
    }
    assert!(*log.bytes.lock() == whole);
}

#[test]
fn what_is_not_there_any_more_changes_nothing_and_who_asked_is_told() {
    let log = Arc::<Log>::default();
    let server = serve(&log);
    let client = client_of(&server.addresses()[0]);
    for gone_from in [0, 1, 70_000] {
        let data = Lying { gone_from, gone: AtomicBool::new(true), ..Lying::new(100_000, 10_000) };
        assert_eq!(write(&client, 0, &data).unwrap_err().errno(), libc::EFAULT);
        assert!(log.bytes.lock().is_empty(), "half a request is none");
        data.gone.store(false, Ordering::SeqCst);
        write(&client, 0, &data).unwrap();
        assert!(*log.bytes.lock() == data.bytes);
        log.bytes.lock().clear();
    }
}

#[test]
fn what_lost_its_answer_is_sent_again_from_its_beginning() {
    let log = Arc::<Log>::default();
    let server = serve(&log);
    let cable = Cable::to(&server.addresses()[0]);
    let client = client_of(&cable.address);
    let data = Lying::new(500_000, 30_000);
    write(&client, 0, &data).unwrap();
    cable.lose_next_answer();
    write(&client, 0, &data).unwrap();
    assert_eq!((cable.lost(), data.sent.load(Ordering::SeqCst)), (1, 3 * 500_000));
    assert!(*log.bytes.lock() == data.bytes);
}
