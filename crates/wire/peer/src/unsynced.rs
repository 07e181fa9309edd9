//! Changes of a file that were acknowledged and not synced. A crash of the server's machine may lose them while the
//! programs go on. Then the programs get an error: docs/semantics.md, S41.

use crate::planted::{PlantedBug, is_planted};

/// Unsynced changes through the open files of one file that share the same bytes.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// Number of changes that the server has acknowledged.
    changes: u64,
    /// Number of these that are on the server's medium, or were counted as lost.
    synced: u64,
    /// Last boot verifier received from the server; 0: none yet.
    boot_verifier: u64,
    /// Number of times that changes may have been lost.
    losses: u64,
}

impl Unsynced {
    /// Notes that the file was opened at a server with this boot verifier. Returns whether changes acknowledged in an
    /// earlier boot may be lost.
    pub fn meets(&mut self, boot_verifier: u64) -> bool {
        let before = std::mem::replace(&mut self.boot_verifier, boot_verifier);
        before != 0 && before != boot_verifier && self.writes_off()
    }

    fn writes_off(&mut self) -> bool {
        let lost = self.synced < self.changes && !is_planted(PlantedBug::LossForgotten);
        self.synced = self.changes;
        self.losses += u64::from(lost);
        lost
    }

    /// Notes a change acknowledged in the boot with this verifier, or in an unknown one. Returns whether this change,
    /// or another, may be lost by now.
    pub fn changed(&mut self, boot_verifier: Option<u64>) -> bool {
        self.changes += 1;
        // A call of `meets` for the next boot did not see this change if it came before the count.
        Some(self.boot_verifier) != boot_verifier && self.writes_off()
    }

    /// Number of changes that a sync beginning now will cover, for [`synced`](Unsynced::synced).
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that the first `changes` changes are on the medium, unless they were lost before.
    pub fn synced(&mut self, changes: u64) {
        self.synced = self.synced.max(changes);
    }

    /// Number of times that changes may have been lost. A caller that finds a different number must report a loss.
    pub fn losses(&self) -> u64 {
        self.losses
    }
}

/// Request with which a program may be told of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TellWith {
    /// A sync, which fails once for each loss. Only this counts as told.
    Sync,
    /// A write, before it is executed. One fails for each loss that no sync has told: a program may ignore the result.
    Write,
    /// A close, which fails for each loss that no sync has told: many programs do not look at its result.
    Close,
}

/// Numbers of losses that one open file was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossReports {
    by_sync: u64,
    by_write: u64,
}

impl LossReports {
    /// Begins with an open file for which so many losses came too early.
    pub fn after(losses: u64) -> LossReports {
        LossReports { by_sync: losses, by_write: losses }
    }

    /// Returns whether a request must fail, so that its program learns of the `losses` so far. If so, notes that it
    /// was told.
    pub fn tells(&mut self, with: TellWith, losses: u64) -> bool {
        let untold = self.by_sync != losses;
        match with {
            TellWith::Sync => self.by_sync = losses,
            TellWith::Write => return std::mem::replace(&mut self.by_write, losses) != losses && untold,
            TellWith::Close => {}
        }
        untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S41
    fn what_was_not_synced_when_the_servers_machine_crashed_may_be_lost_once() {
        let mut of = Unsynced::default();
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

    #[test] // S41
    fn a_loss_is_told_by_one_sync_and_before_that_by_one_write_and_each_close() {
        let mut reports = LossReports::after(1);
        for with in [TellWith::Sync, TellWith::Write, TellWith::Close] {
            assert!(!reports.tells(with, 1), "it came before the open: {with:?}");
        }
        assert!(reports.tells(TellWith::Write, 2) && !reports.tells(TellWith::Write, 2));
        assert!(reports.tells(TellWith::Close, 2) && reports.tells(TellWith::Close, 2));
        assert!(reports.tells(TellWith::Write, 3), "another loss");
        assert!(reports.tells(TellWith::Sync, 3) && !reports.tells(TellWith::Sync, 3));
        assert!(!reports.tells(TellWith::Close, 3) && !reports.tells(TellWith::Write, 3));
        assert!(reports.tells(TellWith::Sync, 4) && !reports.tells(TellWith::Write, 4));
    }
}
