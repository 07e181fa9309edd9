//! The server's side: a service beside the one for data, for nodes that ask for names as well.
//!
//! N1. The user of a request is the one that the node states, as with a client of NFS: nodes have proved their
//! identity and are trusted. A server that does not run as root acts only as its own user, and refuses others.
//! N2. A request waits until a lost copy of an earlier one on the same node number has ended, and takes effect once.
//! N3. A node may have its written files staged out, as an agent may: its session for names includes one for data.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use types::HasErrno;

use agent::{Agent, set_groups_of_callers};
use fuse::Remote;
use fuse_protocol::view::is_success;
use fuse_protocol::{Envelope, FileReclaim, LockChange, Opcode};
use transport::{InFile, Service, Targets};
use wire::limits::PIECE_BYTES_MAX;
use wire::{Message, Piece};

use crate::about;
use crate::events::EventQueue;
use crate::node::RelayNode;
use crate::recovery_records::RecoveryRecords;

/// Service for agents, `S`, and for nodes that also need names.
pub struct NameService<S> {
    inner: S,
    /// Identity of the directory of `inner`, as agents send it.
    store: String,
    agent: Arc<Agent>,
    /// Counter from which nodes and open files of all clients get their numbers.
    numbers: Arc<AtomicU64>,
    clients: AtomicU64,
    recovery_records: Arc<RecoveryRecords>,
    /// Boot verifier of this machine. A new value means that the machine has crashed.
    boot_verifier: u64,
    /// User whose rights all requests get if this process may not act as others.
    alone: Option<u32>,
}

/// Session of a client of either kind.
pub struct ClientSession<T>(Kind<T>);

enum Kind<T> {
    Agent(T),
    /// A node without the global store, with a session for the data that it writes.
    Node(RelayNode, T),
}

impl<T> Drop for ClientSession<T> {
    fn drop(&mut self) {
        if let Kind::Node(node, _) = &self.0 {
            tracing::info!(node = node.name, attached = node.remote().is_some(), "a node is gone");
        }
    }
}

/// Marks request numbers, to tell them from node numbers, which are smaller.
const REQUEST: u64 = 1 << 63;

/// Returns a number above all that were given before, since giving one takes more than a nanosecond, and below the
/// mark.
fn start() -> u64 {
    let now = concurrency::wall_clock().duration_since(UNIX_EPOCH);
    now.map_or(1 << 60, |now| now.as_nanos() as u64) & (REQUEST - 1)
}

fn refused(errno: i32, reason: &str) -> Message {
    Message::failed(errno, reason)
}

impl<S> NameService<S> {
    /// Creates the service beside `inner`, which agents use for the directory `store`, over an agent of that
    /// directory and data. `recovery_records`: the records that earlier servers have left. `boot_verifier`: differs
    /// from the last one if this machine has crashed since.
    pub fn new(
        inner: S,
        store: impl Into<String>,
        agent: Arc<Agent>,
        recovery_records: RecoveryRecords,
        boot_verifier: u64,
    ) -> NameService<S> {
        let user = rustix::process::geteuid();
        let alone = (!user.is_root()).then(|| user.as_raw());
        let numbers = Arc::new(AtomicU64::new(start()));
        let (recovery_records, clients) = (Arc::new(recovery_records), AtomicU64::new(1));
        NameService { inner, store: store.into(), agent, numbers, clients, recovery_records, boot_verifier, alone }
    }

    fn on_node(&self, node: &RelayNode, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        match message {
            Message::Ping {} => Message::Done {},
            Message::AskBootVerifier {} => Message::BootVerifierIs { boot_verifier: self.boot_verifier },
            Message::Attach { machine, init } => self.attach(node, machine.as_str(), init.as_slice(), true),
            Message::AttachAgain { machine, init } => self.attach(node, machine.as_str(), init.as_slice(), false),
            Message::Reclaim { node: number, lookups, identity, hint, handle, flags } => {
                let Some(remote) = node.claiming() else { return Message::Unknown {} };
                let hint = std::ffi::OsStr::from_bytes(hint.as_slice()).into();
                let open = (handle != 0).then_some((handle, flags.cast_signed()));
                match remote.reclaim(&FileReclaim { node: number, lookups, identity, hint, open }) {
                    Ok(()) => Message::Done {},
                    Err(errno) => Message::failed(errno.0, "a file that was open is not there any more"),
                }
            }
            Message::ReclaimLock { head } => self.reclaim_lock(node, head.as_slice()),
            Message::LocksReclaimed {} if node.claiming().is_none() => Message::Unknown {},
            Message::LocksReclaimed {} if self.recovery_records.has_claimed(&node.locker) => Message::Done {},
            Message::LocksReclaimed {} => refused(libc::ESTALE, TOO_LATE),
            Message::Reclaimed {} => {
                if node.open() {
                    Message::Done {}
                } else {
                    Message::Unknown {}
                }
            }
            Message::Relay { number, oldest, groups, head, .. } => {
                let Some(remote) = node.remote() else { return Message::Unknown {} };
                self.relay(node, &remote, (number, oldest), groups.as_slice(), (head.as_slice(), data), out)
            }
            Message::Listen { after } => match node.remote() {
                None => Message::Unknown {},
                Some(_) => {
                    // A client may be waiting for locks whose record could not be removed.
                    self.recovery_records.try_again();
                    Message::Heard { last: node.events.collect(after, out) }
                }
            },
            Message::Withdraw { number } => {
                node.withdraw(number);
                Message::Done {}
            }
            Message::Detach {} => {
                node.detach();
                Message::Done {}
            }
            _ => refused(libc::EPROTO, "a node without the global store asked for data alone"),
        }
    }

    fn reclaim_lock(&self, node: &RelayNode, head: &[u8]) -> Message {
        let Some(remote) = node.claiming() else { return Message::Unknown {} };
        let Some(envelope) = Envelope::of(head) else { return refused(libc::EPROTO, "no message of a kernel") };
        match envelope.opcode {
            Some(Opcode::Setlk) if !takes_lock(&envelope, head) || self.recovery_records.may_claim(&node.locker) => {}
            Some(Opcode::Setlk) => return refused(libc::ESTALE, TOO_LATE),
            Some(Opcode::Release) => {}
            _ => return refused(libc::EPROTO, "neither a lock nor a close"),
        }
        match is_success(&remote.run(head, &[], &mut Vec::new())) {
            true => Message::Done {},
            false => refused(libc::ESTALE, "a lock is somebody else's, or its file is not there any more"),
        }
    }

    /// Returns the answer to a request about locks that cannot be granted now, if that is so.
    fn not_now(&self, node: &RelayNode, envelope: &Envelope, head: &[u8]) -> Option<Message> {
        let admitted = match envelope.opcode {
            Some(Opcode::Getlk) => Ok(!self.recovery_records.is_grace()),
            _ if takes_lock(envelope, head) => self.recovery_records.admit(&node.locker),
            _ => return None,
        };
        match admitted {
            Ok(true) => None,
            Ok(false) => Some(Message::Grace {}),
            Err(error) => {
                tracing::error!(%error, node = node.name, "could not write a node's record: its lock request fails");
                Some(refused(libc::EIO, "the server cannot write down who has locks"))
            }
        }
    }

    fn attach(&self, node: &RelayNode, machine: &str, init: &[u8], open: bool) -> Message {
        if machine != std::env::consts::ARCH {
            let ours = std::env::consts::ARCH;
            let reason =
                format!("names are served to nodes of the same kind: the server is {ours}, the node {machine}");
            return Message::failed(libc::EPROTO, reason);
        }
        let make = |events: Arc<EventQueue>| {
            Remote::new(Arc::clone(&self.agent), node.locker.client, &self.numbers, events, init)
        };
        match node.attach(init, open, make) {
            Ok(Some(answer)) => whole(&answer),
            Ok(None) => refused(libc::EPROTO, "the node's kernel offers something else than before"),
            Err(error) => Message::failed(error.errno().unwrap_or(libc::EPROTO), error.to_string()),
        }
    }

    fn relay(
        &self,
        node: &RelayNode,
        remote: &Remote,
        numbers: (u64, u64),
        groups: &[u8],
        (head, data): (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) -> Message {
        let Some(envelope) = Envelope::of(head) else { return refused(libc::EPROTO, "no message of a kernel") };
        if let Some(own) = self.alone
            && asks_as_somebody(envelope.opcode)
            && ![own, 0].contains(&envelope.uid)
        {
            return refused(libc::EACCES, "the server is not root: it serves its own user alone");
        }
        if let Some(not_now) = self.not_now(node, &envelope, head) {
            return not_now;
        }
        if envelope.opcode == Some(Opcode::Setlkw) && remote.is_waiting(envelope.unique) {
            // The node has not heard yet that the request waits. Run twice, it would be interrupted only once.
            return Message::Pending {};
        }
        let _told = Told::new(groups);
        let answer = remote.run(head, data, out);
        node.note(&envelope, &answer, numbers);
        let about = about::file_of(&envelope, &answer).and_then(|file| remote.file(file));
        match about {
            _ if answer.is_empty() => Message::Pending {},
            None => whole(&answer),
            Some((identity, path)) => match Piece::new(answer) {
                Some(head) => Message::RelayedOf { head, identity, hint: hint(&path) },
                None => refused(libc::EPROTO, "an answer to an open that is too long"),
            },
        }
    }
}

const TOO_LATE: &str = "the locks of this node may be somebody else's by now";

fn takes_lock(envelope: &Envelope, head: &[u8]) -> bool {
    LockChange::of(envelope, head).is_some_and(|change| change.takes())
}

/// Returns whether a node asks this as an agent does, about files that it has written.
fn is_of_data(message: &Message) -> bool {
    matches!(message, Message::State { .. } | Message::Begin { .. } | Message::Poll { .. })
}

/// Returns whether a request is made with a user's rights, rather than by the kernel about something it already has.
fn asks_as_somebody(opcode: Option<Opcode>) -> bool {
    use Opcode as O;
    !matches!(
        opcode,
        Some(
            O::Forget
                | O::BatchForget
                | O::Interrupt
                | O::Release
                | O::Releasedir
                | O::Flush
                | O::Read
                | O::Write
                | O::Readdir
                | O::Readdirplus
                | O::Fsync
                | O::Fsyncdir
        )
    )
}

/// Returns a path as a hint, or an empty hint if the path is too long.
fn hint(path: &std::path::Path) -> wire::Path {
    wire::Path::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default()
}

fn whole(answer: &[u8]) -> Message {
    match Piece::new(answer) {
        Some(head) => Message::Relayed { head },
        None => refused(libc::EPROTO, &format!("an answer of {} bytes without data", answer.len())),
    }
}

/// Groups of the caller for whom this thread works, until dropped.
struct Told;

impl Told {
    fn new(groups: &[u8]) -> Told {
        let (groups, _) = groups.as_chunks::<4>();
        set_groups_of_callers(Some(groups.iter().map(|group| u32::from_le_bytes(*group)).collect()));
        Told
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        set_groups_of_callers(None);
    }
}

const _: () = assert!(PIECE_BYTES_MAX.is_multiple_of(4));

impl<S: Service> Service for NameService<S> {
    type Session = ClientSession<S::Session>;

    fn begin(&self, session: &[u8; 16], store: &str, agent: &str) -> Result<Self::Session, (i32, String)> {
        if !store.is_empty() {
            return self.inner.begin(session, store, agent).map(|session| ClientSession(Kind::Agent(session)));
        }
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        tracing::info!(node = agent, client, "a node without the global store connected");
        let data = self.inner.begin(session, &self.store, agent)?;
        Ok(ClientSession(Kind::Node(
            RelayNode::new(client, (session, agent), start(), Arc::clone(&self.recovery_records)),
            data,
        )))
    }

    fn is_silent(&self, session: &Self::Session, silent: bool) {
        let (Kind::Agent(data) | Kind::Node(_, data)) = &session.0;
        self.inner.is_silent(data, silent);
    }

    fn ends(&self) {
        self.recovery_records.end();
        self.inner.ends();
    }

    fn targets(&self, session: &Self::Session, message: &Message) -> Option<Targets> {
        let (Kind::Agent(data) | Kind::Node(_, data)) = &session.0;
        if matches!(session.0, Kind::Agent(_)) || is_of_data(message) {
            return self.inner.targets(data, message);
        }
        match message {
            Message::Attach { .. }
            | Message::AttachAgain { .. }
            | Message::LocksReclaimed {}
            | Message::Reclaimed {}
            | Message::Detach {} => Some([0; 2]),
            Message::ReclaimLock { head } => Some([Envelope::of(head.as_slice())?.node & !REQUEST; 2]),
            Message::Reclaim { node, handle, .. } => Some([node & !REQUEST, handle & !REQUEST]),
            Message::Withdraw { number } => Some([number | REQUEST; 2]),
            Message::Relay { number, head, .. } => {
                let envelope = Envelope::of(head.as_slice())?;
                let renames = matches!(envelope.opcode, Some(Opcode::Rename | Opcode::Rename2));
                let second = if renames { envelope.first & !REQUEST } else { number | REQUEST };
                (!envelope.opcode.is_some_and(Opcode::is_pure)).then_some([envelope.node & !REQUEST, second])
            }
            _ => None,
        }
    }

    fn remembers(&self, message: &Message) -> bool {
        match message {
            Message::Relay { .. } => true,
            other => self.inner.remembers(other),
        }
    }

    fn in_file(&self, session: &Self::Session, message: &Message) -> Option<(Message, InFile)> {
        match &session.0 {
            Kind::Agent(session) => self.inner.in_file(session, message),
            Kind::Node(..) => None,
        }
    }

    fn handle(&self, session: &Self::Session, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        match &session.0 {
            Kind::Agent(session) => self.inner.handle(session, message, data, out),
            Kind::Node(_, session) if is_of_data(&message) => self.inner.handle(session, message, data, out),
            Kind::Node(node, _) => self.on_node(node, message, data, out),
        }
    }
}
