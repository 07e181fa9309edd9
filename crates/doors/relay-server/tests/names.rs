//! The server's side, asked by a simulated node: message by message, valid and invalid ones.

#[path = "names/locks.rs"]
mod locks;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, PolicyTable};
use config::Policy;
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use posix_namespace::PosixNamespace;
use proptest::prelude::*;
use relay_server::{ClientSession, NameService, RecoveryRecords};
use testkit::{TempTree, in_private_namespace};
use transport::{Service, Targets};
use wire::{Message, Piece, Text, pace};

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const READ: u32 = 15;
const WRITE: u32 = 16;
const CREATE: u32 = 35;

/// A service for agents that has no data.
struct NoData;

impl Service for NoData {
    type Session = ();

    fn begin(&self, _: &[u8; 16], store: &str, _: &str) -> Result<(), (i32, String)> {
        if store.is_empty() { Ok(()) } else { Err((libc::EXDEV, "another directory".into())) }
    }

    fn targets(&self, (): &(), _: &Message) -> Option<Targets> {
        None
    }

    fn remembers(&self, _: &Message) -> bool {
        false
    }

    fn handle(&self, (): &(), _: Message, _: &[u8], _: &mut Vec<u8>) -> Message {
        Message::failed(libc::EPROTO, "no data")
    }
}

/// A server over its own directory, beside which lies a file that no node may touch.
struct Stand {
    tree: TempTree,
    agent: Arc<Agent>,
}

impl Stand {
    fn new() -> Stand {
        Stand::over(TempTree::new())
    }

    fn over(tree: TempTree) -> Stand {
        tree.file("data/file", "content");
        tree.file("secret", "untouched");
        let root = fs::File::open(tree.path("data")).unwrap().into();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let cache = FileCache::open(Settings::new(tree.path("bb"), Arc::new(store.clone()), "test")).unwrap();
        let policies = PolicyTable::new(Policy::default());
        Stand {
            tree,
            agent: Arc::new(
                Agent::new(Arc::new(cache), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap(),
            ),
        }
    }

    fn server(&self) -> NameService<NoData> {
        self.server_with_grace(relay_server::limits::GRACE)
    }

    fn server_with_grace(&self, grace: Duration) -> NameService<NoData> {
        let recovery_records = RecoveryRecords::open(self.tree.path("lockers"), grace).unwrap();
        NameService::new(NoData, "", Arc::clone(&self.agent), recovery_records, 1)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.agent.data().shutdown();
    }
}

/// Returns the bytes of a kernel's message by root.
fn message(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    // Root, with process id 1, which exists everywhere.
    bytes.extend([0_u32, 0, 1].iter().flat_map(|number| number.to_ne_bytes()));
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

fn init() -> Vec<u8> {
    let numbers = [7_u32, 45, 1 << 17, u32::MAX, u32::MAX];
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).chain([0; 44]).collect();
    message(26, 2, 0, &body)
}

/// A node that is attached.
struct Node<'a> {
    server: &'a NameService<NoData>,
    session: ClientSession<()>,
    last: u64,
    /// Lowest request that the node is not done with; `None`: the last one.
    oldest: Option<u64>,
    /// Identity of the file that the last answer was about.
    identity: Option<types::Identity>,
}

impl<'a> Node<'a> {
    fn new(server: &'a NameService<NoData>) -> Node<'a> {
        Node::named(server, 0)
    }

    fn named(server: &'a NameService<NoData>, name: u8) -> Node<'a> {
        let mut node = Node::begun(server, name);
        let answer = node.ask(attach(std::env::consts::ARCH));
        assert!(matches!(answer, Message::Relayed { .. }), "{answer:?}");
        node
    }

    /// Returns a node that is not attached yet.
    fn begun(server: &'a NameService<NoData>, name: u8) -> Node<'a> {
        let session = server.begin(&[name; 16], "", "a test").unwrap();
        Node { server, session, last: 0, oldest: None, identity: None }
    }

    /// Returns a node that is attached with the answer of a former server.
    fn again(server: &'a NameService<NoData>, name: u8) -> Node<'a> {
        let mut node = Node::begun(server, name);
        let (machine, init) = (Text::cut(std::env::consts::ARCH), Piece::new(init()).unwrap());
        let answer = node.ask(Message::AttachAgain { machine, init });
        assert!(matches!(answer, Message::Relayed { .. }), "{answer:?}");
        node
    }

    fn ask(&mut self, message: Message) -> Message {
        self.server.handle(&self.session, message, &[], &mut Vec::new())
    }

    fn send(&mut self, head: &[u8], data: &[u8]) -> (Message, Vec<u8>) {
        self.last += 1;
        let (pace, number, groups) = (pace::BRIEF, self.last, Piece::default());
        let head = Piece::new(head).unwrap();
        let mut out = Vec::new();
        let oldest = self.oldest.unwrap_or(number);
        let message = Message::Relay { pace, number, oldest, groups, head };
        (self.server.handle(&self.session, message, data, &mut out), out)
    }

    /// Relays a request. Returns the body of the answer, or its error.
    fn relay(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let (answer, out) = self.send(&message(opcode, 2 * self.last + 4, node, body), &[]);
        if let Message::RelayedOf { identity, .. } = &answer {
            self.identity = Some(identity.clone());
        }
        let (Message::Relayed { head } | Message::RelayedOf { head, .. }) = answer else { panic!("{answer:?}") };
        let error = i32::from_ne_bytes(head.as_slice()[4..8].try_into().unwrap());
        if error == 0 { Ok([&head.as_slice()[16..], &out].concat()) } else { Err(-error) }
    }

    /// Creates a file. Returns its node and its handle.
    fn create(&mut self, name: &str) -> (u64, u64) {
        let fixed = [(libc::O_RDWR | libc::O_CREAT) as u32, 0o100_644, 0, 0];
        let body: Vec<u8> =
            fixed.iter().flat_map(|number| number.to_ne_bytes()).chain(name.bytes()).chain([0]).collect();
        let created = self.relay(CREATE, 1, &body).unwrap();
        (number(&created, 0), number(&created, 128))
    }

    fn read(&mut self, node: u64, handle: u64) -> Result<Vec<u8>, i32> {
        let body: Vec<u8> = [handle, 0, 100, 0, 0].iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.relay(READ, node, &body)
    }
}

fn attach(machine: &str) -> Message {
    Message::Attach { machine: Text::cut(machine), init: Piece::new(init()).unwrap() }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test] // S49
fn what_an_answer_gave_and_nobody_got_is_taken_back() {
    let stand = Stand::new();
    let server = stand.server();
    let mut node = Node::new(&server);
    let (kept, lost) = (node.create("kept"), node.create("lost"));
    let done_with = node.last;
    assert_eq!(node.read(lost.0, lost.1), Ok(vec![]));
    node.oldest = Some(node.last + 1);
    let (third, number) = (node.create("third"), node.last);
    assert!(matches!(node.ask(Message::Withdraw { number: done_with }), Message::Done {}));
    assert_eq!(node.read(lost.0, lost.1), Ok(vec![]), "its answer has arrived");
    assert_eq!(node.read(third.0, third.1), Ok(vec![]));
    for _ in 0..2 {
        assert!(matches!(node.ask(Message::Withdraw { number }), Message::Done {}));
        assert_eq!(node.read(third.0, third.1), Err(libc::ESTALE));
        assert_eq!(node.relay(GETATTR, third.0, &[0; 16]), Err(libc::ESTALE));
    }
    assert_eq!(node.read(kept.0, kept.1), Ok(vec![]));
}

#[test]
fn a_write_is_done_however_it_is_cut_in_two() {
    let stand = Stand::new();
    let server = stand.server();
    let mut node = Node::new(&server);
    let file = node.create("written");
    for (cut, data) in [(80, "a write"), (50, "another"), (84, "and one")] {
        let fixed = [file.1, 0, data.len() as u64, 0, 0];
        let body: Vec<u8> = fixed.iter().flat_map(|number| number.to_ne_bytes()).chain(data.bytes()).collect();
        let write = message(WRITE, 2 * node.last + 4, file.0, &body);
        let (answer, _) = node.send(&write[..cut], &write[cut..]);
        let Message::Relayed { head } = answer else { panic!("{answer:?}") };
        assert_eq!(number(head.as_slice(), 16), data.len() as u64, "cut at {cut}");
        assert_eq!(node.read(file.0, file.1), Ok(data.into()));
    }
}

#[test] // S49
fn a_number_of_a_former_server_is_stale() {
    let stand = Stand::new();
    let former = stand.server();
    let mut node = Node::new(&former);
    let (file, handle) = node.create("made");
    drop(node);
    let server = stand.server();
    let mut node = Node::new(&server);
    // The numbers belong to another node, which would exist if numbers were small.
    let (other, its) = node.create("another");
    assert!(other > file && its > handle && file > 1 << 40);
    assert_eq!(node.read(file, handle), Err(libc::ESTALE));
    assert_eq!(node.relay(GETATTR, file, &[0; 16]), Err(libc::ESTALE));
    assert_eq!(node.relay(LOOKUP, file, b"x\0"), Err(libc::ESTALE));
    assert!(node.relay(LOOKUP, 1, b"made\0").is_ok(), "by name it is found");
    assert_eq!(node.read(other, its), Ok(vec![]));
}

#[test] // S49
fn what_is_claimed_from_another_server_means_what_it_meant_and_nothing_else_does() {
    let stand = Stand::new();
    let former = stand.server();
    let mut node = Node::new(&former);
    let ((file, handle), kept) = (node.create("made"), node.identity.clone().unwrap());
    let (other, _) = node.create("another");
    drop(node);
    let server = stand.server();
    let mut node = Node::again(&server, 0);
    assert!(
        matches!(node.send(&message(GETATTR, 4, 1, &[0; 16]), &[]).0, Message::Unknown {}),
        "nothing is claimed yet"
    );
    let claim = |number, handle| Message::Reclaim {
        node: number,
        lookups: 1,
        identity: kept.clone(),
        hint: wire::Path::default(),
        handle,
        flags: libc::O_RDWR as u32,
    };
    for _ in 0..2 {
        assert!(matches!(node.ask(claim(file, handle)), Message::Done {}), "as often as it is said");
    }
    assert!(matches!(node.ask(claim(u64::MAX >> 2, 0)), Message::Failed { .. }), "never given");
    assert!(matches!(node.ask(claim(file, u64::MAX >> 2)), Message::Failed { .. }), "never given");
    assert!(matches!(node.ask(Message::Reclaimed {}), Message::Done {}));
    assert_eq!(node.read(file, handle), Ok(vec![]));
    assert_eq!(node.relay(GETATTR, other, &[0; 16]), Err(libc::ESTALE));
    let found = node.relay(LOOKUP, 1, b"made\0").unwrap();
    assert_eq!(number(&found, 0), file, "one number for one file");
    let (fresh, _) = node.create("fresh");
    assert!(fresh > file);
    fs::remove_file(stand.tree.path("data/another")).unwrap();
    assert!(matches!(node.ask(Message::Detach {}), Message::Done {}));
    assert!(matches!(node.ask(claim(file, handle)), Message::Unknown {}));
}

#[test] // S49
fn a_file_whose_identity_may_be_anothers_later_is_not_claimed() {
    in_private_namespace(|| {
        // Neither file handles nor birth times: the identity is an inode number alone.
        let tree = TempTree::new();
        rustix::mount::mount("memory", tree.dir("data"), "ramfs", rustix::mount::MountFlags::empty(), None).unwrap();
        let stand = Stand::over(tree);
        let former = stand.server();
        let mut node = Node::new(&former);
        let ((file, handle), identity) = (node.create("made"), node.identity.clone().unwrap());
        drop(node);
        let server = stand.server();
        let mut node = Node::again(&server, 0);
        let (hint, flags) = (wire::Path::new("made").unwrap(), libc::O_RDWR as u32);
        let answer = node.ask(Message::Reclaim { node: file, lookups: 1, identity, hint, handle, flags });
        assert!(matches!(answer, Message::Failed { .. }), "{answer:?}");
    });
}

#[test] // S49
fn two_nodes_never_share_a_number_and_neither_reaches_the_others() {
    let stand = Stand::new();
    let server = stand.server();
    let (mut one, mut two) = (Node::new(&server), Node::new(&server));
    let (first, second) = (one.create("one"), two.create("two"));
    assert!(first.0 != second.0 && first.1 != second.1);
    assert_eq!(two.read(first.0, first.1), Err(libc::ESTALE));
    assert_eq!(one.relay(GETATTR, second.0, &[0; 16]), Err(libc::ESTALE));
}

#[test]
fn nothing_is_asked_of_a_kernel_that_is_not_attached_and_none_of_another_kind_is() {
    let stand = Stand::new();
    let server = stand.server();
    let mut node = Node::begun(&server, 0);
    assert!(matches!(node.send(&message(GETATTR, 4, 1, &[0; 16]), &[]).0, Message::Unknown {}));
    assert!(matches!(node.ask(Message::Listen { after: 0 }), Message::Unknown {}));
    assert!(matches!(node.ask(attach("a machine of another kind")), Message::Failed { .. }));
    assert!(matches!(node.ask(attach(std::env::consts::ARCH)), Message::Relayed { .. }));
    assert!(node.relay(GETATTR, 1, &[0; 16]).is_ok());
    assert!(matches!(node.ask(Message::Detach {}), Message::Done {}));
    assert!(matches!(node.send(&message(GETATTR, 4, 1, &[0; 16]), &[]).0, Message::Unknown {}));
    assert!(server.begin(&[0; 16], "another directory", "a test").is_err(), "agents are the other service's");
}

/// Generates messages of every kind, most of them invalid: whole bodies, cut ones, names that climb.
fn made_up() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(b'.'), Just(b'/')], 0..200),
        Just(b"../secret\0".to_vec()),
        Just([&[0; 16][..], b"..\0"].concat()),
        Just([&[1; 8][..], b"file\0../secret\0"].concat()),
    ];
    let node = prop_oneof![Just(1_u64), any::<u64>(), 0..8_u64];
    (0..60_u32, any::<u64>(), node, body, any::<Option<(u8, u8)>>(), 0..3_usize).prop_map(
        |(opcode, unique, node, body, change, cut)| {
            let mut bytes = message(opcode, unique, node, &body);
            if let Some((at, value)) = change {
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
            }
            let cut = if cut == 0 { bytes.len() / 2 } else { bytes.len() };
            let data = bytes.split_off(cut);
            (bytes, data)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test] // S48
    fn any_message_of_a_node_is_answered_and_harms_nobody(messages in prop::collection::vec(made_up(), 1..80)) {
        let stand = Stand::new();
        let server = stand.server();
        let mut node = Node::new(&server);
        for (head, data) in &messages {
            let (answer, out) = node.send(head, data);
            prop_assert!(out.len() <= wire::limits::DATA_BYTES_MAX as usize);
            prop_assert!(matches!(answer, Message::Relayed { .. } | Message::RelayedOf { .. } | Message::Pending {} | Message::Failed { .. }), "{answer:?}");
        }
        let mut other = Node::new(&server);
        prop_assert!(other.relay(GETATTR, 1, &[0; 16]).is_ok());
        prop_assert_eq!(fs::read_to_string(stand.tree.path("secret")).unwrap(), "untouched");
    }
}
