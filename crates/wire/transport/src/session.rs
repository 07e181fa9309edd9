//! The server's sessions: state of each client that outlasts its connections.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::{Instant, Mutex};
use types::SessionInstance;
use wire::Message;

use crate::data::InFile;
use crate::duplicate_requests::{DuplicateRequestCache, Targets};
use crate::handshake::{Greeting, Refused};
use crate::limits::{SESSION_IDLE, SESSIONS_MAX};
use crate::secret::random;

/// Handler of a server's requests. The calls come from many threads.
pub trait Service: Send + Sync + 'static {
    /// State kept for one client. Dropped when the client is gone.
    type Session: Send + Sync;

    /// Begins a new client's session. `store`: identity of its directory. `session`: the client's own random number,
    /// which is the same for every server. An error (error number and reason) refuses the client and is sent to it.
    fn begin(&self, session: &[u8; 16], store: &str, agent: &str) -> Result<Self::Session, (i32, String)>;

    /// Notes that a client's last connection has ended (`silent`), perhaps for good, or that the first one after that
    /// was made. Must not wait.
    fn is_silent(&self, _session: &Self::Session, _silent: bool) {}

    /// Notes that the server ends and no client reaches it any more. Sessions dropped from now on belong to clients
    /// that still exist.
    fn ends(&self) {}

    /// Returns the objects that a request changes. `None`: it changes nothing.
    fn targets(&self, session: &Self::Session, message: &Message) -> Option<Targets>;

    /// Returns whether executing the request twice differs from executing it once. Answers to other requests are not
    /// remembered: a request sent again is executed again, even over another client's write in between. So writes to
    /// files through which programs answer each other must be remembered too.
    fn remembers(&self, message: &Message) -> bool;

    /// Returns the answer to a request that changes nothing and whose data lies in a file. `None`:
    /// [`Service::handle`] is called instead. If the file turns out shorter or unreadable while it is sent, the
    /// connection ends. The client sends the request again, and [`Service::handle`] answers it.
    fn in_file(&self, _session: &Self::Session, _message: &Message) -> Option<(Message, InFile)> {
        None
    }

    /// Executes a request and returns the answer. `data`: the request's data. `out`: empty; takes the answer's data.
    fn handle(&self, session: &Self::Session, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message;
}

/// State of one client.
pub(crate) struct ClientEntry<S> {
    pub(crate) memory: SessionInstance,
    pub(crate) duplicate_requests: DuplicateRequestCache,
    pub(crate) state: S,
    /// Request whose answer from a file broke off. The next try is answered by [`Service::handle`].
    broken_off: AtomicU64,
}

impl<S> ClientEntry<S> {
    pub(crate) fn tries_to_lend(&self, request: u64) -> bool {
        self.broken_off.load(Ordering::Relaxed) != request
    }

    pub(crate) fn could_not_lend(&self, request: u64) {
        self.broken_off.store(request, Ordering::Relaxed);
    }
}

struct Slot<S> {
    held: Arc<ClientEntry<S>>,
    connections: u32,
    /// Time at which the last connection ended.
    idle: Instant,
}

/// State of all clients.
pub(crate) struct Sessions<S>(Mutex<BTreeMap<[u8; 16], Slot<S>>>);

impl<S> Default for Sessions<S> {
    fn default() -> Sessions<S> {
        Sessions(Mutex::default())
    }
}

impl<S: Send + Sync> Sessions<S> {
    /// Adds a connection of a new or known client. Errors: the server is full, or the service refuses the client.
    pub(crate) fn join<V: Service<Session = S>>(
        &self,
        greeting: &Greeting,
        service: &V,
    ) -> Result<Arc<ClientEntry<S>>, Refused> {
        let mut slots = self.0.lock();
        if let Some(slot) = slots.get_mut(&greeting.session) {
            slot.connections += 1;
            if slot.connections == 1 {
                service.is_silent(&slot.held.state, false);
            }
            return Ok(Arc::clone(&slot.held));
        }
        if slots.len() >= SESSIONS_MAX {
            return Err(Refused { errno: libc::EAGAIN, reason: format!("the server has {SESSIONS_MAX} clients") });
        }
        let state = service
            .begin(&greeting.session, greeting.store.as_str(), greeting.agent.as_str())
            .map_err(|(errno, reason)| Refused { errno, reason })?;
        let failed = |error: io::Error| Refused { errno: libc::EAGAIN, reason: error.to_string() };
        let held = Arc::new(ClientEntry {
            memory: random().map_err(failed)?,
            duplicate_requests: DuplicateRequestCache::default(),
            state,
            broken_off: AtomicU64::new(0),
        });
        let slot = Slot { held: Arc::clone(&held), connections: 1, idle: Instant::now() };
        // The service may have known this client before, and its session was dropped since.
        service.is_silent(&held.state, false);
        slots.insert(greeting.session, slot);
        Ok(held)
    }

    pub(crate) fn leave<V: Service<Session = S>>(&self, session: &[u8; 16], service: &V) {
        if let Some(slot) = self.0.lock().get_mut(session) {
            slot.connections -= 1;
            slot.idle = Instant::now();
            if slot.connections == 0 {
                service.is_silent(&slot.held.state, true);
            }
        }
    }

    /// Forgets the clients that had no connection for [`SESSION_IDLE`], or all clients if `all`. Files that they had
    /// open are closed.
    pub(crate) fn expire(&self, all: bool) {
        let gone: Vec<Slot<S>> = {
            let mut slots = self.0.lock();
            let is_gone = |_: &[u8; 16], slot: &mut Slot<S>| {
                all || (slot.connections == 0 && slot.idle.elapsed() >= SESSION_IDLE)
            };
            slots.extract_if(.., is_gone).map(|(_, slot)| slot).collect()
        };
        for slot in gone {
            slot.held.duplicate_requests.close();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
