//! The open files of one client.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use concurrency::RwLock;
use data_store::{InPlace, InPlaceAs, OpenData, OpenHow, SeekFor, SyncScope, WriteResult, WriteWhere};
use global_store::descriptors::{Charge, DescriptorOwner};
use transport::InFile;
use types::{ByteRange, Identity, Timestamp};
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, open, seek};

use crate::limits::{HANDLES_MAX, IN_FILE_BYTES_MIN};
use crate::service::{AgentSession, Files, hash};

struct Open {
    handle: Box<dyn OpenData>,
    _charge: Charge,
    identity: Identity,
    /// Hash of the file's identity.
    target: u64,
    version: u64,
    windows: bool,
}

/// A client's open files, by the numbers that the client chose.
#[derive(Default)]
pub(crate) struct ClientHandles(RwLock<HashMap<u64, Arc<Open>>>);

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl Files {
    pub(crate) fn open(
        &self,
        session: &AgentSession,
        number: u64,
        flags: u32,
        identity: &Identity,
        hint: &wire::Path,
        policy: &str,
    ) -> io::Result<Message> {
        if flags & !open::ALL != 0 {
            return errno(libc::EINVAL);
        }
        let handles = &session.handles;
        if let Some(open) = handles.get(number) {
            // The request was sent twice.
            return if open.identity == *identity {
                Ok(Message::Opened { version: open.version, boot_verifier: self.boot_verifier })
            } else {
                errno(libc::EEXIST)
            };
        }
        if handles.len() >= HANDLES_MAX {
            return errno(libc::ENFILE);
        }
        let has = |bit: u32| flags & bit != 0;
        let charge = Charge::take(DescriptorOwner::Node(session.mark()))?;
        let how = OpenHow {
            read: has(open::READ),
            write: has(open::WRITE),
            truncate: has(open::TRUNCATE),
            created: has(open::CREATED),
            sync: has(open::SYNC),
            mark: session.mark(),
            policy: self.policies.get(policy)?,
            ..OpenHow::default()
        };
        let handle = self.data.open(self.anchor(identity, hint)?, how, &|| false)?;
        let version = self.versions.number(&handle.data().content);
        let (identity_of_it, windows) = (identity.clone(), has(open::WINDOWS));
        let open = Open { handle, _charge: charge, identity: identity_of_it, target: hash(identity), version, windows };
        if handles.0.write().insert(number, Arc::new(open)).is_none() && windows {
            self.departed.opened(&session.client, number, identity);
        }
        Ok(Message::Opened { version, boot_verifier: self.boot_verifier })
    }

    pub(crate) fn close(&self, session: &AgentSession, number: u64) {
        let closed = session.handles.0.write().remove(&number);
        // A handle that is not known here may have been opened at a former server.
        if closed.as_ref().is_none_or(|closed| closed.windows) {
            self.departed.closed(&session.client, number);
        }
        // Outside the lock: the last close of a file does real work.
        drop(closed);
    }
}

impl ClientHandles {
    fn get(&self, number: u64) -> Option<Arc<Open>> {
        self.0.read().get(&number).map(Arc::clone)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Returns the hash of the file behind a handle. A handle that is not open returns its own number, so it only
    /// waits for itself.
    pub(crate) fn target(&self, number: u64) -> u64 {
        self.0.read().get(&number).map_or(number, |open| open.target)
    }

    /// Returns the answer to a large read whose bytes can be sent directly from a file. Errors are reported by the
    /// ordinary path.
    pub(crate) fn in_file(&self, message: &Message) -> Option<(Message, InFile)> {
        let Message::Read { handle, offset, len } = *message else { return None };
        let len = len.min(DATA_BYTES_MAX) as usize;
        if len < IN_FILE_BYTES_MIN {
            return None;
        }
        let range = ByteRange::at(offset, len as u64);
        match self.get(handle)?.handle.read_in_place(range, InPlaceAs::File)? {
            InPlace::File(file, bytes) if bytes > 0 => Some((Message::Bytes {}, InFile { file, offset, bytes })),
            _ => None,
        }
    }

    /// Executes a request that names a handle.
    pub(crate) fn request(&self, message: Message, data: &[u8], out: &mut Vec<u8>) -> io::Result<Message> {
        let number = match message {
            Message::Read { handle, .. }
            | Message::Write { handle, .. }
            | Message::WriteBackdated { handle, .. }
            | Message::Append { handle, .. }
            | Message::SetLen { handle, .. }
            | Message::Allocate { handle, .. }
            | Message::Seek { handle, .. }
            | Message::Sync { handle, .. }
            | Message::Flush { handle }
            | Message::End { handle } => handle,
            _ => return errno(libc::EPROTO),
        };
        let Some(open) = self.get(number) else { return Ok(Message::Unknown {}) };
        perform(&*open.handle, message, data, out)
    }
}

/// Returns the answer to an append. An append of which only a part found room fails, for the answer cannot say how
/// much was written.
fn appended(data: &[u8], result: WriteResult) -> io::Result<Message> {
    if result.written < data.len() { errno(libc::ENOSPC) } else { Ok(Message::Written { offset: result.offset }) }
}

/// Converts an age to a time of this machine's clock, independent of the clock of the client's node.
fn ago(age_ns: u64) -> Timestamp {
    let now = concurrency::wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos((now.as_nanos() as u64).saturating_sub(age_ns))
}

fn perform(handle: &dyn OpenData, message: Message, data: &[u8], out: &mut Vec<u8>) -> io::Result<Message> {
    match message {
        Message::Read { offset, len, .. } => {
            out.resize(len.min(DATA_BYTES_MAX) as usize, 0);
            let got = handle.read_at(out, offset)?;
            out.truncate(got);
            Ok(Message::Bytes {})
        }
        Message::Write { offset, .. } => {
            let written = handle.write_at(data, WriteWhere::At(offset))?;
            Ok(Message::Written { offset: written.offset })
        }
        Message::WriteBackdated { offset, age_ns, .. } => {
            let written = handle.write_at(data, WriteWhere::Backdated(offset, ago(age_ns)))?;
            Ok(Message::Written { offset: written.offset })
        }
        Message::Append { end, again, .. } => {
            let place = if again { WriteWhere::EndAgain(end) } else { WriteWhere::End };
            handle.write_at(data, place).and_then(|result| appended(data, result))
        }
        Message::SetLen { len, .. } => handle.set_len(len).map(|()| Message::Done {}),
        Message::Allocate { mode, offset, len, .. } => handle.fallocate(mode, offset, len).map(|()| Message::Done {}),
        Message::Seek { offset, target, .. } => {
            let what = match target {
                seek::DATA => SeekFor::Data,
                seek::HOLE => SeekFor::Hole,
                _ => return errno(libc::EINVAL),
            };
            handle.seek(offset, what).map(|offset| Message::Position { offset })
        }
        Message::Sync { data_only, acknowledged, .. } => {
            let scope = match (acknowledged, data_only) {
                (true, data_only) => SyncScope::Acknowledged(data_only),
                (false, true) => SyncScope::Data,
                (false, false) => SyncScope::All,
            };
            handle.sync(scope).map(|_| Message::Done {})
        }
        Message::Flush { .. } => handle.flush().map(|()| Message::Done {}),
        Message::End { .. } => handle.seek(0, SeekFor::End).map(|offset| Message::Position { offset }),
        _ => errno(libc::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::HasErrno;

    #[test] // S11
    fn an_append_of_which_a_part_alone_found_room_failed() {
        let written = |written| appended(b"data", WriteResult { written, offset: 7 });
        assert!(matches!(written(4), Ok(Message::Written { offset: 7 })));
        assert_eq!(written(3).unwrap_err().errno(), Some(libc::ENOSPC));
    }
}
