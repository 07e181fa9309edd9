//! The threads that fetch what is read ahead: as many as are needed, which end when nothing waits.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use transport::Call;
use types::ByteRange;
use window::read_queue::Ticket;
use wire::Message;
use wire::limits::DATA_BYTES_MAX;

use super::Inner;
use super::ahead::Ahead;
use crate::limits::{SERVER_AHEAD_BYTES, SERVER_FETCHERS, SERVER_FETCHES_MAX};

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
}

/// What is to be fetched.
#[derive(Default)]
pub(super) struct Fetches(Mutex<Queue>);

impl Fetches {
    /// Does not make the fetches that nobody has begun and `which` says.
    fn give_up(&self, which: impl FnMut(&Fetch) -> bool) {
        let given_up: Vec<Fetch> = {
            let mut queue = self.0.lock();
            let all = std::mem::take(&mut queue.waiting).into_iter();
            let (given_up, waiting): (VecDeque<_>, VecDeque<_>) = all.partition(which);
            queue.waiting = waiting;
            given_up.into()
        };
        given_up.iter().for_each(|fetch| fetch.ahead.cancel(fetch.ticket));
    }

    /// Somebody waits for these bytes, and reads them sooner himself where nobody has begun.
    pub fn sooner(&self, ahead: &Arc<Ahead>, range: ByteRange) {
        self.give_up(|fetch| Arc::ptr_eq(&fetch.ahead, ahead) && !fetch.range.intersection(&range).is_empty());
    }

    /// An open file is closed.
    pub fn close(&self, handle: u64) {
        self.give_up(|fetch| fetch.handle == handle);
    }

    fn next(&self) -> Option<Fetch> {
        let mut queue = self.0.lock();
        let next = queue.waiting.pop_front();
        queue.threads -= usize::from(next.is_none());
        next
    }
}

impl Inner {
    /// Has `ranges` fetched through an open file, as far as there is memory.
    pub(super) fn fetch(self: &Arc<Inner>, ahead: &Arc<Ahead>, handle: u64, ranges: &[ByteRange]) {
        let is_full = || self.ahead.kept().bytes() >= SERVER_AHEAD_BYTES;
        if is_full() {
            self.ahead.expire();
        }
        if ranges.is_empty() || is_full() {
            return;
        }
        let mut queue = self.fetches.0.lock();
        for range in ranges {
            if queue.waiting.len() >= SERVER_FETCHES_MAX {
                break;
            }
            for (ticket, range) in ahead.begin(*range, DATA_BYTES_MAX.into()) {
                queue.waiting.push_back(Fetch { ahead: Arc::clone(ahead), handle, ticket, range });
            }
        }
        let wanted = queue.waiting.len().min(SERVER_FETCHERS.saturating_sub(queue.threads));
        for _ in 0..wanted {
            let inner = Arc::clone(self);
            let started = std::thread::Builder::new().name("ahead".into()).spawn(move || inner.fetch_all());
            queue.threads += usize::from(started.is_ok());
        }
    }

    fn fetch_all(&self) {
        let mut buffer = Vec::new();
        while let Some(Fetch { ahead, handle, ticket, range }) = self.fetches.next() {
            buffer.resize(range.len() as usize, 0);
            let message = Message::Read { handle, offset: range.start, len: range.len() as u32 };
            let call = Call { into: &mut buffer, within: Some(self.patience), ..Call::new(&message) };
            match self.client.call(call) {
                Ok(answer) if matches!(answer.message, Message::Bytes {}) => {
                    ahead.arrive(ticket, range, Arc::from(&buffer[..answer.data_bytes]));
                }
                // Whoever wants it asks himself, and hears why not.
                _ => ahead.cancel(ticket),
            }
        }
    }
}
