//! Ctrl-C: what runs is ended by the terminal's own signal; this program stays to save and say what it has, and to tidy up. So it does
//! when it is told to end (SIGTERM): what runs then comes to its end first, unless it was told too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

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

    /// The same for work that may go on for a while before it looks, of SIGTERM too: a second signal ends this program at once.
    pub fn once() -> Interrupt {
        let interrupt = Interrupt::default();
        let came = &interrupt.came;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, the second finds it up. The status is as shells have it.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(came));
            let _ = signal_hook::flag::register(signal, Arc::clone(came));
        }
        interrupt
    }

    /// Whether it came.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}
