//! Requests that name a file, open or not.

use std::io;
use std::sync::Arc;

use data_store::{FileChange, FileState, NewTime, StoreCommand};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use types::Identity;
use wire::{Message, TimeChange, job};

use crate::convert;
use crate::jobs::DrainJob;
use crate::service::{AgentSession, Files};

fn done(result: io::Result<()>) -> io::Result<Message> {
    result.map(|()| Message::Done {})
}

fn timespec(time: TimeChange) -> Timespec {
    match time {
        TimeChange::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        TimeChange::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        TimeChange::At(at) => Timespec { tv_sec: at.seconds, tv_nsec: at.nanos.into() },
    }
}

fn new_time(time: TimeChange) -> Option<NewTime> {
    match time {
        TimeChange::Keep => None,
        TimeChange::Now => Some(NewTime::Now),
        TimeChange::At(time) => Some(NewTime::At(time)),
    }
}

impl Files {
    pub(crate) fn on_file(&self, session: &AgentSession, message: Message) -> io::Result<Message> {
        match message {
            Message::Attributes { identity } => {
                let overlay = self.data.attributes(&identity, None)?;
                // Read after the overlay. If the overlay is empty because a stage-out finished just now, the agent
                // asks its own mount again.
                let staged_count = self.start.wrapping_add(self.data.staged_count());
                Ok(convert::overlay(staged_count, overlay))
            }
            Message::Truncate { identity, hint, policy, len } => {
                let policy = self.policies.get(policy.as_str())?;
                done(self.data.set_len(&self.anchor(&identity, &hint)?, len, &policy, &|| false))
            }
            Message::SetTimes { identity, hint, atime, mtime } => self.set_times(&identity, &hint, atime, mtime),
            Message::OwnChange { identity, hint } => {
                if self.data.state(&identity).dirty {
                    let anchor = self.anchor(&identity, &hint)?;
                    self.data.note(&identity, FileChange::Names(&*anchor));
                }
                Ok(Message::Done {})
            }
            Message::Removing { identity } => {
                self.data.note(&identity, FileChange::Removing);
                Ok(Message::Done {})
            }
            Message::Unlinked { identity } => {
                self.data.note(&identity, FileChange::Unlinked);
                Ok(Message::Done {})
            }
            Message::State { identity } => {
                let FileState { residency, dirty, .. } = self.data.state(&identity);
                Ok(Message::Resides { state: convert::residency(residency), dirty })
            }
            Message::Begin { job, verb, identity, hint, policy } => {
                self.begin_job(session, (job, verb), identity, &hint, policy.as_str())
            }
            Message::Poll { job } => Ok(session.jobs.poll(job)),
            Message::Evict { identity } => done(self.data.command(StoreCommand::Evict(&identity)).map(drop)),
            Message::Pin { identity, pinned } => {
                done(self.data.command(StoreCommand::Pin(&identity, pinned)).map(drop))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        }
    }

    fn set_times(
        &self,
        identity: &Identity,
        hint: &wire::Path,
        atime: TimeChange,
        mtime: TimeChange,
    ) -> io::Result<Message> {
        let anchor = self.anchor(identity, hint)?;
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        let mut apply = || anchor.set_times(&times);
        done(self.data.set_times(&anchor, [new_time(atime), new_time(mtime)], &mut apply))
    }

    fn begin_job(
        &self,
        session: &AgentSession,
        (number, verb): (u64, u8),
        identity: Identity,
        hint: &wire::Path,
        policy: &str,
    ) -> io::Result<Message> {
        let data = Arc::clone(&self.data);
        match verb {
            job::STAGE_OUT => done(session.jobs.begin(number, move |job: &DrainJob| {
                match data.drain_file(&identity, &|| job.is_forgotten()) {
                    Ok(()) => Message::Done {},
                    Err(stuck) => convert::stuck(&stuck),
                }
            })),
            job::STAGE_IN => {
                let (anchor, policy) = (self.anchor(&identity, hint)?, self.policies.get(policy)?);
                let stage_in = move |_: &DrainJob| match data.command(StoreCommand::StageIn(&anchor, &policy)) {
                    Ok(_) => Message::Done {},
                    Err(error) => convert::failed(&error),
                };
                done(session.jobs.begin(number, stage_in))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}
