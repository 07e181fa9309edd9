//! The asking side: one session with a server, over as many connections as its threads need, that comes back by itself
//! when connection or server are lost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Instant, Mutex};
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, Text};

use crate::address::Address;
use crate::data::Data;
use crate::frame::{Framed, WaitLimit};
use crate::handshake::{self, Greeting, HandshakeFailure, Refused};
use crate::limits::{CONNECT, RETRY, TICK};
use crate::outstanding::{DoneWith, Number, OutstandingRequests};
use crate::pool::{Connection, ConnectionPool, Lane, LaneSlot};
use crate::secret::{Secret, random};
use crate::session::SessionInstance;

/// Who connects.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// Identity of the accelerated directory, in hex: the server must serve the same.
    pub store: String,
    /// A name for people.
    pub agent: String,
}

/// One request.
pub struct Call<'a> {
    /// What is asked.
    pub message: &'a Message,
    /// Data that goes with it.
    pub data: Data<'a>,
    /// Where the answer's data goes; more than fits is an error.
    pub into: &'a mut [u8],
    /// How long it may take, connecting included; `None`: until the server is back, however long.
    pub within: Option<Duration>,
    /// Doing it twice would differ from doing it once: if the server has lost its memory since it was sent, ask the caller.
    pub once: bool,
    /// When the message was made: what it says of time counts from then.
    pub made: Instant,
    /// Ends the wait with `EINTR`; asked some ten times a second, and between the parts of a frame.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Call<'a> {
    /// A request without data, with no bound and no interruption.
    pub fn new(message: &'a Message) -> Call<'a> {
        let made = Instant::now();
        Call { message, data: Data::Bytes(&[]), into: &mut [], within: None, once: false, made, interrupted: &|| false }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// What was answered; never [`Message::Failed`].
    pub message: Message,
    /// Bytes of data that were put into [`Call::into`].
    pub data_bytes: usize,
    /// Whose answer it is: who is answered by two may have been forgotten between.
    pub memory: SessionInstance,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refuses us, and will again.
    #[error("the server refuses: {reason}")]
    Refused {
        /// Why, for programs.
        errno: i32,
        /// Why, for people.
        reason: String,
    },
    /// The server says that the request failed.
    #[error("{reason}")]
    Failed {
        /// Why, for programs.
        errno: i32,
        /// Why, for people.
        reason: String,
    },
    /// No answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The wait was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The request may have been done or not, and the server does not know ([`Call::once`]).
    #[error("the server has lost its memory of the request")]
    Lost,
}

impl CallError {
    /// What a program hears.
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
        io::Error::from_raw_os_error(error.errno())
    }
}

/// A session with a server. All methods may be called from any thread.
pub struct Client {
    address: Address,
    secret: Option<Secret>,
    greeting: Greeting,
    pool: Arc<ConnectionPool>,
    outstanding: OutstandingRequests,
    /// The server that was told last of requests in doubt, by its memory, and of how many.
    told: Mutex<(SessionInstance, u64)>,
    /// Since when it does not answer; said once per outage.
    away: Mutex<Option<Instant>>,
}

/// How one try of a call ended without an answer.
enum Trouble {
    End(CallError),
    Connection(io::Error),
}

impl Trouble {
    /// The caller's patience decides: the kernel says `ETIMEDOUT` of a machine that has vanished as well.
    fn of(error: io::Error, patience: &WaitLimit<'_>) -> Trouble {
        match patience.check() {
            Ok(()) => Trouble::Connection(error),
            Err(over) if over.raw_os_error() == Some(libc::EINTR) => Trouble::End(CallError::Interrupted),
            Err(_) => Trouble::End(CallError::TimedOut),
        }
    }
}

/// A request that was sent once at least.
struct Sent<'a> {
    number: Number<'a>,
    /// To whom it was sent last.
    to: SessionInstance,
}

impl Client {
    /// Connects once, within `wait`, so that a wrong address, secret or directory is told at once.
    pub fn connect(address: Address, secret: Option<Secret>, who: Who, wait: Duration) -> Result<Client, CallError> {
        let session = random().map_err(|e| CallError::Failed { errno: libc::EIO, reason: e.to_string() })?;
        let greeting = Greeting { session, store: Text::cut(who.store), agent: Text::cut(who.agent) };
        let (pool, outstanding) = (Arc::new(ConnectionPool::default()), OutstandingRequests::default());
        let (told, away) = (Mutex::default(), Mutex::default());
        let client = Client { address, secret, greeting, pool, outstanding, told, away };
        client.call(Call { within: Some(wait), ..Call::new(&Message::Ping {}) })?;
        Ok(client)
    }

    /// What it is to every server that it meets.
    pub fn session(&self) -> [u8; 16] {
        self.greeting.session
    }

    /// Connections to the server now.
    pub fn connections(&self) -> usize {
        self.pool.made()
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// For how long nobody could be connected to; `None`: the last who tried could, or nobody had to.
    pub fn away(&self) -> Option<Duration> {
        self.away.lock().map(|since| since.elapsed())
    }

    /// Asks and waits for the answer. Lost connections are made anew and the request is sent again.
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
                // A connection that was good once says nothing about the next.
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

    /// The connection goes back to its place only if all went well.
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
        // Numbered when it is sent and not before: what has only waited is never taken for what the server forgot.
        let sent = sent.get_or_insert_with(|| Sent { number: self.outstanding.begin(), to });
        sent.to = to;
        let (message, data_bytes) = exchange(&mut connection.framed, &sent.number, call, patience)?;
        place.connection = Some(connection);
        Ok(Answer { message, data_bytes, memory: to })
    }

    /// Before anything that comes after requests of which something may be on its way yet.
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

    /// Requests of this lane are about to come: what `count` of them at once need to be connected is done meanwhile.
    pub fn prepare(self: &Arc<Client>, lane: Lane, count: usize) {
        for _ in 0..self.pool.prepare(lane, count) {
            let mut prepared = Prepared { client: Arc::clone(self), lane, connection: None };
            let connect = move || {
                let patience = WaitLimit { until: Some(Instant::now() + CONNECT), interrupted: &|| false };
                // Whoever needs it finds out why it is not there.
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
        let link = self.address.connect(CONNECT, patience).map_err(|error| match error.raw_os_error() {
            Some(libc::EINTR) => Trouble::of(error, patience),
            _ => Trouble::Connection(error),
        })?;
        let mut framed = Framed::new(link);
        match handshake::greet(&mut framed, &self.greeting, self.secret.as_ref(), patience) {
            Ok(memory) => Ok(Connection { framed, memory }),
            Err(HandshakeFailure::Broken(error)) => Err(Trouble::of(error, patience)),
            // It is full for the moment.
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

/// A connection that is being made for whoever comes.
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

/// Waits a little; returns how long to wait the next time.
fn rest(pause: Duration, patience: &WaitLimit<'_>) -> Result<Duration, Trouble> {
    let end = Instant::now() + pause;
    loop {
        patience.check().map_err(|error| Trouble::of(error, patience))?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok((pause * 2).min(RETRY.1));
        }
        concurrency::sleep(left.min(TICK));
    }
}

/// Sends a request and takes its answer.
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
    // One request at a time: an answer to another one is no conversation.
    if frame.header.request != number.request {
        return Err(Trouble::Connection(io::ErrorKind::InvalidData.into()));
    }
    let (data_bytes, room) = (frame.header.data_bytes as usize, call.into.len());
    if data_bytes > room {
        // It would be the same again.
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
