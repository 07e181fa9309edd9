//! Threads that fetch data ahead of reads. As many as needed are started; they end after a while without work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};
use transport::Call;
use types::ByteRange;
use window::read_queue::FetchTicket;
use wire::Message;
use wire::limits::DATA_BYTES_MAX;

use crate::ahead::Ahead;
use crate::limits::{SERVER_AHEAD_BYTES, SERVER_FETCHER_RESTS, SERVER_FETCHERS, SERVER_FETCHES_MAX};
use crate::shared::RemoteShared;
use data_store::is_interrupted;

/// A fetch.
struct Fetch {
    ahead: Arc<Ahead>,
    /// Handle of the open file through which the data is read.
    handle: u64,
    ticket: FetchTicket,
    range: ByteRange,
}

#[derive(Default)]
struct Queue {
    /// Fetches that a reader waits for.
    hurried: VecDeque<Fetch>,
    waiting: VecDeque<Fetch>,
    threads: usize,
    /// Number of these threads that wait for work.
    resting: usize,
}

impl Queue {
    /// Number of queued fetches.
    fn len(&self) -> usize {
        self.hurried.len() + self.waiting.len()
    }
}

/// Queue of fetches.
#[derive(Default)]
pub(crate) struct RemoteFetches {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl RemoteFetches {
    /// Removes and returns the queued fetches for which `which` is true.
    fn take(&self, which: impl Fn(&Fetch) -> bool) -> VecDeque<Fetch> {
        let mut queue = self.queue.lock();
        let mut taken = part(&mut queue.hurried, &which);
        taken.append(&mut part(&mut queue.waiting, &which));
        taken
    }

    /// Moves the queued fetches of a file before those that no reader waits for.
    pub fn hurry(&self, ahead: &Arc<Ahead>) {
        let mut queue = self.queue.lock();
        let mut hurried = part(&mut queue.waiting, &|fetch| Arc::ptr_eq(&fetch.ahead, ahead));
        queue.hurried.append(&mut hurried);
    }

    /// Cancels the queued fetches of an open file that is closed.
    pub fn close(&self, handle: u64) {
        self.take(|fetch| fetch.handle == handle).iter().for_each(|fetch| fetch.ahead.cancel(fetch.ticket));
    }

    /// Takes the next fetch. `None`: there was none for [`SERVER_FETCHER_RESTS`], and the thread ends.
    fn next(&self) -> Option<Fetch> {
        let mut queue = self.queue.lock();
        let until = Instant::now() + SERVER_FETCHER_RESTS;
        loop {
            let next = queue.hurried.pop_front().or_else(|| queue.waiting.pop_front());
            if next.is_some() {
                return next;
            }
            queue.resting += 1;
            let late = self.more.wait_until(&mut queue, until).timed_out();
            queue.resting -= 1;
            if late && queue.len() == 0 {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

/// Removes and returns the entries for which `which` is true.
fn part(queue: &mut VecDeque<Fetch>, which: &impl Fn(&Fetch) -> bool) -> VecDeque<Fetch> {
    let (taken, left) = std::mem::take(queue).into_iter().partition(which);
    *queue = left;
    taken
}

impl RemoteShared {
    /// Queues fetches of `ranges` through an open file, as far as there is memory.
    pub(crate) fn fetch(self: &Arc<RemoteShared>, ahead: &Arc<Ahead>, handle: u64, ranges: &[ByteRange]) {
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
            if queue.len() >= SERVER_FETCHES_MAX {
                break;
            }
            for (ticket, range) in ahead.begin(*range, DATA_BYTES_MAX.into()) {
                queue.waiting.push_back(Fetch { ahead: Arc::clone(ahead), handle, ticket, range });
            }
        }
        let (rested, room) = (queue.len().min(queue.resting), SERVER_FETCHERS.saturating_sub(queue.threads));
        for _ in 0..(queue.len() - rested).min(room) {
            let inner = Arc::clone(self);
            let started = concurrency::spawn("ahead", move || inner.fetch_all());
            queue.threads += usize::from(started.is_ok());
        }
        drop(queue);
        (0..rested).for_each(|_| _ = self.fetches.more.notify_one());
    }

    /// Speeds up the fetch of bytes that a reader waits for. At first the file's queued fetches go before those that
    /// nobody waits for. The order stays the same, because the reader will need the others next. If the wait is already
    /// `long`, the reader runs the queued fetches of `range` itself, for at most `patience`, because all threads may be
    /// held up by other files.
    pub(crate) fn sooner(&self, ahead: &Arc<Ahead>, range: ByteRange, patience: Duration, long: bool) {
        if !long {
            return self.fetches.hurry(ahead);
        }
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
            // A reader requests the data itself and gets the error.
            _ => ahead.cancel(ticket),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Identity;

    use super::*;
    use crate::ahead::ReadAheadVersions;

    #[test] // S47
    fn what_somebody_waits_for_is_fetched_first_and_what_was_closed_is_not() {
        let (versions, fetches) = (ReadAheadVersions::default(), RemoteFetches::default());
        let fresh = Duration::from_secs(3600);
        let files = [0_u8, 1, 2]
            .map(|number| versions.of(&Identity::new(vec![number]).unwrap(), u64::from(number), 1 << 20, fresh));
        for piece in 0..3 {
            for (handle, ahead) in (0..).zip(&files) {
                for (ticket, range) in ahead.begin(ByteRange::at(piece * 100, 100), 100) {
                    let fetch = Fetch { ahead: Arc::clone(ahead), handle, ticket, range };
                    fetches.queue.lock().waiting.push_back(fetch);
                }
            }
        }
        let next = || fetches.next().map(|fetch| (fetch.handle, fetch.range.start));
        assert_eq!(next(), Some((0, 0)));
        fetches.hurry(&files[2]);
        fetches.hurry(&files[0]);
        assert_eq!(fetches.queue.lock().len(), 8, "they count as before");
        fetches.close(0);
        assert_eq!(files[0].begin(ByteRange::new(100, 300), 100).len(), 2, "it is asked for anew");
        let rest = [(); 6].map(|()| next());
        assert_eq!(rest.map(Option::unwrap), [(2, 0), (2, 100), (2, 200), (1, 0), (1, 100), (1, 200)]);
        assert_eq!(fetches.queue.lock().len(), 0);
    }
}
