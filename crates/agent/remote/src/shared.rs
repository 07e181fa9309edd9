//! State that all open files of one connection share.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use concurrency::Mutex;
use config::{Policy, PolicySet};
use data_store::{Residency, is_interrupted};
use transport::{Call, CallError, Client, SessionInstance};
use types::Identity;
use wire::{Message, Text};

use crate::ahead::ReadAheadVersions;
use crate::convert::unexpected;
use crate::drains::Drainer;
use crate::fetches::RemoteFetches;
use crate::later::DeferredMessages;
use crate::limits;
use crate::opened::AllMates;
use crate::opening::Openings;
use crate::width::Width;
use crate::written::Written;

/// State that all open files of one connection share.
pub(crate) struct RemoteShared {
    pub client: Arc<Client>,
    pub opening: Openings,
    pub width: Width,
    /// How long a request that changes nothing waits.
    pub patience: Duration,
    /// Counter for handles and jobs.
    pub numbers: AtomicU64,
    pub staged_count: Mutex<StagedCount>,
    pub written: Written,
    pub later: DeferredMessages,
    pub ahead: ReadAheadVersions,
    pub mates: AllMates,
    pub fetches: RemoteFetches,
    /// Policies in the form in which they are sent.
    pub policies: Mutex<Vec<(Policy, Text)>>,
}

/// The server's count of stage-outs.
#[derive(Default)]
pub(crate) struct StagedCount {
    heard: u64,
    /// Number of times that a different count was received.
    pub moves: u64,
}

impl StagedCount {
    /// Notes a count that the server told.
    pub fn hear(&mut self, staged_count: u64) {
        if staged_count != self.heard {
            (self.heard, self.moves) = (staged_count, self.moves + 1);
        }
    }
}

impl RemoteShared {
    /// Creates what the open files of a connected client share. `patience`: how long a request that changes nothing
    /// waits for an answer.
    pub fn new(client: Client, patience: Duration) -> Arc<RemoteShared> {
        Arc::new(RemoteShared {
            client: Arc::new(client),
            opening: Openings::default(),
            width: Width::default(),
            patience,
            numbers: AtomicU64::new(1),
            staged_count: Mutex::default(),
            written: Written::default(),
            later: DeferredMessages::default(),
            ahead: ReadAheadVersions::default(),
            mates: AllMates::default(),
            fetches: RemoteFetches::default(),
            policies: Mutex::default(),
        })
    }

    /// Returns a number for a handle or a job that this client never used.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request that changes nothing.
    pub fn ask(&self, message: &Message) -> Result<Message, CallError> {
        let call = Call { within: Some(self.patience), interrupted: &is_interrupted, ..Call::new(message) };
        self.client.call(call).map(|answer| answer.message)
    }

    /// Notifies the server of something that has happened already: at once, or when it is reachable again.
    pub fn tell(&self, message: Message) {
        let call = Call { within: Some(limits::SERVER_RELEASE), ..Call::new(&message) };
        // Must not overtake queued notices: the release of a file must come after the changes to it.
        if self.later.is_telling() || matches!(self.client.call(call), Err(CallError::TimedOut)) {
            self.later.tell(&self.client, message);
        }
    }

    /// Requests a change, and waits as long as it takes. Returns the session instance in which it was executed.
    pub fn change(&self, message: &Message) -> io::Result<SessionInstance> {
        let answer = self.client.call(Call { interrupted: &is_interrupted, ..Call::new(message) })?;
        let Message::Done {} = answer.message else { return Err(unexpected(&answer.message)) };
        Ok(answer.memory)
    }

    /// Returns a policy in the form in which it is sent.
    pub fn policy(&self, policy: &Policy) -> Text {
        let mut known = self.policies.lock();
        if let Some((_, text)) = known.iter().find(|(one, _)| one == policy) {
            return text.clone();
        }
        if known.len() >= limits::SERVER_POLICIES_MAX {
            known.clear();
        }
        let text = Text::cut(PolicySet::of(policy).to_toml());
        known.push((policy.clone(), text.clone()));
        text
    }

    /// Returns the drainer of the files that were written.
    pub fn drainer(&self) -> Drainer<'_> {
        Drainer { client: &self.client, written: &self.written, numbers: &self.numbers, patience: self.patience }
    }

    /// Returns the state of a file's replica, and whether it is dirty.
    pub fn resides(&self, identity: &Identity) -> Result<(Residency, bool), CallError> {
        self.drainer().resides(identity, &is_interrupted)
    }

    /// Notes that a file is about to be written. The caller calls [`Written::end`] later.
    pub fn begin_write(&self, identity: &Identity, hint: &Path) {
        if self.written.begin(identity, hint) {
            self.drainer().forget_clean(&is_interrupted);
        }
    }
}
