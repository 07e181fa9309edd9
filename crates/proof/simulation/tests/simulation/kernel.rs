//! A server that keeps files, locks and client recovery records for kernels of other machines, and data for agents. The
//! session table, the handles of agents, the lock table and the records are the product's. What a kernel's message means
//! is played here, for there are no names and no credentials.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Condvar, Mutex};
use fuse_protocol::{Envelope, Given, LockChange, Opcode};
use relay_server::Locker;
use server::Files;
use transport::{InFile, Service, Targets};
use wire::{Message, Piece};

use crate::attached::{Attached, Events, Process};
use crate::disk::identity;
use crate::messages::answer;

/// Marks request numbers among the targets, to tell them from files.
const REQUEST: u64 = 1 << 63;
const DATA: u64 = 1 << 62;

pub struct NodeSession {
    process: Arc<Process>,
    node: u64,
    locker: Locker,
    attached: Mutex<Option<Arc<Attached>>>,
    given: Mutex<BTreeMap<u64, Given>>,
    /// As a new server's: above all that a former one can have given.
    first_event: u64,
}

impl NodeSession {
    fn attach(&self, open: bool) -> Message {
        let mut attached = self.attached.lock();
        if attached.is_none() {
            let events = Events { waiting: VecDeque::new(), passed: self.first_event };
            *attached = Some(Arc::new(Attached {
                process: Arc::clone(&self.process),
                node: self.node,
                client: self.locker.client,
                open: AtomicBool::new(open),
                opens: Mutex::default(),
                waits: Arc::default(),
                events: Arc::new((Mutex::new(events), Condvar::new())),
            }));
        }
        whole(answer(0, 2, &[]))
    }

    fn attached(&self, open: bool) -> Option<Arc<Attached>> {
        self.attached.lock().clone().filter(|attached| attached.open.load(Ordering::SeqCst) == open)
    }

    fn detach(&self) {
        let gone = self.attached.lock().take();
        let hold = gone.map(|attached| attached as relay_server::LockHold);
        // A process that has died changes no record.
        let change = || self.process.records.gone(&self.locker, hold);
        self.process.machine.records(self.process.number, change);
    }
}

impl Drop for NodeSession {
    fn drop(&mut self) {
        self.detach();
    }
}

fn whole(bytes: Vec<u8>) -> Message {
    Message::Relayed { head: Piece::new(bytes).unwrap() }
}

/// Service for agents and nodes.
pub struct Kernels {
    pub process: Arc<Process>,
    pub files: Files,
}

pub enum Session {
    Agent(<Files as Service>::Session),
    Node(NodeSession),
}

fn takes_lock(envelope: &Envelope, head: &[u8]) -> bool {
    LockChange::of(envelope, head).is_some_and(|change| change.takes())
}

impl Kernels {
    fn on_node(&self, node: &NodeSession, message: Message, out: &mut Vec<u8>) -> Message {
        let records = &self.process.records;
        let too_late = || Message::failed(libc::ESTALE, "too late");
        let done = |is: bool| if is { Message::Done {} } else { Message::Unknown {} };
        match message {
            Message::Ping {} => Message::Done {},
            Message::AskBootVerifier {} => Message::BootVerifierIs { boot_verifier: self.process.boot_verifier },
            Message::Attach { .. } => node.attach(true),
            Message::AttachAgain { .. } => node.attach(false),
            Message::Reclaim { node: file, handle, .. } => match node.attached(false) {
                None => Message::Unknown {},
                Some(attached) => match attached.reclaim(file, handle) {
                    Ok(()) => Message::Done {},
                    Err(_) => too_late(),
                },
            },
            Message::ReclaimLock { head } => self.reclaim_lock(node, head.as_slice()),
            Message::LocksReclaimed {} if node.attached(false).is_none() => Message::Unknown {},
            Message::LocksReclaimed {} if records.has_claimed(&node.locker) => Message::Done {},
            Message::LocksReclaimed {} => too_late(),
            Message::Reclaimed {} => {
                let attached = node.attached.lock();
                attached.iter().for_each(|attached| attached.open.store(true, Ordering::SeqCst));
                done(attached.is_some())
            }
            Message::Relay { number, oldest, head, .. } => match node.attached(true) {
                None => Message::Unknown {},
                Some(attached) => self.relay(node, &attached, (number, oldest), head.as_slice()),
            },
            Message::Listen { after } => match node.attached(true) {
                None => Message::Unknown {},
                Some(attached) => {
                    self.process.machine.records(self.process.number, || records.try_again());
                    Message::Heard { last: attached.collect(after, out) }
                }
            },
            Message::Withdraw { number } => {
                let given = node.given.lock().remove(&number);
                given.iter().zip(node.attached(true)).for_each(|(given, attached)| attached.take_back(given));
                Message::Done {}
            }
            Message::Detach {} => {
                node.detach();
                Message::Done {}
            }
            _ => Message::failed(libc::EPROTO, "not asked by a node"),
        }
    }

    fn reclaim_lock(&self, node: &NodeSession, head: &[u8]) -> Message {
        let Some(attached) = node.attached(false) else { return Message::Unknown {} };
        let Some(envelope) = Envelope::of(head) else { return Message::failed(libc::EPROTO, "no message") };
        if takes_lock(&envelope, head) && !self.process.records.may_claim(&node.locker) {
            return Message::failed(libc::ESTALE, "too late");
        }
        match fuse_protocol::view::is_success(&attached.run(head)) {
            true => Message::Done {},
            false => Message::failed(libc::ESTALE, "somebody else has it"),
        }
    }

    fn relay(&self, node: &NodeSession, attached: &Attached, (number, oldest): (u64, u64), head: &[u8]) -> Message {
        let Some(envelope) = Envelope::of(head) else { return Message::failed(libc::EPROTO, "no message") };
        if takes_lock(&envelope, head) {
            let admitted = self.process.machine.step(self.process.number, || self.process.records.admit(&node.locker));
            match admitted {
                Some(Ok(true)) => {}
                Some(Ok(false)) => return Message::Grace {},
                Some(Err(_)) | None => return Message::failed(libc::EIO, "no record"),
            }
        }
        if envelope.opcode == Some(Opcode::Setlkw) && attached.waits.lock().contains_key(&envelope.unique) {
            return Message::Pending {};
        }
        let answer = attached.run(head);
        {
            let mut given = node.given.lock();
            *given = given.split_off(&oldest);
            Given::by(&envelope, &answer).into_iter().for_each(|one| _ = given.insert(number, one));
        }
        if answer.is_empty() {
            return Message::Pending {};
        }
        let is_open = envelope.opcode == Some(Opcode::Open) && fuse_protocol::view::is_success(&answer);
        if !is_open {
            return whole(answer);
        }
        let (identity, hint) = (identity(envelope.node as u8), wire::Path::default());
        Message::RelayedOf { head: Piece::new(answer).unwrap(), identity, hint }
    }
}

impl Service for Kernels {
    type Session = Session;

    fn begin(&self, session: &[u8; 16], store: &str, agent: &str) -> Result<Session, (i32, String)> {
        self.process.machine.oracle.remembers(agent.parse().unwrap());
        if !store.is_empty() {
            return self.files.begin(session, store, agent).map(Session::Agent);
        }
        let client = self.process.clients.fetch_add(1, Ordering::Relaxed);
        Ok(Session::Node(NodeSession {
            process: Arc::clone(&self.process),
            node: agent.parse().unwrap(),
            locker: Locker { name: *session, client },
            attached: Mutex::default(),
            given: Mutex::default(),
            first_event: (self.process.number << 32) + client * 1_000_000,
        }))
    }

    fn is_silent(&self, session: &Session, silent: bool) {
        if let Session::Agent(agent) = session {
            self.files.is_silent(agent, silent);
        }
    }

    fn ends(&self) {
        self.process.records.end();
    }

    fn targets(&self, session: &Session, message: &Message) -> Option<Targets> {
        if let Session::Agent(agent) = session {
            return self.files.targets(agent, message);
        }
        match message {
            Message::Attach { .. }
            | Message::AttachAgain { .. }
            | Message::LocksReclaimed {}
            | Message::Reclaimed {}
            | Message::Detach {} => Some([DATA; 2]),
            Message::ReclaimLock { head } => Some([Envelope::of(head.as_slice())?.node; 2]),
            Message::Reclaim { node, handle, .. } => Some([*node, *handle]),
            Message::Withdraw { number } => Some([number | REQUEST; 2]),
            Message::Relay { number, head, .. } => {
                let envelope = Envelope::of(head.as_slice())?;
                (!envelope.opcode.is_some_and(Opcode::is_pure)).then_some([envelope.node, number | REQUEST])
            }
            _ => None,
        }
    }

    fn remembers(&self, message: &Message) -> bool {
        matches!(message, Message::Relay { .. }) || self.files.remembers(message)
    }

    fn in_file(&self, session: &Session, message: &Message) -> Option<(Message, InFile)> {
        match session {
            Session::Agent(agent) => self.files.in_file(agent, message),
            Session::Node(_) => None,
        }
    }

    fn handle(&self, session: &Session, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        match session {
            Session::Agent(agent) => self.files.handle(agent, message, data, out),
            Session::Node(node) => self.on_node(node, message, out),
        }
    }
}
