//! Pages that a mapping has changed, on their way to a server that the tests play.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fuse_protocol::view::WriteView;
use fuse_protocol::{Envelope, Errno, Opcode, Parked, Raw};
use relay::Relay;
use testkit::TempTree;
use transport::{Address, AllowedPeers, Client, Server, Service, Targets, Who};
use wire::{Message, Piece};

const BOUND: Duration = Duration::from_secs(30);
const PAGE: usize = 4096;

const INIT: u32 = 26;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;

/// Bit of the flags of a write that the kernel makes by itself.
const CACHED: u64 = 1;

/// A server whose files hold zeros; every write that comes is told: its head and its data.
struct Zeros(Sender<(Vec<u8>, Vec<u8>)>);

impl Service for Zeros {
    type Session = ();

    fn begin(&self, _: &[u8; 16], _: &str, _: &str) -> Result<(), (i32, String)> {
        Ok(())
    }

    fn targets(&self, (): &(), _: &Message) -> Option<Targets> {
        None
    }

    fn remembers(&self, _: &Message) -> bool {
        false
    }

    fn handle(&self, (): &(), message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        match message {
            Message::Attach { .. } => done(2),
            Message::AskBootVerifier {} => Message::BootVerifierIs { boot_verifier: 1 },
            Message::Relay { head, .. } => {
                let envelope = Envelope::of(head.as_slice()).unwrap();
                match envelope.opcode {
                    Some(Opcode::Read) => out.extend([0; 3 * PAGE]),
                    Some(Opcode::Write) => self.0.send((head.as_slice().to_vec(), data.to_vec())).unwrap(),
                    _ => {}
                }
                done(envelope.unique)
            }
            _ => Message::Done {},
        }
    }
}

fn done(unique: u64) -> Message {
    let answer = [&16_u32.to_ne_bytes()[..], &0_i32.to_ne_bytes(), &unique.to_ne_bytes()].concat();
    Message::Relayed { head: Piece::new(answer).unwrap() }
}

/// The bytes of a kernel's message by root about node 7.
fn message(opcode: u32, unique: u64, numbers: &[u64], data: &[u8]) -> Vec<u8> {
    let len = (40 + 8 * numbers.len() + data.len()) as u64;
    let header = [len | u64::from(opcode) << 32, unique, 7, 0, u64::from(std::process::id())];
    let words = header.iter().chain(numbers).flat_map(|number| number.to_ne_bytes());
    words.chain(data.iter().copied()).collect()
}

fn asks(relay: &Relay, message: &[u8]) -> Result<(), Errno> {
    let envelope = Envelope::of(message).unwrap();
    let (reply, answered, _) = Parked::detached(envelope.unique);
    relay.request(&envelope, message, reply);
    answered.recv_timeout(BOUND).expect("no answer")
}

/// The next write that has come: where, what, and whether its data came apart from its head.
fn next(writes: &Receiver<(Vec<u8>, Vec<u8>)>) -> (u64, Vec<u8>, bool) {
    let (head, data) = writes.recv_timeout(BOUND).expect("no write");
    let whole = [&head[..], &data[..]].concat();
    assert_eq!(whole[..4], (whole.len() as u32).to_ne_bytes(), "the length of the message");
    let write = WriteView::parse(&whole).unwrap();
    (write.offset(), write.data().to_vec(), !data.is_empty())
}

#[test]
fn only_what_a_mapping_has_changed_is_written_and_large_parts_travel_as_data() {
    let tree = TempTree::new();
    let (tells, writes) = channel();
    let address = Address::Unix(tree.path("server"));
    let _server = Server::start(Zeros(tells), std::slice::from_ref(&address), AllowedPeers::default()).unwrap();
    let relay = Relay::new(Client::connect(address, None, Who::default(), BOUND).unwrap(), BOUND);
    relay.init(&message(INIT, 2, &[0; 2], &[])).unwrap();
    assert_eq!(asks(&relay, &message(FSYNC, 4, &[70, 0], &[])), Ok(()));
    assert_eq!(asks(&relay, &message(READ, 6, &[70, 0, 3 * PAGE as u64, 0, 0], &[])), Ok(()));
    let mut changed = vec![0; 3 * PAGE];
    changed[10] = 1;
    changed[5000..11000].fill(2);
    let write = message(WRITE, 8, &[70, 0, changed.len() as u64 | CACHED << 32, 0, 0], &changed);
    assert_eq!(asks(&relay, &write), Ok(()));
    assert_eq!(next(&writes), (10, vec![1], false));
    assert_eq!(next(&writes), (5000, vec![2; 6000], true));
    assert!(writes.try_recv().is_err());
    assert_eq!(asks(&relay, &write), Ok(()));
    assert!(writes.try_recv().is_err(), "it is there already");
    relay.destroy();
}
