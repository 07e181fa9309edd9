//! Ctrl-C: the terminal's signal ends the running children. This program survives, saves and prints its results, and
//! cleans up.
//!
//! SIGTERM has an equal effect on this program, but children then finish first unless they got the signal too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches SIGINT from now on, so that it does not end this program. Children are still ended: a handler, unlike an
    /// ignored signal, is not inherited.
    pub fn expect() -> Interrupt {
        let interrupt = Interrupt::default();
        // Registering fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupt.came));
        interrupt
    }

    /// Catches SIGINT and SIGTERM from now on, for work that checks the flag only now and then. A second signal ends
    /// this program at once.
    pub fn once() -> Interrupt {
        let interrupt = Interrupt::default();
        let came = &interrupt.came;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, the second finds it set. The exit status is that of
            // shells.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(came));
            let _ = signal_hook::flag::register(signal, Arc::clone(came));
        }
        interrupt
    }

    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}
