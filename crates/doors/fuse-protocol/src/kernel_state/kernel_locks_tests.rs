//! Claims of locks after sequences of requests and answers.

use super::*;

const FILE: u64 = 7;
const TAKE: Option<LockKind> = Some(LockKind::Exclusive);
const SHARE: Option<LockKind> = Some(LockKind::Shared);

fn range(owner: u64, start: u64, end: u64, kind: Option<LockKind>) -> LockChange {
    LockChange { owner, handle: owner * 10, pid: 1, flock: false, range: (start, end), kind }
}

fn flock(owner: u64, kind: Option<LockKind>) -> LockChange {
    LockChange { flock: true, ..range(owner, 0, i64::MAX as u64, kind) }
}

fn done(locked: &mut KernelLocks, change: LockChange) {
    locked.begins(2, FILE, change);
    assert_eq!(locked.ends(2, LockOutcome::Done), Some((FILE, change)));
}

#[test] // S49
fn what_was_granted_and_not_released_is_claimed() {
    let mut locked = KernelLocks::default();
    done(&mut locked, range(1, 0, 99, TAKE));
    done(&mut locked, range(1, 40, 59, None));
    done(&mut locked, flock(3, SHARE));
    locked.begins(4, FILE, range(2, 200, 299, TAKE));
    locked.begins(6, FILE, flock(4, TAKE));
    locked.ends(6, LockOutcome::Refused);
    let claimed = locked.claims(FILE).unwrap();
    assert_eq!(
        claimed,
        [range(1, 0, 39, TAKE), range(1, 60, 99, TAKE), flock(3, SHARE)],
        "not what waits, nor what was refused"
    );
    assert_eq!(locked.claims(8), Some(vec![]));
    locked.closes(FILE, 10);
    done(&mut locked, flock(3, None));
    assert_eq!(locked.claims(FILE), Some(vec![]));
    locked.ends(4, LockOutcome::Done);
    assert_eq!(locked.claims(FILE), Some(vec![range(2, 200, 299, TAKE)]));
    locked.forgets(FILE);
    assert_eq!(locked.claims(FILE), Some(vec![]));
}

#[test] // S49
fn what_somebody_asks_to_release_or_to_share_is_not_claimed_from_then_on() {
    let mut locked = KernelLocks::default();
    done(&mut locked, range(1, 0, 99, TAKE));
    done(&mut locked, flock(3, SHARE));
    locked.begins(4, FILE, range(1, 90, 200, None));
    locked.begins(6, FILE, range(1, 0, 9, SHARE));
    locked.begins(8, FILE, flock(3, TAKE));
    locked.begins(10, FILE, range(2, 300, 400, TAKE));
    let before = locked.claims(FILE).unwrap();
    assert_eq!(before, [range(1, 0, 9, SHARE), range(1, 10, 89, TAKE)]);
    assert_eq!(locked.claims(FILE).unwrap(), before, "that server died as well");
    assert_eq!([4, 6, 8, 10].map(|unique| locked.gave(unique)), [true, true, true, false]);
    locked.ends(8, LockOutcome::Unsent);
    assert_eq!(locked.claims(FILE).unwrap(), before, "what was not claimed is not held");
    locked.ends(6, LockOutcome::Refused);
    locked.ends(4, LockOutcome::Done);
    locked.ends(10, LockOutcome::Refused);
    assert_eq!(locked.claims(FILE).unwrap(), before);
    locked.begins(6, FILE, range(1, 0, 9, TAKE));
    locked.ends(6, LockOutcome::Unsent);
    assert_eq!(locked.claims(FILE).unwrap(), before, "nobody was asked to convert it");
}

#[test] // S49
fn what_one_owner_asked_for_at_once_is_in_doubt_until_it_has_released_all() {
    let mut locked = KernelLocks::default();
    locked.begins(2, FILE, range(1, 0, 9, TAKE));
    locked.begins(4, FILE, range(1, 10, 19, TAKE));
    locked.begins(6, FILE, range(2, 0, 9, None));
    locked.begins(8, FILE, flock(1, None));
    for unique in [8, 6, 4] {
        locked.ends(unique, LockOutcome::Done);
    }
    assert!(locked.claims(FILE).is_some(), "they do not meet");
    locked.begins(4, FILE, range(1, 5, 30, None));
    locked.ends(4, LockOutcome::Done);
    locked.ends(2, LockOutcome::Done);
    assert_eq!(locked.claims(FILE), None, "was it released, or taken after that?");
    let all = range(1, 0, u64::MAX, None);
    locked.begins(2, FILE, all);
    locked.begins(4, FILE, range(1, 0, 9, TAKE));
    locked.ends(4, LockOutcome::Refused);
    locked.ends(2, LockOutcome::Done);
    assert_eq!(locked.claims(FILE), None);
    done(&mut locked, flock(1, None));
    assert_eq!(locked.claims(FILE), None, "that is another lock");
    done(&mut locked, all);
    assert_eq!(locked.claims(FILE), Some(vec![]));
}

#[test] // S49
fn what_is_in_doubt_ends_with_the_open_files_that_it_went_through() {
    let through = |handle, kind| LockChange { handle, ..range(1, 0, 9, kind) };
    for order in [[10, 11, 12], [10, 12, 11]] {
        let mut locked = KernelLocks::default();
        done(&mut locked, range(1, 100, 199, TAKE));
        locked.begins(2, FILE, through(11, TAKE));
        locked.begins(4, FILE, through(12, None));
        locked.ends(2, LockOutcome::Done);
        locked.ends(4, LockOutcome::Done);
        for closed in order {
            assert_eq!(locked.claims(FILE), None);
            locked.closes(FILE, closed);
        }
        assert_eq!(locked.claims(FILE), Some(vec![]));
    }
    let mut locked = KernelLocks::default();
    locked.begins(6, FILE, flock(3, SHARE));
    locked.begins(8, FILE, flock(3, None));
    locked.ends(6, LockOutcome::Done);
    locked.ends(8, LockOutcome::Done);
    done(&mut locked, range(1, 100, 199, TAKE));
    assert_eq!(locked.claims(FILE), None);
    locked.closes(FILE, 30);
    assert_eq!(locked.claims(FILE), Some(vec![range(1, 100, 199, TAKE)]));
}

#[test]
fn a_lock_that_is_taken_again_ends_with_the_open_file_that_it_was_taken_through_last() {
    let mut locked = KernelLocks::default();
    let again = LockChange { handle: 11, ..range(1, 0, 99, TAKE) };
    done(&mut locked, range(1, 0, 99, TAKE));
    done(&mut locked, again);
    locked.closes(FILE, 10);
    assert_eq!(locked.claims(FILE), Some(vec![again]));
    locked.closes(FILE, 11);
    assert_eq!(locked.claims(FILE), Some(vec![]));
}

#[test] // S49
fn what_its_owner_holds_where_more_is_asked_for_would_be_undone_with_that() {
    let mut locked = KernelLocks::default();
    let mut holds = |held: LockChange, asked: LockChange| {
        done(&mut locked, held);
        locked.begins(4, FILE, asked);
        let holds = locked.holds_there(4);
        locked.ends(4, LockOutcome::Refused);
        locked.forgets(FILE);
        holds
    };
    let (shared, own) = (range(1, 0, 9, SHARE), range(1, 0, 9, TAKE));
    for asked in [own, range(1, 9, 20, TAKE), range(1, 0, 10, SHARE)] {
        assert!(holds(shared, asked), "{asked:?}");
    }
    assert!(holds(flock(1, SHARE), flock(1, TAKE)));
    for asked in [range(1, 10, 20, TAKE), range(2, 0, 9, TAKE), flock(1, TAKE)] {
        assert!(!holds(shared, asked), "{asked:?}");
    }
    assert!(!holds(own, range(1, 2, 9, TAKE)), "it is no more than he has, and nothing would be undone");
    assert!(!locked.holds_there(4), "nothing is asked for");
}

#[test]
fn a_program_that_was_killed_while_it_waited_holds_nothing() {
    let mut locked = KernelLocks::default();
    done(&mut locked, range(1, 0, 99, TAKE));
    locked.begins(4, FILE, range(1, 50, 199, TAKE));
    assert_eq!(locked.ends(4, LockOutcome::Died), Some((FILE, range(1, 50, 199, TAKE))));
    assert_eq!(locked.ends(4, LockOutcome::Done), None);
    assert_eq!(locked.claims(FILE), Some(vec![range(1, 0, 49, TAKE)]));
    // A child that repeats the lock of its parent, through the description that they share.
    done(&mut locked, flock(3, TAKE));
    locked.begins(4, FILE, flock(3, TAKE));
    assert_eq!(locked.ends(4, LockOutcome::Died), None, "nothing is to be undone");
    locked.begins(4, FILE, range(1, 10, 19, TAKE));
    assert_eq!(locked.ends(4, LockOutcome::Died), None);
    assert_eq!(locked.claims(FILE), Some(vec![range(1, 0, 49, TAKE), flock(3, TAKE)]));
    locked.begins(4, FILE, flock(3, SHARE));
    assert_eq!(locked.ends(4, LockOutcome::Died), Some((FILE, flock(3, SHARE))), "it was given up to be converted");
    assert_eq!(locked.claims(FILE), Some(vec![range(1, 0, 49, TAKE)]));
}
