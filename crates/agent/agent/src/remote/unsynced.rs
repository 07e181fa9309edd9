//! What programs of this node wrote to a file at a server and nobody has synced since: a crash of the server's machine may take it, and the
//! programs that wrote it live on. They are told.

use std::sync::atomic::{AtomicU64, Ordering};

/// Of the open files of one file that have the same bytes.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// Changes that the server has acknowledged.
    changes: AtomicU64,
    /// As many of them are on the server's medium, or written off.
    synced: AtomicU64,
    /// The life of the server's machine, as it was told last; 0: never yet.
    life: AtomicU64,
    /// How often something may have been lost.
    losses: AtomicU64,
}

impl Unsynced {
    /// The file was opened at a server whose machine lives this life. Whether something may be lost that was acknowledged in another.
    pub fn meets(&self, life: u64) -> bool {
        let before = self.life.swap(life, Ordering::SeqCst);
        before != 0 && before != life && self.writes_off()
    }

    fn writes_off(&self) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let lost = self.synced.fetch_max(changes, Ordering::AcqRel) < changes;
        self.losses.fetch_add(lost.into(), Ordering::AcqRel);
        lost
    }

    /// A change was acknowledged in this life of the server's machine, or nobody knows in which. Whether that, or another, may be lost by
    /// now.
    pub fn changed(&self, life: Option<u64>) -> bool {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // Whoever met the next one before this was counted has not seen it.
        Some(self.life.load(Ordering::SeqCst)) != life && self.writes_off()
    }

    /// What a sync that begins now will have synced, for [`synced`](Unsynced::synced).
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// These changes are on the medium, if they were not lost before.
    pub fn synced(&self, changes: u64) {
        self.synced.fetch_max(changes, Ordering::AcqRel);
    }

    /// How often something may have been lost: whoever finds another number than before has to be told.
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
