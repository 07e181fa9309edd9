//! Dispatch of requests to the code that executes them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

use data_store::{DataStore, StatusScope, StoreObserver};
use global_store::posix::PosixStore;
use global_store::{Anchor, GlobalStore};
use transport::{InFile, Service, Targets};
use types::{ByteRange, Identity};
use wire::Message;

use crate::boot_verifier::BootVerifier;
use crate::convert;
use crate::departed::{ClientSessionId, Departed, mark_of};
use crate::fault;
use crate::handles::ClientHandles;
use crate::jobs::Jobs;
use crate::policies::Policies;
use crate::versions::VersionNumbers;

/// The files of one global store, as agents request them.
pub struct Files {
    pub(crate) data: Arc<dyn DataStore>,
    pub(crate) store: PosixStore,
    pub(crate) policies: Policies,
    pub(crate) versions: VersionNumbers,
    pub(crate) departed: Arc<Departed>,
    /// First number of this server: far above every number that an earlier server can have given.
    pub(crate) start: u64,
    pub(crate) boot_verifier: u64,
    store_id: String,
}

/// The session of one agent.
pub struct AgentSession {
    pub(crate) handles: ClientHandles,
    pub(crate) jobs: Jobs,
    pub(crate) client: ClientSessionId,
    agent: String,
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        tracing::info!(agent = self.agent, open = self.handles.len(), "an agent has disconnected");
    }
}

impl AgentSession {
    /// Returns the mark that identifies this session's changes as its own.
    pub(crate) fn mark(&self) -> u64 {
        mark_of(&self.client)
    }
}

impl Files {
    /// Makes the service over an opened data store and its global store. `store_id` is the identity of the accelerated
    /// directory in hex. The log of clients with windows is the file `departed`. Errors: `EOPNOTSUPP` if the data store
    /// does not report changes: a client's late writes could then overwrite newer ones.
    pub fn new(
        data: Arc<dyn DataStore>,
        store: PosixStore,
        store_id: impl Into<String>,
        departed: &Path,
        boot_verifier: &BootVerifier,
    ) -> io::Result<Files> {
        let now = concurrency::wall_clock().duration_since(std::time::UNIX_EPOCH);
        let start = now.map_or(0, |now| now.as_nanos()) as u64;
        let (policies, versions) = (Policies::default(), VersionNumbers::beginning_at(start));
        let departed = Arc::new(Departed::open(departed, boot_verifier));
        let of = Arc::clone(&departed);
        let index = data.extensions().index.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        index.observe(StoreObserver::Changes(Box::new(move |identity, range, by| of.changed(identity, range, by))));
        let (boot_verifier, store_id) = (boot_verifier.number(), store_id.into());
        Ok(Files { data, store, policies, versions, departed, start, boot_verifier, store_id })
    }

    /// Returns the anchor of a file. The file may have lost its name while a client has it open. Errors: `ESTALE` if
    /// the file does not exist any more.
    pub(crate) fn anchor(&self, identity: &Identity, hint: &wire::Path) -> io::Result<Arc<dyn Anchor>> {
        let index = self.data.extensions().index;
        if let Some(anchor) = index.and_then(|index| index.anchor_of_open(identity)) {
            return Ok(anchor);
        }
        let scan = !self.store.finds_by_identity();
        let found = self.store.locate(identity, convert::path(hint), scan)?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }
}

/// Returns a hash of a file's identity. Two files with the same hash only wait for each other.
pub(crate) fn hash(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish()
}

impl Service for Files {
    type Session = AgentSession;

    fn begin(&self, session: &[u8; 16], store: &str, agent: &str) -> Result<AgentSession, (i32, String)> {
        if store != self.store_id {
            let reason = "the server serves another directory: name the one that both mount, on both sides";
            return Err((libc::EXDEV, reason.into()));
        }
        tracing::info!(agent, "an agent has connected");
        Ok(AgentSession {
            handles: ClientHandles::default(),
            jobs: Jobs::default(),
            client: *session,
            agent: agent.into(),
        })
    }

    fn is_silent(&self, session: &AgentSession, silent: bool) {
        match silent {
            true => self.departed.leaves(&session.client),
            false => self.departed.returns(&session.client),
        }
    }

    fn targets(&self, session: &AgentSession, message: &Message) -> Option<Targets> {
        let one = |target: u64| Some([target; 2]);
        match message {
            Message::Write { handle, .. }
            | Message::WriteBackdated { handle, .. }
            | Message::Append { handle, .. }
            | Message::SetLen { handle, .. }
            | Message::Allocate { handle, .. } => one(session.handles.target(*handle)),
            // An open may be abandoned by its caller. The close of its handle is then executed after the open.
            Message::Open { handle, identity, .. } => Some([hash(identity), *handle]),
            Message::Close { handle } => Some([session.handles.target(*handle), *handle]),
            Message::Truncate { identity, .. }
            | Message::SetTimes { identity, .. }
            | Message::OwnChange { identity, .. }
            | Message::Unlinked { identity }
            | Message::Removing { identity }
            | Message::Evict { identity }
            | Message::Pin { identity, .. } => one(hash(identity)),
            Message::Begin { job, .. } => one(*job),
            _ => None,
        }
    }

    fn remembers(&self, message: &Message) -> bool {
        // Every other request may be executed twice: it names its offset, or its handle.
        matches!(message, Message::Append { .. })
    }

    fn in_file(&self, session: &AgentSession, message: &Message) -> Option<(Message, InFile)> {
        session.handles.in_file(message)
    }

    fn handle(&self, session: &AgentSession, message: Message, data: &[u8], out: &mut Vec<u8>) -> Message {
        let behind = fault::behind(&message);
        let answer = match message {
            Message::Ping {} => Ok(Message::Done {}),
            Message::Status {} => self.data.status(StatusScope::All).counters.and_then(|counters| {
                serde_json::to_writer(&mut *out, &counters)?;
                Ok(Message::Report {})
            }),
            Message::Open { handle, flags, identity, hint, policy } => {
                self.open(session, handle, flags, &identity, &hint, policy.as_str())
            }
            Message::Close { handle } => {
                self.close(session, handle);
                Ok(Message::Done {})
            }
            on_file @ (Message::Attributes { .. }
            | Message::Truncate { .. }
            | Message::SetTimes { .. }
            | Message::OwnChange { .. }
            | Message::Unlinked { .. }
            | Message::Removing { .. }
            | Message::State { .. }
            | Message::Begin { .. }
            | Message::Poll { .. }
            | Message::Evict { .. }
            | Message::Pin { .. }) => self.on_file(session, on_file),
            Message::Since { identity, session: client } => {
                let known = self.departed.since(&identity, &client, session.mark());
                let bounds = |range: ByteRange| [range.start.to_le_bytes(), range.end.to_le_bytes()].concat();
                out.extend(known.iter().flatten().copied().flat_map(bounds));
                Ok(if known.is_some() { Message::Bytes {} } else { Message::Unknown {} })
            }
            Message::Gone { session: client } => {
                self.departed.forget(&client);
                Ok(Message::Done {})
            }
            on_handle => session.handles.request(on_handle, data, out),
        };
        if answer.is_ok() {
            behind.into_iter().for_each(fault::point);
        }
        answer.unwrap_or_else(|error| {
            out.clear();
            convert::failed(&error)
        })
    }
}
