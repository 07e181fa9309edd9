//! Ctrl-C: what runs is ended by the terminal's own signal; this program stays to save and say what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;

/// Whether SIGINT came.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on SIGINT does not end this program. Programs that it starts are ended as always: a handler, unlike
    /// ignoring, is not inherited.
    pub fn expect() -> Interrupt {
        let interrupt = Interrupt::default();
        // It fails for signals that cannot be caught; this one can.
        let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupt.came));
        interrupt
    }

    /// Whether it came.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}
