//! Claims to be made from a server that has forgotten a client: docs/adr/0011 has the steps, and the state after a
//! crash in each.
//!
//! Files with locks come first, each with its opens and then its locks. Other clients wait for these locks, and only
//! for the grace period. What of a file was claimed before a part was refused is given back. If the server says that
//! the locks came too late, all files with locks are given back. Then comes everything else.

use std::collections::VecDeque;

use crate::planted::{PlantedBug, is_planted};

/// Claims for one file on which locks are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedClaims<C> {
    /// Number of the file at the client.
    pub file: u64,
    /// Claims for its open files.
    pub opens: Vec<C>,
    /// Claims for its locks.
    pub locks: Vec<C>,
}

impl<C> LockedClaims<C> {
    fn len(&self) -> usize {
        self.opens.len() + self.locks.len()
    }

    fn claim(&self, part: usize) -> Option<&C> {
        self.opens.iter().chain(&self.locks).nth(part)
    }

    /// Returns the locks first: a lock is released through an open file.
    fn undo(&self, part: usize) -> Option<&C> {
        self.locks.iter().chain(&self.opens).nth(part)
    }
}

/// Request to be sent next. The answer goes to [`Reclaim::apply`].
#[derive(Debug, PartialEq, Eq)]
pub enum ReclaimStep<'a, C> {
    /// Claim this.
    Claim(&'a C),
    /// Give this back. It may never have been claimed; then this has no effect.
    Undo(&'a C),
    /// Say that all locks were claimed.
    LocksClaimed,
    /// Say that everything was claimed.
    AllClaimed,
}

/// Answer of the server. A claim that may be granted later has none: the next reclaim begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The step was granted.
    Granted,
    /// The step was refused for good.
    Refused,
}

/// Loss that a step has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostClaim<C> {
    /// All open files of a file with locks, by its number.
    File(u64),
    /// One claim.
    One(C),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Locks,
    Others,
    Over,
}

/// Claims that are being made, in their order.
#[derive(Debug)]
pub struct Reclaim<C> {
    stage: Stage,
    locked: VecDeque<LockedClaims<C>>,
    /// Files whose claims were all granted, until the server says whether that was in time.
    granted: Vec<LockedClaims<C>>,
    /// Files to be given back, before anything else.
    refused: VecDeque<LockedClaims<C>>,
    others: VecDeque<C>,
    /// Number of parts done, of the first file that is given back or claimed.
    part: usize,
    claimed: usize,
}

impl<C> Reclaim<C> {
    /// Begins to claim files with locks and everything else.
    pub fn new(mut locked: Vec<LockedClaims<C>>, others: Vec<C>) -> Reclaim<C> {
        locked.sort_by_key(|file| file.file);
        let (granted, refused, stage) = (Vec::new(), VecDeque::new(), Stage::Locks);
        Reclaim { stage, locked: locked.into(), granted, refused, others: others.into(), part: 0, claimed: 0 }
    }

    /// Returns the next step. `None`: everything was claimed or is lost.
    pub fn select(&self) -> Option<ReclaimStep<'_, C>> {
        if let Some(file) = self.refused.front() {
            return file.undo(self.part).map(ReclaimStep::Undo);
        }
        match self.stage {
            Stage::Locks => match self.locked.front() {
                Some(file) => file.claim(self.part).map(ReclaimStep::Claim),
                None => Some(ReclaimStep::LocksClaimed),
            },
            Stage::Others => Some(self.others.front().map_or(ReclaimStep::AllClaimed, ReclaimStep::Claim)),
            Stage::Over => None,
        }
    }

    /// Notes the answer to the step that was selected. Returns what is lost now.
    pub fn apply(&mut self, answer: ClaimAnswer) -> Option<LostClaim<C>> {
        let granted = answer == ClaimAnswer::Granted;
        if let Some(file) = self.refused.front() {
            self.part += 1;
            let (number, over) = (file.file, self.part == file.len());
            return over.then(|| self.gave_back(number));
        }
        match self.stage {
            Stage::Locks if self.locked.is_empty() => self.ends_locks(granted),
            Stage::Locks => self.claimed_part(granted),
            Stage::Others => match self.others.pop_front() {
                None => self.stage = Stage::Over,
                Some(_) if granted => self.claimed += 1,
                Some(claim) => return Some(LostClaim::One(claim)),
            },
            Stage::Over => {}
        }
        None
    }

    /// Returns the number of open files and directories that were claimed.
    pub fn claimed(&self) -> usize {
        self.claimed
    }

    fn gave_back(&mut self, number: u64) -> LostClaim<C> {
        self.refused.pop_front();
        self.part = 0;
        LostClaim::File(number)
    }

    fn claimed_part(&mut self, granted: bool) {
        let granted = granted || is_planted(PlantedBug::LateClaimBelieved);
        self.part += 1;
        let over = self.locked.front().is_some_and(|file| self.part == file.len());
        if (over || !granted)
            && let Some(file) = self.locked.pop_front()
        {
            self.part = 0;
            if granted { self.granted.push(file) } else { self.refused.push_back(file) }
        }
    }

    fn ends_locks(&mut self, in_time: bool) {
        self.stage = Stage::Others;
        if in_time || is_planted(PlantedBug::LateClaimBelieved) {
            self.claimed += self.granted.iter().map(|file| file.opens.len()).sum::<usize>();
        } else {
            self.refused.extend(self.granted.drain(..));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> LockedClaims<u64> {
        let claims = |first: u64| vec![number * 10 + first, number * 10 + first + 1];
        LockedClaims { file: number, opens: claims(0), locks: claims(2) }
    }

    /// Runs a reclaim at a server that refuses these claims, and says whether the locks came in time. Returns the
    /// steps as numbers, those that give back negative, and what was lost.
    fn run(refuses: &[u64], in_time: bool) -> (Vec<i64>, Vec<LostClaim<u64>>, usize) {
        let mut reclaim = Reclaim::new(vec![file(2), file(1)], vec![50, 60]);
        let (mut steps, mut lost) = (Vec::new(), Vec::new());
        while let Some(step) = reclaim.select() {
            let (number, granted) = match step {
                ReclaimStep::Claim(claim) => (*claim as i64, !refuses.contains(claim)),
                ReclaimStep::Undo(claim) => (-(*claim as i64), false),
                ReclaimStep::LocksClaimed => (0, in_time),
                ReclaimStep::AllClaimed => (100, true),
            };
            steps.push(number);
            lost.extend(reclaim.apply(if granted { ClaimAnswer::Granted } else { ClaimAnswer::Refused }));
        }
        (steps, lost, reclaim.claimed())
    }

    #[test] // S49
    fn files_with_locks_are_claimed_first_and_whole() {
        let (steps, lost, claimed) = run(&[], true);
        assert_eq!(steps, [10, 11, 12, 13, 20, 21, 22, 23, 0, 50, 60, 100]);
        assert_eq!((lost, claimed), (vec![], 6));
    }

    #[test] // S49
    fn a_file_of_which_a_part_is_refused_is_given_back_and_holds_up_no_other() {
        let (steps, lost, claimed) = run(&[12, 50], true);
        assert_eq!(steps, [10, 11, 12, -12, -13, -10, -11, 20, 21, 22, 23, 0, 50, 60, 100]);
        assert_eq!((lost, claimed), (vec![LostClaim::File(1), LostClaim::One(50)], 3));
    }

    #[test] // S49
    fn who_comes_too_late_gives_back_all_files_with_locks() {
        let (steps, lost, claimed) = run(&[21], false);
        let given_back = [0, -12, -13, -10, -11];
        assert_eq!(steps, [&[10, 11, 12, 13, 20, 21, -22, -23, -20, -21][..], &given_back, &[50, 60, 100]].concat());
        assert_eq!((lost, claimed), (vec![LostClaim::File(2), LostClaim::File(1)], 2));
    }

    #[test]
    fn every_order_of_answers_claims_or_loses_everything_once() {
        let mut random = testkit::Random(3);
        for _ in 0..1000 {
            let refuses: Vec<u64> = (10..70).filter(|_| random.below(6) == 0).collect();
            let in_time = random.below(2) == 0;
            let (steps, lost, claimed) = run(&refuses, in_time);
            let lost_files = lost.iter().map(|one| if matches!(one, LostClaim::File(_)) { 2 } else { 1 });
            assert_eq!(claimed + lost_files.sum::<usize>(), 6, "{refuses:?}");
            for claim in [10, 11, 12, 13, 20, 21, 22, 23] {
                let (made, undone) = (steps.contains(&claim), steps.contains(&-claim));
                let is_lost = lost.contains(&LostClaim::File(claim as u64 / 10));
                assert!(made || is_lost, "{claim} of {refuses:?}");
                assert_eq!(undone, is_lost, "{claim} of {refuses:?}");
            }
            assert_eq!(steps.last(), Some(&100));
        }
    }
}
