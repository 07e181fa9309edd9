//! The kernel's requests that are being executed, and those that are answered later: waits for locks.

use std::collections::BTreeMap;

use concurrency::Mutex;
use fuse_protocol::{Envelope, Errno, NodeId, Parked, is_dying};
use transport::SessionInstance;

enum State {
    Running(NodeId),
    /// The answer arrived before the notice that it would come later.
    Answered(Vec<u8>),
    Waits {
        reply: Parked,
        /// Thread that waits.
        thread: u32,
        /// The kernel's message.
        message: Vec<u8>,
        /// Session instance of the server at which the request waits.
        at: SessionInstance,
    },
}

/// Unanswered requests of the kernel, by the kernel's number.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<u64, State>>);

impl Waiting {
    /// Notes that a request about a file is being executed.
    pub fn begin(&self, unique: u64, node: NodeId) {
        self.0.lock().insert(unique, State::Running(node));
    }

    /// Ends a request that its own thread answers. Returns the answer that arrived meanwhile, if any.
    pub fn end(&self, unique: u64) -> Option<Vec<u8>> {
        match self.0.lock().remove(&unique)? {
            State::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Parks a request that `at` will answer later. Answers it at once if the answer has arrived.
    pub fn park(&self, reply: Parked, thread: u32, message: &[u8], at: SessionInstance) {
        let mut all = self.0.lock();
        match all.remove(&reply.unique()) {
            Some(State::Answered(answer)) => {
                drop(all);
                reply.bytes(&answer, &[]);
            }
            _ => _ = all.insert(reply.unique(), State::Waits { reply, thread, message: message.to_vec(), at }),
        }
    }

    /// Delivers a late answer. `counts` is called before the program can see it, and not if the request has ended. If
    /// `counts` returns false, the request waits on.
    pub fn answer(&self, unique: u64, answer: &[u8], counts: impl FnOnce() -> bool) {
        let mut all = self.0.lock();
        if !all.contains_key(&unique) || !counts() {
            return;
        }
        match all.remove(&unique) {
            Some(State::Waits { reply, .. }) => {
                drop(all);
                reply.bytes(answer, &[]);
            }
            _ => _ = all.insert(unique, State::Answered(answer.to_vec())),
        }
    }

    /// Returns the file of a request that waits or is about to.
    pub fn node(&self, unique: u64) -> Option<NodeId> {
        match self.0.lock().get(&unique)? {
            State::Running(node) => Some(*node),
            State::Waits { message, .. } => Envelope::of(message).map(|envelope| envelope.node),
            State::Answered(_) => None,
        }
    }

    /// Returns whether a request is unanswered.
    pub fn is_open(&self, unique: u64) -> bool {
        self.0.lock().contains_key(&unique)
    }

    /// Returns the kernel's numbers of all requests that wait.
    pub fn parked(&self) -> Vec<u64> {
        let all = self.0.lock();
        all.iter().filter(|(_, state)| matches!(state, State::Waits { .. })).map(|(unique, _)| *unique).collect()
    }

    /// Returns the message of a request that still waits, unless it waits at `memory` already.
    pub fn message(&self, unique: u64, memory: SessionInstance) -> Option<Vec<u8>> {
        match self.0.lock().get(&unique)? {
            State::Waits { message, at, .. } if *at != memory => Some(message.clone()),
            _ => None,
        }
    }

    /// Notes that a request waits at `memory` from now on.
    pub fn waits_at(&self, unique: u64, memory: SessionInstance) {
        if let Some(State::Waits { at, .. }) = self.0.lock().get_mut(&unique) {
            *at = memory;
        }
    }

    /// Ends the waits of callers that were killed. Calls `before` for each, before its reply.
    pub fn end_dying(&self, before: impl Fn(u64)) {
        self.end_if(Errno::EINTR, before, |reply, thread| reply.interrupted() && is_dying(thread));
    }

    /// Ends one wait. Calls `before` when no other answer can arrive any more and the program has not been told yet.
    pub fn end_one(&self, unique: u64, errno: Errno, before: impl Fn(u64)) {
        self.end_if(errno, before, |reply, _| reply.unique() == unique);
    }

    /// Ends all waits.
    pub fn end_all(&self, errno: Errno) {
        self.end_if(errno, |_| (), |_, _| true);
    }

    fn end_if(&self, errno: Errno, before: impl Fn(u64), ends: impl Fn(&Parked, u32) -> bool) {
        let ended: Vec<State> = {
            let mut all = self.0.lock();
            let ends = |_: &u64, state: &mut State| match state {
                State::Waits { reply, thread, .. } => ends(reply, *thread),
                _ => false,
            };
            all.extract_if(.., ends).map(|(_, state)| state).collect()
        };
        for state in ended {
            if let State::Waits { reply, .. } = state {
                before(reply.unique());
                reply.error(errno);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer to request 2: success.
    fn answer() -> Vec<u8> {
        [16_u32.to_ne_bytes().as_slice(), &0_i32.to_ne_bytes(), &2_u64.to_ne_bytes()].concat()
    }

    const HERE: SessionInstance = [1; 16];
    const THERE: SessionInstance = [2; 16];

    #[test]
    fn an_answer_finds_its_request_before_and_after_that_was_parked() {
        for early in [true, false] {
            let waiting = Waiting::default();
            let (reply, answered, _) = Parked::detached(2);
            waiting.begin(2, 1);
            if early {
                waiting.answer(2, &answer(), || true);
                assert!(waiting.is_open(2));
            }
            waiting.park(reply, 1, &[], HERE);
            waiting.answer(2, &answer(), || answered.try_recv().is_err());
            assert_eq!(answered.recv(), Ok(Ok(())), "and not before it is noted");
            assert!(!waiting.is_open(2) && answered.try_recv().is_err());
        }
    }

    #[test]
    fn who_is_answered_what_does_not_count_waits_on_and_is_asked_for_elsewhere() {
        for early in [true, false] {
            let waiting = Waiting::default();
            let (reply, answered, _) = Parked::detached(2);
            waiting.begin(2, 1);
            if early {
                waiting.answer(2, &answer(), || false);
            }
            waiting.park(reply, 1, &[7], HERE);
            waiting.answer(2, &answer(), || false);
            assert!(answered.try_recv().is_err());
            assert_eq!((waiting.message(2, HERE), waiting.message(2, THERE)), (None, Some(vec![7])));
            waiting.waits_at(2, THERE);
            assert_eq!((waiting.message(2, HERE), waiting.message(2, THERE)), (Some(vec![7]), None));
            waiting.answer(2, &answer(), || true);
            assert_eq!(answered.recv(), Ok(Ok(())));
            waiting.answer(2, &answer(), || panic!("nobody waits"));
        }
    }

    #[test] // S49
    fn an_answer_that_comes_before_its_request_ends_otherwise_is_the_answer() {
        let waiting = Waiting::default();
        for come in [true, false] {
            waiting.begin(2, 1);
            if come {
                waiting.answer(2, &answer(), || true);
            }
            assert_eq!(waiting.end(2), come.then(answer));
            assert_eq!(waiting.end(2), None);
        }
    }

    #[test]
    fn a_killed_caller_waits_no_more_and_an_interrupted_one_does() {
        let waiting = Waiting::default();
        let (lives, (dies, ended, interrupt)) = (Parked::detached(4), Parked::detached(2));
        interrupt();
        (lives.2)();
        waiting.park(dies, u32::MAX, &[2], HERE);
        waiting.park(lives.0, std::process::id(), &[4], HERE);
        assert_eq!((waiting.parked().len(), waiting.message(4, THERE)), (2, Some(vec![4])));
        let undone = Mutex::new(vec![]);
        waiting.end_dying(|unique| undone.lock().push((unique, ended.try_recv().is_err())));
        assert_eq!(undone.into_inner(), [(2, true)], "and it has not been told yet");
        assert_eq!((waiting.parked(), waiting.message(2, THERE)), (vec![4], None));
        assert_eq!(ended.recv(), Ok(Err(Errno::EINTR)));
        assert!(lives.1.try_recv().is_err());
        waiting.end_all(Errno::ESTALE);
        assert_eq!(lives.1.recv(), Ok(Err(Errno::ESTALE)));
    }
}
