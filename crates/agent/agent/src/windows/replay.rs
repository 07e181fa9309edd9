//! What killed agents left in rings, brought to the burst buffer before anything is served.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use file_cache::OpenHow;
use global_store::GlobalStore;
use types::{ByteRange, Epoch};
use window::recover::{Bounds, Loss, Replay, Report, recover};
use window::ring::{Grant, Reader};
use window::sequence::Drained;
use window::{Mapping, Medium};

use super::fault;
use super::place::FilePlace;
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
}

/// Where replayed bytes go.
struct ToReplica {
    handle: Box<dyn OpenData>,
    durable: bool,
}

impl Replay for ToReplica {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.handle.write_acknowledged(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Rings on a tmpfs outlive no machine; neither must what comes from them.
        if self.durable { self.handle.sync_acknowledged(false) } else { Ok(()) }
    }
}

/// Replays every unfinished session of a burst buffer. On an error what could not be replayed stays, and nothing is lost.
pub(crate) fn replay(agent: &Agent, burst_buffer: &Path) -> io::Result<Vec<Replayed>> {
    let mut all = Vec::new();
    for session in Session::unfinished(burst_buffer)? {
        let whole = session.is_whole()?;
        if !whole {
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
    let mut replayed = Replayed { path: hint.clone(), records: 0, bytes: 0, lost: Vec::new() };
    let grants = place.grants()?;
    if grants.is_empty() {
        return Ok(None); // over, or never handed out
    }
    let Some(anchor) = agent.store.locate(&identity, &hint, false)? else {
        tracing::info!(file = %hint.display(), "windows of a file that was deleted are dropped");
        return Ok(None);
    };
    let mut rings = Vec::new();
    for (number, record) in grants {
        let writable = ByteRange::new(0, i64::MAX as u64);
        let grant = Grant { ring: record.ring(), capacity: record.capacity, epochs: Epoch(0)..=Epoch(0), writable };
        let memory = Mapping::open(&place.ring(number), Medium::Volatile).and_then(Mapping::guarded);
        match memory.map(|memory| Reader::left_behind(Arc::new(memory), grant)) {
            Ok(Ok(reader)) => rings.push(reader),
            Ok(Err(error)) => replayed.lost.push(format!("a window that cannot be read: {error}")),
            Err(error) => replayed.lost.push(format!("a window that cannot be opened: {error}")),
        }
    }
    let drained = Drained::new(Mapping::open(&place.drained(), Medium::Volatile)?);
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
    let mut bounds = Bounds::NONE;
    if let Some(cut) = place.cut()? {
        handle.set_len(cut.len)?;
        bounds.cut = cut.keep;
    }
    let mut to = ToReplica { handle, durable };
    let report = recover(&mut rings, &drained, bounds, &mut to)?;
    fault::point("window.drained");
    note(&mut replayed, &report);
    Ok(Some(replayed))
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
    match loss.range {
        Some(range) => format!("bytes {} to {}: {:?}", range.start, range.end, loss.why),
        None => format!("bytes unknown: {:?}", loss.why),
    }
}
