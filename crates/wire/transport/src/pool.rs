//! A client's connections: each carries one request at a time; who finds none free waits for one. What nobody uses for a while is given
//! back, but for one of each lane: a server has connections for so many clients, and forgets one that has none.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};

use wire::{Message, pace};

use crate::frame::{Framed, WaitLimit};
use crate::limits::{IDLE, LANE_CONNECTIONS, SMALL_BYTES, TICK};
use crate::session::SessionInstance;

/// Which connections a request takes: what is quick never waits for what is large or slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// No data, and no disk: what is known of a file.
    Quick = 0,
    /// Little data.
    Small = 1,
    /// Much data.
    Large = 2,
    /// It waits by its nature: for disks, for the global store, for others.
    Slow = 3,
}

impl Lane {
    /// Where a message with so much data goes.
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

    /// Where data goes.
    pub fn of_data(bytes: usize) -> Lane {
        if bytes > SMALL_BYTES { Lane::Large } else { Lane::Small }
    }
}

/// A connection with what the server knew of the session when it was made.
pub(crate) struct Connection {
    pub(crate) framed: Framed,
    pub(crate) memory: SessionInstance,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is taken first, so those that nobody needs are at the front.
    free: VecDeque<(Connection, Instant)>,
    /// Those that there are, those that somebody makes for himself, and those of `prepared`.
    made: usize,
    /// Those that are being made for whoever comes.
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
    /// A thread looks for what can be given back.
    looked_after: AtomicBool,
}

/// A place in a lane, with a connection or the right to make one.
pub(crate) struct LaneSlot<'a> {
    track: &'a Track,
    /// `None` until one is made, and after a failure.
    pub(crate) connection: Option<Connection>,
}

impl ConnectionPool {
    /// After a connection was made: what nobody uses for a while is given back, by a thread that ends with the last of it.
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

    /// Takes a place; waits for one as long as `patience` says.
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

    /// Gives back the connections that nobody has used for so long, but for one of each lane. Whether there may be more to give back later.
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

    /// Connections that there are, or are being made.
    pub(crate) fn made(&self) -> usize {
        self.lanes.iter().map(|track| track.idle.lock().made).sum()
    }

    /// Whether some lane has more than the one that it keeps.
    fn has_many(&self) -> bool {
        self.lanes.iter().any(|track| track.idle.lock().made > 1)
    }

    /// How many connections are to be made so that `count` are free; each is then told by [`ConnectionPool::prepared`].
    pub(crate) fn prepare(&self, lane: Lane, count: usize) -> usize {
        let mut idle = self.lanes[lane as usize].idle.lock();
        let missing = count.saturating_sub(idle.free.len() + idle.prepared);
        let missing = missing.min(LANE_CONNECTIONS[lane as usize] - idle.made);
        idle.made += missing;
        idle.prepared += missing;
        missing
    }

    /// One that was to be made is there, or could not be made.
    pub(crate) fn prepared(&self, lane: Lane, connection: Option<Connection>) {
        let track = &self.lanes[lane as usize];
        track.idle.lock().prepared -= 1;
        drop(LaneSlot { track, connection });
    }
}

/// Until nothing more can be given back, or the client is gone.
fn give_back(pool: &Weak<ConnectionPool>) {
    loop {
        concurrency::sleep(IDLE / 5);
        let Some(pool) = pool.upgrade() else { return };
        if !pool.give_back(IDLE) {
            pool.looked_after.store(false, Ordering::Release);
            // One that was made meanwhile found this thread.
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
        // The one that is in use counts as the one that stays.
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
