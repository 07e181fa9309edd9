//! What an open file keeps of its windows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use config::Policy;
use types::Identity;

use super::Windows;
use super::damage::DamageNotice;

/// What the rules of its directory say of an open file's windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowRules {
    /// Bytes, 0 for the agent's default; `None`: off.
    pub wish: Option<u64>,
    /// Close does not wait for the drain.
    pub lazy: bool,
    /// How long who reads waits for a server.
    pub patience: Duration,
    /// The first read ends the file's windows.
    pub read_ends: bool,
}

impl WindowRules {
    pub fn of(policy: &Policy) -> WindowRules {
        WindowRules {
            wish: policy.window.wish(),
            lazy: policy.close_lazy && !policy.durable_at_close,
            patience: policy.io_timeout,
            read_ends: policy.read_ends_windows,
        }
    }
}

/// The right of one open file to have a window. Its window ends with it.
pub(crate) struct WindowRight {
    pub(super) windows: Arc<Windows>,
    pub(super) identity: Identity,
    /// Names the open file.
    pub(super) id: u64,
    /// Switched off by its program. Changes with the table locked, which counts it.
    pub(super) off: AtomicBool,
    /// It was once, and may have been mapped then.
    was_off: AtomicBool,
    /// It may be mapped, behind a server, until it is closed: a mapping keeps it open. Changes with the table locked, which counts it.
    pub(super) mapped: AtomicBool,
    /// It was told once that there is no memory for one.
    pub(super) denied: AtomicBool,
    /// It has had a window.
    pub(super) used: AtomicBool,
    wish: AtomicU64,
    lazy: bool,
    told: DamageNotice,
}

impl WindowRight {
    /// By the rules of its directory, and whether the open file can be mapped for writing.
    pub fn new(windows: &Arc<Windows>, identity: &Identity, rules: WindowRules, mappable: bool) -> WindowRight {
        let mut table = windows.table.lock();
        let entry = table.entry(identity.clone()).or_default();
        entry.rights += 1;
        entry.mappable |= mappable;
        let told = entry.damages.told();
        windows.known.store(table.len(), Ordering::Release);
        drop(table);
        WindowRight {
            windows: Arc::clone(windows),
            identity: identity.clone(),
            id: windows.number(),
            off: AtomicBool::new(false),
            was_off: AtomicBool::new(false),
            mapped: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            used: AtomicBool::new(false),
            wish: AtomicU64::new(rules.wish.unwrap_or(0)),
            lazy: rules.lazy,
            told,
        }
    }

    /// `EIO`, once: something that was acknowledged on the file since it was opened was found damaged, and is lost.
    pub fn tell_damage(&self) -> io::Result<()> {
        self.told.tell()
    }

    /// Its program switches it off, or on again. The windows that the file has are not ended here.
    pub(super) fn switch(&self, off: bool) {
        let mut table = self.windows.table.lock();
        self.was_off.fetch_or(off, Ordering::AcqRel);
        if self.off.swap(off, Ordering::AcqRel) == off {
            return;
        }
        if let Some(entry) = table.get_mut(&self.identity) {
            entry.off = if off { entry.off + 1 } else { entry.off - 1 };
        }
    }

    /// Its program may map it, and the pages of a mapping are this node's: what is drained to a server does not reach them. The windows
    /// that the file has are not ended here.
    pub(super) fn may_be_mapped(&self) {
        let mut table = self.windows.table.lock();
        if let (false, Some(entry)) = (self.mapped.swap(true, Ordering::AcqRel), table.get_mut(&self.identity)) {
            entry.mapped += 1;
        }
    }

    /// Whether its program has given it back to the kernel: for good, or until it is switched on.
    pub(super) fn is_given_back(&self) -> bool {
        self.off.load(Ordering::Acquire) || self.mapped.load(Ordering::Acquire)
    }

    /// Whether it has a window, or had one.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Bytes of its next window.
    pub(super) fn bytes(&self) -> u64 {
        match self.wish.load(Ordering::Relaxed) {
            0 => self.windows.settings.window_bytes,
            wish => wish,
        }
    }

    pub(super) fn set_bytes(&self, wish: u64) {
        self.wish.store(wish, Ordering::Relaxed);
    }
}

impl Drop for WindowRight {
    fn drop(&mut self) {
        if self.lazy || self.windows.behind_server {
            self.windows.leave(&self.identity, self.id);
        } else if let Err(error) = self.windows.end(&self.identity, Some(self.id)) {
            tracing::error!(%error, "a window could not be drained at the last close; its ring stays, and it is tried again");
        }
        let mut table = self.windows.table.lock();
        if let Some(entry) = table.get_mut(&self.identity) {
            entry.rights -= 1;
            entry.off -= u32::from(*self.off.get_mut());
            entry.mapped -= u32::from(*self.mapped.get_mut());
            // A mapping outlives its descriptor, and does not show what a ring holds. Behind a server it keeps the open file.
            entry.left_mapped |= *self.was_off.get_mut() && !self.windows.behind_server;
        }
        self.windows.tidy(&mut table, &self.identity);
    }
}
