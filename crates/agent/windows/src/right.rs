//! Permission of an open file to have windows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use config::Policy;
use types::Identity;

use crate::damage::DamageNotice;
use crate::table::Windows;

/// Rules of an open file's windows, from the policy of its directory.
#[derive(Debug, Clone, Copy)]
pub struct WindowRules {
    /// Size of the window, bytes; 0 for the agent's default; `None`: no windows.
    pub wish: Option<u64>,
    /// Whether a close returns before the records are applied.
    pub lazy: bool,
    /// How long a reader waits for a server.
    pub patience: Duration,
    /// Whether the first read ends the file's windows.
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

/// Permission of one open file to have a window. The window ends when this is dropped.
pub struct WindowRight {
    pub windows: Arc<Windows>,
    pub identity: Identity,
    /// Number of the open file.
    pub id: u64,
    /// Whether the program has switched windows off. Changes only with the table locked, which counts such rights.
    pub off: AtomicBool,
    /// Whether windows were ever switched off, so that the file may have been mapped.
    was_off: AtomicBool,
    /// Whether the file may be mapped, behind a server. Lasts until the close, because a mapping keeps the file open.
    /// Changes only with the table locked, which counts such rights.
    pub mapped: AtomicBool,
    /// Whether a refusal for lack of memory was counted.
    pub denied: AtomicBool,
    /// Whether this open file has had a window.
    pub used: AtomicBool,
    wish: AtomicU64,
    lazy: bool,
    told: DamageNotice,
}

impl WindowRight {
    /// Creates the permission. `mappable`: the open file can be mapped for writing.
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

    /// Reports, once, as `EIO`, that acknowledged data written since the open was found damaged and is lost.
    pub fn tell_damage(&self) -> io::Result<()> {
        self.told.tell()
    }

    /// Switches windows off, or on again, for the program. Does not end the file's present windows.
    pub fn switch(&self, off: bool) {
        let mut table = self.windows.table.lock();
        self.was_off.fetch_or(off, Ordering::AcqRel);
        if self.off.swap(off, Ordering::AcqRel) == off {
            return;
        }
        if let Some(entry) = table.get_mut(&self.identity) {
            entry.off = if off { entry.off + 1 } else { entry.off - 1 };
        }
    }

    /// Notes that the program may map the file. Pages of a mapping are this node's, and records applied at a server do
    /// not reach them. Does not end the file's present windows.
    pub fn may_be_mapped(&self) {
        let mut table = self.windows.table.lock();
        if let (false, Some(entry)) = (self.mapped.swap(true, Ordering::AcqRel), table.get_mut(&self.identity)) {
            entry.mapped += 1;
        }
    }

    /// Whether the program uses the kernel instead of windows: for good, or until they are switched on.
    pub fn is_given_back(&self) -> bool {
        self.off.load(Ordering::Acquire) || self.mapped.load(Ordering::Acquire)
    }

    /// Whether this open file has, or has had, a window.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Size of the next window, bytes.
    pub fn bytes(&self) -> u64 {
        match self.wish.load(Ordering::Relaxed) {
            0 => self.windows.settings.window_bytes,
            wish => wish,
        }
    }

    pub fn set_bytes(&self, wish: u64) {
        self.wish.store(wish, Ordering::Relaxed);
    }
}

impl Drop for WindowRight {
    fn drop(&mut self) {
        if self.lazy || self.windows.behind_server {
            self.windows.leave(&self.identity, self.id);
        } else if let Err(error) = self.windows.end(&self.identity, Some(self.id)) {
            tracing::error!(
                %error,
                "could not apply a window's records at the last close; they stay in its ring and are tried again"
            );
        }
        let mut table = self.windows.table.lock();
        if let Some(entry) = table.get_mut(&self.identity) {
            entry.rights -= 1;
            entry.off -= u32::from(*self.off.get_mut());
            entry.mapped -= u32::from(*self.mapped.get_mut());
            // A mapping outlives its descriptor and does not show records of a ring. Behind a server it keeps the open
            // file.
            entry.left_mapped |= *self.was_off.get_mut() && !self.windows.behind_server;
        }
        self.windows.tidy(&mut table, &self.identity);
    }
}
