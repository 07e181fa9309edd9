//! The data store of a server. Names are handled on this node; file data is read and written over the network.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use types::HasErrno;

use config::Policy;
use data_store::{
    CommandOutcome, DataStore, DrainProgress, Extensions, FileChange, FileState, LeftFile, NewTime, OpenData, OpenHow,
    Overlay, ServerState, Status, StatusScope, StoreCommand, StoreStatus, Stuck, WindowFile, WindowStore, WindowUsage,
    is_interrupted,
};
use global_store::Anchor;
use transport::{Call, Client};
use types::{ByteRange, Fingerprint, Identity};
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, job};

use crate::convert::{hint_of, new_time, unexpected};
use crate::handle::RemoteHandle;
use crate::kept::Reads;
use crate::shared::RemoteShared;
use crate::{ahead, fault, limits};

/// The data store of a server.
pub struct RemoteStore {
    inner: Arc<RemoteShared>,
}

impl RemoteStore {
    /// Creates a data store over a connected client. `patience`: how long a request that changes nothing waits for an
    /// answer.
    pub fn new(client: Client, patience: Duration) -> RemoteStore {
        RemoteStore { inner: RemoteShared::new(client, patience) }
    }
}

/// Whether the server does not find a file because its last name is gone.
fn is_nameless(error: &io::Error, anchor: &dyn Anchor) -> bool {
    error.errno() == Some(libc::ESTALE) && anchor.attributes().is_ok_and(|found| found.links == 0)
}

/// Like every wait for the server, an open is interrupted only by the death of the program.
impl DataStore for RemoteStore {
    fn open(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        _interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(RemoteHandle::open(&self.inner, &*anchor, &how, None)?))
    }

    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        _interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let hint = anchor.path_hint();
        self.inner.begin_write(anchor.identity(), &hint);
        let (identity, hint, text) = (anchor.identity().clone(), hint_of(&hint), self.inner.policy(policy));
        let done = self.inner.change(&Message::Truncate { identity, hint, policy: text, len });
        fault::point("remote.cut");
        self.inner.ahead.changed(anchor.identity(), ahead::ALL);
        self.inner.written.end(anchor.identity());
        match done {
            // Another file took its name since the lookup. The rest of the file has no readers.
            Err(error) if is_nameless(&error, &**anchor) => {}
            done => self.inner.mates.changed(anchor.identity(), done?, policy.io_timeout),
        }
        Ok(())
    }

    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [atime, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let (identity, hint) = (anchor.identity().clone(), hint_of(&anchor.path_hint()));
        let (atime, mtime) = (new_time(atime), new_time(mtime));
        match self.inner.change(&Message::SetTimes { identity, hint, atime, mtime }) {
            // Another file took its name since the lookup, and the file is not open.
            Err(error) if is_nameless(&error, &**anchor) => apply(),
            done => Ok(done.map(drop)?),
        }
    }

    fn attributes(&self, identity: &Identity, _below: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        match self.inner.ask(&Message::Attributes { identity: identity.clone() })? {
            Message::Overlay { staged_count, known, size, blocks, mtime, ctime } => {
                self.inner.staged_count.lock().hear(staged_count);
                // If the server's file is not ahead, `mtime` carries the ctime that the server left, and `ctime` the
                // one to show for it. The global copy's current attributes on this node say nothing.
                let below = if known { None } else { Some(mtime) };
                Ok(Some(Overlay { ahead: known, size, blocks, mtime, ctime, below }))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Last count received. A caller that compares counts has requested attributes in between.
    fn staged_count(&self) -> u64 {
        self.inner.staged_count.lock().moves
    }

    fn note(&self, identity: &Identity, change: FileChange<'_>) {
        match change {
            // The server sees its global copy by itself.
            FileChange::Seen(_) | FileChange::Attributes(_) => {}
            FileChange::Names(anchor) => {
                let (identity, hint) = (identity.clone(), hint_of(&anchor.path_hint()));
                // The path is only a hint: the identity finds the file without it.
                let _ = self.inner.ask(&Message::OwnChange { identity, hint });
            }
            FileChange::Removing => {
                if let Err(error) = self.inner.ask(&Message::Removing { identity: identity.clone() }) {
                    tracing::warn!(
                        %error,
                        %identity,
                        "could not announce a removal to the server; after a crash it may keep the file's data"
                    );
                }
                fault::point("remote.removing");
            }
            FileChange::Unlinked => {
                self.inner.written.remove(identity);
                self.inner.tell(Message::Unlinked { identity: identity.clone() });
                fault::point("remote.unlinked");
            }
            FileChange::Elsewhere => self.inner.ahead.changed(identity, ahead::ALL),
        }
    }

    /// The server does not report pins and losses.
    fn state(&self, identity: &Identity) -> FileState {
        let known = |(residency, dirty)| FileState { residency, dirty, ..FileState::default() };
        self.inner.resides(identity).map_or_else(|_| FileState::default(), known)
    }

    fn command(&self, command: StoreCommand<'_>) -> io::Result<CommandOutcome> {
        let change = |message| self.inner.change(&message).map(drop);
        match command {
            StoreCommand::StageIn(anchor, policy) => self.stage_in(&**anchor, policy)?,
            StoreCommand::Evict(identity) => change(Message::Evict { identity: identity.clone() })?,
            StoreCommand::Pin(identity, pinned) => change(Message::Pin { identity: identity.clone(), pinned })?,
            StoreCommand::SyncAll => self.sync_all()?,
            StoreCommand::ForgetClient(client) => self.inner.tell(Message::Gone { session: *client }),
            StoreCommand::Shutdown | StoreCommand::GiveBack(_) => {}
            StoreCommand::Clean(_) | StoreCommand::Resolve(..) | StoreCommand::Quiesce(_) => {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
        }
        Ok(CommandOutcome::Done)
    }

    fn drain(
        &self,
        identity: Option<&Identity>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        match identity {
            Some(identity) => self.inner.drainer().drain_file(identity, interrupted).err().into_iter().collect(),
            None => self.inner.drainer().drain_all(progress, interrupted),
        }
    }

    fn status(&self, scope: StatusScope) -> StoreStatus {
        let counters = if scope == StatusScope::Node { Ok(self.reads()) } else { self.status_of_server() };
        let client = &self.inner.client;
        StoreStatus {
            counters,
            server: Some(ServerState { address: client.address().to_string(), away: client.away() }),
        }
    }

    fn notes_reads(&self, atime: config::Atime) -> Result<(), String> {
        match atime {
            config::Atime::No => Ok(()),
            _ => Err(
                "the policy `atime` cannot be kept with --server: what is read ahead is read without its programs; \
                      leave it at `no`, or let the server serve names too (--names server)"
                    .to_owned(),
            ),
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        let client = Some(self.inner.client.session());
        Extensions { windows: Some(self), shared: true, client, ..Extensions::default() }
    }
}

impl WindowStore for RemoteStore {
    fn find_left(&self, _: &Identity) -> io::Result<LeftFile> {
        Ok(LeftFile::Below)
    }

    fn open_for_windows(
        &self,
        anchor: Arc<dyn Anchor>,
        policy: &Arc<Policy>,
        usage: WindowUsage,
    ) -> io::Result<WindowFile> {
        let how = OpenHow { write: true, policy: Arc::clone(policy), ..OpenHow::default() };
        let target = Box::new(RemoteHandle::open(&self.inner, &*anchor, &how, Some(usage))?);
        Ok(WindowFile { target, part_bytes: DATA_BYTES_MAX.into(), is_remote: true, write_back: None })
    }

    fn changed_since(&self, identity: &Identity, client: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        let message = Message::Since { identity: identity.clone(), session: *client };
        let mut room = vec![0; DATA_BYTES_MAX as usize];
        let call = Call { interrupted: &is_interrupted, into: &mut room, ..Call::new(&message) };
        let answer = self.inner.client.call(call)?;
        match answer.message {
            Message::Bytes {} => {
                let (words, _) = room[..answer.data_bytes].as_chunks::<8>();
                let bounds = words.as_chunks::<2>().0.iter();
                Ok(bounds
                    .map(|[start, end]| ByteRange::new(u64::from_le_bytes(*start), u64::from_le_bytes(*end)))
                    .collect())
            }
            Message::Unknown {} => Ok(Vec::new()),
            other => Err(unexpected(&other)),
        }
    }
}

impl RemoteStore {
    fn stage_in(&self, anchor: &dyn Anchor, policy: &Arc<Policy>) -> io::Result<()> {
        let job = self.inner.number();
        let begin = Message::Begin {
            job,
            verb: job::STAGE_IN,
            identity: anchor.identity().clone(),
            hint: hint_of(&anchor.path_hint()),
            policy: self.inner.policy(policy),
        };
        match self.inner.drainer().job(&begin, job, &is_interrupted)? {
            Message::Done {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Drains all files. A file still being written (`EBUSY`) is durable as far as it was written when it was staged
    /// out.
    fn sync_all(&self) -> io::Result<()> {
        let stuck = self.inner.drainer().drain_all(&mut |_| {}, &is_interrupted);
        let failed = stuck.iter().find(|one| one.errno != libc::EBUSY);
        failed.map_or(Ok(()), |stuck| Err(io::Error::from_raw_os_error(stuck.errno)))
    }

    /// Returns how this node's reads found their bytes.
    fn reads(&self) -> Status {
        let Reads { hits, late, misses } = self.inner.ahead.kept().reads();
        Status { read_hits: hits, read_late: late, read_misses: misses, ..Status::default() }
    }

    fn status_of_server(&self) -> io::Result<Status> {
        let mut report = vec![0; DATA_BYTES_MAX as usize];
        let message = Message::Status {};
        let within = Some(self.inner.patience.min(limits::SERVER_STATUS));
        let call = Call { into: &mut report, within, ..Call::new(&message) };
        let answer = self.inner.client.call(call)?;
        serde_json::from_slice(&report[..answer.data_bytes]).map_err(io::Error::other)
    }
}
