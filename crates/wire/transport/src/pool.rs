//! Connections of a client. Each carries one request at a time, and a request that finds none free waits for one.
//! Unused connections are closed after a while, except one of each lane. The server has room for a limited number,
//! and forgets a client that has none.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};

use types::SessionInstance;
use wire::{Message, pace};

use crate::frame::Framed;
use crate::limits::{IDLE, LANE_CONNECTIONS, SMALL_BYTES, TICK};
use crate::wait_limit::WaitLimit;

/// Group of connections for one kind of request. Quick requests never wait for large or slow ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// No data and no disk, such as attributes of a file.
    Quick = 0,
    /// Data of at most [`SMALL_BYTES`].
    Small = 1,
    /// More data than [`SMALL_BYTES`].
    Large = 2,
    /// Requests that wait by their nature: for disks, for the global store, for other clients.
    Slow = 3,
}

impl Lane {
    /// Returns the lane for a message with `data_bytes` bytes of data.
    pub fn of(message: &Message, data_bytes: usize) -> Lane {
        let bytes = match message {
            Message::Read { len, .. } => *len as usize,
            Message::Write { .. } | Message::WriteBackdated { .. } | Message::Append { .. } => data_bytes,
            Message::Relay { pace: pace::SLOW, .. } => return Lane::Slow,
            Message::Relay { pace: pace::LARGE, .. } => return Lane::Large,
            Message::Relay { pace: pace::BRIEF, .. } => data_bytes,
            Message::Relay { .. } => return Lane::Quick,
            Message::Attributes { .. } | Message::State { .. } | Message::Ping {} => return Lane::Quick,
            Message::Seek { .. } | Message::End { .. } | Message::SetLen { .. } => 0,
            _ => return Lane::Slow,
        };
        Lane::of_data(bytes)
    }

    /// Returns the lane for a read or write of `bytes` bytes.
    pub fn of_data(bytes: usize) -> Lane {
        if bytes > SMALL_BYTES { Lane::Large } else { Lane::Small }
    }
}

/// Connection, with the session instance that the server had when it was made.
pub(crate) struct Connection {
    pub(crate) framed: Framed,
    pub(crate) memory: SessionInstance,
}

#[derive(Default)]
struct Idle {
    /// Free connections, and since when. The last used is taken first, so those that are not needed collect at the
    /// front.
    free: VecDeque<(Connection, Instant)>,
    /// Number of connections: existing ones, those that a caller is making for its own request, and those of
    /// `prepared`.
    made: usize,
    /// Number of connections that are being made ahead.
    prepared: usize,
}

#[derive(Default)]
struct Track {
    idle: Mutex<Idle>,
    freed: Condvar,
}

/// All connections of a client.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    lanes: [Track; LANE_CONNECTIONS.len()],
    /// Whether a thread is closing unused connections.
    looked_after: AtomicBool,
}

/// Slot in a lane: a connection, or permission to make one.
pub(crate) struct LaneSlot<'a> {
    track: &'a Track,
    /// `None` until the connection is made, and after a failure.
    pub(crate) connection: Option<Connection>,
}

impl ConnectionPool {
    /// Starts a thread that closes unused connections, if there is none and some lane has more than one. The thread
    /// ends when nothing more can be closed. Called after a connection was made.
    pub(crate) fn look_after(self: &Arc<ConnectionPool>) {
        if self.looked_after.load(Ordering::Relaxed)
            || !self.has_many()
            || self.looked_after.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let pool = Arc::downgrade(self);
        let started = concurrency::spawn("connections", move || give_back(&pool));
        if started.is_err() {
            self.looked_after.store(false, Ordering::Release);
        }
    }

    /// Takes a slot. Waits for one as long as `patience` lasts.
    pub(crate) fn take(&self, lane: Lane, patience: &WaitLimit<'_>) -> io::Result<LaneSlot<'_>> {
        let track = &self.lanes[lane as usize];
        let mut idle = track.idle.lock();
        loop {
            if let Some((connection, _)) = idle.free.pop_back() {
                return Ok(LaneSlot { track, connection: Some(connection) });
            }
            if idle.made < LANE_CONNECTIONS[lane as usize] {
                idle.made += 1;
                return Ok(LaneSlot { track, connection: None });
            }
            patience.check()?;
            let tick = Instant::now() + TICK;
            track.freed.wait_until(&mut idle, patience.until.map_or(tick, |until| until.min(tick)));
        }
    }

    /// Closes the connections that were unused for `idle_for`, except one of each lane. Returns whether there may be
    /// more to close later.
    pub(crate) fn give_back(&self, idle_for: Duration) -> bool {
        let mut more = false;
        for track in &self.lanes {
            let mut given = Vec::new();
            let mut idle = track.idle.lock();
            while idle.made > 1
                && let Some((_, since)) = idle.free.front()
                && since.elapsed() >= idle_for
            {
                given.extend(idle.free.pop_front());
                idle.made -= 1;
            }
            more |= idle.made > 1;
            drop(idle);
            // Closed outside the lock.
            drop(given);
        }
        more
    }

    /// Returns the number of connections that exist or are being made.
    pub(crate) fn made(&self) -> usize {
        self.lanes.iter().map(|track| track.idle.lock().made).sum()
    }

    /// Returns whether some lane has more than the one connection that is always retained.
    fn has_many(&self) -> bool {
        self.lanes.iter().any(|track| track.idle.lock().made > 1)
    }

    /// Reserves slots so that `count` connections will be free. Returns how many the caller has to make; each ends
    /// with a call of [`ConnectionPool::prepared`].
    pub(crate) fn prepare(&self, lane: Lane, count: usize) -> usize {
        let mut idle = self.lanes[lane as usize].idle.lock();
        let missing = count.saturating_sub(idle.free.len() + idle.prepared);
        let missing = missing.min(LANE_CONNECTIONS[lane as usize] - idle.made);
        idle.made += missing;
        idle.prepared += missing;
        missing
    }

    /// Adds a connection that was made ahead. `None`: making it failed.
    pub(crate) fn prepared(&self, lane: Lane, connection: Option<Connection>) {
        let track = &self.lanes[lane as usize];
        track.idle.lock().prepared -= 1;
        drop(LaneSlot { track, connection });
    }
}

/// Closes unused connections until no more can be closed, or the client is gone.
fn give_back(pool: &Weak<ConnectionPool>) {
    loop {
        concurrency::sleep(IDLE / 5);
        let Some(pool) = pool.upgrade() else { return };
        if !pool.give_back(IDLE) {
            pool.looked_after.store(false, Ordering::Release);
            // A connection made in the meantime found this thread still marked as running.
            if !pool.has_many() || pool.looked_after.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

impl Drop for LaneSlot<'_> {
    fn drop(&mut self) {
        let mut idle = self.track.idle.lock();
        match self.connection.take() {
            Some(connection) => idle.free.push_back((connection, Instant::now())),
            None => idle.made -= 1,
        }
        drop(idle);
        self.track.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::link;

    fn connect(place: &mut LaneSlot<'_>) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        place.connection = Some(Connection { framed: Framed::new(link::unix(near).unwrap()), memory: [0; 16] });
        far.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        far
    }

    fn is_open(mut far: &UnixStream) -> bool {
        far.read(&mut [0]).is_err()
    }

    #[test] // S63
    fn idle_connections_are_given_back_but_for_one_of_a_kind() {
        let (pool, never) = (ConnectionPool::default(), WaitLimit { until: None, interrupted: &|| false });
        let take = |lane| pool.take(lane, &never).unwrap();
        let mut places: Vec<_> = (0..4).map(|_| take(Lane::Large)).collect();
        let far: Vec<_> = places.iter_mut().map(connect).collect();
        let mut quick = take(Lane::Quick);
        let lone = connect(&mut quick);
        drop(quick);
        let used = places.pop();
        drop(places);
        assert!(pool.give_back(Duration::from_secs(60)), "there may be some later");
        assert_eq!(pool.made(), 5);
        // The connection in use counts as the one that is retained.
        assert!(!pool.give_back(Duration::ZERO));
        assert_eq!((pool.made(), is_open(&lone), is_open(&far[3])), (2, true, true));
        assert!(far[..3].iter().all(|far| !is_open(far)));
        drop(used);
        assert!(!pool.give_back(Duration::ZERO));
        assert!(take(Lane::Large).connection.is_some() && take(Lane::Quick).connection.is_some());
    }

    #[test]
    fn what_is_not_needed_any_more_goes_by_itself_and_the_thread_with_it() {
        let (pool, never) = (Arc::new(ConnectionPool::default()), WaitLimit { until: None, interrupted: &|| false });
        let mut places: Vec<_> = (0..2).map(|_| pool.take(Lane::Small, &never).unwrap()).collect();
        let far: Vec<_> = places.iter_mut().map(connect).collect();
        pool.look_after();
        assert!(pool.looked_after.load(Ordering::Relaxed));
        drop(places);
        testkit::wait_until("one is given back", 4 * IDLE, || !is_open(&far[0]) || !is_open(&far[1]));
        testkit::wait_until("nobody looks any more", 4 * IDLE, || !pool.looked_after.load(Ordering::Relaxed));
        assert_eq!(pool.made(), 1);
    }
}
