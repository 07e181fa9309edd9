//! The kernel's registrations of replicas, which outlive the last close for a while: programs open the same files again
//! and again, and a registration costs a descriptor of ours and two calls each time.
//!
//! A registration pins its replica. So who removes a replica tells it here first ([`Registrations::end`]); there are at most
//! [`limits::IDLE_REGISTRATIONS`] that nobody uses, none for longer than [`limits::IDLE_REGISTRATION`].

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Instant, Mutex};
use config::Atime;
use fuse_protocol::{BackingId, Notifier};
use types::Version;

use crate::limits;

/// One that an open node uses.
#[derive(Debug, Clone, Copy)]
pub struct BackingRegistration {
    pub id: BackingId,
    version: Version,
    /// As what the kernel notes its reads.
    atime: Atime,
}

#[derive(Default)]
struct Idle {
    of: HashMap<Version, (BackingRegistration, u64)>,
    /// By when they were left, the longest ago first.
    order: BTreeMap<u64, (Instant, Version)>,
    turn: u64,
}

/// Those that nobody uses, and the way to the kernel.
pub struct Registrations {
    notifier: Notifier,
    idle: Mutex<Idle>,
}

impl Idle {
    fn take(&mut self, version: Version) -> Option<BackingRegistration> {
        let (left, turn) = self.of.remove(&version)?;
        self.order.remove(&turn);
        Some(left)
    }

    /// The one that was left first, if that was not after `since`.
    fn oldest(&mut self, since: Option<Instant>) -> Option<BackingRegistration> {
        let (_, (left, version)) = self.order.first_key_value()?;
        if since.is_some_and(|since| *left > since) {
            return None;
        }
        let version = *version;
        self.take(version)
    }
}

impl Registrations {
    pub fn new(notifier: Notifier) -> Registrations {
        Registrations { notifier, idle: Mutex::default() }
    }

    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// The registration of a replica whose reads are noted so; `file` opens it, if it is needed. `None`: the kernel does not
    /// take it.
    pub fn begin(
        &self,
        version: Version,
        atime: Atime,
        file: impl FnOnce() -> Option<Arc<OwnedFd>>,
    ) -> Option<BackingRegistration> {
        let left = self.idle.lock().take(version);
        match left {
            Some(left) if left.atime == atime => return Some(left),
            // The rule has changed since.
            Some(left) => self.close(left.id),
            None => {}
        }
        match self.notifier.backing_open(file()?.as_fd()) {
            Ok(id) => Some(BackingRegistration { id, version, atime }),
            Err(error) => {
                tracing::debug!(%error, "no passthrough: the kernel did not take the replica");
                None
            }
        }
    }

    /// Nobody has it open by this any more. The replica is there: who removes it has not begun.
    pub fn leave(&self, left: BackingRegistration) {
        let excess = {
            let mut idle = self.idle.lock();
            let former = idle.take(left.version);
            idle.turn += 1;
            let turn = idle.turn;
            idle.of.insert(left.version, (left, turn));
            idle.order.insert(turn, (Instant::now(), left.version));
            let many = idle.of.len() > limits::IDLE_REGISTRATIONS;
            former.or_else(|| if many { idle.oldest(None) } else { None })
        };
        excess.into_iter().for_each(|left| self.close(left.id));
    }

    /// It serves no more.
    pub fn close(&self, id: BackingId) {
        // Fails only once the connection is gone, and the registration with it.
        let _ = self.notifier.backing_close(id);
    }

    /// A replica that nobody has open is about to be removed.
    pub fn end(&self, version: Version) {
        let left = self.idle.lock().take(version);
        left.into_iter().for_each(|left| self.close(left.id));
    }

    /// Ends those that were left longer ago.
    pub fn expire(&self, age: Duration) {
        let Some(since) = Instant::now().checked_sub(age) else { return };
        loop {
            let Some(left) = self.idle.lock().oldest(Some(since)) else { return };
            self.close(left.id);
        }
    }
}
