//! The server's side: listening sockets, and a thread for each connection.

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use concurrency::{Instant, JoinHandle};
use wire::Message;

use crate::address::Address;
use crate::counted::Counted;
use crate::data::InFile;
use crate::duplicate_requests::Verdict;
use crate::frame::{Frame, Framed};
use crate::handshake::{self, HandshakeFailure, Refused};
use crate::limits::{CONNECTIONS_MAX, FRAME, HANDSHAKE, IDLE, OPEN_MAX, STACK_BYTES, THREADS_ENDING_MAX, TICK};
use crate::link::{Link, Listener, NewConnection, Peer};
use crate::secret::Secret;
use crate::session::{ClientEntry, Service, Sessions};
use crate::socket::{Socket, bind_unix};
use crate::strangers::Strangers;
use crate::wait_limit::WaitLimit;

/// Rule for which clients may connect.
#[derive(Clone, Default)]
pub struct AllowedPeers {
    /// Secret that clients on the network must prove to have.
    pub secret: Option<Secret>,
    /// Whether clients on the network need no secret. If so, whoever reaches the port may read and write every file.
    pub anonymous: bool,
}

/// Running server. Ends when dropped.
#[derive(Default)]
pub struct Server {
    addresses: Vec<Address>,
    sockets: Vec<PathBuf>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<V: Service> {
    service: V,
    access: AllowedPeers,
    sessions: Sessions<V::Session>,
    end: Arc<AtomicBool>,
    /// Number of threads of connections.
    threads: AtomicUsize,
    /// Number of connections of clients that passed the handshake.
    connections: AtomicUsize,
    strangers: Strangers,
}

impl Server {
    /// Listens on all `addresses` and serves from now on. Errors name the address. `PermissionDenied`: for instance a
    /// TCP address without a secret, unless anonymous clients are allowed.
    pub fn start<V: Service>(service: V, addresses: &[Address], access: AllowedPeers) -> io::Result<Server> {
        let mut server = Server::default();
        let mut listeners: Vec<Box<dyn Listener>> = Vec::new();
        for address in addresses {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
            listeners.push(Box::new(server.bind(address, &access).map_err(named)?));
        }
        server.serve(service, listeners, access)?;
        Ok(server)
    }

    /// Serves connections from `listeners`, from now on.
    pub fn start_on<V: Service>(
        service: V,
        listeners: Vec<Box<dyn Listener>>,
        access: AllowedPeers,
    ) -> io::Result<Server> {
        let mut server = Server::default();
        server.serve(service, listeners, access)?;
        Ok(server)
    }

    fn serve<V: Service>(
        &mut self,
        service: V,
        listeners: Vec<Box<dyn Listener>>,
        access: AllowedPeers,
    ) -> io::Result<()> {
        let end = Arc::clone(&self.end);
        let shared = Arc::new(Shared {
            service,
            access,
            sessions: Sessions::default(),
            end,
            threads: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            strangers: Strangers::default(),
        });
        for listener in listeners {
            let shared = Arc::clone(&shared);
            let accept = move || shared.accept(&*listener);
            self.threads.push(concurrency::spawn_joined("accept", accept)?);
        }
        let expire = move || shared.expire();
        self.threads.push(concurrency::spawn_joined("sessions", expire)?);
        Ok(())
    }

    fn bind(&mut self, address: &Address, access: &AllowedPeers) -> io::Result<Socket> {
        match address {
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                self.sockets.push(path.clone());
                self.addresses.push(address.clone());
                listener.set_nonblocking(true)?;
                Ok(Socket::Unix(listener))
            }
            Address::Tcp(_) if access.secret.is_none() && !access.anonymous => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "clients on the network need a secret"))
            }
            Address::Tcp(place) => {
                let listener = TcpListener::bind(place)?;
                self.addresses.push(Address::Tcp(listener.local_addr()?.to_string()));
                listener.set_nonblocking(true)?;
                Ok(Socket::Tcp(listener))
            }
        }
    }

    /// Returns the addresses of the listening sockets, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl<V: Service> Shared<V> {
    fn ends(&self) -> bool {
        self.end.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, listener: &dyn Listener) {
        while !self.ends() {
            match listener.next() {
                Ok(None) => {}
                Ok(Some(connection)) => self.start(connection),
                // No descriptors are left, or the client disconnected at once. The next connection may succeed.
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    concurrency::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn start(self: &Arc<Self>, NewConnection { link, socket, from }: NewConnection) {
        if self.threads.load(Ordering::Acquire) >= CONNECTIONS_MAX + THREADS_ENDING_MAX {
            tracing::debug!("too many connections: closed a new one");
            return;
        }
        // Counted before the next connection is accepted.
        let Some(stranger) = self.strangers.come(from, socket) else { return };
        self.threads.fetch_add(1, Ordering::AcqRel);
        let shared = Arc::clone(self);
        let serve = move || {
            let _thread = Counted(&shared.threads);
            shared.serve(link, stranger);
        };
        let started = concurrency::spawn_with_stack("client", STACK_BYTES, serve);
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            self.strangers.leave(stranger);
        }
    }

    fn serve(&self, link: Box<dyn Link>, stranger: u64) {
        let mut framed = Framed::new(link);
        let (mut held, mut connection) = (None, None);
        let met = self.meet(&mut framed, stranger, &mut held, &mut connection);
        self.strangers.leave(stranger);
        let Some((session, held)) = held else {
            match met {
                Err(HandshakeFailure::Refused(Refused { reason, .. })) => {
                    tracing::info!(reason, "a client was refused")
                }
                Err(HandshakeFailure::Broken(error)) => {
                    tracing::debug!(%error, "a client disconnected before the handshake was done")
                }
                Ok(()) => {}
            }
            return;
        };
        if met.is_ok() {
            let error = self.converse(&mut framed, &held);
            tracing::debug!(%error, "a client connection ended");
        }
        self.sessions.leave(&session, &self.service);
    }

    #[allow(clippy::type_complexity, reason = "a session's number and its memory, or none yet")]
    fn meet<'a>(
        &'a self,
        framed: &mut Framed,
        stranger: u64,
        held: &mut Option<([u8; 16], Arc<ClientEntry<V::Session>>)>,
        connection: &mut Option<Counted<'a>>,
    ) -> Result<(), HandshakeFailure> {
        let local = match framed.link().peer()? {
            // For a process of this machine, the user that the kernel reports is proof enough.
            Peer::Local { uid, pid } => {
                let ours = rustix::process::geteuid().as_raw();
                if uid != ours && uid != 0 {
                    tracing::warn!(uid, pid, "a process of another user was refused");
                    return Err(HandshakeFailure::Broken(io::ErrorKind::PermissionDenied.into()));
                }
                true
            }
            Peer::Remote(_) => false,
        };
        let secret = self.access.secret.as_ref().filter(|_| !local);
        let admit = |greeting: &handshake::Greeting| {
            *connection = Some(Counted::below(&self.connections, CONNECTIONS_MAX).ok_or_else(|| Refused {
                errno: libc::EAGAIN,
                reason: format!("the server has {CONNECTIONS_MAX} connections"),
            })?);
            let joined = self.sessions.join(greeting, &self.service)?;
            let memory = joined.memory;
            *held = Some((greeting.session, joined));
            Ok(memory)
        };
        framed.wait(&WaitLimit::within(HANDSHAKE))?;
        self.strangers.spoke(stranger);
        handshake::receive(framed, secret, admit).map(|_| ())
    }

    /// Serves requests until the connection ends. Returns the reason for its end.
    fn converse(&self, framed: &mut Framed, held: &ClientEntry<V::Session>) -> io::Error {
        let (mut room, mut out): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let ended = || self.ends();
        loop {
            // Checked here too: a client that always has a request ready never makes us wait.
            if ended() {
                return io::Error::from_raw_os_error(libc::ESHUTDOWN);
            }
            // A quiet client may wait as long as it likes; once a frame has begun, the rest must follow in time.
            if room.capacity() + out.capacity() > 0
                && framed.wait(&WaitLimit { until: Some(Instant::now() + IDLE), interrupted: &ended }).is_err()
            {
                // An error shows again in `receive` below.
                (room, out) = (Vec::new(), Vec::new());
            }
            let frame = match framed.receive(&WaitLimit { until: None, interrupted: &ended }) {
                Ok(frame) => frame,
                Err(error) => return error,
            };
            let bytes = frame.header.data_bytes as usize;
            if room.len() < bytes {
                room.resize(bytes, 0); // grows only; not zeroed again for later requests
            }
            let data = &mut room[..bytes];
            if let Err(error) = framed.take(data, &WaitLimit::within(FRAME)) {
                return error;
            }
            out.clear();
            let header = (frame.header.request, 0);
            let lent = if held.tries_to_lend(header.0) { self.in_file(held, &frame.message) } else { None };
            let sent = if let Some((answer, there)) = lent {
                let sent = framed.send_in_file(header, &answer, &there, &WaitLimit::within(FRAME));
                sent.inspect_err(|_| held.could_not_lend(header.0))
            } else if let Some(answer) = self.answer(held, frame, data, &mut out) {
                framed.send(header, &answer, &out, &WaitLimit::within(FRAME))
            } else {
                return io::Error::from_raw_os_error(libc::ESTALE);
            };
            if let Err(error) = sent {
                return error;
            }
        }
    }

    /// Answers one request. Returns `None` if nobody waits for the answer any more, or the request has waited too
    /// long on this connection.
    fn answer(&self, held: &ClientEntry<V::Session>, frame: Frame, data: &[u8], out: &mut Vec<u8>) -> Option<Message> {
        let Frame { header, message } = frame;
        if let Message::DoneWith { below } = message {
            return Some(done_with(held, below, data));
        }
        let Some(targets) = self.service.targets(&held.state, &message) else {
            return Some(self.handle(held, message, data, out));
        };
        match held.duplicate_requests.enter(header.request, header.oldest, targets) {
            Verdict::Execute => {}
            Verdict::Answer(answer) => return Some(answer),
            Verdict::Stale | Verdict::Late => return None,
            Verdict::Fail(errno) => return Some(Message::failed(errno, "the request was lost and cannot be repeated")),
        }
        let remembers = self.service.remembers(&message);
        let answer = self.handle(held, message, data, out);
        held.duplicate_requests.leave(header.request, remembers.then_some(&answer));
        Some(answer)
    }

    fn in_file(&self, held: &ClientEntry<V::Session>, message: &Message) -> Option<(Message, InFile)> {
        // After a panic `handle` is asked instead, and answers or fails.
        catch_unwind(AssertUnwindSafe(|| self.service.in_file(&held.state, message))).ok().flatten()
    }

    /// Calls the service's handler. A panic becomes the answer `EIO`, so that requests waiting for this one are
    /// released.
    fn handle(&self, held: &ClientEntry<V::Session>, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        let name = message.name();
        let handled = catch_unwind(AssertUnwindSafe(|| self.service.handle(&held.state, message, data, &mut *out)));
        handled.unwrap_or_else(|_| {
            tracing::error!(message = name, "a handler panicked");
            out.clear();
            Message::failed(libc::EIO, "the server failed")
        })
    }

    fn expire(&self) {
        while !self.ends() {
            concurrency::sleep(TICK);
            self.sessions.expire(false);
        }
        // Connections notice the end within a tick. Files that they had open are closed with them.
        while self.threads.load(Ordering::Acquire) > 0 {
            self.strangers.close();
            concurrency::sleep(Duration::from_millis(2));
        }
        self.service.ends();
        self.sessions.expire(true);
        tracing::debug!(left = self.sessions.len(), "the server has ended");
    }
}

/// Handles a client's [`Message::DoneWith`].
fn done_with<S>(held: &ClientEntry<S>, below: u64, open: &[u8]) -> Message {
    if open.len() > OPEN_MAX * 8 {
        return Message::failed(libc::EINVAL, "more requests than may be open");
    }
    let (numbers, _) = open.as_chunks::<8>();
    held.duplicate_requests.done_with(below, numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect());
    Message::Done {}
}
