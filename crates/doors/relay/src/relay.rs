//! The node's side: from `/dev/fuse` to the server and back.
//!
//! A request is sent by the thread that read it, over a connection of its own. The server may forget this node: it
//! was restarted, or the network failed for long. The first thread that notices attaches the kernel again with its
//! original INIT, and claims everything that the kernel has ([`reclaim`]). Then requests continue.

mod agreement;
mod background;
mod drains;
mod pages;
mod reclaim;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::Caller;
use concurrency::{Instant, JoinHandle, Mutex};
use fuse_protocol::view::{WriteView, is_success};
use fuse_protocol::{
    AboutFile, Envelope, Errno, Given, KernelState, LockChange, LockOutcome, NodeId, Opcode, Pages, Parked, Raw,
    is_dying, was_killed,
};
use remote::Written;
use transport::{Answer, Call, CallError, Client, SessionInstance};
use wire::limits::PIECE_BYTES_MAX;
use wire::{Message, Piece};

use self::agreement::Agreement;
use crate::changes::Changes;
use crate::deferred::{DeferredRequest, DeferredRequests};
use crate::limits::{ANSWER_BYTES, DETACH, GRACE_POLL, GROUPS_MAX, HEAD_BYTES};
use crate::manner::{self, Manner};
use crate::open::OpenRequests;
use crate::parked::Waiting;

/// The node's side of one mount.
pub struct Relay {
    client: Client,
    /// Longest wait of requests that change nothing.
    patience: Duration,
    open: OpenRequests,
    waiting: Waiting,
    deferred: DeferredRequests,
    kernel: KernelState,
    changes: Changes,
    /// Files that were written, and are to be staged out.
    written: Written,
    pages: Pages,
    /// Counter for the numbers of long operations at the server.
    jobs: AtomicU64,
    agreement: Mutex<Agreement>,
    /// Reason for which the server does not serve this kernel.
    refusal: Mutex<Option<String>>,
    /// How often the kernel was attached; 0: not yet.
    attached: AtomicU64,
    ended: AtomicBool,
    /// Sender of notifications to the kernel.
    pass: OnceLock<Pass>,
    /// Requests whose handlers wait for the kernel's pages.
    dropping: Mutex<HashSet<u64>>,
}

/// Function that sends the kernel a notification.
type Pass = Box<dyn Fn(&[u8]) -> io::Result<()> + Send + Sync>;

thread_local! {
    /// Buffer for an answer's data. Pages that no answer touches cost no memory.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `run` with this thread's buffer, which is out of its place meanwhile.
fn with_room(run: impl FnOnce(&mut [u8])) {
    let mut room = ROOM.take();
    if room.is_empty() {
        room = vec![0; ANSWER_BYTES];
    }
    run(&mut room);
    ROOM.set(room);
}

/// Result of asking the server once.
enum Got {
    Answer(Vec<u8>, usize),
    /// The server will answer later; this is its session instance.
    Later(SessionInstance),
    /// The server does not know this kernel, or was replaced before its answer was noted.
    Nothing,
    /// The server is in its grace period and grants no locks yet.
    Grace,
    /// No server was asked: the caller got a signal first.
    Unsent,
}

/// Parts of a request that stay the same however often it is sent.
struct RelayedRequest<'a> {
    /// Envelope of the kernel's message; `number` is the relay's own number for it.
    envelope: &'a Envelope,
    number: u64,
    groups: Piece,
    message: &'a [u8],
    /// Data behind the message, if that does not have it itself.
    data: &'a [u8],
    manner: Manner,
}

impl<'a> RelayedRequest<'a> {
    /// The head and the data of the message to the server: data goes from where it lies, unless all fits the head.
    fn parts(&self) -> (Piece, &'a [u8]) {
        let (message, data) = (self.message, self.data);
        if message.len() + data.len() <= PIECE_BYTES_MAX {
            return (Piece::new([message, data].concat()).unwrap_or_default(), &[]);
        }
        let (head, data) = if data.is_empty() { message.split_at(HEAD_BYTES) } else { (message, data) };
        (piece(head), data)
    }
}

fn piece(bytes: &[u8]) -> Piece {
    // The caller has checked the length.
    Piece::new(bytes).unwrap_or_default()
}

impl Relay {
    /// Creates a relay over a connected client. `patience`: longest wait of requests that change nothing for a server
    /// that is away.
    pub fn new(client: Client, patience: Duration) -> Arc<Relay> {
        Arc::new(Relay {
            client,
            patience,
            open: OpenRequests::default(),
            waiting: Waiting::default(),
            deferred: DeferredRequests::default(),
            kernel: KernelState::default(),
            changes: Changes::default(),
            written: Written::default(),
            pages: Pages::default(),
            jobs: AtomicU64::new(1),
            agreement: Mutex::default(),
            refusal: Mutex::default(),
            attached: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            pass: OnceLock::new(),
            dropping: Mutex::default(),
        })
    }

    /// Returns the client of the server.
    pub fn server(&self) -> &Client {
        &self.client
    }

    /// Starts the threads that fetch events and run deferred requests. Both end with the session. `pass` sends the
    /// kernel a notification.
    pub fn start(
        self: &Arc<Relay>,
        pass: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<[JoinHandle<()>; 2]> {
        // `set` succeeds, since `start` is called once.
        let _ = self.pass.set(Box::new(pass));
        let (listening, running) = (Arc::clone(self), Arc::clone(self));
        let listens = concurrency::spawn_joined("listen", move || listening.listen())?;
        let runs = concurrency::spawn_joined("errands", move || running.run_errands());
        if runs.is_err() {
            self.end();
        }
        Ok([listens, runs?])
    }

    /// Returns whether the server serves this kernel yet. Errors: the reason for which it does not.
    pub fn serves(&self) -> Result<bool, String> {
        match self.refusal.lock().clone() {
            Some(refusal) => Err(refusal),
            None => Ok(self.attached.load(Ordering::SeqCst) > 0),
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.deferred.end();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn pass(&self, notification: &[u8]) {
        // Fails if the kernel does not know the node, which then needs no notification.
        self.pass.get().iter().for_each(|pass| _ = pass(notification));
    }

    /// Returns the caller's groups if the request depends on them. Root needs none.
    fn groups_of(&self, envelope: &Envelope) -> Piece {
        if envelope.uid == 0 || !manner::depends_on_groups(envelope.opcode) {
            return Piece::default();
        }
        let groups = agent::groups_of(&Caller { uid: envelope.uid, gid: envelope.gid, pid: envelope.pid });
        let told: Vec<u8> = groups.iter().take(GROUPS_MAX).flat_map(|group| group.to_le_bytes()).collect();
        piece(&told)
    }

    /// Sends a request once and takes its answer.
    fn ask(
        &self,
        asked: &RelayedRequest<'_>,
        room: &mut [u8],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Got, CallError> {
        let (head, data) = asked.parts();
        let (number, oldest) = (asked.number, self.open.oldest());
        let (pace, groups) = (asked.manner.pace, asked.groups.clone());
        let message = Message::Relay { pace, number, oldest, groups, head };
        let call = Call {
            data: data.into(),
            into: room,
            within: asked.manner.within(self.patience),
            once: asked.manner.once,
            interrupted,
            ..Call::new(&message)
        };
        let sent = self.changes.sent(asked.envelope);
        let Answer { message, data_bytes, memory } = self.client.call(call)?;
        let (head, about) = match message {
            Message::Relayed { head } => (head, None),
            Message::RelayedOf { head, identity, hint } => {
                (head, Some((identity, OsStr::from_bytes(hint.as_slice()).into())))
            }
            Message::Pending {} => return Ok(Got::Later(memory)),
            Message::Unknown {} => return Ok(Got::Nothing),
            Message::Grace {} => return Ok(Got::Grace),
            message => return Err(unexpected(&message)),
        };
        if is_success(head.as_slice()) {
            self.changes.done(sent, memory, asked.envelope, asked.message);
        }
        let head = head.as_slice().to_vec();
        // Before the open file is noted, and outside its table's lock: claims for the next server that come in between
        // would end a write that has not begun.
        self.begin_writes(asked.envelope, &head, about.as_ref());
        // Noted here, so that what was given is claimed from the next server, or the answer is void.
        match self.kernel.answered(asked.envelope, &head, about, memory) {
            true => Ok(Got::Answer(head, data_bytes)),
            false => Ok(Got::Nothing),
        }
    }

    /// Sends a request like [`Relay::ask`], and attaches the kernel again when needed. In a grace period, any signal
    /// ends a request for a lock.
    fn ask_attached(
        &self,
        asked: &RelayedRequest<'_>,
        room: &mut [u8],
        over: &dyn Fn() -> bool,
        signalled: &dyn Fn() -> bool,
    ) -> Result<Got, CallError> {
        let began = Instant::now();
        loop {
            let seen = self.attached.load(Ordering::SeqCst);
            let attached = match self.ask(asked, room, over)? {
                Got::Nothing => self.attach(seen, over),
                Got::Grace if signalled() || over() => return Ok(Got::Unsent),
                Got::Grace => {
                    concurrency::sleep(GRACE_POLL);
                    Err(CallError::TimedOut)
                }
                got => return Ok(got),
            };
            match attached {
                Err(CallError::TimedOut) => {
                    if asked.manner.within(self.patience).is_some_and(|within| began.elapsed() >= within) {
                        return Err(CallError::TimedOut);
                    }
                }
                attached => attached?,
            }
        }
    }

    /// Answers a request, or arranges for a later answer.
    fn relay(&self, envelope: &Envelope, message: &[u8], reply: Parked) {
        let writes = self.kernel.writes(envelope.first);
        if envelope.opcode == Some(Opcode::Write) && !manner::is_cached(message) && self.changes.tells(envelope) {
            self.waiting.end(envelope.unique);
            return reply.error(Errno::EIO);
        }
        if envelope.opcode == Some(Opcode::Write)
            && manner::is_cached(message)
            && let Some(write) = WriteView::parse(message)
            && let Some(parts) = self.pages.differing(envelope.node, write.offset(), write.data())
        {
            return self.write_parts(envelope, message, parts, reply);
        }
        let otherwise = manner::changes_otherwise(envelope, message);
        let otherwise = otherwise.or_else(|| manner::cuts(envelope).then_some(envelope.node));
        otherwise.into_iter().for_each(|node| self.pages.changed(node));
        let change = LockChange::of(envelope, message);
        // A close has already written the pages.
        if change.is_some_and(|change| !change.takes()) && envelope.opcode != Some(Opcode::Flush) {
            self.drop_pages_of(envelope);
        }
        // A release is noted at once, whether or not the server receives it now.
        self.closed(self.kernel.sends(envelope, message));
        if envelope.releases() {
            self.changes.closed(envelope.node, envelope.first);
        }
        let manner = manner::of(envelope, message, writes);
        let (unique, number) = (envelope.unique, self.open.begin());
        let asked = RelayedRequest { envelope, number, groups: self.groups_of(envelope), message, data: &[], manner };
        with_room(|room| {
            let closes = envelope.opcode == Some(Opcode::Flush);
            let dies = || (reply.interrupted() && is_dying(envelope.pid)) || closes && was_killed(envelope.pid);
            let over = || reply.is_over() || dies();
            let outcome =
                self.ask_attached(&asked, room, &over, &|| reply.interrupted() && !self.kernel.gave_lock(unique));
            match outcome {
                Ok(Got::Answer(head, bytes)) => {
                    self.waiting.end(unique);
                    let takes = change.is_some_and(|change| change.takes());
                    self.follow_pages(envelope, message, &head, &room[..bytes]);
                    if is_success(&head) && (takes || envelope.opcode == Some(Opcode::Fsync)) {
                        self.pages.shared(envelope.node);
                        self.drop_pages_of(envelope);
                    }
                    // A loss is not reported with a write that was executed, but with the next request.
                    let told = envelope.opcode != Some(Opcode::Write) && is_success(&head);
                    if told && self.changes.tells(envelope) {
                        self.open.end(number);
                        return reply.error(Errno::EIO);
                    }
                    if reply.bytes(&head, &room[..bytes]) || !self.takes_back(envelope, &head) {
                        self.open.end(number);
                    } else {
                        self.deferred.add(DeferredRequest::Withdraw(number));
                    }
                }
                Ok(Got::Later(at)) => {
                    self.open.end(number);
                    self.waiting.park(reply, envelope.pid, message, at);
                    // A reclaim that happened meanwhile did not see this request waiting.
                    if self.kernel.holder() != at {
                        self.deferred.add(DeferredRequest::Await(unique));
                    }
                }
                Ok(Got::Unsent | Got::Nothing | Got::Grace) => {
                    self.kernel.ends(unique, LockOutcome::Unsent);
                    self.open.end(number);
                    match self.waiting.end(unique) {
                        Some(granted) => _ = reply.bytes(&granted, &[]),
                        None => reply.error(Errno::EINTR),
                    }
                }
                Err(error) => self.give_up(envelope, message, (number, reply), &error),
            }
        });
    }

    /// No answer has come, or none that can be believed.
    fn give_up(&self, envelope: &Envelope, message: &[u8], (number, reply): (u64, Parked), error: &CallError) {
        let unheard = matches!(error, CallError::TimedOut | CallError::Interrupted);
        let gives = LockChange::of(envelope, message).is_some() || envelope.opcode.is_some_and(Given::may_be);
        if unheard && gives && !self.has_ended() {
            self.deferred.add(DeferredRequest::Withdraw(number));
            self.undo_lock(envelope.unique);
        } else {
            self.kernel.ends(envelope.unique, LockOutcome::Refused);
            self.open.end(number);
        }
        // A lock that was granted meanwhile is noted, and nothing is undone.
        if let Some(granted) = self.waiting.end(envelope.unique) {
            reply.bytes(&granted, &[]);
            return;
        }
        if unheard && envelope.releases() {
            self.deferred.add(DeferredRequest::Release(message.to_vec()));
            return reply.done();
        }
        if !unheard {
            tracing::warn!(%error, opcode = ?envelope.opcode, "a request could not be relayed");
        }
        reply.error(Errno(error.errno()));
    }

    /// Notes the file that an answer has opened for writing, or cut.
    fn begin_writes(&self, envelope: &Envelope, answer: &[u8], about: Option<&AboutFile>) {
        let Some((identity, path)) = about else { return };
        if envelope.sets_size() {
            self.begin_write(identity, path);
            self.written.end(identity);
        } else if envelope.opens_for_writing()
            && let Some((node, handle)) = Given::by(envelope, answer).and_then(|given| given.opened)
        {
            self.begin_write(identity, path);
            self.changes.opened(node, handle, envelope.open_flags() & libc::O_TRUNC != 0);
        }
    }

    /// Takes back what an answer gave that the kernel never received. Returns false if the answer gave nothing.
    fn takes_back(&self, envelope: &Envelope, answer: &[u8]) -> bool {
        let Some(given) = Given::by(envelope, answer) else { return false };
        self.closed(self.kernel.takes_back(&given));
        given.opened.into_iter().for_each(|(node, handle)| self.changes.closed(node, handle));
        true
    }
}

fn unexpected(answer: &Message) -> CallError {
    tracing::error!(answer = answer.name(), "the server gave an answer to another question");
    CallError::Failed { errno: libc::EPROTO, reason: "the server gave an answer to another question".into() }
}

impl Raw for Relay {
    fn init(&self, message: &[u8]) -> Result<Vec<u8>, Errno> {
        self.agree(message)
    }

    fn request(&self, envelope: &Envelope, message: &[u8], reply: Parked) {
        self.waiting.begin(envelope.unique, envelope.node);
        self.relay(envelope, message, reply);
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.kernel.forgets(node, count, || {
            self.pages.forgotten(node);
            self.deferred.add(DeferredRequest::Forget(vec![(node, count)]));
        });
    }

    fn waits_for_kernel(&self, unique: u64) -> bool {
        self.dropping.lock().contains(&unique)
    }

    fn interrupt(&self, unique: u64) {
        self.deferred.add(DeferredRequest::Interrupt(unique));
    }

    fn destroy(&self) {
        // Before the session ends, since no call is possible afterwards. The server closes open files at once and
        // stages them out.
        let farewell = Message::Detach {};
        let call = Call { within: Some(DETACH), ..Call::new(&farewell) };
        if let Err(error) = self.client.call(call) {
            tracing::info!(%error, "the server did not hear that this node has unmounted");
        }
        self.kernel.clear().into_iter().for_each(|held| self.closed(Some(held)));
        self.end();
        self.waiting.end_all(Errno(libc::ENODEV));
    }
}
