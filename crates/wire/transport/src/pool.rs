//! A client's connections: each carries one request at a time; who finds none free waits for one.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::time::Instant;

use wire::{Message, pace};

use crate::frame::{Framed, Patience};
use crate::limits::{LANE_CONNECTIONS, SMALL_BYTES, TICK};
use crate::session::Memory;

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
    pub(crate) memory: Memory,
}

#[derive(Default)]
struct Idle {
    free: Vec<Connection>,
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
pub(crate) struct Pool {
    lanes: [Track; LANE_CONNECTIONS.len()],
}

/// A place in a lane, with a connection or the right to make one.
pub(crate) struct Place<'a> {
    track: &'a Track,
    /// `None` until one is made, and after a failure.
    pub(crate) connection: Option<Connection>,
}

impl Pool {
    /// Takes a place; waits for one as long as `patience` says.
    pub(crate) fn take(&self, lane: Lane, patience: &Patience<'_>) -> io::Result<Place<'_>> {
        let track = &self.lanes[lane as usize];
        let mut idle = track.idle.lock();
        loop {
            if let Some(connection) = idle.free.pop() {
                return Ok(Place { track, connection: Some(connection) });
            }
            if idle.made < LANE_CONNECTIONS[lane as usize] {
                idle.made += 1;
                return Ok(Place { track, connection: None });
            }
            patience.check()?;
            let tick = Instant::now() + TICK;
            track.freed.wait_until(&mut idle, patience.until.map_or(tick, |until| until.min(tick)));
        }
    }

    /// How many connections are to be made so that `count` are free; each is then told by [`Pool::prepared`].
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
        drop(Place { track, connection });
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut idle = self.track.idle.lock();
        match self.connection.take() {
            Some(connection) => idle.free.push(connection),
            None => idle.made -= 1,
        }
        drop(idle);
        self.track.freed.notify_one();
    }
}
