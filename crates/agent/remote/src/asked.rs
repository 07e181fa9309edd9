//! Requests about an open file, and handling of their answers.

use std::io;

use concurrency::Instant;
use peer::TellWith;
use transport::{Call, CallError, Data};
use types::Timestamp;
use wire::Message;

use crate::convert::unexpected;
use crate::handle::RemoteHandle;
use data_store::is_interrupted;

/// A request about a handle, the buffer for its answer, and how long it waits.
pub(crate) struct PendingRequest<'a> {
    pub message: Message,
    pub data: Data<'a>,
    pub into: &'a mut [u8],
    /// Whether the request changes data. If so, it waits for the server without limit.
    pub changes: bool,
    pub once: bool,
    pub made: Instant,
    /// Whether the request takes its turn among the large writes from windows.
    pub drains: bool,
}

impl PendingRequest<'_> {
    pub fn new(message: Message, changes: bool) -> PendingRequest<'static> {
        PendingRequest {
            message,
            data: Data::Bytes(&[]),
            into: &mut [],
            changes,
            once: false,
            made: Instant::now(),
            drains: false,
        }
    }
}

/// An answer, the number of its data bytes, and the boot verifier. The verifier is that of the boot in which a change
/// was executed; `None` if unknown.
type Heard = (Message, usize, Option<u64>);

impl RemoteHandle {
    /// Sends a request. If the server no longer knows the handle, reopens it first.
    pub fn ask(&self, asked: PendingRequest<'_>) -> Result<Heard, CallError> {
        let within = (!asked.changes).then_some(self.patience);
        loop {
            let call = Call {
                message: &asked.message,
                data: asked.data,
                into: &mut *asked.into,
                within,
                once: asked.once,
                made: asked.made,
                interrupted: &is_interrupted,
            };
            // Takes a turn only while the request is under way: other waits of this write must not hold up other
            // writes.
            let exchange = || self.opened.inner.client.call(call);
            let bytes = asked.data.len();
            let answer = if asked.drains { self.opened.inner.width.pass(bytes, exchange)? } else { exchange()? };
            match answer.message {
                Message::Unknown {} => self.opened.open_anew(within, self.patience)?,
                message => {
                    let done_in = || self.opened.boot_verifier_of(answer.memory, within, self.patience);
                    let boot_verifier = if asked.changes { done_in() } else { None };
                    return Ok((message, answer.data_bytes, boot_verifier));
                }
            }
        }
    }

    /// Notes a change that is not known to be on the server's medium.
    pub fn made(&self, boot_verifier: Option<u64>) {
        if !self.retained && self.opened.mates().state.lock().unsynced.changed(boot_verifier) {
            self.opened.tell_loss();
        }
    }

    /// Fails with `EIO` if the program must be told with this request that written data may have been lost with the
    /// server's machine.
    pub fn refuse_for_loss(&self, with: TellWith) -> io::Result<()> {
        let losses = self.opened.mates().state.lock().unsynced.losses();
        let told = self.writes() && self.told.lock().tells(with, losses);
        if told { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Sends a change that is answered by `Done`. Returns the boot verifier of its execution, if known.
    pub fn done(&self, message: Message) -> io::Result<Option<u64>> {
        match self.ask(PendingRequest::new(message, true))? {
            (Message::Done {}, _, boot_verifier) => Ok(boot_verifier),
            (other, ..) => Err(unexpected(&other)),
        }
    }

    /// Sends a change of the file that is answered by `Done`, and notes it as unsynced.
    pub fn changes(&self, message: Message) -> io::Result<()> {
        self.done(message).map(|boot_verifier| self.made(boot_verifier))
    }

    pub fn sync_there(&self, data_only: bool, acknowledged: bool) -> io::Result<()> {
        let mates = self.opened.mates();
        let changes = mates.state.lock().unsynced.changes();
        // If the boot is unknown, the sync may have missed what an earlier crash of the machine lost. So it is
        // repeated.
        while self.done(Message::Sync { handle: self.opened.number, data_only, acknowledged })?.is_none() {}
        mates.state.lock().unsynced.synced(changes);
        Ok(())
    }

    pub fn position(&self, message: Message, changes: bool) -> io::Result<u64> {
        match self.ask(PendingRequest::new(message, changes))? {
            (Message::Position { offset }, ..) => Ok(offset),
            (other, ..) => Err(unexpected(&other)),
        }
    }

    pub fn written(&self, asked: PendingRequest<'_>) -> Result<u64, CallError> {
        match self.ask(asked)? {
            (Message::Written { offset }, _, boot_verifier) => {
                self.made(boot_verifier);
                Ok(offset)
            }
            (other, ..) => Err(CallError::Failed { errno: libc::EPROTO, reason: unexpected(&other).to_string() }),
        }
    }
}

/// Returns the age of a time by this node's clock, nanoseconds; 0 for a time in the future.
pub(crate) fn age_ns(at: Timestamp) -> u64 {
    at.age(Timestamp::from_nanos(window::clock::now_ns())).as_nanos() as u64
}
