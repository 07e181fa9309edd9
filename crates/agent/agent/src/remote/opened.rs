//! What is open at the server, and which open files have the same bytes: to the kernel those are one file.
//!
//! A server that was started again, or has forgotten this node, numbers versions anew, and opens anew what is asked for. Which
//! version a file has may change meanwhile. So that open files which had the same bytes go on with the same, the first of them
//! that meets such a server has all of them opened anew, and one that is opened there joins those.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use concurrency::{Instant, Mutex};
use transport::{Call, CallError, SessionInstance};
use types::{Identity, Shown};
use wire::{Message, Text, open};

use super::ahead::{self, Reading};
use super::unsynced::Unsynced;
use super::{Inner, hint_of, is_interrupted, unexpected};

/// Which version of a file's data is open, as a server numbers it that remembers this node by that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct KnownVersion {
    memory: SessionInstance,
    version: u64,
    /// Of the server's machine.
    boot_verifier: u64,
}

/// An open file at the server.
pub(super) struct RemoteFile {
    pub inner: Arc<Inner>,
    pub number: u64,
    pub identity: Identity,
    pub hint: PathBuf,
    pub flags: u32,
    pub policy: Text,
    told: Mutex<KnownVersion>,
    /// By who remembered this node otherwise before: an answer of his may be taken only now.
    before: Mutex<KnownVersion>,
    /// The server said that the file is no more.
    pub gone: AtomicBool,
    /// What is read ahead, from the first read that it may help on.
    pub ahead: Mutex<Option<Reading>>,
    closed: AtomicBool,
    mates: OnceLock<Arc<Mates>>,
}

/// Open files of one file that have the same bytes.
#[derive(Default)]
pub struct Mates {
    told: Mutex<KnownVersion>,
    members: Mutex<Vec<Weak<RemoteFile>>>,
    /// Whose word they follow.
    followed: Mutex<SessionInstance>,
    pub(super) unsynced: Unsynced,
}

/// Those of each file.
#[derive(Default)]
pub(super) struct AllMates(Mutex<HashMap<Identity, Vec<Weak<Mates>>>>);

impl RemoteFile {
    pub fn new(inner: &Arc<Inner>, identity: &Identity, hint: PathBuf, flags: u32, policy: Text) -> RemoteFile {
        RemoteFile {
            inner: Arc::clone(inner),
            number: inner.number(),
            identity: identity.clone(),
            hint,
            flags,
            policy,
            told: Mutex::default(),
            before: Mutex::default(),
            gone: AtomicBool::new(false),
            ahead: Mutex::new(None),
            closed: AtomicBool::new(false),
            mates: OnceLock::new(),
        }
    }

    /// The server's number of the version.
    pub fn version(&self) -> u64 {
        self.told.lock().version
    }

    /// The life of the server's machine in which it was opened last.
    pub fn boot_verifier(&self) -> u64 {
        self.told.lock().boot_verifier
    }

    /// The life of the server's machine in which an answer was given, by who remembers this node so. It may be that others had the file
    /// opened there, and are about to hear so: then it is opened once more. `None`: nobody knows any more.
    pub fn boot_verifier_of(
        &self,
        memory: SessionInstance,
        within: Option<Duration>,
        patience: Duration,
    ) -> Option<u64> {
        let by = |told: &Mutex<KnownVersion>| {
            Some(*told.lock()).filter(|told| told.memory == memory).map(|told| told.boot_verifier)
        };
        let known = || by(&self.told).or_else(|| by(&self.before));
        known().or_else(|| {
            let _ = self.open_anew(within, patience);
            known()
        })
    }

    fn meets(&self, boot_verifier: u64) {
        if self.mates.get().is_some_and(|mates| mates.unsynced.meets(boot_verifier)) {
            self.tell_loss();
        }
    }

    /// For who reads the log; programs are told by their handles.
    pub fn tell_loss(&self) {
        tracing::error!(
            file = %self.hint.shown(),
            "the server's machine has crashed: what was written to the file since it was last synced may be lost"
        );
    }

    /// Once it is open: those that have the same bytes.
    pub fn mates(&self) -> Arc<Mates> {
        self.mates.get().map(Arc::clone).unwrap_or_default()
    }

    /// Opens it, with more bits of [`open`] than its own.
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
                // First: who finds it opened there knows that what was lost before is counted.
                self.meets(boot_verifier);
                let now = KnownVersion { memory: answer.memory, version, boot_verifier };
                let former = std::mem::replace(&mut *self.told.lock(), now);
                if former.memory != now.memory {
                    *self.before.lock() = former;
                }
                self.gone.store(false, Ordering::Release);
                // It may be another version than it was, and others have closed the file since it was read here.
                *self.ahead.lock() = None;
                self.inner.ahead.changed(&self.identity, ahead::ALL);
                Ok(())
            }
            other => Err(CallError::Failed { errno: libc::EPROTO, reason: unexpected(&other).to_string() }),
        }
    }

    /// It is open for the first time: others with the same bytes go on with it.
    pub fn join(self: &Arc<RemoteFile>, within: Duration) {
        let told = *self.told.lock();
        let mates = self.inner.mates.of(&self.identity, told);
        mates.admit(self);
        mates.follow(told.memory, within);
        let _ = self.mates.set(mates);
        self.meets(told.boot_verifier);
    }

    /// The server does not know it any more: it is opened anew, and so are those that have the same bytes.
    pub fn open_anew(&self, within: Option<Duration>, patience: Duration) -> Result<(), CallError> {
        self.open_again(within)?;
        if let Some(mates) = self.mates.get() {
            let told = *self.told.lock();
            mates.are_at(told);
            mates.follow(told.memory, patience);
        }
        Ok(())
    }

    fn open_again(&self, within: Option<Duration>) -> Result<(), CallError> {
        self.open_as(0, within).inspect_err(|error| {
            self.gone.fetch_or(error.errno() == libc::ESTALE, Ordering::AcqRel);
        })
    }

    /// Its close may have come before it was opened anew.
    fn close_again(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// The program has closed it. A server that never hears of it would keep the file open, and never stage it out.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
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
    /// The file was changed past its open files, as was answered by who remembers this node so.
    fn changed(&self, memory: SessionInstance, within: Duration) {
        let all: Vec<Weak<RemoteFile>> = self.members.lock().clone();
        let is_open = |one: &Arc<RemoteFile>| !one.closed.load(Ordering::SeqCst);
        let Some(one) = all.iter().filter_map(Weak::upgrade).find(is_open) else { return };
        let boot_verifier = one.boot_verifier_of(memory, Some(within), within);
        one.close_again();
        if self.unsynced.changed(boot_verifier) {
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

    /// One of them was told this. Of what a server says that remembers this node the first word counts.
    fn are_at(&self, told: KnownVersion) {
        let mut of_all = self.told.lock();
        if of_all.memory != told.memory {
            *of_all = told;
        }
    }

    /// Those that another server has told something, or the same one before it forgot this node, are opened anew, by the first who
    /// comes, within a time for all; by the next, if that one was interrupted. One for which that fails is opened when it is used.
    fn follow(&self, memory: SessionInstance, within: Duration) {
        if std::mem::replace(&mut *self.followed.lock(), memory) == memory {
            return;
        }
        let until = Instant::now() + within;
        let members: Vec<Weak<RemoteFile>> = self.members.lock().clone();
        for member in members.iter().filter_map(Weak::upgrade) {
            if member.told.lock().memory == memory || member.closed.load(Ordering::SeqCst) {
                continue;
            }
            let opened = member.open_again(Some(until.saturating_duration_since(Instant::now())));
            member.close_again();
            match opened {
                Ok(()) | Err(CallError::Failed { .. }) => {}
                Err(error) => {
                    if matches!(error, CallError::Interrupted) {
                        *self.followed.lock() = SessionInstance::default();
                    }
                    break; // no server, or no time
                }
            }
        }
    }
}

impl AllMates {
    /// Those that are at this version, or will be when they are opened anew.
    fn of(&self, identity: &Identity, told: KnownVersion) -> Arc<Mates> {
        let mut files = self.0.lock();
        let of_file = files.entry(identity.clone()).or_default();
        of_file.retain(|mates| mates.strong_count() > 0);
        // The newest first: what the kernel finds by the file's name now.
        let all: Vec<Arc<Mates>> = of_file.iter().rev().filter_map(Weak::upgrade).collect();
        let like = |wanted: &dyn Fn(KnownVersion) -> bool| all.iter().find(|mates| wanted(*mates.told.lock())).cloned();
        let same = like(&|of_mates| of_mates == told);
        let mates = same.or_else(|| like(&|of_mates| of_mates.memory != told.memory)).unwrap_or_else(|| {
            let mates = Arc::<Mates>::default();
            of_file.push(Arc::downgrade(&mates));
            mates
        });
        mates.are_at(told);
        mates
    }

    /// A file was changed past its open files, as was answered by who remembers this node so.
    pub fn changed(&self, identity: &Identity, memory: SessionInstance, within: Duration) {
        let of_file: Vec<Weak<Mates>> = self.0.lock().get(identity).cloned().unwrap_or_default();
        of_file.iter().filter_map(Weak::upgrade).for_each(|mates| mates.changed(memory, within));
    }

    /// An open file is no more.
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
