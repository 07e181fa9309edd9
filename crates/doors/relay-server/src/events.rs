//! Notifications for a kernel, until its node has fetched them.

use std::collections::VecDeque;
use std::io;

use concurrency::{Condvar, Instant, Mutex};
use fuse_protocol::view::AnswerView;
use wire::limits::DATA_BYTES_MAX;

use crate::limits::{EVENTS_MAX, LISTEN};

struct State {
    waiting: VecDeque<Vec<u8>>,
    /// How many were there before the first of these.
    passed: u64,
}

/// The events of one node. Their numbers begin above those of any queue that there was before: a node that asks with the
/// number of a former one drops nothing.
pub(crate) struct EventQueue {
    state: Mutex<State>,
    came: Condvar,
}

/// Returns whether a message is a notification, which has the number 0 in its header.
fn is_notification(message: &[u8]) -> bool {
    AnswerView::parse(message).is_some_and(|answer| answer.is_notification())
}

impl fuse_protocol::Events for EventQueue {
    fn tell(&self, message: Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.waiting.len() >= EVENTS_MAX && is_notification(&message) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        state.waiting.push_back(message);
        drop(state);
        self.came.notify_all();
        Ok(())
    }
}

impl EventQueue {
    /// The first event after `before` is the next.
    pub fn after(before: u64) -> EventQueue {
        EventQueue { state: Mutex::new(State { waiting: VecDeque::new(), passed: before }), came: Condvar::new() }
    }

    /// Waits a moment for events after `after` and puts them into `out`; the number of the last. Those up to `after` are
    /// forgotten.
    pub fn collect(&self, after: u64, out: &mut Vec<u8>) -> u64 {
        let until = Instant::now() + LISTEN;
        let mut state = self.state.lock();
        while state.passed < after && state.waiting.pop_front().is_some() {
            state.passed += 1;
        }
        while state.waiting.is_empty() {
            if self.came.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let mut last = state.passed;
        for event in &state.waiting {
            if out.len() + event.len() > DATA_BYTES_MAX as usize {
                break;
            }
            out.extend_from_slice(event);
            last += 1;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use fuse_protocol::Events;

    use super::*;

    #[test]
    fn events_are_told_again_until_they_were_dealt_with() {
        let queue = EventQueue::after(0);
        queue.tell(vec![1; 16]).unwrap();
        queue.tell(vec![2; 16]).unwrap();
        let collect = |after| {
            let mut out = Vec::new();
            (queue.collect(after, &mut out), out)
        };
        let both = [[1; 16], [2; 16]].concat();
        assert_eq!(collect(0), (2, both.clone()));
        assert_eq!(collect(0), (2, both), "the answer was lost");
        assert_eq!(collect(1), (2, vec![2; 16]));
        assert_eq!(collect(2), (2, vec![]));
        queue.tell(vec![3; 16]).unwrap();
        assert_eq!(collect(2), (3, vec![3; 16]));
        assert_eq!(collect(u64::MAX), (3, vec![]), "a number that was never given");
        let newer = EventQueue::after(1000);
        newer.tell(vec![4; 16]).unwrap();
        assert_eq!(newer.collect(3, &mut Vec::new()), 1001, "the number of an older queue");
    }

    #[test]
    fn notifications_have_a_bound_and_answers_are_never_dropped() {
        let queue = EventQueue::after(0);
        for _ in 0..EVENTS_MAX {
            queue.tell(vec![0; 16]).unwrap();
        }
        assert!(queue.tell(vec![0; 16]).is_err());
        queue.tell(vec![9; 16]).unwrap();
    }
}
