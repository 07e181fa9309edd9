//! Claims after sequences of requests and answers, each as it passes.

use types::LockKind;

use super::*;
use crate::Opcode;
use crate::abi::{EntryOut, OpenOut, OutHeader, bytes_of};

const LATER: SessionInstance = [1; 16];
const FORMER: SessionInstance = [0; 16];
const LOCKS_MAX: usize = 1 << 14;

fn identity(node: NodeId) -> Identity {
    Identity::new(vec![1, 2, node as u8]).unwrap()
}

fn about(node: NodeId) -> Option<AboutFile> {
    Some((identity(node), PathBuf::from("a/b")))
}

fn held(node: NodeId) -> HeldFile {
    HeldFile { node, identity: identity(node), hint: PathBuf::from("a/b"), flags: libc::O_RDWR, writes: true }
}

fn request(opcode: Opcode, unique: u64, node: NodeId, first: u64) -> Envelope {
    Envelope { opcode: Some(opcode), unique, node, uid: 0, gid: 0, pid: 1, first }
}

fn answer(errno: i32, body: &[&[u8]]) -> Vec<u8> {
    [bytes_of(&OutHeader { error: -errno, ..OutHeader::default() }), &body.concat()].concat()
}

/// The kernel asks about `node` by name, and gets it.
fn look_up(state: &KernelState, node: NodeId, about: Option<AboutFile>) {
    let entry = EntryOut { nodeid: node, ..EntryOut::default() };
    let asked = request(Opcode::Lookup, 2, 1, 0);
    assert!(state.answered(&asked, &answer(0, &[bytes_of(&entry)]), about, FORMER));
}

/// The kernel opens `node` for reading and writing, and gets `handle`.
fn open(state: &KernelState, node: NodeId, handle: Handle) -> Given {
    let asked = request(Opcode::Open, 2, node, libc::O_RDWR as u64);
    let answer = answer(0, &[bytes_of(&OpenOut { fh: handle, ..OpenOut::default() })]);
    assert!(state.answered(&asked, &answer, about(node), FORMER));
    Given::by(&asked, &answer).unwrap()
}

fn close(state: &KernelState, node: NodeId, handle: Handle) -> Option<HeldFile> {
    state.sends(&request(Opcode::Release, 2, node, handle), &[])
}

fn claims(state: &KernelState) -> Claims {
    state.claims(LATER, LOCKS_MAX, || ())
}

#[test]
fn an_open_file_is_held_until_it_is_closed() {
    let state = KernelState::default();
    open(&state, 7, 70);
    assert!(state.writes(70) && !state.writes(71));
    assert_eq!(close(&state, 7, 70), Some(held(7)));
    assert!(!state.writes(70) && close(&state, 7, 70).is_none());
    open(&state, 8, 80);
    assert_eq!(state.loses_open(80), Some(held(8)));
    open(&state, 8, 81);
    assert_eq!(state.clear(), [held(8)]);
    assert_eq!(state.clear(), []);
}

#[test]
fn what_an_answer_gave_that_the_kernel_never_got_is_not_held() {
    let state = KernelState::default();
    look_up(&state, 5, about(5));
    let (entry, opened) = (EntryOut { nodeid: 7, ..EntryOut::default() }, OpenOut { fh: 70, ..OpenOut::default() });
    let asked = request(Opcode::Create, 2, 5, libc::O_RDWR as u64);
    let answer = answer(0, &[bytes_of(&entry), bytes_of(&opened)]);
    look_up(&state, 7, None);
    assert!(state.answered(&asked, &answer, about(7), FORMER));
    let lookups = |state: &KernelState, node| {
        let others = claims(state).others;
        others.iter().filter(|claim| claim.node == node).map(|claim| claim.lookups).collect::<Vec<_>>()
    };
    assert_eq!(lookups(&state, 7), [2]);
    assert_eq!(state.takes_back(&Given::by(&asked, &answer).unwrap()), Some(held(7)));
    assert_eq!(lookups(&state, 7), []);
    let again = open(&state, 7, 71);
    assert_eq!(lookups(&state, 7), [1], "the lookup of before is the kernel's");
    assert_eq!(state.takes_back(&again), Some(held(7)));
    assert_eq!(state.takes_back(&again), None);
    assert_eq!(lookups(&state, 5), [1]);
}

#[test]
fn directories_and_open_files_are_claimed_with_their_lookups_and_what_is_forgotten_is_not() {
    let state = KernelState::default();
    look_up(&state, 5, about(5));
    look_up(&state, 5, None);
    look_up(&state, 7, None);
    look_up(&state, 9, about(9));
    open(&state, 7, 70);
    state.forgets(9, 1, || ());
    let Claims { mut others, locked, lost } = claims(&state);
    others.sort_by_key(|claim| claim.node);
    let told: Vec<_> = others.iter().map(|claim| (claim.node, claim.lookups, claim.open)).collect();
    assert_eq!(told, [(5, 2, None), (7, 1, Some((70, libc::O_RDWR)))]);
    assert!(others.iter().all(|claim| claim.identity == identity(claim.node) && *claim.hint == *"a/b"));
    assert_eq!((locked, lost), (vec![], vec![]));
}

fn take(owner: u64, handle: Handle, flock: bool) -> LockChange {
    let range = (0, i64::MAX as u64);
    LockChange { owner, handle, flock, range, kind: Some(LockKind::Exclusive), ..LockChange::default() }
}

fn ask(state: &KernelState, unique: u64, node: NodeId, change: LockChange) {
    let message = change.message(node);
    let envelope = Envelope { unique, ..Envelope::of(&message).unwrap() };
    assert_eq!(state.sends(&envelope, &message), None);
}

fn grant(state: &KernelState, node: NodeId, change: LockChange) {
    ask(state, 2, node, change);
    assert!(state.ends(2, LockOutcome::Done).is_some());
}

fn is_answered(state: &KernelState, unique: u64, errno: i32, by: SessionInstance) -> bool {
    state.answered(&request(Opcode::Setlkw, unique, 1, 0), &answer(errno, &[]), None, by)
}

#[test] // S49
fn a_file_is_claimed_with_its_locks_while_it_is_open() {
    let state = KernelState::default();
    for node in [1, 2, 3, 4] {
        open(&state, node, node * 10);
        grant(&state, node, take(100, node * 10, node == 3));
    }
    open(&state, 1, 11);
    grant(&state, 2, LockChange { kind: None, ..take(100, 20, false) });
    assert!(close(&state, 4, 40).is_some(), "its locks go with the last close");
    open(&state, 4, 41);
    for _ in 0..2 {
        let Claims { mut locked, others, lost } = claims(&state);
        locked.sort_by_key(|file| file.node);
        let told: Vec<_> = locked.iter().map(|file| (file.node, file.opens.len(), file.locks.clone())).collect();
        assert_eq!(told, [(1, 2, vec![take(100, 10, false)]), (3, 1, vec![take(100, 30, true)])]);
        assert_eq!((others.len(), lost.len()), (2, 0));
    }
    assert_eq!(state.loses_file(1).len(), 2);
    assert_eq!(claims(&state).locked.len(), 1);
}

#[test] // S49
fn a_file_on_which_nobody_knows_the_locks_and_one_with_too_many_are_not_claimed() {
    let state = KernelState::default();
    open(&state, 1, 10);
    ask(&state, 4, 1, take(100, 10, false));
    grant(&state, 1, LockChange { kind: None, ..take(100, 10, false) });
    state.ends(4, LockOutcome::Done);
    const FILES: u64 = 64;
    for node in 2..2 + FILES {
        open(&state, node, node * 10);
        for owner in 0..=LOCKS_MAX as u64 / FILES {
            grant(&state, node, LockChange { kind: Some(LockKind::Shared), ..take(owner, node * 10, false) });
        }
    }
    let Claims { locked, others, lost } = claims(&state);
    assert_eq!((lost.len(), locked.len(), others.len()), (2, FILES as usize - 1, 0));
    assert_eq!(claims(&state).lost, [], "who is lost stays so, and nobody else is");
}

#[test] // S49
fn what_a_former_server_granted_is_not_believed_once_its_successor_was_told_what_is_held() {
    let state = KernelState::default();
    open(&state, 1, 10);
    grant(&state, 1, LockChange { kind: Some(LockKind::Shared), ..take(100, 10, true) });
    ask(&state, 4, 1, take(100, 10, true));
    ask(&state, 6, 1, LockChange { kind: None, ..take(200, 10, false) });
    assert_eq!(claims(&state).locked, [], "it was given up to be converted");
    for errno in [0, libc::EAGAIN] {
        assert!(!is_answered(&state, 4, errno, FORMER));
    }
    assert!(is_answered(&state, 6, 0, FORMER), "what is released nobody has");
    assert!(is_answered(&state, 8, 0, FORMER), "it is about no lock");
    assert!(claims(&state).locked.is_empty());
    assert!(is_answered(&state, 4, 0, LATER));
    assert_eq!(claims(&state).locked[0].locks, [take(100, 10, true)]);
}

#[test] // S49
fn a_lock_that_is_granted_late_is_not_believed_once_its_request_was_undone() {
    let state = KernelState::default();
    let granted = answer(0, &[]);
    open(&state, 1, 10);
    for outcome in [LockOutcome::Died, LockOutcome::Unsent, LockOutcome::Refused] {
        ask(&state, 4, 1, take(100, 10, true));
        state.ends(4, outcome);
        assert!(!state.answered_late(4, &granted, FORMER), "{outcome:?}");
    }
    ask(&state, 4, 1, take(100, 10, true));
    assert!(!state.answered_late(4, &granted, LATER), "nobody has asked that one");
    assert!(state.answered_late(4, &granted, FORMER) && !state.answered_late(4, &granted, FORMER));
    assert_eq!(claims(&state).locked[0].locks, [take(100, 10, true)]);
}
