//! Numbers of the kernel's requests, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Opcode;

/// Number of kinds of requests.
const KINDS: usize = Opcode::ALL.len();

/// How many requests of each kind have arrived since the session began. Takes 8 bytes a kind.
#[derive(Debug)]
pub struct RequestCounts([AtomicU64; KINDS]);

impl Default for RequestCounts {
    fn default() -> RequestCounts {
        RequestCounts([const { AtomicU64::new(0) }; KINDS])
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, kind: Opcode) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the kinds of which requests have arrived, in the order of the kernel's numbers.
    pub fn all(&self) -> Vec<(Opcode, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Opcode::ALL.iter().map(|(kind, _)| *kind).zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
