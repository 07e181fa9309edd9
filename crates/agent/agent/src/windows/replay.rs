//! What killed agents left in rings, brought to the burst buffer before anything is served.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use file_cache::OpenHow;
use global_store::GlobalStore;
use types::{ByteRange, Epoch};
use window::recover::{Bounds, Loss, Replay, Report, Why, recover};
use window::ring::{Grant, Reader, Reason};
use window::sequence::Drained;
use window::{Mapping, Medium};

use super::fault;
use super::place::{FilePlace, RingRecord};
use super::session::Session;
use crate::agent::Agent;
use crate::burst_buffer::OpenData;

/// What became of one file's rings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Its path, as last known.
    pub path: PathBuf,
    /// Acknowledged writes that were in no replica.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is lost, in words: which bytes, and why.
    pub lost: Vec<String>,
    /// Bytes of it that had nowhere to go.
    pub lost_bytes: u64,
}

/// Where replayed bytes go.
struct ToReplica<'a> {
    handle: Box<dyn OpenData>,
    durable: bool,
    replayed: &'a mut Replayed,
}

impl Replay for ToReplica<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.handle.write_acknowledged(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Rings on a tmpfs outlive no machine; neither must what comes from them.
        if self.durable { self.handle.sync_acknowledged(false) } else { Ok(()) }
    }

    fn tell(&mut self, report: &Report) {
        note(self.replayed, report);
    }
}

/// Where bytes go whose file is gone.
struct ToNowhere<'a>(&'a mut Replayed);

impl Replay for ToNowhere<'_> {
    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tell(&mut self, report: &Report) {
        gone(self.0, report);
    }
}

/// Replays every unfinished session of a burst buffer. On an error what could not be replayed stays, and nothing is lost.
pub(crate) fn replay(agent: &Agent, burst_buffer: &Path) -> io::Result<Vec<Replayed>> {
    let mut all = Vec::new();
    for session in Session::unfinished(burst_buffer)? {
        let whole = session.is_whole()?;
        if session.is_wiped()? {
            let lost = vec!["the directory is gone, and with it whatever a killed agent's windows held".to_owned()];
            tracing::error!(dir = %session.path().display(), "acknowledged writes are lost: the directory is gone");
            all.push(Replayed { path: session.path(), records: 0, bytes: 0, lost, lost_bytes: 0 });
        } else if !whole {
            tracing::warn!(
                dir = %session.path().display(),
                "the memory of an earlier agent's windows is gone, as after a crash of the machine: what was written there since the last fsync is lost"
            );
        }
        for place in if whole { session.left()? } else { Vec::new() } {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("windows in {}: {e}", place.path().display()));
            all.extend(file(agent, &place, session.is_durable()).map_err(named)?);
            place.remove();
            fault::point("window.removed");
        }
        session.end(burst_buffer)?;
    }
    Ok(all)
}

/// Mappings need not be flushed here: nothing is served before the session has ended, durably, and until then the same is
/// replayed again.
fn file(agent: &Agent, place: &FilePlace, durable: bool) -> io::Result<Option<Replayed>> {
    let Some((identity, hint)) = place.owner()? else { return Ok(None) };
    let grants = place.grants()?;
    if grants.is_empty() {
        return Ok(None); // over, or never handed out
    }
    let found = agent.store.locate(&identity, &hint, false)?;
    if found.is_none() && place.was_removed() {
        tracing::info!(file = %hint.display(), "windows of a file that was removed on this node are dropped");
        return Ok(None);
    }
    let mut replayed = Replayed { path: hint.clone(), records: 0, bytes: 0, lost: Vec::new(), lost_bytes: 0 };
    let mut rings = rings(place, &grants, &mut replayed.lost);
    let drained = Drained::new(Mapping::open(&place.drained(), Medium::Volatile)?);
    let cut = place.cut()?;
    let bounds = Bounds { cut: cut.map_or(u64::MAX, |cut| cut.keep), ..Bounds::NONE };
    let Some(anchor) = found else {
        recover(&mut rings, &drained, bounds, &mut ToNowhere(&mut replayed))?;
        fault::point("window.drained");
        return Ok(Some(replayed));
    };
    let policy = agent.policies().for_path(&hint);
    let how = OpenHow { read: false, write: true, truncate: false, created: false, sync: false, policy };
    let handle = match agent.cache.open_unless(anchor, how, &|| false) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
            replayed.lost.push("its data is lost from the burst buffer, and these writes to it".to_owned());
            note(&mut replayed, &Report::default());
            return Ok(Some(replayed));
        }
        handle => handle?,
    };
    if let Some(cut) = cut {
        handle.set_len(cut.len)?;
    }
    recover(&mut rings, &drained, bounds, &mut ToReplica { handle, durable, replayed: &mut replayed })?;
    fault::point("window.drained");
    Ok(Some(replayed))
}

/// The rings that can be read; what cannot is told in `lost`.
fn rings(place: &FilePlace, grants: &[(usize, RingRecord)], lost: &mut Vec<String>) -> Vec<Reader<Arc<Mapping>>> {
    let mut rings = Vec::new();
    for (number, record) in grants {
        let writable = ByteRange::new(0, i64::MAX as u64);
        let grant = Grant { ring: record.ring(), capacity: record.capacity, epochs: Epoch(0)..=Epoch(0), writable };
        let memory = Mapping::open(&place.ring(*number), Medium::Volatile).and_then(Mapping::guarded);
        match memory.map(|memory| Reader::left_behind(Arc::new(memory), grant)) {
            Ok(Ok(reader)) => rings.push(reader),
            Ok(Err(error)) => lost.push(format!("a window that cannot be read: {error}")),
            Err(error) => lost.push(format!("a window that cannot be opened: {error}")),
        }
    }
    rings
}

/// Nobody of this node removed the file, and it is not there any more.
fn gone(replayed: &mut Replayed, report: &Report) {
    replayed.lost_bytes = report.replayed.len();
    let gone = |range: ByteRange| format!("bytes {} to {}: the file was removed elsewhere", range.start, range.end);
    replayed.lost.extend(report.replayed.iter().map(gone));
    note(replayed, &Report { lost: report.lost.clone(), ..Report::default() });
}

fn note(replayed: &mut Replayed, report: &Report) {
    replayed.records = report.records;
    replayed.bytes = report.replayed.len();
    replayed.lost.extend(report.lost.iter().map(lost));
    let (path, lost) = (replayed.path.display(), &replayed.lost);
    if replayed.records > 0 {
        tracing::info!(file = %path, records = replayed.records, bytes = replayed.bytes, "replayed a killed agent's windows");
    }
    lost.iter().for_each(|lost| tracing::error!(file = %path, "acknowledged writes are lost: {lost}"));
}

fn lost(loss: &Loss) -> String {
    let why = match loss.why {
        Why::Damaged(Reason::Header | Reason::Payload) => "what the window holds of them is damaged",
        Why::Damaged(Reason::Forbidden) => "the window may not write there",
        Why::NewerEpoch => "somebody else was given them since",
    };
    match loss.range {
        Some(range) => format!("bytes {} to {}: {why}", range.start, range.end),
        None => format!("of bytes that cannot be told: {why}"),
    }
}

/// The directories in which what killed agents acknowledged waits to be brought to this burst buffer. Errors: those of reading them.
pub fn windows_left(burst_buffer: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for session in Session::unfinished(burst_buffer)? {
        if session.is_whole()? && !session.left()?.is_empty() {
            found.push(session.path());
        }
    }
    Ok(found)
}
