//! Writes of this node's programs to a file at a server that were not synced. A crash of the server's machine may lose
//! them while the programs go on. Then the programs get an error.

use std::sync::atomic::{AtomicU64, Ordering};

/// Unsynced changes through the open files of one file that share the same bytes.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// Number of changes that the server has acknowledged.
    changes: AtomicU64,
    /// Number of these that are on the server's medium, or were counted as lost.
    synced: AtomicU64,
    /// Last boot verifier received from the server; 0: none yet.
    boot_verifier: AtomicU64,
    /// Number of times that changes may have been lost.
    losses: AtomicU64,
}

impl Unsynced {
    /// Notes that the file was opened at a server with this boot verifier. Returns whether changes acknowledged in an
    /// earlier boot may be lost.
    pub fn meets(&self, boot_verifier: u64) -> bool {
        let before = self.boot_verifier.swap(boot_verifier, Ordering::SeqCst);
        before != 0 && before != boot_verifier && self.writes_off()
    }

    fn writes_off(&self) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let lost = self.synced.fetch_max(changes, Ordering::AcqRel) < changes;
        self.losses.fetch_add(lost.into(), Ordering::AcqRel);
        lost
    }

    /// Notes a change acknowledged in the boot with this verifier, or in an unknown one. Returns whether this change,
    /// or another, may be lost by now.
    pub fn changed(&self, boot_verifier: Option<u64>) -> bool {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // A call of `meets` for the next boot did not see this change if it came before the count.
        Some(self.boot_verifier.load(Ordering::SeqCst)) != boot_verifier && self.writes_off()
    }

    /// Number of changes that a sync beginning now will cover, for [`synced`](Unsynced::synced).
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Notes that the first `changes` changes are on the medium, unless they were lost before.
    pub fn synced(&self, changes: u64) {
        self.synced.fetch_max(changes, Ordering::AcqRel);
    }

    /// Number of times that changes may have been lost. A caller that finds a different number must report a loss.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S41
    fn what_was_not_synced_when_the_servers_machine_crashed_may_be_lost_once() {
        let of = Unsynced::default();
        assert!(!of.meets(1) && !of.meets(1));
        assert!(!of.meets(2), "nothing was written");
        assert!(!of.changed(Some(2)));
        let begun = of.changes();
        assert!(!of.changed(Some(2)));
        of.synced(begun);
        assert!(!of.meets(2), "its process died");
        assert!(of.meets(3) && of.losses() == 1, "one was not synced");
        assert!(!of.meets(4) && of.losses() == 1, "that was told");
        assert!(!of.changed(Some(4)));
        of.synced(of.changes());
        assert!(!of.meets(5));
        assert!(of.changed(Some(4)) && of.losses() == 2, "acknowledged by the one that crashed, and counted after it");
        assert!(!of.meets(6) && of.losses() == 2);
        assert!(of.changed(None) && of.losses() == 3, "nobody knows by whom");
    }
}
