//! The threads that fetch what is read ahead: as many as are needed, which end when nothing has waited for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use transport::Call;
use types::ByteRange;
use window::read_queue::Ticket;
use wire::Message;
use wire::limits::DATA_BYTES_MAX;

use super::ahead::Ahead;
use super::{Inner, is_interrupted};
use crate::limits::{SERVER_AHEAD_BYTES, SERVER_FETCHER_RESTS, SERVER_FETCHERS, SERVER_FETCHES_MAX};

/// Something to be fetched.
struct Fetch {
    ahead: Arc<Ahead>,
    /// Through this open file.
    handle: u64,
    ticket: Ticket,
    range: ByteRange,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Fetch>,
    threads: usize,
    /// Of these, so many wait for something to do.
    resting: usize,
}

/// What is to be fetched.
#[derive(Default)]
pub(super) struct Fetches {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Fetches {
    /// Takes out the fetches that nobody has begun and `which` says.
    fn take(&self, which: impl FnMut(&Fetch) -> bool) -> VecDeque<Fetch> {
        let mut queue = self.queue.lock();
        let all = std::mem::take(&mut queue.waiting).into_iter();
        let (taken, waiting) = all.partition(which);
        queue.waiting = waiting;
        taken
    }

    /// An open file is closed: what nobody has begun is not fetched.
    pub fn close(&self, handle: u64) {
        self.take(|fetch| fetch.handle == handle).iter().for_each(|fetch| fetch.ahead.cancel(fetch.ticket));
    }

    /// `None`: there has been nothing for long enough, and the thread ends.
    fn next(&self) -> Option<Fetch> {
        let mut queue = self.queue.lock();
        let until = Instant::now() + SERVER_FETCHER_RESTS;
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                return Some(next);
            }
            queue.resting += 1;
            let late = self.more.wait_until(&mut queue, until).timed_out();
            queue.resting -= 1;
            if late && queue.waiting.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

impl Inner {
    /// Has `ranges` fetched through an open file, as far as there is memory.
    pub(super) fn fetch(self: &Arc<Inner>, ahead: &Arc<Ahead>, handle: u64, ranges: &[ByteRange]) {
        if ranges.is_empty() {
            return;
        }
        let is_full = || self.ahead.kept().bytes() >= SERVER_AHEAD_BYTES;
        if is_full() {
            self.ahead.make_room();
        }
        if is_full() {
            return;
        }
        let mut queue = self.fetches.queue.lock();
        for range in ranges {
            if queue.waiting.len() >= SERVER_FETCHES_MAX {
                break;
            }
            for (ticket, range) in ahead.begin(*range, DATA_BYTES_MAX.into()) {
                queue.waiting.push_back(Fetch { ahead: Arc::clone(ahead), handle, ticket, range });
            }
        }
        let (rested, room) = (queue.waiting.len().min(queue.resting), SERVER_FETCHERS.saturating_sub(queue.threads));
        for _ in 0..(queue.waiting.len() - rested).min(room) {
            let inner = Arc::clone(self);
            let started = std::thread::Builder::new().name("ahead".into()).spawn(move || inner.fetch_all());
            queue.threads += usize::from(started.is_ok());
        }
        drop(queue);
        (0..rested).for_each(|_| _ = self.fetches.more.notify_one());
    }

    /// Somebody waits for these bytes, for at most `patience`, and fetches himself what nobody has begun. All of it: what he asks for next
    /// lies there too.
    pub(super) fn sooner(&self, ahead: &Arc<Ahead>, range: ByteRange, patience: Duration) {
        let until = Instant::now() + patience;
        let wanted = |fetch: &Fetch| Arc::ptr_eq(&fetch.ahead, ahead) && !fetch.range.intersection(&range).is_empty();
        for fetch in self.fetches.take(wanted) {
            self.fetch_one(fetch, until.saturating_duration_since(Instant::now()), &is_interrupted);
        }
    }

    fn fetch_all(&self) {
        while let Some(fetch) = self.fetches.next() {
            self.fetch_one(fetch, self.patience, &|| false);
        }
        if self.fetches.queue.lock().threads == 0 {
            self.ahead.kept().rest();
        }
    }

    fn fetch_one(&self, fetch: Fetch, patience: Duration, interrupted: &dyn Fn() -> bool) {
        let Fetch { ahead, handle, ticket, range } = fetch;
        let mut buffer = ahead.buffer(range.len() as usize);
        let message = Message::Read { handle, offset: range.start, len: range.len() as u32 };
        let call = Call { into: buffer.room(), within: Some(patience), interrupted, ..Call::new(&message) };
        ahead.send(ticket);
        match self.client.call(call) {
            Ok(answer) if matches!(answer.message, Message::Bytes {}) => {
                buffer.cut(answer.data_bytes);
                ahead.arrive(ticket, range, Arc::new(buffer));
            }
            // Whoever wants it asks himself, and hears why not.
            _ => ahead.cancel(ticket),
        }
    }
}
