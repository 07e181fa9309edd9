//! The client's side: one session with a server, over as many connections as the client's threads need. Lost
//! connections are made again, also after the server has restarted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Instant, Mutex};
use types::SessionInstance;
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, Text};

use crate::address::Address;
use crate::data::Data;
use crate::frame::Framed;
use crate::handshake::{self, Greeting, HandshakeFailure, Refused};
use crate::limits::{CONNECT, RETRY};
use crate::link::Dial;
use crate::outstanding::{DoneWith, Number, OutstandingRequests};
use crate::pool::{Connection, ConnectionPool, Lane, LaneSlot};
use crate::secret::{Secret, random};
use crate::wait_limit::WaitLimit;

/// Identity of a connecting client.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// Identity of the accelerated directory, in hex. The server must serve this directory.
    pub store: String,
    /// Name of the client, for messages.
    pub agent: String,
}

/// One request, with its data and the limits of its wait.
pub struct Call<'a> {
    /// Message to send.
    pub message: &'a Message,
    /// Data sent with the message.
    pub data: Data<'a>,
    /// Buffer for the answer's data. A longer answer is an error (`EPROTO`).
    pub into: &'a mut [u8],
    /// Longest wait, connecting included. `None`: waits until the server is back, however long that takes.
    pub within: Option<Duration>,
    /// Whether executing the request twice differs from executing it once. If the server has forgotten the session
    /// since the request was sent, the call ends with [`CallError::Lost`].
    pub once: bool,
    /// Time at which the message was made. Durations in the message count from then.
    pub made: Instant,
    /// Whether the caller's wait was interrupted; if so, the call ends with `EINTR`. Called about ten times a second,
    /// and between the parts of a frame.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Call<'a> {
    /// Returns a request without data, time limit and interruption.
    pub fn new(message: &'a Message) -> Call<'a> {
        let made = Instant::now();
        Call { message, data: Data::Bytes(&[]), into: &mut [], within: None, once: false, made, interrupted: &|| false }
    }
}

/// Answer of the server to one request.
#[derive(Debug)]
pub struct Answer {
    /// Message of the answer; never [`Message::Failed`].
    pub message: Message,
    /// Bytes of data written to [`Call::into`].
    pub data_bytes: usize,
    /// Session instance that answered. Two answers with different instances mean that the server may have forgotten
    /// the session in between.
    pub memory: SessionInstance,
}

/// Reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refuses this client, and would refuse another try.
    #[error("the server refuses: {reason}")]
    Refused {
        /// Error number.
        errno: i32,
        /// Reason in words.
        reason: String,
    },
    /// The server executed the request, or tried to, and reports an error.
    #[error("{reason}")]
    Failed {
        /// Error number.
        errno: i32,
        /// Reason in words.
        reason: String,
    },
    /// No answer came within [`Call::within`].
    #[error("the server did not answer in time")]
    TimedOut,
    /// The caller's wait was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The request may have been executed or not, and the server has forgotten which ([`Call::once`]).
    #[error("the server has lost its memory of the request")]
    Lost,
}

impl CallError {
    /// Returns the error number for the calling program.
    pub fn errno(&self) -> i32 {
        match self {
            CallError::Refused { errno, .. } | CallError::Failed { errno, .. } => *errno,
            CallError::TimedOut => libc::ETIMEDOUT,
            CallError::Interrupted => libc::EINTR,
            CallError::Lost => libc::EIO,
        }
    }
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> io::Error {
        match error {
            CallError::Interrupted => io::Error::from_raw_os_error(libc::EINTR),
            error => types::reported(error.errno(), &format!("ask the server: {error}")),
        }
    }
}

/// Session with a server. All methods may be called from any thread.
pub struct Client {
    address: Address,
    dial: Box<dyn Dial>,
    secret: Option<Secret>,
    greeting: Greeting,
    pool: Arc<ConnectionPool>,
    outstanding: OutstandingRequests,
    /// Session instance that was last sent [`Message::DoneWith`], and the number of requests in doubt at that time.
    told: Mutex<(SessionInstance, u64)>,
    /// Time since which the server does not answer. Each outage is logged once.
    away: Mutex<Option<Instant>>,
}

/// Reason why one try of a call ended without an answer.
enum Trouble {
    End(CallError),
    Connection(io::Error),
}

impl Trouble {
    /// Decides by the caller's limit whether the call ends. The kernel also reports `ETIMEDOUT` for a machine that
    /// has vanished, and that is no reason to end the call.
    fn of(error: io::Error, patience: &WaitLimit<'_>) -> Trouble {
        match patience.check() {
            Ok(()) => Trouble::Connection(error),
            Err(over) if over.raw_os_error() == Some(libc::EINTR) => Trouble::End(CallError::Interrupted),
            Err(_) => Trouble::End(CallError::TimedOut),
        }
    }
}

/// Request that was sent at least once.
struct Sent<'a> {
    number: Number<'a>,
    /// Session instance to which the request was sent last.
    to: SessionInstance,
}

impl Client {
    /// Creates a session and connects once within `wait`, so that a wrong address, secret or directory is reported at
    /// once.
    pub fn connect(address: Address, secret: Option<Secret>, who: Who, wait: Duration) -> Result<Client, CallError> {
        Client::connect_over(Box::new(address.clone()), address, secret, who, wait)
    }

    /// Creates a session as [`Client::connect`] does, over links that `dial` makes. `address` is for messages.
    pub fn connect_over(
        dial: Box<dyn Dial>,
        address: Address,
        secret: Option<Secret>,
        who: Who,
        wait: Duration,
    ) -> Result<Client, CallError> {
        let session = random().map_err(|e| CallError::Failed { errno: libc::EIO, reason: e.to_string() })?;
        let greeting = Greeting { session, store: Text::cut(who.store), agent: Text::cut(who.agent) };
        let (pool, outstanding) = (Arc::new(ConnectionPool::default()), OutstandingRequests::default());
        let (told, away) = (Mutex::default(), Mutex::default());
        let client = Client { address, dial, secret, greeting, pool, outstanding, told, away };
        client.call(Call { within: Some(wait), ..Call::new(&Message::Ping {}) })?;
        Ok(client)
    }

    /// Returns the number of this session, which is the same for every server.
    pub fn session(&self) -> [u8; 16] {
        self.greeting.session
    }

    /// Returns the number of connections to the server, including those being made.
    pub fn connections(&self) -> usize {
        self.pool.made()
    }

    /// Returns the server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns for how long connecting has failed. `None`: the last try succeeded, or none was needed.
    pub fn away(&self) -> Option<Duration> {
        self.away.lock().map(|since| since.elapsed())
    }

    /// Sends a request and waits for its answer. A lost connection is made again, and the request is sent again.
    pub fn call(&self, mut call: Call<'_>) -> Result<Answer, CallError> {
        let interrupted = call.interrupted;
        let patience = WaitLimit { until: call.within.map(|within| Instant::now() + within), interrupted };
        if call.data.len() > DATA_BYTES_MAX as usize {
            let reason = format!("{} bytes are too many for one request", call.data.len());
            return Err(CallError::Failed { errno: libc::EINVAL, reason });
        }
        let lane = Lane::of(call.message, call.data.len());
        let (mut pause, mut sent) = (RETRY.0, None);
        loop {
            let mut place = self.pool.take(lane, &patience).map_err(|error| end(Trouble::of(error, &patience)))?;
            let reused = place.connection.is_some();
            match self.try_once(&mut place, &mut call, &mut sent, &patience) {
                Ok(Answer { message: Message::Failed { code, reason }, .. }) => {
                    self.is_back();
                    return Err(CallError::Failed { errno: code.errno(), reason: reason.as_str().to_owned() });
                }
                Ok(answer) => {
                    self.is_back();
                    if !reused {
                        self.pool.look_after();
                    }
                    return Ok(answer);
                }
                // The failure of a reused connection says nothing about a new one.
                Err(Trouble::Connection(_)) if reused => {}
                Err(Trouble::Connection(error)) => {
                    drop(place);
                    self.is_away(&error);
                    pause = rest(pause, &patience).map_err(end)?;
                }
                Err(trouble) => return Err(end(trouble)),
            }
        }
    }

    /// Sends the request once and takes its answer. The connection returns to its slot only if both succeed.
    fn try_once<'a>(
        &'a self,
        place: &mut LaneSlot<'_>,
        call: &mut Call<'_>,
        sent: &mut Option<Sent<'a>>,
        patience: &WaitLimit<'_>,
    ) -> Result<Answer, Trouble> {
        let mut connection = self.connected(place, patience)?;
        let to = connection.memory;
        if call.once && sent.as_ref().is_some_and(|sent| sent.to != to) {
            place.connection = Some(connection);
            return Err(Trouble::End(CallError::Lost));
        }
        self.tell_doubts(&mut connection, patience)?;
        // The number is assigned when the request is first sent. So a request that was never sent is not mistaken for
        // one that the server forgot.
        let sent = sent.get_or_insert_with(|| Sent { number: self.outstanding.begin(), to });
        sent.to = to;
        let (message, data_bytes) = exchange(&mut connection.framed, &sent.number, call, patience)?;
        place.connection = Some(connection);
        Ok(Answer { message, data_bytes, memory: to })
    }

    /// Tells the server which requests the client is done with, if any is in doubt. Called before each request, so
    /// that the server can order it after the doubtful ones.
    fn tell_doubts(&self, to: &mut Connection, patience: &WaitLimit<'_>) -> Result<(), Trouble> {
        let (doubts, memory) = (self.outstanding.doubts(), to.memory);
        if doubts == 0 || *self.told.lock() == (memory, doubts) {
            return Ok(());
        }
        let DoneWith { below, open, doubts } = self.outstanding.done_with();
        let open: Vec<u8> = open.into_iter().flat_map(u64::to_le_bytes).collect();
        let trouble = |error| Trouble::of(error, patience);
        to.framed.send((0, 0), &Message::DoneWith { below }, &open, patience).map_err(trouble)?;
        let answer = to.framed.receive(patience).map_err(trouble)?;
        let Message::Done {} = answer.message else { return Err(trouble(io::ErrorKind::InvalidData.into())) };
        let mut told = self.told.lock();
        if told.0 != memory || told.1 < doubts {
            *told = (memory, doubts);
        }
        Ok(())
    }

    /// Connects ahead, in threads of its own, so that `count` requests of this lane find free connections.
    pub fn prepare(self: &Arc<Client>, lane: Lane, count: usize) {
        for _ in 0..self.pool.prepare(lane, count) {
            let mut prepared = Prepared { client: Arc::clone(self), lane, connection: None };
            let connect = move || {
                let patience = WaitLimit { until: Some(Instant::now() + CONNECT), interrupted: &|| false };
                // A failure shows again when a request needs the connection.
                prepared.connection = prepared.client.connection(&patience).ok();
            };
            if let Err(error) = concurrency::spawn("connect", connect) {
                tracing::debug!(%error, "no thread to connect ahead");
            }
        }
    }

    fn connected(&self, place: &mut LaneSlot<'_>, patience: &WaitLimit<'_>) -> Result<Connection, Trouble> {
        place.connection.take().map_or_else(|| self.connection(patience), Ok)
    }

    fn connection(&self, patience: &WaitLimit<'_>) -> Result<Connection, Trouble> {
        let link = self.dial.dial(CONNECT, patience).map_err(|error| match error.raw_os_error() {
            Some(libc::EINTR) => Trouble::of(error, patience),
            _ => Trouble::Connection(error),
        })?;
        let mut framed = Framed::new(link);
        match handshake::greet(&mut framed, &self.greeting, self.secret.as_ref(), patience) {
            Ok(memory) => Ok(Connection { framed, memory }),
            Err(HandshakeFailure::Broken(error)) => Err(Trouble::of(error, patience)),
            // `EAGAIN`: the server is full for the moment.
            Err(HandshakeFailure::Refused(Refused { errno: libc::EAGAIN, reason })) => {
                Err(Trouble::Connection(io::Error::new(io::ErrorKind::ConnectionRefused, reason)))
            }
            Err(HandshakeFailure::Refused(Refused { errno, reason })) => {
                Err(Trouble::End(CallError::Refused { errno, reason }))
            }
        }
    }

    fn is_away(&self, error: &io::Error) {
        let mut away = self.away.lock();
        if away.is_none() {
            *away = Some(Instant::now());
            tracing::info!(server = %self.address, %error, "the server does not answer: its requests wait");
        }
    }

    fn is_back(&self) {
        if self.away.lock().take().is_some() {
            tracing::info!(server = %self.address, "the server answers again");
        }
    }
}

/// Connection that is being made ahead for any request of its lane.
struct Prepared {
    client: Arc<Client>,
    lane: Lane,
    connection: Option<Connection>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.client.pool.prepared(self.lane, self.connection.take());
        self.client.pool.look_after();
    }
}

fn end(trouble: Trouble) -> CallError {
    match trouble {
        Trouble::End(error) => error,
        Trouble::Connection(error) => {
            CallError::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO), reason: error.to_string() }
        }
    }
}

/// Waits for `pause`. Returns the next, longer pause. Errors: the caller's limit was reached, or the wait was
/// interrupted.
fn rest(pause: Duration, patience: &WaitLimit<'_>) -> Result<Duration, Trouble> {
    patience.sleep(pause).map_err(|error| Trouble::of(error, patience))?;
    Ok((pause * 2).min(RETRY.1))
}

/// Sends a request and takes its answer. Returns the message and the number of data bytes.
fn exchange(
    framed: &mut Framed,
    number: &Number<'_>,
    call: &mut Call<'_>,
    patience: &WaitLimit<'_>,
) -> Result<(Message, usize), Trouble> {
    let trouble = |error| Trouble::of(error, patience);
    let later = call.message.later(call.made.elapsed());
    let message = later.as_ref().unwrap_or(call.message);
    let numbers = (number.request, number.oldest());
    number.is_sent();
    match call.data {
        Data::Bytes(bytes) => framed.send(numbers, message, bytes, patience).map_err(trouble)?,
        Data::Gathered(data) => framed.send_gathered(numbers, message, data, patience).map_err(|error| {
            let is_gone = error.raw_os_error() == Some(libc::EFAULT);
            if is_gone { Trouble::End(end(Trouble::Connection(error))) } else { trouble(error) }
        })?,
    }
    let frame = framed.receive(patience).map_err(trouble)?;
    // A connection carries one request at a time, so an answer to another request breaks the protocol.
    if frame.header.request != number.request {
        return Err(Trouble::Connection(io::ErrorKind::InvalidData.into()));
    }
    let (data_bytes, room) = (frame.header.data_bytes as usize, call.into.len());
    if data_bytes > room {
        // Another try would get the same answer.
        let reason = format!("the answer has {data_bytes} bytes, and there is room for {room}");
        return Err(Trouble::End(CallError::Failed { errno: libc::EPROTO, reason }));
    }
    framed.take(&mut call.into[..data_bytes], patience).map_err(trouble)?;
    number.is_answered();
    Ok((frame.message, data_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_timed_out_is_not_the_callers_patience() {
        let vanished = || io::Error::from_raw_os_error(libc::ETIMEDOUT);
        let of = |until, interrupted| Trouble::of(vanished(), &WaitLimit { until, interrupted });
        assert!(matches!(of(None, &|| false), Trouble::Connection(_)));
        assert!(matches!(of(Some(Instant::now()), &|| false), Trouble::End(CallError::TimedOut)));
        assert!(matches!(of(None, &|| true), Trouble::End(CallError::Interrupted)));
    }
}
