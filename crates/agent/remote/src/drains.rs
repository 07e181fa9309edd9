//! Long operations: a job on the server, and polls for its end.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_store::{DrainProgress, Residency, Stuck};
use transport::{Call, CallError, Client};
use types::Identity;
use wire::{Message, Text, job};

use crate::convert::hint_of;
use crate::convert::residency;
use crate::convert::unexpected;
use crate::limits;
use crate::written::Written;

/// Drains the files that a client of a server has written.
pub struct Drainer<'a> {
    /// Client of the server.
    pub client: &'a Client,
    /// Files that were written.
    pub written: &'a Written,
    /// Source of job numbers that this client never used.
    pub numbers: &'a AtomicU64,
    /// How long a request that changes nothing waits for an answer.
    pub patience: Duration,
}

fn path(bytes: &wire::Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes.as_slice()))
}

impl Drainer<'_> {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the state of a file's replica, and whether it is dirty.
    pub(crate) fn resides(
        &self,
        identity: &Identity,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Residency, bool), CallError> {
        let message = Message::State { identity: identity.clone() };
        let call = Call { within: Some(self.patience), interrupted, ..Call::new(&message) };
        match self.client.call(call)?.message {
            Message::Resides { state, dirty } => Ok((residency(state), dirty)),
            other => Err(CallError::Failed { errno: libc::EPROTO, reason: unexpected(&other).to_string() }),
        }
    }

    /// Forgets files that are clean by now. Call this when there are many.
    pub fn forget_clean(&self, interrupted: &dyn Fn() -> bool) {
        for identity in self.written.idle() {
            if self.resides(&identity, interrupted).is_ok_and(|(_, dirty)| !dirty) {
                self.written.forget(&identity);
            }
        }
    }

    /// Runs a job to its end. If the server has forgotten it, begins it anew.
    pub(crate) fn job(
        &self,
        begin: &Message,
        number: u64,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Message, CallError> {
        let ask = |message: &Message| {
            self.client.call(Call { interrupted, ..Call::new(message) }).map(|answer| answer.message)
        };
        loop {
            match ask(begin)? {
                Message::Done {} => {}
                other => return Ok(other),
            }
            loop {
                match ask(&Message::Poll { job: number })? {
                    Message::Pending {} if interrupted() => return Err(CallError::Interrupted),
                    Message::Pending {} => {}
                    Message::Unknown {} => break,
                    outcome => return Ok(outcome),
                }
            }
        }
    }

    /// Drains one file. `Err`: why it is not in the global store.
    pub fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        let (hint, job) = (self.written.hint(identity), self.number());
        let begin = Message::Begin {
            job,
            verb: job::STAGE_OUT,
            identity: identity.clone(),
            hint: hint_of(&hint),
            policy: Text::default(),
        };
        match self.job(&begin, job, interrupted) {
            Ok(Message::Done {}) => {
                self.written.forget(identity);
                Ok(())
            }
            Ok(Message::Stuck { identity, hint, state, orphaned, code, reason, replica }) => Err(Stuck {
                path_hint: path(&hint),
                identity,
                state: residency(state),
                orphaned,
                reason: reason.as_str().to_owned(),
                errno: code.errno(),
                replica: PathBuf::from(format!("{}:{}", self.client.address(), path(&replica).display())),
            }),
            Ok(other) => Err(self.stuck(identity, libc::EPROTO, unexpected(&other).to_string())),
            Err(error) => Err(self.stuck(identity, error.errno(), error.to_string())),
        }
    }

    /// Builds the report of a file that is not in the global store for a reason that the server did not report.
    fn stuck(&self, identity: &Identity, errno: i32, reason: String) -> Stuck {
        Stuck {
            path_hint: self.written.hint(identity),
            identity: identity.clone(),
            state: Residency::Dirty,
            orphaned: false,
            reason,
            errno,
            replica: PathBuf::from(self.client.address().to_string()),
        }
    }

    /// Drains every file that was opened for writing. Returns those that did not reach the global store. The server
    /// stages out several files at once on its own, so most are clean when their turn comes.
    pub fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        let mut stuck = Vec::new();
        self.written.wait_for_ends(limits::CLOSES_WAIT, interrupted);
        let all = self.written.all();
        for (done, identity) in all.iter().enumerate() {
            progress(DrainProgress { files_done: done as u64, files_left: (all.len() - done) as u64, bytes_left: 0 });
            if self.resides(identity, interrupted).is_ok_and(|(_, dirty)| !dirty) {
                self.written.forget(identity);
                continue;
            }
            let Err(one) = self.drain_file(identity, interrupted) else { continue };
            let ended = one.errno == libc::EINTR;
            stuck.push(one);
            if ended {
                return stuck;
            }
        }
        // A copy made while a program here goes on writing is incomplete.
        for identity in self.written.open() {
            let busy = io::Error::from_raw_os_error(libc::EBUSY);
            stuck.push(self.stuck(&identity, libc::EBUSY, busy.to_string()));
        }
        stuck
    }
}
