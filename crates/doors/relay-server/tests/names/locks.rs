//! Locks of nodes when one server follows another.

use std::time::Duration;

use transport::Service;
use wire::{Message, Piece};

use super::{GETATTR, LOOKUP, Node, Stand, message, number};

const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const GETLK: u32 = 31;
const SETLK: u32 = 32;
const SETLKW: u32 = 33;
const INTERRUPT: u32 = 36;

/// Node and handle of an open file.
type Opened = (u64, u64);

fn set_lock(opcode: u32, (node, handle): Opened, kind: i32) -> Vec<u8> {
    let numbers = [handle, 5, 0, i64::MAX as u64, kind as u64 | 77 << 32, 0];
    message(opcode, 4, node, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>())
}

fn reclaim(message: &[u8]) -> Message {
    Message::ReclaimLock { head: Piece::new(message).unwrap() }
}

fn is_done(answer: &Message) -> bool {
    matches!(answer, Message::Done {})
}

impl Node<'_> {
    fn opens(&mut self) -> Opened {
        let found = self.relay(LOOKUP, 1, b"locked\0").unwrap();
        let node = number(&found, 0);
        let opened = self.relay(OPEN, node, &(libc::O_RDWR as u64).to_ne_bytes()).unwrap();
        (node, number(&opened, 0))
    }

    /// Requests a lock. Returns 0 or the error; `None` in a grace period.
    fn locks(&mut self, file: Opened, kind: i32) -> Option<i32> {
        match self.send(&set_lock(SETLK, file, kind), &[]).0 {
            Message::Grace {} => None,
            Message::Relayed { head } => Some(-i32::from_ne_bytes(head.as_slice()[4..8].try_into().unwrap())),
            other => panic!("{other:?}"),
        }
    }

    fn claims(&mut self, (node, handle): Opened, of: &types::Identity) {
        let (identity, hint, flags) = (of.clone(), wire::Path::default(), libc::O_RDWR as u32);
        assert!(is_done(&self.ask(Message::Reclaim { node, lookups: 1, identity, hint, handle, flags })));
    }
}

/// Opens and locks a file from a node, at a server that then ends. Returns node, handle and identity of the file.
fn held(stand: &Stand) -> (Opened, types::Identity) {
    let server = stand.server();
    let mut node = Node::new(&server);
    let file = node.create("locked");
    assert_eq!(node.locks(file, libc::F_WRLCK), Some(0));
    server.ends();
    (file, node.identity.clone().unwrap())
}

#[test] // S49
fn locks_are_claimed_from_the_next_server_before_anybody_gets_another() {
    let stand = Stand::new();
    let (file, identity) = held(&stand);
    let server = stand.server();
    let mut other = Node::again(&server, 1);
    assert!(!is_done(&other.ask(Message::LocksReclaimed {})), "it had none");
    assert!(is_done(&other.ask(Message::Reclaimed {})));
    let its = other.opens();
    assert_eq!(other.locks(its, libc::F_WRLCK), None);
    assert!(matches!(other.send(&set_lock(GETLK, its, libc::F_WRLCK), &[]).0, Message::Grace {}));
    assert_eq!(other.locks(its, libc::F_UNLCK), Some(0), "what takes nothing waits for nobody");

    let mut node = Node::again(&server, 0);
    let lock = set_lock(SETLK, file, libc::F_WRLCK);
    assert!(!is_done(&node.ask(reclaim(&lock))), "on what is not open");
    node.claims(file, &identity);
    assert!(!is_done(&node.ask(reclaim(&message(GETATTR, 4, file.0, &[0; 16])))));
    assert!(is_done(&node.ask(reclaim(&lock))) && is_done(&node.ask(reclaim(&lock))));
    assert_eq!(other.locks(its, libc::F_WRLCK), None, "the node may have more");
    assert!(is_done(&node.ask(Message::LocksReclaimed {})) && is_done(&node.ask(Message::LocksReclaimed {})));
    assert_eq!(other.locks(its, libc::F_WRLCK), Some(libc::EAGAIN));
    assert!(is_done(&node.ask(Message::Reclaimed {})));
    assert!(matches!(node.ask(reclaim(&lock)), Message::Unknown {}), "from now on its kernel asks");
    assert_eq!(node.locks(file, libc::F_UNLCK), Some(0));
    assert_eq!(other.locks(its, libc::F_WRLCK), Some(0));
}

#[test] // S49
fn a_node_that_comes_too_late_gives_back_what_it_claimed() {
    let stand = Stand::new();
    let (file, identity) = held(&stand);
    let server = stand.server_with_grace(Duration::ZERO);
    let mut node = Node::again(&server, 0);
    node.claims(file, &identity);
    assert!(!is_done(&node.ask(reclaim(&set_lock(SETLK, file, libc::F_WRLCK)))));
    assert!(!is_done(&node.ask(Message::LocksReclaimed {})));
    assert!(is_done(&node.ask(reclaim(&set_lock(SETLK, file, libc::F_UNLCK)))));
    let closes: Vec<u8> = [file.1, 0, 0].iter().flat_map(|number: &u64| number.to_ne_bytes()).collect();
    assert!(is_done(&node.ask(reclaim(&message(RELEASE, 4, file.0, &closes)))));
    assert!(is_done(&node.ask(Message::Reclaimed {})));
    assert_eq!(node.read(file.0, file.1), Err(libc::ESTALE));
    assert_eq!(node.locks(file, libc::F_WRLCK), Some(libc::ESTALE), "through what is not open nothing is locked");
    let mut other = Node::named(&server, 1);
    let its = other.opens();
    assert_eq!(other.locks(its, libc::F_WRLCK), Some(0));
}

#[test] // S49
fn a_node_that_is_gone_claims_nothing_from_the_next_server() {
    let stand = Stand::new();
    let (first, second) = (stand.server(), Duration::from_secs(1000));
    let mut node = Node::new(&first);
    let file = node.create("locked");
    assert_eq!(node.locks(file, libc::F_WRLCK), Some(0));
    drop(node);
    let second = stand.server_with_grace(second);
    let mut other = Node::new(&second);
    let its = other.opens();
    assert_eq!(other.locks(its, libc::F_WRLCK), Some(0));
}

#[test] // S49
fn what_a_node_locks_that_has_come_back_while_its_former_locks_are_released_it_may_claim_from_the_next_server() {
    let stand = Stand::new();
    let server = stand.server();
    let mut forgotten = Node::new(&server);
    let (file, identity) = (forgotten.create("locked"), forgotten.identity.clone().unwrap());
    assert_eq!(forgotten.locks(file, libc::F_RDLCK), Some(0));

    let mut node = Node::again(&server, 0);
    node.claims(file, &identity);
    assert!(!is_done(&node.ask(reclaim(&set_lock(SETLK, file, libc::F_RDLCK)))), "others may have had it");
    assert!(!is_done(&node.ask(Message::LocksReclaimed {})) && is_done(&node.ask(Message::Reclaimed {})));
    let its = node.opens();
    assert_eq!(node.locks(its, libc::F_RDLCK), None, "not before all is released");
    drop(forgotten);
    assert_eq!(node.locks(its, libc::F_RDLCK), Some(0));
    server.ends();

    let next = stand.server();
    let mut node = Node::again(&next, 0);
    node.claims(its, &identity);
    assert!(is_done(&node.ask(reclaim(&set_lock(SETLK, its, libc::F_RDLCK)))));
    assert!(is_done(&node.ask(Message::LocksReclaimed {})));
}

#[test] // S49
fn the_locks_of_a_node_that_is_gone_are_kept_while_it_cannot_be_crossed_out() {
    let stand = Stand::new();
    let server = stand.server();
    let (mut node, mut other) = (Node::new(&server), Node::named(&server, 1));
    let (beside, file) = (other.create("beside"), node.create("locked"));
    let its = other.opens();
    assert_eq!((node.locks(file, libc::F_WRLCK), other.locks(beside, libc::F_WRLCK)), (Some(0), Some(0)));
    let listen =
        |other: &mut Node<'_>| assert!(matches!(other.ask(Message::Listen { after: 0 }), Message::Heard { .. }));
    let (recovery_records, away) = (stand.tree.path("lockers"), stand.tree.path("away"));
    std::fs::rename(&recovery_records, &away).unwrap();
    drop(node);
    listen(&mut other);
    assert_eq!(other.locks(its, libc::F_WRLCK), Some(libc::EAGAIN), "the next server would let it claim them");
    std::fs::rename(&away, &recovery_records).unwrap();
    testkit::wait_until("it is crossed out", Duration::from_secs(30), || {
        listen(&mut other);
        other.locks(its, libc::F_WRLCK) == Some(0)
    });
}

#[test] // S49
fn who_is_asked_for_twice_waits_once_and_is_interrupted() {
    let stand = Stand::new();
    let server = stand.server();
    let [mut node, mut holder, mut third] = [0, 1, 2].map(|name| Node::named(&server, name));
    let file = holder.create("locked");
    let [its, thirds] = [&mut node, &mut third].map(|node| node.opens());
    assert_eq!(holder.locks(file, libc::F_WRLCK), Some(0));
    for _ in 0..2 {
        assert!(matches!(node.send(&set_lock(SETLKW, its, libc::F_WRLCK), &[]).0, Message::Pending {}));
    }
    node.send(&message(INTERRUPT, 5, 0, &4_u64.to_ne_bytes()), &[]);
    assert_eq!(holder.locks(file, libc::F_UNLCK), Some(0));
    assert_eq!(third.locks(thirds, libc::F_WRLCK), Some(0), "nobody waits who was told that he does not");
}
