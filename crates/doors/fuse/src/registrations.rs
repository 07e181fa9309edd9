//! The kernel's registrations of replicas. They outlive the last close for a while, since programs often open the
//! same files again. A new registration costs one of our descriptors and two calls.
//!
//! A registration pins its replica, so a remover of replicas calls [`Registrations::end`] first. At most
//! [`limits::IDLE_REGISTRATIONS`] are unused, none for longer than [`limits::IDLE_REGISTRATION`].

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Instant, Mutex};
use config::Atime;
use fuse_protocol::{BackingId, Notifier};
use types::Version;

use crate::limits;

/// Registration that an open node uses.
#[derive(Debug, Clone, Copy)]
pub struct BackingRegistration {
    pub id: BackingId,
    version: Version,
    /// Access-time mode of the kernel's reads; `None`: whatever the policy says, it is the same descriptor.
    atime: Option<Atime>,
}

#[derive(Default)]
struct Idle {
    of: HashMap<Version, (BackingRegistration, u64)>,
    /// Unused registrations in the order in which they were left, oldest first.
    order: BTreeMap<u64, (Instant, Version)>,
    turn: u64,
}

/// Unused registrations, and the connection to the kernel.
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

    /// Removes and returns the registration that was left first, if that was not after `since`.
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

    /// Returns a registration of a replica with this access-time mode, an unused one or a new one. `file` returns the
    /// replica's descriptor, if needed. Returns `None` if the kernel does not accept it.
    pub fn begin(
        &self,
        version: Version,
        atime: Atime,
        file: impl FnOnce() -> Option<Arc<OwnedFd>>,
    ) -> Option<BackingRegistration> {
        let left = self.idle.lock().take(version);
        match left {
            Some(left) if left.atime.is_none_or(|of| of == atime) => return Some(left),
            // The policy `atime` has changed since.
            Some(left) => self.close(left.id),
            None => {}
        }
        match self.notifier.backing_open(file()?.as_fd()) {
            Ok(id) => Some(BackingRegistration { id, version, atime: Some(atime) }),
            Err(error) => {
                tracing::debug!(%error, "no passthrough: the kernel did not take the replica");
                None
            }
        }
    }

    /// Registers a replica that a new file is going to get, so that no program waits for it then.
    pub fn prepare(&self, version: Version, atime: Option<Atime>, file: BorrowedFd<'_>) {
        // Without passthrough the kernel takes none.
        if let Ok(id) = self.notifier.backing_open(file) {
            self.leave(BackingRegistration { id, version, atime });
        }
    }

    /// Marks a registration as unused. The replica must still exist: its removal has not begun.
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

    /// Ends a registration.
    pub fn close(&self, id: BackingId) {
        // Fails only after the connection has ended, and the registration with it.
        let _ = self.notifier.backing_close(id);
    }

    /// Ends the registration of a replica that nobody has open and that is about to be removed.
    pub fn end(&self, version: Version) {
        let left = self.idle.lock().take(version);
        left.into_iter().for_each(|left| self.close(left.id));
    }

    /// Ends registrations that are unused for at least `age`.
    pub fn expire(&self, age: Duration) {
        let Some(since) = Instant::now().checked_sub(age) else { return };
        loop {
            let Some(left) = self.idle.lock().oldest(Some(since)) else { return };
            self.close(left.id);
        }
    }
}
