//! How a process that serves is asked to end on its control socket, and how it stops listening there.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::control::{ControlListener, SOCKET};

#[derive(Default)]
pub struct Ending {
    to_end: AtomicBool,
    by_force: AtomicBool,
}

impl Ending {
    /// Notes a request. `force`: even if files are in use.
    pub fn ask(&self, force: bool) {
        self.by_force.fetch_or(force, Ordering::AcqRel);
        self.to_end.store(true, Ordering::Release);
    }

    /// Returns true once after each request.
    pub fn is_asked(&self) -> bool {
        self.to_end.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a request asked to end even if files are in use.
    pub fn is_forced(&self) -> bool {
        self.by_force.load(Ordering::Acquire)
    }
}

/// Stops taking commands for a place. Afterwards this process should end.
pub fn stop_listening(control: ControlListener, burst_buffer: &Path) {
    let _ = fs::remove_file(burst_buffer.join(SOCKET));
    // Not dropped: that would wait for its thread, which the end of this process stops at once.
    std::mem::forget(control);
}
