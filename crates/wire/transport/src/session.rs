//! The server's sessions: what is remembered of each client beyond its connections.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::{Instant, Mutex};
use wire::Message;

use crate::duplicate_requests::DuplicateRequestCache;
use crate::handshake::{Greeting, Refused};
use crate::limits::{SESSION_IDLE, SESSIONS_MAX};
use crate::secret::random;

/// What a request changes, as numbers: a file, and for an open and a close the handle too. One that has but one thing to say says
/// it twice.
pub type Targets = [u64; 2];

/// What a server remembers of one client, as a number: random, made when that began. A server that was started again, or has forgotten the
/// client, has another.
pub type SessionInstance = [u8; 16];

/// Bytes of a file that go into an answer without being copied here.
#[derive(Debug, Clone)]
pub struct InFile {
    /// Open for reading.
    pub file: Arc<OwnedFd>,
    /// The first of them.
    pub offset: u64,
    /// How many; not 0.
    pub bytes: usize,
}

/// What a server does with requests. The calls come from many threads.
pub trait Service: Send + Sync + 'static {
    /// What it keeps for a client; dropped when the client is gone.
    type Session: Send + Sync;

    /// A new client, whose directory has this identity. `session` is its own number, random, and the same for every server that it
    /// meets. The error is told to it.
    fn begin(&self, session: &[u8; 16], store: &str, agent: &str) -> Result<Self::Session, (i32, String)>;

    /// The last connection of a client has gone, which may be for good, or the first after that has come. It must not wait.
    fn is_silent(&self, _session: &Self::Session, _silent: bool) {}

    /// The server ends, and nobody reaches it any more: the clients that are dropped now are not gone.
    fn ends(&self) {}

    /// What a request changes; `None` for what changes nothing.
    fn targets(&self, session: &Self::Session, message: &Message) -> Option<Targets>;

    /// Whether doing it twice differs from doing it once. What is not remembered and sent again is done again, also over
    /// what somebody else has written between: where programs answer each other in one file, its writes are remembered too.
    fn remembers(&self, message: &Message) -> bool;

    /// The answer to what changes nothing, where its data lies in a file; `None`: [`Service::handle`] is asked. If the file has
    /// become shorter when they are sent, or cannot be read, the connection ends, and when the request comes again [`Service::handle`] is asked.
    fn in_file(&self, _session: &Self::Session, _message: &Message) -> Option<(Message, InFile)> {
        None
    }

    /// Does what is asked. `data` came with it; `out`, empty, takes the data of the answer.
    fn handle(&self, session: &Self::Session, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message;
}

/// One client.
pub(crate) struct ClientEntry<S> {
    pub(crate) memory: SessionInstance,
    pub(crate) duplicate_requests: DuplicateRequestCache,
    pub(crate) state: S,
    /// A request whose answer broke off in a file: the next time it is answered, or refused, without.
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
    /// When the last connection went.
    idle: Instant,
}

/// All clients.
pub(crate) struct Sessions<S>(Mutex<HashMap<[u8; 16], Slot<S>>>);

impl<S> Default for Sessions<S> {
    fn default() -> Sessions<S> {
        Sessions(Mutex::default())
    }
}

impl<S: Send + Sync> Sessions<S> {
    /// One more connection of a client, which is new or known.
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
        // It may have been forgotten in the meantime.
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

    /// Forgets the clients that have been gone for long - all of them, if `all` - and what they had open.
    pub(crate) fn expire(&self, all: bool) {
        let gone: Vec<Slot<S>> = {
            let mut slots = self.0.lock();
            let is_gone = |_: &[u8; 16], slot: &mut Slot<S>| {
                all || (slot.connections == 0 && slot.idle.elapsed() >= SESSION_IDLE)
            };
            slots.extract_if(is_gone).map(|(_, slot)| slot).collect()
        };
        for slot in gone {
            slot.held.duplicate_requests.close();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
