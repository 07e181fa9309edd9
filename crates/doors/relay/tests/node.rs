//! The node's side, at servers that the tests simulate: one that ends while its answers arrive late, and its
//! successor.

use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse_protocol::{Envelope, Errno, Parked, Raw};
use parking_lot::Mutex;
use relay::Relay;
use testkit::{TempTree, wait_until};
use transport::{Address, AllowedPeers, Client, Server, Service, Targets, Who};
use wire::{Message, Piece};

const BOUND: Duration = Duration::from_secs(30);

const GETATTR: u32 = 3;
const SETLK: u32 = 32;
const SETLKW: u32 = 33;
const INTERRUPT: u32 = 36;

/// Kernel's number of the lock request.
const UNIQUE: u64 = 2;

/// A server that answers each lock request as its test says.
struct Played {
    /// Whether the server refuses nodes that another server has known.
    refuses: bool,
    attached: AtomicBool,
    /// Whether the node met this server first, so that its waiting requests wait here.
    first: AtomicBool,
    /// Whether the node has attached again here.
    claims: AtomicBool,
    locks: Mutex<Receiver<Message>>,
    events: Mutex<Receiver<Vec<u8>>>,
    /// Sender of the lock requests that arrived, as opcodes.
    asked: Sender<u32>,
    listens: Sender<()>,
}

/// The test's side of a simulated server.
struct Script {
    path: PathBuf,
    locks: Sender<Message>,
    events: Sender<Vec<u8>>,
    asked: Receiver<u32>,
    listens: Receiver<()>,
    /// Dropped last, so that unanswered requests fail.
    server: Option<Server>,
}

impl Service for Played {
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

    fn handle(&self, (): &(), message: Message, _: &[u8], out: &mut Vec<u8>) -> Message {
        match message {
            Message::Attach { .. } => {
                self.first.store(true, Ordering::SeqCst);
                self.attached.store(true, Ordering::SeqCst);
                said(0, UNIQUE)
            }
            Message::AskBootVerifier {} => Message::BootVerifierIs { boot_verifier: 1 },
            Message::AttachAgain { .. } if self.refuses => Message::failed(libc::EPROTO, "not this one"),
            Message::AttachAgain { .. } => {
                self.claims.store(true, Ordering::SeqCst);
                said(0, UNIQUE)
            }
            // A server that is ending may still get this over a connection that the node already had.
            Message::LocksReclaimed {} | Message::Reclaimed {} if !self.claims.load(Ordering::SeqCst) => {
                Message::Unknown {}
            }
            Message::Reclaimed {} => {
                self.attached.store(true, Ordering::SeqCst);
                Message::Done {}
            }
            Message::Relay { .. } | Message::Listen { .. } if !self.attached.load(Ordering::SeqCst) => {
                Message::Unknown {}
            }
            Message::Listen { after } => {
                let _ = self.listens.send(());
                // The test is over.
                let Ok(event) = self.events.lock().recv() else { return Message::Unknown {} };
                out.extend(event);
                Message::Heard { last: after + 1 }
            }
            Message::Relay { head, .. } => match u32::from_ne_bytes(head.as_slice()[4..8].try_into().unwrap()) {
                opcode @ (SETLK | SETLKW) => {
                    let _ = self.asked.send(opcode);
                    self.locks.lock().recv().unwrap_or(Message::Unknown {})
                }
                INTERRUPT if self.first.load(Ordering::SeqCst) => said(0, 0),
                INTERRUPT => said(libc::EAGAIN, 0),
                _ => said(0, Envelope::of(head.as_slice()).unwrap().unique),
            },
            _ => Message::Done {},
        }
    }
}

/// Returns an answer with this error and no body.
fn answer(error: i32, unique: u64) -> Vec<u8> {
    [&16_u32.to_ne_bytes()[..], &(-error).to_ne_bytes(), &unique.to_ne_bytes()].concat()
}

fn said(error: i32, unique: u64) -> Message {
    Message::Relayed { head: Piece::new(answer(error, unique)).unwrap() }
}

/// Returns the bytes of a kernel's message by root about node 7.
fn message(opcode: u32, unique: u64, numbers: &[u64]) -> Vec<u8> {
    let head = [40 + 8 * numbers.len() as u32, opcode];
    let ids = [0_u32, 0, std::process::id(), 0];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_ne_bytes()).collect::<Vec<u8>>();
    [words(&head), longs(&[unique, 7]), words(&ids), longs(numbers)].concat()
}

impl Script {
    /// Starts a server at `name`, to which nodes connect.
    fn starts(tree: &TempTree, name: &str, refuses: bool) -> Script {
        let ((locks, says), (events, happens)) = (channel(), channel());
        let ((asks, asked), (listen, listens)) = (channel(), channel());
        let played = Played {
            refuses,
            attached: AtomicBool::new(false),
            first: AtomicBool::new(false),
            claims: AtomicBool::new(false),
            locks: Mutex::new(says),
            events: Mutex::new(happens),
            asked: asks,
            listens: listen,
        };
        let path = tree.path(name);
        let server = Server::start(played, &[Address::Unix(path.clone())], AllowedPeers::default()).unwrap();
        symlink(&path, tree.path("next")).unwrap();
        std::fs::rename(tree.path("next"), tree.path("server")).unwrap();
        Script { path, locks, events, asked, listens, server: Some(server) }
    }

    /// Accepts no more nodes. Requests that have arrived are still answered.
    fn ends(&mut self) -> JoinHandle<()> {
        let server = self.server.take();
        let ends = std::thread::spawn(move || drop(server));
        // The socket exists until all of them are answered.
        let closed =
            |error: io::Error| matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
        let is_closed = || UnixStream::connect(&self.path).is_err_and(closed);
        wait_until("it lets nobody in", BOUND, is_closed);
        ends
    }

    #[track_caller]
    fn is_asked(&self) -> u32 {
        self.asked.recv_timeout(BOUND).expect("nobody asks for the lock")
    }
}

/// A node at a server, and the kernel that requests a lock from it.
struct Stand {
    tree: TempTree,
    relay: Arc<Relay>,
    former: Script,
    reply: Option<Parked>,
    interrupt: Box<dyn Fn()>,
    answered: Receiver<Result<(), Errno>>,
}

impl Stand {
    fn new() -> Stand {
        let tree = TempTree::new();
        let former = Script::starts(&tree, "former", false);
        let client = Client::connect(Address::Unix(tree.path("server")), None, Who::default(), BOUND).unwrap();
        let relay = Relay::new(client, BOUND);
        relay.init(&message(26, UNIQUE, &[0; 8])).unwrap();
        relay.start(|_| Ok(())).unwrap();
        let (reply, answered, interrupt) = Parked::detached(UNIQUE);
        Stand { tree, relay, former, reply: Some(reply), interrupt: Box::new(interrupt), answered }
    }

    /// Requests the lock in a thread of the node, for a caller that is alive.
    fn asks(&mut self, opcode: u32) -> JoinHandle<()> {
        self.asks_for(std::process::id(), opcode)
    }

    fn asks_for(&mut self, thread: u32, opcode: u32) -> JoinHandle<()> {
        let (relay, reply) = (Arc::clone(&self.relay), self.reply.take().unwrap());
        let mut message = message(opcode, UNIQUE, &[70, 5, 0, i64::MAX as u64, libc::F_WRLCK as u64, 0]);
        message[32..36].copy_from_slice(&thread.to_ne_bytes());
        std::thread::spawn(move || relay.request(&Envelope::of(&message).unwrap(), &message, reply))
    }

    /// Requests the lock and waits.
    fn waits(&mut self, thread: u32) {
        let asks = self.asks_for(thread, SETLKW);
        assert_eq!(self.former.is_asked(), SETLKW);
        self.former.locks.send(Message::Pending {}).unwrap();
        asks.join().unwrap();
    }

    /// Gives the owner a shared lock on part of the file.
    fn shares(&self) {
        let (unique, (reply, answered, _)) = (UNIQUE + 4, Parked::detached(UNIQUE + 4));
        let message = message(SETLK, unique, &[70, 5, 0, 9, libc::F_RDLCK as u64, 0]);
        self.former.locks.send(said(0, unique)).unwrap();
        self.relay.request(&Envelope::of(&message).unwrap(), &message, reply);
        assert_eq!((self.former.is_asked(), answered.recv_timeout(BOUND)), (SETLK, Ok(Ok(()))));
    }

    /// Ends the server and starts another, to which the node reclaims everything.
    fn is_followed(&mut self) -> (Script, JoinHandle<()>) {
        let next = Script::starts(&self.tree, "next server", false);
        let ended = self.former.ends();
        let (reply, answered, _) = Parked::detached(UNIQUE + 2);
        let looks = message(GETATTR, UNIQUE + 2, &[0; 2]);
        self.relay.request(&Envelope::of(&looks).unwrap(), &looks, reply);
        assert_eq!(answered.recv_timeout(BOUND), Ok(Ok(())));
        (next, ended)
    }

    fn is_answered(&self) -> Result<(), Errno> {
        self.answered.recv_timeout(BOUND).expect("no answer")
    }
}

#[test] // S49
fn a_lock_that_a_former_server_granted_is_asked_for_again_if_nobody_claimed_it() {
    let mut stand = Stand::new();
    let asks = stand.asks(SETLK);
    stand.former.is_asked();
    let (next, ended) = stand.is_followed();
    stand.former.locks.send(said(0, UNIQUE)).unwrap();
    next.is_asked();
    next.locks.send(said(libc::EAGAIN, UNIQUE)).unwrap();
    assert_eq!(stand.is_answered(), Err(Errno(libc::EAGAIN)), "somebody else has it now");
    asks.join().unwrap();
    stand.end(next, ended);
}

#[test] // S49
fn what_a_former_server_has_a_lock_waited_for_is_awaited_at_the_next() {
    let mut stand = Stand::new();
    let asks = stand.asks(SETLKW);
    stand.former.is_asked();
    let (next, ended) = stand.is_followed();
    stand.former.locks.send(Message::Pending {}).unwrap();
    next.is_asked();
    next.locks.send(said(0, UNIQUE)).unwrap();
    assert_eq!(stand.is_answered(), Ok(()));
    asks.join().unwrap();
    stand.end(next, ended);
}

#[test] // S49
fn a_lock_that_was_awaited_and_that_a_former_server_granted_is_awaited_at_the_next() {
    let mut stand = Stand::new();
    stand.waits(std::process::id());
    stand.former.listens.recv_timeout(BOUND).unwrap();
    let (next, ended) = stand.is_followed();
    next.is_asked();
    next.locks.send(Message::Pending {}).unwrap();
    stand.former.events.send(answer(0, UNIQUE)).unwrap();
    next.listens.recv_timeout(BOUND).expect("the node hears nobody");
    assert!(stand.answered.try_recv().is_err(), "nobody has granted it");
    next.events.send(answer(0, UNIQUE)).unwrap();
    assert_eq!(stand.is_answered(), Ok(()));
    assert!(next.asked.try_recv().is_err(), "once is enough");
    stand.end(next, ended);
}

#[test] // S49
fn a_signal_ends_a_wait_in_the_grace_period_of_the_next_server() {
    let mut stand = Stand::new();
    stand.waits(std::process::id());
    let (next, ended) = stand.is_followed();
    next.is_asked();
    stand.relay.interrupt(UNIQUE);
    next.locks.send(Message::Grace {}).unwrap();
    // The program may ask again as soon as it is answered.
    assert_eq!(next.is_asked(), SETLK, "it is not undone");
    assert!(stand.answered.try_recv().is_err(), "it is not undone yet");
    next.locks.send(said(0, UNIQUE)).unwrap();
    assert_eq!(stand.is_answered(), Err(Errno::EINTR));
    stand.end(next, ended);
}

#[test] // S49
fn a_signal_in_the_grace_period_takes_no_lock_that_its_program_held_before_it_waited_for_more() {
    let mut stand = Stand::new();
    stand.shares();
    stand.waits(std::process::id());
    let (next, ended) = stand.is_followed();
    next.is_asked();
    stand.relay.interrupt(UNIQUE);
    next.locks.send(Message::Grace {}).unwrap();
    assert_eq!(next.is_asked(), SETLKW, "it is released");
    assert!(stand.answered.try_recv().is_err());
    next.locks.send(said(libc::EINTR, UNIQUE)).unwrap();
    assert_eq!(stand.is_answered(), Err(Errno::EINTR));
    stand.end(next, ended);
}

#[test] // S49
fn a_killed_program_waits_no_more_while_no_server_takes_its_node_back() {
    let mut stand = Stand::new();
    stand.waits(u32::MAX);
    let next = Script::starts(&stand.tree, "next server", true);
    let ended = stand.former.ends();
    (stand.interrupt)();
    stand.relay.interrupt(UNIQUE);
    assert_eq!(stand.is_answered(), Err(Errno::EINTR));
    stand.end(next, ended);
}

#[test] // S49
fn a_lock_that_was_granted_before_its_program_was_told_to_wait_is_not_taken_from_it_by_a_signal() {
    let mut stand = Stand::new();
    let asks = stand.asks(SETLKW);
    stand.former.is_asked();
    stand.former.events.send(answer(0, UNIQUE)).unwrap();
    for _ in 0..2 {
        stand.former.listens.recv_timeout(BOUND).unwrap();
    }
    (stand.interrupt)();
    stand.former.locks.send(Message::Grace {}).unwrap();
    assert_eq!(stand.is_answered(), Ok(()), "it is noted, and claimed");
    asks.join().unwrap();
    let (next, ended) = stand.is_followed();
    stand.end(next, ended);
}

impl Stand {
    fn end(self, mut next: Script, ended: JoinHandle<()>) {
        let Stand { tree: _tree, relay, former, .. } = self;
        relay.destroy();
        // Listeners are told that nothing more comes.
        drop((former.events, former.locks));
        ended.join().unwrap();
        let ends = next.ends();
        drop((next.events, next.locks));
        ends.join().unwrap();
    }
}
