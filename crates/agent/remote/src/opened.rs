//! Files open at the server, and which open files share the same bytes. For the kernel these are one file.
//!
//! A server that was restarted, or has forgotten this node, numbers versions anew and opens files anew on request. The
//! version of a file may change meanwhile. Open files with the same bytes must keep sharing them. So the first of them
//! that meets such a server makes all of them reopen, and a file opened there later joins them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use concurrency::{Instant, Mutex};
use peer::{OpenVersion, ReopenEnd, ReopenableFile, ReopenableGroup};
use transport::{Call, CallError, SessionInstance};
use types::{Identity, Shown};
use wire::{Message, Text, open};

use crate::ahead::{self, Reading};
use crate::convert::hint_of;
use crate::convert::unexpected;
use crate::shared::RemoteShared;
use data_store::is_interrupted;

/// An open file at the server.
pub(crate) struct RemoteFile {
    pub inner: Arc<RemoteShared>,
    pub number: u64,
    pub identity: Identity,
    pub hint: PathBuf,
    pub flags: u32,
    pub policy: Text,
    state: Mutex<ReopenableFile>,
    /// Read-ahead data, from the first read that may benefit.
    pub ahead: Mutex<Option<Reading>>,
    mates: OnceLock<Arc<Mates>>,
}

/// Open files of one file that share the same bytes.
#[derive(Default)]
pub(crate) struct Mates {
    pub(crate) state: Mutex<ReopenableGroup>,
    members: Mutex<Vec<Weak<RemoteFile>>>,
}

/// Groups of open files that share bytes, by file.
#[derive(Default)]
pub(crate) struct AllMates(Mutex<HashMap<Identity, Vec<Weak<Mates>>>>);

impl RemoteFile {
    pub fn new(inner: &Arc<RemoteShared>, identity: &Identity, hint: PathBuf, flags: u32, policy: Text) -> RemoteFile {
        RemoteFile {
            inner: Arc::clone(inner),
            number: inner.number(),
            identity: identity.clone(),
            hint,
            flags,
            policy,
            state: Mutex::default(),
            ahead: Mutex::new(None),
            mates: OnceLock::new(),
        }
    }

    /// Version number given by the server.
    pub fn version(&self) -> u64 {
        self.state.lock().at().version
    }

    /// Boot verifier of the server's machine at the last open.
    pub fn boot_verifier(&self) -> u64 {
        self.state.lock().at().boot_verifier
    }

    /// Returns the boot verifier for an answer given in the session instance `memory`. Another thread may have reopened
    /// the file in that instance and may not have its answer yet; then the file is reopened once more. `None` if the
    /// boot is unknown.
    pub fn boot_verifier_of(
        &self,
        memory: SessionInstance,
        within: Option<Duration>,
        patience: Duration,
    ) -> Option<u64> {
        let known = || self.state.lock().boot_of(memory);
        known().or_else(|| {
            let _ = self.open_anew(within, patience);
            known()
        })
    }

    /// Returns whether the server said that the file no longer exists.
    pub fn is_gone(&self) -> bool {
        self.state.lock().is_gone()
    }

    fn meets(&self, boot_verifier: u64) {
        if self.mates.get().is_some_and(|mates| mates.state.lock().unsynced.meets(boot_verifier)) {
            self.tell_loss();
        }
    }

    /// Logs a loss of unsynced writes. Programs learn of it by errors from their handles.
    pub fn tell_loss(&self) {
        tracing::error!(
            file = %self.hint.shown(),
            "the server's machine has crashed: what was written to the file since it was last synced may be lost"
        );
    }

    /// Returns the open files that share bytes with this one. Call this once the file is open.
    pub fn mates(&self) -> Arc<Mates> {
        self.mates.get().map(Arc::clone).unwrap_or_default()
    }

    /// Opens the file at the server, with more bits of [`open`] than its own.
    pub fn open_as(&self, more: u32, within: Option<Duration>) -> Result<(), CallError> {
        let message = Message::Open {
            handle: self.number,
            flags: self.flags | more,
            identity: self.identity.clone(),
            hint: hint_of(&self.hint),
            policy: self.policy.clone(),
        };
        let once = more & open::CREATED != 0;
        let call = Call { within, once, interrupted: &is_interrupted, ..Call::new(&message) };
        let answer = self.inner.client.call(call)?;
        match answer.message {
            Message::Opened { version, boot_verifier } => {
                // Losses are counted first, so that whoever finds the file reopened sees them.
                self.meets(boot_verifier);
                self.state.lock().opened(OpenVersion { instance: answer.memory, version, boot_verifier });
                // The version may differ, and other nodes may have closed the file since it was read here.
                *self.ahead.lock() = None;
                self.inner.ahead.changed(&self.identity, ahead::ALL);
                Ok(())
            }
            other => Err(CallError::Failed { errno: libc::EPROTO, reason: unexpected(&other).to_string() }),
        }
    }

    /// Joins the open files that share the same bytes. Called after the first open.
    pub fn join(self: &Arc<RemoteFile>, within: Duration) {
        let at = self.state.lock().at();
        let mates = self.inner.mates.of(&self.identity, at);
        mates.admit(self);
        mates.follow(at.instance, within);
        let _ = self.mates.set(mates);
        self.meets(at.boot_verifier);
    }

    /// Reopens a file that the server no longer knows, and those that share its bytes.
    pub fn open_anew(&self, within: Option<Duration>, patience: Duration) -> Result<(), CallError> {
        self.open_again(within)?;
        if let Some(mates) = self.mates.get() {
            let at = self.state.lock().at();
            mates.state.lock().arrives(at);
            mates.follow(at.instance, patience);
        }
        Ok(())
    }

    fn open_again(&self, within: Option<Duration>) -> Result<(), CallError> {
        self.open_as(0, within).inspect_err(|error| {
            if error.errno() == libc::ESTALE {
                self.state.lock().is_not_found();
            }
        })
    }

    /// Closes the file once more if it was closed while it was being reopened.
    fn close_again(&self) {
        if self.state.lock().must_close_again() {
            self.close();
        }
    }

    /// Closes the file at the server. A server that never hears of it would keep the file open and never stage it out.
    pub fn close(&self) {
        self.state.lock().closes();
        self.inner.tell(Message::Close { handle: self.number });
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.mates.take();
        self.inner.mates.forget(&self.identity);
    }
}

impl Mates {
    /// Notes a change of the file that did not go through an open file, and was answered in the session instance
    /// `memory`.
    fn changed(&self, memory: SessionInstance, within: Duration) {
        let all: Vec<Weak<RemoteFile>> = self.members.lock().clone();
        let is_open = |one: &Arc<RemoteFile>| !one.state.lock().is_closed();
        let Some(one) = all.iter().filter_map(Weak::upgrade).find(is_open) else { return };
        let boot_verifier = one.boot_verifier_of(memory, Some(within), within);
        one.close_again();
        if self.state.lock().unsynced.changed(boot_verifier) {
            one.tell_loss();
        }
    }

    fn admit(&self, opened: &Arc<RemoteFile>) {
        let mut members = self.members.lock();
        if members.len().is_power_of_two() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(Arc::downgrade(opened));
    }

    /// Reopens the members whose version is from another session instance, within a common time limit. The first caller
    /// does this, or the next one if that was interrupted. A member that fails is reopened when it is used.
    fn follow(&self, memory: SessionInstance, within: Duration) {
        if !self.state.lock().begins_to_follow(memory) {
            return;
        }
        let until = Instant::now() + within;
        let members: Vec<Weak<RemoteFile>> = self.members.lock().clone();
        for member in members.iter().filter_map(Weak::upgrade) {
            if !member.state.lock().must_follow(memory) {
                continue;
            }
            let opened = member.open_again(Some(until.saturating_duration_since(Instant::now())));
            member.close_again();
            let end = match opened {
                Ok(()) | Err(CallError::Failed { .. }) => ReopenEnd::Answered,
                Err(CallError::Interrupted) => ReopenEnd::Interrupted,
                Err(_) => ReopenEnd::Unreachable,
            };
            if !self.state.lock().reopened(end) {
                break;
            }
        }
    }
}

impl AllMates {
    /// Returns the group of open files at this version, or one that will be at it after a reopen.
    fn of(&self, identity: &Identity, at: OpenVersion) -> Arc<Mates> {
        let mut files = self.0.lock();
        let of_file = files.entry(identity.clone()).or_default();
        of_file.retain(|mates| mates.strong_count() > 0);
        // The newest comes first: the kernel finds it by the file's current name.
        let all: Vec<Arc<Mates>> = of_file.iter().rev().filter_map(Weak::upgrade).collect();
        let like =
            |wanted: &dyn Fn(OpenVersion) -> bool| all.iter().find(|mates| wanted(mates.state.lock().at())).cloned();
        let same = like(&|of_mates| of_mates == at);
        let mates = same.or_else(|| like(&|of_mates| of_mates.instance != at.instance)).unwrap_or_else(|| {
            let mates = Arc::<Mates>::default();
            of_file.push(Arc::downgrade(&mates));
            mates
        });
        mates.state.lock().arrives(at);
        mates
    }

    /// Notes a change of a file that did not go through an open file, and was answered in the session instance
    /// `memory`.
    pub fn changed(&self, identity: &Identity, memory: SessionInstance, within: Duration) {
        let of_file: Vec<Weak<Mates>> = self.0.lock().get(identity).cloned().unwrap_or_default();
        of_file.iter().filter_map(Weak::upgrade).for_each(|mates| mates.changed(memory, within));
    }

    /// Removes empty groups of a file after an open file was dropped.
    fn forget(&self, identity: &Identity) {
        let mut files = self.0.lock();
        if let Some(of_file) = files.get_mut(identity) {
            of_file.retain(|mates| mates.strong_count() > 0);
            if of_file.is_empty() {
                files.remove(identity);
            }
        }
    }
}
