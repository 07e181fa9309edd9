//! What an open file keeps of its windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use types::Identity;

use super::Windows;

/// The right of one open file to have a window. Its window ends with it.
pub(crate) struct WindowRight {
    pub(super) windows: Arc<Windows>,
    pub(super) identity: Identity,
    /// Names the open file.
    pub(super) id: u64,
    /// Switched off by its program.
    pub(super) off: AtomicBool,
    wish: AtomicU64,
}

impl WindowRight {
    /// `wish`: bytes as the policy says, 0 for the agent's default.
    pub fn new(windows: &Arc<Windows>, identity: &Identity, wish: u64) -> WindowRight {
        let mut table = windows.table.lock();
        table.entry(identity.clone()).or_default().rights += 1;
        windows.known.store(table.len(), Ordering::Release);
        drop(table);
        WindowRight {
            windows: Arc::clone(windows),
            identity: identity.clone(),
            id: windows.number(),
            off: AtomicBool::new(false),
            wish: AtomicU64::new(wish),
        }
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
        if let Err(error) = self.windows.end(&self.identity, Some(self.id)) {
            tracing::error!(%error, "a window could not be drained at the last close; its ring stays, and it is tried again");
        }
        let mut table = self.windows.table.lock();
        if let Some(entry) = table.get_mut(&self.identity) {
            entry.rights -= 1;
        }
        self.windows.tidy(&mut table, &self.identity);
    }
}
