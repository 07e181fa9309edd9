//! Background work of the relay: fetching events and running deferred requests.

use std::cell::LazyCell;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use concurrency::Instant;
use fuse_protocol::view::{AnswerView, is_success};
use fuse_protocol::{Errno, InUse, LockChange, LockOutcome, forgets, interrupt, name_to_forget};
use transport::{Answer, Call, CallError, SessionInstance};
use wire::{Message, Piece, pace};

use super::{Relay, piece};
use crate::deferred::DeferredRequest;
use crate::limits::{ANSWER_BYTES, ERRAND, ERRAND_POLL, GRACE_POLL, INTERRUPT_AGAIN};

fn is_again(answer: &[u8]) -> bool {
    AnswerView::parse(answer).is_some_and(|answer| answer.failed_with(libc::EAGAIN))
}

impl Relay {
    /// Fetches what the kernel is told unasked, until the end.
    pub(super) fn listen(&self) {
        let (mut after, mut room) = (0, vec![0; ANSWER_BYTES]);
        let ended = || self.has_ended();
        while !ended() {
            let seen = self.attached.load(Ordering::SeqCst);
            if seen == 0 {
                concurrency::sleep(ERRAND_POLL);
                continue;
            }
            let question = Message::Listen { after };
            let call = Call { into: &mut room, interrupted: &ended, ..Call::new(&question) };
            match self.client.call(call) {
                Ok(Answer { message: Message::Heard { last }, data_bytes, memory }) => {
                    self.deliver((&room[..data_bytes], memory));
                    after = last;
                }
                Ok(Answer { message: Message::Unknown {}, .. }) => {
                    if let Err(error) = self.attach(seen, &ended) {
                        tracing::debug!(%error, "not attached");
                        concurrency::sleep(ERRAND_POLL);
                    }
                }
                Ok(_) | Err(_) => concurrency::sleep(ERRAND_POLL),
            }
        }
    }

    /// Hands events on, up to one that is not whole.
    fn deliver(&self, (mut events, memory): (&[u8], SessionInstance)) {
        // Looked at once, and only if it is asked for.
        let in_use = LazyCell::new(|| InUse::look().ok());
        let may_pass =
            |name: Option<&OsStr>| name.is_none_or(|name| in_use.as_ref().is_some_and(|in_use| !in_use.has(name)));
        while let Some((header, event, rest)) = AnswerView::split_first(events) {
            match header.unique() {
                unique if !header.is_notification() => self.answer_late(unique, event, memory),
                _ if may_pass(name_to_forget(event)) => self.pass(event),
                _ => {}
            }
            events = rest;
        }
    }

    /// Answers what waited for a lock; the lock is noted before its program hears of it. What a former server says of it does not count: the
    /// next is asked.
    fn answer_late(&self, unique: u64, answer: &[u8], by: SessionInstance) {
        if is_success(answer) {
            self.waiting.node(unique).into_iter().for_each(|node| self.drop_pages(node));
        }
        self.waiting.answer(unique, answer, || self.kernel.answered_late(unique, answer, by));
    }

    /// Whoever asked for a lock was killed, or for the end of one: whatever the server has done of it, he has none.
    pub(super) fn undo_lock(&self, unique: u64) {
        self.unlock_of(unique).into_iter().for_each(|deferred_request| self.deferred.add(deferred_request));
    }

    /// As `undo_lock`, for a caller that lives: it may ask again as soon as it hears, and what it gets then is not to be undone.
    fn undo_lock_now(&self, unique: u64) {
        if let Some(deferred_request) = self.unlock_of(unique)
            && !self.run(&deferred_request)
        {
            self.deferred.put_back(deferred_request);
        }
    }

    /// Returns the request that undoes a request for a lock, or `None` if nothing has to be undone.
    fn unlock_of(&self, unique: u64) -> Option<DeferredRequest> {
        let (node, change) = self.kernel.ends(unique, LockOutcome::Died)?;
        Some(DeferredRequest::Unlock(unique, LockChange { kind: None, ..change }.message(node)))
    }

    pub(super) fn run_errands(&self) {
        while let Ok(next) = self.deferred.next() {
            let Some(deferred_request) = next else { continue };
            let ran = self.run(&deferred_request);
            if !ran && !self.has_ended() {
                self.deferred.put_back(deferred_request);
                concurrency::sleep(ERRAND_POLL);
            }
        }
    }

    /// Runs one; false: the server has not heard it.
    fn run(&self, deferred_request: &DeferredRequest) -> bool {
        match deferred_request {
            DeferredRequest::Interrupt(unique) => self.tell_interrupt(*unique),
            DeferredRequest::Withdraw(number) => {
                let told = self.tell(&Message::Withdraw { number: *number }).is_some();
                if told {
                    self.open.end(*number);
                }
                told
            }
            // It waits there, or never will.
            DeferredRequest::Unlock(unique, message) => {
                [&interrupt(*unique), message].iter().all(|message| self.is_told(message, pace::QUICK))
            }
            DeferredRequest::Await(unique) => self.wait_again(*unique),
            DeferredRequest::Release(message) => self.is_told(message, pace::SLOW),
            DeferredRequest::Forget(ones) => self.tell_message(&forgets(ones), pace::QUICK).is_some(),
        }
    }

    /// Until the server has heard it, and the request is answered: an interrupt may come before that, and a caller may be killed
    /// after it was interrupted. One that dies while the server is away is told so here.
    fn tell_interrupt(&self, unique: u64) -> bool {
        let answer = self.tell_message(&interrupt(unique), pace::QUICK);
        let early = matches!(&answer, Some((Message::Relayed { head }, _)) if is_again(head.as_slice()));
        // A server that does not know the request, or this kernel, may be a new one: it would be asked for the lock first.
        if early || matches!(&answer, None | Some((Message::Unknown {}, _))) {
            self.waiting.end_dying(|unique| self.undo_lock(unique));
        }
        if answer.is_none() {
            return false;
        }
        // It waits nowhere yet, as in a grace period. Undone, because whoever was asked last may have heard it; not where what its owner had
        // before is given up, or would be undone with it.
        let undoable = || !self.kernel.gave_lock(unique) && !self.kernel.holds_lock_there(unique);
        if early && undoable() && self.waiting.message(unique, self.kernel.holder()).is_some() {
            self.waiting.end_one(unique, Errno::EINTR, |unique| self.undo_lock_now(unique));
        }
        if self.waiting.is_open(unique) {
            let again = if early { INTERRUPT_AGAIN } else { ERRAND_POLL };
            self.deferred.add_at(DeferredRequest::Interrupt(unique), Instant::now() + again);
        }
        true
    }

    /// Asks a new server for a lock that an earlier one was asked for.
    fn wait_again(&self, unique: u64) -> bool {
        let Some(message) = self.waiting.message(unique, self.kernel.holder()) else { return true };
        match self.tell_message(&message, pace::QUICK) {
            None => return false,
            Some((Message::Pending {}, memory)) => self.waiting.waits_at(unique, memory),
            // Not claimed yet, or no lock yet.
            Some((Message::Unknown {} | Message::Grace {}, _)) => {
                self.deferred.add_at(DeferredRequest::Await(unique), Instant::now() + GRACE_POLL)
            }
            Some((Message::Relayed { head }, memory)) => self.answer_late(unique, head.as_slice(), memory),
            Some((other, _)) => {
                tracing::warn!(answer = other.name(), "a lock cannot be waited for any more");
                self.waiting.end_one(unique, Errno::EIO, |unique| _ = self.kernel.ends(unique, LockOutcome::Refused));
            }
        }
        true
    }

    /// Whether a server has heard it that has what this node holds.
    fn is_told(&self, message: &[u8], pace: u8) -> bool {
        !matches!(self.tell_message(message, pace), None | Some((Message::Unknown {}, _)))
    }

    fn tell_message(&self, message: &[u8], pace: u8) -> Option<(Message, SessionInstance)> {
        let number = self.open.begin();
        let (oldest, groups) = (self.open.oldest(), Piece::default());
        let told = self.tell(&Message::Relay { pace, number, oldest, groups, head: piece(message) });
        self.open.end(number);
        told
    }

    /// One try. The server's answer, whatever it is, and whose.
    fn tell(&self, message: &Message) -> Option<(Message, SessionInstance)> {
        let ended = || self.has_ended();
        let call = Call { within: Some(ERRAND), interrupted: &ended, ..Call::new(message) };
        match self.client.call(call) {
            Ok(Answer { message, memory, .. }) => Some((message, memory)),
            Err(CallError::Failed { errno, reason }) => {
                Some((Message::failed(errno, reason), SessionInstance::default()))
            }
            Err(_) => None,
        }
    }
}
